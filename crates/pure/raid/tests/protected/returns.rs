//! Return of absent members, foreign disks in their place, and replacement of members.

use crate::bench::{Bench, Plan, is_clean};
use crate::disk::{Content, Dice, Left, Rack};
use crate::oracle::run;
use block::{BlockDevice, Extent, Lba, View};
use raid::{Level, MemberState, OpenError, Rejected, RejoinError, Repair};
use std::cell::RefCell;
use std::rc::Rc;

const LEVELS: [(Level, usize); 4] = [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

fn plan(level: Level, members: usize, stripes: u64) -> Plan {
    Plan { chunk_blocks: 4, stripes, ring_blocks: 128, ..Plan::small(level, members, true) }
}

/// Writes the whole array under a name.
fn fill(bench: &Bench, name: u64) {
    let stripe = bench.array.stripe_blocks();
    for first in (0..bench.blocks()).step_by(stripe as usize) {
        let extent = Extent::new(first, stripe);
        let _ = bench.write_unlogged(first, run(name, extent)).expect("serving");
    }
    bench.flush();
}

/// Fails a member, changes a little, and lets it return; returns the blocks that its rebuild wrote, and the array.
pub(crate) fn away_and_back(level: Level, members: usize) -> Result<u64, String> {
    // Eight regions of 504 blocks on each member.
    let bench = Bench::format(plan(level, members, 8 * 126), 3);
    fill(&bench, 1);
    bench.close();
    bench.fail(1);
    let _ = bench.write(0, run(2, Extent::new(0, 3))).expect("degraded");
    let disk = bench.disk(1);
    let written = disk.counts.blocks_written.get();
    let (array, device) = (bench.array.clone(), disk.clone());
    let missed = bench.run(async move { array.rejoin(1, device).await }).map_err(|error| error.to_string())?;
    let rebuilt = bench.rebuild(1, missed);
    if !rebuilt.unreadable.is_empty() || bench.state(1) != MemberState::InService {
        return Err(format!("{rebuilt:?}"));
    }
    let scrubbed = bench.scrub(Repair::Report);
    let mut expected = run(1, Extent::new(0, bench.blocks())).to_vec();
    expected[..3 * 4096].copy_from_slice(&run(2, Extent::new(0, 3)));
    let found = bench.read(Extent::new(0, bench.blocks())).map_err(|error| error.to_string())?;
    if !is_clean(&scrubbed) || found != expected {
        return Err(format!("after its return: {scrubbed:?}"));
    }
    Ok(disk.counts.blocks_written.get() - written)
}

#[test]
fn returned_member_gets_exactly_what_it_missed() {
    for (level, members) in LEVELS {
        let written = away_and_back(level, members).unwrap_or_else(|error| panic!("{level}: {error}"));
        assert!((1..1000).contains(&written), "{level}: {written} blocks of 4032 were written");
    }
}

/// A member is absent over a restart, and the regions that it missed are remembered.
pub(crate) fn away_over_a_restart(level: Level, members: usize) -> Result<(), String> {
    let bench = Bench::format(plan(level, members, 4 * 126), 3);
    fill(&bench, 1);
    bench.close();
    bench.fail(1);
    let _ = bench.write(5, run(2, Extent::new(5, 1))).expect("degraded");
    let (bench, _) = bench.reopen();
    let _ = bench.write(bench.blocks() - 1, run(3, Extent::new(bench.blocks() - 1, 1))).expect("degraded");
    let (bench, _) = bench.reopen();
    let (array, device) = (bench.array.clone(), bench.disk(1));
    let missed = bench.run(async move { array.rejoin(1, device).await }).map_err(|error| error.to_string())?;
    let stripes: u64 = missed.iter().map(|range| range.end - range.start).sum();
    if stripes >= bench.layout().stripes() {
        return Err("everything counts as missed".to_owned());
    }
    let _ = bench.rebuild(1, missed);
    let scrubbed = bench.scrub(Repair::Report);
    if is_clean(&scrubbed) { Ok(()) } else { Err(format!("after its return: {scrubbed:?}")) }
}

#[test]
fn member_returned_after_restarts_gets_what_it_missed() {
    for (level, members) in LEVELS {
        away_over_a_restart(level, members).unwrap_or_else(|error| panic!("{level}: {error}"));
    }
}

/// An old copy of a member is rejected, at opening and at its return.
pub(crate) fn stale_member(level: Level, members: usize) -> Result<(), String> {
    let bench = Bench::format(plan(level, members, 8), 3);
    fill(&bench, 1);
    bench.close();
    let old = bench.disk(1).content();
    for name in 2..6 {
        let _ = bench.write(0, run(name, Extent::new(0, 4))).expect("serving");
        bench.close();
    }
    let shape = bench.plan.shape();
    let copy = bench.rack.add(shape.member_blocks.0, true, old);
    bench.rack.disks.borrow_mut().pop();
    bench.rack.disks.borrow_mut()[1] = copy.clone();
    let (bench, opened) = Bench::open(bench.plan, bench.rack.clone(), &[], &[]).map_err(|error| error.to_string())?;
    if opened.rejected != [(1, Rejected::Stale)] {
        return Err(format!("{opened:?}"));
    }
    let array = bench.array.clone();
    match bench.run(async move { array.rejoin(1, copy).await }) {
        Err(RejoinError::NotTheOne(Rejected::Stale)) => {}
        other => return Err(format!("{other:?}")),
    }
    let found = bench.read(Extent::new(0, 4)).map_err(|error| error.to_string())?;
    if found == *run(5, Extent::new(0, 4)) { Ok(()) } else { Err("old content was read".to_owned()) }
}

#[test]
fn stale_member_is_never_read_as_current() {
    for (level, members) in LEVELS {
        stale_member(level, members).unwrap_or_else(|error| panic!("{level}: {error}"));
    }
}

/// Restores the earlier content of the members.
fn put_back(bench: &Bench, old: impl IntoIterator<Item = (u16, Content)>) {
    for (member, content) in old {
        let copy = bench.rack.add(bench.plan.shape().member_blocks.0, true, content);
        bench.rack.disks.borrow_mut().pop();
        bench.rack.disks.borrow_mut()[usize::from(member)] = copy;
    }
}

/// Two adjacent members, which have all copies of the pages of one of them, go back by one checkpoint.
pub(crate) fn stale_neighbours() -> Result<(), String> {
    for first in 0..5_u16 {
        let bench = Bench::format(plan(Level::Raid6, 5, 8), 3);
        fill(&bench, 1);
        bench.close();
        let stale = [first, (first + 1) % 5];
        let old = stale.map(|member| bench.disk(member).content());
        // Little enough for a single checkpoint, the one at the end.
        let changed = Extent::new(0, 1);
        let _ = bench.write(0, run(2, changed)).expect("serving");
        bench.close();
        put_back(&bench, stale.into_iter().zip(old));
        let (bench, _) = Bench::open(bench.plan, bench.rack.clone(), &[], &[]).map_err(|error| error.to_string())?;
        let found = bench.read(changed).map_err(|error| format!("{stale:?}: {error}"))?;
        if found != *run(2, changed) {
            return Err(format!("{stale:?}: old content was read"));
        }
    }
    Ok(())
}

#[test]
fn neighbors_that_lack_a_new_page_are_rejected() {
    // Eight regions of one page; one has the overwritten blocks, and another gets its first page then.
    for (region, new) in (0..8).flat_map(|region| (0..8).map(move |new| (region, new))).filter(|(a, b)| a != b) {
        // Enough memory that no page has to be written before the end.
        let plan = Plan { page_bytes: 1 << 20, ..plan(Level::Raid1, 3, 8 * 126) };
        let bench = Bench::format(plan, region);
        let [at, first] = [region, new].map(|region| region * 504);
        let _ = bench.write(at, run(1, Extent::new(at, 1))).expect("serving");
        bench.close();
        let old = [1, 2].map(|member| (member, bench.disk(member).content()));
        for (name, at) in [(2, at), (3, first)] {
            let _ = bench.write(at, run(name, Extent::new(at, 1))).expect("serving");
        }
        bench.close();
        put_back(&bench, old);
        let (bench, _) = Bench::open(bench.plan, bench.rack.clone(), &[], &[]).expect("one member is well");
        for _ in 0..3 {
            let found = bench.read(Extent::new(at, 1)).expect("it is there");
            assert!(found == *run(2, Extent::new(at, 1)), "in region {region}, and {new} was new");
        }
    }
}

#[test]
fn neighbors_that_are_both_stale_by_one_checkpoint_are_rejected() {
    stale_neighbours().unwrap_or_else(|error| panic!("{error}"));
}

/// A write that was cut when only one member had it in its log, and that was decided not to have happened while that
/// member was absent, does not reappear when the member returns.
pub(crate) fn decided() -> Result<(), String> {
    let plan = Plan { ring_blocks: 32, ..plan(Level::Raid1, 2, 8) };
    let bench = Bench::format(plan, 3);
    let _ = bench.write(0, run(1, Extent::new(0, 1))).expect("serving");
    bench.close();
    let cuts: Rc<RefCell<Vec<Vec<Left>>>> = Rc::default();
    let (weak, all) = (Rc::downgrade(&bench.rack), cuts.clone());
    bench.rack.watch(move || all.borrow_mut().extend(weak.upgrade().map(|rack| rack.cut())));
    let _ = bench.write(0, run(2, Extent::new(0, 1))).expect("serving");
    bench.rack.watch(|| {});
    let ring = plan.shape().area().expect("a valid shape").ring;
    let in_log = |left: &Left| left.later.iter().any(|(block, _)| ring.contains(Extent::new(*block, 1)));
    let cut = cuts.take().into_iter().find(|cut| cut.iter().all(in_log)).ok_or("no batch was in flight")?;
    let rack = Rack::new(Dice::new(1));
    for (member, left) in cut.into_iter().enumerate() {
        let mut content = left.durable;
        let later = left.later.into_iter().filter(|_| member == 1);
        content.extend(later.filter_map(|(block, versions)| Some((block, versions.last()?.0.clone()))));
        rack.add(plan.shape().member_blocks.0, true, content);
    }
    let (bench, _) = Bench::open(plan, rack, &[], &[1]).map_err(|error| error.to_string())?;
    let is_old = |bench: &Bench| bench.read(Extent::new(0, 1)).is_ok_and(|found| found == *run(1, Extent::new(0, 1)));
    if !is_old(&bench) {
        return Err("the batch was on the other member".to_owned());
    }
    let (array, device) = (bench.array.clone(), bench.disk(1));
    let missed = bench.run(async move { array.rejoin(1, device).await }).map_err(|error| error.to_string())?;
    let _ = bench.rebuild(1, missed);
    let (bench, _) = bench.reopen();
    if is_old(&bench) { Ok(()) } else { Err("it happened later".to_owned()) }
}

#[test]
fn write_discarded_by_recovery_never_reappears() {
    decided().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn foreign_and_swapped_members_are_rejected_untouched() {
    let bench = Bench::format(plan(Level::Raid6, 5, 8), 3);
    fill(&bench, 1);
    bench.close();
    let rack = bench.rack.clone();
    rack.disks.borrow_mut().swap(1, 2);
    let before = [1, 2].map(|member| bench.disk(member).counts.writes.get());
    drop(bench.array);
    let (bench, opened) = Bench::open(plan(Level::Raid6, 5, 8), rack.clone(), &[], &[]).expect("two may be missing");
    assert_eq!(opened.rejected, [(1, Rejected::OtherMember(2)), (2, Rejected::OtherMember(1))]);
    assert_eq!([1, 2].map(|member| bench.disk(member).counts.writes.get()), before);
    rack.disks.borrow_mut().swap(0, 1);
    match Bench::open(plan(Level::Raid6, 5, 8), rack, &[], &[]) {
        Err(OpenError::Rejected(rejected)) => assert_eq!(rejected.len(), 3),
        other => panic!("{:?}", other.map(|(_, opened)| opened)),
    }
}

#[test]
fn array_that_was_closed_replays_nothing_and_opening_writes_one_anchor() {
    for (level, members) in LEVELS {
        let bench = Bench::format(plan(level, members, 8), 3);
        fill(&bench, 1);
        let _ = bench.write(3, run(2, Extent::new(3, 2))).expect("serving");
        bench.close();
        let writes = |bench: &Bench| bench.rack.disks.borrow().iter().map(|disk| disk.counts.writes.get()).sum::<u64>();
        let before = writes(&bench);
        let (bench, opened) = bench.reopen();
        assert_eq!((opened.batches, opened.rejected.len()), (0, 0), "{level}");
        assert_eq!(writes(&bench), before + members as u64, "{level}");
    }
}

#[test]
fn rebuild_over_a_lost_block_completes_and_keeps_it_lost() {
    let bench = Bench::format(plan(Level::Raid5, 4, 8), 3);
    fill(&bench, 1);
    bench.close();
    bench.fail(1);
    // A row of another member becomes unreadable.
    let layout = bench.layout();
    let lost_lba = (0..bench.blocks()).find(|&lba| {
        let place = layout.locate(block::Lba(lba));
        layout.member_of(place.stripe, raid::geometry::Role::Data { column: place.column, copy: 0 }) == 2
            && place.stripe == 2
    });
    let lost_lba = lost_lba.expect("member 2 holds data of stripe 2");
    let place = layout.locate(block::Lba(lost_lba));
    bench.disk(2).bad.borrow_mut().insert(bench.data() + place.stripe * 4 + place.row);
    let rebuilt = bench.replace(1);
    assert_eq!((rebuilt.unreadable.len(), bench.state(1)), (1, MemberState::InService));
    bench.close();
    let (bench, _) = bench.reopen();
    let errors = |bench: &Bench| (0..bench.blocks()).filter(|&lba| bench.read(Extent::new(lba, 1)).is_err()).count();
    assert!((1..=2).contains(&errors(&bench)), "the block that is lost, and the one that it was needed for");
    let stripe = bench.array.stripe_blocks();
    let _ = bench.write(2 * stripe, run(5, Extent::new(2 * stripe, stripe))).expect("a whole stripe needs nothing");
    assert_eq!(errors(&bench), 0);
    assert!(is_clean(&bench.scrub(Repair::Report)));
}

#[test]
fn array_whose_members_are_replaced_one_by_one_keeps_its_data() {
    for (level, members) in LEVELS {
        let bench = Bench::format(plan(level, members, 12), 3);
        let half = bench.blocks() / 2;
        let _ = bench.write(0, run(1, Extent::new(0, half))).expect("serving");
        for member in 0..members as u16 {
            bench.fail(member);
            let name = 10 + u64::from(member);
            let _ = bench.write(1, run(name, Extent::new(1, 2))).expect("degraded");
            let rebuilt = bench.replace(member);
            assert_eq!((rebuilt.unreadable, bench.state(member)), (vec![], MemberState::InService), "{level}");
            bench.disk(member).patient.set(true);
        }
        let array = Rc::clone(&bench.array);
        assert!(array.geometry().discard_zeroes);
        assert!(is_clean(&bench.scrub(Repair::Report)), "{level}");
        let (bench, _) = bench.reopen();
        let mut expected = run(1, Extent::new(0, half)).to_vec();
        expected[4096..3 * 4096].copy_from_slice(&run(10 + members as u64 - 1, Extent::new(1, 2)));
        assert_eq!(bench.read(Extent::new(0, half)).expect("well"), expected, "{level}");
        assert!(bench.read(Extent::new(half, half)).expect("well").iter().all(|&byte| byte == 0), "{level}");
    }
}

#[test]
fn replacement_is_not_charged_for_operations_of_its_predecessor() {
    for (level, members) in LEVELS {
        let bench = Bench::format(plan(level, members, 16), 5);
        fill(&bench, 1);
        let old = bench.disk(0);
        // Writes of every kind are in flight on it: batches, data in place, pages and an anchor.
        old.hang();
        let array = bench.array.clone();
        let written = bench.begin(async move { array.write(Lba(0), run(2, Extent::new(0, 3))).await });
        let array = bench.array.clone();
        let checkpoint = bench.begin(async move { array.checkpoint().await });
        bench.settle();
        bench.fail(0);
        let array = bench.array.clone();
        let device = bench.rack.add(bench.plan.shape().member_blocks.0, true, Content::new());
        array.replace(0, device).expect("its place is free");
        old.give_up();
        bench.settle();
        assert_eq!(bench.state(0), MemberState::Rebuilding { front_stripe: 0 }, "{level}");
        let _ = written.take().expect("ended").expect("the others have it");
        let _ = checkpoint.take().expect("ended").expect("the others are well");
        let stripes = bench.layout().stripes();
        bench.rebuild(0, std::iter::once(0..stripes).collect());
        assert!(is_clean(&bench.scrub(Repair::Report)), "{level}");
    }
}

/// The power is cut when one member alone has a batch, which that member then cannot read at the opening: the batch
/// must not be found at the next opening either.
pub(crate) fn batch_that_was_not_found() -> Result<(), String> {
    let plan = plan(Level::Raid1, 2, 8);
    let bench = Bench::format(plan, 3);
    let _ = bench.write(0, run(1, Extent::new(0, 1))).map_err(|error| error.to_string())?;
    bench.close();
    let before = [0, 1].map(|member| bench.disk(member).content());
    let _ = bench.write(0, run(2, Extent::new(0, 1))).map_err(|error| error.to_string())?;
    let ring = plan.shape().area().map_err(|error| error.to_string())?.ring;
    let is_new = |(at, now): &(u64, View)| {
        ring.contains(Extent::new(*at, 1)) && before[0].get(at).is_none_or(|old: &View| **old != **now)
    };
    let logged: Content = bench.disk(0).content().into_iter().filter(is_new).collect();
    let batch = *logged.keys().next().ok_or("nothing was logged")?;
    let rack = Rack::new(Dice::new(1));
    let [mut with, without] = before;
    with.extend(logged);
    for content in [with, without] {
        rack.add(plan.disk_blocks(), true, content);
    }
    rack.disks.borrow()[0].bad.borrow_mut().insert(batch);
    let (bench, opened) = Bench::open(plan, rack, &[], &[]).map_err(|error| error.to_string())?;
    if opened.batches != 0 {
        return Err("the batch was found at once: nothing is tested".to_owned());
    }
    bench.disk(0).bad.borrow_mut().clear();
    let (bench, opened) = bench.reopen();
    let found = bench.read(Extent::new(0, 1)).map_err(|error| error.to_string())?;
    if opened.batches == 0 && found == *run(1, Extent::new(0, 1)) {
        Ok(())
    } else {
        Err(format!("it came back: {opened:?}"))
    }
}

#[test]
fn batch_that_an_opening_has_not_found_is_never_found_again() {
    batch_that_was_not_found().unwrap_or_else(|error| panic!("{error}"));
}
