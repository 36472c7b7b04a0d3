//! What a command's end means for a remote disk: done, again, or an error of one kind.
//!
//! Called by [`crate::disk`] for every completion. It must never turn a failed command into a success.

use block::IoErrorKind;
use iscsi::initiator::Completion;
use iscsi::pdu::ServiceResponse;
use scsi::{AdditionalSense, Sensed};

/// What to do with a command that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was carried out.
    Done,
    /// It was not carried out: send it again at once.
    Again(Attention),
    /// It was not carried out: send it again after a pause (busy, task set full, becoming ready).
    Later,
    /// The path takes no media commands: send it on another one.
    PathUnusable,
    /// There is no such unit on this path (any more): log in again, and look which one is there.
    NotMapped,
    /// Another initiator holds a reservation, or has preempted ours.
    ReservationConflict,
    /// It has failed.
    Failed(IoErrorKind),
}

/// A unit attention that means more than that the command must be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// None, or none that matters here.
    Other,
    /// The target was started or reset: what its volatile cache held may be lost (29h). Commands that were under way may
    /// get no answer.
    Restarted,
    /// Another initiator has cleared the commands that were under way; they may get no answer (2Fh).
    Cleared,
    /// The access state of the path has changed (2Ah/06h).
    AccessChanged,
    /// The LUN may lead to another unit, and the registration may have gone with the mapping: the LUNs were mapped anew
    /// (3Fh/0Eh), or INQUIRY data or the identity has changed (3Fh/03h, 05h).
    UnitChanged,
    /// A reservation or registration was preempted, perhaps ours (2Ah/03h, 05h).
    Preempted,
}

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const CONDITION_MET: u8 = 0x04;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;
const TASK_ABORTED: u8 = 0x40;

/// What the end of a command means.
///
/// *Source*: SAM-5, 5.3 (status codes); SPC-4, 4.5.6 (sense keys).
#[must_use]
pub fn of(done: &Completion) -> Verdict {
    if done.response != ServiceResponse::Completed {
        return Verdict::Later;
    }
    match done.status {
        GOOD | CONDITION_MET => Verdict::Done,
        BUSY | TASK_SET_FULL => Verdict::Later,
        TASK_ABORTED => Verdict::Again(Attention::Other),
        RESERVATION_CONFLICT => Verdict::ReservationConflict,
        CHECK_CONDITION => Sensed::parse(&done.sense).map_or(Verdict::Later, |sensed| of_sense(&sensed)),
        _ => Verdict::Failed(IoErrorKind::Medium),
    }
}

fn of_sense(sensed: &Sensed) -> Verdict {
    let AdditionalSense(code, qualifier) = sensed.code;
    match (sensed.key, code, qualifier) {
        // RECOVERED ERROR: the data is right. NO SENSE under CHECK CONDITION says nothing: the command is sent again.
        (0x1, ..) => Verdict::Done,
        (0x0, ..) => Verdict::Later,
        (0x2, 0x04, 0x0b | 0x0c) => Verdict::PathUnusable,
        (0x2, ..) => Verdict::Later,
        (0x3 | 0x4 | 0xe, ..) => Verdict::Failed(IoErrorKind::Medium),
        (0x5, 0x21, _) => Verdict::Failed(IoErrorKind::OutOfRange),
        // LOGICAL UNIT NOT SUPPORTED.
        (0x5, 0x25, _) => Verdict::NotMapped,
        (0x5, ..) => Verdict::Failed(IoErrorKind::Unsupported),
        (0x6, 0x29, 0x00..=0x03) => Verdict::Again(Attention::Restarted),
        (0x6, 0x2f, _) => Verdict::Again(Attention::Cleared),
        (0x6, 0x3f, 0x03 | 0x05 | 0x0e) => Verdict::Again(Attention::UnitChanged),
        (0x6, 0x2a, 0x03 | 0x05) => Verdict::Again(Attention::Preempted),
        (0x6, 0x2a, 0x06) => Verdict::Again(Attention::AccessChanged),
        (0x6, ..) => Verdict::Again(Attention::Other),
        (0x7, 0x27, 0x07) => Verdict::Failed(IoErrorKind::NoSpace),
        (0x7, ..) => Verdict::Failed(IoErrorKind::ReadOnly),
        // ABORTED COMMAND.
        (0xb, ..) => Verdict::Later,
        _ => Verdict::Failed(IoErrorKind::Medium),
    }
}
