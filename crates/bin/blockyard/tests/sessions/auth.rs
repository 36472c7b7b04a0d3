//! Authentication of hosts and of discovery, and requests that are answered without it.

use crate::array::{ARRAY_SECRET, HOST_SECRET, OPEN, TARGET, chap, initiator, portal};
use crate::host::{Host, Login};
use crate::node::{Node, furnished, name};
use crate::play;
use control::request::HostChange;
use iscsi::pdu::{BHS_BYTES, InitiatorTaskTag, Isid, LoginRequest, SegmentLengths, Stage, Transit};
use model::{ChapAlgorithm, ChapCredentials, Demand, RefusedWhy, event};
use shard::{Stream, StreamOptions, World};
use sim::{Sim, SimStream};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

const DISCOVERY_SECRET: &[u8] = b"what discovery proves";
const OUR_DISCOVERY_SECRET: &[u8] = b"what we prove to it";

/// Authentication that the array is configured for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    Nothing,
    OneWay,
    Mutual,
}

/// Behavior of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Given,
    Missing,
    Wrong,
}

const WANTED: [Wanted; 3] = [Wanted::Nothing, Wanted::OneWay, Wanted::Mutual];
const DEMANDS: [Demand; 2] = [Demand::Required, Demand::Offered];

fn proof(wanted: Wanted, demand: Demand, [own, ours]: [&[u8]; 2]) -> ChapCredentials {
    ChapCredentials {
        own: (wanted != Wanted::Nothing).then(|| chap("web", own, demand)),
        mutual: (wanted == Wanted::Mutual).then(|| chap("array", ours, demand)),
    }
}

/// Returns true if a host with this behavior is let in. A host without credentials is let in if nothing is required.
fn gets_in(wanted: Wanted, demand: Demand, does: Does) -> bool {
    match (wanted, does) {
        (Wanted::Nothing, _) => true,
        (_, Does::Given) => true,
        (_, Does::Missing) => demand == Demand::Offered,
        (_, Does::Wrong) => false,
    }
}

/// Returns a login of `web` with this behavior, under these requirements.
fn login(wanted: Wanted, does: Does, target: Option<&'static str>, secrets: [&'static [u8]; 2]) -> Login {
    let own = if does == Does::Wrong { b"another secret of it" } else { secrets[0] };
    let (mutual, unproven) = (wanted == Wanted::Mutual, does == Does::Missing);
    Login { target, mutual, unproven, secrets: [own, secrets[1]], ..Login::of("web", 1) }
}

/// {none, one-way, mutual} × {required, offered} × {given, missing, wrong}, for sessions and for discovery with the
/// host's credentials.
#[test]
fn what_a_host_must_prove_is_asked_of_its_sessions_and_of_its_discovery() {
    play(21, async |sim, array| {
        for (wanted, demand) in WANTED.iter().flat_map(|&wanted| DEMANDS.map(|demand| (wanted, demand))) {
            array.edit_access(|access| access.hosts[0].chap = proof(wanted, demand, [HOST_SECRET, ARRAY_SECRET])).await;
            for does in [Does::Given, Does::Missing, Does::Wrong] {
                for target in [Some(TARGET), None] {
                    let login = login(wanted, does, target, [HOST_SECRET, ARRAY_SECRET]);
                    let cell = format!("{wanted:?} {demand:?} {does:?} {target:?}");
                    assert_eq!(Host::is_let_in(sim, &login).await, gets_in(wanted, demand, does), "{cell}");
                }
            }
        }
    });
}

/// The same for discovery with credentials of its own; those of the host are then wrong.
#[test]
fn what_discovery_must_prove_is_its_own_and_asked_of_nobody_else() {
    let own: [&'static [u8]; 2] = [DISCOVERY_SECRET, OUR_DISCOVERY_SECRET];
    play(22, async move |sim, array| {
        for (wanted, demand) in WANTED.iter().flat_map(|&wanted| DEMANDS.map(|demand| (wanted, demand))) {
            array.edit_access(|access| access.auth.discovery = Some(proof(wanted, demand, own))).await;
            for does in [Does::Given, Does::Missing, Does::Wrong] {
                let asks = login(wanted, does, None, own);
                let cell = format!("{wanted:?} {demand:?} {does:?}");
                assert_eq!(Host::is_let_in(sim, &asks).await, gets_in(wanted, demand, does), "{cell}");
            }
            let as_host = login(wanted, Does::Given, None, [HOST_SECRET, ARRAY_SECRET]);
            let is_in = Host::is_let_in(sim, &as_host).await;
            assert_eq!(is_in, wanted == Wanted::Nothing, "{wanted:?} {demand:?}: the host's own secret");
            let session = login(Wanted::Mutual, Does::Given, Some(TARGET), [HOST_SECRET, ARRAY_SECRET]);
            assert!(Host::is_let_in(sim, &session).await, "{wanted:?} {demand:?}: sessions are not concerned");
        }
        let told = array.refused().await;
        let of_discovery = |why: &RefusedWhy| matches!(why, RefusedWhy::DiscoveryAuthenticationFailed { .. });
        assert!(
            told.iter().any(|login| of_discovery(&login.reason) && login.remedy().contains("auth discovery")),
            "{told:?}"
        );
    });
}

/// The list is saved periodically, and when the daemon stops.
#[test]
fn login_that_was_refused_is_known_after_a_restart_until_it_comes_in() {
    Sim::new(27).run(async |sim| {
        let (node, host) = furnished(&sim, 1).await;
        drop(host);
        let stranger = Login { host: "stranger", unproven: true, ..Login::of("stranger", 0) };
        let told = async |node: &Node| node.control.refused_logins.list().await.unwrap();
        for _ in 0..2 {
            Host::refused(&sim, &stranger).await;
        }
        let before = told(&node).await;
        assert_eq!((before.len(), before[0].count, &before[0].reason), (1, 2, &RefusedWhy::UnknownInitiator));
        let node = node.restarted(2).await;
        assert_eq!(told(&node).await, before);
        Host::refused(&sim, &stranger).await;
        assert_eq!(told(&node).await[0].count, 3, "it is counted on");
        let node = node.restarted(1).await;
        assert_eq!(told(&node).await[0].count, 3);
        let add_initiators = vec![initiator("stranger").parse().unwrap()];
        node.control.hosts.change(&name("web"), HostChange { add_initiators, ..HostChange::default() }).await.unwrap();
        assert!(Host::is_let_in(&sim, &stranger).await);
        assert_eq!(told(&node).await, []);
        assert_eq!(told(&node.restarted(1).await).await, []);
    });
}

#[test]
fn mutual_proof_that_is_required_is_not_forgone() {
    play(23, async |sim, array| {
        let one_way = Login { mutual: false, ..Login::of("web", 1) };
        assert!(Host::is_let_in(sim, &one_way).await, "it is offered only");
        array
            .edit_access(|access| {
                let ours = access.hosts[0].chap.mutual.as_mut().unwrap();
                ours.demand = Demand::Required;
            })
            .await;
        assert!(!Host::is_let_in(sim, &one_way).await);
        let last = array.refused().await.remove(0);
        assert!(last.reason().contains("does not ask us to prove ourselves"), "{last:?}");
        assert!(last.remedy().contains("enable mutual CHAP on the initiator"), "{last:?}");
        assert!(Host::is_let_in(sim, &Login::of("web", 1)).await);
        let distrusts = Login { secrets: [HOST_SECRET, b"not what we prove"], ..Login::of("web", 2) };
        assert!(!Host::is_let_in(sim, &distrusts).await, "the host finds out that we are not whom it wants");
    });
}

#[test]
fn discovery_with_a_proof_of_its_own_names_only_what_the_host_sees() {
    play(24, async |sim, array| {
        array
            .edit_access(|access| {
                access.auth.discovery = Some(proof(Wanted::OneWay, Demand::Required, [DISCOVERY_SECRET, ARRAY_SECRET]));
                access.presentations.retain(|shown| shown.host.as_str() != OPEN);
            })
            .await;
        for (host, sees) in [("web", true), (OPEN, false)] {
            let asks = raw_login(sim, &initiator(host), DISCOVERY_SECRET).await;
            assert_eq!(asks, Some((0, 0)), "{host} proves what discovery asks for");
            let heard = Login { target: None, unproven: true, ..Login::of(host, 1) };
            assert!(!Host::is_let_in(sim, &heard).await);
            if sees {
                let login =
                    Login { target: None, mutual: false, secrets: [DISCOVERY_SECRET, b""], ..Login::of(host, 1) };
                let (mut asker, _) = Host::follow(sim, &login, portal()).await;
                assert_eq!(asker.targets().await.len(), 1);
            }
        }
    });
}

#[test]
fn hash_function_that_is_forbidden_is_not_spoken() {
    play(25, async |sim, array| {
        for (weakest, offered, status) in [
            (ChapAlgorithm::Md5, 5, (0, 0)),
            (ChapAlgorithm::Sha1, 5, (2, 1)),
            (ChapAlgorithm::Sha1, 6, (0, 0)),
            (ChapAlgorithm::Sha256, 6, (2, 1)),
            (ChapAlgorithm::Sha256, 7, (0, 0)),
            (ChapAlgorithm::Sha3_256, 7, (2, 1)),
        ] {
            array.edit_access(|access| access.auth.weakest = weakest).await;
            let mut knocker = Knocker::connect(sim).await;
            let names = format!("InitiatorName={}\0SessionType=Normal\0TargetName={TARGET}\0", initiator("web"));
            assert_eq!(knocker.say(&format!("{names}AuthMethod=CHAP\0")).await.0, (0, 0));
            assert_eq!(knocker.say(&format!("CHAP_A={offered}\0")).await.0, status, "{weakest} {offered}");
        }
        let last = array.refused().await.remove(0);
        assert!(last.reason().contains("CHAP_A") && last.remedy().contains("auth weakest"), "{last:?}");
    });
}

/// A protocol error in a login is reported like any other refusal, each cause separately, with the initiator.
#[test]
fn login_that_breaks_the_protocol_is_listed_and_told_with_its_key_and_rule() {
    play(29, async |sim, array| {
        let (open, web) = (initiator(OPEN), initiator("web"));
        let normal = format!("SessionType=Normal\0TargetName={TARGET}\0");
        let twice = "HeaderDigest=None\0HeaderDigest=None\0";
        for (stage, text, status) in [
            (Stage::Operational, format!("InitiatorName={open}\0{normal}{twice}"), (2, 0)),
            (Stage::Operational, format!("InitiatorName={open}\0{normal}{twice}"), (2, 0)),
            (Stage::Security, format!("InitiatorName=web\0{normal}"), (2, 0)),
            (Stage::Security, normal.clone(), (2, 7)),
            (Stage::Security, format!("InitiatorName={web}\0SessionType=Normal\0"), (2, 7)),
            (Stage::Security, format!("InitiatorName={web}\0SessionType=Copy\0"), (2, 9)),
        ] {
            assert_eq!(Knocker::connect(sim).await.say_in(stage, &text).await.0, status, "{text}");
        }
        let told = array.refused().await;
        let key = |why: &RefusedWhy| match why {
            RefusedWhy::Protocol { key, .. } => key.clone(),
            _ => None,
        };
        let rows: Vec<_> = told
            .iter()
            .map(|login| (login.initiator.clone(), key(&login.reason).unwrap_or_default(), login.count))
            .collect();
        let row = |who: Option<&String>, key: &str, times| (who.cloned(), key.to_owned(), times);
        assert_eq!(
            rows,
            [
                row(Some(&web), "SessionType", 1),
                row(Some(&web), "TargetName", 1),
                row(None, "InitiatorName", 1),
                row(None, "InitiatorName", 1),
                row(Some(&open), "HeaderDigest", 2),
            ]
        );
        assert!(told[4].reason().ends_with("HeaderDigest: a key came twice in one login (RFC 7143 §6.3)"), "{told:?}");
        assert!(told.iter().all(|login| !login.remedy().contains("event list")), "{told:?}");
        let events = array.events().await;
        assert_eq!(events.len(), 6, "{events:?}");
        assert!(events[0].subject.name == open && events[0].sentence.contains("HeaderDigest"), "{events:?}");
    });
}

/// A host with wrong credentials is throttled increasingly. One with the right credentials is not, and is never locked
/// out.
#[test]
fn guessing_is_answered_ever_later_and_hurts_nobody_else() {
    play(26, async |sim, array| {
        let home = Host::login(sim, &Login::of("web", 1)).await;
        let thief = sim.add_node("10.0.0.66".parse().unwrap());
        let wrong = |isid| Login { secrets: [b"guess after guess!", ARRAY_SECRET], ..Login::of("web", isid) };
        let mut took = Vec::new();
        for isid in 2..12 {
            let since = sim.now();
            assert!(!Host::is_let_in(&thief, &wrong(isid)).await);
            took.push(sim.now().since(since));
        }
        assert!(took[..3].iter().all(|took| took.as_millis() < 100), "{took:?}");
        assert!(took[3..].is_sorted() && took[9].as_secs() >= 10, "{took:?}");
        let told = array.refused().await;
        assert_eq!((told[0].count, told[0].delay_ms), (10, 10_000), "{told:?}");
        let guesses: Vec<_> =
            array.events().await.into_iter().filter(|raised| raised.code == event::GUESSING).collect();
        assert_eq!(guesses.len(), 2, "at five and at ten: {guesses:?}");
        assert!(guesses[0].sentence.contains("10.0.0.66") && guesses[0].subject.name == initiator("web"));

        // Twenty at once: one is judged, and keeps its turn while its response is delayed.
        for isid in 20..40 {
            let (thief, guess) = (thief.clone(), wrong(isid));
            sim.spawn(async move {
                let _ = Host::is_let_in(&thief, &guess).await;
            });
        }
        sim.sleep(Duration::from_secs(1)).await;
        assert!(!Host::is_let_in(&thief, &wrong(50)).await);
        let told = array.refused().await;
        assert!(matches!(told[0].reason, RefusedWhy::Throttled { .. }) && told[0].count == 20, "{told:?}");
        assert_eq!(told.iter().map(|login| login.count).sum::<u64>(), 31, "each cause by itself: {told:?}");
        let since = sim.now();
        drop(home);
        assert!(Host::is_let_in(sim, &Login::of("web", 1)).await, "from where it was proven before");
        assert!(Host::is_let_in(&thief, &Login::of("other", 1)).await, "another host there");
        assert!(sim.now().since(since).as_millis() < 200);
        sim.sleep(Duration::from_secs(11)).await;
        assert!(Host::is_let_in(&thief, &Login::of("web", 41)).await, "a right proof from there, in its turn");
    });
}

/// Silent connections from one address and from many, beyond the limit: hosts get in as if there were none.
#[test]
fn half_open_logins_are_bounded_and_keep_no_host_out() {
    play(27, async |sim, array| {
        let mut silent = Vec::new();
        for last in 100..120 {
            let flooder = sim.add_node(std::net::IpAddr::from([10, 0, 0, last]));
            for _ in 0..70 {
                silent.push(flooder.connect(portal(), StreamOptions::default()).await.unwrap());
            }
            sim.sleep(Duration::from_millis(50)).await;
            let since = sim.now();
            assert!(Host::is_let_in(sim, &Login::of("web", last)).await);
            assert!(Host::is_let_in(&flooder, &Login::of("other", last)).await, "also from where the flood comes");
            assert!(sim.now().since(since).as_millis() < 200);
        }
        sim.sleep(Duration::from_millis(50)).await;
        let mut open = 0;
        for stream in &silent {
            open += usize::from(is_open(stream).await);
        }
        assert!((900..=1024).contains(&open), "{open} are still under way");
        // Single bytes now and then do not make a login.
        for _ in 0..16 {
            for stream in &silent {
                let _ = poll_fn(|cx| match stream.poll_write(cx, &[IoSlice::new(&[0x43])]) {
                    Poll::Pending => Poll::Ready(Ok(0)),
                    done => done,
                })
                .await;
            }
            sim.sleep(Duration::from_secs(1)).await;
        }
        for stream in &silent {
            assert!(!is_open(stream).await, "a login takes fifteen seconds at most");
        }
        assert_eq!(array.sessions().await.iter().filter(|session| session.target.is_none()).count(), 0);
    });
}

/// Two thousand half-finished logins, and two hundred sessions whose hosts disconnect and return repeatedly: a new
/// login waits for none of them (CVE-2026-23216, and logins that block each other in LIO).
#[test]
fn login_waits_neither_for_half_done_ones_nor_for_sessions_that_break_off() {
    play(28, async |sim, _| {
        let mut half_done = Vec::new();
        let (over, came_in) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        for last in 100..120 {
            let node = sim.add_node(std::net::IpAddr::from([10, 0, 0, last]));
            for _ in 0..100 {
                let stream = node.connect(portal(), StreamOptions::default()).await.unwrap();
                let begun = [0x43, 0x87, 0, 0, 0, 0, 0, 100];
                poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(&begun)])).await.unwrap();
                half_done.push(stream);
            }
            for isid in (last - 100) * 10..(last - 99) * 10 {
                let (node, over, came_in) = (node.clone(), over.clone(), came_in.clone());
                sim.spawn(async move {
                    while !over.get() {
                        let is_in = Host::is_let_in(&node, &Login::of("web", isid)).await;
                        came_in.set(came_in.get() + usize::from(is_in));
                        node.sleep(Duration::from_millis(300)).await;
                    }
                });
            }
        }
        for isid in 0..10 {
            let since = sim.now();
            assert!(Host::is_let_in(sim, &Login::of("other", isid)).await);
            assert!(sim.now().since(since) < Duration::from_secs(1), "{:?}", sim.now().since(since));
            sim.sleep(Duration::from_millis(150)).await;
        }
        over.set(true);
        assert!(came_in.get() > 400, "{} sessions broke off", came_in.get());
        sim.sleep(Duration::from_secs(1)).await;
    });
}

/// Returns false if the array has closed the connection.
async fn is_open(stream: &SimStream) -> bool {
    poll_fn(|cx| Poll::Ready(stream.poll_read(cx, &mut [0; 1]).is_pending())).await
}

/// Returns the status of a discovery login with `secret` as `web` with MD5; none without a response.
async fn raw_login(sim: &Sim, initiator: &str, secret: &[u8]) -> Option<(u8, u8)> {
    let mut knocker = Knocker::connect(sim).await;
    knocker.say(&format!("InitiatorName={initiator}\0SessionType=Discovery\0AuthMethod=CHAP\0")).await;
    let (_, challenge) = knocker.say("CHAP_A=5\0").await;
    let value = |key: &str| challenge.split('\0').find_map(|pair| pair.strip_prefix(key)).map(str::to_owned);
    let (identifier, bytes) = (value("CHAP_I=")?, iscsi::text::binary(&value("CHAP_C=")?)?);
    let secret = iscsi::chap::Secret::new(secret).unwrap();
    let response = iscsi::chap::Algorithm::Md5.respond(identifier.parse().ok()?, &secret, &bytes);
    let response = iscsi::text::hexadecimal(&response);
    Some(knocker.say(&format!("CHAP_N=web\0CHAP_R={response}\0")).await.0)
}

/// Hand-made login in the security stage.
struct Knocker {
    stream: SimStream,
}

impl Knocker {
    async fn connect(sim: &Sim) -> Self {
        Self { stream: sim.connect(portal(), StreamOptions::default()).await.unwrap() }
    }

    /// Sends keys, and returns the status of the response and its text.
    async fn say(&mut self, text: &str) -> ((u8, u8), String) {
        self.say_in(Stage::Security, text).await
    }

    async fn say_in(&mut self, stage: Stage, text: &str) -> ((u8, u8), String) {
        let request = LoginRequest {
            initiator_task_tag: InitiatorTaskTag(1),
            ..LoginRequest::leading(Isid([0x80, 0, 0, 0, 0, 9]), Transit::stay(stage))
        };
        let mut pdu = vec![0; BHS_BYTES];
        request.emit(SegmentLengths::data(text.len()), pdu.first_chunk_mut().unwrap());
        pdu.extend(text.bytes());
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        let mut sent = 0;
        while sent < pdu.len() {
            sent += poll_fn(|cx| self.stream.poll_write(cx, &[IoSlice::new(&pdu[sent..])])).await.unwrap();
        }
        let header = self.take(BHS_BYTES).await;
        let len = usize::from(header[6]) << 8 | usize::from(header[7]);
        let text = self.take(len.next_multiple_of(4)).await;
        ((header[36], header[37]), String::from_utf8_lossy(&text[..len]).into_owned())
    }

    async fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut had = 0;
        while had < len {
            let got = poll_fn(|cx| match self.stream.poll_read(cx, &mut bytes[had..]) {
                Poll::Ready(Ok(0)) => panic!("the array has closed the connection"),
                other => other,
            });
            had += got.await.unwrap();
        }
        bytes
    }
}
