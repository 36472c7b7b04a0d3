//! Round trips of all messages, and the violation that each kind of damage is.

use super::*;
use proptest::prelude::*;
use std::path::PathBuf;

fn requests() -> Vec<Request> {
    let path = || PathBuf::from("/dev/disk/by-id/ata-1");
    let bind = |address: &str| Verb::Bind { address: address.parse().unwrap(), takes_ipv4: true };
    let verbs = [
        Verb::Open { path: path(), mode: Mode { write: true, direct: false } },
        Verb::Open { path: path(), mode: Mode { write: false, direct: true } },
        Verb::Create { path: path(), bytes: 1 << 40 },
        Verb::Remove { path: path() },
        bind("10.0.0.1:860"),
        bind("[fd00::1]:443"),
        Verb::Health { path: path() },
        Verb::Locate { path: path(), on: true },
        Verb::Contents { path: path(), program: Program::Wipefs },
        Verb::Contents { path: path(), program: Program::Blkid },
    ];
    (7..).zip(verbs).map(|(number, verb)| Request { number, verb }).collect()
}

fn answers() -> Vec<Answer> {
    let outcomes = [
        Outcome::Done,
        Outcome::Ran { code: -1 },
        Outcome::Refused { reason: "the state folder is not opened".to_owned() },
        Outcome::Failed { errno: 16 },
    ];
    (u32::MAX - 9..).zip(outcomes).map(|(number, outcome)| Answer { number, outcome }).collect()
}

fn violation(bytes: &[u8]) -> Violation {
    Request::parse(bytes).expect_err("it is damaged").violation
}

#[test]
fn every_message_is_the_same_after_emit_and_parse() {
    for request in requests() {
        assert_eq!(Request::parse(&request.emit()), Ok(request));
    }
    for answer in answers() {
        assert_eq!(Answer::parse(&answer.emit()), Ok(answer));
    }
}

#[test]
fn every_prefix_is_truncated_and_every_suffix_is_left_over() {
    for bytes in requests().iter().map(Request::emit) {
        for len in 0..bytes.len() {
            assert_eq!(violation(&bytes[..len]), Violation::Truncated, "{len} of {bytes:?}");
        }
        assert_eq!(violation(&[&bytes[..], &[0]].concat()), Violation::LeftOver);
    }
    for bytes in answers().iter().map(Answer::emit) {
        for len in 0..bytes.len() {
            assert_eq!(Answer::parse(&bytes[..len]), Err(Violation::Truncated));
        }
        assert_eq!(Answer::parse(&[&bytes[..], &[0]].concat()), Err(Violation::LeftOver));
    }
}

#[test]
fn version_verb_and_length_that_are_unknown_are_named() {
    let good = requests()[0].emit();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(violation(&with(0, 2)), Violation::Version(2));
    for verb in [0, 8, 255] {
        assert_eq!(violation(&with(5, verb)), Violation::Verb(verb));
    }
    assert_eq!(violation(&vec![VERSION; REQUEST_BYTES_MAX + 1]), Violation::TooLong);
    assert_eq!(Answer::parse(&[VERSION; ANSWER_BYTES_MAX + 1]), Err(Violation::TooLong));
    assert_eq!(Answer::parse(&[VERSION, 0, 0, 0, 0, 4]), Err(Violation::Verb(4)));
}

#[test]
fn fields_with_wrong_values_are_refused() {
    let fields = |verb: u8, fields: &[&[u8]]| {
        let mut bytes = vec![VERSION, 9, 0, 0, 0, verb];
        for field in fields {
            bytes.extend_from_slice(&u16::try_from(field.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(field);
        }
        Request::parse(&bytes).map_err(|damaged| (damaged.number, damaged.violation))
    };
    let refused = Err((9, Violation::Field));
    assert_eq!(fields(1, &[b"", &[0]]), refused, "no path");
    assert_eq!(fields(1, &[b"/a\0b", &[0]]), refused, "a zero in it");
    assert_eq!(fields(1, &[&[b'/'; 4096], &[0]]), refused, "longer than PATH_MAX");
    assert_eq!(fields(1, &[b"/a", &[4]]), refused, "an unknown bit");
    assert_eq!(fields(2, &[b"/a", &[0; 7]]), refused, "a size of 7 bytes");
    assert_eq!(fields(4, &[&[0; 5], &[0; 2], &[0]]), refused, "an address of 5 bytes");
    assert_eq!(fields(6, &[b"/a", &[2]]), refused, "neither on nor off");
    assert_eq!(fields(7, &[b"/a", &[2]]), refused, "no such program");
    let long = [&[VERSION, 0, 0, 0, 0, 2, 1, 2][..], &[b'a'; 513]].concat();
    assert_eq!(Answer::parse(&long), Err(Violation::Field), "a reason of 513 bytes");
    assert_eq!(Answer::parse(&[VERSION, 0, 0, 0, 0, 2, 1, 0, 0xff]), Err(Violation::Field), "not UTF-8");
}

#[test]
fn reason_is_cut_at_a_letter() {
    let answer = Answer { number: 1, outcome: Outcome::Refused { reason: "ä".repeat(300) } };
    let cut = Answer::parse(&answer.emit()).unwrap();
    assert_eq!(cut.outcome, Outcome::Refused { reason: "ä".repeat(256) });
}

#[test]
fn path_that_the_system_would_not_take_does_not_fit() {
    let fits = |path: &str| Request { number: 1, verb: Verb::Remove { path: path.into() } }.has_valid_path();
    assert!(fits("/srv/d0.img") && fits(&"a".repeat(4095)));
    assert!(!fits("") && !fits("/a\0") && !fits(&"a".repeat(4096)));
}

proptest! {
    #[test]
    fn bytes_that_parse_are_what_is_emitted(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = bytes;
        for version in [None, Some(VERSION)] {
            if let (Some(first), Some(version)) = (bytes.first_mut(), version) {
                *first = version;
            }
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.emit(), bytes.clone());
            }
            if let Ok(answer) = Answer::parse(&bytes) {
                prop_assert_eq!(answer.emit(), bytes.clone());
            }
        }
    }
}
