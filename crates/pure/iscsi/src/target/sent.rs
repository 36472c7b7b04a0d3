//! What was sent and may be asked for again: statuses that are not acknowledged, with the answers behind them.
//!
//! At error recovery level 0 nothing is kept. Above it, an initiator acknowledges with all that it sends, so the queue is
//! about as long as its commands are many; one that does not is not given more again than fits the bounds.

use super::link::Link;
use super::task::Responding;
use crate::pdu::{Bhs, InitiatorTaskTag, StatSn};
use std::collections::VecDeque;

/// Statuses that are kept at most.
pub(super) const STATUSES_MAX: usize = 1024;
/// Bytes of answers that are kept at most.
const BYTES_MAX: usize = 32 << 20;

/// The statuses of a connection that its initiator may lack, in their order.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    statuses: VecDeque<Status>,
    bytes: usize,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) stat_sn: StatSn,
    pub(crate) what: What,
}

/// What a status came with.
#[derive(Debug)]
pub(crate) enum What {
    /// A PDU in one piece.
    Pdu(Box<Bhs>, Vec<u8>),
    /// The answer to a command, as it stood before its last PDU.
    Answer(Box<Responding>),
}

impl Sent {
    fn push(&mut self, status: Status) {
        let follows = self.statuses.back().is_none_or(|last| last.stat_sn.precedes(status.stat_sn));
        assert!(follows, "statuses are kept in the order of their numbers");
        self.bytes += status.bytes();
        self.statuses.push_back(status);
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

    /// The initiator has all before `expected`.
    pub(crate) fn acknowledge(&mut self, expected: StatSn) {
        while self.statuses.front().is_some_and(|status| status.stat_sn.precedes(expected)) {
            self.pop();
        }
    }

    /// The status with this number, and its place, to be put back.
    pub(crate) fn take(&mut self, stat_sn: StatSn) -> Option<(usize, Status)> {
        let at = self.statuses.iter().position(|status| status.stat_sn == stat_sn)?;
        Some((at, self.statuses.remove(at)?))
    }

    /// The number of the status of the command with this tag.
    pub(crate) fn stat_sn_of(&self, tag: InitiatorTaskTag) -> Option<StatSn> {
        let is_it = |status: &&Status| matches!(&status.what, What::Answer(answer) if answer.tag == tag);
        self.statuses.iter().find(is_it).map(|status| status.stat_sn)
    }

    /// What was taken is there again.
    pub(crate) fn put(&mut self, at: usize, status: Status) {
        self.statuses.insert(at, status);
    }

    /// The answer to the command with this tag, which another connection sends from now on.
    pub(crate) fn take_answer(&mut self, tag: InitiatorTaskTag) -> Option<Responding> {
        let (_, status) = self.take(self.stat_sn_of(tag)?)?;
        self.bytes -= status.bytes();
        match status.what {
            What::Answer(answer) => Some(*answer),
            What::Pdu(..) => None,
        }
    }
}

impl Status {
    fn bytes(&self) -> usize {
        match &self.what {
            What::Pdu(_, data) => data.len(),
            What::Answer(answer) => answer.response.data_in.len(),
        }
    }
}

impl Link {
    /// A PDU that carries the StatSN that was taken last is queued, and kept where it may be asked for again.
    pub(crate) fn push_status(&mut self, header: &Bhs, data: &[u8]) {
        self.transmit.push(header, data);
        if self.recovers {
            let stat_sn = self.stat_sn.minus(1);
            self.sent.push(Status { stat_sn, what: What::Pdu(Box::new(*header), data.to_vec()) });
        }
    }

    /// The answer whose last PDU carried the status `stat_sn` is kept where it may be asked for again.
    #[inline]
    pub(crate) fn keep_answer(&mut self, stat_sn: StatSn, answer: Responding) {
        if self.recovers {
            self.sent.push(Status { stat_sn, what: What::Answer(Box::new(answer)) });
        }
    }
}
