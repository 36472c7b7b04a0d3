//! Retained PDUs for retransmission: unacknowledged statuses, with the responses that they complete.
//!
//! Nothing is retained at error recovery level 0. Above it, every PDU of the initiator acknowledges statuses, so the
//! queue is about as long as the initiator's queue depth. An initiator that does not acknowledge can have no more
//! retransmitted than the limits retain.

use super::link::Link;
use super::task::Responding;
use crate::pdu::{Bhs, InitiatorTaskTag, StatSn};
use std::collections::VecDeque;

/// Maximum number of retained statuses.
pub(super) const STATUSES_MAX: usize = 1024;
/// Maximum length of retained data in bytes.
const BYTES_MAX: usize = 32 << 20;

/// Unacknowledged statuses of a connection, in order of StatSN.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    statuses: VecDeque<Status>,
    bytes: usize,
}

/// Retained status.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) stat_sn: StatSn,
    pub(crate) content: SentContent,
}

/// PDU or response that carried a status.
#[derive(Debug)]
pub(crate) enum SentContent {
    /// Single PDU.
    Pdu(Box<Bhs>, Vec<u8>),
    /// Response to a command, in its state before the last PDU.
    Answer(Box<Responding>),
}

impl Sent {
    fn push(&mut self, status: Status) {
        let follows = self.statuses.back().is_none_or(|last| last.stat_sn.precedes(status.stat_sn));
        assert!(follows, "statuses are kept in the order of their numbers");
        self.bytes += status.bytes();
        self.statuses.push_back(status);
        // The latest status is kept even if it exceeds the byte limit alone.
        while self.statuses.len() > STATUSES_MAX || self.bytes > BYTES_MAX && self.statuses.len() > 1 {
            self.pop();
        }
        assert!(self.statuses.len() <= STATUSES_MAX, "no more is kept than the bounds allow");
    }

    fn pop(&mut self) {
        if let Some(status) = self.statuses.pop_front() {
            assert!(status.bytes() <= self.bytes, "the bytes of all statuses are counted");
            self.bytes -= status.bytes();
        }
    }

    /// Drops the statuses before `expected`, which the initiator has.
    pub(crate) fn acknowledge(&mut self, expected: StatSn) {
        // Cumulative: an acknowledgement covers all lower StatSN.
        while self.statuses.front().is_some_and(|status| status.stat_sn.precedes(expected)) {
            self.pop();
        }
    }

    /// Takes the status with this StatSN and its position, to be put back.
    pub(crate) fn take(&mut self, stat_sn: StatSn) -> Option<(usize, Status)> {
        let at = self.statuses.iter().position(|status| status.stat_sn == stat_sn)?;
        Some((at, self.statuses.remove(at)?))
    }

    /// Returns the StatSN of the response to the command with this tag.
    pub(crate) fn stat_sn_of(&self, tag: InitiatorTaskTag) -> Option<StatSn> {
        let is_it = |status: &&Status| matches!(&status.content, SentContent::Answer(answer) if answer.tag == tag);
        self.statuses.iter().find(is_it).map(|status| status.stat_sn)
    }

    /// Puts a taken status back.
    pub(crate) fn put(&mut self, at: usize, status: Status) {
        // Its bytes were never subtracted: `take` leaves the count alone.
        self.statuses.insert(at, status);
    }

    /// Takes the response to the command with this tag, which another connection will send.
    pub(crate) fn take_answer(&mut self, tag: InitiatorTaskTag) -> Option<Responding> {
        let (_, status) = self.take(self.stat_sn_of(tag)?)?;
        // The response is not put back, so its bytes no longer count.
        self.bytes -= status.bytes();
        match status.content {
            SentContent::Answer(answer) => Some(*answer),
            SentContent::Pdu(..) => None,
        }
    }
}

impl Status {
    fn bytes(&self) -> usize {
        match &self.content {
            SentContent::Pdu(_, data) => data.len(),
            // The data of a response is a reference to the driver's buffers, which stay allocated until it is dropped.
            SentContent::Answer(answer) => answer.response.data_in.len(),
        }
    }
}

impl Link {
    /// Queues a PDU with the StatSN taken last, and retains it for retransmission.
    pub(crate) fn push_status(&mut self, header: &Bhs, data: &[u8]) {
        self.transmit.push(header, data);
        // At error recovery level 0 nothing can be requested again, so nothing is copied.
        if self.recovers {
            // `push_status` is called after the number was taken.
            let stat_sn = self.stat_sn.minus(1);
            self.sent.push(Status { stat_sn, content: SentContent::Pdu(Box::new(*header), data.to_vec()) });
        }
    }

    /// Retains a response whose last PDU carried the status `stat_sn`.
    #[inline]
    pub(crate) fn keep_answer(&mut self, stat_sn: StatSn, answer: Responding) {
        if self.recovers {
            self.sent.push(Status { stat_sn, content: SentContent::Answer(Box::new(answer)) });
        }
    }
}
