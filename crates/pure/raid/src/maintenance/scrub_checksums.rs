//! Scrub of the metadata on disk: pages that are cached in memory are not read otherwise, and would decay unnoticed.

use crate::array::Array;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::maintenance::scrub::Scrubbed;
use crate::members::ReadWait;
use crate::on_disk::page::{Found, PageId, blocks_of};
use crate::path::Path;
use crate::protected::Protected;
use crate::redo::anchors::newest_of;
use crate::status::Progress;
use block::{BlockDevice, Extent, IoError, IoErrorKind};
use futures_util::future::join_all;
use std::ops::Range;
use std::rc::Rc;

/// Pages of each member that are read in one step.
const STEP_PAGES: u64 = 16;

impl<D: BlockDevice + 'static> Array<D> {
    /// Verifies both copies of every checksum page, and the anchors, on all members.
    ///
    /// Damaged ones are reported and rewritten. Call it beside [`Array::scrub`], which compares data with the
    /// checksums in memory. `pace` is called after every few pages; its progress counts pages of one member, not
    /// stripes. *Errors*: `Unsupported` for an array without checksums, `Gone` when the array has stopped.
    pub async fn scrub_metadata(&self, mut pace: impl AsyncFnMut(Progress)) -> Result<Scrubbed, IoError> {
        let mut total = Scrubbed::default();
        // Holding a layout keeps the array from changing it.
        let of = |path: &Path<D>| {
            let unsupported = IoError::new(IoErrorKind::Unsupported, Extent::default());
            path.protected().cloned().map(|array| ScrubChecksums { array }).ok_or(unsupported)
        };
        // Before a checkpoint overwrites the slot of an anchor.
        total.healed += of(&self.path())?.verify_anchors().await;
        let pages = of(&self.path())?.array.checksums.pages.segments.pages();
        let mut page = 0;
        while page < pages {
            let end = pages.min(page + STEP_PAGES);
            // The array may change its shape between steps.
            let path = self.path();
            total.healed += of(&path)?.verify_pages(&path, page..end).await?;
            drop(path);
            pace(Progress { done: end, total: pages, front_stripe: 0 }).await;
            page = end;
        }
        // Rewrites the damaged copies, and advances the log's tail: batches that describe these pages and blocks are
        // not needed any more.
        of(&self.path())?.array.log.checkpoint().await?;
        Ok(total)
    }
}

/// Scrub of one layout's metadata.
struct ScrubChecksums<D> {
    array: Rc<Protected<D>>,
}

impl<D: BlockDevice + 'static> ScrubChecksums<D> {
    /// Verifies the pages; returns the number of copies to rewrite, which the next checkpoint does.
    async fn verify_pages(&self, path: &Path<D>, pages: Range<u64>) -> Result<u64, IoError> {
        let _still = path.pause_moves().await;
        let mut ids = Vec::new();
        for page in pages.filter(|&page| self.array.checksums.pages.is_used(page)) {
            ids.extend((0..self.array.members.counted_len()).map(|member| PageId { member, page }));
        }
        let mut wrong = 0;
        for healed in join_all(ids.into_iter().map(|id| self.verify_page(id))).await {
            wrong += healed;
        }
        self.array.members.serving(Extent::default())?;
        Ok(wrong)
    }

    async fn verify_page(&self, id: PageId) -> u64 {
        if self.wrong_copies(id).await.is_empty() {
            return 0;
        }
        // A page that is being written may look damaged; exclude checkpoints and read again.
        self.array.log.begin_checkpoint().await;
        let wrong = self.wrong_copies(id).await;
        if !wrong.is_empty() {
            let is_held = self.array.checksums.pages.cache.borrow().has(id);
            // Loading the page reports what is wrong with it.
            let pins = self.array.checksums.hold_pages(id.member, blocks_of(id.page)).await;
            self.array.checksums.pages.cache.borrow_mut().mark_dirty(id);
            drop(pins);
            let reported = wrong.iter().filter(|_| is_held);
            for &(member, kind) in reported {
                self.array.checksums.pages.report(Finding::new(member, blocks_of(id.page), kind, Outcome::Healed));
            }
        }
        self.array.log.state.end_checkpoint();
        wrong.len() as u64
    }

    /// Lists the copies of a page that are damaged, or older than the other one or than the page in memory.
    async fn wrong_copies(&self, id: PageId) -> Vec<(u16, FindingKind)> {
        let addresses = self.array.checksums.page_addresses(id);
        let found =
            join_all(addresses.iter().map(|&address| self.array.checksums.read_page(id, address, ReadWait::Unbounded)))
                .await;
        let clean = self.array.checksums.pages.cache.borrow().clean_entries(id);
        let newest = found.iter().flatten().flatten().map(Found::stamp).max();
        let kind = |found: &Found| {
            let is_known = clean.as_ref().is_none_or(|clean| found.has(clean));
            // A page that is clean in memory must be on disk with exactly these entries.
            (Some(found.stamp()) != newest || !is_known).then_some(FindingKind::PageStale)
        };
        let of_copy = |found: &Option<Result<Found, IoError>>| match found {
            None => None,
            Some(Err(_)) => Some(FindingKind::PageDamaged),
            Some(Ok(found)) => kind(found),
        };
        addresses.iter().zip(&found).filter_map(|(address, found)| Some((address.member, of_copy(found)?))).collect()
    }

    /// Counts members without the newest anchor; the next checkpoint gives them one.
    async fn verify_anchors(&self) -> u64 {
        self.array.log.begin_checkpoint().await;
        let own = self.array.log.state.anchor.borrow().clone();
        let mut wrong = 0;
        for member in (self.array.members.in_use() & self.array.members.counted()).iter() {
            let found =
                newest_of(async |extent| self.array.members.read_metadata(member, extent, ReadWait::Unbounded).await)
                    .await;
            // No checkpoint runs, so every counted member must have exactly this anchor.
            if found.is_ok_and(|found| found.age() == own.age() && found.member == member) {
                continue;
            }
            wrong += 1;
            let (extent, kind) = (Extent::new(0, 1), FindingKind::Anchor);
            self.array.checksums.pages.report(Finding::new(member, extent, kind, Outcome::Healed));
        }
        self.array.log.state.end_checkpoint();
        wrong
    }
}
