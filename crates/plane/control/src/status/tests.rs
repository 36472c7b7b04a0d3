//! Tests that every channel reports critical conditions: a row for each critical event, and for each way in
//! which a volume can be offline.

use super::conditions::{Condition, Snapshot};
use super::summary;
use crate::State;
use model::{
    DiskReport, Event, EventCode, EventSeverity, IsnsReport, LogState, PoolReport, PoolState, PortalReport,
    PortalState, Problem, Raised, Refusal, Severity, SpaceState, Subject, SubjectKind, Timestamp, VolumeReport, code,
    event,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a report")
}

fn pool() -> PoolReport {
    let member =
        json!({"slot": 0, "id": "11111111-1111-1111-1111-111111111111", "disk": "d0", "state": "in_sync", "errors": 0});
    let group = json!({"level": "raid1", "chunk": 65536, "member_size": 1 << 30, "state": "healthy", "members": [member], "rebuild": null});
    of(json!({
        "name": "tank", "id": "22222222-2222-2222-2222-222222222222", "state": "healthy", "size": 1u64 << 30, "used": 1u64 << 29,
        "volumes": 1, "groups": [group]
    }))
}

fn disk() -> DiskReport {
    of(json!({
        "name": "d0", "path": "/dev/sda", "size": 1u64 << 30, "logical_block_bytes": 512, "physical_block_bytes": 4096,
        "label": {"kind": "none"}, "state": "in_use",
        "counters": {"reads": 0, "writes": 0, "flushes": 0, "read_bytes": 0, "written_bytes": 0, "errors": 0}
    }))
}

fn volume(name: &str, backend: Value) -> VolumeReport {
    of(json!({
        "name": name, "id": "33333333-3333-3333-3333-333333333333", "size": 1 << 20, "block_bytes": 512, "backend": backend,
        "state": "failed", "reason": "its map is damaged",
        "counters": {"reads": 0, "writes": 0, "read_bytes": 0, "written_bytes": 0, "errors": 0}
    }))
}

/// Snapshot of a healthy array.
fn quiet() -> Snapshot {
    Snapshot {
        node: "n1".parse().expect("a name"),
        state: Arc::new(State::default()),
        disks: vec![disk()],
        pools: vec![pool()],
        away: Vec::new(),
        volumes: 1,
        portals: vec![portal(PortalState::Open)],
        isns: of::<IsnsReport>(
            json!({"server": null, "entity": "n1", "state": {"kind": "off"}, "targets": [], "portals": []}),
        ),
        noticed: BTreeMap::new(),
        hold: None,
        standing: Vec::new(),
    }
}

fn of_pool(change: impl FnOnce(&mut PoolReport)) -> Snapshot {
    let mut snapshot = quiet();
    change(&mut snapshot.pools[0]);
    snapshot
}

fn of_log(state: LogState) -> Snapshot {
    of_pool(|pool| {
        let group = pool.groups[0].clone();
        let volumes = vec!["tank/v".parse().expect("a name")];
        pool.log = Some(model::LogReport { state, size: pool.size, used: pool.used, volumes, reason: None, group });
    })
}

fn of_disk(change: impl FnOnce(&mut DiskReport)) -> Snapshot {
    let mut snapshot = quiet();
    change(&mut snapshot.disks[0]);
    snapshot
}

fn held_back(code: model::Code) -> Snapshot {
    Snapshot { hold: Some(Refusal::new(code, "it is so", "do this")), ..quiet() }
}

fn away(volume: VolumeReport) -> Snapshot {
    Snapshot { away: vec![volume], ..quiet() }
}

fn noticed(code: EventCode) -> Snapshot {
    let text = str::to_owned;
    let problem = Problem {
        severity: Severity::Critical,
        subject: text("audit"),
        state: text("unusable"),
        meaning: text("it is so"),
        action: text("do this"),
    };
    Snapshot { noticed: BTreeMap::from([((code, Subject::new(SubjectKind::Node, &"n1")), problem)]), ..quiet() }
}

fn standing(code: EventCode) -> Snapshot {
    let subject = Subject::pool(&"tank".parse().expect("a name"));
    let event = Event::first(1, Raised::new(Timestamp::default(), code, subject, "it is so"));
    Snapshot { standing: vec![event], ..quiet() }
}

fn not_listening() -> Snapshot {
    Snapshot { portals: vec![portal(PortalState::Failed { reason: "it is taken".to_owned() })], ..quiet() }
}

fn portal(state: PortalState) -> PortalReport {
    PortalReport {
        address: ([10, 0, 0, 1], 3260).into(),
        policy: model::PortalPolicy::default(),
        state,
        also_ipv4: false,
        sessions: 0,
    }
}

/// Snapshot of an array with exactly the condition of a critical event; a new event needs its row.
fn where_it_is_so(code: EventCode) -> Snapshot {
    match code {
        event::DISK_FAILING => {
            of_disk(|disk| disk.health = Some(model::DiskHealth { passed: Some(false), ..Default::default() }))
        }
        event::DISK_STALLED => of_disk(|disk| disk.counters.oldest_ns = 6_000_000_000),
        event::LOG_FAILED => of_log(LogState::Failed),
        event::LOG_LOST => of_log(LogState::Lost),
        event::VOLUME_HELD => away(volume("tank/v", json!({"kind": "pool", "stripe_unit": null}))),
        event::POOL_FAILED => of_pool(|pool| pool.state = PoolState::Failed),
        event::POOL_UNOPENED => of_pool(|pool| pool.state = PoolState::Missing),
        event::POOL_FENCED => of_pool(|pool| pool.fenced = Some("node b has it".to_owned())),
        event::POOL_FULL => of_pool(|pool| pool.space = SpaceState::NearlyFull),
        event::WRITE_REFUSED => of_pool(|pool| pool.space = SpaceState::Full),
        event::BLOCKS_LOST => of_pool(|pool| pool.lost.blocks = 8),
        event::PORTAL_UNUSABLE => not_listening(),
        event::STATE_OLDER => held_back(code::STATE_UNACCEPTED),
        event::STATE_REPLACED => held_back(code::STATE_REPLACED),
        event::TARGET_NAME_TAKEN | event::AUDIT_UNWRITABLE | event::DESCRIPTORS_SHORT => noticed(code),
        event::REBUILD_STOPPED
        | event::RESYNC_STOPPED
        | event::SCRUB_FOUND
        | event::MEMBERSHIP_UNKEPT
        | event::REDO_LOG_DAMAGED
        | event::UNFLUSHED_LOST
        | event::RESHAPE_STOPPED
        | event::MEMORY_WRONG
        | event::SANITIZE_FAILED
        | event::AUDIT_DAMAGED => standing(code),
        other => panic!("{other} is critical and has no row: how does the status know of it?"),
    }
}

fn told(snapshot: &Snapshot) -> (Vec<Condition>, String) {
    let conditions = snapshot.conditions();
    let problems: Vec<Problem> = conditions.iter().map(|condition| condition.problem.clone()).collect();
    let sentence = summary(&problems, &[]);
    (conditions, sentence)
}

#[test]
fn whatever_a_critical_event_tells_of_is_critical_in_the_status_and_alerted() {
    assert_eq!(told(&quiet()), (Vec::new(), "All good".to_owned()));
    let critical = event::CATALOGUE.iter().filter(|entry| entry.severity == EventSeverity::Critical);
    let mut rows = 0;
    for entry in critical {
        let snapshot = where_it_is_so(entry.code);
        let (conditions, sentence) = told(&snapshot);
        let [condition] = &conditions[..] else { panic!("{}: {conditions:?}", entry.code) };
        assert_eq!(condition.problem.severity, Severity::Critical, "{}", entry.code);
        assert_eq!((condition.code, condition.severity()), (entry.code, EventSeverity::Critical));
        assert!(!condition.is_chosen, "{} is alerted", entry.code);
        assert!(sentence.starts_with(&condition.problem.subject) && sentence.contains(&condition.problem.action));
        for pool in &snapshot.pools {
            let members: Vec<_> = pool.members().filter_map(|member| member.disk.as_ref()).collect();
            let concerns = condition.problem.concerns_pool(&pool.name, &members);
            let state = Problem::pool_state(pool, concerns.then_some(&condition.problem));
            assert_eq!(state == "healthy", !concerns, "{}: {state}", entry.code);
        }
        rows += 1;
    }
    assert!(rows > 20, "{rows}");
}

#[test]
fn volume_that_does_not_serve_is_critical_whatever_the_reason() {
    let file = || volume("backup", json!({"kind": "file", "path": "/srv/backup"}));
    let ways: [(&str, Snapshot); 8] = [
        ("tank/v", away(volume("tank/v", json!({"kind": "pool", "stripe_unit": null})))),
        ("backup", away(file())),
        ("backup", away(VolumeReport { state: model::VolumeState::Missing, ..file() })),
        ("pool tank", of_pool(|pool| pool.state = PoolState::Failed)),
        ("pool tank", of_pool(|pool| pool.state = PoolState::Missing)),
        ("pool tank", of_pool(|pool| pool.fenced = Some("node b has it".to_owned()))),
        ("log of pool tank", of_log(LogState::Lost)),
        ("pool tank", of_pool(|pool| pool.space = SpaceState::Full)),
    ];
    for (subject, snapshot) in ways {
        let (conditions, sentence) = told(&snapshot);
        assert_eq!(conditions.iter().map(|it| it.problem.severity).max(), Some(Severity::Critical), "{subject}");
        assert!(sentence.contains(subject), "{subject}: {sentence}");
    }
}

#[test]
fn volume_of_a_pool_that_is_held_back_says_why_and_what_can_be_done() {
    let (_, sentence) = told(&where_it_is_so(event::VOLUME_HELD));
    assert_eq!(sentence, "volume tank/v is offline: run blockyard pool check tank to see the options");
    let (conditions, _) = told(&where_it_is_so(event::VOLUME_HELD));
    assert_eq!(conditions[0].sentence(), "volume tank/v is offline: its map is damaged; hosts get errors");
}

#[test]
fn remote_disk_with_a_path_down_is_a_warning_that_names_the_path() {
    let remote = json!({"target": "iqn.2026-11.io.blockyard:a", "lun": 0, "paths": [
        {"portal": "10.0.0.1:3260", "state": "down", "reason": "the peer did not answer a ping"},
        {"portal": "10.0.1.1:3260", "state": "up", "active": true}
    ]});
    let (conditions, sentence) = told(&of_disk(|disk| disk.remote = Some(of(remote.clone()))));
    assert_eq!(
        conditions.iter().map(|it| (it.code, it.problem.severity)).collect::<Vec<_>>(),
        [(event::PATH_LOST, Severity::Warning)]
    );
    assert!(conditions[0].problem.meaning.contains("10.0.0.1:3260"), "{sentence}");
    let free = of_disk(|disk| (disk.state, disk.remote) = (model::DiskState::Free, Some(of(remote.clone()))));
    assert!(told(&free).0.is_empty(), "a disk that no pool uses has no path to lose");
}

#[test]
fn disk_that_has_failed_or_has_waited_for_a_moment_is_not_called_stalled() {
    let moment = of_disk(|disk| disk.counters.oldest_ns = 900_000_000);
    assert_eq!(told(&moment).1, "All good");
    let mut failed = where_it_is_so(event::DISK_STALLED);
    failed.pools[0].groups[0].members[0].state = model::MemberState::Failed;
    assert_eq!(told(&failed).1, "All good", "nobody waits for it any more");
}

/// Regression: both were one alert, which named the spare that came last.
#[test]
fn spares_in_use_are_an_alert_each() {
    let (conditions, _) = told(&of_pool(|pool| {
        let members = &mut pool.groups[0].members;
        members[0].replaces = Some("d8".to_owned());
        let other = model::MemberReport {
            disk: Some("d1".parse().expect("a name")),
            replaces: Some("d9".to_owned()),
            ..members[0].clone()
        };
        members.push(other);
    }));
    let alerts: Vec<_> = conditions.iter().map(|it| (it.topic, it.subject.name.as_str())).collect();
    assert_eq!(alerts, [(event::SPARE_TOOK_OVER, "d0"), (event::SPARE_TOOK_OVER, "d1")]);
}
