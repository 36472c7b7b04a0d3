//! Target side of a login.

mod security;

use super::declarations::Declarations;
use super::failed::WrongKey;
use super::text_exchange::{LoginTextExchange, answer_unexpected_key};
use super::{AuthFailure, FailedLogin, Grant, LoginIdentity, LoginStatus, NoSession};
use crate::Violation;
use crate::negotiation::{Key, Negotiated, Negotiation, Offer, OfferError, Role};
use crate::pdu::{Bhs, CmdSn, InitiatorPdu, LoginRequest, LoginResponse, Opcode, Stage, StatSn, Transit, Tsih};
use crate::text::{LOGIN_SEGMENT_BYTES_MAX, Pairs, TextWriter};
use security::Security;
use std::collections::VecDeque;

/// Parameters and limits of a target's logins.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Operational parameters.
    pub offer: Offer,
    /// Maximum number of PDUs in one stage; default 10. Eight PDUs hold the maximum text of a login.
    pub pdus_max: u32,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self { offer: Offer::default(), pdus_max: 10 }
    }
}

impl TargetConfig {
    /// Checks that every value is in range.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn check(&self) -> Result<(), OfferError> {
        self.offer.check()
    }
}

/// Action that the login requests, in order.
#[derive(Clone, Debug)]
pub enum TargetStep {
    /// Send this PDU. The connection fills in StatSN and MaxCmdSN.
    Respond {
        /// Header.
        response: LoginResponse,
        /// Data segment.
        text: Vec<u8>,
    },
    /// Answer with [`TargetLogin::grant`] or [`TargetLogin::refuse`].
    Authorize(LoginIdentity),
    /// The initiator has authenticated: answer with [`TargetLogin::assign_session`]. Before that, it occupies no
    /// resources and learns nothing about other sessions and portals.
    Authenticated,
    /// Full feature phase starts with these parameters, once the preceding response is sent.
    FullFeature(Box<Negotiated>),
    /// The login failed: close the connection once the preceding response, if any, is sent.
    Failed {
        /// Status sent to the initiator; nothing is sent on a connection that never started a login.
        status: LoginStatus,
        /// Cause behind the status, where it is known.
        fault: Option<Fault>,
        /// Facts for the operator.
        login: Box<FailedLogin>,
    },
}

/// Cause of a failed login, more specific than its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Protocol violation.
    Violation(Violation),
    /// Failed authentication.
    AuthFailure(AuthFailure),
}

/// Login in progress. Pass in PDUs, and perform the steps of [`TargetLogin::poll`] until it returns `None`.
#[derive(Debug)]
pub struct TargetLogin {
    random: [u8; 32],
    offer: Offer,
    exchange: LoginTextExchange,
    declarations: Declarations,
    phase: Phase,
    /// Request that awaits its response, or the last one answered.
    request: Option<LoginRequest>,
    steps: VecDeque<TargetStep>,
    is_over: bool,
}

#[derive(Debug)]
enum Phase {
    /// The text with the declarations is not complete.
    CollectingText,
    /// The driver decides on the login; the text is kept until then.
    AwaitingGrant { identity: LoginIdentity, text: Vec<u8> },
    /// Granted and in progress.
    Negotiating(Box<GrantedLogin>),
    /// Authenticated; the driver assigns the session.
    AwaitingSession(Box<GrantedLogin>),
    /// Ended, or in the middle of a step.
    Over,
}

/// State of a granted login.
#[derive(Debug)]
struct GrantedLogin {
    stage: Stage,
    identity: LoginIdentity,
    grant: Grant,
    /// Session handle, once assigned.
    session: Option<Tsih>,
    security: Security,
    negotiation: Negotiation,
}

/// Progress of a request.
enum Progress {
    /// Answered: the response has been queued.
    Responded,
    /// The response has to wait for the assignment of a session.
    Waits,
}

/// Reason for the failure of a login.
#[derive(Debug)]
struct Failure {
    status: LoginStatus,
    fault: Option<Fault>,
    /// Key that violated a rule.
    key: Option<&'static str>,
    /// Violated rule, where no [`Fault`] describes it.
    rule: Option<&'static str>,
    /// Portal of a redirection.
    redirect_address: Option<String>,
}

impl TargetLogin {
    /// Creates a login that awaits its first request.
    ///
    /// *Shape*: `random` are unpredictable bytes, used for nothing else.
    #[must_use]
    pub fn new(config: &TargetConfig, random: [u8; 32]) -> Self {
        Self {
            random,
            offer: config.offer.clone(),
            exchange: LoginTextExchange::new(config.pdus_max),
            declarations: Declarations::default(),
            phase: Phase::CollectingText,
            request: None,
            steps: VecDeque::new(),
            is_over: false,
        }
    }

    /// Handles a PDU. Never fails: an error becomes a step.
    pub fn handle_pdu(&mut self, header: &Bhs, text: &[u8]) {
        // PDUs behind the end of a login are ignored; the connection closes.
        if self.is_over {
            return;
        }
        let handled = match InitiatorPdu::parse(header) {
            Ok(InitiatorPdu::Login(request)) => self.handle_request(request, text),
            // A malformed Login Request is an error of the initiator, not a PDU of another phase.
            Err(violation) if Opcode::of(header) == Ok(Opcode::LoginRequest) => Err(violation.into()),
            Ok(_) | Err(_) => {
                // RFC 7143 §6.3: only Login Requests are permitted before full feature phase.
                let fault = Some(Fault::Violation(Violation::LoginExpected));
                Err(Failure { fault, ..LoginStatus::InvalidDuringLogin.into() })
            }
        };
        if let Err(failure) = handled {
            self.fail(failure);
        }
    }

    /// Ends the login because of a violation in the byte stream.
    pub fn handle_violation(&mut self, violation: Violation) {
        self.fail(violation.into());
    }

    /// Continues the login with `grant`. Without effect unless a decision is pending.
    pub fn grant(&mut self, grant: Grant) {
        // Put back where no decision is pending: the login may have failed while the driver decided.
        let (question, text, request) = match (std::mem::replace(&mut self.phase, Phase::Over), self.request) {
            (Phase::AwaitingGrant { identity: question, text }, Some(request)) => (question, text, request),
            (phase, _) => {
                self.phase = phase;
                return;
            }
        };
        // The portal group tag is declared once, in the first response of a normal session (RFC 7143 §13.9).
        if question.target_name.is_some() {
            self.exchange.outgoing.push("TargetPortalGroupTag", grant.portal_group_tag);
        }
        let mut talk = Box::new(GrantedLogin {
            stage: request.transit.current,
            security: Security::new(grant.auth.clone(), self.random),
            negotiation: Negotiation::new(Role::Target, question.session_type, self.offer.clone())
                .joining(request.tsih != Tsih(0)),
            identity: question,
            grant,
            session: None,
        });
        let handled = self.handle_text(&mut talk, &request, &text).and_then(|()| self.respond(&mut talk, &request));
        self.settle(talk, handled);
    }

    /// Assigns the session, or refuses one. Without effect unless that is pending.
    ///
    /// *Panics*: when the session has handle zero, which denotes none.
    pub fn assign_session(&mut self, session: Result<Tsih, NoSession>) {
        assert!(session != Ok(Tsih(0)), "a session's handle is not zero");
        let (mut talk, request) = match (std::mem::replace(&mut self.phase, Phase::Over), self.request) {
            (Phase::AwaitingSession(talk), Some(request)) => (talk, request),
            (phase, _) => {
                self.phase = phase;
                return;
            }
        };
        match session {
            Ok(tsih) => {
                talk.session = Some(tsih);
                let handled = self.respond(&mut talk, &request);
                self.settle(talk, handled);
            }
            Err(why) => self.fail(why.into()),
        }
    }

    /// Ends the login with `status`. Without effect after its end.
    pub fn refuse(&mut self, status: LoginStatus) {
        self.fail(status.into());
    }

    /// Returns the next step.
    pub fn poll(&mut self) -> Option<TargetStep> {
        self.steps.pop_front()
    }

    fn handle_request(&mut self, request: LoginRequest, text: &[u8]) -> Result<(), Failure> {
        // Replaced before the checks below, because a refusal answers this request.
        let before = self.request.replace(request);
        // Version 0 is the only one that exists (RFC 7143 §11.12.4).
        if request.version_min > 0 {
            let fault = Some(Fault::Violation(Violation::VersionUnknown));
            return Err(Failure { fault, ..LoginStatus::UnsupportedVersion.into() });
        }
        // ISID, TSIH, CID, CmdSN and task tag must not change during a login (RFC 7143 §11.12).
        if before.is_some_and(|before| !same_login(&before, &request)) {
            return Err(Violation::LoginIdentifiersChanged.into());
        }
        let stage = match &self.phase {
            Phase::Negotiating(talk) => talk.stage,
            // The first request selects the stage in which the login starts.
            _ => before.map_or(request.transit.current, |before| before.transit.current),
        };
        if request.transit.current != stage {
            return Err(Violation::LoginStageWrong.into());
        }
        // Taken out: each path below installs the next phase, or the login fails and stays over.
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::CollectingText => self.collect_text(&request, text),
            Phase::Negotiating(talk) => self.negotiate(talk, &request, text),
            // A request while the previous one is unanswered violates the lockstep of a login (RFC 7143 §6.3).
            Phase::AwaitingGrant { .. } | Phase::AwaitingSession(_) | Phase::Over => {
                Err(Violation::LoginOutOfTurn.into())
            }
        }
    }

    /// Handles requests until the first text is complete; the driver is not involved before that.
    fn collect_text(&mut self, request: &LoginRequest, segment: &[u8]) -> Result<(), Failure> {
        let Some(text) = self.exchange.handle_segment(segment, request.transit.continues)? else {
            self.phase = Phase::CollectingText;
            // The C bit is set: an empty response asks for the next part (RFC 7143 §6.2).
            self.push_response(request, None, Tsih(0));
            return Ok(());
        };
        for pair in Pairs::parse(&text) {
            let (key, value) = pair?;
            self.declarations.handle(key, value)?;
        }
        // Checked once the text is complete, because declarations may be spread over several PDUs.
        let question = self.declarations.identity(request)?;
        self.steps.push_back(TargetStep::Authorize(question.clone()));
        self.phase = Phase::AwaitingGrant { identity: question, text };
        Ok(())
    }

    fn negotiate(
        &mut self,
        mut talk: Box<GrantedLogin>,
        request: &LoginRequest,
        segment: &[u8],
    ) -> Result<(), Failure> {
        let handled = match self.exchange.handle_segment(segment, request.transit.continues)? {
            Some(text) => self.handle_text(&mut talk, request, &text),
            // Text continues in one of the directions; `respond` sends the next part of ours, or an empty part.
            None => Ok(()),
        };
        let handled = handled.and_then(|()| self.respond(&mut talk, request));
        self.settle(talk, handled);
        Ok(())
    }

    fn handle_text(&mut self, talk: &mut GrantedLogin, request: &LoginRequest, text: &[u8]) -> Result<(), Failure> {
        let mut pairs = Pairs::parse(text).collect::<Result<Vec<_>, _>>()?;
        // FirstBurstLength and MaxOutstandingR2T depend on MaxBurstLength and ErrorRecoveryLevel, so they are handled
        // last.
        // The sort is stable, so all other keys keep their order.
        pairs.sort_by_key(|(key, _)| ["FirstBurstLength", "MaxOutstandingR2T"].contains(key));
        let answers = &mut self.exchange.outgoing;
        for &(name, value) in &pairs {
            // The security keys of a text form one step, so they are handled together below.
            if self.declarations.handle(name, value)? || talk.is_security_key(name) {
                continue;
            }
            match Key::of(name) {
                // Declarations are valid in any stage; negotiated keys only in their own stage.
                Some(key) if talk.stage == Stage::Operational || key == Key::MaxRecvDataSegmentLength => {
                    let handled = talk.negotiation.handle(key, value, answers);
                    handled.map_err(|violation| Failure::from(violation).of(key.row().name))?;
                }
                _ => answer_unexpected_key((name, value), Role::Initiator, answers),
            }
        }
        if talk.stage == Stage::Security {
            talk.security.handle(&pairs, answers)?;
        } else {
            // An initiator that starts in the operational stage has skipped authentication; that must be permitted.
            talk.security.permit_operational()?;
            // Taken, so that the alias is declared once.
            if let Some(alias) = talk.grant.target_alias.take() {
                answers.push("TargetAlias", alias);
            }
            talk.negotiation.declare(answers);
            // Only defaults that are unacceptable here are negotiated by the target; all others are left to the
            // initiator.
            talk.negotiation.offer_needed(answers);
        }
        // Leaving the security stage without required authentication is an authentication failure, not a protocol
        // error.
        if talk.stage == Stage::Security && request.transit.next.is_some() {
            talk.security.permit_transit()?;
        }
        Ok(())
    }

    /// Queues the response to `request`, which leaves the stage when both sides are ready. Leaving the first stage
    /// means that authentication is complete, so the session is assigned before the response.
    fn respond(&mut self, talk: &mut GrantedLogin, request: &LoginRequest) -> Result<Progress, Failure> {
        // Request text that continues, or answers that do not fit into one PDU, keep the login in its stage.
        let ready = talk.is_ready() && !self.exchange.is_listening();
        let asked = request.transit.next.filter(|_| ready);
        let tsih = match (asked, talk.session) {
            (Some(_), None) => {
                // Only now may the login occupy resources of the driver.
                self.steps.push_back(TargetStep::Authenticated);
                return Ok(Progress::Waits);
            }
            (Some(Stage::FullFeature), Some(tsih)) => tsih,
            _ => {
                if let Some(next) = self.push_response(request, asked, request.tsih) {
                    talk.stage = next;
                    self.exchange.enter_stage();
                }
                return Ok(Progress::Responded);
            }
        };
        let identity = talk.identity.clone().into_identity(talk.security.authentication(), tsih, request.cmd_sn);
        // Values are checked as a whole at the end, because they depend on one another.
        let negotiated = talk.negotiation.finish(identity).map_err(|violation| {
            let key = talk.negotiation.unsuitable_key();
            Failure { key, ..violation.into() }
        })?;
        // `None` while the answers continue in another PDU; the next request comes here again.
        if self.push_response(request, asked, tsih).is_some() {
            self.steps.push_back(TargetStep::FullFeature(Box::new(negotiated)));
            talk.stage = Stage::FullFeature;
        }
        Ok(Progress::Responded)
    }

    /// Queues the next part of the answers; the last part leaves the stage, if that is due. Returns the stage that both
    /// sides enter.
    fn push_response(&mut self, request: &LoginRequest, next: Option<Stage>, tsih: Tsih) -> Option<Stage> {
        let part = self.exchange.take_part();
        // The transition happens with the last part of the answers.
        let next = next.filter(|_| !part.continues);
        // The new TSIH is sent only in the last response (RFC 7143 §11.13.3).
        let tsih = if next == Some(Stage::FullFeature) { tsih } else { request.tsih };
        let transit = Transit { current: request.transit.current, next, continues: part.continues };
        let response = LoginResponse { transit, tsih, ..response_to(request, LoginStatus::Success) };
        self.steps.push_back(TargetStep::Respond { response, text: part.text });
        next
    }

    fn settle(&mut self, talk: Box<GrantedLogin>, handled: Result<Progress, Failure>) {
        match handled {
            Err(failure) => self.fail(failure),
            Ok(Progress::Waits) => self.phase = Phase::AwaitingSession(talk),
            Ok(Progress::Responded) if talk.stage == Stage::FullFeature => self.is_over = true,
            Ok(Progress::Responded) => self.phase = Phase::Negotiating(talk),
        }
    }

    fn fail(&mut self, Failure { status, fault, key, rule, redirect_address: elsewhere }: Failure) {
        // The first failure determines the status.
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.phase = Phase::Over;
        // Before a login has started, no response can be sent (RFC 7143 §6.3).
        if let Some(request) = &self.request {
            let response = response_to(request, status);
            let mut text = TextWriter::default();
            // A redirection carries the address of the other portal in the same response (RFC 7143 §11.13.5).
            if let Some(address) = elsewhere {
                text.push("TargetAddress", address);
            }
            self.steps.push_back(TargetStep::Respond { response, text: text.take(LOGIN_SEGMENT_BYTES_MAX).text });
        }
        let (initiator_name, target_name) = self.declarations.names();
        let broken = match fault {
            Some(Fault::Violation(violation)) => Some(violation.rule()),
            _ => rule.map(str::to_owned),
        };
        let login = Box::new(FailedLogin { status, initiator_name, target_name, key, rule: broken });
        self.steps.push_back(TargetStep::Failed { status, fault, login });
    }
}

impl GrantedLogin {
    /// True when we are ready to leave the stage.
    fn is_ready(&self) -> bool {
        match self.stage {
            Stage::Security => self.security.is_done(),
            _ => !self.negotiation.is_waiting(),
        }
    }

    fn is_security_key(&self, name: &str) -> bool {
        self.stage == Stage::Security && security::is_key(name)
    }
}

/// True when both requests belong to one login.
fn same_login(a: &LoginRequest, b: &LoginRequest) -> bool {
    let identifiers =
        |request: &LoginRequest| (request.isid, request.tsih, request.cid, request.initiator_task_tag, request.cmd_sn);
    identifiers(a) == identifiers(b)
}

/// Creates a response that stays in the stage of the request.
fn response_to(request: &LoginRequest, status: LoginStatus) -> LoginResponse {
    LoginResponse {
        transit: Transit::stay(request.transit.current),
        version_max: 0,
        version_active: 0,
        isid: request.isid,
        tsih: request.tsih,
        initiator_task_tag: request.initiator_task_tag,
        // Placeholders: the connection fills in StatSN and MaxCmdSN.
        stat_sn: StatSn(0),
        exp_cmd_sn: request.cmd_sn,
        max_cmd_sn: CmdSn(request.cmd_sn.0),
        status,
    }
}

impl Failure {
    /// Attributes the failure to a key.
    fn of(self, key: &'static str) -> Self {
        Self { key: Some(key), ..self }
    }
}

impl From<Violation> for Failure {
    /// Maps every protocol violation of an initiator to status 0200.
    fn from(violation: Violation) -> Self {
        Self { fault: Some(Fault::Violation(violation)), ..LoginStatus::InitiatorError.into() }
    }
}

impl From<LoginStatus> for Failure {
    fn from(status: LoginStatus) -> Self {
        Self { status, fault: None, key: None, rule: None, redirect_address: None }
    }
}

impl From<WrongKey> for Failure {
    fn from(WrongKey { status, key, rule }: WrongKey) -> Self {
        Self { key: Some(key), rule: Some(rule), ..status.into() }
    }
}

impl From<AuthFailure> for Failure {
    fn from(why: AuthFailure) -> Self {
        Self { fault: Some(Fault::AuthFailure(why)), ..LoginStatus::AuthenticationFailure.into() }
    }
}

impl From<NoSession> for Failure {
    fn from(why: NoSession) -> Self {
        match why {
            NoSession::Refused(status) => status.into(),
            NoSession::Redirected(address) => {
                Self { redirect_address: Some(address), ..LoginStatus::TargetMovedTemporarily.into() }
            }
        }
    }
}
