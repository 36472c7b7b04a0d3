//! What a side answered, and where two answers differ.

use anyhow::Result;
use iscsi::initiator::Completion;
use iscsi::pdu::{Residual, ServiceResponse};
use serde::Deserialize;
use std::fmt;

const CHECK_CONDITION: u8 = 0x02;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `good`, `5/24/00` (sense key, additional sense code and its qualifier), or another status such as `conflict`.
    pub end: String,
    /// Where the sense data points, or the information that it has.
    pub pointer: Option<String>,
    pub residual: Residual,
    pub data: Vec<u8>,
}

/// What two answers can differ in.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    End,
    Pointer,
    Residual,
    Data,
    /// What the blocks hold after a command that both say to have done.
    Contents,
}

impl Answer {
    /// What a command came to, or that its connection broke.
    pub fn of(completion: Result<Completion>) -> Self {
        let completion = match completion {
            Ok(completion) => completion,
            // What was said last is for a person to read, and of no use to compare.
            Err(error) => return Self::alone(&format!("none: {error:#}")),
        };
        if completion.response != ServiceResponse::Completed {
            return Self::alone(&format!("{:?}", completion.response));
        }
        let sense = Sensed::parse(&completion.sense);
        let end = match completion.status {
            0x00 => "good".to_owned(),
            CHECK_CONDITION => sense.as_ref().map_or("check, without sense".to_owned(), |sense| sense.code.clone()),
            0x08 => "busy".to_owned(),
            0x18 => "conflict".to_owned(),
            0x28 => "task set full".to_owned(),
            other => format!("status {other:02x}"),
        };
        let len = completion.data_in_bytes as usize;
        let data = completion.data_in.as_deref().map_or(Vec::new(), |data| data[..len.min(data.len())].to_vec());
        Self { end, pointer: sense.and_then(|sense| sense.pointer), residual: completion.residual, data }
    }

    fn alone(end: &str) -> Self {
        Self { end: end.to_owned(), pointer: None, residual: Residual::None, data: Vec::new() }
    }

    /// True when its connection is no more.
    pub fn is_last(&self) -> bool {
        self.end.starts_with("none: ")
    }

    /// Where two answers differ. Of commands that end differently nothing else is compared; a pointer only where both have one.
    pub fn differences(&self, other: &Self) -> Vec<Aspect> {
        if self.end != other.end {
            return vec![Aspect::End];
        }
        let mut found = Vec::new();
        if self.pointer.is_some() && other.pointer.is_some() && self.pointer != other.pointer {
            found.push(Aspect::Pointer);
        }
        if self.residual != other.residual {
            found.push(Aspect::Residual);
        }
        if self.data != other.data {
            found.push(Aspect::Data);
        }
        found
    }

    /// The offsets where the data of two answers differ, those behind the end of the shorter one among them.
    pub fn differing_bytes(&self, other: &Self) -> Vec<usize> {
        let bytes = self.data.len().max(other.data.len());
        (0..bytes).filter(|&at| self.data.get(at) != other.data.get(at)).collect()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.end)?;
        if let Some(pointer) = &self.pointer {
            write!(f, " at {pointer}")?;
        }
        if self.residual != Residual::None {
            write!(f, ", {:?}", self.residual)?;
        }
        if !self.data.is_empty() {
            write!(f, ", {} bytes:", self.data.len())?;
            self.data.iter().take(64).try_for_each(|byte| write!(f, " {byte:02x}"))?;
        }
        Ok(())
    }
}

/// Sense data, in either format.
struct Sensed {
    code: String,
    pointer: Option<String>,
}

impl Sensed {
    /// Source: SPC-4, sense data.
    fn parse(sense: &[u8]) -> Option<Self> {
        let code = |key: u8, asc: u8, ascq: u8| format!("{:x}/{asc:02x}/{ascq:02x}", key & 0x0F);
        let byte = |at: usize| sense.get(at).copied().unwrap_or(0);
        match byte(0) & 0x7F {
            0x70 | 0x71 => {
                let specific = sense.get(15..18).unwrap_or_default();
                let pointer = field_pointer(specific).or_else(|| {
                    let information = sense.get(3..7)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
                    (byte(0) & 0x80 != 0).then(|| format!("information {information}"))
                });
                Some(Self { code: code(byte(2), byte(12), byte(13)), pointer })
            }
            0x72 | 0x73 => {
                let mut rest = sense.get(8..).unwrap_or_default();
                let mut pointer = None;
                while let &[kind, len, ref behind @ ..] = rest {
                    let (body, next) = behind.split_at(usize::from(len).min(behind.len()));
                    let found = match kind {
                        0x00 => body.get(2..10).map(|number| {
                            let number = number.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
                            format!("information {number}")
                        }),
                        0x02 => body.get(2..5).and_then(field_pointer),
                        _ => None,
                    };
                    (pointer, rest) = (pointer.or(found), next);
                }
                Some(Self { code: code(byte(1), byte(2), byte(3)), pointer })
            }
            _ => None,
        }
    }
}

/// Sense key specific data of ILLEGAL REQUEST.
fn field_pointer(specific: &[u8]) -> Option<String> {
    let &[flags, high, low] = specific else { return None };
    if flags & 0x80 == 0 {
        return None;
    }
    let place = if flags & 0x40 != 0 { "CDB" } else { "parameter" };
    let bit = if flags & 0x08 != 0 { format!(", bit {}", flags & 7) } else { String::new() };
    Some(format!("{place} byte {}{bit}", u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(end: &str, residual: Residual, data: &[u8]) -> Answer {
        Answer { end: end.into(), pointer: None, residual, data: data.to_vec() }
    }

    #[test]
    fn sense_of_both_formats_says_the_same() {
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12]) = (0x70, 5, 0x24);
        fixed[15..].copy_from_slice(&[0xCA, 0, 1]);
        let descriptor = [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xCA, 0, 1, 0];
        for sense in [&fixed[..], &descriptor[..]] {
            let sensed = Sensed::parse(sense).unwrap();
            assert_eq!(sensed.code, "5/24/00");
            assert_eq!(sensed.pointer.as_deref(), Some("CDB byte 1, bit 2"));
        }
    }

    #[test]
    fn answers_that_end_differently_are_compared_no_further() {
        let good = answer("good", Residual::None, &[1, 2]);
        assert_eq!(good.differences(&answer("5/24/00", Residual::Underflow(2), &[])), [Aspect::End]);
        let other = answer("good", Residual::Underflow(1), &[1]);
        assert_eq!(good.differences(&other), [Aspect::Residual, Aspect::Data]);
        assert_eq!(good.differing_bytes(&other), [1]);
        assert_eq!(good.differences(&good), []);
    }

    #[test]
    fn pointer_that_only_one_side_gives_is_no_difference() {
        let mut pointed = answer("5/24/00", Residual::None, &[]);
        pointed.pointer = Some("CDB byte 1".into());
        assert_eq!(pointed.differences(&answer("5/24/00", Residual::None, &[])), []);
        let elsewhere = Answer { pointer: Some("CDB byte 2".into()), ..pointed.clone() };
        assert_eq!(pointed.differences(&elsewhere), [Aspect::Pointer]);
    }
}
