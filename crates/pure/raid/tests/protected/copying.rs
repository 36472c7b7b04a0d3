//! Copy of a member of a protected array to another disk: acknowledged data survives the loss of any other member and
//! of power at the instant of the exchange, and blocks that do not match their checksums come from the others.

use crate::bench::{Bench, Owner, Plan};
use crate::disk::{Content, Dice, Disk, Left, Rack};
use crate::oracle::run;
use block::{BlockDevice, Extent, IoError, Lba, Stable, Written};
use raid::{Array, Level, MemberState, Progress, RebuildOwner, Rebuilt, Repair};
use std::rc::Rc;

const LEVELS: [(Level, usize); 5] =
    [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
const WRITES: u64 = 6;

fn plan(level: Level, members: usize) -> Plan {
    Plan { chunk_blocks: 4, stripes: 8, ring_blocks: 128, ..Plan::small(level, members, true) }
}

/// Owner that writes at each step, and once more before the commit is confirmed.
struct Busy {
    owner: Owner,
    array: Rc<Array<Disk>>,
    name: u64,
}

impl Busy {
    async fn write(&mut self) -> Result<(), IoError> {
        self.name += 1;
        for block in 0..WRITES {
            let _ = self.array.write(Lba(block), run(self.name, Extent::new(block, 1))).await?;
        }
        let _ = self.array.flush(Written::attest()).await?;
        Ok(())
    }
}

impl RebuildOwner for Busy {
    async fn pace(&mut self, _: Progress) {
        self.write().await.expect("the host is served");
    }

    async fn commit(&mut self, member: u16, flushed: Stable, rebuilt: &Rebuilt) -> Result<Stable, IoError> {
        self.write().await?;
        self.owner.commit(member, flushed, rebuilt).await
    }
}

/// Creates an array with data, and copies a member to a disk with other content; returns the content of the first
/// blocks.
fn copied(plan: Plan, member: u16) -> (Bench, u64) {
    let bench = Bench::format(plan, 3);
    let all = Extent::new(0, bench.blocks());
    let _ = bench.write(0, run(1, all)).expect("healthy");
    bench.close();
    let disk = bench.rack.add(plan.disk_blocks(), true, Content::new());
    let mut busy = Busy { owner: Owner(bench.log.clone()), array: bench.array.clone(), name: 10 };
    let (array, stripes) = (bench.array.clone(), 0..bench.layout().stripes());
    let (copied, name) = bench.run(async move {
        let copied = array.copy_member(member, disk, &[stripes], &mut busy).await;
        (copied, busy.name)
    });
    assert_eq!(copied.expect("all is well").unreadable, []);
    // The new disk is the member: the bench has it in the member's place from now on.
    bench.rack.disks.borrow_mut().swap_remove(usize::from(member));
    (bench, name)
}

#[test]
fn writes_during_a_copy_survive_loss_of_a_member_and_of_power() {
    for (level, members) in LEVELS {
        for victim in 1..members as u16 {
            let (bench, name) = copied(plan(level, members), 0);
            assert_eq!(bench.state(0), MemberState::InService);
            bench.fail(victim);
            let rack = Rack::new(Dice::new(1));
            for Left { durable, .. } in bench.rack.cut() {
                rack.add(bench.plan.disk_blocks(), true, durable);
            }
            let (bench, _) = Bench::open(bench.plan, rack, &[victim], &[]).expect("one is lost");
            let all = Extent::new(0, bench.blocks());
            let mut expected = run(1, all).to_vec();
            expected[..WRITES as usize * 4096].copy_from_slice(&run(name, Extent::new(0, WRITES)));
            assert!(bench.read(all).expect("degraded") == expected, "{level} without {victim}");
        }
    }
}

#[test]
fn copied_member_has_its_checksums_and_its_anchor() {
    for (level, members) in LEVELS {
        let (bench, _) = copied(plan(level, members), 0);
        let scrubbed = bench.scrub(Repair::Report);
        let wrong = scrubbed.mismatches + scrubbed.unreadable + scrubbed.unknown + scrubbed.parity + scrubbed.degraded;
        assert_eq!((wrong, bench.scrub_metadata()), (0, 0), "{level}");
        bench.close();
        let (bench, opened) = bench.reopen();
        assert_eq!((opened.rejected.len(), bench.state(0)), (0, MemberState::InService), "{level}");
    }
}

#[test]
fn corrupt_blocks_of_the_member_are_not_copied() {
    let plan = plan(Level::Raid5, 4);
    let bench = Bench::format(plan, 5);
    let all = Extent::new(0, bench.blocks());
    let _ = bench.write(0, run(1, all)).expect("healthy");
    bench.close();
    let data = bench.array.place_of_data(0).0;
    for block in data..plan.disk_blocks() {
        bench.disk(1).overwrite(block, run(99, Extent::new(block, 1)));
    }
    let disk = bench.rack.add(plan.disk_blocks(), true, Content::new());
    let (array, log, stripes) = (bench.array.clone(), bench.log.clone(), 0..bench.layout().stripes());
    let copied = bench.run(async move { array.copy_member(1, disk, &[stripes], &mut Owner(log)).await });
    assert_eq!(copied.expect("the others have it").lost, []);
    bench.fail(0);
    assert!(bench.read(all).expect("degraded") == *run(1, all));
}
