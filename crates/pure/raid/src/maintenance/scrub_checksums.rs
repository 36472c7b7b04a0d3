//! Looking at what lies on the members of the sums: pages that are in memory are not read otherwise, and rot unseen.

use crate::array::Array;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::maintenance::scrub::Scrubbed;
use crate::members::Patience;
use crate::on_disk::page::{Found, PageId, blocks_of};
use crate::path::Path;
use crate::protected::Protected;
use crate::redo::anchors::newest_of;
use crate::status::Progress;
use block::{BlockDevice, Extent, IoError, IoErrorKind};
use futures_util::future::join_all;
use std::ops::Range;
use std::rc::Rc;

/// Pages of each member that are looked at in one step.
const STEP_PAGES: u64 = 16;

impl<D: BlockDevice + 'static> Array<D> {
    /// Both copies of every page of sums, and where the log begins, are on the members as they should be.
    ///
    /// What is not is told and written anew. To be called beside [`Array::scrub`], which compares data with the sums
    /// that are in memory. `pace` is called after every few pages; its progress counts pages of one member, no stripes.
    /// *Errors*: `Unsupported` for an array without sums, `Gone` when the array has stopped.
    pub async fn scrub_sums(&self, mut pace: impl AsyncFnMut(Progress)) -> Result<Scrubbed, IoError> {
        let mut total = Scrubbed::default();
        // Who holds a layout keeps the array from taking another.
        let of = |path: &Path<D>| {
            let unsupported = IoError::new(IoErrorKind::Unsupported, Extent::default());
            path.protected().cloned().map(|array| ScrubChecksums { array }).ok_or(unsupported)
        };
        // Before the next one takes the place of the newest.
        total.healed += of(&self.path())?.look_at_anchors().await;
        let pages = of(&self.path())?.array.checksums.pages.segments.pages();
        let mut page = 0;
        while page < pages {
            let end = pages.min(page + STEP_PAGES);
            // Between the steps the array may take another shape.
            let path = self.path();
            total.healed += of(&path)?.look_at_pages(&path, page..end).await?;
            drop(path);
            pace(Progress { done: end, total: pages, front_stripe: 0 }).await;
            page = end;
        }
        // Writes them anew, and what the log says of pages and blocks need not be right any more.
        of(&self.path())?.array.log.checkpoint().await?;
        Ok(total)
    }
}

/// A look at what lies on the members of the checksums.
struct ScrubChecksums<D> {
    array: Rc<Protected<D>>,
}

impl<D: BlockDevice + 'static> ScrubChecksums<D> {
    /// How many copies had to be written anew; they are, with the next checkpoint.
    async fn look_at_pages(&self, path: &Path<D>, pages: Range<u64>) -> Result<u64, IoError> {
        let _still = path.hold_still().await;
        let mut ids = Vec::new();
        for page in pages.filter(|&page| self.array.checksums.pages.is_used(page)) {
            ids.extend((0..self.array.members.width()).map(|member| PageId { member, page }));
        }
        let mut wrong = 0;
        for healed in join_all(ids.into_iter().map(|id| self.look_at_page(id))).await {
            wrong += healed;
        }
        self.array.members.serving(Extent::default())?;
        Ok(wrong)
    }

    async fn look_at_page(&self, id: PageId) -> u64 {
        if self.wrong_copies(id).await.is_empty() {
            return 0;
        }
        // A page that is being written may look like that.
        self.array.log.begin_checkpoint().await;
        let wrong = self.wrong_copies(id).await;
        if !wrong.is_empty() {
            let is_held = self.array.checksums.pages.cache.borrow().has(id);
            // Whoever takes it into memory tells what was wrong.
            let pins = self.array.checksums.hold_pages(id.member, blocks_of(id.page)).await;
            self.array.checksums.pages.cache.borrow_mut().soil(id);
            drop(pins);
            let told = wrong.iter().filter(|_| is_held);
            for &(member, kind) in told {
                self.array.checksums.pages.report(Finding::new(member, blocks_of(id.page), kind, Outcome::Healed));
            }
        }
        self.array.log.state.end_checkpoint();
        wrong.len() as u64
    }

    /// The copies of a page that are damaged, or older than the other one or than what is in memory.
    async fn wrong_copies(&self, id: PageId) -> Vec<(u16, FindingKind)> {
        let homes = self.array.checksums.homes(id);
        let found =
            join_all(homes.iter().map(|&home| self.array.checksums.read_home(id, home, Patience::Patient))).await;
        let clean = self.array.checksums.pages.cache.borrow().clean(id);
        let newest = found.iter().flatten().flatten().map(Found::stamp).max();
        let kind = |found: &Found| {
            let is_known = clean.as_ref().is_none_or(|clean| found.has(clean));
            (Some(found.stamp()) != newest || !is_known).then_some(FindingKind::PageStale)
        };
        let of_copy = |found: &Option<Result<Found, IoError>>| match found {
            None => None,
            Some(Err(_)) => Some(FindingKind::PageDamaged),
            Some(Ok(found)) => kind(found),
        };
        homes.iter().zip(&found).filter_map(|(home, found)| Some((home.member, of_copy(found)?))).collect()
    }

    /// How many members do not have the newest anchor; they have the next.
    async fn look_at_anchors(&self) -> u64 {
        self.array.log.begin_checkpoint().await;
        let own = self.array.log.state.anchor.borrow().clone();
        let mut wrong = 0;
        for member in (self.array.members.in_use() & self.array.members.all()).iter() {
            let found =
                newest_of(async |extent| self.array.members.read_beside_data(member, extent, Patience::Patient).await)
                    .await;
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
