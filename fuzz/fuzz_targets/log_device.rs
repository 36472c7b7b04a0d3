//! Fuzz target: the write log of a device with damaged or forged units. It is found or refused, and it replays to
//! volumes only data that was written to them.
#![no_main]

mod disk;
mod image;

use block::{BlockDevice, Extent, IoError, Stable};
use cache::{LogId, LogOwner, Runtime, VolumeId, WriteLog};
use disk::{Change, Disk, now, pattern, structured};
use futures_util::future::LocalBoxFuture;
use image::{BLOCK, Image, seal};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use shard::time::{Sleep, Timers};
use shard::{Executor, Time};
use simd::crc32c::crc32c;
use std::future::Future;
use std::rc::Rc;

const UNITS: u64 = 512;
const LOG: LogId = LogId(77);
const EPOCH: u64 = 3;
/// Number of volumes, which are written in turn.
const VOLUMES: u128 = 2;
const BATCHES: u64 = 12;
const VOLUME_BLOCKS: u64 = 32;

#[derive(Arbitrary, Debug)]
struct Input {
    /// The devices of the volumes are smaller than before.
    small: bool,
    changes: Vec<Change>,
}

thread_local! {
    static BASE: (Image, Vec<u64>) = structured(written());
}

fuzz_target!(|input: Input| {
    let changes = &input.changes[..input.changes.len().min(8)];
    let device = BASE.with(|base| {
        let device = [Disk::new(UNITS, base.0.clone())];
        changes.iter().for_each(|change| {
            change.strike(&device, std::slice::from_ref(base));
        });
        let [device] = device;
        device
    });
    let decays = changes.iter().all(|change| change.kind.is_decay());
    let is_whole = changes.is_empty();
    let clock = Clock { executor: Executor::new(Box::new(|| {})), timers: Timers::default() };
    let Ok(mut found) = now(WriteLog::open(device, LOG, clock, Rc::new(Nobody))) else {
        // The anchor has two copies, so a single damaged block cannot make the log unreadable.
        return assert!(!decays || changes.len() > 1, "one block costs the whole log");
    };
    let mut lost = found.damaged_batches() > 0;
    for volume in found.volumes() {
        let blocks = if input.small { VOLUME_BLOCKS / 2 } else { VOLUME_BLOCKS };
        let below = Disk::new(blocks, Image::default());
        let replayed = now(found.replay(volume, &below));
        assert!(replayed.is_ok() || input.small || !decays || !is_whole, "a log that is whole cannot be replayed");
        let Ok(replayed) = replayed else { continue };
        lost |= !replayed.lost.is_empty();
        for block in 0..blocks {
            let data = now(below.read(Extent::new(block, 1))).expect("memory").into_view();
            let is_known = *data == [0; BLOCK] || (1..=BATCHES).any(|batch| *data == pattern(block, batch as u8));
            assert!(is_known || !decays, "block {block} holds what nobody wrote");
            if is_whole && !input.small {
                assert_eq!(*data == [0; BLOCK], last_of(volume, block).is_none());
            }
        }
    }
    assert!(!is_whole || !lost, "a log that is whole has lost something");
});

/// Returns the last batch that wrote the block.
fn last_of(volume: VolumeId, block: u64) -> Option<u64> {
    (1..=BATCHES).rev().find(|&batch| volume.0 == u128::from(batch) % VOLUMES && block_of(batch) == block)
}

fn block_of(batch: u64) -> u64 {
    batch * 5 % VOLUME_BLOCKS
}

/// Builds a log of [`BATCHES`] batches of one record each, as docs/on-disk.md defines it.
fn written() -> Image {
    let mut image = Image::default();
    let anchor = |sequence: u64| {
        let mut unit = [0; BLOCK];
        unit[..8].copy_from_slice(b"BYLOGANC");
        unit[8] = 1;
        for (at, word) in [(16, sequence), (24, EPOCH), (32, 0), (40, 1)] {
            unit[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        unit[48..64].copy_from_slice(&LOG.0.to_le_bytes());
        unit
    };
    image.put(0, &anchor(2));
    image.put(1, &anchor(1));
    for batch in 1..=BATCHES {
        let mut unit = [0; BLOCK];
        unit[..8].copy_from_slice(b"BYLOGBAT");
        (unit[8], unit[10]) = (1, 1);
        for (at, word) in [(16, EPOCH), (24, batch), (56, batch - 1)] {
            unit[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        unit[32..36].copy_from_slice(&2_u32.to_le_bytes());
        unit[40..56].copy_from_slice(&LOG.0.to_le_bytes());
        let data = pattern(block_of(batch), batch as u8);
        let record = &mut unit[64..128];
        record[..16].copy_from_slice(&(u128::from(batch) % VOLUMES).to_le_bytes());
        for (at, word) in [(16, block_of(batch)), (24, 1), (32, batch)] {
            record[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in [(40, BLOCK as u32), (44, BLOCK as u32), (48, crc32c(&data))] {
            record[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        record[52] = 1;
        let at = 2 + (batch - 1) * 2;
        image.put(at, &unit);
        image.put(at + 1, &data);
    }
    structured(image.clone()).1.into_iter().for_each(|at| seal(&mut image, at));
    image
}

/// Runtime whose tasks never run; replaying a log needs none.
#[derive(Clone)]
struct Clock {
    executor: Executor,
    timers: Timers,
}

impl Runtime for Clock {
    fn now(&self) -> Time {
        Time::default()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        self.timers.sleep_until(at)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task);
    }
}

struct Nobody;

impl LogOwner for Nobody {
    fn abandon(&self, error: IoError, _: Vec<VolumeId>) -> LocalBoxFuture<'static, Result<Stable, IoError>> {
        Box::pin(async move { Err(error) })
    }

    fn all_destaged(&self) -> LocalBoxFuture<'static, ()> {
        Box::pin(async {})
    }
}
