//! A target's side of a login.

mod security;

use super::declarations::Declarations;
use super::dialogue::{Dialogue, answer_out_of_place};
use super::failed::WrongKey;
use super::{FailedLogin, Grant, LoginQuestion, LoginStatus, NoSession, Unproven};
use crate::Violation;
use crate::negotiation::{Key, Negotiated, Offer, OfferError, Parley, Role};
use crate::pdu::{Bhs, CmdSn, InitiatorPdu, LoginRequest, LoginResponse, Opcode, Stage, StatSn, Transit, Tsih};
use crate::text::{LOGIN_SEGMENT_BYTES_MAX, Pairs, TextWriter};
use security::Security;
use std::collections::VecDeque;

/// What a target's logins may agree on, and their bounds.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The operational parameters.
    pub offer: Offer,
    /// The most PDUs of one stage. Eight hold as much text as a login may have.
    pub pdus_max: u32,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self { offer: Offer::default(), pdus_max: 10 }
    }
}

impl TargetConfig {
    /// Every value lies in its range.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn check(&self) -> Result<(), OfferError> {
        self.offer.check()
    }
}

/// What a target's login wants done, in this order.
#[derive(Clone, Debug)]
pub enum TargetStep {
    /// Send this. The connection fills in StatSN and MaxCmdSN.
    Respond {
        /// The header.
        response: LoginResponse,
        /// The data segment.
        text: Vec<u8>,
    },
    /// Answer this with [`TargetLogin::grant`] or [`TargetLogin::refuse`].
    Ask(LoginQuestion),
    /// Whoever asked has proven what it had to: answer with [`TargetLogin::place`]. A stranger takes up no place, and
    /// learns nothing of the sessions of others and of no other portals.
    Proven,
    /// Full feature phase has begun with these parameters, once the response before is sent.
    FullFeature(Box<Negotiated>),
    /// The login has failed: close the connection once the response before, if there is one, is sent.
    Failed {
        /// What the initiator was told; a connection that never began to log in is told nothing.
        status: LoginStatus,
        /// What is behind the status, where more is known.
        fault: Option<Fault>,
        /// Who it was, and what was wrong.
        login: Box<FailedLogin>,
    },
}

/// Why a login fails, closer than its status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rule of the protocol was broken.
    Violation(Violation),
    /// What had to be proven was not.
    Unproven(Unproven),
}

/// A login under way. Feed it PDUs, and do what [`TargetLogin::poll`] says until it says nothing.
#[derive(Debug)]
pub struct TargetLogin {
    random: [u8; 32],
    offer: Offer,
    dialogue: Dialogue,
    declarations: Declarations,
    phase: Phase,
    /// The request that waits for its response, or had the last one.
    request: Option<LoginRequest>,
    steps: VecDeque<TargetStep>,
    is_over: bool,
}

#[derive(Debug)]
enum Phase {
    /// The text that says who asks has not come yet.
    Arriving,
    /// The question is with those who know; its text waits.
    Asked { question: LoginQuestion, text: Vec<u8> },
    /// Granted.
    Talking(Box<Talk>),
    /// Proven; the session is with those who know.
    Placing(Box<Talk>),
    /// Nothing is waited for: the login is over, or in the midst of a step.
    Over,
}

/// A login that was granted.
#[derive(Debug)]
struct Talk {
    stage: Stage,
    question: LoginQuestion,
    grant: Grant,
    /// The session's handle, once there is one.
    session: Option<Tsih>,
    security: Security,
    parley: Parley,
}

/// How far a request got.
enum Progress {
    /// It has its response.
    Responded,
    /// Its response waits for the session.
    Waits,
}

/// Why a login fails.
#[derive(Debug)]
struct Failure {
    status: LoginStatus,
    fault: Option<Fault>,
    /// The key that broke a rule.
    key: Option<&'static str>,
    /// The rule, where no [`Fault`] says it.
    rule: Option<&'static str>,
    /// Where it is to be tried instead.
    elsewhere: Option<String>,
}

impl TargetLogin {
    /// A login that waits for its first request.
    ///
    /// *Shape*: `random` are bytes that nobody can predict, used for nothing else.
    #[must_use]
    pub fn new(config: &TargetConfig, random: [u8; 32]) -> Self {
        Self {
            random,
            offer: config.offer.clone(),
            dialogue: Dialogue::new(config.pdus_max),
            declarations: Declarations::default(),
            phase: Phase::Arriving,
            request: None,
            steps: VecDeque::new(),
            is_over: false,
        }
    }

    /// The PDU has been acted on. Never fails: what is wrong becomes a step.
    pub fn handle_pdu(&mut self, header: &Bhs, text: &[u8]) {
        if self.is_over {
            return;
        }
        let handled = match InitiatorPdu::parse(header) {
            Ok(InitiatorPdu::Login(request)) => self.handle_request(request, text),
            Err(violation) if Opcode::of(header) == Ok(Opcode::LoginRequest) => Err(violation.into()),
            Ok(_) | Err(_) => {
                let fault = Some(Fault::Violation(Violation::LoginExpected));
                Err(Failure { fault, ..LoginStatus::InvalidDuringLogin.into() })
            }
        };
        if let Err(failure) = handled {
            self.fail(failure);
        }
    }

    /// What the bytes of the connection did wrong before they were a PDU ends the login.
    pub fn handle_violation(&mut self, violation: Violation) {
        self.fail(violation.into());
    }

    /// The login goes on as `grant` says. Without effect unless a question is open.
    pub fn grant(&mut self, grant: Grant) {
        let (question, text, request) = match (std::mem::replace(&mut self.phase, Phase::Over), self.request) {
            (Phase::Asked { question, text }, Some(request)) => (question, text, request),
            (phase, _) => {
                self.phase = phase;
                return;
            }
        };
        if question.target_name.is_some() {
            self.dialogue.outgoing.push("TargetPortalGroupTag", grant.portal_group_tag);
        }
        let mut talk = Box::new(Talk {
            stage: request.transit.current,
            security: Security::new(grant.auth.clone(), self.random),
            parley: Parley::new(Role::Target, question.session_type, self.offer.clone())
                .joining(request.tsih != Tsih(0)),
            question,
            grant,
            session: None,
        });
        let handled = self.handle_text(&mut talk, &request, &text).and_then(|()| self.respond(&mut talk, &request));
        self.settle(talk, handled);
    }

    /// Whoever has proven itself has this session, or none here. Without effect unless that was asked.
    ///
    /// *Panics*: when the session has the handle zero, which means none.
    pub fn place(&mut self, session: Result<Tsih, NoSession>) {
        assert!(session != Ok(Tsih(0)), "a session's handle is not zero");
        let (mut talk, request) = match (std::mem::replace(&mut self.phase, Phase::Over), self.request) {
            (Phase::Placing(talk), Some(request)) => (talk, request),
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

    /// The login ends with `status`. Without effect when it is over.
    pub fn refuse(&mut self, status: LoginStatus) {
        self.fail(status.into());
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<TargetStep> {
        self.steps.pop_front()
    }

    fn handle_request(&mut self, request: LoginRequest, text: &[u8]) -> Result<(), Failure> {
        let before = self.request.replace(request);
        if request.version_min > 0 {
            let fault = Some(Fault::Violation(Violation::VersionUnknown));
            return Err(Failure { fault, ..LoginStatus::UnsupportedVersion.into() });
        }
        if before.is_some_and(|before| !same_login(&before, &request)) {
            return Err(Violation::LoginIdentifiersChanged.into());
        }
        let stage = match &self.phase {
            Phase::Talking(talk) => talk.stage,
            _ => before.map_or(request.transit.current, |before| before.transit.current),
        };
        if request.transit.current != stage {
            return Err(Violation::LoginStageWrong.into());
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Arriving => self.arrive(&request, text),
            Phase::Talking(talk) => self.talk(talk, &request, text),
            Phase::Asked { .. } | Phase::Placing(_) | Phase::Over => Err(Violation::LoginOutOfTurn.into()),
        }
    }

    /// Until the first text is whole, nobody is asked anything.
    fn arrive(&mut self, request: &LoginRequest, segment: &[u8]) -> Result<(), Failure> {
        let Some(text) = self.dialogue.handle_segment(segment, request.transit.continues)? else {
            self.phase = Phase::Arriving;
            self.push_response(request, None, Tsih(0));
            return Ok(());
        };
        for pair in Pairs::parse(&text) {
            let (key, value) = pair?;
            self.declarations.handle(key, value)?;
        }
        let question = self.declarations.question(request)?;
        self.steps.push_back(TargetStep::Ask(question.clone()));
        self.phase = Phase::Asked { question, text };
        Ok(())
    }

    fn talk(&mut self, mut talk: Box<Talk>, request: &LoginRequest, segment: &[u8]) -> Result<(), Failure> {
        let handled = match self.dialogue.handle_segment(segment, request.transit.continues)? {
            Some(text) => self.handle_text(&mut talk, request, &text),
            None => Ok(()),
        };
        let handled = handled.and_then(|()| self.respond(&mut talk, request));
        self.settle(talk, handled);
        Ok(())
    }

    fn handle_text(&mut self, talk: &mut Talk, request: &LoginRequest, text: &[u8]) -> Result<(), Failure> {
        let mut pairs = Pairs::parse(text).collect::<Result<Vec<_>, _>>()?;
        // These are answered in the light of MaxBurstLength and of ErrorRecoveryLevel.
        pairs.sort_by_key(|(key, _)| ["FirstBurstLength", "MaxOutstandingR2T"].contains(key));
        let answers = &mut self.dialogue.outgoing;
        for &(name, value) in &pairs {
            if self.declarations.handle(name, value)? || talk.is_security_key(name) {
                continue;
            }
            match Key::of(name) {
                // A declaration may come at any stage; what is negotiated waits for its own.
                Some(key) if talk.stage == Stage::Operational || key == Key::MaxRecvDataSegmentLength => {
                    let handled = talk.parley.handle(key, value, answers);
                    handled.map_err(|violation| Failure::from(violation).of(key.row().name))?;
                }
                _ => answer_out_of_place((name, value), Role::Initiator, answers),
            }
        }
        if talk.stage == Stage::Security {
            talk.security.handle(&pairs, answers)?;
        } else {
            talk.security.permit_operational()?;
            if let Some(alias) = talk.grant.target_alias.take() {
                answers.push("TargetAlias", alias);
            }
            talk.parley.declare(answers);
            talk.parley.offer_needed(answers);
        }
        // Whoever wants to leave the security stage without a proof that is due has failed, not erred.
        if talk.stage == Stage::Security && request.transit.next.is_some() {
            talk.security.permit_transit()?;
        }
        Ok(())
    }

    /// The response to `request`, which leaves the stage when both sides are ready to. Whoever leaves its first stage has
    /// proven what it had to, and waits for its session first.
    fn respond(&mut self, talk: &mut Talk, request: &LoginRequest) -> Result<Progress, Failure> {
        let ready = talk.is_ready() && !self.dialogue.is_listening();
        let asked = request.transit.next.filter(|_| ready);
        let tsih = match (asked, talk.session) {
            (Some(_), None) => {
                self.steps.push_back(TargetStep::Proven);
                return Ok(Progress::Waits);
            }
            (Some(Stage::FullFeature), Some(tsih)) => tsih,
            _ => {
                if let Some(next) = self.push_response(request, asked, request.tsih) {
                    talk.stage = next;
                    self.dialogue.enter_stage();
                }
                return Ok(Progress::Responded);
            }
        };
        let identity = talk.question.clone().into_identity(talk.security.authentication(), tsih, request.cmd_sn);
        let negotiated = talk.parley.finish(identity).map_err(|violation| {
            let key = talk.parley.unsuitable_key();
            Failure { key, ..violation.into() }
        })?;
        if self.push_response(request, asked, tsih).is_some() {
            self.steps.push_back(TargetStep::FullFeature(Box::new(negotiated)));
            talk.stage = Stage::FullFeature;
        }
        Ok(Progress::Responded)
    }

    /// The next part of the answers leaves, and with the last of them the stage, when it is time: the stage to
    /// which both sides go now.
    fn push_response(&mut self, request: &LoginRequest, next: Option<Stage>, tsih: Tsih) -> Option<Stage> {
        let part = self.dialogue.take_part();
        let next = next.filter(|_| !part.continues);
        let tsih = if next == Some(Stage::FullFeature) { tsih } else { request.tsih };
        let transit = Transit { current: request.transit.current, next, continues: part.continues };
        let response = LoginResponse { transit, tsih, ..response_to(request, LoginStatus::Success) };
        self.steps.push_back(TargetStep::Respond { response, text: part.text });
        next
    }

    fn settle(&mut self, talk: Box<Talk>, handled: Result<Progress, Failure>) {
        match handled {
            Err(failure) => self.fail(failure),
            Ok(Progress::Waits) => self.phase = Phase::Placing(talk),
            Ok(Progress::Responded) if talk.stage == Stage::FullFeature => self.is_over = true,
            Ok(Progress::Responded) => self.phase = Phase::Talking(talk),
        }
    }

    fn fail(&mut self, Failure { status, fault, key, rule, elsewhere }: Failure) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.phase = Phase::Over;
        // Before a login has begun, there is nobody to answer: RFC 7143 §6.3.
        if let Some(request) = &self.request {
            let response = response_to(request, status);
            let mut text = TextWriter::default();
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

impl Talk {
    /// True when nothing keeps us in the stage.
    fn is_ready(&self) -> bool {
        match self.stage {
            Stage::Security => self.security.is_done(),
            _ => !self.parley.is_waiting(),
        }
    }

    fn is_security_key(&self, name: &str) -> bool {
        self.stage == Stage::Security && security::is_key(name)
    }
}

/// True when both belong to one login.
fn same_login(a: &LoginRequest, b: &LoginRequest) -> bool {
    let identifiers =
        |request: &LoginRequest| (request.isid, request.tsih, request.cid, request.initiator_task_tag, request.cmd_sn);
    identifiers(a) == identifiers(b)
}

/// A response without text that stays where the request is.
fn response_to(request: &LoginRequest, status: LoginStatus) -> LoginResponse {
    LoginResponse {
        transit: Transit::stay(request.transit.current),
        version_max: 0,
        version_active: 0,
        isid: request.isid,
        tsih: request.tsih,
        initiator_task_tag: request.initiator_task_tag,
        stat_sn: StatSn(0),
        exp_cmd_sn: request.cmd_sn,
        max_cmd_sn: CmdSn(request.cmd_sn.0),
        status,
    }
}

impl Failure {
    /// It was this key.
    fn of(self, key: &'static str) -> Self {
        Self { key: Some(key), ..self }
    }
}

impl From<Violation> for Failure {
    /// Whatever rule of the protocol an initiator breaks, it is told that it erred.
    fn from(violation: Violation) -> Self {
        Self { fault: Some(Fault::Violation(violation)), ..LoginStatus::InitiatorError.into() }
    }
}

impl From<LoginStatus> for Failure {
    fn from(status: LoginStatus) -> Self {
        Self { status, fault: None, key: None, rule: None, elsewhere: None }
    }
}

impl From<WrongKey> for Failure {
    fn from(WrongKey { status, key, rule }: WrongKey) -> Self {
        Self { key: Some(key), rule: Some(rule), ..status.into() }
    }
}

impl From<Unproven> for Failure {
    fn from(why: Unproven) -> Self {
        Self { fault: Some(Fault::Unproven(why)), ..LoginStatus::AuthenticationFailure.into() }
    }
}

impl From<NoSession> for Failure {
    fn from(why: NoSession) -> Self {
        match why {
            NoSession::Refused(status) => status.into(),
            NoSession::Elsewhere(address) => {
                Self { elsewhere: Some(address), ..LoginStatus::TargetMovedTemporarily.into() }
            }
        }
    }
}
