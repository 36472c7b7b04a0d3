//! Members that respond late: the others serve, and no error is counted against the late member.

use crate::bench::{Bench, noise};
use block::Extent;
use raid::{Level, MemberState};

const LEVELS: [(Level, usize); 4] = [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)];

#[test]
fn late_member_is_read_around_and_neither_rewritten_nor_reported() {
    for (level, members) in LEVELS {
        let bench = Bench::new(level, members, 4, 4);
        let blocks = bench.layout().blocks().0;
        let _ = bench.write(0, noise(1, blocks)).expect("healthy");
        bench.disk(0).is_late.set(true);
        let before = bench.status();
        assert_eq!(bench.read(Extent::new(0, blocks)).expect("the others have it"), *noise(1, blocks), "{level}");
        let status = bench.status();
        assert_eq!((status.members[0].errors, status.counters.heals), (0, 0), "{level}");
        assert!(status.members[0].timeouts > 0, "{level}: it was asked");
        assert_eq!(status.members[0].writes, before.members[0].writes, "{level}");
        assert_eq!(bench.state(0), MemberState::InService);
    }
}

#[test]
fn write_computes_the_content_of_a_late_member() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        for member in 0..u16::try_from(members).expect("few") {
            let bench = Bench::new(level, members, 4, 4);
            let blocks = bench.layout().blocks().0;
            let _ = bench.write(0, noise(1, blocks)).expect("healthy");
            bench.disk(member).is_late.set(true);
            for at in (1..blocks).step_by(5) {
                let _ = bench.write(at, noise(at, 1)).expect("no read needs the member");
            }
            bench.disk(member).is_late.set(false);
            assert_eq!(bench.mismatches(), 0, "{level} with member {member} late");
        }
    }
}

#[test]
fn late_member_is_waited_for_where_the_others_cannot_tell() {
    for (level, members) in LEVELS {
        let bench = Bench::new(level, members, 4, 4);
        let _ = bench.write(0, noise(1, bench.layout().blocks().0)).expect("healthy");
        let (holder, block) = bench.home(0);
        bench.disk(holder).is_late.set(true);
        for member in (0..members as u16).filter(|&member| member != holder) {
            bench.disk(member).bad.borrow_mut().insert(block);
        }
        assert_eq!(bench.read(Extent::new(0, 1)).expect("it is only late"), noise(1, 1)[..4096], "{level}");
    }
}

#[test]
fn late_member_that_the_array_needs_has_no_deadline() {
    let bench = Bench::new(Level::Raid0, 2, 4, 4);
    let _ = bench.write(0, noise(1, 8)).expect("healthy");
    bench.disk(0).is_late.set(true);
    assert_eq!(bench.read(Extent::new(0, 8)).expect("it is waited for"), *noise(1, 8));
    let bench = Bench::new(Level::Raid5, 3, 4, 4);
    let _ = bench.write(0, noise(1, 8)).expect("healthy");
    bench
        .run({
            let array = bench.array.clone();
            async move { array.fail(1).await }
        })
        .expect("one can be spared");
    bench.disk(0).is_late.set(true);
    assert_eq!(bench.read(Extent::new(0, 8)).expect("it is waited for"), *noise(1, 8));
}

#[test]
fn unresponsive_member_is_recorded_as_failed_unless_the_array_needs_it() {
    let spare = |level, members| Bench::new(level, members, 4, 4).array.redundancy_without(0);
    let spares = [
        (Level::Raid0, 2, None),
        (Level::Raid1, 2, Some(0)),
        (Level::Raid1, 3, Some(1)),
        (Level::Raid5, 4, Some(0)),
        (Level::Raid6, 4, Some(1)),
        (Level::Raid10, 4, Some(0)),
    ];
    for (level, members, expected) in spares {
        assert_eq!(spare(level, members), expected, "{level} of {members}");
    }
    let bench = Bench::new(Level::Raid6, 4, 4, 4);
    for member in 0..3 {
        bench.array.fail_unresponsive(member);
        bench.settle();
    }
    assert_eq!(*bench.log.recorded.borrow(), [0, 1], "the third is needed");
    assert_eq!((bench.state(2), bench.status().stopped), (MemberState::InService, None));
}
