//! What all phases of a connection share: its output, its events, and whether it goes on.

use super::{CloseReason, Config, Event};
use crate::pdu::StatSn;
use crate::transmit::Transmit;
use std::collections::VecDeque;
use std::rc::Rc;

/// The way out of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Rc<Config>,
    pub(crate) transmit: Transmit,
    pub(crate) events: VecDeque<Event>,
    /// The number of the next status.
    pub(crate) stat_sn: StatSn,
    /// Set once the connection shall end.
    pub(crate) closing: Option<CloseReason>,
}

impl Link {
    pub(crate) fn new(config: Rc<Config>) -> Self {
        let (transmit, events) = (Transmit::default(), VecDeque::new());
        // The first StatSN is ours to choose (RFC 7143 §11.13.4).
        Self { config, transmit, events, stat_sn: StatSn(1), closing: None }
    }

    /// The number of a status that is sent now.
    pub(crate) fn take_stat_sn(&mut self) -> StatSn {
        let taken = self.stat_sn;
        self.stat_sn = taken.next();
        taken
    }

    /// The connection ends for `reason`, unless it ends already.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
    }
}
