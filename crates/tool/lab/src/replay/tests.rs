use super::{Due, Fit, Kind, Pace, Plan, Script, Step};
use model::{Traced, TracedCommand};
use shard::Time;
use std::time::Duration;

const ALL: Fit = Fit { bytes: u64::MAX, block_bytes: Some(512), wrap: false };

fn command(cdb: &[u8], began_ns: u64, took_ns: u64) -> TracedCommand {
    let mut padded = [0; 16];
    padded[..cdb.len()].copy_from_slice(cdb);
    TracedCommand {
        number: 0,
        began_ns,
        took_ns,
        cdb: padded,
        session: 0,
        data_out_bytes: 0,
        data_in_bytes: 0,
        status: 0,
        sense: [0; 3],
    }
}

fn traced(commands: Vec<TracedCommand>) -> Traced {
    Traced {
        volume: "db".parse().unwrap(),
        block_bytes: 512,
        blocks: 1 << 32,
        begun_unix_ns: 0,
        span_ns: 0,
        overwritten: 0,
        unended: 0,
        sessions: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
        commands,
    }
}

#[test]
fn plan_has_the_address_the_length_and_the_flags_of_every_cdb_that_is_replayed() {
    let cdbs: [(&[u8], Kind, u64, u64, bool); 14] = [
        (&[0x08, 0x1f, 0x02, 0x03, 0, 0], Kind::Read, 0x1f_0203, 256, false),
        (&[0x0a, 0xe8, 0x02, 0x03, 7, 0], Kind::Write, 0x08_0203, 7, false),
        (&[0x28, 0x08, 1, 2, 3, 4, 0, 1, 2, 0], Kind::Read, 0x0102_0304, 0x0102, true),
        (&[0x2a, 0x10, 0, 0, 0, 9, 0, 0, 8, 0], Kind::Write, 9, 8, false),
        (&[0xa8, 0, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0], Kind::Read, 9, 256, false),
        (&[0xaa, 8, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0], Kind::Write, 9, 1, true),
        (&[0x88, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0], Kind::Read, (1 << 32) + 9, 2, false),
        (&[0x8a, 8, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0], Kind::Write, (1 << 32) + 9, 2, true),
        (&[0x41, 8, 0, 0, 0, 9, 0, 0, 5, 0], Kind::WriteSame, 9, 5, true),
        (&[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0, 0, 0], Kind::WriteSame, 9, 65536, false),
        (&[0x93, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0], Kind::WriteSame, 9, 1, true),
        (&[0x35, 0, 0, 0, 0, 9, 0, 0, 1, 0], Kind::Sync, 0, 0, false),
        (&[0x91], Kind::Sync, 0, 0, false),
        (&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], Kind::Read, 0, 1, false),
    ];
    let plan = Plan::of(&traced(cdbs.iter().map(|(cdb, ..)| command(cdb, 70, 3)).collect())).unwrap();
    let expected = cdbs.map(|(_, kind, lba, blocks, flag)| Step {
        kind,
        offset: lba * 512,
        bytes: blocks * 512,
        flag,
        began_ns: 0,
        took_ns: 3,
    });
    assert_eq!((plan.sessions, plan.skipped.len()), (vec![expected.to_vec()], 0));
}

#[test]
fn plan_counts_what_it_leaves_out() {
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let failed = TracedCommand { status: 2, ..command(&read, 5, 0) };
    let far = [0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0];
    let long = [0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    let empty = [0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let others = [&[0; 6][..], &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &[0x42], &far, &long, &empty, &[0xff]];
    let mut commands: Vec<TracedCommand> = others.map(|cdb| command(cdb, 5, 0)).into();
    commands.push(failed);
    let none = Plan::of(&traced(commands.clone())).unwrap_err();
    assert!(none.to_string().contains("no command that can be replayed"), "{none}");
    commands.extend([2, 0].map(|session| TracedCommand { session, ..command(&read, 9, 1) }));
    let plan = Plan::of(&traced(commands)).unwrap();
    assert_eq!(plan.sessions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1], "a session without steps is none");
    assert_eq!(plan.sessions[0][0].began_ns, 0, "the first step begins the replay");
    let skipped: Vec<(&str, u64)> = plan.skipped.iter().map(|(what, &times)| (what.as_str(), times)).collect();
    assert_eq!(
        skipped,
        [
            ("READ (10) of no blocks", 1),
            ("READ (10) that did not end with GOOD", 1),
            ("READ (16) behind the end of any unit", 1),
            ("TEST UNIT READY", 1),
            ("UNMAP", 2),
            ("WRITE (16) of more than 64 MiB", 1),
            ("unknown operation", 1),
        ]
    );
}

#[test]
fn plan_that_does_not_fit_is_refused_or_wrapped() {
    let at = |lba: u8, blocks: u8| command(&[0x2a, 0, 0, 0, 0, lba, 0, 0, blocks, 0], 0, 0);
    let plan = Plan::of(&traced(vec![at(0, 8), at(92, 8), at(97, 8), at(100, 1)])).unwrap();
    plan.clone().fit(ALL).unwrap();
    let exact = Fit { bytes: 105 * 512, ..ALL };
    plan.clone().fit(exact).unwrap();
    let small = plan.clone().fit(Fit { bytes: 104 * 512, ..ALL }).unwrap_err();
    assert!(small.to_string().contains("--wrap"), "{small}");
    let other = plan.clone().fit(Fit { block_bytes: Some(4096), ..ALL }).unwrap_err();
    assert!(other.to_string().contains("--block-size 512"), "{other}");
    let mut wrapped = plan.clone();
    wrapped.fit(Fit { bytes: 99 * 512 + 100, block_bytes: None, wrap: true }).unwrap();
    let places: Vec<u64> = wrapped.steps().map(|step| step.offset / 512).collect();
    assert_eq!(places, [0, 91, 91, 1]);
    assert!(plan.clone().fit(Fit { bytes: 7 * 512, wrap: true, ..ALL }).is_err());
}

fn step(began_ns: u64, took_ns: u64) -> Step {
    Step { kind: Kind::Write, offset: 512, bytes: 512, flag: false, began_ns, took_ns }
}

/// Two in parallel, then one that waited for the first of them, then one that waited for all.
#[test]
fn script_that_is_fast_keeps_what_waited_for_what() {
    let steps = vec![step(0, 10), step(0, 50), step(20, 20), step(60, 1)];
    let mut script = Script::new(steps, Pace::Fast, Time(1000), 7);
    assert_eq!(script.next(Time(10)), Due::At(Time(1000)));
    assert_eq!([script.next(Time(1000)), script.next(Time(1000))], [Due::Now(0), Due::Now(1)]);
    assert_eq!(script.next(Time(1000)), Due::Full);
    // The other one completes first this time, which does not release a step that waits for the first.
    script.ended(1, Time(1001), true);
    assert_eq!(script.next(Time(1001)), Due::Full);
    script.ended(0, Time(1002), true);
    assert_eq!(script.next(Time(1003)), Due::Now(2));
    assert_eq!(script.next(Time(1003)), Due::Full);
    script.ended(2, Time(1004), false);
    assert_eq!((script.next(Time(1004)), script.next(Time(1004)), script.under_way()), (Due::Now(3), Due::Over, 1));
    script.ended(3, Time(1009), true);
    let scores = script.scores();
    assert_eq!(
        scores.iter().map(|score| (score.well, score.took_ns)).collect::<Vec<_>>(),
        [(true, 1), (true, 2), (false, 1), (true, 5)]
    );
}

#[test]
fn script_at_the_recorded_pace_waits_for_nobody_and_says_how_late_it_was() {
    let mut script = Script::new(vec![step(0, 10), step(100, 10)], Pace::Recorded { speed: 2.0 }, Time(1000), 7);
    assert_eq!(script.next(Time(1000)), Due::Now(0));
    assert_eq!(script.next(Time(1000)), Due::At(Time(1050)));
    assert_eq!(script.next(Time(1080)), Due::Now(1), "though the first has not ended");
    script.ended(1, Time(1090), true);
    script.ended(0, Time(1100), true);
    let late: Vec<_> = script.scores().iter().map(|score| (score.late_ns, score.took_ns)).collect();
    assert_eq!(late, [(30, 40), (0, 100)]);
}

/// A long trace of one session is sorted in a short time.
#[test]
fn script_of_a_long_trace_is_made_at_once() {
    let steps: Vec<Step> = (0..200_000).map(|index| step(index * 10, 25)).collect();
    let mut script = Script::new(steps, Pace::Fast, Time(0), 7);
    let mut now = Time(0);
    for index in 0..200_000 {
        assert_eq!(script.next(now), Due::Now(index));
        now = now + Duration::from_nanos(1);
        script.ended(index, now, true);
    }
    assert_eq!(script.next(now), Due::Over);
}
