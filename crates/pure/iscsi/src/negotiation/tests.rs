use super::*;
use crate::pdu::{Cid, CmdSn, Isid, Tsih};
use crate::text::{Pairs, TextWriter};
use crate::{IscsiName, Violation};
use proptest::prelude::*;

fn identity(session_type: SessionType) -> Identity {
    Identity {
        initiator_name: IscsiName::parse("iqn.2026-01.com.example:host").unwrap(),
        initiator_alias: None,
        authentication: None,
        session_type,
        target_name: None,
        isid: Isid::default(),
        tsih: Tsih(1),
        joins: false,
        cid: Cid(0),
        cmd_sn: CmdSn(1),
    }
}

fn target(session_type: SessionType, offer: Offer) -> Negotiation {
    Negotiation::new(Role::Target, session_type, offer)
}

/// A target that prefers the opposite of every default.
fn offer() -> Offer {
    Offer {
        header_digest: DigestOffer::Accepted,
        data_digest: DigestOffer::Never,
        initial_r2t: false,
        immediate_data: false,
        data_segment_bytes_max: 65_536,
        burst_bytes_max: 262_144,
        first_burst_bytes_max: 131_072,
        time2wait_s: 3,
        time2retain_s: 10,
        outstanding_r2t_max: 4,
        connections_max: 1,
        error_recovery_level: 0,
    }
}

fn text(mut writer: TextWriter) -> String {
    String::from_utf8(writer.take(1 << 20).text).unwrap().replace('\0', " ").trim_end().to_owned()
}

/// Returns the answer of `parley` to one key.
fn answer(parley: &mut Negotiation, name: &str, value: &str) -> Result<String, Violation> {
    let mut answers = TextWriter::default();
    parley.handle(Key::of(name).unwrap(), value, &mut answers)?;
    Ok(text(answers).trim_start_matches(name).trim_start_matches('=').to_owned())
}

#[test]
fn each_key_is_answered_by_its_result_function() {
    for (name, value, expected) in [
        // First offered value that is acceptable.
        ("HeaderDigest", "CRC32C,None", "CRC32C"),
        ("HeaderDigest", "None,CRC32C", "None"),
        ("HeaderDigest", "X-com.example.sum,CRC32C", "CRC32C"),
        ("HeaderDigest", "MD5", "Reject"),
        ("HeaderDigest", "", "Reject"),
        ("HeaderDigest", "crc32c", "Reject"),
        ("DataDigest", "CRC32C,None", "None"),
        ("DataDigest", "CRC32C", "Reject"),
        ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
        // Minimum.
        ("MaxConnections", "8", "1"),
        ("MaxConnections", "0", "Reject"),
        ("MaxConnections", "65536", "Reject"),
        ("MaxBurstLength", "0x100000", "262144"),
        ("MaxBurstLength", "1024", "1024"),
        ("MaxBurstLength", "511", "Reject"),
        ("MaxBurstLength", "16777216", "Reject"),
        ("MaxBurstLength", "-1", "Reject"),
        ("FirstBurstLength", "16777215", "131072"),
        ("DefaultTime2Retain", "20", "10"),
        ("DefaultTime2Retain", "3601", "Reject"),
        ("MaxOutstandingR2T", "16", "4"),
        ("MaxOutstandingR2T", "1", "1"),
        ("MaxOutstandingR2T", "0", "Reject"),
        ("ErrorRecoveryLevel", "2", "0"),
        ("ErrorRecoveryLevel", "3", "Reject"),
        ("iSCSIProtocolLevel", "2", "1"),
        // Maximum.
        ("DefaultTime2Wait", "0", "3"),
        ("DefaultTime2Wait", "5", "5"),
        // AND and OR.
        ("ImmediateData", "Yes", "No"),
        ("ImmediateData", "No", "No"),
        ("ImmediateData", "yes", "Reject"),
        ("InitialR2T", "No", "No"),
        ("InitialR2T", "Yes", "Yes"),
        ("InitialR2T", "1", "Reject"),
        ("DataPDUInOrder", "No", "Yes"),
        ("DataSequenceInOrder", "No", "Yes"),
        // Declared without an answer, unless the value is invalid.
        ("MaxRecvDataSegmentLength", "262144", ""),
        ("MaxRecvDataSegmentLength", "100", "Reject"),
    ] {
        let mut parley = target(SessionType::Normal, offer());
        assert_eq!(answer(&mut parley, name, value).as_deref(), Ok(expected), "{name}={value}");
    }
}

#[test]
fn keys_of_normal_sessions_are_irrelevant_in_discovery() {
    for name in [
        "MaxConnections",
        "InitialR2T",
        "ImmediateData",
        "MaxBurstLength",
        "FirstBurstLength",
        "MaxOutstandingR2T",
        "DataPDUInOrder",
        "DataSequenceInOrder",
        "iSCSIProtocolLevel",
        "TaskReporting",
    ] {
        let mut parley = target(SessionType::Discovery, offer());
        assert_eq!(answer(&mut parley, name, "1").as_deref(), Ok("Irrelevant"), "{name}");
    }
    let mut parley = target(SessionType::Discovery, offer());
    assert_eq!(answer(&mut parley, "HeaderDigest", "CRC32C,None").as_deref(), Ok("CRC32C"));
    assert_eq!(answer(&mut parley, "ErrorRecoveryLevel", "1").as_deref(), Ok("0"));
}

#[test]
fn key_that_comes_twice_is_a_violation_whatever_it_said() {
    for name in ["HeaderDigest", "MaxRecvDataSegmentLength", "InitialR2T"] {
        let mut parley = target(SessionType::Normal, offer());
        answer(&mut parley, name, "8192").unwrap();
        assert_eq!(answer(&mut parley, name, "8192"), Err(Violation::KeyRepeated), "{name}");
    }
}

#[test]
fn defaults_hold_for_keys_of_which_nobody_spoke() {
    let parley = target(SessionType::Normal, Offer { immediate_data: true, ..Offer::default() });
    let agreed = parley.finish(identity(SessionType::Normal)).unwrap();
    assert_eq!((agreed.header_digest, agreed.data_digest), (false, false));
    assert_eq!((agreed.initial_r2t, agreed.immediate_data), (true, true));
    assert_eq!((agreed.peer_data_segment_bytes_max, agreed.own_data_segment_bytes_max), (8192, 8192));
    assert_eq!((agreed.burst_bytes_max, agreed.first_burst_bytes_max), (262_144, 65_536));
    assert_eq!((agreed.time2wait_s, agreed.time2retain_s), (2, 20));
    assert_eq!((agreed.outstanding_r2t_max, agreed.connections_max), (1, 1));
    assert_eq!((agreed.error_recovery_level, agreed.protocol_level), (0, 1));
    assert!(agreed.data_pdu_in_order && agreed.data_sequence_in_order);
}

#[test]
fn first_burst_never_passes_max_burst() {
    let mut parley = target(SessionType::Normal, offer());
    answer(&mut parley, "MaxBurstLength", "4096").unwrap();
    assert_eq!(answer(&mut parley, "FirstBurstLength", "65536").as_deref(), Ok("4096"));

    let mut parley = target(SessionType::Normal, Offer { immediate_data: true, ..offer() });
    answer(&mut parley, "FirstBurstLength", "65536").unwrap();
    answer(&mut parley, "MaxBurstLength", "4096").unwrap();
    answer(&mut parley, "DefaultTime2Wait", "3").unwrap();
    answer(&mut parley, "DefaultTime2Retain", "3").unwrap();
    let refused = parley.finish(identity(SessionType::Normal));
    assert_eq!(refused.unwrap_err(), Violation::FirstBurstBeyondMaxBurst, "agreed before, so it cannot shrink");

    let mut parley = target(SessionType::Normal, Offer::default());
    answer(&mut parley, "MaxBurstLength", "4096").unwrap();
    let agreed = parley.finish(identity(SessionType::Normal)).unwrap();
    assert_eq!(agreed.first_burst_bytes_max, 4096, "a default shrinks by itself");
}

#[test]
fn target_offers_only_what_it_needs_and_did_not_hear() {
    let mut parley = target(SessionType::Normal, offer());
    answer(&mut parley, "DefaultTime2Retain", "20").unwrap();
    let mut offers = TextWriter::default();
    parley.declare(&mut offers);
    parley.declare(&mut offers);
    parley.offer_needed(&mut offers);
    let expected = "MaxRecvDataSegmentLength=65536 ImmediateData=No DefaultTime2Wait=3";
    assert_eq!(text(offers), expected);
    assert!(parley.is_waiting());
    assert_eq!(answer(&mut parley, "ImmediateData", "No").as_deref(), Ok(""), "an answer is not answered");
    assert_eq!(answer(&mut parley, "DefaultTime2Wait", "4").as_deref(), Ok(""));
    assert!(!parley.is_waiting());
    let agreed = parley.finish(identity(SessionType::Normal)).unwrap();
    assert_eq!((agreed.time2wait_s, agreed.immediate_data), (4, false));
}

#[test]
fn answer_outside_the_offer_is_a_violation() {
    for (name, value) in [
        ("HeaderDigest", "MD5"),
        ("DataDigest", "CRC32C"),
        ("DataDigest", ""),
        ("InitialR2T", "Maybe"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "262145"),
        ("MaxOutstandingR2T", "5"),
        ("DefaultTime2Wait", "2"),
        ("ErrorRecoveryLevel", "1"),
        ("MaxConnections", "2"),
    ] {
        let mut parley = Negotiation::new(Role::Initiator, SessionType::Normal, offer());
        parley.offer_all(&mut TextWriter::default());
        assert_eq!(answer(&mut parley, name, value), Err(Violation::AnswerOutsideOffer), "{name}={value}");
    }
}

#[test]
fn keys_that_the_peer_does_not_have_keep_their_defaults() {
    for constant in ["Reject", "Irrelevant", "NotUnderstood"] {
        let mut parley = Negotiation::new(Role::Initiator, SessionType::Normal, Offer::default());
        parley.offer_all(&mut TextWriter::default());
        for name in ["iSCSIProtocolLevel", "TaskReporting", "InitialR2T", "HeaderDigest"] {
            assert_eq!(answer(&mut parley, name, constant).as_deref(), Ok(""));
        }
        let agreed = parley.finish(identity(SessionType::Normal)).unwrap();
        assert!(agreed.initial_r2t && !agreed.header_digest);
    }
}

#[test]
fn login_ends_where_a_default_cannot_be_lived_with() {
    let required = Offer { data_digest: DigestOffer::Required, ..Offer::default() };
    let mut parley = target(SessionType::Normal, required.clone());
    assert_eq!(answer(&mut parley, "DataDigest", "None").as_deref(), Ok("Reject"));
    assert_eq!(parley.finish(identity(SessionType::Normal)).unwrap_err(), Violation::NothingInCommon);
    let parley = target(SessionType::Normal, required);
    assert_eq!(parley.finish(identity(SessionType::Normal)).unwrap_err(), Violation::NothingInCommon);
}

#[test]
fn initiator_offers_every_key_once() {
    let mut parley = Negotiation::new(Role::Initiator, SessionType::Normal, Offer::default());
    let mut offers = TextWriter::default();
    parley.offer_all(&mut offers);
    let offers = text(offers);
    for row in &key::TABLE {
        assert_eq!(offers.matches(&format!("{}=", row.name)).count(), 1, "{}", row.name);
    }
    let mut parley = Negotiation::new(Role::Initiator, SessionType::Discovery, Offer::default());
    let mut offers = TextWriter::default();
    parley.offer_all(&mut offers);
    assert!(!text(offers).contains("InitialR2T"), "what is irrelevant is not offered");
}

#[test]
fn offer_out_of_range_is_refused_in_a_sentence() {
    assert!(Offer::default().check().is_ok());
    let refused = Offer { data_segment_bytes_max: 100, ..Offer::default() }.check().unwrap_err();
    assert_eq!(refused.to_string(), "MaxRecvDataSegmentLength is 100, but lies between 512 and 16777215");
    let refused = Offer { first_burst_bytes_max: 2 << 20, ..Offer::default() }.check().unwrap_err();
    assert!(matches!(refused, OfferError::FirstBurst { .. }));
    assert!(Offer { outstanding_r2t_max: 0, ..Offer::default() }.check().is_err());
    assert!(Offer { time2wait_s: 3601, ..Offer::default() }.check().is_err());
}

fn digests() -> impl Strategy<Value = DigestOffer> {
    prop::sample::select(vec![DigestOffer::Never, DigestOffer::Accepted, DigestOffer::Preferred, DigestOffer::Required])
}

prop_compose! {
    fn offers()(
        (header_digest, data_digest) in (digests(), digests()),
        (initial_r2t, immediate_data) in any::<(bool, bool)>(),
        data_segment_bytes_max in 512u32..1 << 24,
        burst_bytes_max in 512u32..1 << 24,
        first in 512u32..1 << 24,
        (time2wait_s, time2retain_s) in (0u16..3601, 0u16..3601),
        outstanding_r2t_max in 1u16..100,
        (connections_max, error_recovery_level) in (1u16..9, 0u8..3),
    ) -> Offer {
        let first_burst_bytes_max = first.min(burst_bytes_max);
        Offer {
            header_digest, data_digest, initial_r2t, immediate_data, data_segment_bytes_max, burst_bytes_max,
            first_burst_bytes_max, time2wait_s, time2retain_s, outstanding_r2t_max,
            connections_max, error_recovery_level,
        }
    }
}

/// Passes every pair of `from` to `to`, and returns its answers.
fn hand(from: TextWriter, to: &mut Negotiation) -> Result<TextWriter, Violation> {
    let mut from = from;
    let text = from.take(1 << 20).text;
    let mut answers = TextWriter::default();
    for pair in Pairs::parse(&text) {
        let (name, value) = pair?;
        to.handle(Key::of(name).expect("only keys of the table are offered"), value, &mut answers)?;
    }
    Ok(answers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn both_roles_come_to_the_same_values_within_both_offers(
        ours in offers(), theirs in offers(), discovery in any::<bool>(),
    ) {
        let kind = if discovery { SessionType::Discovery } else { SessionType::Normal };
        let mut initiator = Negotiation::new(Role::Initiator, kind, theirs.clone());
        let mut target = Negotiation::new(Role::Target, kind, ours.clone());
        let mut offered = TextWriter::default();
        initiator.offer_all(&mut offered);
        let mut answers = hand(offered, &mut target).unwrap();
        target.declare(&mut answers);
        target.offer_needed(&mut answers);
        let extra = hand(answers, &mut initiator).unwrap();
        let none = hand(extra, &mut target).unwrap();
        prop_assert!(none.is_empty(), "answers are not answered");
        let (a, b) = (initiator.finish(identity(kind)), target.finish(identity(kind)));
        let clash = |a, b| matches!((a, b), (DigestOffer::Required, DigestOffer::Never) | (DigestOffer::Never, DigestOffer::Required));
        let clashes = clash(ours.header_digest, theirs.header_digest) || clash(ours.data_digest, theirs.data_digest);
        prop_assert_eq!(a.is_err() || b.is_err(), clashes, "only who insists on a digest leaves");
        let (Ok(a), Ok(b)) = (a, b) else { return Ok(()) };
        prop_assert_eq!(b.peer_data_segment_bytes_max, theirs.data_segment_bytes_max);
        prop_assert_eq!(b.own_data_segment_bytes_max, ours.data_segment_bytes_max);
        let swapped = Negotiated {
            peer_data_segment_bytes_max: a.own_data_segment_bytes_max,
            own_data_segment_bytes_max: a.peer_data_segment_bytes_max,
            ..a
        };
        prop_assert_eq!(&swapped, &b);
        prop_assert!(b.first_burst_bytes_max <= b.burst_bytes_max);
        if !discovery {
            prop_assert!(b.burst_bytes_max <= ours.burst_bytes_max.min(theirs.burst_bytes_max));
            prop_assert!(b.outstanding_r2t_max <= ours.outstanding_r2t_max);
        }
    }

    #[test]
    fn any_value_of_any_key_has_an_answer(at in 0..key::KEYS, value in "\\PC{0,30}", discovery in any::<bool>()) {
        let kind = if discovery { SessionType::Discovery } else { SessionType::Normal };
        let mut answers = TextWriter::default();
        target(kind, offer()).handle(key::TABLE[at].key, &value, &mut answers).unwrap();
        prop_assert!(answers.take(100).text.len() < 60);
    }
}
