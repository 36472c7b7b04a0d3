//! Logout of sessions and connections, and the asynchronous messages that announce an end.

use super::CloseReason;
use super::full_feature::FullFeature;
use super::link::Link;
use super::respond::with_length;
use crate::pdu::{
    AsyncEvent, AsyncMessage, Cid, LogoutOutcome, LogoutReason, LogoutRequest, LogoutResponse, Lun, SegmentLengths,
};
use crate::session::window::CmdSns;

/// Time2Wait of zero: a returning initiator waits for the remains of the old session at the target anyway.
const NO_TIME2WAIT: u16 = 0;

/// Session dropped, with no tasks to return to (Time2Retain zero).
const SESSION_DROPPED: AsyncEvent = AsyncEvent::SessionDropped { time2wait_s: NO_TIME2WAIT, time2retain_s: 0 };

impl FullFeature {
    /// Executes a logout request.
    ///
    /// Source: RFC 7143 §11.9.1, §11.14, §11.15.
    pub(crate) fn handle_logout(&mut self, link: &mut Link, request: &LogoutRequest) {
        let named = self.connections.slot_of(request.cid);
        let outcome = match (request.reason, named) {
            (LogoutReason::CloseSession, _) => {
                // A logout of the session ends all of its connections (RFC 7143 §11.14.1).
                self.ending = self.connections.others(link.slot).map(|slot| (slot, CloseReason::LoggedOut)).collect();
                // The initiator follows a request of ours to log out; the message tells it that it need not wait.
                if self.asked_to_leave {
                    link.send_async(self.cmd_sns(), Lun(0), SESSION_DROPPED, &[]);
                }
                // Only marked: the response below is still sent, and `settle` ends the connection behind it.
                link.close(CloseReason::LoggedOut);
                LogoutOutcome::Closed
            }
            (LogoutReason::CloseConnection, Some(slot)) => {
                // The own connection closes after the response is sent; another one closes at once.
                if slot == link.slot {
                    link.close(CloseReason::LoggedOut)
                } else {
                    self.ending.push((slot, CloseReason::LoggedOut))
                }
                LogoutOutcome::Closed
            }
            // Below level 2 no task outlives its connection, so there is nothing to retain (RFC 7143 §11.15.1).
            (LogoutReason::RemoveForRecovery, _) if !self.keeps_tasks() => LogoutOutcome::RecoveryNotSupported,
            (LogoutReason::RemoveForRecovery, Some(slot)) => {
                if slot == link.slot {
                    link.close(CloseReason::Removed)
                } else {
                    self.ending.push((slot, CloseReason::Removed))
                }
                LogoutOutcome::Closed
            }
            // The CID is unknown: the initiator learns that nothing was closed.
            (_, None) => LogoutOutcome::CidNotFound,
        };
        // Only tasks of a connection removed for recovery are retained.
        let retains = request.reason == LogoutReason::RemoveForRecovery && outcome == LogoutOutcome::Closed;
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let response = LogoutResponse {
            outcome,
            initiator_task_tag: request.initiator_task_tag,
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
            time2wait_s: NO_TIME2WAIT,
            time2retain_s: if retains { self.negotiated.time2retain_s } else { 0 },
        };
        let mut header = [0; 48];
        response.emit(SegmentLengths::NONE, &mut header);
        link.push_status(&header, &[]);
    }

    /// Ends the session behind its queued output, and announces that the initiator may log in again at once.
    pub(crate) fn end_session(&mut self, link: &mut Link, reason: CloseReason) {
        // The message precedes the end of the byte stream on this connection.
        link.send_async(self.cmd_sns(), Lun(0), SESSION_DROPPED, &[]);
        self.ending = self.connections.others(link.slot).map(|slot| (slot, reason)).collect();
        link.close(reason);
    }

    /// Announces the end of the connection `cid`, or of the whole session for `None`, and when the initiator may
    /// return.
    ///
    /// Below error recovery level 2 the Time2Wait of a Logout Response has no meaning (RFC 7143 §11.15.3), and a broken
    /// connection reports nothing: Linux waits the negotiated DefaultTime2Wait unless this message arrived before.
    pub(crate) fn announce_end(&mut self, link: &mut Link, cid: Option<Cid>) {
        let time2retain_s = if self.keeps_tasks() { self.negotiated.time2retain_s } else { 0 };
        let time2wait_s = NO_TIME2WAIT;
        let event = match cid {
            Some(Cid(cid)) => AsyncEvent::ConnectionDropped { cid, time2wait_s, time2retain_s },
            None => AsyncEvent::SessionDropped { time2wait_s, time2retain_s },
        };
        link.send_async(self.cmd_sns(), Lun(0), event, &[]);
    }
}

impl Link {
    /// Sends an asynchronous message.
    pub(crate) fn send_async(&mut self, (exp_cmd_sn, max_cmd_sn): CmdSns, lun: Lun, event: AsyncEvent, sense: &[u8]) {
        // An asynchronous message consumes a StatSN, because the initiator must acknowledge it (RFC 7143 §11.9).
        let message = AsyncMessage { lun, stat_sn: self.take_stat_sn(), exp_cmd_sn, max_cmd_sn, event };
        let mut header = [0; 48];
        let data = if sense.is_empty() { Default::default() } else { with_length(sense) };
        message.emit(SegmentLengths::data(data.len()), &mut header);
        self.push_status(&header, &data);
    }
}
