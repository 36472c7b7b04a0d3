//! Answers of the helper.

use crate::VERSION;
use crate::fields::{Reader, Violation, put};

/// The longest answer: a sentence of 512 bytes with its header.
pub const ANSWER_BYTES_MAX: usize = 1024;

/// The longest reason for a refusal; the rest is cut off.
const WHY_BYTES_MAX: usize = 512;

/// One answer. What it gives beside its bytes, a descriptor, travels with the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub number: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; `open` and `bind` have a descriptor with it.
    Done,
    /// A program has run and ended with this exit code; its output is the descriptor.
    Ran {
        /// The exit code; -1 after a signal.
        code: i32,
    },
    /// The policy of the helper forbids it.
    Refused {
        /// The rule, as a sentence.
        why: String,
    },
    /// The system refused it.
    Failed {
        /// The error number.
        errno: i32,
    },
}

impl Answer {
    /// The bytes of the answer.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.number.to_le_bytes());
        match &self.outcome {
            Outcome::Done => out.push(0),
            Outcome::Ran { code } => {
                out.push(1);
                put(&mut out, &code.to_le_bytes());
            }
            Outcome::Refused { why } => {
                out.push(2);
                put(&mut out, &why.as_bytes()[..why.floor_char_boundary(WHY_BYTES_MAX)]);
            }
            Outcome::Failed { errno } => {
                out.push(3);
                put(&mut out, &errno.to_le_bytes());
            }
        }
        assert!(out.len() <= ANSWER_BYTES_MAX, "a reason is cut to its length");
        out
    }

    /// The answer that `bytes` are.
    ///
    /// *Errors*: the rule that they break.
    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(Violation::TooLong);
        }
        let mut reader = Reader(bytes);
        let [version] = reader.array()?;
        if version != VERSION {
            return Err(Violation::Version(version));
        }
        let number = u32::from_le_bytes(reader.array()?);
        let [status] = reader.array()?;
        let outcome = match status {
            0 => Outcome::Done,
            1 => Outcome::Ran { code: i32::from_le_bytes(reader.exact()?) },
            2 => Outcome::Refused { why: why(reader.field()?)? },
            3 => Outcome::Failed { errno: i32::from_le_bytes(reader.exact()?) },
            unknown => return Err(Violation::Verb(unknown)),
        };
        reader.end()?;
        Ok(Self { number, outcome })
    }
}

fn why(field: &[u8]) -> Result<String, Violation> {
    if field.len() > WHY_BYTES_MAX {
        return Err(Violation::Field);
    }
    String::from_utf8(field.to_vec()).map_err(|_| Violation::Field)
}
