use super::*;
use proptest::prelude::*;

fn secret(bytes: &[u8]) -> Secret {
    Secret::new(bytes).unwrap()
}

fn credential(name: &str, bytes: &[u8]) -> Credential {
    Credential { name: name.to_owned(), secret: secret(bytes) }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computed with `openssl dgst` over the byte 0x2a, the secret, and the bytes 0x10 to 0x1f.
const KNOWN_ANSWERS: [(Algorithm, &str); 4] = [
    (Algorithm::Md5, "ec19308e2099ee5190eb7358350e8316"),
    (Algorithm::Sha1, "df9b2dc2927c20beb5f76fd27ce709ac9d965714"),
    (Algorithm::Sha256, "8e2b3324aef84dbc5d5bd83c371f376a28bddede6557c8c2f072be97beb0d723"),
    (Algorithm::Sha3_256, "59c59930b76aa337d3b6c02837eaffafcc820a63ad5b69b4ddf09f717fe231e3"),
];

#[test]
fn response_is_the_known_answer_of_each_algorithm() {
    let challenge: Vec<u8> = (0x10..0x20).collect();
    for (algorithm, answer) in KNOWN_ANSWERS {
        let response = algorithm.respond(0x2a, &secret(b"a secret of 20 bytes"), &challenge);
        assert_eq!(hexadecimal(&response), answer, "{algorithm}");
        assert_eq!(response.len(), algorithm.digest_bytes());
    }
}

#[test]
fn verification_takes_the_known_answer_of_each_algorithm_and_nothing_else() {
    let random: [u8; CHALLENGE_RANDOM_BYTES] = std::array::from_fn(|at| at as u8);
    let accepted = [credential("other", &[9; 16]), credential("host", b"a secret of 20 bytes")];
    for algorithm in Algorithm::ALL {
        let challenge = Challenge::new(algorithm, &random);
        let mut response = algorithm.respond(31, &accepted[1].secret, challenge.bytes());
        assert_eq!(challenge.verify(&accepted, "host", &response).unwrap().name, "host");
        assert!(challenge.verify(&accepted, "other", &response).is_none(), "another's name");
        assert!(challenge.verify(&accepted, "Host", &response).is_none(), "names are compared as bytes");
        assert!(challenge.verify(&accepted, "", &response).is_none());
        assert!(challenge.verify(&accepted, "host", &response[1..]).is_none(), "too short");
        assert!(challenge.verify(&accepted, "host", b"").is_none());
        response[0] ^= 1;
        assert!(challenge.verify(&accepted, "host", &response).is_none());
    }
}

#[test]
fn challenge_is_as_long_as_the_digest_and_knows_itself() {
    let random: [u8; CHALLENGE_RANDOM_BYTES] = std::array::from_fn(|at| at as u8);
    for (algorithm, bytes) in
        [(Algorithm::Md5, 16), (Algorithm::Sha1, 20), (Algorithm::Sha256, 32), (Algorithm::Sha3_256, 32)]
    {
        let challenge = Challenge::new(algorithm, &random);
        assert_eq!(challenge.bytes(), &random[..bytes]);
        assert!(challenge.is_reflected_by(&random[..bytes]));
        assert!(!challenge.is_reflected_by(&random[..bytes - 1]));
    }
}

#[test]
fn algorithm_chosen_is_the_strongest_shared_one_wherever_it_stands() {
    use Algorithm::{Md5, Sha1, Sha3_256, Sha256};
    assert_eq!(Algorithm::choose([Md5, Sha256, Sha1], Md5), Some(Sha256));
    assert_eq!(Algorithm::choose([Md5, Sha1, Sha256, Sha3_256], Md5), Some(Sha3_256));
    assert_eq!(Algorithm::choose([Md5, Sha1], Sha256), None);
    assert_eq!(Algorithm::choose([], Md5), None);
    assert_eq!(Algorithm::of(4), None);
    assert_eq!(Algorithm::of(7), Some(Sha256));
}

#[test]
fn secret_too_short_is_refused_and_no_secret_is_shown() {
    assert_eq!(Secret::new([1; 11]).unwrap_err(), SecretError::TooShort);
    assert_eq!(Secret::new([1; 256]).unwrap_err(), SecretError::TooLong);
    assert_eq!(
        format!("{:?}", credential("host", b"hidden hidden")),
        "Credential { name: \"host\", secret: Secret(..) }"
    );
}

#[test]
fn policy_refuses_equal_secrets_and_an_empty_list() {
    let host = credential("host", b"0123456789ab");
    let same = Mutual::Offered(credential("array", b"0123456789ab"));
    let refused = ChapPolicy::new(true, vec![host.clone()], same, Algorithm::Md5);
    assert_eq!(refused.unwrap_err(), PolicyError::EqualSecrets);
    let refused = ChapPolicy::new(false, vec![], Mutual::Never, Algorithm::Md5);
    assert_eq!(refused.unwrap_err(), PolicyError::NobodyAccepted);
    let other = Mutual::Required(credential("array", b"ba9876543210"));
    assert!(ChapPolicy::new(true, vec![host], other, Algorithm::Md5).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn verification_of_any_response_never_panics(name in "\\PC{0,20}", response in prop::collection::vec(any::<u8>(), 0..64)) {
        let challenge = Challenge::new(Algorithm::Sha256, &[3; CHALLENGE_RANDOM_BYTES]);
        prop_assert!(challenge.verify(&[credential("host", &[0; 12])], &name, &response).is_none());
    }

    #[test]
    fn secrets_of_any_bytes_prove_themselves(bytes in prop::collection::vec(any::<u8>(), 12..64), random in any::<[u8; 32]>()) {
        let accepted = [credential("host", &bytes)];
        for algorithm in Algorithm::ALL {
            let challenge = Challenge::new(algorithm, &random);
            let response = algorithm.respond(challenge.identifier(), &accepted[0].secret, challenge.bytes());
            prop_assert!(challenge.verify(&accepted, "host", &response).is_some());
        }
    }
}
