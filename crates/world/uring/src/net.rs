//! TCP: readiness from the reactor, bytes by direct system calls on the caller's memory.
//!
//! Nothing that a task lends is ever given to the kernel beyond the call, so a dropped future is harmless.

mod listener;
mod setup;
mod socket;
mod stream;

pub use listener::{TcpListener, open as listen_on};
pub use stream::TcpStream;
pub(crate) use stream::connect;
