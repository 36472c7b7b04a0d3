//! Local files and disks without a target: the baseline for targets.

use crate::load::{Content, Due, Source};
use crate::replay::{self, Kind, Score, Script};
use anyhow::{Context, Result, ensure};
use block::{BlockDevice, Buf, Extent, IoError, Lba, Written};
use shard::{DiskOptions, Signal, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Block size that devices are opened with, which every supported device has.
pub(super) const BLOCK_BYTES: u32 = 512;
/// Bytes of zeros in one write.
const ZEROS_BYTES: usize = 1 << 20;

/// Opens all `paths`.
pub(super) async fn open<W: World>(world: &W, paths: &[String]) -> Result<Vec<Rc<W::Disk>>> {
    ensure!(!paths.is_empty(), "no device is named");
    let options = DiskOptions { block_bytes: BLOCK_BYTES, read_only: false };
    let mut disks = Vec::new();
    for path in paths {
        let disk = world.open_disk(path, options).await;
        disks.push(Rc::new(disk.with_context(|| format!("cannot open {path}"))?));
    }
    Ok(disks)
}

/// Returns the size of the device in bytes.
pub(super) fn bytes(disk: &impl BlockDevice) -> u64 {
    let geometry = disk.geometry();
    geometry.blocks.0 * u64::from(geometry.block_bytes)
}

/// Reads `len` bytes from `from` on.
pub(super) async fn read(disk: &impl BlockDevice, from: u64, len: u64) -> Result<Vec<u8>> {
    let block = u64::from(disk.geometry().block_bytes);
    let read = disk.read(Extent::new(from / block, len / block)).await?;
    Ok(read.to_buf().to_vec())
}

/// State shared by the commands of one session.
struct Shared {
    source: RefCell<Source>,
    /// Number of completed commands, and the signal for the next completion.
    ended: Cell<u64>,
    room: Signal,
}

/// Carries the commands of `source`, each as a task of its own.
pub(super) async fn drive<W: World>(world: &W, disk: Rc<W::Disk>, source: Source) -> Result<u64> {
    let shared = Rc::new(Shared { source: RefCell::new(source), ended: Cell::new(0), room: Signal::default() });
    loop {
        // The borrow ends with this line, because the tasks of the commands borrow the source as well.
        let due = shared.source.borrow_mut().next(world.now());
        match due {
            Due::Now(op) => {
                let content = shared.source.borrow_mut().begin(&op);
                let (shared, disk, inside) = (shared.clone(), disk.clone(), world.clone());
                // A task for each command, since a device has no queue that a session could fill by itself.
                world.spawn(async move {
                    let block = disk.geometry().block_bytes;
                    let start = Lba(op.offset / u64::from(block));
                    let (well, data) = match content {
                        Content::Write(data) => (disk.write(start, data).await.is_ok(), None),
                        Content::Keep | Content::Discard => {
                            let read = disk.read(Extent::new(start.0, u64::from(op.bytes / block))).await;
                            (
                                read.is_ok(),
                                read.ok().filter(|_| matches!(content, Content::Keep)).map(|data| data.to_buf()),
                            )
                        }
                    };
                    shared.source.borrow_mut().ended(&op, inside.now(), well, data.as_deref());
                    shared.ended.set(shared.ended.get() + 1);
                    shared.room.raise();
                });
            }
            Due::At(then) => world.sleep_until(then).await,
            Due::Over if shared.source.borrow().under_way() == 0 => return Ok(shared.source.borrow().commands()),
            Due::Full | Due::Over => {
                // Compared by count: a completion between the check and the wait is not missed.
                let seen = shared.ended.get();
                shared.room.until(|| shared.ended.get() != seen).await;
            }
        }
    }
}

/// State shared by the commands of a replay.
struct Stage {
    script: RefCell<Script>,
    /// Writes since the last flush.
    written: RefCell<Option<Written>>,
    ended: Cell<u64>,
    room: Signal,
}

/// Runs the steps of `script` when they are due, each as a task of its own; returns their results after the last one.
pub(super) async fn play<W: World>(world: &W, disk: Rc<W::Disk>, script: Script) -> Result<Vec<Score>> {
    let stage = Rc::new(Stage {
        script: RefCell::new(script),
        written: RefCell::default(),
        ended: Cell::new(0),
        room: Signal::default(),
    });
    loop {
        // As above: the borrow must not last while a command runs.
        let due = stage.script.borrow_mut().next(world.now());
        match due {
            replay::Due::Now(index) => {
                let (stage, disk, inside) = (stage.clone(), disk.clone(), world.clone());
                world.spawn(async move {
                    let well = stage.step(&*disk, index).await.is_ok();
                    stage.script.borrow_mut().ended(index, inside.now(), well);
                    stage.ended.set(stage.ended.get() + 1);
                    stage.room.raise();
                });
            }
            replay::Due::At(then) => world.sleep_until(then).await,
            replay::Due::Over if stage.script.borrow().under_way() == 0 => {
                let stage = Rc::into_inner(stage).context("a command holds on to its replay")?;
                return Ok(stage.script.into_inner().scores());
            }
            replay::Due::Full | replay::Due::Over => {
                // By count, as above: a completion between the check and the wait is not missed.
                let seen = stage.ended.get();
                stage.room.until(|| stage.ended.get() != seen).await;
            }
        }
    }
}

impl Stage {
    async fn step(&self, disk: &impl BlockDevice, index: usize) -> Result<(), IoError> {
        let step = self.script.borrow().step(index);
        let block = u64::from(disk.geometry().block_bytes);
        let extent = Extent::new(step.offset / block, step.bytes / block);
        match step.kind {
            Kind::Read => disk.read(extent).await.map(drop),
            Kind::Write => {
                let data = self.script.borrow().data(index);
                self.note(disk.write(extent.start, data.freeze()).await?);
                // FUA: the write must be stable before it completes (SBC-4 WRITE (16)).
                if step.flag { self.flush(disk).await } else { Ok(()) }
            }
            // WRITE SAME with UNMAP.
            Kind::WriteSame if step.flag => disk.discard(extent).await.map(|written| self.note(written)),
            Kind::WriteSame => {
                // Devices have no WRITE SAME, so the zeros are written in pieces.
                for from in (step.offset..step.offset + step.bytes).step_by(ZEROS_BYTES) {
                    let len = (step.offset + step.bytes - from).min(ZEROS_BYTES as u64);
                    self.note(disk.write(Lba(from / block), Buf::zeroed(len as usize).freeze()).await?);
                }
                Ok(())
            }
            Kind::Sync => self.flush(disk).await,
        }
    }

    fn note(&self, written: Written) {
        // A flush covers all writes so far, so their receipts are merged.
        let all = match self.written.take() {
            Some(before) => before.and(written),
            None => written,
        };
        self.written.replace(Some(all));
    }

    /// Makes all writes until now stable.
    async fn flush(&self, disk: &impl BlockDevice) -> Result<(), IoError> {
        // Taken before the flush: a write that ends meanwhile is not covered by it.
        let written = self.written.take();
        match written {
            Some(written) => disk.flush(written).await.map(drop),
            None => Ok(()),
        }
    }
}
