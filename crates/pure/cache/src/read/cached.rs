//! Read cache layer of a volume.

use super::ReadCache;
use super::ahead::{Ahead, AheadBounds};
use super::flight::InFlight;
use super::store::{Mismatch, ReadCounters};
use crate::bug_injection::{InjectedBug, is_injected};
use crate::policy::{ReadAhead, Share};
use crate::{Finding, Layer, Runtime, VolumeId};
use block::{BlockDevice, Extent, Geometry, IoError, Lba, PAGE_BYTES, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Upper bound of pages in one prefetch operation; a larger window is several concurrent operations.
const AHEAD_PAGES: u64 = (256 << 10) / PAGE_BYTES as u64;

/// Layer over a device that caches reads and prefetches for sequential readers.
///
/// Cheap to clone. Writes and discards pass through, and keep the cache coherent whether they succeed or fail.
pub struct Cached<D, R>(Rc<Inner<D, R>>);

struct Inner<D, R> {
    device: D,
    runtime: R,
    cache: ReadCache,
    volume: VolumeId,
    owner: u32,
    in_flight: InFlight,
    ahead: RefCell<Ahead>,
    wasted: Cell<u64>,
}

/// Location of a read in pages and bytes of the device.
struct Wanted {
    pages: Range<u64>,
    bytes: Range<u64>,
    device_pages: u64,
}

impl Wanted {
    /// Cuts the requested bytes out of the pages that contain them.
    fn cut(&self, rope: Rope) -> Rope {
        let (skip, len) = (self.bytes.start as usize % PAGE_BYTES, (self.bytes.end - self.bytes.start) as usize);
        assert!(skip + len <= rope.len(), "all pages of a read are there");
        if rope.len() == len { rope } else { rope.slice(skip..skip + len) }
    }
}

impl<D, R> Clone for Cached<D, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D, R> Drop for Inner<D, R> {
    fn drop(&mut self) {
        self.cache.store.borrow_mut().leave(self.owner);
    }
}

impl<D: BlockDevice + 'static, R: Runtime> Cached<D, R> {
    /// Puts `cache` in front of the device, with a share of it.
    pub fn new(
        cache: &ReadCache,
        volume: VolumeId,
        device: D,
        runtime: R,
        share: Share,
        read_ahead: ReadAhead,
    ) -> Self {
        let (cache, owner) = (cache.clone(), cache.join(share));
        let (in_flight, ahead, wasted) = (InFlight::default(), RefCell::new(Ahead::new(read_ahead)), Cell::new(0));
        Self(Rc::new(Inner { device, runtime, cache, volume, owner, in_flight, ahead, wasted }))
    }

    /// Device below.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// Changes the volume's share; what exceeds it is evicted.
    pub fn set_share(&self, share: Share) {
        self.0.cache.store.borrow_mut().set_share(self.0.owner, share);
    }

    /// Changes the read-ahead policy; tracked streams are forgotten.
    pub fn set_read_ahead(&self, read_ahead: ReadAhead) {
        self.0.ahead.borrow_mut().set_policy(read_ahead);
    }

    /// Counters of the volume.
    #[must_use]
    pub fn counters(&self) -> ReadCounters {
        self.0.cache.store.borrow().counters(self.0.owner)
    }

    /// Runs `change`, after which any page of the device may differ; nothing read before or during it is kept.
    pub async fn replace<T>(&self, change: impl Future<Output = T>) -> T {
        let inner = &self.0;
        // Spoils fetches in flight, too.
        let writing = inner.in_flight.write(0..u64::MAX);
        // After the change is registered, so that a fetch in flight cannot bring old pages back.
        inner.cache.store.borrow_mut().forget(inner.owner);
        let changed = change.await;
        let _: bool = writing.end();
        changed
    }

    /// Flips one bit of the cached page `page` of 4 KiB, as faulty memory would; false when it is not cached.
    #[cfg(test)]
    pub(crate) fn flip_bit(&self, page: u64) -> bool {
        self.0.cache.store.borrow_mut().flip_bit(self.0.owner, page)
    }

    /// Locates `extent` in pages; `None` when the cache is not used for it.
    fn wanted(&self, extent: Extent, geometry: &Geometry) -> Option<Wanted> {
        let inner = &*self.0;
        let blocks = PAGE_BYTES as u64 / u64::from(geometry.block_bytes);
        let pages = extent.start.0 / blocks..extent.end().0.div_ceil(blocks);
        let device_pages = geometry.blocks.0 / blocks;
        let is_off = inner.cache.store.borrow().share(inner.owner).weight == 0;
        // A partial page at the end of the device is not cached.
        if is_off || extent.is_empty() || pages.end > device_pages {
            return None;
        }
        let first = extent.start.0 * u64::from(geometry.block_bytes);
        Some(Wanted { pages, bytes: first..first + extent.len.bytes(geometry.block_bytes), device_pages })
    }

    /// Records a read of `bytes`, and starts prefetching for it.
    fn look_ahead(&self, bytes: &Range<u64>, device_pages: u64) {
        let inner = &self.0;
        if inner.ahead.borrow().is_off() {
            return;
        }
        let mut fetch = inner.ahead.borrow_mut().observe(bytes.clone(), device_pages, || {
            let store = inner.cache.store.borrow();
            // The difference since the last call is what the read-ahead adapts to.
            let wasted = store.counters(inner.owner).ahead_wasted_pages;
            // One stream prefetches at most an eighth of the volume's guarantee.
            let room_pages = store.entitlement(inner.owner) / 8 / PAGE_BYTES as u64;
            // The counter only increases, so the difference cannot underflow.
            AheadBounds { room_pages, wasted_pages: wasted - inner.wasted.replace(wasted) }
        });
        while !fetch.is_empty() {
            // Aligned pieces, so that later reads find whole frames.
            let end = fetch.end.min((fetch.start / AHEAD_PAGES + 1) * AHEAD_PAGES);
            self.fetch_ahead(fetch.start..end);
            fetch.start = end;
        }
    }

    /// Prefetches the missing part of `pages` in the background.
    fn fetch_ahead(&self, mut pages: Range<u64>) {
        let inner = &self.0;
        {
            let mut store = inner.cache.store.borrow_mut();
            let is_there = |page| store.has(inner.owner, page) || inner.in_flight.join(page).is_some();
            // Only trimmed at both ends: a gap in the middle would cost another operation.
            while !pages.is_empty() && is_there(pages.start) {
                pages.start += 1;
            }
            while !pages.is_empty() && is_there(pages.end - 1) {
                pages.end -= 1;
            }
            store.count(inner.owner, |counters| counters.ahead_pages += pages.end - pages.start);
        }
        if pages.is_empty() {
            return;
        }
        // Registered before the task runs, so that the next reader joins the fetch.
        let leading = inner.in_flight.lead(pages.clone());
        let this = self.clone();
        inner.runtime.spawn(async move {
            // An error is dropped: a reader that wants these blocks reads them itself, and gets it.
            if let Ok(rope) = this.0.device.read(this.0.extent_of(&pages)).await {
                // Pages that a write has touched meanwhile are left out.
                let unspoiled = leading.complete(&rope);
                this.0.keep(&pages, &rope, &unspoiled, true);
            }
        });
    }
}

impl<D: BlockDevice, R> Inner<D, R> {
    fn blocks_per_page(&self) -> u64 {
        PAGE_BYTES as u64 / u64::from(self.device.geometry().block_bytes)
    }

    fn extent_of(&self, pages: &Range<u64>) -> Extent {
        let blocks = self.blocks_per_page();
        Extent::new(pages.start * blocks, (pages.end - pages.start) * blocks)
    }

    /// Pages that `extent` touches.
    fn pages_of(&self, extent: Extent) -> Range<u64> {
        let blocks = self.blocks_per_page();
        extent.start.0 / blocks..extent.end().0.div_ceil(blocks)
    }

    /// Inserts the `good` parts of the content read from `pages` into the cache.
    fn keep(&self, pages: &Range<u64>, rope: &Rope, good: &[Range<u64>], ahead: bool) {
        let mut store = self.cache.store.borrow_mut();
        for part in good {
            let bytes = |page: u64| (page - pages.start) as usize * PAGE_BYTES;
            store.insert(self.owner, part.clone(), &rope.slice(bytes(part.start)..bytes(part.end)), ahead);
        }
    }

    /// Appends cached pages from `pages.start` on to `rope`; returns the first page that is missing.
    fn take(&self, pages: Range<u64>, rope: &mut Rope) -> u64 {
        let (from, kept) = (pages.start, rope.len());
        let taken = self.cache.store.borrow_mut().take(self.owner, pages, rope);
        let at = match taken {
            Ok(at) => at,
            Err(Mismatch(page)) => {
                let extent = self.extent_of(&(page..page + 1));
                let (layer, volume) = (Layer::Cache, self.volume);
                // Not lost: the page is read again below.
                self.cache.findings.report(Finding { layer, volume, extent, healed: true });
                from + ((rope.len() - kept) / PAGE_BYTES) as u64
            }
        };
        if at > from {
            self.cache.store.borrow_mut().count(self.owner, |counters| counters.hit_pages += at - from);
        }
        at
    }

    /// Completes `rope` with the pages from `at` on; `None` when a fetch failed. The fetch may have covered more than
    /// the caller wants, so its error is not the caller's.
    async fn fetch(&self, pages: &Range<u64>, mut at: u64, mut rope: Rope) -> Option<Rope> {
        loop {
            if at == pages.end {
                return Some(rope);
            }
            if let Some((shared, good)) = self.in_flight.join(at) {
                // The leader failed or was dropped; this reader then reads its own blocks.
                let brought = shared.wait().await?;
                // Pages written since the fetch began are not in it and are requested again.
                let end = pages.end.min(good);
                assert!(at < end, "a fetch brings the page for which it was joined");
                {
                    let mut store = self.cache.store.borrow_mut();
                    store.count(self.owner, |counters| counters.joined += 1);
                    store.touch(self.owner, at..end);
                }
                let bytes = |page: u64| (page - shared.pages.start) as usize * PAGE_BYTES;
                rope.append(brought.slice(bytes(at)..bytes(end)));
                at = end;
            } else {
                let run = at..self.end_of_miss(at..pages.end);
                let leading = self.in_flight.lead(run.clone());
                let brought = self.device.read(self.extent_of(&run)).await.ok()?;
                let unspoiled = leading.complete(&brought);
                // Without an await since the fetch was completed: no write can start in between.
                self.keep(&run, &brought, &unspoiled, false);
                self.cache.store.borrow_mut().count(self.owner, |counters| counters.miss_pages += run.end - run.start);
                at = run.end;
                rope.append(brought);
            }
            at = self.take(at..pages.end, &mut rope);
        }
    }

    /// End of a fetch that starts at the first of `pages`: behind the last missing page, before any that another
    /// fetch brings.
    fn end_of_miss(&self, pages: Range<u64>) -> u64 {
        // Pages that another fetch brings are not read twice.
        let mut end = self.in_flight.next_fetch(pages.clone());
        assert!((pages.start + 1..=pages.end).contains(&end), "a fetch ends within the read, and brings a page");
        let store = self.cache.store.borrow();
        while end > pages.start + 1 && store.has(self.owner, end - 1) {
            end -= 1;
        }
        end
    }

    /// Runs a write or discard of `extent`, keeping the cache coherent whatever its result.
    async fn change(
        &self,
        extent: Extent,
        data: Option<View>,
        change: impl Future<Output = Result<Written, IoError>>,
    ) -> Result<Written, IoError> {
        let pages = self.pages_of(extent);
        let keeps = data.is_none() && is_injected(InjectedBug::DiscardKeepsCache);
        let writing = self.in_flight.write(pages.clone());
        // Removed before the write starts: while it is in flight, a read may return either content.
        let was_there = !keeps && self.cache.store.borrow_mut().remove(self.owner, pages);
        // After a failed write each block may be old or new, so nothing is kept.
        let written = change.await;
        let undisturbed = writing.end();
        // Only with no other write of these pages in flight is it known which content is on the device.
        if let (Ok(_), true, true, Some(data)) = (&written, was_there, undisturbed, data) {
            self.put_written(extent, &data);
        }
        written
    }

    /// Puts pages that were cached back with the new content, where it covers them completely.
    fn put_written(&self, extent: Extent, data: &View) {
        let blocks = self.blocks_per_page();
        // Partly written pages are not known completely and stay uncached.
        let whole = extent.start.0.div_ceil(blocks)..extent.end().0 / blocks;
        if whole.start >= whole.end {
            return;
        }
        let skip = (whole.start * blocks - extent.start.0) * (PAGE_BYTES as u64 / blocks);
        let from = usize::try_from(skip).expect("less than a page");
        let bytes = from..from + (whole.end - whole.start) as usize * PAGE_BYTES;
        self.cache.store.borrow_mut().insert(self.owner, whole, &data.slice(bytes).into(), false);
    }
}

impl<D: BlockDevice + 'static, R: Runtime> BlockDevice for Cached<D, R> {
    fn geometry(&self) -> Geometry {
        self.0.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let inner = &*self.0;
        let geometry = inner.device.geometry();
        geometry.admit(extent)?;
        let Some(wanted) = self.wanted(extent, &geometry) else { return inner.device.read(extent).await };
        let mut rope = Rope::new();
        let at = inner.take(wanted.pages.clone(), &mut rope);
        // Before the fetch of what is missing, so that both are in flight together.
        self.look_ahead(&wanted.bytes, wanted.device_pages);
        if at < wanted.pages.end {
            match inner.fetch(&wanted.pages, at, rope).await {
                Some(fetched) => rope = fetched,
                // A shared fetch failed: the error may concern blocks that this caller does not want.
                None => return inner.device.read(extent).await,
            }
        }
        Ok(wanted.cut(rope))
    }

    /// Returns cached data synchronously; `None` when any page is missing.
    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        let inner = &*self.0;
        let geometry = inner.device.geometry();
        geometry.admit(extent).ok()?;
        let wanted = self.wanted(extent, &geometry)?;
        {
            let store = inner.cache.store.borrow();
            // All or nothing: a partial hit needs an await for the rest.
            if !wanted.pages.clone().all(|page| store.has(inner.owner, page)) {
                return None;
            }
        }
        let mut rope = Rope::new();
        if inner.take(wanted.pages.clone(), &mut rope) < wanted.pages.end {
            // A page failed its checksum and has been dropped.
            return None;
        }
        self.look_ahead(&wanted.bytes, wanted.device_pages);
        Some(Ok(wanted.cut(rope)))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.0.device.geometry().extent_of(start, data.len())?;
        self.0.change(extent, Some(data.clone()), self.0.device.write(start, data)).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.0.device.geometry().extent_of(start, data.len())?;
        self.0.change(extent, Some(data.clone()), self.0.device.write_unlogged(start, data)).await
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.0.device.geometry().extent_of(start, data.len())?;
        self.0.change(extent, Some(data.clone()), self.0.device.write_atomic(start, data)).await
    }

    fn atomic_bytes_max(&self) -> u32 {
        self.0.device.atomic_bytes_max()
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.0.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.0.device.geometry().admit(extent)?;
        self.0.change(extent, None, self.0.device.discard(extent)).await
    }
}
