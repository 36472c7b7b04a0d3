//! Failure of a command, and the only mapping from device errors to sense data.

use crate::command::{Outcome, Status};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{Extent, IoError, IoErrorKind, Rope};

/// Reason why a command did not complete with GOOD.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Check(Sense),
    /// CHECK CONDITION with data: the blocks before the unreadable one are sent nevertheless.
    CheckBehind(Box<(Sense, Rope)>),
    Status(Status),
}

impl Failure {
    /// Maps NOT READY to a hardware error for a unit whose acknowledged writes may be lost with its device: an
    /// initiator that retried until GOOD would rely on them.
    pub(crate) fn with_writes_lost(self) -> Self {
        match self {
            Self::Check(sense) if sense.is_device_away() => {
                Self::Check(Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE))
            }
            other => other,
        }
    }

    /// Returns the outcome, with sense data in the format that the control mode page selects.
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

/// Maps a read error to sense data.
pub(crate) fn read_sense(error: IoError) -> Sense {
    sense_of(error, AdditionalSense::UNRECOVERED_READ_ERROR)
}

/// Maps a read error to the failure of a command.
pub(crate) fn read_failure(error: IoError) -> Failure {
    read_sense(error).into()
}

/// Maps an error of a write, flush or discard to the failure of a command.
pub(crate) fn write_failure(error: IoError) -> Failure {
    sense_of(error, AdditionalSense::WRITE_ERROR).into()
}

/// Restricts the extent of `error` to `asked`, so that INFORMATION names a block that the command named.
pub(crate) fn within(asked: Extent, error: IoError) -> IoError {
    // An error may name more blocks than the command did, for example a whole stripe.
    let named = asked.intersection(error.extent);
    error.at(if named.is_empty() { asked } else { named })
}

/// Maps a device error to sense data.
///
/// A device that is gone, or that failed a flush, is a hardware error and not NOT READY, which would invite the
/// initiator to retry until GOOD, over lost writes. A device that is [`IoErrorKind::Unreachable`] has lost nothing that
/// it acknowledged, and comes back.
fn sense_of(error: IoError, medium: AdditionalSense) -> Sense {
    let (key, code) = match error.kind {
        IoErrorKind::Medium => (SenseKey::MediumError, medium),
        IoErrorKind::Gone | IoErrorKind::TimedOut => {
            (SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE)
        }
        // The device is expected back, and hosts repeat a command that ends with BECOMING READY.
        IoErrorKind::Unreachable => (SenseKey::NotReady, AdditionalSense::BECOMING_READY),
        IoErrorKind::OutOfRange => (SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE),
        // SBC-4: a write that finds no space on a thin unit ends with DATA PROTECT, not with a medium error.
        IoErrorKind::NoSpace => (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED),
        IoErrorKind::ReadOnly => (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED),
        IoErrorKind::Unsupported => (SenseKey::IllegalRequest, AdditionalSense::INVALID_OPERATION_CODE),
    };
    let sense = Sense::new(key, code);
    // INFORMATION names a block, and only an error of the medium concerns one.
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
