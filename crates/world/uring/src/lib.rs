//! The [`World`](shard::World) on Linux: one completion loop per core.
//!
//! [`run`] turns the calling thread into a shard; [`spawn_shard`] starts a thread for one. A shard sleeps in one system
//! call, in io_uring where that is allowed and in epoll otherwise ([`Io`]), until a socket, a disk, a timer or another
//! shard needs it.
//!
//! Memory that the kernel reads or writes is owned by the operation, never by the task that started it: see
//! [`Operation`](operation::Operation) and `sys::ring`. Only `sys` may contain `unsafe`.

mod abandoned_writes;
mod backend;
mod clock;
mod disk;
mod launch;
mod links;
mod net;
mod operation;
mod operation_table;
mod options;
mod reactor;
mod spin;
mod stop;
mod sys;
mod wake_event;
mod world;

pub use backend::makes_ring;
pub use disk::{Disk, locate};
pub use launch::{Shard, run, spawn_shard};
pub use links::{addresses, watch_addresses};
pub use net::{TcpListener, TcpStream, listen_on};
pub use options::{BUSY_POLL, FilesLike, Io, Options, Privileged, Privileges};
pub use stop::Stop;
pub use world::Uring;
