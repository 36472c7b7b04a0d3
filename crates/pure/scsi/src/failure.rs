//! Why a command did not end with GOOD, and the one place where a medium's errors become sense.

use crate::command::{Outcome, Status};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{Extent, IoError, IoErrorKind, Rope};

/// A command that did not do what was asked.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Check(Sense),
    /// The blocks before the one that could not be read are sent all the same.
    CheckBehind(Box<(Sense, Rope)>),
    Status(Status),
}

impl Failure {
    /// The same of a unit whose acknowledged writes may be lost with its device: an initiator that repeated the command until it is
    /// GOOD would believe in them.
    pub(crate) fn with_writes_lost(self) -> Self {
        match self {
            Self::Check(sense) if sense.is_device_away() => {
                Self::Check(Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE))
            }
            other => other,
        }
    }

    /// The outcome, with sense in the format that the control mode page asks for.
    pub(crate) fn outcome(self, descriptor_format: bool) -> Outcome {
        match self {
            Self::Check(sense) => Outcome::check(Sense { descriptor_format, ..sense }),
            Self::CheckBehind(behind) => {
                let (sense, data_in) = *behind;
                Outcome { data_in, ..Outcome::check(Sense { descriptor_format, ..sense }) }
            }
            Self::Status(status) => Outcome::status(status),
        }
    }
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The sense of an error on reading.
pub(crate) fn read_sense(error: IoError) -> Sense {
    sense_of(error, AdditionalSense::UNRECOVERED_READ_ERROR)
}

/// The failure of a command whose reading failed.
pub(crate) fn read_failure(error: IoError) -> Failure {
    read_sense(error).into()
}

/// The failure of a command whose writing, flushing or discarding failed.
pub(crate) fn write_failure(error: IoError) -> Failure {
    sense_of(error, AdditionalSense::WRITE_ERROR).into()
}

/// `error` on blocks of `asked`, so that the first of them is one that the command names.
pub(crate) fn within(asked: Extent, error: IoError) -> IoError {
    let named = asked.intersection(error.extent);
    error.at(if named.is_empty() { asked } else { named })
}

/// A device that is gone, or that failed a flush, is a hardware error and not "not ready": that would
/// invite the initiator to ask again until it hears GOOD, over writes that are lost. A device that is [`IoErrorKind::Away`] has
/// lost nothing that it acknowledged, and comes back.
fn sense_of(error: IoError, medium: AdditionalSense) -> Sense {
    let (key, code) = match error.kind {
        IoErrorKind::Medium => (SenseKey::MediumError, medium),
        IoErrorKind::Gone | IoErrorKind::TimedOut => {
            (SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE)
        }
        IoErrorKind::Away => (SenseKey::NotReady, AdditionalSense::BECOMING_READY),
        IoErrorKind::OutOfRange => (SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE),
        IoErrorKind::NoSpace => (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED),
        IoErrorKind::ReadOnly => (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED),
        IoErrorKind::Unsupported => (SenseKey::IllegalRequest, AdditionalSense::INVALID_OPERATION_CODE),
    };
    let sense = Sense::new(key, code);
    if error.kind == IoErrorKind::Medium { sense.with_information(error.extent.start.0) } else { sense }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_placed_within_what_was_asked() {
        let asked = Extent::new(100, 10);
        let placed = |start, len| {
            let error = IoError::new(IoErrorKind::Medium, Extent::new(start, len));
            read_sense(within(asked, error)).information
        };
        assert_eq!(placed(103, 2), Some(103));
        assert_eq!(placed(90, 15), Some(100), "a stripe that begins before");
        assert_eq!(placed(109, 50), Some(109));
        assert_eq!((placed(0, 0), placed(200, 1), placed(110, 1)), (Some(100), Some(100), Some(100)));
    }
}
