//! Destaging: dirty data is written below in address order, adjacent pieces together, whole stripes where possible.

use super::back::Inner;
use super::dirty::{Piece, Run};
use crate::{Finding, Layer, Runtime};
use block::{BlockDevice, Buf, Extent, IoErrorKind, Lba, View, Written};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use shard::Time;
use simd::crc32c::crc32c;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Upper bound of destage writes in flight.
const DESTAGES_MAX: usize = 8;
/// Upper bound of one destage write in bytes, or one full stripe where that is larger.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// Age at which dirty data is destaged even if there is room.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Fill level of memory or log, in thousandths, from which everything is destaged.
const BEGIN_AT: u64 = 250;
/// Fill level of the log, in thousandths, from which records of refused pieces are rewritten.
const RENEW_AT: u64 = 500;
/// Delay before refused pieces are retried.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl<D: BlockDevice + 'static, R: Runtime> Inner<D, R> {
    /// Starts the destage task if there is dirty data, or makes it look for work.
    pub(super) fn wake(this: &Rc<Self>) {
        this.wake_pending.set(true);
        this.wake_signal.raise();
        if !this.running.get() && !this.dirty.borrow().is_empty() {
            // Set before the task first runs, so that only one is spawned.
            this.running.set(true);
            this.runtime.spawn(Self::destage(this.clone()));
        }
    }

    /// Wakes the task as [`Inner::wake`], but only if none runs or room is short: small writes then accumulate into
    /// runs.
    pub(super) fn wake_if_full(this: &Rc<Self>) {
        if !this.running.get() || this.is_filling() {
            Self::wake(this);
        }
    }

    fn is_filling(&self) -> bool {
        // A failed log counts as full: everything is to be destaged.
        let log_fill = self.log().map_or(0, |log| if log.has_failed() { 1000 } else { log.fill() });
        self.memory.fill().max(log_fill) >= BEGIN_AT
    }

    /// Destage task; ends when nothing is dirty.
    async fn destage(this: Rc<Self>) {
        let mut destages = FuturesUnordered::new();
        let mut cursor = 0;
        let mut try_again: Option<Time> = None;
        loop {
            let now = this.runtime.now();
            if try_again.is_some_and(|at| at <= now) {
                try_again = None;
                Self::renew_records(&this);
                this.dirty.borrow_mut().retry_refused();
                this.account();
            }
            while destages.len() < DESTAGES_MAX
                && let Some(run) = this.choose(cursor, now)
            {
                // The next search continues behind this run: an elevator over the addresses.
                cursor = run.extent.end().0;
                destages.push(Self::destage_run(this.clone(), run));
            }
            if destages.is_empty() && this.dirty.borrow().is_empty() {
                // No await since the check, so a write that comes now starts a new task.
                this.running.set(false);
                return;
            }
            if this.dirty.borrow().refused() > 0 && try_again.is_none() {
                try_again = Some(now + TRY_AGAIN);
            }
            let woken = pin!(this.wake_signal.wait(|| this.wake_pending.replace(false).then_some(())));
            if destages.is_empty() {
                // Nothing is in flight: sleep until the oldest piece is due, a retry, or a wake-up.
                let due = this.dirty.borrow().oldest_at().map(|at| at + AGE_MAX);
                let next = due.into_iter().chain(try_again).min().unwrap_or(now + TRY_AGAIN);
                let _ = select(woken, this.runtime.sleep_until(next)).await;
            // Woken by a finished write or by new work, whichever comes first.
            } else if let Either::Left((Some(()), _)) = select(destages.next(), woken).await {
                this.changed.raise();
            }
        }
    }

    /// Chooses the next run to destage: anything when room is short, otherwise what a flush waits for, and, once the
    /// oldest piece is due, whatever is at least half as old.
    fn choose(&self, cursor: u64, now: Time) -> Option<Run> {
        let geometry = self.device.geometry();
        let optimal = u64::from(geometry.optimal_bytes.max(1));
        // A multiple of the stripe, so that runs end at stripe boundaries.
        let unit_bytes = RUN_BYTES_MAX.max(optimal) / optimal * optimal;
        let unit_blocks = (unit_bytes / u64::from(geometry.block_bytes)).max(1);
        let mut dirty = self.dirty.borrow_mut();
        let (all, up_to) = (self.is_filling(), self.wanted_up_to.get());
        let due = dirty.oldest_at()? + AGE_MAX <= now;
        // Younger neighbors go along, so that one pass empties more than the oldest piece.
        let old = Time(now.0.saturating_sub(AGE_MAX.as_nanos() as u64 / 2));
        if !all && !due && dirty.oldest()? > up_to {
            return None;
        }
        let wanted = |piece: &Piece| all || piece.since <= up_to || (due && piece.at <= old);
        dirty.next_run(cursor, unit_blocks, wanted)
    }

    /// Writes one run below and records the result.
    async fn destage_run(this: Rc<Self>, run: Run) {
        // Excludes discards of these blocks, and other destage writes of them.
        let _lock = this.below.exclusive(run.extent.start.0..run.extent.end().0).await;
        let block_bytes = this.device.geometry().block_bytes;
        let bytes: usize = run.parts.iter().map(|(_, piece)| piece.data.len()).sum();
        assert_eq!(bytes as u64, run.extent.len.bytes(block_bytes), "the pieces of a run are all of it");
        // Corrupted memory must not reach the disk.
        let sound = run.parts.iter().all(|(_, piece)| crc32c(&piece.data) == piece.guard);
        if sound && this.device.write(run.extent.start, gather(&run)).await.is_ok() {
            this.note_destaged(&run);
            return;
        }
        // One refused or corrupted block must not block its neighbors.
        for single in run.singles(block_bytes) {
            this.destage_piece(&single).await;
        }
        this.account();
        // Writers that wait for memory are refused where the device takes nothing.
        this.memory.look_again();
        this.changed.raise();
    }

    /// Rewrites the log records of refused pieces when the ring fills up: old records would keep its tail from
    /// moving.
    fn renew_records(this: &Rc<Self>) {
        let Some(log) = this.log().filter(|log| !log.has_failed() && log.fill() >= RENEW_AT) else { return };
        let refused = this.dirty.borrow().refused_with_records();
        for (start, data) in refused {
            let blocks = data.len() as u64 / u64::from(this.device.geometry().block_bytes);
            // The old content would overtake a newer write of these blocks that is in flight.
            if this.is_logging(Extent::new(start, blocks)) {
                continue;
            }
            // Taken for the copy that the log will hand over; the old piece stays counted until it is replaced.
            this.memory.adjust(0, data.len() as u64);
            let append = this.append(&log, Lba(start), data);
            this.runtime.spawn(async move { drop(append.await) });
        }
    }

    async fn destage_piece(&self, single: &Run) {
        let (start, piece) = single.parts.first().expect("a run of one piece");
        if crc32c(&piece.data) != piece.guard {
            // Never written below, where the older content is still intact.
            self.dirty.borrow_mut().mark_corrupted(single);
            let (layer, volume) = (Layer::WriteCache, self.volume);
            self.findings.report(Finding { layer, volume, extent: single.extent, healed: false });
            return;
        }
        match self.device.write(Lba(*start), piece.data.clone()).await {
            Ok(written) => {
                let _: Written = written;
                self.note_destaged(single);
            }
            Err(error) => {
                // An error that is not confined to these blocks is reported to the next writer.
                let worse = self.error.get().is_some_and(|known| known.kind != IoErrorKind::Medium);
                if !worse || error.kind != IoErrorKind::Medium {
                    self.error.set(Some(error));
                }
                // Kept in memory and served from there; each flush fails until it can be written.
                self.dirty.borrow_mut().mark_refused(single, true);
            }
        }
    }

    fn note_destaged(&self, run: &Run) {
        self.dirty.borrow_mut().mark_destaged(run);
        self.account();
        let destaged_bytes: u64 = run.parts.iter().map(|(_, piece)| piece.data.len() as u64).sum();
        self.memory.drained(self.runtime.now(), destaged_bytes);
        let mut counters = self.counters.get();
        counters.destages += 1;
        counters.destaged_bytes += destaged_bytes;
        self.counters.set(counters);
        self.changed.raise();
    }
}

/// Concatenates the data of a run; a run of one piece is not copied.
fn gather(run: &Run) -> View {
    if let [(_, piece)] = &run.parts[..] {
        return piece.data.clone();
    }
    let mut all = Buf::recycled(run.parts.iter().map(|(_, piece)| piece.data.len()).sum());
    let mut at = 0;
    for (_, piece) in &run.parts {
        all[at..at + piece.data.len()].copy_from_slice(&piece.data);
        at += piece.data.len();
    }
    all.freeze()
}
