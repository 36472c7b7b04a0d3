//! Answer of a side, and the differences of two answers.

use anyhow::Result;
use iscsi::initiator::Completion;
use iscsi::pdu::{Residual, ServiceResponse};
use scsi::{FieldPointer, ParsedSense};
use serde::Deserialize;
use std::fmt;

const CHECK_CONDITION: u8 = 0x02;

/// Answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `good`, `5/24/00` (sense key, additional sense code and qualifier), or another status such as `conflict`.
    pub end: String,
    /// Field pointer or information of the sense data.
    pub pointer: Option<String>,
    pub residual: Residual,
    pub data: Vec<u8>,
}

/// Aspects in which two answers can differ.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Aspect {
    End,
    Pointer,
    Residual,
    Data,
    /// Content of the blocks after a command that both sides executed.
    Contents,
}

impl Answer {
    /// Converts a completion, or the error of a broken connection.
    pub(crate) fn of(completion: Result<Completion>) -> Self {
        let completion = match completion {
            Ok(completion) => completion,
            // The error text is meant for a person and is not compared.
            Err(error) => return Self::alone(&format!("none: {error:#}")),
        };
        // The status is valid only in the response Command Completed at Target (RFC 7143 §11.4.2).
        if completion.response != ServiceResponse::Completed {
            return Self::alone(&format!("{:?}", completion.response));
        }
        let sensed = ParsedSense::parse(&completion.sense);
        let end = match completion.status {
            0x00 => "good".to_owned(),
            CHECK_CONDITION => sensed.as_ref().map_or("check, without sense".to_owned(), end_of),
            0x08 => "busy".to_owned(),
            0x18 => "conflict".to_owned(),
            0x28 => "task set full".to_owned(),
            other => format!("status {other:02x}"),
        };
        // Only the bytes that arrived: the rest of the buffer is still zero.
        let len = completion.data_in_bytes as usize;
        let data = completion.data_in.as_deref().map_or(Vec::new(), |data| data[..len.min(data.len())].to_vec());
        Self { end, pointer: sensed.as_ref().and_then(pointer_of), residual: completion.residual, data }
    }

    fn alone(end: &str) -> Self {
        Self { end: end.to_owned(), pointer: None, residual: Residual::None, data: Vec::new() }
    }

    /// True when the connection was lost.
    pub(crate) fn is_last(&self) -> bool {
        self.end.starts_with("none: ")
    }

    /// Returns the differences of two answers. If the commands ended differently, nothing else is compared; pointers
    /// are compared only if both sides have one.
    pub(crate) fn differences(&self, other: &Self) -> Vec<Aspect> {
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

    /// Returns the offsets at which the data differs, including offsets after the end of the shorter one.
    pub(crate) fn differing_bytes(&self, other: &Self) -> Vec<usize> {
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

fn end_of(sensed: &ParsedSense) -> String {
    let (key, code, qualifier) = sensed.triple();
    format!("{key:x}/{code:02x}/{qualifier:02x}")
}

fn pointer_of(sensed: &ParsedSense) -> Option<String> {
    let Some(FieldPointer { in_cdb, byte, bit }) = sensed.field else {
        return sensed.information.map(|information| format!("information {information}"));
    };
    let place = if in_cdb { "CDB" } else { "parameter" };
    let bit = bit.map_or(String::new(), |bit| format!(", bit {bit}"));
    Some(format!("{place} byte {byte}{bit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(end: &str, residual: Residual, data: &[u8]) -> Answer {
        Answer { end: end.into(), pointer: None, residual, data: data.to_vec() }
    }

    #[test]
    fn sense_is_told_by_its_code_and_by_what_it_points_at() {
        let mut sense = [0; 18];
        (sense[0], sense[2], sense[6], sense[12]) = (0xF0, 5, 7, 0x24);
        let told = |sense: &[u8]| {
            let sensed = ParsedSense::parse(sense).unwrap();
            (end_of(&sensed), pointer_of(&sensed))
        };
        assert_eq!(told(&sense), ("5/24/00".into(), Some("information 7".into())));
        sense[15..].copy_from_slice(&[0xCA, 0, 1]);
        assert_eq!(told(&sense), ("5/24/00".into(), Some("CDB byte 1, bit 2".into())));
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
