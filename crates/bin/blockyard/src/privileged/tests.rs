//! Helper against a compromised daemon: every packet over the socket pair is answered or refused, and the next request
//! is served.

use super::*;
use privilege::{ANSWER_BYTES_MAX, Mode, REQUEST_BYTES_MAX, VERSION, Verb};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

/// Starts a helper thread that answers until the other end is closed, and returns that end.
fn office(state: &Path) -> (OwnedFd, std::thread::JoinHandle<u64>) {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket pair");
    rustix::io::ioctl_fionbio(&ours, true).expect("a socket");
    let policy = Policy::only(state);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let line = Arc::new(RequestSocket::new(ours).expect("a socket"));
            let (verbs, programs) = (Arc::new(Verbs::new(policy)), Programs::default());
            let mut office = RequestServer {
                verbs,
                workers: Workers::default(),
                places: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
                programs,
                line: line.clone(),
                damaged: 0,
            };
            while let Ok(Some(packet)) = line.receive().await {
                office.answer(packet).await;
            }
            office.damaged
        })
    });
    (theirs, thread)
}

fn hear(socket: &OwnedFd) -> Answer {
    let mut bytes = [0; ANSWER_BYTES_MAX];
    let (len, _) = recv(socket, &mut bytes[..], RecvFlags::empty()).expect("an answer");
    Answer::parse(&bytes[..len]).expect("the helper sends answers")
}

fn say(socket: &OwnedFd, bytes: &[u8]) -> Answer {
    send(socket, bytes, SendFlags::empty()).expect("sends");
    hear(socket)
}

fn open(number: u32, path: &Path) -> Request {
    Request { number, verb: Verb::Open { path: path.into(), mode: Mode { write: true, direct: false } } }
}

fn is_refused(answer: &Answer, why: &str) -> bool {
    matches!(&answer.outcome, Outcome::Refused { reason: said } if said.contains(why))
}

#[test]
fn damaged_packets_are_refused_and_the_next_request_is_served() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = dir.path().join("d0");
    std::fs::File::create(&disk).and_then(|file| file.set_len(1 << 20)).expect("a file");
    let (socket, helper) = office(&dir.path().join("state"));
    let good = open(7, &disk).emit();
    let damaged: [(&[u8], &str); 5] = [
        (&[VERSION; REQUEST_BYTES_MAX + 1], "too long"),
        (&good[..good.len() - 1], "truncated"),
        (&[VERSION, 7, 0, 0, 0, 99], "verb 99"),
        (&[&good[..], b"more"].concat(), "follow the last field"),
        (&[], "truncated"),
    ];
    for (bytes, why) in damaged {
        let answer = say(&socket, bytes);
        assert!(is_refused(&answer, why), "{answer:?} to {why}");
        assert_eq!(say(&socket, &good), Answer { number: 7, outcome: Outcome::Done });
    }
    drop(socket);
    assert_eq!(helper.join().expect("it ends well"), 5);
}

#[test]
fn descriptors_that_come_with_a_request_are_closed_and_it_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let (socket, helper) = office(dir.path());
    let file = std::fs::File::open("/dev/null").expect("a device");
    let before = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    for count in [1, 8, 30] {
        let descriptors = vec![file.as_fd(); count];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(30))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = open(9, Path::new("/dev/null")).emit();
        sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).expect("sends");
        assert!(is_refused(&hear(&socket), "no descriptor"));
    }
    let after = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    // Other tests of this process open files as well.
    assert!(after < before + 20, "{before} descriptors, then {after}");
    drop(socket);
    helper.join().expect("it ends well");
}

#[test]
fn flood_of_requests_waits_for_whoever_does_not_read_its_answers() {
    let dir = tempfile::tempdir().expect("a folder");
    let (socket, helper) = office(dir.path());
    let bytes = open(1, Path::new("/etc/shadow")).emit();
    let mut sent = 0;
    while send(&socket, &bytes, SendFlags::DONTWAIT).is_ok() && sent < 100_000 {
        sent += 1;
    }
    assert!(sent < 100_000, "the sender is held back");
    for _ in 0..sent {
        assert!(is_refused(&hear(&socket), "is below /etc"));
    }
    drop(socket);
    assert_eq!(helper.join().expect("it ends well"), 0);
}
