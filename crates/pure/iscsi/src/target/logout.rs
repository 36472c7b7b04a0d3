//! The end of a session by agreement, and the messages that ask for it.

use super::CloseReason;
use super::full_feature::FullFeature;
use super::link::Link;
use super::respond::with_length;
use crate::pdu::{
    AsyncEvent, AsyncMessage, Cid, LogoutOutcome, LogoutReason, LogoutRequest, LogoutResponse, Lun, SegmentLengths,
};
use crate::session::window::CmdSns;

/// Whoever comes back waits for what is left of the old session by itself, at the target.
const COME_BACK_AT_ONCE: u16 = 0;

/// Nothing is left of the session to come back to.
const FOR_GOOD: AsyncEvent = AsyncEvent::SessionDropped { time2wait_s: COME_BACK_AT_ONCE, time2retain_s: 0 };

impl FullFeature {
    /// Source: RFC 7143 §11.9.1, §11.14, §11.15.
    pub(crate) fn handle_logout(&mut self, link: &mut Link, request: &LogoutRequest) {
        let named = self.roster.slot_of(request.cid);
        let outcome = match (request.reason, named) {
            (LogoutReason::CloseSession, _) => {
                self.ending = self.roster.others(link.slot).map(|slot| (slot, CloseReason::LoggedOut)).collect();
                if self.asked_to_leave {
                    link.send_async(self.cmd_sns(), Lun(0), FOR_GOOD, &[]);
                }
                link.close(CloseReason::LoggedOut);
                LogoutOutcome::Closed
            }
            (LogoutReason::CloseConnection, Some(slot)) => {
                if slot == link.slot {
                    link.close(CloseReason::LoggedOut)
                } else {
                    self.ending.push((slot, CloseReason::LoggedOut))
                }
                LogoutOutcome::Closed
            }
            (LogoutReason::RemoveForRecovery, _) if !self.keeps_tasks() => LogoutOutcome::RecoveryNotSupported,
            (LogoutReason::RemoveForRecovery, Some(slot)) => {
                if slot == link.slot {
                    link.close(CloseReason::Removed)
                } else {
                    self.ending.push((slot, CloseReason::Removed))
                }
                LogoutOutcome::Closed
            }
            (_, None) => LogoutOutcome::CidNotFound,
        };
        let retains = request.reason == LogoutReason::RemoveForRecovery && outcome == LogoutOutcome::Closed;
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let response = LogoutResponse {
            outcome,
            initiator_task_tag: request.initiator_task_tag,
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            time2wait_s: COME_BACK_AT_ONCE,
            time2retain_s: if retains { self.negotiated.time2retain_s } else { 0 },
        };
        let mut header = [0; 48];
        response.emit(SegmentLengths::NONE, &mut header);
        link.push_status(&header, &[]);
    }

    /// The session ends, behind what it has said; the initiator hears that it may come back at once.
    pub(crate) fn end_session(&mut self, link: &mut Link, reason: CloseReason) {
        link.send_async(self.cmd_sns(), Lun(0), FOR_GOOD, &[]);
        self.ending = self.roster.others(link.slot).map(|slot| (slot, reason)).collect();
        link.close(reason);
    }

    /// The initiator hears that the connection `cid`, or the whole session where there is none, ends, and when it may be back.
    ///
    /// Below error recovery level 2 the Time2Wait of a logout response says nothing (RFC 7143 §11.15.3), and a connection
    /// that breaks says nothing at all: Linux waits the DefaultTime2Wait that was negotiated, unless this message came before.
    pub(crate) fn announce_end(&mut self, link: &mut Link, cid: Option<Cid>) {
        let time2retain_s = if self.keeps_tasks() { self.negotiated.time2retain_s } else { 0 };
        let time2wait_s = COME_BACK_AT_ONCE;
        let event = match cid {
            Some(Cid(cid)) => AsyncEvent::ConnectionDropped { cid, time2wait_s, time2retain_s },
            None => AsyncEvent::SessionDropped { time2wait_s, time2retain_s },
        };
        link.send_async(self.cmd_sns(), Lun(0), event, &[]);
    }
}

impl Link {
    /// Tells the initiator something that it did not ask for.
    pub(crate) fn send_async(&mut self, (exp_cmd_sn, max_cmd_sn): CmdSns, lun: Lun, event: AsyncEvent, sense: &[u8]) {
        let message = AsyncMessage { lun, stat_sn: self.take_stat_sn(), exp_cmd_sn, max_cmd_sn, event };
        let mut header = [0; 48];
        let data = if sense.is_empty() { Default::default() } else { with_length(sense) };
        message.emit(SegmentLengths::data(data.len()), &mut header);
        self.push_status(&header, &data);
    }
}
