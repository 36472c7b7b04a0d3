//! Hostile input before and during a login.

use super::rig::*;
use crate::LoginStatus;
use crate::chap::{Algorithm, Auth, Mutual};
use crate::login::{TargetConfig, TargetLogin, TargetStep};
use crate::pdu::{
    BHS_BYTES, Bhs, Cid, CmdSn, InitiatorTaskTag, Isid, LoginRequest, SegmentLengths, Stage, Transit, Tsih,
};
use proptest::prelude::*;

fn header(request: &LoginRequest, data_bytes: usize) -> Bhs {
    let mut header = [0; BHS_BYTES];
    request.emit(SegmentLengths::data(data_bytes), &mut header);
    header
}

#[test]
fn anything_but_a_login_ends_the_connection_and_once_begun_is_told() {
    for opcode in [0x40, 0x01, 0x42, 0x44, 0x05, 0x46, 0x10, 0x20, 0x3f, 0x1c] {
        let mut pdu = [0; BHS_BYTES];
        pdu[0] = opcode;
        pdu[1] = 0x80;
        let mut rig = Rig::new(Auth::None);
        assert_eq!(rig.feed(&pdu, b""), ["! 020b"], "{opcode:02x}: who has not begun is told nothing");
        let mut rig = Rig::new(Auth::None);
        let _ = rig.say(&format!("SEC {NORMAL}"));
        assert_eq!(rig.feed(&pdu, b""), ["T 020b", "! 020b"], "{opcode:02x}");
        assert!(rig.feed(&pdu, b"").is_empty(), "what is over says nothing");
    }
}

#[test]
fn declarations_that_are_due_missing_or_malformed_are_told_apart() {
    for (text, status) in [
        ("SessionType=Normal", "0207"),
        ("", "0207"),
        ("InitiatorName=iqn.2026-01.com.example:host", "0207"),
        ("InitiatorName= TargetName=iqn.2026-01.com.example:array", "0200"),
        ("InitiatorName=host TargetName=iqn.2026-01.com.example:array", "0200"),
        ("InitiatorName=iqn.2026-01.com.example:host TargetName=array", "0203"),
        ("InitiatorName=iqn.2026-01.com.example:host SessionType=Copy", "0209"),
        (
            "InitiatorName=iqn.2026-01.com.example:host InitiatorName=iqn.2026-01.com.example:b SessionType=Discovery",
            "0200",
        ),
    ] {
        let lines = Rig::new(Auth::None).say(&format!("SEC>OPS {text}"));
        assert_eq!(lines, [format!("T {status}"), format!("! {status}")], "{text}");
    }
}

#[test]
fn login_that_fails_says_who_it_was_the_key_and_the_rule() {
    const HOST: &str = "InitiatorName=iqn.2026-01.com.example:host";
    for (texts, who, key, rule) in [
        (&["SEC SessionType=Normal"][..], false, Some("InitiatorName"), "did not come, and every login"),
        (&["SEC {HOST}"], true, Some("TargetName"), "names its target (RFC 7143 §13.4)"),
        (&["SEC InitiatorName=host SessionType=Discovery"], false, Some("InitiatorName"), "no iSCSI name"),
        (&["SEC {HOST} TargetName=array"], true, Some("TargetName"), "no iSCSI name"),
        (&["SEC {HOST} SessionType=Copy"], true, Some("SessionType"), "neither Normal nor Discovery"),
        (&["OPS {HOST} SessionType=Discovery MaxBurstLength=8192", "OPS MaxBurstLength=8192"], true, None, "§6.3"),
        (&["SEC>OPS {HOST} SessionType=Discovery", "SEC X=1"], true, None, "another stage (RFC 7143 §11.12.3)"),
        (&["SEC Hello=1 lower=2"], false, None, "a key is malformed (RFC 7143 §6.1)"),
    ] {
        let mut rig = Rig::new(Auth::None);
        texts.iter().for_each(|text| drop(rig.say(&text.replace("{HOST}", HOST))));
        let failed = rig.failed().unwrap_or_else(|| panic!("{texts:?} fails"));
        assert_eq!(failed.initiator_name.is_some(), who, "{texts:?}: {failed:?}");
        assert!(key.is_none() || failed.key == key, "{texts:?}: {failed:?}");
        assert!(failed.rule.as_ref().is_some_and(|told| told.contains(rule)), "{texts:?}: {failed:?}");
    }
    let mut rig = Rig::new(Auth::None);
    let _ = rig.say(&format!("OPS {HOST} SessionType=Discovery HeaderDigest=None HeaderDigest=None"));
    assert_eq!(rig.failed().and_then(|failed| failed.key), Some("HeaderDigest"), "it came twice");
}

#[test]
fn text_that_is_none_is_refused() {
    let long_key = format!("{}=1\0", "K".repeat(8000));
    for text in [&b"InitiatorName"[..], b"=\0", b"InitiatorName\0", b"K=\xff\0", long_key.as_bytes()] {
        let (pdu, _) = request("SEC>OPS", Tsih(0));
        assert_eq!(Rig::new(Auth::None).feed(&pdu, text), ["T 0200", "! 0200"]);
    }
}

#[test]
fn text_beyond_its_bounds_is_refused() {
    let (pdu, _) = request("SEC", Tsih(0));
    let (more, _) = request("SEC+", Tsih(0));
    assert_eq!(Rig::new(Auth::None).feed(&pdu, &[b'x'; 8193]), ["T 0200", "! 0200"], "one segment");
    assert_eq!(Rig::new(Auth::None).feed(&more, b""), ["T 0200", "! 0200"], "a promise without text");

    let mut rig = Rig::with(&TargetConfig { pdus_max: 1000, ..TargetConfig::default() }, Auth::None);
    for _ in 0..8 {
        assert_eq!(rig.feed(&more, &[b'x'; 8192]), ["T SEC"]);
    }
    assert_eq!(rig.feed(&more, b"x"), ["T 0200", "! 0200"], "text in all");

    let mut rig = Rig::new(Auth::None);
    for _ in 0..10 {
        assert_eq!(rig.feed(&more, b"x"), ["T SEC"]);
    }
    assert_eq!(rig.feed(&more, b"x"), ["T 0200", "! 0200"], "PDUs of a stage");
}

#[test]
fn a_thousand_unknown_keys_are_refused_and_as_many_as_may_be_are_answered_within_bounds() {
    let unknown = |count: usize| -> String { (0..count).map(|at| format!(" U{at}=1")).collect() };
    let mut rig = Rig::new(Auth::None);
    assert_eq!(rig.say(&format!("OPS>FULL {NORMAL}{}", unknown(700))), ["T 0200", "! 0200"]);
    let mut rig = Rig::new(Auth::None);
    let lines = rig.say(&format!("OPS>FULL {NORMAL}{}", unknown(250)));
    assert!(lines[1].contains("U249=NotUnderstood"));
    assert!(rig.answered_bytes < 8192);
}

#[test]
fn text_while_the_answer_goes_on_is_refused() {
    let unknown: String = (0..120).map(|at| format!(" Unknown{at:03}{}=1", "x".repeat(50))).collect();
    let mut rig = Rig::new(Auth::None);
    assert!(rig.say(&format!("OPS {NORMAL}{unknown}"))[1].starts_with("T OPS+"));
    assert_eq!(rig.say("OPS MaxBurstLength=512"), ["T 0200", "! 0200"]);
}

#[test]
fn stages_that_skip_go_back_or_are_reserved_are_refused() {
    for (first, second) in [
        ("SEC AuthMethod=None", "OPS>FULL"),
        ("SEC>OPS AuthMethod=None", "SEC"),
        ("SEC>OPS AuthMethod=None", "SEC>FULL"),
        ("OPS", "SEC>OPS AuthMethod=None"),
    ] {
        let mut rig = Rig::new(Auth::None);
        let (place, pairs) = first.split_once(' ').unwrap_or((first, ""));
        let _ = rig.say(&format!("{place} {NORMAL} {pairs}"));
        assert_eq!(rig.ended(), None);
        assert_eq!(rig.say(second), ["T 0200", "! 0200"], "{first}, then {second}");
    }
    for flags in [0x08, 0x82, 0x0c, 0x84, 0xc1] {
        let mut rig = Rig::new(Auth::None);
        let _ = rig.say(&format!("SEC {NORMAL}"));
        let (mut pdu, _) = request("SEC", Tsih(0));
        pdu[1] = flags;
        assert_eq!(rig.feed(&pdu, b""), ["T 0200", "! 0200"], "flags {flags:02x}");
    }
}

#[test]
fn version_that_is_not_ours_is_refused() {
    let request = LoginRequest { version_max: 2, version_min: 1, ..blank_request() };
    assert_eq!(Rig::new(Auth::None).feed(&header(&request, 0), b""), ["T 0205", "! 0205"]);
    let request = LoginRequest { version_max: 2, ..blank_request() };
    assert_eq!(Rig::new(Auth::None).feed(&header(&request, 0), b""), ["T 0207", "! 0207"], "0 to 2 is ours");
}

#[test]
fn identifiers_that_change_on_the_way_are_refused() {
    let changes: [fn(&mut LoginRequest); 5] = [
        |request| request.isid = Isid([9; 6]),
        |request| request.tsih = Tsih(3),
        |request| request.cid = Cid(3),
        |request| request.initiator_task_tag = InitiatorTaskTag(6),
        |request| request.cmd_sn = CmdSn(8),
    ];
    for change in changes {
        let mut rig = Rig::new(Auth::None);
        let _ = rig.say(&format!("SEC {NORMAL}"));
        let mut request = LoginRequest { transit: Transit::stay(Stage::Security), ..blank_request() };
        change(&mut request);
        assert_eq!(rig.feed(&header(&request, 0), b""), ["T 0200", "! 0200"]);
    }
}

#[test]
fn request_that_does_not_wait_for_its_answer_is_refused() {
    let mut login = TargetLogin::new(&TargetConfig::default(), RANDOM);
    let (pdu, text) = request(&format!("SEC>OPS {NORMAL} AuthMethod=None"), Tsih(0));
    login.handle_pdu(&pdu, &text);
    assert!(matches!(login.poll(), Some(TargetStep::Authorize(_))));
    login.handle_pdu(&pdu, &text);
    assert!(matches!(login.poll(), Some(TargetStep::Respond { .. })));
    assert!(matches!(login.poll(), Some(TargetStep::Failed { status: LoginStatus::InitiatorError, .. })));
    login.refuse(LoginStatus::NotFound);
    assert!(login.poll().is_none(), "a late answer changes nothing");
}

/// A line of a hostile initiator: real keys with valid and invalid values, in any stage.
fn line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "InitiatorName",
        "TargetName",
        "SessionType",
        "AuthMethod",
        "CHAP_A",
        "CHAP_N",
        "CHAP_R",
        "CHAP_I",
        "CHAP_C",
        "HeaderDigest",
        "MaxBurstLength",
        "FirstBurstLength",
        "InitialR2T",
        "MaxRecvDataSegmentLength",
        "IFMarker",
        "SendTargets",
        "X-a",
        "TargetAlias",
        "InitiatorAlias",
        "TaskReporting",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "iqn.2026-01.com.example:host",
            "Normal",
            "Discovery",
            "None",
            "CHAP",
            "CHAP,None",
            "5",
            "8,7,6,5",
            "host",
            "0x00",
            "0b",
            "Yes",
            "No",
            "CRC32C",
            "512",
            "16777215",
            "Reject",
            "NotUnderstood",
            "Irrelevant",
            "",
        ])
        .prop_map(str::to_owned),
        "[!-}]{0,40}".prop_map(|text| text.replace('~', "")),
    ];
    let place = prop::sample::select(vec!["SEC", "SEC+", "SEC>OPS", "SEC>FULL", "OPS", "OPS+", "OPS>FULL"]);
    let pairs = prop::collection::vec((key, value), 0..6);
    (place, pairs, any::<bool>()).prop_map(|(place, pairs, named)| {
        let pairs: String = pairs.into_iter().map(|(key, value)| format!(" {key}={value}")).collect();
        if named { format!("{place} {NORMAL}{pairs}") } else { format!("{place}{pairs}") }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn key_soup_never_panics_never_outgrows_its_bounds_and_never_gets_in_unproven(
        lines in prop::collection::vec(line(), 1..12), required in any::<bool>(),
    ) {
        let auth = if required { chap(true, Mutual::Never, Algorithm::Md5) } else { Auth::None };
        let mut rig = Rig::new(auth);
        for line in &lines {
            let _ = rig.say(line);
        }
        prop_assert!(rig.answered_bytes < 32 << 10);
        prop_assert!(!(required && rig.negotiated.is_some()), "no secret was known");
    }

    #[test]
    fn any_pdus_never_panic(pdus in prop::collection::vec((any::<[[u8; 24]; 2]>(), prop::collection::vec(any::<u8>(), 0..80)), 1..6)) {
        let mut rig = Rig::new(chap(true, Mutual::Never, Algorithm::Md5));
        for (header, text) in pdus {
            let mut header: Bhs = header.concat().try_into().unwrap();
            header[0] = 0x43;
            header[4] = 0;
            header[14..16].fill(0);
            let _ = rig.feed(&header, &text);
        }
        prop_assert!(rig.negotiated.is_none());
    }
}
