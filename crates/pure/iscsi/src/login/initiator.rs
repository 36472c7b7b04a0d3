//! An initiator's side of a login.

mod security;

use super::LoginStatus;
use super::dialogue::{Dialogue, answer_out_of_place};
use crate::negotiation::{Key, Negotiated, Offer, Parley, Role};
use crate::pdu::{
    Bhs, Cid, CmdSn, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, Stage, StatSn, TargetPdu, Transit, Tsih,
};
use crate::text::{Pairs, TextWriter};
use crate::{Identity, IscsiName, SessionType, Violation};
pub use security::InitiatorAuth;
use security::Security;
use std::collections::VecDeque;

/// The most PDUs of one stage.
const PDUS_MAX: u32 = 32;
/// The task tag of a login; any does.
const TASK_TAG: InitiatorTaskTag = InitiatorTaskTag(0);

/// Who logs in to what, and what is offered.
#[derive(Clone, Debug)]
pub struct InitiatorConfig {
    /// Our iSCSI name.
    pub initiator_name: IscsiName,
    /// What we call ourselves for people, without control characters.
    pub initiator_alias: Option<String>,
    /// The target: none for a discovery session.
    pub target_name: Option<IscsiName>,
    /// What is proven, and must be.
    pub auth: InitiatorAuth,
    /// Our part of the session's identifier.
    pub isid: Isid,
    /// The session to join, or zero for a new one.
    pub tsih: Tsih,
    /// The connection's number in its session.
    pub cid: Cid,
    /// The CmdSN of the session's first command.
    pub cmd_sn: CmdSn,
    /// The operational parameters.
    pub offer: Offer,
}

impl InitiatorConfig {
    /// A session of `initiator_name` without authentication: with `target_name` to use it, without to discover.
    #[must_use]
    pub fn new(initiator_name: IscsiName, target_name: Option<IscsiName>) -> Self {
        Self {
            initiator_name,
            initiator_alias: None,
            target_name,
            auth: InitiatorAuth::None,
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            tsih: Tsih(0),
            cid: Cid(0),
            cmd_sn: CmdSn(1),
            offer: Offer::default(),
        }
    }

    fn session_type(&self) -> SessionType {
        if self.target_name.is_some() { SessionType::Normal } else { SessionType::Discovery }
    }
}

/// What an initiator's login wants done, in this order.
#[derive(Clone, Debug)]
pub enum InitiatorStep {
    /// Send this.
    Request {
        /// The header.
        request: LoginRequest,
        /// The data segment.
        text: Vec<u8>,
    },
    /// Full feature phase has begun with these parameters.
    FullFeature(Box<Negotiated>),
    /// The target has refused: close the connection.
    Refused {
        /// What it said.
        status: LoginStatus,
        /// The TargetAddress that came with it, as it was written: where to try instead, when the target has moved.
        elsewhere: Option<String>,
    },
    /// The target has broken a rule: close the connection.
    Failed(Violation),
}

/// A login under way. Do what [`InitiatorLogin::poll`] says, and feed it what the target sends.
#[derive(Debug)]
pub struct InitiatorLogin {
    config: InitiatorConfig,
    dialogue: Dialogue,
    stage: Stage,
    security: Security,
    parley: Parley,
    /// The stage to which the last request asked to go.
    asked: Option<Stage>,
    /// The status that is expected next; none before the first.
    stat_sn: Option<StatSn>,
    steps: VecDeque<InitiatorStep>,
    is_over: bool,
}

impl InitiatorLogin {
    /// A login whose first request waits to be sent.
    ///
    /// *Shape*: `random` are bytes that nobody can predict, used for nothing else.
    #[must_use]
    pub fn new(config: InitiatorConfig, random: [u8; 32]) -> Self {
        let mut login = Self {
            dialogue: Dialogue::new(PDUS_MAX),
            stage: Stage::Security,
            security: Security::new(config.auth.clone(), random),
            parley: Parley::new(Role::Initiator, config.session_type(), config.offer.clone())
                .joining(config.tsih != Tsih(0)),
            config,
            asked: None,
            stat_sn: None,
            steps: VecDeque::new(),
            is_over: false,
        };
        login.declare();
        login.security.begin(&mut login.dialogue.outgoing);
        login.push_request();
        login
    }

    /// The PDU has been acted on. Never fails: what is wrong becomes a step.
    pub fn handle_pdu(&mut self, header: &Bhs, text: &[u8]) {
        if self.is_over {
            return;
        }
        let handled = match TargetPdu::parse(header) {
            Ok(TargetPdu::Login(response)) if response.status != LoginStatus::Success => {
                let is_moved = response.status.codes().0 == 1;
                let elsewhere = is_moved.then(|| address_in(text)).flatten();
                self.end(InitiatorStep::Refused { status: response.status, elsewhere });
                return;
            }
            Ok(TargetPdu::Login(response)) => self.handle_response(&response, text),
            Ok(_) => Err(Violation::LoginExpected),
            Err(violation) => Err(violation),
        };
        if let Err(violation) = handled {
            self.end(InitiatorStep::Failed(violation));
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<InitiatorStep> {
        self.steps.pop_front()
    }

    fn handle_response(&mut self, response: &LoginResponse, segment: &[u8]) -> Result<(), Violation> {
        self.judge(response)?;
        self.stat_sn = Some(response.stat_sn.next());
        let Some(text) = self.dialogue.handle_segment(segment, response.transit.continues)? else {
            self.push_request();
            return Ok(());
        };
        self.handle_text(&text)?;
        match response.transit.next {
            None => self.push_request(),
            Some(Stage::FullFeature) => self.finish(response.tsih)?,
            Some(next) => {
                self.permit_leaving()?;
                self.stage = next;
                self.dialogue.enter_stage();
                self.parley.offer_all(&mut self.dialogue.outgoing);
                self.push_request();
            }
        }
        Ok(())
    }

    /// The header is one that answers our last request.
    fn judge(&self, response: &LoginResponse) -> Result<(), Violation> {
        if response.initiator_task_tag != TASK_TAG || response.isid != self.config.isid {
            return Err(Violation::LoginIdentifiersChanged);
        }
        if response.version_active != 0 {
            return Err(Violation::VersionUnknown);
        }
        if self.stat_sn.is_some_and(|expected| expected != response.stat_sn) {
            return Err(Violation::StatSnWrong);
        }
        if response.transit.current != self.stage {
            return Err(Violation::LoginStageWrong);
        }
        if response.transit.next.is_some() && response.transit.next != self.asked {
            return Err(Violation::TransitUnasked);
        }
        Ok(())
    }

    fn handle_text(&mut self, text: &[u8]) -> Result<(), Violation> {
        let pairs = Pairs::parse(text).collect::<Result<Vec<_>, _>>()?;
        let answers = &mut self.dialogue.outgoing;
        for &(name, value) in &pairs {
            match Key::of(name) {
                Some(key) if self.stage == Stage::Operational || key == Key::MaxRecvDataSegmentLength => {
                    self.parley.handle(key, value, answers)?;
                }
                _ if self.stage == Stage::Security && security::is_key(name) => {}
                _ => answer_out_of_place((name, value), Role::Target, answers),
            }
        }
        if self.stage == Stage::Security { self.security.handle(&pairs, answers) } else { Ok(()) }
    }

    fn finish(&mut self, tsih: Tsih) -> Result<(), Violation> {
        self.permit_leaving()?;
        if tsih == Tsih(0) {
            return Err(Violation::SessionWithoutHandle);
        }
        let identity = Identity {
            initiator_name: self.config.initiator_name.clone(),
            initiator_alias: self.config.initiator_alias.clone(),
            authentication: self.security.authentication(),
            session_type: self.config.session_type(),
            target_name: self.config.target_name.clone(),
            isid: self.config.isid,
            tsih,
            joins: self.config.tsih != Tsih(0),
            cid: self.config.cid,
            cmd_sn: self.config.cmd_sn,
        };
        let negotiated = self.parley.finish(identity)?;
        self.end(InitiatorStep::FullFeature(Box::new(negotiated)));
        Ok(())
    }

    fn permit_leaving(&self) -> Result<(), Violation> {
        if self.security.is_done() { Ok(()) } else { Err(Violation::TargetNotProven) }
    }

    fn declare(&mut self) {
        let names: &mut TextWriter = &mut self.dialogue.outgoing;
        names.push("InitiatorName", &self.config.initiator_name);
        if let Some(alias) = &self.config.initiator_alias {
            names.push("InitiatorAlias", alias);
        }
        match &self.config.target_name {
            Some(target) => {
                names.push("SessionType", "Normal");
                names.push("TargetName", target);
            }
            None => names.push("SessionType", "Discovery"),
        }
    }

    /// The next part of what waits leaves, and asks for the next stage when nothing is left to say in this one.
    fn push_request(&mut self) {
        let listening = self.dialogue.is_listening();
        let part = self.dialogue.take_part();
        let wish = match self.stage {
            Stage::Security => self.security.is_told().then_some(Stage::Operational),
            _ => Some(Stage::FullFeature),
        };
        self.asked = wish.filter(|_| !part.continues && !listening);
        let request = LoginRequest {
            transit: Transit { current: self.stage, next: self.asked, continues: part.continues },
            version_max: 0,
            version_min: 0,
            isid: self.config.isid,
            tsih: self.config.tsih,
            initiator_task_tag: TASK_TAG,
            cid: self.config.cid,
            cmd_sn: self.config.cmd_sn,
            exp_stat_sn: self.stat_sn.unwrap_or_default(),
        };
        self.steps.push_back(InitiatorStep::Request { request, text: part.text });
    }

    fn end(&mut self, step: InitiatorStep) {
        self.is_over = true;
        self.steps.push_back(step);
    }
}

/// The first TargetAddress of a response, if its text is text.
fn address_in(text: &[u8]) -> Option<String> {
    let mut pairs = Pairs::parse(text).map_while(Result::ok);
    pairs.find(|(key, _)| *key == "TargetAddress").map(|(_, value)| value.to_owned())
}
