//! Complete connections from the first byte: login, a command, a logout; and attempts of unauthenticated peers.

use super::rig::{LUN, command, describe, pattern, pdu, pdus, reads};
use crate::chap::{Algorithm, Auth, ChapPolicy, Credential, Mutual, Secret};
use crate::initiator::{self, DataIn};
use crate::login::{Grant, InitiatorAuth, InitiatorConfig, LoginStatus};
use crate::pdu::{TaskAttribute, Tsih};
use crate::target::{self, Config, OpenGate, Response};
use crate::{CloseReason, DigestOffer, IscsiName, SendSlices, Violation};
use block::Buf;
use shard::Time;
use smallvec::SmallVec;
use std::rc::Rc;
use std::time::Duration;

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).expect("a name")
}

fn credential(name: &str, secret: &str) -> Credential {
    Credential { name: name.to_owned(), secret: Secret::new(secret.as_bytes()).expect("long enough") }
}

/// An initiator with mutual CHAP and digests.
fn host() -> initiator::Config {
    let mut login = InitiatorConfig::new(name("iqn.2026-01.test:host"), Some(name("iqn.2026-01.test:disk")));
    let (own, target) = (credential("host", "secret of host"), credential("disk", "secret of disk"));
    login.auth = InitiatorAuth::chap(own, Some(target), Algorithm::Sha256).expect("a policy");
    login.offer.header_digest = DigestOffer::Preferred;
    login.offer.data_digest = DigestOffer::Preferred;
    initiator::Config::new(login)
}

fn grant() -> Grant {
    let mutual = Mutual::Required(credential("disk", "secret of disk"));
    let accepted = vec![credential("host", "secret of host")];
    let policy = ChapPolicy::new(true, accepted, mutual, Algorithm::Sha256).expect("a policy");
    Grant { auth: Auth::Chap(Box::new(policy)), portal_group_tag: 1, target_alias: None }
}

struct Whole {
    target: target::Session,
    initiator: initiator::Connection,
    /// Events of both sides.
    log: Vec<String>,
    answer: fn() -> Result<Grant, LoginStatus>,
}

impl Whole {
    fn new(answer: fn() -> Result<Grant, LoginStatus>) -> Self {
        let target = target::Session::new(Rc::new(Config::default()), [1; 32], Time(0));
        let initiator = initiator::Connection::new(Rc::new(host()), [2; 32], Time(0));
        Self { target, initiator, log: Vec::new(), answer }
    }

    /// Moves bytes in both directions in pieces of `cut` until both sides are idle; `budget` bytes at most in all.
    fn run(&mut self, cut: usize, budget: &mut usize) {
        loop {
            let to_target = drain(&gathered(|into| self.initiator.gather(into)), *budget);
            *budget -= to_target.len();
            self.initiator.handle_transmitted(to_target.len());
            for piece in to_target.chunks(cut) {
                feed(piece, |bytes| {
                    let space = self.target.receive_into(0);
                    let len = space.len().min(bytes.len());
                    space[..len].copy_from_slice(&bytes[..len]);
                    self.target.handle_received(0, len, Time(0), &mut OpenGate);
                    len
                });
                self.act();
            }
            let to_initiator = drain(&gathered(|into| self.target.gather(0, into)), *budget);
            *budget -= to_initiator.len();
            self.target.handle_transmitted(0, to_initiator.len());
            for piece in to_initiator.chunks(cut) {
                feed(piece, |bytes| {
                    let space = self.initiator.receive_into();
                    let len = space.len().min(bytes.len());
                    space[..len].copy_from_slice(&bytes[..len]);
                    self.initiator.handle_received(len, Time(0));
                    len
                });
                self.act();
            }
            if to_target.is_empty() && to_initiator.is_empty() {
                return;
            }
        }
    }

    fn act(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                target::Event::Login(question) => {
                    self.log.push(format!("asked by {}", question.initiator_name));
                    match (self.answer)() {
                        Ok(grant) => self.target.grant(grant, Time(0)),
                        Err(status) => self.target.refuse(status, Time(0)),
                    }
                }
                target::Event::Authenticated => self.target.assign_session(Ok(Tsih(9)), Time(0)),
                target::Event::FullFeature(agreed) => {
                    let proven = agreed.identity.authentication.expect("CHAP was required");
                    let both = if proven.mutual { "both ways" } else { "one way" };
                    self.log.push(format!("in as {} by {} {both}", proven.name, proven.algorithm));
                }
                target::Event::Command(command) => {
                    self.log.push(format!("command {}", command.data_out.len()));
                    let data = pattern(command.expected_data_in_bytes as usize);
                    self.target.respond(command.task, Response::good(Buf::copy_of(&data).into()));
                }
                target::Event::Closed(reason) => self.log.push(format!("target: {reason}")),
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = self.initiator.poll_event() {
            match event {
                initiator::Event::FullFeature(agreed) => {
                    assert!(agreed.header_digest && agreed.data_digest);
                    for (data_out, data_in) in [
                        (None, DataIn::Into(Buf::zeroed(5000))),
                        (Some(Buf::copy_of(&pattern(9000)).into()), DataIn::None),
                    ] {
                        let (cdb, attribute) = (SmallVec::from([0; 16]), TaskAttribute::Simple);
                        let command = initiator::Command { lun: LUN, cdb, attribute, data_out, data_in };
                        self.initiator.submit(command).expect("full feature phase, and room");
                    }
                }
                initiator::Event::Completed(done) => {
                    if let Some(data) = &done.data_in {
                        assert!(data[..] == pattern(5000));
                    }
                    self.log.push(format!("completed {}", done.status));
                    // A logout ends running commands, so it is sent when there are none.
                    if self.log.iter().filter(|line| line.starts_with("completed")).count() == 2 {
                        self.initiator.logout();
                    }
                }
                initiator::Event::Closed(reason) => self.log.push(format!("initiator: {reason}")),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns the bytes that one call adds to the slices of a send.
fn gathered<'a>(gather: impl FnOnce(&mut SendSlices<'a>)) -> Vec<u8> {
    let mut slices = SendSlices::new();
    gather(&mut slices);
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}

fn drain(bytes: &[u8], most: usize) -> Vec<u8> {
    bytes[..bytes.len().min(most)].to_vec()
}

fn feed(mut bytes: &[u8], mut take: impl FnMut(&[u8]) -> usize) {
    while !bytes.is_empty() {
        let taken = take(bytes);
        if taken == 0 {
            return;
        }
        bytes = &bytes[taken..];
    }
}

const STORY: [&str; 8] = [
    "asked by iqn.2026-01.test:host",
    "in as host by SHA3-256 both ways",
    "command 0",
    "command 9000",
    "target: the initiator logged out",
    "completed 0",
    "completed 0",
    "initiator: the initiator logged out",
];

#[test]
fn session_with_mutual_chap_and_digests_is_the_same_over_any_cut() {
    for cut in [1, 2, 3, 7, 47, 48, 49, 100, 1000, usize::MAX] {
        let mut whole = Whole::new(|| Ok(grant()));
        whole.run(cut, &mut usize::MAX.clone());
        let mut log = whole.log;
        // A coarse cut lets a command complete before the logout is seen; the set of events is the same.
        log.sort();
        let mut story: Vec<String> = STORY.iter().map(|&line| line.to_owned()).collect();
        story.sort();
        assert_eq!(log, story, "pieces of {cut}");
    }
}

#[test]
fn peer_that_resets_at_every_byte_of_a_session_leaves_nothing() {
    let mut bytes = usize::MAX;
    Whole::new(|| Ok(grant())).run(usize::MAX, &mut bytes);
    let all = usize::MAX - bytes;
    // Every byte of the login and of the headers behind it; every fifth byte of payloads.
    for end in (0..2000).chain((2000..all).step_by(5)) {
        let mut whole = Whole::new(|| Ok(grant()));
        whole.run(usize::MAX, &mut end.clone());
        whole.target.handle_peer_closed(0);
        whole.initiator.handle_peer_closed();
        whole.act();
        assert_eq!(whole.log.iter().filter(|line| line.starts_with("target: ")).count(), 1, "{end}");
        assert!(whole.target.is_over() && whole.initiator.is_closed());
        assert_eq!(whole.target.holds(), (0, 0));
    }
}

#[test]
fn refused_login_says_why_and_ends() {
    let mut whole = Whole::new(|| Err(LoginStatus::AuthorizationFailure));
    whole.run(usize::MAX, &mut usize::MAX.clone());
    let reason = CloseReason::LoginRefused(LoginStatus::AuthorizationFailure);
    let expected =
        ["asked by iqn.2026-01.test:host".to_owned(), format!("target: {reason}"), format!("initiator: {reason}")];
    assert_eq!(whole.log, expected);
    assert!(whole.target.is_over());
}

#[test]
fn wrong_secret_is_an_authentication_failure() {
    let wrong = || {
        let policy = ChapPolicy::new(true, vec![credential("host", "another secret")], Mutual::Never, Algorithm::Md5);
        let auth = Auth::Chap(Box::new(policy.expect("a policy")));
        Ok(Grant { auth, ..grant() })
    };
    let mut whole = Whole::new(wrong);
    whole.run(usize::MAX, &mut usize::MAX.clone());
    assert!(!whole.log.iter().any(|line| line.starts_with("in as")), "{:?}", whole.log);
    assert!(whole.log.last().expect("it ended").starts_with("initiator: the login was refused"), "{:?}", whole.log);
}

/// Returns the response of a target to bytes of an unauthenticated peer, and its reason for closing, if any.
fn stranger(bytes: &[u8]) -> (Vec<String>, Option<CloseReason>) {
    let mut target = target::Session::new(Rc::new(Config::default()), [1; 32], Time(0));
    feed(bytes, |bytes| {
        let space = target.receive_into(0);
        let len = space.len().min(bytes.len());
        space[..len].copy_from_slice(&bytes[..len]);
        target.handle_received(0, len, Time(0), &mut OpenGate);
        len
    });
    assert!(target.buffer_bytes() <= 16 << 10, "{} bytes before anybody has proven anything", target.buffer_bytes());
    let said =
        pdus(&gathered(|into| target.gather(0, into))).iter().map(|(header, data)| describe(header, data)).collect();
    let closed = std::iter::from_fn(|| target.poll_event()).find_map(|event| match event {
        target::Event::Closed(reason) => Some(reason),
        _ => None,
    });
    (said, closed)
}

#[test]
fn stranger_that_claims_a_long_segment_is_left_before_it_sends_it() {
    let mut header = [0; 48];
    header[..8].copy_from_slice(&[0x43, 0x87, 0, 0, 0, 0xff, 0xff, 0xff]);
    let (said, closed) = stranger(&header);
    assert_eq!(closed, Some(CloseReason::Violation(Violation::DataSegmentTooLong)));
    assert!(said.is_empty(), "{said:?}");
    header[5..8].copy_from_slice(&[0, 0x20, 1]);
    assert_eq!(stranger(&header).1, Some(CloseReason::Violation(Violation::DataSegmentTooLong)), "8,193 bytes");
}

#[test]
fn stranger_that_sends_anything_but_a_login_is_left() {
    for bytes in [
        command(1, 1, reads(10), &[]),
        super::rig::nop_out(1, 1, true, b"x"),
        [&[0xff; 4][..], &[0; 4], &[0xff; 40]].concat(),
    ] {
        let (said, closed) = stranger(&bytes);
        assert_eq!(closed, Some(CloseReason::Violation(Violation::LoginExpected)));
        assert!(said.is_empty(), "{said:?}");
    }
}

#[test]
fn stranger_that_sends_login_text_without_end_is_left_within_its_bounds() {
    let mut header = [0; 48];
    header[..8].copy_from_slice(&[0x43, 0x44, 0, 0, 0, 0, 0x20, 0]);
    let endless = pdu(header, &[b'A'; 8192]).repeat(100);
    let (said, closed) = stranger(&endless);
    assert!(matches!(closed, Some(CloseReason::Violation(_))), "{closed:?}");
    assert!(said.len() <= 11, "{}", said.len());
}

#[test]
fn half_open_login_ends_at_its_deadline_whatever_trickles_in() {
    let mut target = target::Session::new(Rc::new(Config::default()), [1; 32], Time(0));
    for second in 0..15 {
        let now = Time(0) + Duration::from_secs(second);
        assert!(target.poll_timeout().is_some_and(|due| due > now));
        target.receive_into(0)[0] = 0x43;
        target.handle_received(0, 1, now, &mut OpenGate);
    }
    let due = target.poll_timeout().expect("an open connection has a timer");
    assert_eq!(due, Time(0) + Duration::from_secs(15));
    target.handle_timeout(due);
    assert!(matches!(target.poll_event(), Some(target::Event::Closed(CloseReason::LoginTimeout))));
    assert!(target.is_over());
}

/// The first request of a login to the disk, which enters the operational stage directly.
fn first_request(opcode: u8) -> Vec<u8> {
    let mut header = [0; 48];
    let text = b"InitiatorName=iqn.2026-01.test:host\0TargetName=iqn.2026-01.test:disk\0SessionType=Normal\0";
    header[..2].copy_from_slice(&[opcode, 0x87]);
    header[7] = text.len() as u8;
    header[27] = 77;
    pdu(header, text)
}

#[test]
fn first_login_response_begins_the_count_of_statuses() {
    for opcode in [0x43, 0x03] {
        // A login is immediate; one without the I bit is accepted as one, and its CmdSN is still the first of the
        // session.
        let mut target = target::Session::new(Rc::new(Config::default()), [1; 32], Time(0));
        let request = first_request(opcode);
        target.receive_into(0)[..request.len()].copy_from_slice(&request);
        target.handle_received(0, request.len(), Time(0), &mut OpenGate);
        while let Some(event) = target.poll_event() {
            match event {
                target::Event::Login(_) => {
                    target.grant(Grant { auth: Auth::None, portal_group_tag: 1, target_alias: None }, Time(0));
                }
                target::Event::Authenticated => target.assign_session(Ok(Tsih(9)), Time(0)),
                _ => {}
            }
        }
        let said = gathered(|into| target.gather(0, into));
        target.handle_transmitted(0, said.len());
        let word = |header: &[u8], at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| header[at + n]));
        let responses = pdus(&said);
        let first = word(&responses[0].0, 24);
        let numbers: Vec<u32> = responses.iter().map(|(header, _)| word(header, 24)).collect();
        assert_eq!(numbers, (first..).take(responses.len()).collect::<Vec<_>>());
        assert!(responses.iter().all(|(header, _)| (header[0], word(header, 28)) == (0x23, 77)), "ExpCmdSN");
        let (last, _) = responses.last().expect("it was answered");
        assert_eq!((last[1] & 0x83, last[36]), (0x83, 0), "full feature phase");
        let ping = super::rig::nop_out(5, 77, false, b"");
        target.receive_into(0)[..ping.len()].copy_from_slice(&ping);
        target.handle_received(0, ping.len(), Time(0), &mut OpenGate);
        let (header, _) = pdus(&gathered(|into| target.gather(0, into))).remove(0);
        let due = first + u32::try_from(responses.len()).expect("few");
        assert_eq!((word(&header, 24), word(&header, 28)), (due, 78));
    }
}
