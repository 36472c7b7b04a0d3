//! Interpretation of command completions: done, retry, or an error of one kind.
//!
//! Called by [`crate::disk`] for every completion. It must never turn a failed command into a success.

use block::IoErrorKind;
use iscsi::initiator::Completion;
use iscsi::pdu::ServiceResponse;
use scsi::{AdditionalSense, ParsedSense};

/// Consequence of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command was carried out.
    Done,
    /// Not carried out: retry immediately.
    RetryNow(Attention),
    /// Not carried out: retry after a pause (busy, task set full, becoming ready).
    RetryLater,
    /// The path takes no media commands: retry on another one.
    PathUnusable,
    /// The LUN does not exist on this path (any more): log in again, and identify the unit.
    NotMapped,
    /// Another initiator holds a reservation, or has preempted ours.
    ReservationConflict,
    /// The command has failed.
    Failed(IoErrorKind),
}

/// Unit attention that requires more than a retry of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// None, or none that matters here.
    Other,
    /// The target was started or reset: the content of its volatile cache may be lost (29h). Commands in flight may get
    /// no answer.
    Restarted,
    /// Another initiator has cleared the commands in flight; they may get no answer (2Fh).
    Cleared,
    /// The access state of the path has changed (2Ah/06h).
    AccessChanged,
    /// The LUN may lead to another unit, and the registration may be lost with the mapping: LUNs were remapped
    /// (3Fh/0Eh), or INQUIRY data or the identity has changed (3Fh/03h, 05h).
    UnitChanged,
    /// A reservation or registration was preempted, possibly ours (2Ah/03h, 05h).
    Preempted,
}

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const CONDITION_MET: u8 = 0x04;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;
const TASK_ABORTED: u8 = 0x40;

/// Interprets a completion.
///
/// *Source*: SAM-5, 5.3 (status codes); SPC-4, 4.5.6 (sense keys).
#[must_use]
pub fn of(done: &Completion) -> Outcome {
    // The target did not complete the command at the SCSI level, so there is no status to interpret.
    if done.response != ServiceResponse::Completed {
        return Outcome::RetryLater;
    }
    match done.status {
        GOOD | CONDITION_MET => Outcome::Done,
        BUSY | TASK_SET_FULL => Outcome::RetryLater,
        // Another nexus has aborted the command, and the unit reports that (TAS in the control mode page).
        TASK_ABORTED => Outcome::RetryNow(Attention::Other),
        RESERVATION_CONFLICT => Outcome::ReservationConflict,
        // CHECK CONDITION with unreadable sense data: the command is retried, never taken as done.
        CHECK_CONDITION => ParsedSense::parse(&done.sense).map_or(Outcome::RetryLater, |sensed| of_sense(&sensed)),
        // INTERMEDIATE and ACA ACTIVE cannot occur: no command here is linked or sets NACA.
        _ => Outcome::Failed(IoErrorKind::Medium),
    }
}

fn of_sense(sensed: &ParsedSense) -> Outcome {
    let AdditionalSense(code, qualifier) = sensed.code;
    match (sensed.key, code, qualifier) {
        // RECOVERED ERROR: the data is valid. NO SENSE with CHECK CONDITION is meaningless: the command is retried.
        (0x1, ..) => Outcome::Done,
        (0x0, ..) => Outcome::RetryLater,
        // NOT READY, target port in standby or unavailable state.
        (0x2, 0x04, 0x0b | 0x0c) => Outcome::PathUnusable,
        (0x2, ..) => Outcome::RetryLater,
        // MEDIUM ERROR, HARDWARE ERROR, MISCOMPARE.
        (0x3 | 0x4 | 0xe, ..) => Outcome::Failed(IoErrorKind::Medium),
        // LOGICAL BLOCK ADDRESS OUT OF RANGE.
        (0x5, 0x21, _) => Outcome::Failed(IoErrorKind::OutOfRange),
        // LOGICAL UNIT NOT SUPPORTED.
        (0x5, 0x25, _) => Outcome::NotMapped,
        (0x5, ..) => Outcome::Failed(IoErrorKind::Unsupported),
        // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED, and its variants.
        (0x6, 0x29, 0x00..=0x03) => Outcome::RetryNow(Attention::Restarted),
        // COMMANDS CLEARED BY ANOTHER INITIATOR.
        (0x6, 0x2f, _) => Outcome::RetryNow(Attention::Cleared),
        // INQUIRY DATA, DEVICE IDENTIFIER and REPORTED LUNS DATA HAS CHANGED.
        (0x6, 0x3f, 0x03 | 0x05 | 0x0e) => Outcome::RetryNow(Attention::UnitChanged),
        // RESERVATIONS PREEMPTED, REGISTRATIONS PREEMPTED.
        (0x6, 0x2a, 0x03 | 0x05) => Outcome::RetryNow(Attention::Preempted),
        // ASYMMETRIC ACCESS STATE CHANGED.
        (0x6, 0x2a, 0x06) => Outcome::RetryNow(Attention::AccessChanged),
        (0x6, ..) => Outcome::RetryNow(Attention::Other),
        // SPACE ALLOCATION FAILED WRITE PROTECT: a thin unit is out of space.
        (0x7, 0x27, 0x07) => Outcome::Failed(IoErrorKind::NoSpace),
        // DATA PROTECT.
        (0x7, ..) => Outcome::Failed(IoErrorKind::ReadOnly),
        // ABORTED COMMAND.
        (0xb, ..) => Outcome::RetryLater,
        _ => Outcome::Failed(IoErrorKind::Medium),
    }
}
