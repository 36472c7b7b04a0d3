//! An initiator's login that is answered anything. No target that knows no secret is believed.
//!
//! The first seeds were written by our target with the random bytes below and the secrets "hosts secret" and
//! "arrays secret", so they are.
#![no_main]

use iscsi::IscsiName;
use iscsi::chap::{Algorithm, Credential, Secret};
use iscsi::login::{InitiatorAuth, InitiatorConfig, InitiatorLogin, InitiatorStep};
use iscsi::pdu::{BHS_BYTES, SegmentLengths};
use libfuzzer_sys::fuzz_target;

const RANDOM: [u8; 32] = *b"the initiators own random bytes.";

fuzz_target!(|input: &[u8]| {
    let Some((&kind, mut rest)) = input.split_first() else { return };
    let name = |text: &str| IscsiName::parse(text).expect("a name");
    let target = (kind & 4 == 0).then(|| name("iqn.2026-01.com.example:array"));
    let config =
        InitiatorConfig { auth: auth(kind), ..InitiatorConfig::new(name("iqn.2026-01.com.example:host"), target) };
    let mut login = InitiatorLogin::new(config, RANDOM);
    while let Some((header, behind)) = rest.split_first_chunk::<BHS_BYTES>() {
        let lengths = SegmentLengths::parse(header);
        let (text, next) = behind.split_at(lengths.data_bytes.min(behind.len()));
        rest = next.get(lengths.padded_data_bytes() - lengths.data_bytes..).unwrap_or_default();
        login.handle_pdu(header, text);
        drain(&mut login);
    }
});

fn drain(login: &mut InitiatorLogin) {
    while let Some(step) = login.poll() {
        match step {
            InitiatorStep::Request { text, .. } => assert!(text.len() <= 8192),
            InitiatorStep::FullFeature(agreed) => {
                assert!(agreed.first_burst_bytes_max <= agreed.burst_bytes_max);
                assert_ne!(agreed.identity.tsih.0, 0);
            }
            InitiatorStep::Refused { .. } | InitiatorStep::Failed(_) => assert!(login.poll().is_none()),
        }
    }
}

fn auth(kind: u8) -> InitiatorAuth {
    let credential = |name: &str, secret: &str| Credential {
        name: name.to_owned(),
        secret: Secret::new(secret).expect("long enough"),
    };
    let array = match kind & 3 {
        0 => return InitiatorAuth::None,
        1 => None,
        _ => Some(credential("array", "arrays secret")),
    };
    InitiatorAuth::chap(credential("host", "hosts secret"), array, Algorithm::Md5).expect("the secrets differ")
}
