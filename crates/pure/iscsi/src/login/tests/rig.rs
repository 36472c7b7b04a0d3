//! Login transcripts: one line per PDU.
//!
//! `I SEC>OPS InitiatorName=… AuthMethod=None` is a request of the security stage that asks for the operational one, `I
//! SEC+ …` one whose text continues. `T …` is the expected response, `? …` the question to the driver, `= FULL` the
//! start of full feature phase and `! 0201` the end with a status. A refusing response is written as its status and
//! text. Blanks separate the pairs; `~` stands for a blank in a value.

use crate::chap::{Algorithm, Auth, Challenge, ChapPolicy, Credential, Mutual, Secret};
use crate::login::{FailedLogin, Grant, LoginStatus, NoSession, TargetConfig, TargetLogin, TargetStep};
use crate::pdu::{
    BHS_BYTES, Bhs, Cid, CmdSn, InitiatorTaskTag, Isid, LoginRequest, SegmentLengths, Stage, Transit, Tsih,
};
use crate::{Negotiated, SessionType};

pub(super) const INITIATOR: &str = "iqn.2026-01.com.example:host";
pub(super) const TARGET: &str = "iqn.2026-01.com.example:array";
/// Declarations of a normal and of a discovery session.
pub(super) const NORMAL: &str =
    "InitiatorName=iqn.2026-01.com.example:host SessionType=Normal TargetName=iqn.2026-01.com.example:array";
pub(super) const DISCOVERY: &str = "InitiatorName=iqn.2026-01.com.example:host SessionType=Discovery";
/// Random bytes of every target in these tests; a challenge starts with them.
pub(super) const RANDOM: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";

/// Login of a target, with the grant for every initiator.
pub(super) struct Rig {
    pub(super) login: TargetLogin,
    pub(super) grant: Result<Grant, LoginStatus>,
    pub(super) session: Result<Tsih, NoSession>,
    pub(super) tsih: Tsih,
    pub(super) negotiated: Option<Negotiated>,
    /// Bytes of text sent.
    pub(super) answered_bytes: usize,
    ended: Option<LoginStatus>,
    failed: Option<FailedLogin>,
}

impl Rig {
    pub(super) fn new(auth: Auth) -> Self {
        Self::with(&TargetConfig::default(), auth)
    }

    pub(super) fn with(config: &TargetConfig, auth: Auth) -> Self {
        let grant = Grant { auth, portal_group_tag: 1, target_alias: None };
        Self {
            login: TargetLogin::new(config, RANDOM),
            grant: Ok(grant),
            session: Ok(Tsih(9)),
            tsih: Tsih(0),
            negotiated: None,
            answered_bytes: 0,
            ended: None,
            failed: None,
        }
    }

    /// Feeds the lines of the initiator, and compares the output with the other lines.
    pub(super) fn play(&mut self, transcript: &str) {
        let mut actual = Vec::new();
        let mut expected = Vec::new();
        for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(request) = line.strip_prefix("I ") {
                assert_eq!(actual, expected, "before {line}");
                actual.clear();
                expected.clear();
                actual.extend(self.say(request));
            } else {
                expected.push(line.to_owned());
            }
        }
        assert_eq!(actual, expected, "at the end of the transcript");
    }

    /// Returns CHAP name and algorithm of the session, and whether authentication was mutual.
    pub(super) fn proven(&self) -> Option<(&str, Algorithm, bool)> {
        let proven = self.negotiated.as_ref()?.identity.authentication.as_ref()?;
        Some((&proven.name, proven.algorithm, proven.mutual))
    }

    /// Feeds one request, and returns the resulting lines.
    pub(super) fn say(&mut self, line: &str) -> Vec<String> {
        let (header, text) = request(line, self.tsih);
        self.feed(&header, &text)
    }

    pub(super) fn feed(&mut self, header: &Bhs, text: &[u8]) -> Vec<String> {
        self.login.handle_pdu(header, text);
        let mut lines = Vec::new();
        while let Some(step) = self.login.poll() {
            match step {
                TargetStep::Authenticated => self.login.assign_session(self.session.clone()),
                step => lines.push(self.show(step)),
            }
        }
        lines
    }

    /// Returns the facts about the login, when it has failed.
    pub(super) fn failed(&self) -> Option<&FailedLogin> {
        self.failed.as_ref()
    }

    /// Returns the status with which the login ended, if it has.
    pub(super) fn ended(&self) -> Option<LoginStatus> {
        self.ended
    }

    fn show(&mut self, step: TargetStep) -> String {
        match step {
            TargetStep::Authorize(question) => {
                match self.grant.clone() {
                    Ok(grant) => self.login.grant(grant),
                    Err(status) => self.login.refuse(status),
                }
                let kind = if question.session_type == SessionType::Discovery { "Discovery" } else { "Normal" };
                let target = question.target_name.map_or("-".to_owned(), |name| name.to_string());
                format!("? {} {kind} {target}", question.initiator_name)
            }
            TargetStep::Respond { response, text } => {
                self.answered_bytes += text.len();
                assert!(text.len() <= 8192, "a response fits the initiator's buffer");
                if response.status != LoginStatus::Success {
                    assert!(response.transit.next.is_none());
                    let (class, detail) = response.status.codes();
                    return format!("T {class:02x}{detail:02x} {}", show_text(&text)).trim_end().to_owned();
                }
                if response.transit.next == Some(Stage::FullFeature) {
                    assert_ne!(response.tsih, Tsih(0), "the last response names the session");
                } else {
                    assert_eq!(response.tsih, self.tsih);
                }
                format!("T {} {}", show_transit(response.transit), show_text(&text)).trim_end().to_owned()
            }
            TargetStep::FullFeature(negotiated) => {
                self.negotiated = Some(*negotiated);
                "= FULL".to_owned()
            }
            TargetStep::Authenticated => unreachable!("answered where it is fed"),
            TargetStep::Failed { status, login, .. } => {
                self.ended = Some(status);
                self.failed = Some(*login);
                let (class, detail) = status.codes();
                format!("! {class:02x}{detail:02x}")
            }
        }
    }
}

/// Builds the PDU of a line.
pub(super) fn request(line: &str, tsih: Tsih) -> (Bhs, Vec<u8>) {
    let (place, pairs) = line.split_once(' ').unwrap_or((line, ""));
    let text: String = pairs.split_whitespace().map(|pair| pair.replace('~', " ") + "\0").collect();
    let request = LoginRequest { transit: parse_transit(place), tsih, ..blank_request() };
    let mut header = [0; BHS_BYTES];
    request.emit(SegmentLengths::data(text.len()), &mut header);
    (header, text.into_bytes())
}

pub(super) fn blank_request() -> LoginRequest {
    LoginRequest {
        initiator_task_tag: InitiatorTaskTag(5),
        cid: Cid(1),
        cmd_sn: CmdSn(7),
        ..LoginRequest::leading(Isid([0x80, 0, 0, 0, 0, 1]), Transit::stay(Stage::Security))
    }
}

fn parse_transit(place: &str) -> Transit {
    let stage = |name: &str| match name {
        "SEC" => Stage::Security,
        "OPS" => Stage::Operational,
        "FULL" => Stage::FullFeature,
        other => panic!("{other} is no stage"),
    };
    match (place.split_once('>'), place.strip_suffix('+')) {
        (Some((current, next)), _) => Transit::to(stage(current), stage(next)),
        (None, Some(current)) => Transit { continues: true, ..Transit::stay(stage(current)) },
        (None, None) => Transit::stay(stage(place)),
    }
}

pub(super) fn show_transit(transit: Transit) -> String {
    let name = |stage| match stage {
        Stage::Security => "SEC",
        Stage::Operational => "OPS",
        Stage::FullFeature => "FULL",
    };
    let next = transit.next.map_or(String::new(), |next| format!(">{}", name(next)));
    format!("{}{next}{}", name(transit.current), if transit.continues { "+" } else { "" })
}

pub(super) fn show_text(text: &[u8]) -> String {
    let text = std::str::from_utf8(text).unwrap().trim_end_matches('\0').replace(' ', "~");
    text.replace('\0', " ")
}

pub(super) fn credential(name: &str, secret: &str) -> Credential {
    Credential { name: name.to_owned(), secret: Secret::new(secret).unwrap() }
}

/// Credentials "host" with "hosts secret", and for the other direction "array" with "arrays secret".
pub(super) fn chap(required: bool, mutual: Mutual, weakest: Algorithm) -> Auth {
    let accepted = vec![credential("other", "another secret"), credential("host", "hosts secret")];
    Auth::Chap(Box::new(ChapPolicy::new(required, accepted, mutual, weakest).unwrap()))
}

pub(super) fn array() -> Credential {
    credential("array", "arrays secret")
}

/// Returns the challenge of the target in these tests, as the pairs that it sends.
pub(super) fn posed(algorithm: Algorithm) -> String {
    let challenge = Challenge::new(algorithm, &RANDOM);
    let bytes = crate::text::hexadecimal(challenge.bytes());
    format!("CHAP_A={} CHAP_I={} CHAP_C={bytes}", algorithm as u8, challenge.identifier())
}

/// Returns the response of `secret` to the challenge of these tests.
pub(super) fn solved(algorithm: Algorithm, secret: &str) -> String {
    let challenge = Challenge::new(algorithm, &RANDOM);
    let secret = Secret::new(secret).unwrap();
    crate::text::hexadecimal(&algorithm.respond(challenge.identifier(), &secret, challenge.bytes()))
}
