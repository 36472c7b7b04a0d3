//! Several connections per session.

use crate::{Stage, brief};
use lab::drive;
use lab::point::Point;
use lab::run::Sample;
use model::{SessionReport, Span};
use std::time::{Duration, Instant};

fn several(connections: u32) -> Point {
    Point { connections, ..brief() }
}

impl Stage {
    /// Runs the load of the point on a thread of its own, while its target keeps running.
    fn begin(&self) -> std::thread::JoinHandle<anyhow::Result<Sample>> {
        let (point, way, meter) = (self.point.clone(), self.serving.way.clone(), self.serving.meter.clone());
        std::thread::spawn(move || {
            let load = async move |world| drive::run(&world, &point, &way, &meter, point.verify, 1).await;
            uring::run(&uring::Options::default(), load).expect("a world")
        })
    }

    /// Returns the sessions, as soon as one of them has executed commands over `count` connections.
    #[track_caller]
    fn sessions_with(&self, count: usize) -> Vec<SessionReport> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let sessions: Vec<SessionReport> = self.ask(0, &["session", "list"], "sessions");
            if sessions.iter().any(|session| session.connections.len() == count && session.commands > 100) {
                return sessions;
            }
            assert!(Instant::now() < until, "{sessions:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn connections_of_a_session_carry_its_commands_and_lose_nothing() {
    let point =
        Point { reads: 50, verify: true, digests: true, sessions: 2, span: Span::from_millis(1500), ..several(4) };
    let stage = Stage::of(point);
    let load = stage.begin();
    let sessions = stage.sessions_with(4);
    let cids: Vec<u16> = sessions[0].connections.iter().map(|connection| connection.cid).collect();
    assert_eq!(cids, [0, 1, 2, 3]);
    let sample = load.join().expect("it ends").expect("it is measured");
    let proof = sample.proof.expect("it was to be proved");
    assert!(proof.judged > 0 && proof.faults == 0, "{proof:?}");
    assert!(sample.reads.commands > 100 && sample.writes.commands > 100);
    assert_eq!((sample.reads.errors + sample.writes.errors, sample.sessions.len()), (0, 2));
    // Each connection is one of the sockets that the meters have sampled.
    let sockets = sample.seen.expect("the kernel tells").sockets;
    let ends: u32 = sockets.iter().filter(|of| of.server).map(|of| of.count).sum();
    assert_eq!(ends, 8, "{sockets:?}");
}

#[test]
fn connection_that_is_lost_ends_the_load_and_is_named() {
    let stage = Stage::of(Point { span: Span::from_millis(20_000), ..several(3) });
    let load = stage.begin();
    let id = stage.sessions_with(3)[0].id.to_string();
    let _: serde_json::Value = stage.ask(0, &["session", "kill", &id, "--connection", "1"], "schema");
    let begun = Instant::now();
    let said = format!("{:#}", load.join().expect("it ends").expect_err("a connection is gone"));
    assert!(said.contains("connection 2 of 3 of the session"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it does not wait for what cannot come");
}

#[test]
fn more_connections_than_a_target_allows_are_refused_before_the_load() {
    let stage = Stage::of(several(9));
    let said = format!("{:#}", stage.begin().join().expect("it ends").expect_err("eight are allowed"));
    assert!(said.contains("allows 8 connections to a session, and 9 were asked for"), "{said}");
}
