//! Answers of the privileged helper.

use crate::VERSION;
use crate::fields::{Reader, Violation, put};

/// Maximum length of an answer in bytes: a header and a reason of 512 bytes.
pub const ANSWER_BYTES_MAX: usize = 1024;

/// Maximum length of a refusal reason in bytes; longer ones are truncated.
const REASON_BYTES_MAX: usize = 512;

/// Answer to a request. A descriptor that it returns travels with the packet (`SCM_RIGHTS`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the request.
    pub number: u32,
    /// Result of the request.
    pub outcome: Outcome,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success; for `open` and `bind` with a descriptor.
    Done,
    /// Program finished with this exit code; its output is the descriptor.
    Ran {
        /// Exit code; -1 when it was killed by a signal.
        code: i32,
    },
    /// Refusal by the helper's policy.
    Refused {
        /// Rule that was violated, as a sentence.
        reason: String,
    },
    /// System call failed.
    Failed {
        /// Error number (`errno`).
        errno: i32,
    },
}

impl Answer {
    /// Encodes the answer.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        // Version and number come first, as in a request.
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.number.to_le_bytes());
        match &self.outcome {
            Outcome::Done => out.push(0),
            Outcome::Ran { code } => {
                out.push(1);
                put(&mut out, &code.to_le_bytes());
            }
            Outcome::Refused { reason: why } => {
                out.push(2);
                // Truncated at a character boundary: the daemon accepts only valid UTF-8.
                put(&mut out, &why.as_bytes()[..why.floor_char_boundary(REASON_BYTES_MAX)]);
            }
            Outcome::Failed { errno } => {
                out.push(3);
                put(&mut out, &errno.to_le_bytes());
            }
        }
        assert!(out.len() <= ANSWER_BYTES_MAX, "a reason is cut to its length");
        out
    }

    /// Parses an answer.
    ///
    /// *Errors*: the rule that the bytes violate.
    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        // The helper never exceeds the limit, so a longer packet is no answer.
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
            // Status codes are those of `emit`.
            0 => Outcome::Done,
            1 => Outcome::Ran { code: i32::from_le_bytes(reader.exact()?) },
            2 => Outcome::Refused { reason: parse_reason(reader.field()?)? },
            3 => Outcome::Failed { errno: i32::from_le_bytes(reader.exact()?) },
            unknown => return Err(Violation::Verb(unknown)),
        };
        reader.end()?;
        Ok(Self { number, outcome })
    }
}

fn parse_reason(field: &[u8]) -> Result<String, Violation> {
    // The helper truncates its reasons, so a longer one is a violation.
    if field.len() > REASON_BYTES_MAX {
        return Err(Violation::Field);
    }
    String::from_utf8(field.to_vec()).map_err(|_| Violation::Field)
}
