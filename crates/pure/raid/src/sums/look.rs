//! Looking at what lies on the members of the sums: pages that are in memory are not read otherwise, and rot unseen.

use crate::array::{Array, Core};
use crate::finding::{Finding, FindingKind, Outcome};
use crate::on_disk::page::{Found, PageId, blocks_of};
use crate::open::newest_of;
use crate::protect::Protected;
use crate::scrub::Scrubbed;
use crate::verify::Progress;
use block::{BlockDevice, Extent, IoError, IoErrorKind};
use futures_util::future::join_all;
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
        // Who holds the core keeps the array from taking another shape.
        let Some(protected) = self.core().protected.clone() else {
            return Err(IoError::new(IoErrorKind::Unsupported, Extent::default()));
        };
        // Before the next one takes the place of the newest.
        total.healed += self.core().look_at_anchors(&protected).await;
        let pages = protected.segments.pages();
        let mut page = 0;
        while page < pages {
            let end = pages.min(page + STEP_PAGES);
            // Between the steps the array may take another shape.
            total.healed += self.core().look_at_pages(&protected, page..end).await?;
            pace(Progress { done: end, total: pages, front_stripe: 0 }).await;
            page = end;
        }
        // Writes them anew, and what the log says of pages and blocks need not be right any more.
        self.core().checkpoint().await?;
        Ok(total)
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// How many copies had to be written anew; they are, with the next checkpoint.
    async fn look_at_pages(
        self: &Rc<Self>,
        protected: &Protected,
        pages: std::ops::Range<u64>,
    ) -> Result<u64, IoError> {
        let _still = self.hold_still().await;
        let mut ids = Vec::new();
        for page in pages.filter(|&page| protected.is_used(page)) {
            ids.extend((0..self.members.width()).map(|member| PageId { member, page }));
        }
        let mut wrong = 0;
        for healed in join_all(ids.into_iter().map(|id| self.look_at_page(protected, id))).await {
            wrong += healed;
        }
        self.members.serving(Extent::default())?;
        Ok(wrong)
    }

    async fn look_at_page(self: &Rc<Self>, protected: &Protected, id: PageId) -> u64 {
        if self.wrong_copies(protected, id).await.is_empty() {
            return 0;
        }
        // A page that is being written may look like that.
        self.begin_checkpoint(protected).await;
        let wrong = self.wrong_copies(protected, id).await;
        if !wrong.is_empty() {
            let is_held = protected.cache.borrow().has(id);
            // Whoever takes it into memory tells what was wrong.
            let pins = self.hold_pages(protected, id.member, blocks_of(id.page)).await;
            protected.cache.borrow_mut().soil(id);
            drop(pins);
            let told = wrong.iter().filter(|_| is_held);
            for &(member, kind) in told {
                protected.report(Finding { member, extent: blocks_of(id.page), kind, outcome: Outcome::Healed });
            }
        }
        protected.end_checkpoint();
        wrong.len() as u64
    }

    /// The copies of a page that are damaged, or older than the other one or than what is in memory.
    async fn wrong_copies(self: &Rc<Self>, protected: &Protected, id: PageId) -> Vec<(u16, FindingKind)> {
        let homes = self.homes(protected, id);
        let found = join_all(homes.iter().map(|&home| self.read_home(protected, id, home))).await;
        let clean = protected.cache.borrow().clean(id);
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
    async fn look_at_anchors(self: &Rc<Self>, protected: &Protected) -> u64 {
        self.begin_checkpoint(protected).await;
        let own = protected.anchor.borrow().clone();
        let mut wrong = 0;
        for member in (self.members.in_use() & self.members.all()).iter() {
            let found = newest_of(async |extent| self.members.read_beside_data(member, extent).await).await;
            if found.is_ok_and(|found| found.age() == own.age() && found.member == member) {
                continue;
            }
            wrong += 1;
            let (extent, kind) = (Extent::new(0, 1), FindingKind::Anchor);
            protected.report(Finding { member, extent, kind, outcome: Outcome::Healed });
        }
        protected.end_checkpoint();
        wrong
    }
}
