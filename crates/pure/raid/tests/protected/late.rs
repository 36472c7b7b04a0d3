//! Members that respond late: blocks and checksums come from the others, and no error is counted.

use crate::bench::{Bench, Plan};
use crate::oracle::run;
use block::{Extent, View};
use raid::{Level, MemberState};

const LEVELS: [(Level, usize); 4] = [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)];

fn noise(name: u16, blocks: u64) -> View {
    run(name.into(), Extent::new(0, blocks))
}

/// Makes every member late in turn, with no checksum page in memory.
#[test]
fn late_member_is_read_around_with_its_pages_and_nothing_is_found_wrong() {
    for (level, members) in LEVELS {
        for late in 0..members as u16 {
            let bench = Bench::format(Plan::small(level, members, true), 1);
            let blocks = bench.blocks();
            let _ = bench.write(0, noise(1, blocks)).expect("healthy");
            bench.close();
            let (bench, _) = bench.reopen();
            bench.disk(late).is_late.set(true);
            assert_eq!(bench.read(Extent::new(0, blocks)).expect("the others have it"), *noise(1, blocks), "{level}");
            let _ = bench.write(1, noise(2, 1)).expect("no read needs the member");
            assert_eq!(bench.read(Extent::new(1, 1)).expect("it was written"), *noise(2, 1), "{level}");
            bench.flush();
            assert!(bench.findings.borrow().is_empty(), "{level}: {:?}", bench.findings.borrow());
            assert_eq!(bench.state(late), MemberState::InService);
            bench.disk(late).is_late.set(false);
            assert!(crate::bench::is_clean(&bench.scrub(raid::Repair::Report)), "{level} with {late} late");
        }
    }
}

#[test]
fn late_member_is_waited_for_where_the_others_cannot_tell() {
    for (level, members) in LEVELS {
        let bench = Bench::format(Plan::small(level, members, true), 1);
        let blocks = bench.blocks();
        let _ = bench.write(0, noise(1, blocks)).expect("healthy");
        bench.close();
        let (bench, _) = bench.reopen();
        let (late, data) =
            (bench.layout().member_of(0, raid::geometry::Role::Data { column: 0, copy: 0 }), bench.data());
        bench.disk(late).is_late.set(true);
        for member in (0..members as u16).filter(|&member| member != late) {
            bench.disk(member).bad.borrow_mut().extend(0..data + 4);
        }
        assert_eq!(bench.read(Extent::new(0, 1)).expect("it is only late"), noise(1, 1)[..4096], "{level}");
    }
}
