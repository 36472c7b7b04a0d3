//! Freeing of ring space: batches that no volume needs any more are released, once that is stable.
//!
//! Order: flush the volumes' devices, write the anchor, reuse the space.

use super::format::{Anchor, reserve_units};
use super::{LiveBatch, Shared, UNIT_BYTES};
use crate::bug_injection::{InjectedBug, is_injected};
use crate::{Runtime, VolumeId};
use block::{BlockDevice, Buf, IoError, Lba, Stable};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Delay before a volume that could not be flushed is retried.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Upper bound of units freed at a time, also in much larger rings: whatever is not freed is read when the log is
/// opened.
const WORTH_UNITS_MAX: u64 = (256 << 20) / UNIT_BYTES as u64;

/// Space that can be freed: the batches up to `end`, once these volumes have been flushed.
struct Free {
    end: u64,
    batches: usize,
    /// Number of the first batch that is not freed.
    next: u64,
    volumes: BTreeSet<VolumeId>,
}

impl Shared {
    /// Frees ring space from the tail until the log is closed or fails.
    pub(super) async fn trim(self: Rc<Self>, device: Rc<impl BlockDevice>, runtime: impl Runtime) {
        loop {
            let over = || self.closing.get() || self.failed.get().is_some();
            let free = self.released.wait(|| if over() { Some(None) } else { self.free().map(Some) }).await;
            let Some(free) = free else { break };
            // Everything in these batches was written below before; the flush makes it stable.
            if !self.flush_below(&free.volumes).await {
                runtime.sleep_until(runtime.now() + TRY_AGAIN).await;
                continue;
            }
            if is_injected(InjectedBug::ReuseBeforeAnchor) {
                self.move_tail(&free);
                runtime.sleep_until(runtime.now() + TRY_AGAIN / 10).await;
            }
            if self.write_tail(&*device, &free).await.is_err() {
                // The next batch will meet the same error and fails the log.
                runtime.sleep_until(runtime.now() + TRY_AGAIN).await;
                continue;
            }
            if !is_injected(InjectedBug::ReuseBeforeAnchor) {
                self.move_tail(&free);
            }
        }
        assert!(self.tasks.get() > 0, "each task of a log ends once");
        self.tasks.set(self.tasks.get() - 1);
        self.done.raise();
    }

    /// Finds batches that can be freed, if there are enough of them to be worth the flushes.
    fn free(&self) -> Option<Free> {
        let state = self.state.borrow();
        let mut free = Free { end: state.tail, batches: 0, next: 0, volumes: BTreeSet::new() };
        // In order, up to the first batch that a dirty piece still needs.
        for batch in state.batches.iter().take_while(|batch| batch.batch_ref.strong_count() == 0) {
            // A volume that is not open cannot be flushed, so its records stay until it is replayed.
            if batch.volumes.iter().any(|&volume| self.pins(batch, volume)) {
                break;
            }
            free.volumes.extend(&batch.volumes);
            free.end = batch.end;
            free.next = batch.number + 1;
            free.batches += 1;
        }
        // Each step costs a flush of every volume in it and two writes of the anchor, so small steps are not worth it.
        let (used, gain) = (state.head - state.tail, free.end - state.tail);
        // An eighth of the ring, or anything once the ring is half full, or the whole content.
        let worth = gain >= (self.ring_units / 8).min(WORTH_UNITS_MAX)
            || (gain > 0 && used * 2 >= self.ring_units - reserve_units(self.ring_units))
            || free.batches == state.batches.len();
        (free.batches > 0 && worth).then_some(free)
    }

    /// True when `volume` is not open and has not released its records in `batch`.
    fn pins(&self, batch: &LiveBatch, volume: VolumeId) -> bool {
        let released_up_to =
            self.state.borrow().released_up_to.get(&volume).is_some_and(|&number| number >= batch.number);
        !released_up_to && self.member(volume).is_none()
    }

    async fn flush_below(&self, volumes: &BTreeSet<VolumeId>) -> bool {
        if is_injected(InjectedBug::TrimBeforeFlush) {
            return true;
        }
        // A volume that is not open here has released its records: they are stable below or void.
        for member in volumes.iter().filter_map(|&volume| self.member(volume)) {
            // Without the flush the batch may hold the only stable copy.
            if member.flush_below().await.is_err() {
                return false;
            }
        }
        true
    }

    /// Writes the anchor with the new tail.
    async fn write_tail(&self, device: &impl BlockDevice, free: &Free) -> Result<Stable, IoError> {
        let anchor = {
            let mut state = self.state.borrow_mut();
            assert!((state.tail..=state.head).contains(&free.end), "the tail moves forward, at most to the head");
            assert!(free.next <= state.next_batch, "an anchor names a batch that is there, or the next");
            // Also used up by a write that fails: a sequence number never names two anchors.
            state.anchor_sequence += 1;
            Anchor::new(state.log_id, state.anchor_sequence, state.epoch, free.end, free.next)
        };
        write_anchor(device, &anchor).await
    }

    fn move_tail(&self, free: &Free) {
        let mut state = self.state.borrow_mut();
        let unneeded = |batch: &LiveBatch| batch.batch_ref.strong_count() == 0;
        assert!(state.batches.iter().take(free.batches).all(unneeded), "no batch is freed that a volume needs");
        state.batches.drain(..free.batches);
        state.tail = free.end;
        let mut counters = self.counters.get();
        counters.trims += 1;
        self.counters.set(counters);
        drop(state);
        // Batches may be waiting for ring space.
        self.work.raise();
    }
}

/// Writes the anchor to both places, one after the other: damage of one place never brings back an older anchor.
pub(super) async fn write_anchor(device: &impl BlockDevice, anchor: &Anchor) -> Result<Stable, IoError> {
    let mut unit = Buf::zeroed(UNIT_BYTES);
    unit[..size_of::<Anchor>()].copy_from_slice(anchor.as_bytes());
    let (unit, blocks) = (unit.freeze(), UNIT_BYTES as u64 / u64::from(device.geometry().block_bytes));
    let written = device.write(Lba(0), unit.clone()).await?;
    // The first place is stable before the second is touched: one valid anchor survives any power cut.
    let _: Stable = device.flush(written).await?;
    let written = device.write(Lba(blocks), unit).await?;
    device.flush(written).await
}
