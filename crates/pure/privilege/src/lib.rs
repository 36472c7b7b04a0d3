//! Message codec between the daemon and its privileged helper (docs/adr/0019-process-model.md).
//!
//! `blockyard serve` uses both sides: the helper parses each [`Request`] and emits an [`Answer`], the daemon
//! the other way round. A message is one packet of at most [`REQUEST_BYTES_MAX`] or [`ANSWER_BYTES_MAX`]:
//! version, number, verb or status, then length-prefixed fields. Everything else is a [`Violation`]. This crate
//! must never judge a path or open anything: the policy is the helper's.

mod answer;
mod fields;
mod request;

pub use answer::{ANSWER_BYTES_MAX, Answer, Outcome};
pub use fields::Violation;
pub use request::{Damaged, Mode, Program, REQUEST_BYTES_MAX, Request, Verb};

/// Protocol version. Both sides are one program, so no other version exists.
pub const VERSION: u8 = 1;

#[cfg(test)]
mod tests;
