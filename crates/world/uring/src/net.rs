//! TCP: readiness from the reactor, data by direct system calls on the caller's memory.
//!
//! No memory of a task is with the kernel after a call has returned, so a dropped future is harmless.

mod listener;
mod setup;
mod socket;
mod stream;

pub use listener::{TcpListener, open as listen_on};
pub use stream::TcpStream;
pub(crate) use stream::connect;
