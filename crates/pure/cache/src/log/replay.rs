//! Recovery of the write log: finds its batches, and replays them to the volumes.

use super::format::{self, Anchor, BATCHES_MAX, BatchHeader, RING_START, Record};
use super::trim::write_anchor;
use super::{LogError, LogId, LogOwner, Shared, State, UNIT_BYTES, WriteLog, ring_units};
use crate::bug_injection::{InjectedBug, is_injected};
use crate::{Runtime, VolumeId};
use block::{BlockDevice, Blocks, Buf, Extent, IoError, Lba, Stable, View, Written, read_around};
use shard::Signal;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Units that are read in one step of the search for batches.
const SCAN_UNITS: u64 = 256;

/// Opened log that is being replayed, volume by volume, before it continues.
///
/// Nothing in the log is freed before [`Recovery::finish`], so replaying may be interrupted and repeated.
pub struct Recovery<L, R> {
    device: Rc<L>,
    runtime: R,
    owner: Rc<dyn LogOwner>,
    log_id: LogId,
    anchor_sequence: u64,
    epoch: u64,
    /// Position of the next batch.
    head: u64,
    next_batch: u64,
    next_record: u64,
    ring_units: u64,
    records: Vec<Found>,
    waiting: BTreeSet<VolumeId>,
    damaged_batches: u64,
}

/// Valid record, with the location of its batch.
#[derive(Clone, Copy)]
struct Found {
    record: Record,
    batch: u64,
    units: u64,
}

/// Batch whose header and records match their checksum.
struct Batch {
    start: u64,
    number: u64,
    /// Number of the last batch that was stable when it was made.
    stable: u64,
    records: Vec<Record>,
    data: View,
    /// True when the device can read all of it.
    is_readable: bool,
}

/// Result of looking for a batch at a unit of the ring.
enum UnitContent {
    Batch(Batch),
    /// The device cannot read the unit.
    Unreadable,
    Nothing,
}

impl Batch {
    fn units(&self) -> u64 {
        (self.data.len() / UNIT_BYTES) as u64
    }

    /// True when the data of every record matches its checksum.
    fn is_whole(&self) -> bool {
        self.records.iter().all(|record| record.data(&self.data).is_some())
            || is_injected(InjectedBug::ReplayTornRecord)
    }
}

/// Result of replaying one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records that were applied.
    pub records: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Acknowledged data that the log has lost, in blocks of the volume.
    pub lost: Vec<Extent>,
}

impl WriteLog {
    /// Creates an empty log on `device`; previous content is forgotten.
    ///
    /// *Shape*: `log` is new, never used for another log on these disks. *Durability*: stable.
    pub async fn format(device: &impl BlockDevice, log: LogId) -> Result<Stable, LogError> {
        ring_units(device)?;
        Ok(write_anchor(device, &Anchor::new(log, 1, 1, 0, 1)).await?)
    }

    /// Opens the log `log` on `device` and finds its records.
    pub async fn open<L: BlockDevice + 'static, R: Runtime>(
        device: L,
        log: LogId,
        runtime: R,
        owner: Rc<dyn LogOwner>,
    ) -> Result<Recovery<L, R>, LogError> {
        let ring_units = ring_units(&device)?;
        // Of two valid anchors the newer one: a crash may have come between the two writes.
        let anchor = newest_anchor(&device).await?;
        if anchor.log.get() != log.0 {
            // Replaying another log would overwrite volumes with foreign data.
            return Err(LogError::Foreign { found: LogId(anchor.log.get()) });
        }
        let mut recovery = Recovery {
            device: Rc::new(device),
            runtime,
            owner,
            log_id: log,
            anchor_sequence: anchor.sequence.get(),
            epoch: anchor.epoch.get(),
            head: anchor.tail.get(),
            next_batch: anchor.batch.get(),
            next_record: 1,
            ring_units,
            records: Vec::new(),
            waiting: BTreeSet::new(),
            damaged_batches: 0,
        };
        while recovery.scan_batch().await? {}
        recovery.drop_released();
        Ok(recovery)
    }
}

async fn newest_anchor(device: &impl BlockDevice) -> Result<Anchor, LogError> {
    let blocks = UNIT_BYTES as u64 / u64::from(device.geometry().block_bytes);
    let mut newest: Option<Anchor> = None;
    for slot in 0..RING_START {
        // Two anchors exist so that one may be unreadable.
        let Ok(unit) = device.read(Extent::new(slot * blocks, blocks)).await else { continue };
        let Some(anchor) = Anchor::parse(&unit.into_view()) else { continue };
        let anchor = anchor?;
        if newest.is_none_or(|known| known.sequence.get() < anchor.sequence.get()) {
            newest = Some(anchor);
        }
    }
    newest.ok_or(LogError::NotALog)
}

impl<L: BlockDevice + 'static, R: Runtime> Recovery<L, R> {
    /// Volumes that have data in the log and were not replayed yet.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.waiting.iter().copied().collect()
    }

    /// Number of acknowledged batches that could not be read: their data is lost, and the volumes are not known.
    #[must_use]
    pub fn damaged_batches(&self) -> u64 {
        self.damaged_batches
    }

    /// Replays the records of `volume` to its `device`.
    ///
    /// *Durability*: stable. *Errors*: the device's; it may be repeated then.
    pub async fn replay(&mut self, volume: VolumeId, device: &impl BlockDevice) -> Result<Replayed, LogError> {
        let mut replayed = Replayed::default();
        let mut records: Vec<Found> = self.records.iter().copied().filter(|found| of(found, volume)).collect();
        // Applied in the order of the log: a later write of a block replaces an earlier one.
        if is_injected(InjectedBug::ReplayInWrongOrder) {
            records.reverse();
        }
        // Records of one batch follow each other, so its bytes are read once.
        let mut batch = (u64::MAX, View::default());
        for found in &records {
            if found.record.kind != format::KIND_DISCARD && batch.0 != found.batch {
                batch = (found.batch, self.read_units(found.batch, found.units).await?.0);
            }
            apply(found, &batch.1, device, &mut replayed).await?;
        }
        // One flush at the end: until `finish`, the log can be replayed again.
        if !records.is_empty() {
            let _: Stable = device.flush(Written::attest()).await?;
        }
        // Only after the flush: a volume counts as replayed when its data is stable.
        self.waiting.remove(&volume);
        Ok(replayed)
    }

    /// Gives up the records of `volume`, when the operator has accepted that the volume is lost.
    pub fn give_up(&mut self, volume: VolumeId) {
        self.waiting.remove(&volume);
    }

    /// Truncates the log and starts it.
    ///
    /// *Errors*: `NotReplayed` while volumes wait.
    pub async fn finish(mut self) -> Result<WriteLog, LogError> {
        if !self.waiting.is_empty() {
            return Err(LogError::NotReplayed(self.volumes()));
        }
        // A new epoch even where nothing was found: batches behind the end that could not be read, or were torn, must
        // not be found later.
        self.anchor_sequence += 1;
        self.epoch += 1;
        let anchor = Anchor::new(self.log_id, self.anchor_sequence, self.epoch, self.head, self.next_batch);
        let _: Stable = write_anchor(&*self.device, &anchor).await?;
        Ok(self.start())
    }

    fn start(self) -> WriteLog {
        let state = State {
            queue: VecDeque::new(),
            control: VecDeque::new(),
            // The ring continues behind the old batches, as an empty one.
            tail: self.head,
            head: self.head,
            epoch: self.epoch,
            next_batch: self.next_batch,
            stable: self.next_batch - 1,
            next_record: self.next_record,
            anchor_sequence: self.anchor_sequence,
            log_id: self.log_id,
            batches: VecDeque::new(),
            released_up_to: BTreeMap::new(),
        };
        let shared = Rc::new_cyclic(|own| Shared {
            own: own.clone(),
            state: RefCell::new(state),
            members: RefCell::default(),
            owner: self.owner,
            ring_units: self.ring_units,
            block_bytes: self.device.geometry().block_bytes,
            work: Signal::default(),
            done: Signal::default(),
            released: Signal::default(),
            failed: Cell::new(None),
            recorded: Cell::new(None),
            closing: Cell::new(false),
            // The commit task and the trim task.
            tasks: Cell::new(2),
            counters: Cell::default(),
        });
        self.runtime.spawn(shared.clone().commit(self.device.clone()));
        self.runtime.spawn(shared.clone().trim(self.device, self.runtime.clone()));
        WriteLog(shared)
    }

    /// Reads the next batch; false when there is none.
    async fn scan_batch(&mut self) -> Result<bool, LogError> {
        let wrapped = self.head.next_multiple_of(self.ring_units);
        // A batch that does not fit before the end of the ring starts at its beginning.
        let is_wrapped = wrapped != self.head && wrapped - self.head < format::batch_units_max(self.ring_units);
        let mut is_unreadable = false;
        for start in std::iter::once(self.head).chain(is_wrapped.then_some(wrapped)) {
            match self.read_batch(start, self.next_batch..=self.next_batch).await? {
                UnitContent::Nothing => {}
                UnitContent::Unreadable => is_unreadable = true,
                UnitContent::Batch(batch) => {
                    // A damaged batch counts where the damage cannot come from a power cut, or a later batch proves
                    // that it was stable.
                    let counts = batch.is_whole()
                        || !batch.is_readable
                        || self.proves_stable(start + batch.units(), self.next_batch).await?;
                    if counts {
                        self.take_batch(batch);
                    }
                    // A torn batch was never acknowledged, and neither was anything behind it.
                    return Ok(counts);
                }
            }
        }
        let is_passed = self.skip_damaged().await?;
        // A power cut leaves no unreadable unit, so this batch may have been acknowledged.
        self.damaged_batches += u64::from(is_unreadable && !is_passed);
        Ok(is_passed)
    }

    /// Takes over the records of a batch; damaged data in it is found when it is replayed.
    fn take_batch(&mut self, batch: Batch) {
        for &record in &batch.records {
            self.next_record = record.number.get() + 1;
            self.records.push(Found { record, batch: batch.start, units: batch.units() });
        }
        self.head = batch.start + batch.units();
        self.next_batch = batch.number + 1;
    }

    /// Reads the batch at `start`, if its header and records match their checksum and it is one of `numbers`.
    async fn read_batch(&self, start: u64, numbers: RangeInclusive<u64>) -> Result<UnitContent, LogError> {
        let (first, is_readable) = self.read_units(start, 1).await?;
        let nothing = |is_readable: bool| if is_readable { UnitContent::Nothing } else { UnitContent::Unreadable };
        let Some(header) = BatchHeader::parse(&first, self.log_id, self.epoch, numbers) else {
            return Ok(nothing(is_readable));
        };
        let units = u64::from(header.units.get());
        // A header that would cross the end of the ring is not the start of a batch.
        if start % self.ring_units + units > self.ring_units {
            return Ok(UnitContent::Nothing);
        }
        let (data, is_readable) = self.read_units(start, units).await?;
        let (number, stable) = (header.number.get(), header.stable.get());
        // Header and records are valid; the data may be damaged, which counts for single records.
        let batch =
            |records| UnitContent::Batch(Batch { start, number, stable, records, data: data.clone(), is_readable });
        Ok(header.records(&data).map_or_else(|| nothing(is_readable), batch))
    }

    /// True when a batch at or behind `start` names batch `number` as stable.
    async fn proves_stable(&self, start: u64, number: u64) -> Result<bool, LogError> {
        Ok(self.later_batches(start, number + 1).await?.iter().any(|later| later.stable >= number))
    }

    /// Looks for later batches at the end of the chain. If one names the next batch as stable, the chain continues
    /// behind the damage; otherwise they are remains of batches torn by a power cut.
    async fn skip_damaged(&mut self) -> Result<bool, LogError> {
        let mut later = self.later_batches(self.head, self.next_batch + 1).await?;
        if !later.iter().any(|batch| batch.stable >= self.next_batch) {
            return Ok(false);
        }
        // The lowest number; batches between it and the chain are lost.
        let first = later.swap_remove(0);
        self.damaged_batches += first.number - self.next_batch;
        // This batch need not be whole: damaged data in it is reported by volume and block.
        self.take_batch(first);
        Ok(true)
    }

    /// Finds batches from number `from` on that may have been in flight with the one before, or followed next,
    /// ordered by number.
    async fn later_batches(&self, start: u64, from: u64) -> Result<Vec<Batch>, LogError> {
        // Only these can have been in flight together; a later one would need an earlier one to be stable.
        let numbers = from..=from + BATCHES_MAX as u64;
        let end = start + (BATCHES_MAX as u64 + 2) * format::batch_units_max(self.ring_units);
        let end = end.min(start + self.ring_units);
        let mut found = Vec::new();
        let mut at = start;
        while at < end {
            let units = SCAN_UNITS.min(end - at).min(self.ring_units - at % self.ring_units);
            // An unreadable unit reads as zeros, which are no header.
            let (data, _) = self.read_units(at, units).await?;
            for (unit, bytes) in (at..).zip(data.chunks(UNIT_BYTES)) {
                let is_header = BatchHeader::parse(bytes, self.log_id, self.epoch, numbers.clone()).is_some();
                if is_header && let UnitContent::Batch(batch) = self.read_batch(unit, numbers.clone()).await? {
                    found.push(batch);
                }
            }
            at += units;
        }
        found.sort_by_key(|batch| batch.number);
        Ok(found)
    }

    /// Drops records that a later release of their volume covers.
    fn drop_released(&mut self) {
        let mut released_up_to: BTreeMap<u128, u64> = BTreeMap::new();
        for found in self.records.iter().filter(|found| found.record.kind == format::KIND_RELEASE) {
            // The last release of a volume counts; records are in order.
            released_up_to.insert(found.record.volume.get(), found.record.number.get());
        }
        self.records.retain(|Found { record, .. }| {
            released_up_to.get(&record.volume.get()).is_none_or(|&number| record.number.get() > number)
        });
        self.waiting = self.records.iter().map(|found| VolumeId(found.record.volume.get())).collect();
    }

    /// Reads units of the ring; false where one is unreadable. It then reads as zeros, which match no checksum, so
    /// only what it held is damaged, and nothing behind it.
    async fn read_units(&self, start: u64, units: u64) -> Result<(View, bool), IoError> {
        let blocks = UNIT_BYTES as u64 / u64::from(self.device.geometry().block_bytes);
        let at = (RING_START + start % self.ring_units) * blocks;
        let (data, error) = read_around(&*self.device, Extent::new(at, units * blocks), blocks).await?;
        Ok((data, error.is_none()))
    }
}

/// Applies a record; `batch` are the bytes of its batch, if it has data.
async fn apply(found: &Found, batch: &[u8], device: &impl BlockDevice, to: &mut Replayed) -> Result<(), LogError> {
    let record = &found.record;
    let start = Lba(record.start.get());
    if record.kind == format::KIND_DISCARD {
        let extent = Extent { start, len: Blocks(record.blocks.get()) };
        let _: Written = device.discard(extent).await?;
    } else {
        let Some(data) = record.data(batch).or_else(|| torn(record, batch)) else {
            let len = u64::from(record.bytes.get()) / u64::from(device.geometry().block_bytes);
            // The rest of the volume is still replayed; the owner decides about the loss.
            to.lost.push(Extent { start, len: Blocks(len) });
            return Ok(());
        };
        // Repeating a replay writes the same data again, which is harmless.
        let _: Written = device.write(start, Buf::copy_of(data).freeze()).await?;
        to.bytes += data.len() as u64;
    }
    to.records += 1;
    Ok(())
}

fn of(found: &Found, volume: VolumeId) -> bool {
    found.record.volume.get() == volume.0
}

/// Returns the data of a record despite its checksum; for a planted bug only.
fn torn<'a>(record: &Record, batch: &'a [u8]) -> Option<&'a [u8]> {
    let from = record.offset.get() as usize;
    let data = batch.get(from..from + record.bytes.get() as usize);
    data.filter(|_| is_injected(InjectedBug::ReplayTornRecord))
}
