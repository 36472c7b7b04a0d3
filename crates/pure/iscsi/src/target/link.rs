//! Send side of one connection: queued responses, StatSN, and the decision to close.

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

/// Send side of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Rc<Config>,
    pub(crate) transmit: Transmit,
    /// Slot of the connection in its session.
    pub(crate) slot: usize,
    /// Connection identifier that the initiator assigned.
    pub(crate) cid: Cid,
    /// MaxRecvDataSegmentLength of the initiator in bytes.
    pub(crate) peer_data_segment_bytes_max: u32,
    /// StatSN of the next status.
    pub(crate) stat_sn: StatSn,
    /// Last ExpStatSN received: the initiator has all statuses before this one.
    pub(crate) acknowledged: StatSn,
    /// True above error recovery level 0: sent PDUs may be requested again.
    pub(crate) recovers: bool,
    pub(crate) sent: Sent,
    /// Responses in sending order.
    pub(crate) responding: VecDeque<Responding>,
    pub(crate) ping: Ping,
    /// Current text exchange; at most one.
    pub(crate) text: Option<TaskId>,
    /// Reason for closing, set once the connection shall end.
    pub(crate) closing: Option<CloseReason>,
    /// Facts about a failed login.
    pub(crate) failed_login: Option<Box<FailedLogin>>,
}

impl Link {
    /// Creates the send side of a connection in login phase.
    pub(crate) fn new(config: Rc<Config>) -> Self {
        // The initial StatSN is chosen by the target (RFC 7143 §11.13.4).
        let stat_sn = StatSn(1);
        Self {
            config,
            transmit: Transmit::default(),
            slot: 0,
            cid: Cid(0),
            // Default MaxRecvDataSegmentLength during the login (RFC 7143 §13.12).
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

    /// Takes the StatSN for a status that is sent now.
    #[inline]
    pub(crate) fn take_stat_sn(&mut self) -> StatSn {
        let taken = self.stat_sn;
        self.stat_sn = taken.next();
        taken
    }

    /// Records that the initiator has all statuses before `expected`, as far as they were sent.
    #[inline]
    pub(crate) fn handle_acknowledged(&mut self, expected: StatSn) {
        // Ignores a value beyond the statuses sent, and one before an earlier acknowledgement.
        // Distances back from the newest status, because they compare correctly across the wrap of the numbers.
        if self.stat_sn.since(expected) < self.stat_sn.since(self.acknowledged) {
            self.acknowledged = expected;
            self.sent.acknowledge(expected);
        }
    }

    /// True while the initiator may lack a status that was sent.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.acknowledged != self.stat_sn
    }

    /// Requests the end of the connection for `reason`, unless it is ending already.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        // The first reason counts: later ones are consequences of it.
        self.closing.get_or_insert(reason);
    }
}
