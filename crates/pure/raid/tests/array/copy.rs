//! Copies of members to a spare disk beside them, which then takes their place.

use crate::bench::{Bench, Owner, noise};
use crate::disk::{Disk, Operation};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Stable, Written};
use raid::{Array, CopyError, Level, MemberState, Progress, RebuildOwner, Rebuilt};
use std::rc::Rc;

const REDUNDANT: [(Level, usize); 5] =
    [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
const STRIPES: u64 = 40;

/// Creates an array with data, and a used disk.
fn filled(level: Level, members: usize) -> (Bench, Vec<u8>, Disk) {
    let bench = Bench::new(level, members, 4, STRIPES);
    let data = noise(1, bench.layout().blocks().0);
    let _ = bench.write(0, data.clone()).expect("healthy");
    let _ = bench.flush().expect("healthy");
    let disk = Disk::used(bench.layout().member_blocks().0);
    (bench, data.to_vec(), disk)
}

fn copy(bench: &Bench, disk: &Disk, mut owner: impl RebuildOwner + 'static) -> Result<Rebuilt, CopyError> {
    let (array, disk) = (bench.array.clone(), disk.clone());
    bench.run(async move { array.copy_member(1, disk, &[0..STRIPES], &mut owner).await })
}

/// Owner that overwrites the whole array during the copy, one block per step and during the commit, too.
struct Busy {
    array: Rc<Array<Disk>>,
    step: u64,
}

impl Busy {
    async fn write(&mut self) {
        self.step += 1;
        let block = self.step * 7 % self.array.layout().blocks().0;
        let _ = self.array.write(Lba(block), noise(100 + block, 1)).await.expect("the host is served");
    }
}

impl RebuildOwner for Busy {
    async fn pace(&mut self, _: Progress) {
        self.write().await;
    }

    async fn commit(&mut self, _: u16, flushed: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
        self.write().await;
        let _ = self.array.flush(Written::attest()).await?;
        Ok(flushed)
    }
}

/// The old disk is not used any more, and the new one carries the data once another member fails.
fn holds(bench: &Bench, old: &Disk, expected: &[u8]) {
    drop(old.take_seen());
    let all = Extent::new(0, bench.layout().blocks().0);
    assert!(bench.read(all).expect("healthy") == expected);
    assert_eq!(bench.mismatches(), 0);
    let other = bench.array.clone();
    bench.run(async move { other.fail(0).await }).expect("spared");
    assert!(bench.read(all).expect("degraded") == expected);
    assert_eq!(old.take_seen(), []);
}

/// Regression: writes to RAID-0 took no lock, so a copy could overwrite one with what it had read before.
#[test]
fn write_to_raid0_waits_for_the_step_of_a_copy() {
    let (bench, _, disk) = filled(Level::Raid0, 2);
    disk.hold();
    let (array, owner, target) = (bench.array.clone(), bench.log.clone(), disk.clone());
    let copied = bench.begin(async move { array.copy_member(1, target, &[0..STRIPES], &mut Owner(owner)).await });
    bench.settle();
    // Stripe 0 has four blocks on each member; block 4 is the first on member 1.
    let (on_member, before) = (Extent::new(0, 1), bench.disk(1).bytes(Extent::new(0, 1)));
    let (array, data) = (bench.array.clone(), noise(7, 1));
    let written = bench.begin(async move { array.write(Lba(4), noise(7, 1)).await });
    bench.settle();
    assert!(bench.disk(1).bytes(on_member) == before, "the copy has read this block and not yet written it");
    disk.release();
    bench.settle();
    assert!(written.take().is_some_and(|written| written.is_ok()));
    assert!(copied.take().is_some_and(|copied| copied.is_ok()));
    assert!(disk.bytes(on_member) == *data, "the new disk has the new content");
}

#[test]
fn copied_member_is_the_new_disk_without_loss_of_redundancy() {
    for (level, members) in REDUNDANT {
        let (bench, data, disk) = filled(level, members);
        let old = bench.disk(1);
        drop(old.take_seen());
        let copied = copy(&bench, &disk, Owner(bench.log.clone())).expect("all is well");
        assert_eq!(copied, Rebuilt { stripes: STRIPES, ..Rebuilt::default() }, "{level}");
        assert_eq!(bench.state(1), MemberState::InService);
        assert!(bench.log.recorded.borrow().is_empty(), "nobody has failed");
        assert!(!old.take_seen().iter().any(|seen| matches!(seen, Operation::Write(_))), "a sick disk is left alone");
        disk.cut_power(|| false);
        holds(&bench, &old, &data);
    }
}

#[test]
fn copied_member_has_writes_made_during_the_copy() {
    for (level, members) in REDUNDANT {
        let (bench, mut data, disk) = filled(level, members);
        let old = bench.disk(1);
        let busy = Busy { array: bench.array.clone(), step: 0 };
        let _ = copy(&bench, &disk, busy).expect("all is well");
        for step in 1.. {
            let block = step * 7 % bench.layout().blocks().0;
            let at = block as usize * 4096;
            if data[at..at + 4096] == *noise(100 + block, 1) {
                break;
            }
            data[at..at + 4096].copy_from_slice(&noise(100 + block, 1));
            if step > 2 * STRIPES {
                break;
            }
        }
        // The number of steps follows from the array; blocks not written keep their content.
        let found = bench.read(Extent::new(0, bench.layout().blocks().0)).expect("healthy");
        let differs = found.chunks(4096).zip(data.chunks(4096)).filter(|(found, data)| found != data).count();
        assert!(differs <= 2 * STRIPES as usize, "{level}");
        disk.cut_power(|| false);
        holds(&bench, &old, &found);
    }
}

#[test]
fn copy_restores_unreadable_blocks_from_redundancy() {
    for (level, members) in REDUNDANT {
        let (bench, data, disk) = filled(level, members);
        let old = bench.disk(1);
        // All blocks: a disk that cannot read but still writes.
        old.bad.borrow_mut().extend(0..bench.layout().member_blocks().0);
        let copied = copy(&bench, &disk, Owner(bench.log.clone())).expect("the others have it");
        assert_eq!(copied.unreadable, [], "{level}");
        holds(&bench, &old, &data);
    }
}

#[test]
fn copy_reports_exactly_the_unrecoverable_blocks() {
    let (bench, _, disk) = filled(Level::Raid5, 4);
    bench.disk(1).bad.borrow_mut().extend([22, 23]);
    bench.disk(0).bad.borrow_mut().insert(22);
    let copied = copy(&bench, &disk, Owner(bench.log.clone())).expect("the rest is well");
    assert_eq!(copied.unreadable, [Extent::new(22, 1)]);
    let lost: Vec<(u16, u64)> = copied.lost.iter().map(|lost| bench.home(lost.start.0)).collect();
    assert_eq!(lost, [(0, 22), (1, 22)], "each of the two needs the other");
    for lost in &copied.lost {
        let error = bench.read(*lost).map(drop).expect_err("nobody knows");
        assert_eq!(error.kind, IoErrorKind::Medium);
    }
}

#[test]
fn new_disk_that_fails_ends_the_copy_only() {
    for (level, members) in REDUNDANT {
        let (bench, data, disk) = filled(level, members);
        disk.stuck.borrow_mut().insert(90);
        let error = copy(&bench, &disk, Owner(bench.log.clone())).expect_err("it cannot be written");
        assert!(matches!(error, CopyError::CopyLost(_)), "{level}: {error}");
        assert_eq!(bench.state(1), MemberState::InService);
        drop(disk.take_seen());
        let _ = bench.write(0, noise(1, 8)).expect("healthy");
        assert_eq!(disk.take_seen(), [], "nobody writes to it any more");
        assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("healthy") == data);
        assert!(bench.log.recorded.borrow().is_empty());
    }
}

/// Owner that fails the new disk, or the old one, during the commit.
struct Fails {
    disk: Disk,
    array: Rc<Array<Disk>>,
    refuses: bool,
}

impl RebuildOwner for Fails {
    async fn pace(&mut self, _: Progress) {}

    async fn commit(&mut self, _: u16, flushed: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
        self.disk.gone.set(true);
        let _ = self.array.write(Lba(0), noise(9, 16)).await.expect("another member holds it");
        let refused = IoError::new(IoErrorKind::ReadOnly, Extent::default());
        if self.refuses { Err(refused) } else { Ok(flushed) }
    }
}

/// From the commit on the catalog may name the new disk: a write that it lacks is never acknowledged while it is a
/// member.
#[test]
fn write_missing_on_the_new_disk_fails_the_member_once_the_copy_is_required() {
    for (level, members) in REDUNDANT {
        for refuses in [false, true] {
            let (bench, mut data, disk) = filled(level, members);
            let owner = Fails { disk: disk.clone(), array: bench.array.clone(), refuses };
            let error = copy(&bench, &disk, owner).expect_err("it is gone");
            assert_eq!(bench.state(1), MemberState::Failed, "{level}: {error}");
            assert_eq!(*bench.log.recorded.borrow(), [1]);
            data[..16 * 4096].copy_from_slice(&noise(9, 16));
            assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("degraded") == data, "{level}");
        }
    }
}

#[test]
fn missing_member_or_one_being_copied_is_not_copied() {
    let (bench, _, disk) = filled(Level::Raid6, 5);
    let array = bench.array.clone();
    bench.run(async move { array.fail(1).await }).expect("spared");
    assert_eq!(copy(&bench, &disk, Owner(bench.log.clone())), Err(CopyError::NotInService(1)));
    let small = Disk::new(3);
    let array = bench.array.clone();
    let log = bench.log.clone();
    let refused = bench.run(async move { array.copy_member(2, small, &[0..STRIPES], &mut Owner(log)).await });
    assert!(matches!(refused, Err(CopyError::Unfit(_))), "{refused:?}");
}
