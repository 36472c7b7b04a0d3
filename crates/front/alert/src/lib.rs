//! What is wrong now, told once to whoever should know.
//!
//! An alert is a condition of a subject, however often its event comes: it is raised, told, and resolved when the condition ends. The
//! [`Book`](book::Book) holds what is active and who was told what; it is kept, so that a restart tells nothing twice. What a receiver has
//! still to be told is worked out from it each time, so that nothing queues up while a receiver is away, and it hears how things are.

mod alerts;
mod book;
mod document;
mod mail;
mod message;
mod receiver;
pub mod request;
mod rule;
mod send;
mod smtp;
mod webhook;

pub use alerts::{Alerts, Delivered};
pub use message::Message;

/// What the one is called in events whom the audit is forwarded to.
pub const AUDIT_RECEIVER: &str = "audit";
