//! A host of the array: our own initiator, its commands, and what it believes of what it wrote.

pub(crate) mod command;
pub(crate) mod session;
pub(crate) mod traffic;
mod worker;
