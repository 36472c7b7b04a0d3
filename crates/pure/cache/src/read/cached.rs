//! A volume behind its part of the read cache.

use super::ReadCache;
use super::ahead::{Ahead, Room};
use super::flight::Flights;
use super::store::{Mismatch, ReadCounters};
use crate::policy::{ReadAhead, Share};
use crate::sabotage::{Sabotage, is_planted};
use crate::{Finding, Layer, Runtime, VolumeId};
use block::{BlockDevice, Extent, Geometry, IoError, Lba, PAGE_BYTES, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Pages that one operation below reads ahead; more are several operations at once.
const AHEAD_PAGES: u64 = (256 << 10) / PAGE_BYTES as u64;

/// A sleeve over a device: what was read is kept and read from memory, what will be read is fetched early.
///
/// Cheap to clone. Writes, discards and their errors pass through and leave the cache true.
pub struct Cached<D, R>(Rc<Inner<D, R>>);

struct Inner<D, R> {
    device: D,
    runtime: R,
    cache: ReadCache,
    volume: VolumeId,
    owner: u32,
    flights: Flights,
    ahead: RefCell<Ahead>,
    wasted: Cell<u64>,
}

/// What a command reads of a cached device.
struct Wanted {
    pages: Range<u64>,
    bytes: Range<u64>,
    device_pages: u64,
}

impl Wanted {
    /// What was asked for, of the pages that hold it.
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
    /// The device with a part of `cache`.
    pub fn new(
        cache: &ReadCache,
        volume: VolumeId,
        device: D,
        runtime: R,
        share: Share,
        read_ahead: ReadAhead,
    ) -> Self {
        let (cache, owner) = (cache.clone(), cache.join(share));
        let (flights, ahead, wasted) = (Flights::default(), RefCell::new(Ahead::new(read_ahead)), Cell::new(0));
        Self(Rc::new(Inner { device, runtime, cache, volume, owner, flights, ahead, wasted }))
    }

    /// The device below.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// The volume has this share from now on; what it has too much is dropped.
    pub fn set_share(&self, share: Share) {
        self.0.cache.store.borrow_mut().set_share(self.0.owner, share);
    }

    /// The volume is read ahead like this from now on.
    pub fn set_read_ahead(&self, read_ahead: ReadAhead) {
        self.0.ahead.borrow_mut().set_policy(read_ahead);
    }

    /// What the volume's part of the cache has done so far.
    #[must_use]
    pub fn counters(&self) -> ReadCounters {
        self.0.cache.store.borrow().counters(self.0.owner)
    }

    /// Runs `change`, after which any page of the device may be another; nothing read before or meanwhile is kept.
    pub async fn replace<T>(&self, change: impl Future<Output = T>) -> T {
        let inner = &self.0;
        let writing = inner.flights.write(0..u64::MAX);
        inner.cache.store.borrow_mut().forget(inner.owner);
        let changed = change.await;
        let _: bool = writing.end();
        changed
    }

    /// Flips one bit of the cached page `page` of 4 KiB, as bad memory would; false when it is not cached.
    #[cfg(test)]
    pub(crate) fn flip_bit(&self, page: u64) -> bool {
        self.0.cache.store.borrow_mut().flip_bit(self.0.owner, page)
    }

    /// Where `extent` is to be looked for; `None` when the cache has no part in it.
    fn wanted(&self, extent: Extent, geometry: &Geometry) -> Option<Wanted> {
        let inner = &*self.0;
        let blocks = PAGE_BYTES as u64 / u64::from(geometry.block_bytes);
        let pages = extent.start.0 / blocks..extent.end().0.div_ceil(blocks);
        let device_pages = geometry.blocks.0 / blocks;
        let is_off = inner.cache.store.borrow().share(inner.owner).weight == 0;
        // The last blocks of a device that is no whole number of pages are not cached.
        if is_off || extent.is_empty() || pages.end > device_pages {
            return None;
        }
        let first = extent.start.0 * u64::from(geometry.block_bytes);
        Some(Wanted { pages, bytes: first..first + extent.len.bytes(geometry.block_bytes), device_pages })
    }

    /// Notes that `bytes` are read, and begins to read ahead of them.
    fn look_ahead(&self, bytes: &Range<u64>, device_pages: u64) {
        let inner = &self.0;
        if inner.ahead.borrow().is_off() {
            return;
        }
        let mut fetch = inner.ahead.borrow_mut().observe(bytes.clone(), device_pages, || {
            let store = inner.cache.store.borrow();
            let wasted = store.counters(inner.owner).ahead_wasted_pages;
            let room_pages = store.entitlement(inner.owner) / 8 / PAGE_BYTES as u64;
            Room { room_pages, wasted_pages: wasted - inner.wasted.replace(wasted) }
        });
        while !fetch.is_empty() {
            let end = fetch.end.min((fetch.start / AHEAD_PAGES + 1) * AHEAD_PAGES);
            self.fetch_ahead(fetch.start..end);
            fetch.start = end;
        }
    }

    /// Fetches what is missing of `pages` beside the caller, without anybody waiting.
    fn fetch_ahead(&self, mut pages: Range<u64>) {
        let inner = &self.0;
        {
            let mut store = inner.cache.store.borrow_mut();
            let is_there = |page| store.has(inner.owner, page) || inner.flights.join(page).is_some();
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
        // The fetch counts as under way from now on, so that the reader who comes next joins it.
        let leading = inner.flights.lead(pages.clone());
        let this = self.clone();
        inner.runtime.spawn(async move {
            if let Ok(rope) = this.0.device.read(this.0.extent_of(&pages)).await {
                let good = leading.tell(&rope);
                this.0.keep(&pages, &rope, &good, true);
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

    /// The pages that `extent` touches.
    fn pages_of(&self, extent: Extent) -> Range<u64> {
        let blocks = self.blocks_per_page();
        extent.start.0 / blocks..extent.end().0.div_ceil(blocks)
    }

    /// Puts the `good` parts of what was read of `pages` into the cache.
    fn keep(&self, pages: &Range<u64>, rope: &Rope, good: &[Range<u64>], ahead: bool) {
        let mut store = self.cache.store.borrow_mut();
        for part in good {
            let bytes = |page: u64| (page - pages.start) as usize * PAGE_BYTES;
            store.insert(self.owner, part.clone(), &rope.slice(bytes(part.start)..bytes(part.end)), ahead);
        }
    }

    /// Adds what the cache has from `pages.start` on to `rope`, and returns where it ended.
    fn take(&self, pages: Range<u64>, rope: &mut Rope) -> u64 {
        let (from, kept) = (pages.start, rope.len());
        let taken = self.cache.store.borrow_mut().take(self.owner, pages, rope);
        let at = match taken {
            Ok(at) => at,
            Err(Mismatch(page)) => {
                let extent = self.extent_of(&(page..page + 1));
                let (layer, volume) = (Layer::Cache, self.volume);
                self.cache.findings.report(Finding { layer, volume, extent, healed: true });
                from + ((rope.len() - kept) / PAGE_BYTES) as u64
            }
        };
        if at > from {
            self.cache.store.borrow_mut().count(self.owner, |counters| counters.hit_pages += at - from);
        }
        at
    }

    /// The content of `pages`, of which the cache has given those before `at` into `rope`; nothing when a fetch
    /// failed. More was asked for than the caller wants, or by somebody else, so that error is not his.
    async fn fetch(&self, pages: &Range<u64>, mut at: u64, mut rope: Rope) -> Option<Rope> {
        loop {
            if at == pages.end {
                return Some(rope);
            }
            if let Some((fill, good)) = self.flights.join(at) {
                let brought = fill.wait().await?;
                // What was written since the fetch began is not in it, so we ask for that again.
                let end = pages.end.min(good);
                assert!(at < end, "a fetch brings the page for which it was joined");
                {
                    let mut store = self.cache.store.borrow_mut();
                    store.count(self.owner, |counters| counters.joined += 1);
                    store.touch(self.owner, at..end);
                }
                let bytes = |page: u64| (page - fill.pages.start) as usize * PAGE_BYTES;
                rope.append(brought.slice(bytes(at)..bytes(end)));
                at = end;
            } else {
                let run = at..self.end_of_miss(at..pages.end);
                let leading = self.flights.lead(run.clone());
                let brought = self.device.read(self.extent_of(&run)).await.ok()?;
                let good = leading.tell(&brought);
                self.keep(&run, &brought, &good, false);
                self.cache.store.borrow_mut().count(self.owner, |counters| counters.miss_pages += run.end - run.start);
                at = run.end;
                rope.append(brought);
            }
            at = self.take(at..pages.end, &mut rope);
        }
    }

    /// Where a fetch ends that begins with the first of `pages`: behind the last one that is missing, before
    /// one that another fetch brings.
    fn end_of_miss(&self, pages: Range<u64>) -> u64 {
        let mut end = self.flights.next_fill(pages.clone());
        assert!((pages.start + 1..=pages.end).contains(&end), "a fetch ends within the read, and brings a page");
        let store = self.cache.store.borrow();
        while end > pages.start + 1 && store.has(self.owner, end - 1) {
            end -= 1;
        }
        end
    }

    /// Runs a write or a discard of `extent`, and leaves the cache true whatever becomes of it.
    async fn change(
        &self,
        extent: Extent,
        data: Option<View>,
        change: impl Future<Output = Result<Written, IoError>>,
    ) -> Result<Written, IoError> {
        let pages = self.pages_of(extent);
        let keeps = data.is_none() && is_planted(Sabotage::DiscardKeepsCache);
        let writing = self.flights.write(pages.clone());
        let was_there = !keeps && self.cache.store.borrow_mut().remove(self.owner, pages);
        // A failed write leaves old or new content of each block: nothing is known, nothing is kept.
        let written = change.await;
        let undisturbed = writing.end();
        if let (Ok(_), true, true, Some(data)) = (&written, was_there, undisturbed, data) {
            self.put_written(extent, &data);
        }
        written
    }

    /// Pages that were in the cache are there again with what was written over all of them.
    fn put_written(&self, extent: Extent, data: &View) {
        let blocks = self.blocks_per_page();
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
        self.look_ahead(&wanted.bytes, wanted.device_pages);
        if at < wanted.pages.end {
            match inner.fetch(&wanted.pages, at, rope).await {
                Some(fetched) => rope = fetched,
                None => return inner.device.read(extent).await,
            }
        }
        Ok(wanted.cut(rope))
    }

    /// What is all in memory is read at once.
    fn read_at_once(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        let inner = &*self.0;
        let geometry = inner.device.geometry();
        geometry.admit(extent).ok()?;
        let wanted = self.wanted(extent, &geometry)?;
        {
            let store = inner.cache.store.borrow();
            if !wanted.pages.clone().all(|page| store.has(inner.owner, page)) {
                return None;
            }
        }
        let mut rope = Rope::new();
        if inner.take(wanted.pages.clone(), &mut rope) < wanted.pages.end {
            // A page was not what it had been, and is in the cache no more.
            return None;
        }
        self.look_ahead(&wanted.bytes, wanted.device_pages);
        Some(Ok(wanted.cut(rope)))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.0.device.geometry().extent_of(start, data.len())?;
        self.0.change(extent, Some(data.clone()), self.0.device.write(start, data)).await
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.0.device.geometry().extent_of(start, data.len())?;
        self.0.change(extent, Some(data.clone()), self.0.device.write_fresh(start, data)).await
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
