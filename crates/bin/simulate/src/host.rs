//! Host of the array: the project's own initiator, its commands, and the expected content of its writes.

pub(crate) mod command;
pub(crate) mod session;
pub(crate) mod traffic;
mod worker;
