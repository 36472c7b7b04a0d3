//! Enforcement of required authentication: {none, one-way, mutual} × {required, offered} × {given, missing, wrong}, for
//! discovery and for normal sessions.

use super::rig::*;
use crate::LoginStatus;
use crate::chap::{Algorithm, Auth, Mutual, Secret};

/// Authentication that the target requires.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    None,
    OneWay { required: bool },
    Mutual { required: bool },
}

/// Behavior of the initiator regarding its own authentication.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proof {
    /// Uses the right secret.
    Given,
    /// Offers to log in without CHAP.
    Missing,
    /// Skips the security stage.
    Skipped,
    /// Uses a wrong secret.
    Wrong,
}

/// Behavior of the initiator regarding the authentication of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Challenge {
    None,
    Posed,
    /// Reflects the challenge of the target.
    Reflected,
    /// Sends an identifier without a challenge.
    Half,
}

impl Wanted {
    fn auth(self) -> Auth {
        match self {
            Self::None => Auth::None,
            Self::OneWay { required } => chap(required, Mutual::Never, Algorithm::Md5),
            Self::Mutual { required: true } => chap(true, Mutual::Required(array()), Algorithm::Md5),
            Self::Mutual { required: false } => chap(false, Mutual::Offered(array()), Algorithm::Md5),
        }
    }
}

/// True when the login succeeds; every other cell is refused with 0201.
fn gets_in(wanted: Wanted, proof: Proof, challenge: Challenge) -> bool {
    match (wanted, proof, challenge) {
        (Wanted::None, Proof::Missing | Proof::Skipped, _) => true,
        // CHAP is not offered, and an initiator that insists on it could not authenticate us.
        (Wanted::None, _, _) => false,
        (Wanted::OneWay { required } | Wanted::Mutual { required }, Proof::Missing | Proof::Skipped, _) => !required,
        (_, Proof::Wrong, _) | (_, _, Challenge::Reflected | Challenge::Half) => false,
        (Wanted::OneWay { .. }, Proof::Given, challenge) => challenge == Challenge::None,
        (Wanted::Mutual { required }, Proof::Given, challenge) => challenge == Challenge::Posed || !required,
    }
}

/// Runs the login; true when it reached full feature phase.
fn play(wanted: Wanted, proof: Proof, challenge: Challenge, names: &str) -> bool {
    let mut rig = Rig::new(wanted.auth());
    let secret = if proof == Proof::Wrong { "hosts secreT" } else { "hosts secret" };
    let reflected = posed(Algorithm::Sha1).split_once("CHAP_C=").unwrap().1.to_owned();
    let challenge = match challenge {
        Challenge::None => String::new(),
        Challenge::Posed => " CHAP_I=1 CHAP_C=0x00112233445566778899aabbccddeeff".to_owned(),
        Challenge::Reflected => format!(" CHAP_I=1 CHAP_C={reflected}"),
        Challenge::Half => " CHAP_I=1".to_owned(),
    };
    let script = match proof {
        Proof::Missing => vec![format!("SEC>OPS {names} AuthMethod=None"), "OPS>FULL".to_owned()],
        Proof::Skipped => vec![format!("OPS>FULL {names}")],
        Proof::Given | Proof::Wrong => vec![
            format!("SEC {names} AuthMethod=CHAP"),
            "SEC CHAP_A=6".to_owned(),
            format!("SEC>OPS CHAP_N=host CHAP_R={}{challenge}", solved(Algorithm::Sha1, secret)),
            "OPS>FULL".to_owned(),
        ],
    };
    for line in script {
        let _ = rig.say(&line);
        match rig.ended() {
            None => {}
            Some(LoginStatus::AuthenticationFailure) => return false,
            Some(other) => panic!("{wanted:?} {proof:?} {challenge:?} ended with {other}"),
        }
    }
    rig.negotiated.is_some()
}

#[test]
fn required_means_required_in_every_cell() {
    let wanted = [
        Wanted::None,
        Wanted::OneWay { required: true },
        Wanted::OneWay { required: false },
        Wanted::Mutual { required: true },
        Wanted::Mutual { required: false },
    ];
    let proofs = [Proof::Given, Proof::Missing, Proof::Skipped, Proof::Wrong];
    let challenges = [Challenge::None, Challenge::Posed, Challenge::Reflected, Challenge::Half];
    let mut cells = 0;
    for names in [NORMAL, DISCOVERY] {
        for wanted in wanted {
            for proof in proofs {
                for challenge in challenges {
                    let expected = gets_in(wanted, proof, challenge);
                    assert_eq!(play(wanted, proof, challenge, names), expected, "{wanted:?} {proof:?} {challenge:?}");
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 160);
}

#[test]
fn every_broken_step_of_chap_fails_the_authentication() {
    let good = solved(Algorithm::Md5, "hosts secret");
    let short = &good[..good.len() - 2];
    let offers = "SEC CHAP_A=5";
    for (name, script) in [
        ("no method in common", vec!["SEC AuthMethod=KRB5,SRP".to_owned()]),
        ("an empty list", vec!["SEC AuthMethod=".to_owned()]),
        ("None around a list", vec!["SEC AuthMethod=None,None".to_owned()]),
        ("a method twice", vec!["SEC AuthMethod=CHAP AuthMethod=CHAP".to_owned()]),
        ("a proof before a method", vec![format!("SEC CHAP_N=host CHAP_R={good}")]),
        ("leaving without a method", vec!["SEC>OPS".to_owned()]),
        ("algorithms with the method", vec!["SEC AuthMethod=CHAP CHAP_A=5".to_owned()]),
        ("unknown algorithms", vec!["SEC AuthMethod=CHAP".to_owned(), "SEC CHAP_A=1,9,x".to_owned()]),
        ("no algorithms", vec!["SEC AuthMethod=CHAP".to_owned(), "SEC CHAP_A=".to_owned()]),
        ("nothing for algorithms", vec!["SEC AuthMethod=CHAP".to_owned(), "SEC".to_owned()]),
        ("another method", vec!["SEC AuthMethod=CHAP".to_owned(), "SEC AuthMethod=None".to_owned()]),
        ("leaving after the challenge", vec!["SEC AuthMethod=CHAP".into(), offers.into(), "SEC>OPS".into()]),
        ("leaving for good after it", vec!["SEC AuthMethod=CHAP".into(), offers.into(), "SEC>FULL".into()]),
        ("algorithms again", vec!["SEC AuthMethod=CHAP".into(), offers.into(), offers.into()]),
        ("no name", proof(&format!("CHAP_R={good}"))),
        ("no response", proof("CHAP_N=host")),
        ("an empty name", proof(&format!("CHAP_N= CHAP_R={good}"))),
        ("another name", proof(&format!("CHAP_N=root CHAP_R={good}"))),
        ("another's name", proof(&format!("CHAP_N=other CHAP_R={good}"))),
        ("a short response", proof(&format!("CHAP_N=host CHAP_R={short}"))),
        ("a long response", proof(&format!("CHAP_N=host CHAP_R={good}00"))),
        (
            "a proof of our own secret",
            proof(&format!("CHAP_N=host CHAP_R={}", solved(Algorithm::Md5, "arrays secret"))),
        ),
        ("an empty response", proof("CHAP_N=host CHAP_R=")),
        ("an empty binary", proof("CHAP_N=host CHAP_R=0x")),
        ("a response that is no binary", proof("CHAP_N=host CHAP_R=0xgg")),
        ("a response twice", proof(&format!("CHAP_N=host CHAP_R={good} CHAP_R={good}"))),
        ("a name twice", proof(&format!("CHAP_N=host CHAP_N=host CHAP_R={good}"))),
        ("a challenge without identifier", proof(&format!("CHAP_N=host CHAP_R={good} CHAP_C=0x0011"))),
        ("an identifier out of range", proof(&format!("CHAP_N=host CHAP_R={good} CHAP_I=256 CHAP_C=0x0011"))),
        ("an empty challenge", proof(&format!("CHAP_N=host CHAP_R={good} CHAP_I=1 CHAP_C="))),
    ] {
        let mut rig = Rig::new(chap(true, Mutual::Offered(array()), Algorithm::Md5));
        for (at, line) in script.iter().enumerate() {
            assert_eq!(rig.ended(), None, "{name}: ended before {line}");
            let names = if at == 0 { format!(" {NORMAL}") } else { String::new() };
            let (place, pairs) = line.split_once(' ').unwrap_or((line, ""));
            let _ = rig.say(&format!("{place}{names} {pairs}"));
        }
        assert_eq!(rig.ended(), Some(LoginStatus::AuthenticationFailure), "{name}");
    }
}

fn proof(pairs: &str) -> Vec<String> {
    vec!["SEC AuthMethod=CHAP".to_owned(), "SEC CHAP_A=5".to_owned(), format!("SEC>OPS {pairs}")]
}

#[test]
fn algorithm_is_the_strongest_shared_one_and_none_below_the_policy() {
    for (offered, weakest, chosen) in [
        ("5", Algorithm::Md5, Some(Algorithm::Md5)),
        ("5,6,7,8", Algorithm::Md5, Some(Algorithm::Sha3_256)),
        ("5,0x7,6", Algorithm::Md5, Some(Algorithm::Sha256)),
        ("1,2,6,99", Algorithm::Md5, Some(Algorithm::Sha1)),
        ("5,6", Algorithm::Sha256, None),
        ("5,6,7", Algorithm::Sha256, Some(Algorithm::Sha256)),
    ] {
        let mut rig = Rig::new(chap(true, Mutual::Never, weakest));
        let _ = rig.say(&format!("SEC {NORMAL} AuthMethod=CHAP"));
        let lines = rig.say(&format!("SEC CHAP_A={offered}"));
        match chosen {
            Some(chosen) => assert_eq!(lines, [format!("T SEC {}", posed(chosen))], "{offered}"),
            None => assert_eq!(lines, ["T 0201", "! 0201"], "{offered}"),
        }
    }
}

#[test]
fn names_and_secrets_of_any_bytes_get_in() {
    for (name, secret) in [
        ("0x41", "blanks in the secret"),
        ("0bQQ==", "# and \" and = and ,"),
        ("a~b", "\0\u{1}\u{7f} with control characters"),
    ] {
        let spoken = name.replace('~', " ");
        let accepted = vec![credential(&spoken, secret)];
        let policy = crate::chap::ChapPolicy::new(true, accepted, Mutual::Never, Algorithm::Md5).unwrap();
        let mut rig = Rig::new(Auth::Chap(Box::new(policy)));
        let _ = rig.say(&format!("SEC {NORMAL} AuthMethod=CHAP"));
        let _ = rig.say("SEC CHAP_A=5");
        let lines = rig.say(&format!("SEC>OPS CHAP_N={name} CHAP_R={}", solved(Algorithm::Md5, secret)));
        assert_eq!(lines, ["T SEC>OPS"], "{name}");
    }
    assert!(Secret::new("short").is_err());
}
