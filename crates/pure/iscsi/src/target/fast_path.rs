//! Fast path of a command that is complete, next in order, and answered synchronously by the gate: it never becomes a
//! task.
//!
//! The initiator observes the same as on the slow path: the same checks are made, and nothing can happen between the
//! turn of the command and its response.

use super::event::{CompleteCommand, Gate};
use super::full_feature::FullFeature;
use super::link::Link;
use super::task::TransferLengths;
use crate::pdu::{Opcode, ScsiCommand, TaskAttribute};
use crate::receive::Head;

/// Result of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathResult {
    /// The command was answered.
    Answered,
    /// The gate was asked and declined: the slow path executes the command.
    Declined,
    /// The command does not qualify; the gate was not asked.
    Unfit,
}

impl FullFeature {
    /// Answers the command of this PDU, where possible.
    pub(crate) fn try_fast_path(
        &mut self,
        link: &mut Link,
        head: Head<'_>,
        data: &[u8],
        gate: &mut impl Gate,
    ) -> FastPathResult {
        // The comparison includes the immediate bit, so immediate commands do not qualify.
        if head.basic[0] != Opcode::ScsiCommand as u8 || !head.additional.is_empty() {
            return FastPathResult::Unfit;
        }
        // Violations are reported by the slow path.
        let Ok(command) = ScsiCommand::parse(head.basic) else { return FastPathResult::Unfit };
        if !self.is_next_and_whole(link, &command, data.len()) {
            return FastPathResult::Unfit;
        }
        let expected_data_in_bytes = if command.read { command.expected_data_transfer_bytes } else { 0 };
        let asked = CompleteCommand { lun: command.lun, cdb: &command.cdb, data_out: data, expected_data_in_bytes };
        let Some(response) = gate.answer(&asked) else { return FastPathResult::Declined };
        // Nothing has been changed up to here, so both early returns leave the command to the slow path.
        link.handle_acknowledged(command.exp_stat_sn);
        // The command takes its CmdSN and its place in the window within one step.
        self.session.pass();
        let moves = TransferLengths {
            read: command.read,
            write: command.write,
            // No underflow: the command either reads or writes, so the subtrahend is zero or the whole length.
            expected_out_bytes: command.expected_data_transfer_bytes - expected_data_in_bytes,
            expected_in_bytes: expected_data_in_bytes,
        };
        self.send_whole(link, command.initiator_task_tag, moves, response);
        FastPathResult::Answered
    }

    /// True when the command is next in order, violates no rule, and its response is one PDU that can be queued now.
    #[inline]
    fn is_next_and_whole(&self, link: &Link, command: &ScsiCommand, data_bytes: usize) -> bool {
        let expected = command.expected_data_transfer_bytes;
        // Maximum data of a response that fits one Data-In PDU.
        let answer_bytes_max = link.peer_data_segment_bytes_max.min(self.negotiated.burst_bytes_max);
        let is_whole = match (command.read, command.write) {
            (true, false) => data_bytes == 0 && expected <= answer_bytes_max,
            (false, true) => {
                let unasked =
                    if self.negotiated.immediate_data { self.data_out_limits.first_burst_bytes_max } else { 0 };
                data_bytes == expected as usize && expected <= unasked
            }
            // Bidirectional commands, and those without data, take the slow path.
            _ => false,
        };
        is_whole
            // All unsolicited data came with the command.
            && command.is_final
            // SIMPLE only: other attributes depend on commands before and after.
            && matches!(command.attribute, TaskAttribute::Untagged | TaskAttribute::Simple)
            && self.is_idle()
            && self.session.is_next(command.cmd_sn)
            && self.session.admit(command.initiator_task_tag, false).is_ok()
            && link.can_respond_now()
    }

    /// True when no other command would be overtaken.
    fn is_idle(&self) -> bool {
        self.events.is_empty() && self.waiting.is_empty() && self.orphaned_commands == 0 && !self.is_discovery()
    }
}

impl Link {
    /// True when no response is queued before this one, and responses need not be retained for recovery.
    #[inline]
    fn can_respond_now(&self) -> bool {
        // Retained responses need a task, so error recovery excludes the fast path.
        !self.recovers && self.responding.is_empty() && self.transmit.has_room()
    }
}
