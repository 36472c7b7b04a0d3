//! How what waits goes below: in the order of addresses, neighbours together, stripes whole.

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

/// Runs that are written below at the same time.
const MOVES_MAX: usize = 8;
/// A run has at most this many bytes, or one full stripe where that is more.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// What waits so long goes below, whether there is room or not.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Fill of memory or log, in thousandths, from which everything goes below.
const BEGIN_AT: u64 = 250;
/// Fill of the log from which the records of what is stuck are written again.
const RENEW_AT: u64 = 500;
/// When pieces that were refused are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl<D: BlockDevice + 'static, R: Runtime> Inner<D, R> {
    /// The task that moves data below looks whether there is something to do; it is begun where it does not run.
    pub(super) fn wake(this: &Rc<Self>) {
        this.poked.set(true);
        this.poke.raise();
        if !this.running.get() && !this.dirty.borrow().is_empty() {
            this.running.set(true);
            this.runtime.spawn(Self::destage(this.clone()));
        }
    }

    /// As [`Inner::wake`], but one who sleeps is left to sleep while there is room.
    pub(super) fn stir(this: &Rc<Self>) {
        if !this.running.get() || this.is_filling() {
            Self::wake(this);
        }
    }

    fn is_filling(&self) -> bool {
        let log_fill = self.log().map_or(0, |log| if log.has_failed() { 1000 } else { log.fill() });
        self.memory.fill().max(log_fill) >= BEGIN_AT
    }

    /// Runs until nothing waits any more.
    async fn destage(this: Rc<Self>) {
        let mut moves = FuturesUnordered::new();
        let mut cursor = 0;
        let mut try_again: Option<Time> = None;
        loop {
            let now = this.runtime.now();
            if try_again.is_some_and(|at| at <= now) {
                try_again = None;
                Self::renew_records(&this);
                this.dirty.borrow_mut().unstick();
                this.account();
            }
            while moves.len() < MOVES_MAX
                && let Some(run) = this.choose(cursor, now)
            {
                cursor = run.extent.end().0;
                moves.push(Self::carry(this.clone(), run));
            }
            if moves.is_empty() && this.dirty.borrow().is_empty() {
                this.running.set(false);
                return;
            }
            if this.dirty.borrow().stuck() > 0 && try_again.is_none() {
                try_again = Some(now + TRY_AGAIN);
            }
            let poked = pin!(this.poke.wait(|| this.poked.replace(false).then_some(())));
            if moves.is_empty() {
                let due = this.dirty.borrow().oldest_at().map(|at| at + AGE_MAX);
                let next = due.into_iter().chain(try_again).min().unwrap_or(now + TRY_AGAIN);
                let _ = select(poked, this.runtime.sleep_until(next)).await;
            } else if let Either::Left((Some(()), _)) = select(moves.next(), poked).await {
                this.changed.raise();
            }
        }
    }

    /// The next run that goes below now: all when there is little room, else what somebody waits for, and, once the
    /// oldest has waited long enough, whatever has waited half as long.
    fn choose(&self, cursor: u64, now: Time) -> Option<Run> {
        let geometry = self.device.geometry();
        let optimal = u64::from(geometry.optimal_bytes.max(1));
        let unit_bytes = RUN_BYTES_MAX.max(optimal) / optimal * optimal;
        let unit_blocks = (unit_bytes / u64::from(geometry.block_bytes)).max(1);
        let mut dirty = self.dirty.borrow_mut();
        let (all, up_to) = (self.is_filling(), self.wanted_up_to.get());
        let due = dirty.oldest_at()? + AGE_MAX <= now;
        let old = Time(now.0.saturating_sub(AGE_MAX.as_nanos() as u64 / 2));
        if !all && !due && dirty.oldest()? > up_to {
            return None;
        }
        let wanted = |piece: &Piece| all || piece.since <= up_to || (due && piece.at <= old);
        dirty.next_run(cursor, unit_blocks, wanted)
    }

    /// Writes one run below and notes what became of it.
    async fn carry(this: Rc<Self>, run: Run) {
        let _lock = this.below.exclusive(run.extent.start.0..run.extent.end().0).await;
        let block_bytes = this.device.geometry().block_bytes;
        let bytes: usize = run.parts.iter().map(|(_, piece)| piece.data.len()).sum();
        assert_eq!(bytes as u64, run.extent.len.bytes(block_bytes), "the pieces of a run are all of it");
        let sound = run.parts.iter().all(|(_, piece)| crc32c(&piece.data) == piece.guard);
        if sound && this.device.write(run.extent.start, gather(&run)).await.is_ok() {
            this.note_moved(&run);
            return;
        }
        // One block that is refused or lost must not hold up its neighbours.
        for single in run.singles(block_bytes) {
            this.carry_single(&single).await;
        }
        this.account();
        this.memory.look_again();
        this.changed.raise();
    }

    /// What is stuck must not hold up the ring for everybody: when that fills, its records are written again.
    fn renew_records(this: &Rc<Self>) {
        let Some(log) = this.log().filter(|log| !log.has_failed() && log.fill() >= RENEW_AT) else { return };
        let stuck = this.dirty.borrow().stuck_with_records();
        for (start, data) in stuck {
            let blocks = data.len() as u64 / u64::from(this.device.geometry().block_bytes);
            // A newer write of these blocks that is on its way would be overtaken by the old content.
            if this.is_logging(Extent::new(start, blocks)) {
                continue;
            }
            this.memory.adjust(0, data.len() as u64);
            let append = this.append(&log, Lba(start), data);
            this.runtime.spawn(async move { drop(append.await) });
        }
    }

    async fn carry_single(&self, single: &Run) {
        let (start, piece) = single.parts.first().expect("a run of one piece");
        if crc32c(&piece.data) != piece.guard {
            self.dirty.borrow_mut().spoiled(single);
            let (layer, volume) = (Layer::WriteCache, self.volume);
            self.findings.report(Finding { layer, volume, extent: single.extent, healed: false });
            return;
        }
        match self.device.write(Lba(*start), piece.data.clone()).await {
            Ok(written) => {
                let _: Written = written;
                self.note_moved(single);
            }
            Err(error) => {
                // An error that is not these blocks' own is told to whoever writes next.
                let worse = self.error.get().is_some_and(|known| known.kind != IoErrorKind::Medium);
                if !worse || error.kind != IoErrorKind::Medium {
                    self.error.set(Some(error));
                }
                self.dirty.borrow_mut().refused(single, true);
            }
        }
    }

    fn note_moved(&self, run: &Run) {
        self.dirty.borrow_mut().moved(run);
        self.account();
        let carried: u64 = run.parts.iter().map(|(_, piece)| piece.data.len() as u64).sum();
        self.memory.drained(self.runtime.now(), carried);
        let mut counters = self.counters.get();
        counters.moves += 1;
        counters.moved_bytes += carried;
        self.counters.set(counters);
        self.changed.raise();
    }
}

/// The bytes of a run in one piece; copied only where there are several.
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
