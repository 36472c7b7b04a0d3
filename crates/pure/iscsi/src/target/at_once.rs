//! The short way of a command that is all here, has nobody before it, and that the gate answers: it is never a task.
//!
//! Whoever looks from outside sees what the long way shows: the same checks were passed, and nothing can happen between
//! the turn of the command and its answer.

use super::event::{CommandAtOnce, Gate};
use super::full_feature::FullFeature;
use super::link::Link;
use super::task::Moves;
use crate::pdu::{Opcode, ScsiCommand, TaskAttribute};
use crate::receive::Head;

/// What came of asking for an answer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// It is answered.
    Answered,
    /// The gate was asked and has none: the command goes the long way.
    Declined,
    /// It is none that could be answered: it goes the long way, and nobody was asked.
    Unfit,
}

impl FullFeature {
    /// Answers the command of this PDU, where that is possible.
    pub(crate) fn answer_at_once(
        &mut self,
        link: &mut Link,
        head: Head<'_>,
        data: &[u8],
        gate: &mut impl Gate,
    ) -> Short {
        // Without the immediate bit.
        if head.basic[0] != Opcode::ScsiCommand as u8 || !head.additional.is_empty() {
            return Short::Unfit;
        }
        let Ok(command) = ScsiCommand::parse(head.basic) else { return Short::Unfit };
        if !self.is_next_and_whole(link, &command, data.len()) {
            return Short::Unfit;
        }
        let expected_data_in_bytes = if command.read { command.expected_data_transfer_bytes } else { 0 };
        let asked = CommandAtOnce { lun: command.lun, cdb: &command.cdb, data_out: data, expected_data_in_bytes };
        let Some(response) = gate.answer(&asked) else { return Short::Declined };
        link.handle_acknowledged(command.exp_stat_sn);
        self.session.pass();
        let moves = Moves {
            read: command.read,
            write: command.write,
            expected_out_bytes: command.expected_data_transfer_bytes - expected_data_in_bytes,
            expected_in_bytes: expected_data_in_bytes,
        };
        self.send_whole(link, command.initiator_task_tag, moves, response);
        Short::Answered
    }

    /// Nothing is before the command, it breaks no rule, and its answer is one PDU that can leave.
    #[inline]
    fn is_next_and_whole(&self, link: &Link, command: &ScsiCommand, data_bytes: usize) -> bool {
        let expected = command.expected_data_transfer_bytes;
        // The most data of an answer that is one PDU.
        let answer_bytes_max = link.peer_data_segment_bytes_max.min(self.negotiated.burst_bytes_max);
        let is_whole = match (command.read, command.write) {
            (true, false) => data_bytes == 0 && expected <= answer_bytes_max,
            (false, true) => {
                let unasked =
                    if self.negotiated.immediate_data { self.data_out_limits.first_burst_bytes_max } else { 0 };
                data_bytes == expected as usize && expected <= unasked
            }
            _ => false,
        };
        is_whole
            && command.is_final
            && matches!(command.attribute, TaskAttribute::Untagged | TaskAttribute::Simple)
            && self.is_idle()
            && self.session.is_next(command.cmd_sn)
            && self.session.admit(command.initiator_task_tag, false).is_ok()
            && link.answers_at_once()
    }

    /// Nobody waits whom a new command would pass.
    fn is_idle(&self) -> bool {
        self.events.is_empty() && self.waiting.is_empty() && self.orphans == 0 && !self.is_discovery()
    }
}

impl Link {
    /// No answer waits to be sent, and none is kept.
    #[inline]
    fn answers_at_once(&self) -> bool {
        !self.recovers && self.responding.is_empty() && self.transmit.has_room()
    }
}
