//! The messages between the daemon and its privileged helper (docs/adr/0019-process-model.md), as bytes.
//!
//! `blockyard serve` uses both sides: the helper parses each [`Request`] and emits an [`Answer`], the daemon the other way round. A message is
//! one packet of at most [`REQUEST_BYTES_MAX`] or [`ANSWER_BYTES_MAX`]: version, number, verb or status, then fields that each begin with
//! their length. Everything else is a [`Violation`]. This crate judges no path and opens nothing: the policy is the helper's.

mod answer;
mod fields;
mod request;

pub use answer::{ANSWER_BYTES_MAX, Answer, Outcome};
pub use fields::Violation;
pub use request::{Damaged, Mode, Program, REQUEST_BYTES_MAX, Request, Verb};

/// The version of the messages. Both sides are one program, so there is never another one.
pub const VERSION: u8 = 1;

#[cfg(test)]
mod tests;
