//! Transitions in which a rebuilt member comes into service: what is written then survives any loss that the array
//! tolerates with it.

use crate::bench::{Bench, Owner, Plan};
use crate::disk::{Content, Dice, Left, Rack};
use crate::oracle::run;
use block::{BlockDevice, Extent, IoError, Lba, Stable};
use raid::{Array, Level, MemberState, Progress, RebuildOwner, Rebuilt};
use std::rc::Rc;

const LEVELS: [(Level, usize); 5] =
    [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
const WRITES: u64 = 6;

fn plan(level: Level, members: usize, stripes: u64) -> Plan {
    Plan { chunk_blocks: 4, stripes, ring_blocks: 128, ..Plan::small(level, members, true) }
}

/// Owner that writes when the rebuild has done everything but the commit.
struct Busy {
    owner: Owner,
    array: Rc<Array<crate::disk::Disk>>,
}

impl RebuildOwner for Busy {
    async fn pace(&mut self, _: Progress) {}

    async fn commit(&mut self, member: u16, flushed: Stable, rebuilt: &Rebuilt) -> Result<Stable, IoError> {
        for block in 0..WRITES {
            let _ = self.array.write(Lba(block), run(9, Extent::new(block, 1))).await?;
        }
        self.owner.commit(member, flushed, rebuilt).await
    }
}

/// Content of every disk after a power cut now, with nothing that is not stable.
fn after_a_cut(bench: &Bench, plan: &Plan) -> Rc<Rack> {
    let rack = Rack::new(Dice::new(1));
    for Left { durable, .. } in bench.rack.cut() {
        rack.add(plan.disk_blocks(), true, durable);
    }
    rack
}

/// Writes around the moment in which a member comes into service; then another is lost, and the power is cut.
pub(crate) fn written_as_it_comes(level: Level, members: usize) -> Result<(), String> {
    let plan = plan(level, members, 8);
    for victim in 1..members as u16 {
        let bench = Bench::format(plan, 3);
        let all = Extent::new(0, bench.blocks());
        let _ = bench.write(0, run(1, all)).map_err(|error| error.to_string())?;
        bench.close();
        bench.fail(0);
        let disk = bench.rack.add(plan.disk_blocks(), true, Content::new());
        bench.rack.disks.borrow_mut().swap_remove(0);
        bench.array.replace(0, disk).map_err(|error| error.to_string())?;
        let mut owner = Busy { owner: Owner(bench.log.clone()), array: bench.array.clone() };
        let (array, all_stripes) = (bench.array.clone(), 0..bench.layout().stripes());
        let rebuilt = bench.run(async move { array.rebuild(0, &[all_stripes], &mut owner).await });
        rebuilt.map_err(|error| error.to_string())?;
        bench.fail(victim);
        let rack = after_a_cut(&bench, &plan);
        let (bench, _) = Bench::open(plan, rack, &[victim], &[]).map_err(|error| error.to_string())?;
        for block in 0..WRITES {
            let extent = Extent::new(block, 1);
            let found = bench.read(extent).map_err(|error| format!("without {victim}: {error}"))?;
            if found != *run(9, extent) {
                return Err(format!("without {victim}: block {block} is not what was written"));
            }
        }
    }
    Ok(())
}

#[test]
fn writes_while_a_member_joins_survive_the_loss_of_another() {
    for (level, members) in LEVELS {
        written_as_it_comes(level, members).unwrap_or_else(|error| panic!("{level} of {members}: {error}"));
    }
}

/// A member is rebuilt during a checkpoint that writes pages of a region for the first time.
pub(crate) fn filled_amid_a_checkpoint() -> Result<(), String> {
    // Two regions of one page, one of them used; enough memory that only the test starts checkpoints.
    let plan = Plan { page_bytes: 1 << 20, ..plan(Level::Raid5, 3, 2 * 126) };
    let bench = Bench::format(plan, 3);
    let _ = bench.write(0, run(1, Extent::new(0, 1))).map_err(|error| error.to_string())?;
    bench.close();
    bench.fail(0);
    let new = Extent::new(bench.blocks() - 8, 8);
    let _ = bench.write(new.start.0, run(2, new)).map_err(|error| error.to_string())?;
    // The second home of the new region's page of member 1, which is written after the first homes.
    let area = plan.shape().area().map_err(|error| error.to_string())?;
    bench.disk(2).stall_next_write.set(Some(area.pages_b.start.0 + 1));
    let array = bench.array.clone();
    let checkpoint = bench.begin(async move { array.checkpoint().await });
    bench.settle();
    let disk = bench.rack.add(plan.disk_blocks(), true, Content::new());
    bench.rack.disks.borrow_mut().swap_remove(0);
    bench.array.replace(0, disk).map_err(|error| error.to_string())?;
    let (array, mut owner, stripes) = (bench.array.clone(), Owner(bench.log.clone()), 0..bench.layout().stripes());
    let rebuilt = bench.begin(async move { array.rebuild(0, &[stripes], &mut owner).await });
    bench.settle();
    bench.disk(2).let_go();
    bench.settle();
    let _ = checkpoint.take().ok_or("the checkpoint hangs")?.map_err(|error| error.to_string())?;
    rebuilt.take().ok_or("the rebuild hangs")?.map_err(|error| error.to_string())?;
    // The member with the other copies of the pages of member 0 is lost.
    bench.close();
    let (bench, _) = Bench::open(plan, bench.rack.clone(), &[1], &[]).map_err(|error| error.to_string())?;
    let found = bench.read(new).map_err(|error| error.to_string())?;
    if found == *run(2, new) { Ok(()) } else { Err("not what was written".to_owned()) }
}

#[test]
fn member_rebuilt_during_a_checkpoint_has_the_new_pages() {
    filled_amid_a_checkpoint().unwrap_or_else(|error| panic!("{error}"));
}

/// A returned member is rebuilt, and the power is cut while it gets its pages; it is current only if it has all of
/// them.
pub(crate) fn cut_while_pages_come() -> Result<(), String> {
    // Sixteen regions; so little memory that the pages are written in several checkpoints.
    let plan = Plan { page_bytes: 8 * 4096, ..plan(Level::Raid5, 3, 16 * 126) };
    for after in 0.. {
        let bench = Bench::format(plan, after);
        let every: Vec<Extent> = (0..16).map(|region| Extent::new(region * 2 * 504, 2)).collect();
        for &at in &every {
            let _ = bench.write(at.start.0, run(1, at)).map_err(|error| error.to_string())?;
        }
        bench.close();
        bench.fail(0);
        for &at in &every {
            let _ = bench.write(at.start.0, run(2, at)).map_err(|error| error.to_string())?;
        }
        let (array, device) = (bench.array.clone(), bench.disk(0));
        let missed = bench.run(async move { array.rejoin(0, device).await }).map_err(|error| error.to_string())?;
        let anchors = bench.disk(1).counts.flushes.get();
        let (array, mut owner) = (bench.array.clone(), Owner(bench.log.clone()));
        let rebuilt = bench.begin(async move { array.rebuild(0, &missed, &mut owner).await });
        let mut steps = 0;
        while bench.disk(1).counts.flushes.get() < anchors + after && rebuilt.take().is_none() {
            let turns = bench.executor.run_one(|woken| bench.rack.dice.roll(woken as u64) as usize);
            steps += 1;
            if !turns {
                break;
            }
        }
        if bench.state(0) == MemberState::InService {
            return if after > 8 { Ok(()) } else { Err(format!("{steps} steps, {after} flushes: too few to judge")) };
        }
        let rack = after_a_cut(&bench, &plan);
        let (bench, _) = Bench::open(plan, rack, &[0], &[]).map_err(|error| error.to_string())?;
        let (array, device) = (bench.array.clone(), bench.disk(0));
        let Ok(missed) = bench.run(async move { array.rejoin(0, device).await }) else { continue };
        let _ = bench.rebuild(0, missed);
        bench.close();
        bench.fail(1);
        for &at in &every {
            let found = bench.read(at).map_err(|error| format!("cut at flush {after}: {error}"))?;
            if found != *run(2, at) {
                return Err(format!("cut at flush {after}: not what was written"));
            }
        }
    }
    Ok(())
}

#[test]
fn member_that_did_not_get_all_of_its_pages_is_not_taken_for_current() {
    cut_while_pages_come().unwrap_or_else(|error| panic!("{error}"));
}

/// Writes that start while a member is absent leave it out, and are logged after its return; then as many others fail
/// as the level tolerates.
pub(crate) fn left_out(level: Level, members: usize) -> Result<(), String> {
    let plan = plan(level, members, 8);
    let stripe = Bench::format(plan, 3).array.stripe_blocks();
    // Whole stripes stall at their in-place writes; smaller writes at the reads of the rest of the stripe.
    for (start, blocks) in (0..8).flat_map(|at| [(at * stripe, stripe), (at * stripe, 1)]) {
        for (is_fresh, absent) in [true, false].into_iter().flat_map(|is| (0..members as u16).map(move |of| (is, of))) {
            let bench = Bench::format(plan, 3);
            let all = Extent::new(0, bench.blocks());
            let _ = bench.write(0, run(1, all)).map_err(|error| error.to_string())?;
            bench.close();
            bench.fail(absent);
            let new = Extent::new(start, blocks);
            let at = bench.data() + start / stripe * plan.chunk_blocks;
            for disk in bench.rack.disks.borrow().iter() {
                disk.stall_next_read.set(Some(at));
                disk.stall_next_write.set(Some(at));
            }
            let array = bench.array.clone();
            let written = bench.begin(async move {
                match is_fresh {
                    true => array.write_unlogged(new.start, run(2, new)).await,
                    false => array.write(new.start, run(2, new)).await,
                }
            });
            bench.settle();
            // The returning disk must not stall.
            bench.disk(absent).let_go();
            let (array, device) = (bench.array.clone(), bench.disk(absent));
            let missed =
                bench.run(async move { array.rejoin(absent, device).await }).map_err(|error| error.to_string())?;
            let (array, mut owner) = (bench.array.clone(), Owner(bench.log.clone()));
            let rebuilt = bench.begin(async move { array.rebuild(absent, &missed, &mut owner).await });
            bench.settle();
            // Once for reads, once for writes.
            for _ in 0..2 * members {
                bench.rack.disks.borrow().iter().for_each(crate::disk::Disk::let_go);
                bench.settle();
            }
            let what = format!("{level} of {members}, {new:?}, fresh {is_fresh}, {absent} was away");
            let _ = written
                .take()
                .ok_or(format!("{what}: the write hangs"))?
                .map_err(|error| format!("{what}: {error}"))?;
            let _ = rebuilt
                .take()
                .ok_or(format!("{what}: the rebuild hangs"))?
                .map_err(|error| format!("{what}: {error}"))?;
            bench.flush();
            let others = (0..members as u16).filter(|&member| member != absent);
            others.take(usize::from(bench.array.tolerates())).for_each(|member| bench.fail(member));
            let found = bench.read(new).map_err(|error| format!("{what}: {error}"))?;
            if found != *run(2, new) {
                return Err(format!("{what}: not what was written"));
            }
            let scrubbed = bench.scrub(raid::Repair::Report);
            if !crate::bench::is_clean(&scrubbed) {
                return Err(format!("{what}: {scrubbed:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn writes_that_excluded_a_member_are_on_it_after_its_rebuild() {
    for (level, members) in LEVELS {
        left_out(level, members).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A write that waits for log space is not in a batch covered by a checkpoint that starts meanwhile.
pub(crate) fn written_when_the_log_is_full() -> Result<(), String> {
    let plan = Plan { ring_blocks: 32, page_bytes: 1 << 20, ..plan(Level::Raid1, 2, 2 * 126) };
    let area = plan.shape().area().map_err(|error| error.to_string())?;
    let mut waited = 0;
    for writes in 8..16 {
        let bench = Bench::format(plan, writes);
        let _ = bench.write(0, run(1, Extent::new(0, 1))).map_err(|error| error.to_string())?;
        // A checkpoint that frees next to nothing, and as many batches behind it as there is room for.
        bench.disk(1).stall_next_write.set(Some(area.pages_a.start.0));
        let array = bench.array.clone();
        let checkpoint = bench.begin(async move { array.checkpoint().await });
        bench.settle();
        for write in 0..writes {
            let _ = bench.write(write, run(2, Extent::new(write, 1))).map_err(|error| error.to_string())?;
        }
        let last = Extent::new(bench.blocks() - 3, 3);
        let array = bench.array.clone();
        let written = bench.begin(async move { array.write(last.start, run(9, last)).await });
        bench.settle();
        let waits = written.take();
        bench.disk(1).let_go();
        bench.settle();
        let _ = checkpoint.take().ok_or("the checkpoint hangs")?.map_err(|error| error.to_string())?;
        if waits.is_some() {
            continue;
        }
        waited += 1;
        let _ = written.take().ok_or("the write hangs")?.map_err(|error| error.to_string())?;
        bench.fail(0);
        let stripe = bench.layout().stripes() - 1;
        if !bench.array.missed().iter().any(|stripes| stripes.contains(&stripe)) {
            return Err(format!("after {writes} writes, the last does not count among those that may be missed"));
        }
    }
    if waited > 0 { Ok(()) } else { Err("no write had to wait".to_owned()) }
}

#[test]
fn write_that_waited_for_the_log_counts_as_missed_by_a_member_that_fails() {
    written_when_the_log_is_full().unwrap_or_else(|error| panic!("{error}"));
}
