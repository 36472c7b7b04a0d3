//! Login of the initiator against scripted targets, and against our own target.

use super::rig::*;
use crate::chap::{Algorithm, Auth, Challenge, Mutual, PolicyError, Secret};
use crate::login::{InitiatorAuth, InitiatorConfig, InitiatorLogin, InitiatorStep, LoginStatus, TargetConfig};
use crate::login::{TargetLogin, TargetStep};
use crate::pdu::{BHS_BYTES, Bhs, CmdSn, Isid, LoginResponse, SegmentLengths, StatSn, Transit, Tsih};
use crate::{DigestOffer, IscsiName, Negotiated, Offer, Violation};
use proptest::prelude::*;

const OWN_RANDOM: [u8; 32] = *b"the initiators own random bytes.";

fn config(auth: InitiatorAuth) -> InitiatorConfig {
    let target = Some(IscsiName::parse(TARGET).unwrap());
    InitiatorConfig { auth, ..InitiatorConfig::new(IscsiName::parse(INITIATOR).unwrap(), target) }
}

fn one_way() -> InitiatorAuth {
    InitiatorAuth::chap(credential("host", "hosts secret"), None, Algorithm::Md5).unwrap()
}

fn both_ways() -> InitiatorAuth {
    InitiatorAuth::chap(credential("host", "hosts secret"), Some(array()), Algorithm::Md5).unwrap()
}

/// Modification of a valid response.
type Change = fn(&mut LoginResponse);

/// Initiator whose target is a script.
struct Rig {
    login: InitiatorLogin,
    stat_sn: StatSn,
    negotiated: Option<Negotiated>,
}

impl Rig {
    fn new(auth: InitiatorAuth) -> Self {
        Self { login: InitiatorLogin::new(config(auth), OWN_RANDOM), stat_sn: StatSn(100), negotiated: None }
    }

    /// Feeds the lines of the target, and compares the output with the other lines.
    fn play(&mut self, transcript: &str) {
        let mut actual = self.drain();
        let mut expected = Vec::new();
        for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(response) = line.strip_prefix("T ") {
                assert_eq!(actual, expected, "before {line}");
                expected.clear();
                actual = self.say(response);
            } else {
                expected.push(line.to_owned());
            }
        }
        assert_eq!(actual, expected, "at the end of the transcript");
    }

    fn say(&mut self, line: &str) -> Vec<String> {
        let (header, text) = request(line, Tsih(0));
        let transit = crate::pdu::LoginRequest::parse(&header).unwrap().transit;
        let response = LoginResponse { transit, ..self.blank() };
        self.feed(&response, &text)
    }

    fn feed(&mut self, response: &LoginResponse, text: &[u8]) -> Vec<String> {
        let mut header: Bhs = [0; BHS_BYTES];
        response.emit(SegmentLengths::data(text.len()), &mut header);
        self.stat_sn = response.stat_sn.next();
        self.login.handle_pdu(&header, text);
        self.drain()
    }

    fn blank(&self) -> LoginResponse {
        LoginResponse {
            transit: Transit::stay(crate::pdu::Stage::Security),
            version_max: 0,
            version_active: 0,
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            tsih: Tsih(4),
            initiator_task_tag: crate::pdu::InitiatorTaskTag(0),
            stat_sn: self.stat_sn,
            exp_cmd_sn: CmdSn(1),
            max_cmd_sn: CmdSn(8),
            status: LoginStatus::Success,
        }
    }

    fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(step) = self.login.poll() {
            lines.push(match step {
                InitiatorStep::Request { request, text } => {
                    format!("I {} {}", show_transit(request.transit), show_text(&text)).trim_end().to_owned()
                }
                InitiatorStep::FullFeature(negotiated) => {
                    self.negotiated = Some(*negotiated);
                    "= FULL".to_owned()
                }
                InitiatorStep::Refused { status, redirect_address: elsewhere } => {
                    format!("! {status} {}", elsewhere.unwrap_or_default()).trim_end().to_owned()
                }
                InitiatorStep::Failed(violation) => format!("! {violation:?}"),
            });
        }
        lines
    }
}

const NAMES: &str =
    "InitiatorName=iqn.2026-01.com.example:host SessionType=Normal TargetName=iqn.2026-01.com.example:array";
const OFFERS: &str = "MaxRecvDataSegmentLength=262144 HeaderDigest=None,CRC32C DataDigest=None,CRC32C \
    MaxConnections=1 InitialR2T=No ImmediateData=Yes MaxBurstLength=1048576 FirstBurstLength=262144 \
    DefaultTime2Wait=2 DefaultTime2Retain=20 MaxOutstandingR2T=4 DataPDUInOrder=Yes DataSequenceInOrder=Yes \
    ErrorRecoveryLevel=0 iSCSIProtocolLevel=1 TaskReporting=RFC3720";

#[test]
fn initiator_logs_in_to_a_target_that_speaks_little() {
    let mut rig = Rig::new(InitiatorAuth::None);
    rig.play(&format!(
        "I SEC>OPS {NAMES} AuthMethod=None
         T SEC>OPS TargetPortalGroupTag=1
         I OPS>FULL {OFFERS}
         T OPS>FULL MaxRecvDataSegmentLength=8192 TaskReporting=NotUnderstood InitialR2T=Yes
         = FULL"
    ));
    let agreed = rig.negotiated.unwrap();
    assert_eq!((agreed.peer_data_segment_bytes_max, agreed.own_data_segment_bytes_max), (8192, 262_144));
    assert!(agreed.initial_r2t);
    assert_eq!(agreed.identity.tsih, Tsih(4));
}

#[test]
fn initiator_proves_itself_and_makes_the_target_prove_itself() {
    let ours = Challenge::new(Algorithm::Sha1, &OWN_RANDOM);
    let theirs = b"the targets challenge";
    let response = Algorithm::Sha1.respond(0x2a, &Secret::new("hosts secret").unwrap(), theirs);
    let proof = Algorithm::Sha1.respond(ours.identifier(), &Secret::new("arrays secret").unwrap(), ours.bytes());
    let hexadecimal = crate::text::hexadecimal;
    let transcript = |proof: &str, after: &str| {
        format!(
            "I SEC {NAMES} AuthMethod=CHAP
             T SEC AuthMethod=CHAP TargetPortalGroupTag=1
             I SEC CHAP_A=8,7,6,5
             T SEC CHAP_A=6 CHAP_I=42 CHAP_C={}
             I SEC>OPS CHAP_N=host CHAP_R={} CHAP_I={} CHAP_C={}
             T SEC>OPS {proof}
             {after}",
            crate::text::base64(theirs),
            hexadecimal(&response),
            ours.identifier(),
            hexadecimal(ours.bytes()),
        )
    };
    let good = format!("CHAP_N=array CHAP_R={}", hexadecimal(&proof));
    Rig::new(both_ways()).play(&transcript(&good, &format!("I OPS>FULL {OFFERS}")));
    let other_name = good.replace("array", "other");
    for broken in ["", "CHAP_N=array", "CHAP_N=array CHAP_R=0x00", &other_name] {
        Rig::new(both_ways()).play(&transcript(broken, "! TargetNotAuthenticated"));
    }
}

#[test]
fn initiator_refuses_what_it_did_not_offer() {
    for (auth, line, violation) in [
        (InitiatorAuth::None, "SEC AuthMethod=CHAP", Violation::AuthNotOffered),
        (both_ways(), "SEC AuthMethod=None", Violation::AuthNotOffered),
        (both_ways(), "SEC>OPS AuthMethod=None", Violation::TransitUnasked),
        (both_ways(), "SEC AuthMethod=Reject", Violation::AuthNotOffered),
        (both_ways(), "SEC", Violation::AuthNotOffered),
        (InitiatorAuth::None, "SEC>FULL", Violation::TransitUnasked),
        (InitiatorAuth::None, "OPS>FULL", Violation::LoginStageWrong),
        (InitiatorAuth::None, "SEC CHAP_A=5 CHAP_I=1 CHAP_C=0x00", Violation::ChapOutOfTurn),
        (one_way(), "SEC AuthMethod=CHAP AuthMethod=CHAP", Violation::KeyRepeated),
    ] {
        let mut rig = Rig::new(auth);
        let _ = rig.drain();
        assert_eq!(rig.say(line), [format!("! {violation:?}")], "{line}");
    }
    let reflected = crate::text::hexadecimal(Challenge::new(Algorithm::Md5, &OWN_RANDOM).bytes());
    for (line, violation) in [
        ("SEC CHAP_A=4 CHAP_I=1 CHAP_C=0x00".to_owned(), Violation::AuthNotOffered),
        ("SEC CHAP_A=5 CHAP_C=0x00".to_owned(), Violation::ChapOutOfTurn),
        ("SEC CHAP_A=5 CHAP_I=256 CHAP_C=0x00".to_owned(), Violation::ChapOutOfTurn),
        ("SEC CHAP_A=5 CHAP_I=1 CHAP_C=".to_owned(), Violation::ChapOutOfTurn),
        (format!("SEC CHAP_A=5 CHAP_I=1 CHAP_C={reflected}"), Violation::ChallengeReflected),
    ] {
        let mut rig = Rig::new(both_ways());
        let _ = rig.say("SEC AuthMethod=CHAP");
        assert_eq!(rig.say(&line), [format!("! {violation:?}")], "{line}");
    }
}

#[test]
fn initiator_judges_the_header_of_every_response() {
    let changes: [(Change, Violation); 5] = [
        (|response| response.isid = Isid([1; 6]), Violation::LoginIdentifiersChanged),
        (|response| response.initiator_task_tag = crate::pdu::InitiatorTaskTag(1), Violation::LoginIdentifiersChanged),
        (|response| response.version_active = 1, Violation::VersionUnknown),
        (|response| response.stat_sn = StatSn(0), Violation::StatSnWrong),
        (|response| response.tsih = Tsih(0), Violation::SessionWithoutHandle),
    ];
    for (change, violation) in changes {
        let mut rig = Rig::new(InitiatorAuth::None);
        let _ = rig.say("SEC>OPS AuthMethod=None");
        let full = Transit::to(crate::pdu::Stage::Operational, crate::pdu::Stage::FullFeature);
        let mut response = LoginResponse { transit: full, ..rig.blank() };
        change(&mut response);
        assert_eq!(rig.feed(&response, b""), [format!("! {violation:?}")]);
    }
}

#[test]
fn initiator_tells_why_it_was_refused() {
    let mut rig = Rig::new(InitiatorAuth::None);
    let _ = rig.drain();
    let refusal = LoginResponse { status: LoginStatus::AuthorizationFailure, ..rig.blank() };
    assert_eq!(rig.feed(&refusal, b""), ["! authorization failure (0202)"]);
    assert!(rig.feed(&refusal, b"").is_empty());
}

#[test]
fn initiator_tells_where_a_target_has_moved() {
    for (text, told) in [
        (&b"TargetAddress=[fd00::2]:3261,1\0"[..], "! target moved temporarily (0101) [fd00::2]:3261,1"),
        (b"", "! target moved temporarily (0101)"),
        (b"TargetAddress", "! target moved temporarily (0101)"),
    ] {
        let mut rig = Rig::new(InitiatorAuth::None);
        let _ = rig.drain();
        let moved = LoginResponse { status: LoginStatus::TargetMovedTemporarily, ..rig.blank() };
        assert_eq!(rig.feed(&moved, text), [told]);
    }
}

#[test]
fn initiator_takes_no_equal_secrets() {
    let refused =
        InitiatorAuth::chap(credential("a", "same secret!!"), Some(credential("b", "same secret!!")), Algorithm::Md5);
    assert_eq!(refused.unwrap_err(), PolicyError::EqualSecrets);
}

/// Transfers PDUs between both state machines until neither sends any.
fn carry(
    initiator: &mut InitiatorLogin,
    target: &mut TargetLogin,
    auth: &Auth,
) -> (Option<Negotiated>, Option<Negotiated>) {
    let mut header: Bhs = [0; BHS_BYTES];
    let (mut ours, mut theirs, mut stat_sn) = (None, None, StatSn(0));
    for _ in 0..40 {
        let mut idle = true;
        while let Some(step) = initiator.poll() {
            idle = false;
            match step {
                InitiatorStep::Request { request, text } => {
                    request.emit(SegmentLengths::data(text.len()), &mut header);
                    target.handle_pdu(&header, &text);
                }
                InitiatorStep::FullFeature(negotiated) => theirs = Some(*negotiated),
                InitiatorStep::Refused { .. } | InitiatorStep::Failed(_) => {}
            }
        }
        while let Some(step) = target.poll() {
            idle = false;
            match step {
                TargetStep::Authorize(_) => target.grant(crate::login::Grant {
                    auth: auth.clone(),
                    portal_group_tag: 2,
                    target_alias: Some("an alias".to_owned()),
                }),
                TargetStep::Authenticated => target.assign_session(Ok(Tsih(3))),
                TargetStep::Respond { response, text } => {
                    LoginResponse { stat_sn, ..response }.emit(SegmentLengths::data(text.len()), &mut header);
                    stat_sn = stat_sn.next();
                    initiator.handle_pdu(&header, &text);
                }
                TargetStep::FullFeature(negotiated) => ours = Some(*negotiated),
                TargetStep::Failed { .. } => {}
            }
        }
        if idle {
            return (ours, theirs);
        }
    }
    panic!("the two never come to an end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_machines_agree_or_both_refuse(
        auth in 0usize..5, wish in 0usize..3, weakest in 0usize..4, digest in 0usize..4, random in any::<[u8; 32]>(),
    ) {
        let weakest = Algorithm::ALL[weakest];
        let auth = [
            Auth::None,
            chap(true, Mutual::Never, weakest),
            chap(false, Mutual::Never, weakest),
            chap(true, Mutual::Required(array()), weakest),
            chap(false, Mutual::Offered(array()), weakest),
        ][auth].clone();
        let wish = [InitiatorAuth::None, one_way(), both_ways()][wish].clone();
        let digests = [DigestOffer::Never, DigestOffer::Accepted, DigestOffer::Preferred, DigestOffer::Required];
        let offer = Offer { header_digest: digests[digest], ..Offer::default() };
        let mut target = TargetLogin::new(&TargetConfig { offer, ..TargetConfig::default() }, random);
        let mut initiator = InitiatorLogin::new(config(wish.clone()), OWN_RANDOM);
        let (ours, theirs) = carry(&mut initiator, &mut target, &auth);
        prop_assert_eq!(ours.is_some(), theirs.is_some());
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.identity, theirs.identity.clone());
            prop_assert_eq!(ours.header_digest, theirs.header_digest);
            prop_assert_eq!(ours.burst_bytes_max, theirs.burst_bytes_max);
            prop_assert!(!auth.is_required() || theirs.identity.authentication.is_some());
        } else {
            prop_assert!(!matches!((&auth, &wish), (Auth::None, InitiatorAuth::None)));
        }
    }

    #[test]
    fn any_responses_never_panic_and_never_get_in(
        pdus in prop::collection::vec((any::<[[u8; 24]; 2]>(), "[ -~\0]{0,80}"), 1..6), mutual in any::<bool>(),
    ) {
        let mut login = InitiatorLogin::new(config(if mutual { both_ways() } else { one_way() }), OWN_RANDOM);
        for (header, text) in pdus {
            let mut header: Bhs = header.concat().try_into().unwrap();
            header[0] = 0x23;
            header[4] = 0;
            header[36..38].fill(0);
            login.handle_pdu(&header, text.as_bytes());
        }
        while let Some(step) = login.poll() {
            prop_assert!(!matches!(step, InitiatorStep::FullFeature(_)));
        }
    }
}
