//! Growth and reshape of arrays during host I/O: by larger members, and by one more member.

use crate::bench::{Bench, Plan, is_clean};
use crate::crash::{Effort, QUICK, asked, judged};
use crate::oracle::run;
use crate::script::{Becomes, Failures, Kinds};
use block::{BlockDevice, Blocks, Extent, IoErrorKind, Lba};
use raid::geometry::Role;
use raid::{GrowError, Level, MemberState, Outcome, Repair};

/// Arrays whose reshape has stripes of each kind: over blocks not moved yet, over vacated space, and over unwritten
/// space.
pub(crate) fn reshaped_plans() -> Vec<Plan> {
    let of = |level, members, chunk_blocks, stripes, volatile| Plan {
        chunk_blocks,
        stripes,
        spare: true,
        ..Plan::small(level, members, volatile)
    };
    vec![
        of(Level::Raid5, 3, 2, 9, true),
        of(Level::Raid5, 3, 1, 12, false),
        of(Level::Raid6, 4, 2, 9, true),
        of(Level::Raid6, 4, 1, 12, false),
    ]
}

/// Arrays of every level on disks with room to grow.
pub(crate) fn grown_plans() -> Vec<Plan> {
    let of = |level, members, volatile| Plan { room: 36, ..Plan::small(level, members, volatile) };
    vec![
        of(Level::Raid0, 2, true),
        of(Level::Raid1, 2, true),
        of(Level::Raid5, 3, true),
        of(Level::Raid6, 4, false),
        of(Level::Raid10, 4, true),
    ]
}

pub(crate) const WIDER: Kinds = Kinds { failures: Failures::Any, rounds: 16, becomes: Becomes::Wider };
pub(crate) const LARGER: Kinds = Kinds { failures: Failures::Any, rounds: 10, becomes: Becomes::Larger };

fn fill(bench: &Bench, name: u64) {
    let blocks = bench.blocks();
    let _ = bench.write(0, run(name, Extent::new(0, blocks))).expect("serving");
    bench.flush();
}

#[test]
fn reshape_keeps_every_block_and_adds_zeros() {
    for plan in reshaped_plans() {
        let bench = Bench::format(plan, 5);
        fill(&bench, 1);
        let before = bench.blocks();
        assert_eq!(bench.add_member().expect("well"), plan.members as u16);
        assert_eq!(bench.blocks(), before, "hosts see no more before the end");
        let progress = bench.array.status().reshape.expect("it is under way");
        assert_eq!((progress.done, progress.total), (0, plan.stripes));
        bench.reshape().expect("well");
        let added = plan.stripes * plan.chunk_blocks;
        assert_eq!((bench.blocks(), bench.array.geometry().blocks.0), (before + added, before + added), "{plan:?}");
        assert_eq!(bench.array.status().reshape, None);
        let found = bench.read(Extent::new(0, before + added)).expect("well");
        assert!(found[..before as usize * 4096] == *run(1, Extent::new(0, before)), "{plan:?}");
        assert!(found[before as usize * 4096..].iter().all(|&byte| byte == 0), "{plan:?}");
        assert!(is_clean(&bench.scrub(Repair::Report)), "{plan:?}");
        assert!(bench.findings.borrow().is_empty(), "{:?}", bench.findings.borrow());
        // Each member may be lost, and is restored.
        for member in 0..plan.disks() as u16 {
            bench.fail(member);
            assert!(bench.read(Extent::new(0, before)).expect("degraded") == *run(1, Extent::new(0, before)));
            let rebuilt = bench.replace(member);
            assert_eq!((rebuilt.unreadable, bench.state(member)), (vec![], MemberState::InService), "{plan:?}");
        }
        assert!(is_clean(&bench.scrub(Repair::Report)), "{plan:?}");
        let (bench, opened) = bench.reopen();
        assert!(!opened.not_joined);
        fill(&bench, 2);
        assert!(bench.read(Extent::new(0, bench.blocks())).expect("well") == *run(2, Extent::new(0, bench.blocks())));
        assert!(is_clean(&bench.scrub(Repair::Report)), "{plan:?}");
    }
}

#[test]
fn grown_array_keeps_every_block_and_adds_zeros() {
    for plan in grown_plans() {
        let bench = Bench::format(plan, 5);
        fill(&bench, 1);
        let (before, size) = (bench.blocks(), plan.shape().member_blocks.0);
        let mut last = before;
        for step in 1..=3 {
            let foretold = bench.array.blocks_with(Blocks(size + step * 12));
            let blocks = bench.grow(size + step * 12).expect("there is room").0;
            assert!(blocks > last && bench.blocks() == blocks && bench.array.geometry().blocks.0 == blocks, "{plan:?}");
            assert_eq!(foretold, Ok(Blocks(blocks)), "{plan:?}");
            last = blocks;
        }
        let found = bench.read(Extent::new(0, last)).expect("well");
        assert!(found[..before as usize * 4096] == *run(1, Extent::new(0, before)), "{plan:?}");
        assert!(found[before as usize * 4096..].iter().all(|&byte| byte == 0), "{plan:?}");
        fill(&bench, 2);
        assert!(is_clean(&bench.scrub(Repair::Report)), "{plan:?}");
        let (bench, _) = bench.reopen();
        assert_eq!(bench.blocks(), last);
        // The owner may have recorded a size to which the array grew, but no other.
        let (rack, now) = (bench.rack.clone(), raid::Shape { member_blocks: Blocks(size + 24), ..plan.shape() });
        drop(bench);
        let now = raid::Shape { ring_blocks: 4711, ..now };
        assert!(Bench::open_as(&raid::Shape { member_blocks: Blocks(size + 25), ..now }, plan, rack.clone()).is_err());
        let (bench, _) = Bench::open_as(&now, plan, rack).expect("all members are there");
        assert_eq!(bench.blocks(), last);
        if plan.level != Level::Raid0 {
            bench.fail(1);
            let rebuilt = bench.replace(1);
            assert_eq!((rebuilt.unreadable, bench.state(1)), (vec![], MemberState::InService), "{plan:?}");
        }
        bench.close();
        let (bench, _) = bench.reopen();
        assert!(bench.read(Extent::new(0, last)).expect("well") == *run(2, Extent::new(0, last)), "{plan:?}");
        assert!(is_clean(&bench.scrub(Repair::Report)) && bench.findings.borrow().is_empty(), "{plan:?}");
    }
}

#[test]
fn growth_is_refused_with_a_sentence() {
    let striped = Plan { spare: true, ..Plan::small(Level::Raid0, 2, true) };
    assert_eq!(Bench::format(striped, 5).add_member(), Err(GrowError::Level(Level::Raid0)));
    let plan = Plan { room: 100, ..Plan::small(Level::Raid1, 2, true) };
    let bench = Bench::format(plan, 5);
    let size = plan.shape().member_blocks.0;

    assert_eq!(bench.grow(size), Err(GrowError::NotLarger { blocks: size, used: size }));
    let sentence = |result: Result<_, GrowError>| result.map(drop).map_err(|error| error.to_string());
    let needed = size + 101;
    assert_eq!(
        sentence(bench.grow(needed)),
        Err(format!(
            "member 0 has {}; this array needs members of at least {}",
            block::in_units((size + 100) * 4096, false),
            block::in_units(needed * 4096, true)
        ))
    );
    bench.fail(1);
    assert_eq!(bench.grow(size + 100), Err(GrowError::NotInService(1)));
    assert_eq!(bench.array.blocks_with(Blocks(size + 100)), Err(GrowError::NotInService(1)));
    bench.replace(1);
    for growth in 1..=8 {
        bench.grow(size + growth * 10).expect("there is room");
    }
    let refused = sentence(bench.grow(size + 100));
    assert_eq!(refused, Err("the array has grown 8 times; it cannot grow by larger members again".into()));
    let (bench, _) = bench.reopen();
    assert_eq!(sentence(bench.grow(size + 100)), refused);
}

/// Changes the block of a disk that holds block `lba` of the array, in the layout as formatted.
fn rot(bench: &Bench, lba: u64) {
    let layout = bench.plan.shape().layout().expect("a valid shape");
    let place = layout.locate(Lba(lba));
    let member = layout.member_of(place.stripe, Role::Data { column: place.column, copy: 0 });
    let at = bench.data() + place.stripe * layout.chunk_blocks() + place.row;
    let mut bytes = bench.disk(member).block(at).into_buf();
    bytes[77] ^= 1;
    bench.disk(member).overwrite(at, bytes.freeze());
}

#[test]
fn reshape_repairs_corrupt_blocks_and_keeps_lost_blocks_lost() {
    for plan in reshaped_plans().into_iter().filter(|plan| plan.level == Level::Raid5) {
        let (chunk, stripes) = (plan.chunk_blocks, [1, plan.stripes - 2]);
        let bench = Bench::format(plan, 5);
        fill(&bench, 1);
        bench.close();
        // In stripe 0 one block of a row, in two others two of a row: more than parity can restore.
        let lost: Vec<u64> = stripes.iter().flat_map(|stripe| [stripe * 2 * chunk, (stripe * 2 + 1) * chunk]).collect();
        rot(&bench, 0);
        lost.iter().for_each(|&lba| rot(&bench, lba));
        bench.add_member().expect("well");
        bench.reshape().expect("well");
        let told = |outcome| bench.findings.borrow().iter().filter(|finding| finding.outcome == outcome).count();
        assert_eq!((told(Outcome::Healed), told(Outcome::Lost)), (1, lost.len()), "{plan:?}");
        let check = |bench: &Bench| {
            for lba in 0..plan.stripes * 2 * chunk {
                match bench.read(Extent::new(lba, 1)) {
                    Ok(found) => {
                        assert!(found == *run(1, Extent::new(lba, 1)) && !lost.contains(&lba), "{plan:?}: {lba}")
                    }
                    Err(error) => {
                        assert!(error.kind == IoErrorKind::Medium && lost.contains(&lba), "{plan:?}: {lba}: {error}");
                    }
                }
            }
        };
        check(&bench);
        let (bench, _) = bench.reopen();
        check(&bench);
        fill(&bench, 2);
        assert!(is_clean(&bench.scrub(Repair::Report)), "{plan:?}");
        assert!(
            bench.read(Extent::new(0, bench.blocks())).expect("all was written")
                == *run(2, Extent::new(0, bench.blocks()))
        );
    }
}

#[test]
fn new_member_that_fails_while_joining_is_absent_or_failed() {
    let (mut joined, mut refused) = (0, 0);
    for turns in (0..700).step_by(9) {
        let plan = reshaped_plans()[0];
        let bench = Bench::format(plan, turns);
        fill(&bench, 1);
        let (array, disk) = (bench.array.clone(), bench.disk(3));
        let added = bench.begin(async move { array.add_member(disk).await });
        for _ in 0..turns {
            bench.executor.run_one(|woken| bench.rack.dice.roll(woken as u64) as usize);
        }
        bench.disk(3).gone.set(true);
        bench.settle();
        let _ = bench.write(3, run(2, Extent::new(3, 2))).expect("the others are well");
        bench.flush();
        match added.take().expect("it ends") {
            Err(GrowError::NewMemberFailed) => {
                assert_eq!(bench.array.status().members.len(), 3);
                refused += 1;
            }
            Ok(3) => joined += 1,
            other => panic!("{other:?}"),
        }
        // The member is present again, and the array is opened as if it were current, unless it is known to have
        // failed.
        bench.disk(3).gone.set(false);
        let (bench, opened) = bench.reopen();
        assert!(opened.rejected.is_empty(), "{opened:?}");
        if opened.not_joined {
            bench.add_member().expect("it is well now");
        }
        bench.reshape().expect("one may be missing");
        if bench.state(3) != MemberState::InService {
            assert_eq!(bench.replace(3).unreadable, []);
        }
        let mut expected = run(1, Extent::new(0, 36)).to_vec();
        expected[3 * 4096..5 * 4096].copy_from_slice(&run(2, Extent::new(3, 2)));
        expected.resize(54 * 4096, 0);
        assert!(bench.read(Extent::new(0, 54)).expect("well") == expected, "after {turns} turns");
        assert!(is_clean(&bench.scrub(Repair::Report)), "after {turns} turns");
    }
    assert!(joined > 0 && refused > 0, "{joined} joined, {refused} were refused");
}

/// A read that started before the reshape and that a disk stalls returns the correct content when the disk responds.
pub(crate) fn slow_read() -> Result<(), String> {
    for turns in (0..400).step_by(5) {
        let plan = reshaped_plans()[0];
        let bench = Bench::format(plan, 5);
        fill(&bench, 1);
        bench.close();
        let (array, disk) = (bench.array.clone(), bench.disk(plan.members as u16));
        let joined = bench.begin(async move {
            array.add_member(disk).await.map_err(|error| error.to_string())?;
            array.reshape(async |_| {}).await.map_err(|error| error.to_string())
        });
        for _ in 0..turns {
            bench.executor.run_one(|woken| bench.rack.dice.roll(woken as u64) as usize);
        }
        // Block 8 lies in stripe 2, which a moved stripe overwrites.
        let (layout, place) = (plan.shape().layout().expect("a valid shape"), Role::Data { column: 0, copy: 0 });
        let disk = bench.disk(layout.member_of(2, place));
        disk.stall_next_read.set(Some(bench.data() + 2 * plan.chunk_blocks));
        let array = bench.array.clone();
        let read = bench.begin(async move { array.read(Extent::new(8, 1)).await });
        bench.settle();
        disk.let_go();
        bench.settle();
        let found = read.take().ok_or("the read does not end")?.map_err(|error| error.to_string())?;
        if *found.into_view() != *run(1, Extent::new(8, 1)) {
            return Err(format!("another block was read after {turns} turns"));
        }
        joined.take().ok_or("the reshape does not end")??;
        if bench
            .read(Extent::new(0, bench.blocks()))
            .is_ok_and(|all| all[8 * 4096..9 * 4096] != *run(1, Extent::new(8, 1)))
            || !is_clean(&bench.scrub(Repair::Report))
        {
            return Err(format!("not as it was after {turns} turns"));
        }
    }
    Ok(())
}

/// The read starts before its block is moved.
pub(crate) fn slow_read_of_a_block_that_moves() -> Result<(), String> {
    let plan = reshaped_plans()[0];
    let bench = Bench::format(plan, 5);
    fill(&bench, 1);
    bench.close();
    bench.add_member().map_err(|error| error.to_string())?;
    let (layout, place) = (plan.shape().layout().expect("a valid shape"), Role::Data { column: 0, copy: 0 });
    let disk = bench.disk(layout.member_of(2, place));
    disk.stall_next_read.set(Some(bench.data() + 2 * plan.chunk_blocks));
    let (array, again) = (bench.array.clone(), bench.array.clone());
    let read = bench.begin(async move { array.read(Extent::new(8, 1)).await });
    bench.settle();
    let reshaped = bench.begin(async move { again.reshape(async |_| {}).await });
    bench.settle();
    disk.let_go();
    bench.settle();
    reshaped.take().ok_or("the reshape does not end")?.map_err(|error| error.to_string())?;
    match read.take().ok_or("the read does not end")? {
        Ok(found) if *found.clone().into_view() == *run(1, Extent::new(8, 1)) => Ok(()),
        other => Err(format!("another block was read: {}", other.is_ok())),
    }
}

#[test]
fn read_that_a_reshape_overtakes_returns_its_block() {
    slow_read().unwrap_or_else(|error| panic!("{error}"));
    slow_read_of_a_block_that_moves().unwrap_or_else(|error| panic!("{error}"));
}

/// An array so large that a growth adds pages to used regions: new blocks read as zeros.
pub(crate) fn large_growth() -> Result<(), String> {
    // From 30,000 to 45,000 pages: two then share a region. From 40,001 to 45,000: one has shared a region with none.
    for (pages, written) in [(30_000, 0), (40_001, 40_000)] {
        let (blocks, more) = (pages * 504, 45_000 * 504);
        let plan = Plan { stripes: blocks, room: more - blocks + 2 * 45_000, ..Plan::small(Level::Raid1, 2, true) };
        let bench = Bench::format(plan, 5);
        let first = Extent::new(written * 504, 3);
        let _ = bench.write(first.start.0, run(1, first)).expect("serving");
        bench.close();
        bench.grow(plan.disk_blocks()).map_err(|error| error.to_string())?;
        let (bench, _) = bench.reopen();
        if bench.read(first).map_err(|error| error.to_string())? != *run(1, first) {
            return Err("what was there is not".to_owned());
        }
        for page in written + 1..written + 3 {
            let extent = Extent::new(page * 504, 4);
            let found = bench.read(extent).map_err(|error| format!("page {page} of {pages}: {error}"))?;
            if found.iter().any(|&byte| byte != 0) {
                return Err("what is new does not read as zeros".to_owned());
            }
        }
        let last = Extent::new(bench.blocks() - 2, 2);
        let _ = bench.write(last.start.0, run(2, last)).expect("serving");
        bench.close();
        let (bench, _) = bench.reopen();
        if bench.read(last).map_err(|error| error.to_string())? != *run(2, last) || !bench.findings.borrow().is_empty()
        {
            return Err(format!("the last blocks: {:?}", bench.findings.borrow()));
        }
    }
    Ok(())
}

#[test]
fn growth_into_regions_that_are_used_reads_as_zeros() {
    large_growth().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn mirror_that_is_added_holds_everything_once_it_is_rebuilt() {
    // With one checksum page on each member, and with more pages than fit in memory.
    for stripes in [6, 6 * 504] {
        let plan = Plan { spare: true, stripes, ..Plan::small(Level::Raid1, 2, true) };
        let bench = Bench::format(plan, 5);
        let half = bench.blocks() / 2;
        let _ = bench.write(0, run(1, Extent::new(0, half))).expect("serving");
        bench.close();
        assert_eq!(bench.add_member().expect("well"), 2);
        assert_eq!((bench.blocks(), bench.array.status().reshape), (2 * half, None));
        let _ = bench.write(1, run(2, Extent::new(1, 2))).expect("serving");
        assert_eq!(bench.rebuild(2, vec![0..plan.stripes]).unreadable, []);
        assert_eq!(*bench.findings.borrow(), [], "nothing was wrong with the others");
        bench.close();
        let (bench, opened) = bench.reopen();
        assert!(!opened.not_joined && opened.rejected.is_empty());
        assert!(is_clean(&bench.scrub(Repair::Report)));
        assert_eq!(*bench.findings.borrow(), [], "every page has two copies");
        bench.fail(0);
        bench.fail(1);
        let mut expected = run(1, Extent::new(0, half)).to_vec();
        expected[4096..3 * 4096].copy_from_slice(&run(2, Extent::new(1, 2)));
        expected.resize(2 * half as usize * 4096, 0);
        assert!(bench.read(Extent::new(0, 2 * half)).expect("one mirror suffices") == expected);
    }
}

#[test]
fn array_after_any_power_cut_of_a_reshape_holds_old_or_new() {
    let (seeds, look) = asked();
    let look = if look.cuts == QUICK.cuts { Effort { cuts: 150, ..QUICK } } else { look };
    let mut total = 0;
    for seed in seeds {
        total += reshaped_plans().into_iter().map(|plan| judged(plan, WIDER, look, seed..seed + 1)).sum::<u64>();
        println!("seed {seed}: {total} states so far");
    }
}

#[test]
fn array_after_any_power_cut_of_a_growth_holds_old_or_new() {
    let (seeds, look) = asked();
    let mut total = 0;
    for seed in seeds {
        total += grown_plans().into_iter().map(|plan| judged(plan, LARGER, look, seed..seed + 1)).sum::<u64>();
        println!("seed {seed}: {total} states so far");
    }
}
