//! The real daemon under ten thousand unauthenticated attempts: no growth, and no repeated challenge.

use crate::serve::{Daemon, ask, cell, end, good, start, wait_until_served};
use iscsi::pdu::{
    BHS_BYTES, Bhs, Cid, CmdSn, InitiatorTaskTag, Isid, LoginRequest, LogoutReason, LogoutRequest, SegmentLengths,
    Stage, StatSn, Transit,
};
use rustix::process::Signal;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;

const ROUNDS: usize = 10_000;
const LOGIN: LoginRequest = LoginRequest {
    initiator_task_tag: InitiatorTaskTag(1),
    ..LoginRequest::leading(Isid([0x80, 0, 0, 0, 0, 9]), Transit::stay(Stage::Security))
};

/// A repeated challenge can be answered by a replay of an earlier response (CVE-2024-45751).
#[test]
fn none_of_ten_thousand_challenges_comes_twice_also_across_restarts() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("secret"), "a secret of 20 bytes").expect("a file");
    let mut seen = HashSet::new();
    for life in 0..4 {
        let mut daemon = start(dir.path());
        wait_until_served(dir.path());
        if life == 0 {
            let host = "host add web --initiator iqn.2001-04.com.example:web --chap-secret-file secret";
            good(dir.path(), host);
        }
        let portal = cell(dir.path(), "portal", 0);
        for _ in 0..ROUNDS / 4 {
            let mut caller = Caller::knock(&portal);
            let names = "InitiatorName=iqn.2001-04.com.example:web\0SessionType=Discovery\0AuthMethod=CHAP\0";
            caller.log_in(&LOGIN, names);
            let posed = caller.log_in(&LOGIN, "CHAP_A=5\0");
            let challenge = posed.split('\0').find_map(|pair| pair.strip_prefix("CHAP_C=0x")).expect("it is posed");
            assert_eq!(challenge.len(), 32, "16 bytes: {challenge}");
            assert!(seen.insert(challenge.to_owned()), "{challenge} came before");
        }
        end(&mut daemon, Signal::KILL);
    }
    assert_eq!(seen.len(), ROUNDS);
}

#[test]
fn ten_thousand_sessions_of_strangers_that_come_and_go_leave_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut daemon = start(dir.path());
    wait_until_served(dir.path());
    for line in ["volume create scratch 16MiB --ram", "host add anyone --any", "present scratch anyone"] {
        good(dir.path(), line);
    }
    let (portal, target) = (cell(dir.path(), "portal", 0), cell(dir.path(), "target", 1));
    let mut early = Held::of(&daemon);
    for round in 0..ROUNDS {
        // One-time allocations have happened after a tenth of the rounds.
        if round == ROUNDS / 10 {
            early = Held::of(&daemon);
        }
        let mut caller = Caller::knock(&portal);
        let names = format!("InitiatorName=iqn.2001-04.com.example:n{round}\0TargetName={target}\0");
        let transit = Transit { current: Stage::Operational, next: Some(Stage::FullFeature), continues: false };
        caller.log_in(&LoginRequest { transit, ..LOGIN }, &names);
        caller.log_out();
    }
    let late = Held::of(&daemon);
    assert_eq!(ask(dir.path(), &["session", "list", "--no-headers"]).stdout, "");
    assert!(late.descriptors <= early.descriptors + 1, "{early:?}, then {late:?}");
    assert!(late.resident_kib < early.resident_kib + 2048, "{early:?}, then {late:?}");
    end(&mut daemon, Signal::TERM);
}

/// Resources of the daemon.
#[derive(Debug)]
struct Held {
    resident_kib: u64,
    descriptors: usize,
}

impl Held {
    fn of(daemon: &Daemon) -> Self {
        let process = daemon.process();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says so");
        let resident_kib = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count();
        Self { resident_kib, descriptors }
    }
}

/// Connection with hand-made PDUs.
struct Caller(TcpStream);

impl Caller {
    fn knock(portal: &str) -> Self {
        let stream = TcpStream::connect(portal).expect("somebody listens");
        stream.set_nodelay(true).expect("it is a socket");
        Self(stream)
    }

    /// Sends a login request, and returns the target's response, which must not be a refusal.
    fn log_in(&mut self, request: &LoginRequest, text: &str) -> String {
        let mut header = [0; BHS_BYTES];
        request.emit(SegmentLengths::data(text.len()), &mut header);
        let (header, answer) = self.say(&header, text);
        assert_eq!(header[36..38], [0, 0], "{text} came to {header:02x?}");
        answer
    }

    fn log_out(&mut self) {
        let request = LogoutRequest {
            immediate: false,
            reason: LogoutReason::CloseSession,
            initiator_task_tag: InitiatorTaskTag(2),
            cid: Cid(0),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(1),
        };
        let mut header = [0; BHS_BYTES];
        request.emit(SegmentLengths::NONE, &mut header);
        let (header, _) = self.say(&header, "");
        assert_eq!((header[0], header[2]), (0x26, 0), "a Logout Response");
    }

    fn say(&mut self, header: &Bhs, text: &str) -> (Bhs, String) {
        let mut pdu = header.to_vec();
        pdu.extend(text.bytes());
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        self.0.write_all(&pdu).expect("it listens");
        let mut header = [0; BHS_BYTES];
        self.0.read_exact(&mut header).expect("it answers");
        let mut text = vec![0; SegmentLengths::parse(&header).padded_data_bytes()];
        self.0.read_exact(&mut text).expect("it answers");
        (header, String::from_utf8(text).expect("text"))
    }
}
