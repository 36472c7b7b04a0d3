//! Test bed: a pool with families on recording disks, and the content that a host expects.

use crate::family::Tuning;
use crate::tests::disk::block_on;
use crate::tests::world::{Opened, TestPool, World, volume_id};
use crate::{
    ClonePlan, Lock, NewKey, PoolError, Provisioning, SnapshotPlan, SpaceEvent, ThinPlan, ThinVolume, Thresholds, Uuid,
};
use block::{BlockDevice, Buf, Extent, IoError, Lba, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) type TestVolume = ThinVolume<crate::tests::world::Disk, crate::tests::world::Group>;

/// Small nodes and logs, so that few operations exercise every path.
pub(crate) const TUNING: Tuning =
    Tuning { fanout: 6, changes_due: 24, pending_max: 16, records_max: 3, log_blocks: 16 };
/// Granule size in blocks: 64 KiB.
pub(crate) const GRANULE: u64 = 16;
const BLOCK: usize = 4096;

/// Stamp of a block: 0 when unwritten, otherwise unique per write.
pub(crate) type Stamp = u32;

pub(crate) fn snapshot_id(number: u64) -> Uuid {
    Uuid::from_u128(5000 + u128::from(number))
}

pub(crate) fn thin_plan(number: u64, blocks: u64) -> ThinPlan {
    ThinPlan {
        id: volume_id(number),
        name: format!("v{number}"),
        size_bytes: blocks * 4096,
        block_bytes: 4096,
        granule_bytes: 0,
        provisioning: Provisioning::Thin,
        zero_detection: false,
        // Every other volume is encrypted, so that each test covers both.
        encryption: number.is_multiple_of(2).then(|| new_key(number as u8)),
        created_at: 1,
    }
}

/// Data key of a volume, different for each `number`.
pub(crate) fn new_key(number: u8) -> NewKey {
    NewKey::from_random(&std::array::from_fn(|at| number.wrapping_mul(31) ^ at as u8))
}

pub(crate) fn snapshot_plan(number: u64, volume: u64) -> SnapshotPlan {
    SnapshotPlan {
        id: snapshot_id(number),
        volume: volume_id(volume),
        name: format!("s{number}"),
        lock: Lock::Open,
        created_at: 1,
    }
}

pub(crate) fn clone_plan(number: u64, snapshot: u64) -> ClonePlan {
    ClonePlan {
        id: volume_id(number),
        name: format!("v{number}"),
        snapshot: snapshot_id(snapshot),
        provisioning: Provisioning::Thin,
        zero_detection: false,
        created_at: 1,
    }
}

/// Pool of one mirror of two disks.
pub(crate) fn mirror() -> (World, Opened) {
    let world = World::blank(2);
    let opened = world.create(&[&[0, 1]]).unwrap();
    opened.pool.tune(TUNING);
    (world, opened)
}

/// The same pool, found again on the present content of the disks.
pub(crate) fn reopen(world: &World) -> (World, Opened) {
    let again = World::of(world.images());
    let opened = again.open().unwrap();
    opened.pool.tune(TUNING);
    (again, opened)
}

/// Data with `stamp` for its location: each sector carries both.
pub(crate) fn stamped(block: u64, blocks: u64, stamp: Stamp) -> View {
    let mut data = Buf::zeroed(blocks as usize * BLOCK);
    for (at, sector) in data.chunks_exact_mut(512).enumerate().filter(|_| stamp != 0) {
        let number = block + at as u64 / 8;
        for word in sector.chunks_exact_mut(8) {
            word[..4].copy_from_slice(&stamp.to_le_bytes());
            word[4..].copy_from_slice(&(number as u32).to_le_bytes());
        }
    }
    data.freeze()
}

/// Stamps of the sectors of a block, or a description of what is wrong with it.
pub(crate) fn stamps_of(block: u64, data: &[u8]) -> Result<Vec<Stamp>, String> {
    let one = |sector: &[u8]| {
        let word = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().unwrap());
        let (stamp, number) = (word(0), word(4));
        let uniform = sector[8..] == sector[..504];
        let placed = stamp == 0 && number == 0 || u64::from(number) == block;
        if uniform && placed { Ok(stamp) } else { Err(format!("block {block} holds {:02x?}", &sector[..16])) }
    };
    if data[512..] == data[..data.len() - 512] {
        return one(&data[..512]).map(|stamp| vec![stamp]);
    }
    data.chunks_exact(512).map(one).collect()
}

pub(crate) fn write(volume: &TestVolume, block: u64, blocks: u64, stamp: Stamp) -> Result<(), IoError> {
    block_on(volume.write(Lba(block), stamped(block, blocks, stamp))).map(drop)
}

pub(crate) fn flush(volume: &TestVolume) {
    let _ = block_on(volume.flush(block::Written::attest())).unwrap();
}

pub(crate) fn discard(volume: &TestVolume, block: u64, blocks: u64) {
    let _ = block_on(volume.discard(Extent::new(block, blocks))).unwrap();
}

/// Stamp of every stamped block of a device.
pub(crate) fn contents(device: &TestVolume) -> BTreeMap<u64, Stamp> {
    let all = device.geometry().all();
    let mut contents = BTreeMap::new();
    for run in block_on(device.mapped(all, usize::MAX)).unwrap() {
        // Only the ends of long holes are read.
        let (first, end) = (run.extent.start.0, run.extent.end().0);
        let parts = if run.mapped || end - first < 64 {
            vec![(first, end)]
        } else {
            vec![(first, first + 16), (end - 16, end)]
        };
        for (first, end) in parts {
            let data = block_on(device.read(Extent::new(first, end - first))).unwrap().into_view();
            for (block, data) in (first..).zip(data.chunks_exact(BLOCK)) {
                let stamps = stamps_of(block, data).unwrap();
                assert!(stamps.windows(2).all(|pair| pair[0] == pair[1]), "block {block} is mixed: {stamps:?}");
                assert!(run.mapped || stamps[0] == 0, "block {block} is a hole");
                if stamps[0] != 0 {
                    contents.insert(block, stamps[0]);
                }
            }
        }
    }
    contents
}

pub(crate) fn open(pool: &TestPool, number: u64) -> Rc<TestVolume> {
    block_on(pool.open_thin_volume(volume_id(number))).unwrap()
}

pub(crate) fn open_snapshot(pool: &TestPool, number: u64) -> Rc<TestVolume> {
    block_on(pool.open_snapshot(snapshot_id(number))).unwrap()
}

/// Space events that the pool raises from now on.
pub(crate) fn hear_of_space(pool: &TestPool, soft: u16, hard: u16) -> Rc<RefCell<Vec<SpaceEvent>>> {
    let heard: Rc<RefCell<Vec<SpaceEvent>>> = Rc::default();
    let hears = heard.clone();
    pool.on_space(Thresholds { soft, hard }, move |event| hears.borrow_mut().push(event));
    heard
}

pub(crate) fn snapshot(pool: &TestPool, number: u64, volume: u64) -> Result<(), PoolError> {
    block_on(pool.create_snapshots(&[snapshot_plan(number, volume)]))
}

/// Runs all background work; returns the numbers of granules and slabs freed.
pub(crate) fn run_maintenance(pool: &TestPool) -> (u64, u64) {
    let (mut granules, mut slabs) = (0, 0);
    for _ in 0..10_000 {
        let tended = block_on(pool.run_maintenance()).unwrap();
        granules += tended.freed_granules;
        slabs += tended.freed_slabs;
        if !tended.more {
            return (granules, slabs);
        }
    }
    panic!("the background work never ends");
}

/// Asserts that the pool check finds nothing.
pub(crate) fn assert_sound(pool: &TestPool) {
    let report = block_on(pool.check()).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
