//! Login phase of a connection: connects the login state machine with the stream and the driver.

use super::event::Event;
use super::link::Link;
use crate::login::{Fault, Grant, LoginStatus, NoSession, TargetLogin, TargetStep};
use crate::pdu::{SegmentLengths, Tsih};
use crate::receive::Head;
use crate::{CloseReason, Negotiated, Violation};
use std::collections::VecDeque;

/// Login in progress.
#[derive(Debug)]
pub(crate) struct LoginPhase {
    login: TargetLogin,
}

impl LoginPhase {
    pub(crate) fn new(link: &Link, random: [u8; 32]) -> Self {
        Self { login: TargetLogin::new(&link.config.login, random) }
    }

    /// Handles a Login Request. This and the following functions return the negotiated parameters once the login has
    /// succeeded.
    pub(crate) fn handle_pdu(
        &mut self,
        link: &mut Link,
        events: &mut VecDeque<Event>,
        head: Head<'_>,
        text: &[u8],
    ) -> Option<Box<Negotiated>> {
        self.login.handle_pdu(head.basic, text);
        self.advance(link, events)
    }

    pub(crate) fn handle_violation(
        &mut self,
        link: &mut Link,
        events: &mut VecDeque<Event>,
        violation: Violation,
    ) -> Option<Box<Negotiated>> {
        self.login.handle_violation(violation);
        self.advance(link, events)
    }

    pub(crate) fn grant(
        &mut self,
        link: &mut Link,
        events: &mut VecDeque<Event>,
        grant: Grant,
    ) -> Option<Box<Negotiated>> {
        self.login.grant(grant);
        self.advance(link, events)
    }

    pub(crate) fn assign_session(
        &mut self,
        link: &mut Link,
        events: &mut VecDeque<Event>,
        session: Result<Tsih, NoSession>,
    ) -> Option<Box<Negotiated>> {
        self.login.assign_session(session);
        self.advance(link, events)
    }

    pub(crate) fn refuse(&mut self, link: &mut Link, events: &mut VecDeque<Event>, status: LoginStatus) {
        self.login.refuse(status);
        // A refused login never yields negotiated parameters.
        let _ = self.advance(link, events);
    }

    fn advance(&mut self, link: &mut Link, events: &mut VecDeque<Event>) -> Option<Box<Negotiated>> {
        while let Some(step) = self.login.poll() {
            match step {
                TargetStep::Respond { mut response, text } => {
                    response.stat_sn = link.take_stat_sn();
                    // The window of the session opens with the login, so MaxCmdSN follows from the configured width.
                    response.max_cmd_sn = response.exp_cmd_sn.plus(link.config.commands_max).minus(1);
                    let mut header = [0; 48];
                    response.emit(SegmentLengths::data(text.len()), &mut header);
                    link.transmit.push(&header, &text);
                }
                TargetStep::Authorize(question) => events.push_back(Event::Login(question)),
                TargetStep::Authenticated => events.push_back(Event::Authenticated),
                // The loop ends here: the remaining work belongs to full feature phase.
                TargetStep::FullFeature(negotiated) => return Some(negotiated),
                TargetStep::Failed { status, fault, login } => {
                    // Stored before the connection closes: the driver reads it when it handles the final event.
                    link.failed_login = Some(login);
                    link.close(match fault {
                        None => CloseReason::LoginRefused(status),
                        Some(Fault::Violation(violation)) => CloseReason::Violation(violation),
                        Some(Fault::AuthFailure(why)) => CloseReason::AuthenticationFailed(why),
                    });
                }
            }
        }
        None
    }
}
