//! The way out of one connection: what waits to be sent, how it is numbered, and whether the connection goes on.

use super::ping::Ping;
use super::sent::Sent;
use super::task::Responding;
use super::{CloseReason, Config};
use crate::FailedLogin;
use crate::pdu::{Cid, StatSn};
use crate::session::TaskId;
use crate::transmit::Transmit;
use std::collections::VecDeque;
use std::rc::Rc;

/// The way out of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Rc<Config>,
    pub(crate) transmit: Transmit,
    /// The place of the connection in its session.
    pub(crate) slot: usize,
    /// What the initiator calls the connection.
    pub(crate) cid: Cid,
    /// The most data that the peer takes in one PDU: its MaxRecvDataSegmentLength.
    pub(crate) peer_data_segment_bytes_max: u32,
    /// The number of the next status.
    pub(crate) stat_sn: StatSn,
    /// ExpStatSN: the initiator has all statuses before this one.
    pub(crate) acknowledged: StatSn,
    /// True above error recovery level 0: what was sent may be asked for again.
    pub(crate) recovers: bool,
    pub(crate) sent: Sent,
    /// Answers in the order of sending.
    pub(crate) responding: VecDeque<Responding>,
    pub(crate) ping: Ping,
    /// The text exchange under way; there is one at a time.
    pub(crate) text: Option<TaskId>,
    /// Set once the connection shall end.
    pub(crate) closing: Option<CloseReason>,
    /// What is known of its login, when that has failed.
    pub(crate) failed_login: Option<Box<FailedLogin>>,
}

impl Link {
    /// The way out of a connection that logs in.
    pub(crate) fn new(config: Rc<Config>) -> Self {
        // The first StatSN is ours to choose (RFC 7143 §11.13.4).
        let stat_sn = StatSn(1);
        Self {
            config,
            transmit: Transmit::default(),
            slot: 0,
            cid: Cid(0),
            peer_data_segment_bytes_max: 8192,
            stat_sn,
            acknowledged: stat_sn,
            recovers: false,
            sent: Sent::default(),
            responding: VecDeque::new(),
            ping: Ping::default(),
            text: None,
            closing: None,
            failed_login: None,
        }
    }

    /// The number of a status that is sent now.
    #[inline]
    pub(crate) fn take_stat_sn(&mut self) -> StatSn {
        let taken = self.stat_sn;
        self.stat_sn = taken.next();
        taken
    }

    /// The initiator has all statuses before `expected`, if these were sent at all.
    #[inline]
    pub(crate) fn handle_acknowledged(&mut self, expected: StatSn) {
        // What was never sent is acknowledged by nobody; what was acknowledged stays so.
        if self.stat_sn.since(expected) < self.stat_sn.since(self.acknowledged) {
            self.acknowledged = expected;
            self.sent.acknowledge(expected);
        }
    }

    /// True while the initiator may lack a status that was sent.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.acknowledged != self.stat_sn
    }

    /// The connection ends for `reason`, unless it ends already.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
    }
}
