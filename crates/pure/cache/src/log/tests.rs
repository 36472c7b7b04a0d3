use super::{LogError, LogId, UNIT_BYTES, WriteLog};
use crate::rig::Rig;
use crate::rig::disk::{Disk, Journal};
use crate::tests::randomized::Owner;
use crate::{Findings, VolumeId, WriteBack, WriteMemory, WritePolicy};
use block::{BlockDevice, Buf, Extent, Lba, Stable, View, Written};
use std::rc::Rc;

const LOG: LogId = LogId(77);

struct Bench {
    rig: Rig,
    log: Disk,
    disk: Disk,
}

impl Bench {
    fn new(log_bytes: u64) -> Self {
        let rig = Rig::in_order();
        let journal = Journal::default();
        let log = Disk::new(&rig.runtime, 1, 512, log_bytes, &journal);
        let disk = Disk::new(&rig.runtime, 0, 4096, 64 << 20, &journal);
        let bench = Self { rig, log, disk };
        let log = bench.log.clone();
        let formatted = bench.rig.run(async move { WriteLog::format(&log, LOG).await.map(drop) });
        formatted.unwrap();
        bench
    }

    fn open(&self) -> Result<super::Recovery<Disk, crate::rig::TestRuntime>, LogError> {
        let (log, runtime, owner) = (self.log.clone(), self.rig.runtime.clone(), Rc::new(Owner(Journal::default())));
        self.rig.run(async move { WriteLog::open(log, LOG, runtime, owner).await })
    }

    /// Writes `fills` to the blocks 0, 1, … through the log, and leaves them in it.
    fn write(&self, fills: &[u8]) {
        let recovery = self.open().unwrap();
        let log = self.rig.run(recovery.finish()).unwrap();
        let memory = WriteMemory::new(1 << 30);
        let (disk, runtime) = (self.disk.clone(), self.rig.runtime.clone());
        let volume = WriteBack::new(VolumeId(5), disk, runtime, &memory, Some(log), Findings::new(|_| ()));
        for (block, &fill) in (0..).zip(fills) {
            let volume = volume.clone();
            let _: Written = self
                .rig
                .run(async move {
                    volume.set_policy(WritePolicy::Back).await?;
                    volume.write(Lba(block), filled(fill)).await
                })
                .unwrap();
        }
    }

    /// Creates a log with three batches on a device that cannot read this unit of its ring. Each batch has one unit
    /// of header and one of data.
    fn without_unit(unit: u64) -> Self {
        let bench = Self::new(1 << 20);
        bench.write(&[1, 2, 3]);
        let blocks = UNIT_BYTES as u64 / u64::from(bench.log.geometry().block_bytes);
        bench.log.bad.borrow_mut().insert((2 + unit) * blocks);
        bench
    }

    fn replay(&self) -> super::Replayed {
        let mut recovery = self.open().unwrap();
        let disk = self.disk.clone();
        self.rig.run(async move { recovery.replay(VolumeId(5), &disk).await }).unwrap()
    }

    fn block(&self, block: u64) -> u8 {
        let disk = self.disk.clone();
        self.rig.run(async move { disk.read(Extent::new(block, 1)).await }).unwrap().into_view()[0]
    }
}

fn filled(byte: u8) -> View {
    let mut buf = Buf::zeroed(4096);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn log_replays_acknowledged_writes_of_every_volume() {
    let bench = Bench::new(1 << 20);
    bench.write(&[1, 2, 3]);
    let recovery = bench.open().unwrap();
    assert_eq!(recovery.volumes(), [VolumeId(5)]);
    let refused = bench.rig.run(recovery.finish());
    assert!(matches!(refused, Err(LogError::NotReplayed(volumes)) if volumes == [VolumeId(5)]));
    assert_eq!(bench.replay().records, 3);
    assert_eq!([0, 1, 2].map(|block| bench.block(block)), [1, 2, 3]);
    let mut recovery = bench.open().unwrap();
    recovery.give_up(VolumeId(5));
    assert!(bench.rig.run(recovery.finish()).is_ok());
    assert!(bench.open().unwrap().volumes().is_empty(), "what was given up does not come back");
}

#[test]
fn corrupt_record_is_reported_and_the_others_are_replayed() {
    let bench = Bench::new(1 << 20);
    bench.write(&[1, 2, 3]);
    // Each batch has a unit of header and one of data; the ring begins at unit 2.
    bench.log.rot((2 + 3) * UNIT_BYTES as u64 + 100);
    let replayed = bench.replay();
    assert_eq!((replayed.records, replayed.lost), (2, vec![Extent::new(1, 1)]));
    assert_eq!([0, 2].map(|block| bench.block(block)), [1, 3]);
}

#[test]
fn corrupt_header_is_counted_and_later_batches_are_replayed() {
    let bench = Bench::new(1 << 20);
    bench.write(&[1, 2, 3]);
    bench.log.rot((2 + 2) * UNIT_BYTES as u64 + 20);
    assert_eq!(bench.open().unwrap().damaged_batches(), 1);
    assert_eq!(bench.replay().records, 2);
    assert_eq!([0, 2].map(|block| bench.block(block)), [1, 3]);
}

/// Models an array below the log that reports blocks as lost which its own redo log could not restore.
#[test]
fn unreadable_unit_loses_its_own_content_only() {
    for (unit, damaged, lost) in [(2, 1, vec![]), (3, 0, vec![Extent::new(1, 1)])] {
        let bench = Bench::without_unit(unit);
        assert_eq!(bench.open().unwrap().damaged_batches(), damaged, "unit {unit}");
        let replayed = bench.replay();
        assert_eq!((replayed.records, replayed.lost), (2, lost), "unit {unit}");
        assert_eq!([0, 2].map(|block| bench.block(block)), [1, 3], "unit {unit}");
    }
}

/// A power cut leaves no unit that cannot be read: the last batch may have been acknowledged.
#[test]
fn unit_of_the_last_batch_that_cannot_be_read_is_damage() {
    for (unit, damaged, lost) in [(4, 1, vec![]), (5, 0, vec![Extent::new(2, 1)])] {
        let bench = Bench::without_unit(unit);
        assert_eq!(bench.open().unwrap().damaged_batches(), damaged, "unit {unit}");
        let replayed = bench.replay();
        assert_eq!((replayed.records, replayed.lost), (2, lost), "unit {unit}");
    }
}

#[test]
fn torn_last_batch_is_ignored_and_not_damage() {
    let bench = Bench::new(1 << 20);
    bench.write(&[1, 2, 3]);
    bench.log.rot((2 + 5) * UNIT_BYTES as u64 + 100);
    assert_eq!(bench.open().unwrap().damaged_batches(), 0);
    let replayed = bench.replay();
    assert_eq!((replayed.records, replayed.lost), (2, vec![]));
}

#[test]
fn one_corrupt_anchor_is_harmless_and_two_are_no_log() {
    for slots in [[0, 1], [1, 0]] {
        let bench = Bench::new(1 << 20);
        bench.write(&[1]);
        bench.log.rot(slots[0] * UNIT_BYTES as u64 + 9);
        assert_eq!(bench.open().unwrap().volumes(), [VolumeId(5)]);
        bench.log.rot(slots[1] * UNIT_BYTES as u64 + 9);
        assert!(matches!(bench.open(), Err(LogError::NotALog)));
    }
}

#[test]
fn foreign_log_and_too_small_device_are_refused() {
    let bench = Bench::new(1 << 20);
    let (log, runtime) = (bench.log.clone(), bench.rig.runtime.clone());
    let owner = Rc::new(Owner(Journal::default()));
    let opened = bench.rig.run(async move { WriteLog::open(log, LogId(78), runtime, owner).await.map(drop) });
    assert_eq!(opened, Err(LogError::Foreign { found: LOG }));
    let small = Disk::new(&bench.rig.runtime, 2, 4096, 65 * 4096, &Journal::default());
    let formatted = bench.rig.run(async move { WriteLog::format(&small, LOG).await.map(drop) });
    assert!(matches!(formatted, Err(LogError::TooSmall { .. })));
}

#[test]
fn ring_wraps_many_times_and_large_writes_are_split() {
    let bench = Bench::new(66 * 4096);
    let log = bench.rig.run(bench.open().unwrap().finish()).unwrap();
    let memory = WriteMemory::new(1 << 20);
    let (disk, runtime) = (bench.disk.clone(), bench.rig.runtime.clone());
    let volume = WriteBack::new(VolumeId(5), disk, runtime, &memory, Some(log.clone()), Findings::new(|_| ()));
    let writer = volume.clone();
    let total = bench.rig.run(async move {
        writer.set_policy(WritePolicy::Back).await.unwrap();
        let mut total = 0_u64;
        for n in 0..300_u64 {
            let blocks = 1 + n % 23;
            let mut data = Buf::zeroed(blocks as usize * 4096);
            data.fill(n as u8);
            let _: Written = writer.write(Lba(n * 31 % 400), data.freeze()).await.unwrap();
            total += blocks * 4096;
        }
        let _: Stable = writer.flush(Written::attest()).await.unwrap();
        total
    });
    let counters = log.counters();
    assert!(counters.data_bytes == total && total > 20 * 66 * 4096, "{counters:?}");
    assert!(counters.trims > 10, "{counters:?}");
}
