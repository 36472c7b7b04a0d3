//! Login phase of a connection: connects the login state machine with the stream and the driver.

use super::connection::Link;
use super::full_feature::FullFeaturePhase;
use super::numbering::JoinState;
use crate::CloseReason;
use crate::login::{InitiatorLogin, InitiatorStep};
use crate::pdu::{CmdSn, LoginResponse, SegmentLengths, StatSn};
use crate::receive::Head;

/// Login in progress.
#[derive(Debug)]
pub(crate) struct LoginPhase {
    login: InitiatorLogin,
    /// MaxCmdSN of the last response, and the StatSN that follows it.
    max_cmd_sn: CmdSn,
    exp_stat_sn: StatSn,
    /// Session of ours that the connection joins.
    pub(crate) joins: Option<JoinState>,
}

impl LoginPhase {
    /// Starts a login with its first request queued.
    pub(crate) fn new(link: &mut Link, joins: Option<JoinState>, random: [u8; 32]) -> Self {
        let login = InitiatorLogin::new(link.config.login.clone(), random);
        let mut phase = Self { login, max_cmd_sn: CmdSn(0), exp_stat_sn: StatSn(0), joins };
        // Nothing was received yet, so the login can only queue its first request.
        let early = phase.advance(link);
        assert!(early.is_none(), "a login does not end before it begins");
        phase
    }

    /// Handles a Login Response; returns full feature phase once the login has succeeded.
    pub(crate) fn handle_pdu(&mut self, link: &mut Link, head: Head<'_>, text: &[u8]) -> Option<FullFeaturePhase> {
        if let Ok(response) = LoginResponse::parse(head.basic) {
            self.max_cmd_sn = response.max_cmd_sn;
            self.exp_stat_sn = response.stat_sn.next();
        }
        self.login.handle_pdu(head.basic, text);
        self.advance(link)
    }

    fn advance(&mut self, link: &mut Link) -> Option<FullFeaturePhase> {
        while let Some(step) = self.login.poll() {
            match step {
                InitiatorStep::Request { request, text } => {
                    let mut header = [0; 48];
                    request.emit(SegmentLengths::data(text.len()), &mut header);
                    link.transmit.push(&header, &text);
                }
                InitiatorStep::FullFeature(negotiated) => {
                    link.events.push_back(super::Event::FullFeature(negotiated.clone()));
                    return Some(match self.joins.take() {
                        Some(joins) => FullFeaturePhase::joining(joins, *negotiated, self.exp_stat_sn),
                        None => FullFeaturePhase::new(*negotiated, self.max_cmd_sn, self.exp_stat_sn),
                    });
                }
                InitiatorStep::Refused { status, redirect_address: elsewhere } => {
                    // The new address precedes the event of the end, so that the driver knows it by then.
                    link.events.extend(elsewhere.map(super::Event::Moved));
                    link.close(CloseReason::LoginRefused(status));
                }
                InitiatorStep::Failed(violation) => link.close(CloseReason::Violation(violation)),
            }
        }
        None
    }
}
