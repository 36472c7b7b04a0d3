//! Complete logins, line by line. The first three have the shape of the examples in RFC 7143 Appendix B.

use super::rig::*;
use crate::chap::{Algorithm, Auth, Mutual, Secret};
use crate::login::{LoginStatus, NoSession, TargetConfig};
use crate::pdu::Tsih;
use crate::{DigestOffer, Offer};

const ASKED: &str = "? iqn.2026-01.com.example:host Normal iqn.2026-01.com.example:array";

#[test]
fn login_without_authentication_goes_straight_through_both_stages() {
    let mut rig = Rig::new(Auth::None);
    rig.play(&format!(
        "I SEC>OPS {NORMAL} AuthMethod=None
         {ASKED}
         T SEC>OPS TargetPortalGroupTag=1 AuthMethod=None
         I OPS>FULL HeaderDigest=None,CRC32C InitialR2T=No ImmediateData=Yes MaxBurstLength=16776192 \
             FirstBurstLength=524288 MaxRecvDataSegmentLength=262144 MaxOutstandingR2T=16
         T OPS>FULL HeaderDigest=None InitialR2T=No ImmediateData=Yes MaxBurstLength=1048576 FirstBurstLength=262144 \
             MaxOutstandingR2T=4 MaxRecvDataSegmentLength=262144
         = FULL"
    ));
    let agreed = rig.negotiated.unwrap();
    assert_eq!((agreed.burst_bytes_max, agreed.first_burst_bytes_max), (1 << 20, 256 << 10));
    assert_eq!((agreed.identity.tsih, agreed.identity.authentication), (Tsih(9), None));
    assert_eq!(agreed.identity.target_name.unwrap().as_str(), TARGET);
    assert_eq!(agreed.identity.initiator_name.as_str(), INITIATOR);
}

#[test]
fn login_with_chap_one_way() {
    let mut rig = Rig::new(chap(true, Mutual::Never, Algorithm::Md5));
    let response = solved(Algorithm::Sha256, "hosts secret");
    let challenge = posed(Algorithm::Sha256);
    rig.play(&format!(
        "I SEC {NORMAL} AuthMethod=KRB5,CHAP,None
         {ASKED}
         T SEC TargetPortalGroupTag=1 AuthMethod=CHAP
         I SEC CHAP_A=5,7
         T SEC {challenge}
         I SEC>OPS CHAP_N=host CHAP_R={response}
         T SEC>OPS
         I OPS
         T OPS MaxRecvDataSegmentLength=262144
         I OPS>FULL
         T OPS>FULL
         = FULL"
    ));
    assert_eq!(rig.proven(), Some(("host", Algorithm::Sha256, false)));
}

#[test]
fn login_with_chap_both_ways() {
    let mut rig = Rig::new(chap(true, Mutual::Offered(array()), Algorithm::Md5));
    let algorithm = Algorithm::Sha3_256;
    let proof = algorithm.respond(0x17, &Secret::new("arrays secret").unwrap(), b"initiators challenge");
    rig.play(&format!(
        "I SEC>OPS {NORMAL} AuthMethod=CHAP
         {ASKED}
         T SEC TargetPortalGroupTag=1 AuthMethod=CHAP
         I SEC CHAP_A=8,7,6,5
         T SEC {}
         I SEC>OPS CHAP_N=host CHAP_R={} CHAP_I=0x17 CHAP_C={}
         T SEC>OPS CHAP_N=array CHAP_R={}
         I OPS>FULL
         T OPS>FULL MaxRecvDataSegmentLength=262144
         = FULL",
        posed(algorithm),
        solved(algorithm, "hosts secret"),
        crate::text::base64(b"initiators challenge"),
        crate::text::hexadecimal(&proof),
    ));
    assert_eq!(rig.proven(), Some(("host", algorithm, true)));
}

#[test]
fn login_may_skip_the_stage_that_it_does_not_need() {
    Rig::new(Auth::None).play(&format!(
        "I OPS>FULL {NORMAL} DataDigest=CRC32C
         {ASKED}
         T OPS>FULL TargetPortalGroupTag=1 DataDigest=CRC32C MaxRecvDataSegmentLength=262144
         = FULL"
    ));
    let mut rig = Rig::new(Auth::None);
    rig.play(&format!(
        "I SEC>FULL {NORMAL} AuthMethod=None
         {ASKED}
         T SEC>FULL TargetPortalGroupTag=1 AuthMethod=None
         = FULL"
    ));
    assert_eq!(rig.negotiated.unwrap().own_data_segment_bytes_max, 8192, "what was not declared does not hold");
}

#[test]
fn login_that_repeats_its_names_with_each_stage_is_taken() {
    Rig::new(Auth::None).play(&format!(
        "I SEC>OPS {NORMAL} AuthMethod=None
         {ASKED}
         T SEC>OPS TargetPortalGroupTag=1 AuthMethod=None
         I OPS>FULL {NORMAL}
         T OPS>FULL MaxRecvDataSegmentLength=262144
         = FULL"
    ));
}

#[test]
fn login_that_changes_its_name_is_refused() {
    Rig::new(Auth::None).play(&format!(
        "I SEC>OPS {NORMAL} AuthMethod=None
         {ASKED}
         T SEC>OPS TargetPortalGroupTag=1 AuthMethod=None
         I OPS>FULL InitiatorName=iqn.2026-01.com.example:another
         T 0200
         ! 0200"
    ));
}

#[test]
fn discovery_login_needs_no_target() {
    Rig::new(Auth::None).play(&format!(
        "I OPS>FULL {DISCOVERY} InitialR2T=Yes ErrorRecoveryLevel=0
         ? iqn.2026-01.com.example:host Discovery -
         T OPS>FULL InitialR2T=Irrelevant ErrorRecoveryLevel=0 MaxRecvDataSegmentLength=262144
         = FULL"
    ));
}

#[test]
fn text_in_several_pdus_is_joined_even_inside_a_pair() {
    let mut rig = Rig::new(Auth::None);
    let (mut first, mut text) = request(&format!("SEC+ {NORMAL}"), Tsih(0));
    let rest = text.split_off(20);
    first[7] = 20;
    assert_eq!(rig.feed(&first, &text), ["T SEC"]);
    let (second, _) = request("SEC>OPS", Tsih(0));
    assert_eq!(rig.feed(&second, &rest), [ASKED, "T SEC>OPS TargetPortalGroupTag=1"]);
}

#[test]
fn keys_that_nobody_knows_and_keys_out_of_place_are_all_answered() {
    Rig::new(Auth::None).play(&format!(
        "I SEC>OPS {NORMAL} AuthMethod=None X-com.example.a=1 X#b=2 Unknown=3 MaxBurstLength=512 SendTargets=All \
             TargetAlias=a MaxRecvDataSegmentLength=4096
         {ASKED}
         T SEC>OPS TargetPortalGroupTag=1 X-com.example.a=NotUnderstood X#b=NotUnderstood Unknown=NotUnderstood \
             MaxBurstLength=Reject SendTargets=Reject TargetAlias=Reject AuthMethod=None
         I OPS>FULL IFMarker=No OFMarker=Yes IFMarkInt=1~2 OFMarkInt=1 AuthMethod=CHAP CHAP_A=5 Never=NotUnderstood
         T OPS>FULL IFMarker=No OFMarker=No IFMarkInt=Reject OFMarkInt=Reject AuthMethod=Reject CHAP_A=Reject \
             MaxRecvDataSegmentLength=262144
         = FULL"
    ));
}

#[test]
fn offer_of_the_target_is_answered_before_the_stage_ends() {
    let offer = Offer { header_digest: DigestOffer::Required, ..Offer::default() };
    let config = TargetConfig { offer, ..TargetConfig::default() };
    let mut rig = Rig::with(&config, Auth::None);
    rig.play(&format!(
        "I OPS>FULL {NORMAL}
         {ASKED}
         T OPS TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144 HeaderDigest=CRC32C
         I OPS>FULL HeaderDigest=CRC32C
         T OPS>FULL
         = FULL"
    ));
    assert!(rig.negotiated.unwrap().header_digest);
    Rig::with(&config, Auth::None).play(&format!(
        "I OPS>FULL {NORMAL} HeaderDigest=None
         {ASKED}
         T 0200
         ! 0200"
    ));
}

#[test]
fn answers_longer_than_a_pdu_are_sent_in_parts_before_the_stage_ends() {
    let mut rig = Rig::new(Auth::None);
    let unknown: String = (0..120).map(|at| format!(" Unknown{at:03}{}=1", "x".repeat(50))).collect();
    let lines = rig.say(&format!("OPS>FULL {NORMAL}{unknown}"));
    assert!(lines[1].starts_with("T OPS+ "), "{}", lines[1]);
    let lines = rig.say("OPS>FULL");
    assert!(lines[0].starts_with("T OPS>FULL "), "{}", lines[0]);
    assert_eq!(lines[1], "= FULL");
}

#[test]
fn alias_of_the_target_is_told_only_to_who_is_proven() {
    let mut rig = Rig::new(chap(true, Mutual::Never, Algorithm::Md5));
    if let Ok(grant) = &mut rig.grant {
        grant.target_alias = Some("the array".to_owned());
    }
    rig.play(&format!(
        "I SEC {NORMAL} AuthMethod=CHAP
         {ASKED}
         T SEC TargetPortalGroupTag=1 AuthMethod=CHAP
         I SEC CHAP_A=5
         T SEC {}
         I SEC>OPS CHAP_N=host CHAP_R={}
         T SEC>OPS
         I OPS>FULL
         T OPS>FULL TargetAlias=the~array MaxRecvDataSegmentLength=262144
         = FULL",
        posed(Algorithm::Md5),
        solved(Algorithm::Md5, "hosts secret"),
    ));
}

#[test]
fn refusal_of_the_plane_is_told() {
    for (status, code) in [
        (LoginStatus::NotFound, "0203"),
        (LoginStatus::AuthorizationFailure, "0202"),
        (LoginStatus::OutOfResources, "0302"),
        (LoginStatus::TargetRemoved, "0204"),
    ] {
        let mut rig = Rig::new(Auth::None);
        rig.grant = Err(status);
        let refused = [format!("T {code}"), format!("! {code}")].join("\n");
        rig.play(&format!("I SEC>OPS {NORMAL} AuthMethod=None\n{ASKED}\n{refused}"));
    }
}

#[test]
fn target_that_has_moved_says_where_to_and_only_to_who_is_proven() {
    let mut rig = Rig::new(chap(true, Mutual::Never, Algorithm::Md5));
    rig.session = Err(NoSession::Redirected("[fd00::2]:3261".to_owned()));
    rig.play(&format!(
        "I SEC {NORMAL} AuthMethod=CHAP
         {ASKED}
         T SEC TargetPortalGroupTag=1 AuthMethod=CHAP
         I SEC CHAP_A=5
         T SEC {}
         I SEC>OPS CHAP_N=host CHAP_R={}
         T 0101 TargetAddress=[fd00::2]:3261
         ! 0101",
        posed(Algorithm::Md5),
        solved(Algorithm::Md5, "hosts secret"),
    ));
}

#[test]
fn session_that_cannot_be_joined_is_told_only_to_who_is_proven() {
    for status in [LoginStatus::SessionDoesNotExist, LoginStatus::TooManyConnections] {
        let (class, detail) = status.codes();
        let auth = chap(true, Mutual::Never, Algorithm::Md5);
        let mut rig = Rig::new(auth);
        rig.tsih = Tsih(77);
        rig.session = Err(status.into());
        rig.play(&format!(
            "I SEC {NORMAL} AuthMethod=CHAP
             {ASKED}
             T SEC TargetPortalGroupTag=1 AuthMethod=CHAP
             I SEC CHAP_A=5
             T SEC {}
             I SEC>OPS CHAP_N=host CHAP_R={}
             T {class:02x}{detail:02x}
             ! {class:02x}{detail:02x}",
            posed(Algorithm::Md5),
            solved(Algorithm::Md5, "hosts secret"),
        ));
    }
}
