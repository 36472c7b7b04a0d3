//! Fuzz target: the login of a target with arbitrary requests, under every policy. An initiator without the secret is
//! never accepted.
//!
//! The seeds were generated with the random bytes below and the secret "hosts secret", so they are accepted.
#![no_main]

use iscsi::chap::{Algorithm, Auth, ChapPolicy, Credential, Mutual, Secret};
use iscsi::login::{Grant, TargetConfig, TargetLogin, TargetStep};
use iscsi::pdu::{BHS_BYTES, SegmentLengths, Tsih};
use libfuzzer_sys::fuzz_target;

const RANDOM: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";

fuzz_target!(|input: &[u8]| {
    let Some((&kind, mut rest)) = input.split_first() else { return };
    let auth = auth(kind);
    let mut login = TargetLogin::new(&TargetConfig::default(), RANDOM);
    let mut handle = Tsih(9);
    while let Some((header, behind)) = rest.split_first_chunk::<BHS_BYTES>() {
        let lengths = SegmentLengths::parse(header);
        let (text, next) = behind.split_at(lengths.data_bytes.min(behind.len()));
        rest = next.get(lengths.padded_data_bytes() - lengths.data_bytes..).unwrap_or_default();
        login.handle_pdu(header, text);
        drain(&mut login, &auth, &mut handle);
    }
});

fn drain(login: &mut TargetLogin, auth: &Auth, handle: &mut Tsih) {
    while let Some(step) = login.poll() {
        match step {
            TargetStep::Authorize(question) => {
                *handle = if question.tsih == Tsih(0) { Tsih(9) } else { question.tsih };
                login.grant(Grant { auth: auth.clone(), portal_group_tag: 1, target_alias: None });
            }
            TargetStep::Authenticated => login.assign_session(Ok(*handle)),
            TargetStep::Respond { text, .. } => assert!(text.len() <= 8192),
            TargetStep::FullFeature(agreed) => {
                let proven = agreed.identity.authentication;
                assert!(!auth.is_required() || proven.is_some_and(|proven| proven.name == "host"));
                assert!(agreed.first_burst_bytes_max <= agreed.burst_bytes_max);
                assert!(agreed.peer_data_segment_bytes_max >= 512);
            }
            TargetStep::Failed { .. } => assert!(login.poll().is_none()),
        }
    }
}

fn auth(kind: u8) -> Auth {
    let credential = |name: &str, secret: &str| Credential {
        name: name.to_owned(),
        secret: Secret::new(secret).expect("long enough"),
    };
    let array = credential("array", "arrays secret");
    let mutual = match kind & 3 {
        0 => return Auth::None,
        1 => Mutual::Never,
        2 => Mutual::Offered(array),
        _ => Mutual::Required(array),
    };
    let accepted = vec![credential("host", "hosts secret")];
    let policy = ChapPolicy::new(kind & 4 == 0, accepted, mutual, Algorithm::Md5);
    Auth::Chap(Box::new(policy.expect("the secrets differ")))
}
