//! Alerts: conditions of the array, reported once to each receiver by mail or webhook.
//!
//! An alert is a condition of a subject, however often its event occurs: it is raised, reported, and resolved when the
//! condition ends. The [`Book`](book::Book) holds the active alerts and what each receiver was told; it is stored, so
//! that a restart repeats nothing. Due reports are computed from it each time, so that nothing queues up while a
//! receiver is unreachable; it then gets the current state.
//!
//! Started by the daemon, called by the API. It decides nothing about the array.

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

/// Subject name of the receiver to which the audit log is forwarded.
pub const AUDIT_RECEIVER: &str = "audit";
