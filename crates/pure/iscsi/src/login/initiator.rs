//! Initiator side of a login.

mod security;

use super::LoginStatus;
use super::text_exchange::{LoginTextExchange, answer_unexpected_key};
use crate::negotiation::{Key, Negotiated, Negotiation, Offer, Role};
use crate::pdu::{
    Bhs, Cid, CmdSn, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, Stage, StatSn, TargetPdu, Transit, Tsih,
};
use crate::text::{Pairs, TextWriter};
use crate::{Identity, IscsiName, SessionType, Violation};
pub use security::InitiatorAuth;
use security::Security;
use std::collections::VecDeque;

/// Maximum number of PDUs in one stage.
const PDUS_MAX: u32 = 32;
/// Task tag of a login; the value is arbitrary.
const TASK_TAG: InitiatorTaskTag = InitiatorTaskTag(0);

/// Identities, authentication and offered parameters of a login.
#[derive(Clone, Debug)]
pub struct InitiatorConfig {
    /// iSCSI name of this initiator.
    pub initiator_name: IscsiName,
    /// Human-readable alias, without control characters.
    pub initiator_alias: Option<String>,
    /// Target name; `None` for a discovery session.
    pub target_name: Option<IscsiName>,
    /// Authentication of both sides.
    pub auth: InitiatorAuth,
    /// ISID: initiator part of the session identifier.
    pub isid: Isid,
    /// TSIH of the session to join; zero for a new one.
    pub tsih: Tsih,
    /// Connection identifier in its session.
    pub cid: Cid,
    /// Initial CmdSN of the session.
    pub cmd_sn: CmdSn,
    /// Operational parameters.
    pub offer: Offer,
}

impl InitiatorConfig {
    /// Creates a login without authentication: a normal session with `target_name`, or a discovery session without it.
    #[must_use]
    pub fn new(initiator_name: IscsiName, target_name: Option<IscsiName>) -> Self {
        Self {
            initiator_name,
            initiator_alias: None,
            target_name,
            auth: InitiatorAuth::None,
            // Type 10b: a random ISID without a naming authority (RFC 7143 §11.12.5).
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

/// Action that the login requests, in order.
#[derive(Clone, Debug)]
pub enum InitiatorStep {
    /// Send this PDU.
    Request {
        /// Header.
        request: LoginRequest,
        /// Data segment.
        text: Vec<u8>,
    },
    /// Full feature phase has started with these parameters.
    FullFeature(Box<Negotiated>),
    /// The target refused the login: close the connection.
    Refused {
        /// Status of the response.
        status: LoginStatus,
        /// TargetAddress of the response as received: the portal to try instead, for a redirection.
        redirect_address: Option<String>,
    },
    /// The target violated the protocol: close the connection.
    Failed(Violation),
}

/// Login in progress. Perform the steps of [`InitiatorLogin::poll`], and pass in the PDUs of the target.
#[derive(Debug)]
pub struct InitiatorLogin {
    config: InitiatorConfig,
    exchange: LoginTextExchange,
    stage: Stage,
    security: Security,
    negotiation: Negotiation,
    /// Stage that the last request asked to enter.
    asked: Option<Stage>,
    /// Expected StatSN; `None` before the first response.
    stat_sn: Option<StatSn>,
    steps: VecDeque<InitiatorStep>,
    is_over: bool,
}

impl InitiatorLogin {
    /// Creates a login with its first request queued.
    ///
    /// *Shape*: `random` are unpredictable bytes, used for nothing else.
    #[must_use]
    pub fn new(config: InitiatorConfig, random: [u8; 32]) -> Self {
        let mut login = Self {
            exchange: LoginTextExchange::new(PDUS_MAX),
            stage: Stage::Security,
            security: Security::new(config.auth.clone(), random),
            negotiation: Negotiation::new(Role::Initiator, config.session_type(), config.offer.clone())
                .joining(config.tsih != Tsih(0)),
            config,
            asked: None,
            stat_sn: None,
            steps: VecDeque::new(),
            is_over: false,
        };
        // The first request declares the names, because the target decides on the login by them (RFC 7143 §6.3).
        login.declare();
        login.security.begin(&mut login.exchange.outgoing);
        login.push_request();
        login
    }

    /// Handles a PDU. Never fails: an error becomes a step.
    pub fn handle_pdu(&mut self, header: &Bhs, text: &[u8]) {
        if self.is_over {
            return;
        }
        let handled = match TargetPdu::parse(header) {
            Ok(TargetPdu::Login(response)) if response.status != LoginStatus::Success => {
                // Status class 1 is a redirection (RFC 7143 §11.13.5).
                let is_moved = response.status.codes().0 == 1;
                let elsewhere = is_moved.then(|| address_in(text)).flatten();
                self.end(InitiatorStep::Refused { status: response.status, redirect_address: elsewhere });
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

    /// Returns the next step.
    pub fn poll(&mut self) -> Option<InitiatorStep> {
        self.steps.pop_front()
    }

    fn handle_response(&mut self, response: &LoginResponse, segment: &[u8]) -> Result<(), Violation> {
        self.judge(response)?;
        // Advanced before the text is handled, because the next request acknowledges this response.
        self.stat_sn = Some(response.stat_sn.next());
        let Some(text) = self.exchange.handle_segment(segment, response.transit.continues)? else {
            // The target's text continues, so an empty request asks for the rest.
            self.push_request();
            return Ok(());
        };
        // The text belongs to the stage that the response leaves, so it is handled before the stage changes.
        self.handle_text(&text)?;
        match response.transit.next {
            None => self.push_request(),
            Some(Stage::FullFeature) => self.finish(response.tsih)?,
            Some(next) => {
                // The security stage cannot be left before the target has authenticated, whatever the target claims.
                self.permit_leaving()?;
                self.stage = next;
                self.exchange.enter_stage();
                // All operational keys are offered in one request, which saves round trips.
                self.negotiation.offer_all(&mut self.exchange.outgoing);
                self.push_request();
            }
        }
        Ok(())
    }

    /// Checks that the header answers our last request.
    ///
    /// *Errors*: the violated rule.
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
        // The target may enter only the stage that was requested.
        if response.transit.next.is_some() && response.transit.next != self.asked {
            return Err(Violation::TransitUnasked);
        }
        Ok(())
    }

    fn handle_text(&mut self, text: &[u8]) -> Result<(), Violation> {
        // Parsed as a whole, so that a malformed pair at the end leaves no earlier key half negotiated.
        let pairs = Pairs::parse(text).collect::<Result<Vec<_>, _>>()?;
        let answers = &mut self.exchange.outgoing;
        for &(name, value) in &pairs {
            // Declarations are valid in any stage; negotiated keys only in their own stage.
            match Key::of(name) {
                Some(key) if self.stage == Stage::Operational || key == Key::MaxRecvDataSegmentLength => {
                    self.negotiation.handle(key, value, answers)?;
                }
                // Passed on below, all together: CHAP needs several keys of one PDU.
                _ if self.stage == Stage::Security && security::is_key(name) => {}
                _ => answer_unexpected_key((name, value), Role::Target, answers),
            }
        }
        if self.stage == Stage::Security { self.security.handle(&pairs, answers) } else { Ok(()) }
    }

    fn finish(&mut self, tsih: Tsih) -> Result<(), Violation> {
        self.permit_leaving()?;
        // A TSIH of zero denotes no session (RFC 7143 §11.13.3).
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
        let negotiated = self.negotiation.finish(identity)?;
        self.end(InitiatorStep::FullFeature(Box::new(negotiated)));
        Ok(())
    }

    fn permit_leaving(&self) -> Result<(), Violation> {
        if self.security.is_done() { Ok(()) } else { Err(Violation::TargetNotAuthenticated) }
    }

    fn declare(&mut self) {
        let names: &mut TextWriter = &mut self.exchange.outgoing;
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

    /// Queues the next request. It asks for the next stage when nothing is left to send in this one.
    fn push_request(&mut self) {
        // Evaluated before the text is taken, which changes the state of the exchange.
        let listening = self.exchange.is_listening();
        let part = self.exchange.take_part();
        let wish = match self.stage {
            Stage::Security => self.security.is_ready().then_some(Stage::Operational),
            _ => Some(Stage::FullFeature),
        };
        // The T bit excludes the C bit (RFC 7143 §11.12.2), so a stage is left with the last text only.
        self.asked = wish.filter(|_| !part.continues && !listening);
        let request = LoginRequest {
            transit: Transit { current: self.stage, next: self.asked, continues: part.continues },
            // Version 00h is the only one (RFC 7143 §11.12.4).
            version_max: 0,
            version_min: 0,
            isid: self.config.isid,
            tsih: self.config.tsih,
            initiator_task_tag: TASK_TAG,
            cid: self.config.cid,
            cmd_sn: self.config.cmd_sn,
            // Before the first response there is no status to acknowledge.
            exp_stat_sn: self.stat_sn.unwrap_or_default(),
        };
        self.steps.push_back(InitiatorStep::Request { request, text: part.text });
    }

    fn end(&mut self, step: InitiatorStep) {
        self.is_over = true;
        self.steps.push_back(step);
    }
}

/// Returns the first TargetAddress of a response, if the text is valid.
fn address_in(text: &[u8]) -> Option<String> {
    // A malformed pair is no further violation: the login has failed, and the driver does without the address.
    let mut pairs = Pairs::parse(text).map_while(Result::ok);
    pairs.find(|(key, _)| *key == "TargetAddress").map(|(_, value)| value.to_owned())
}
