//! Larger members: the array uses more of each, and nothing moves. A segment is added behind what is there.

mod join;

use crate::array::{Array, Core, Current};
use crate::error::GrowError;
use crate::geometry::Layout;
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page::{PageId, emit};
use crate::on_disk::segments::Segment;
use crate::protect::Protected;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Blocks, Buf, Extent, IoError};
use futures_util::future::join_all;
use std::rc::Rc;

/// Pages that are written in one go.
const RUN_PAGES: u64 = 64;

impl<D: BlockDevice + 'static> Array<D> {
    /// The array uses `member_blocks` blocks of each member, and has as many blocks as the result says.
    ///
    /// For members that are larger than they were when the array was formatted, after each was replaced by a larger
    /// one or the devices grew. Hosts are served meanwhile; what is there stays where it is, and what is new reads as
    /// zeros. *Errors*: see [`GrowError`]. *Durability*: when it returns; after a crash before that the array has the
    /// old size or the new one.
    pub async fn grow(&self, member_blocks: Blocks) -> Result<Blocks, GrowError> {
        let core = self.core();
        let protected = core.begin_growing()?;
        let segment = core.plan_growth(&protected, member_blocks).inspect_err(|_| protected.growing.set(false))?;
        let (background, current) = (core.background.clone(), self.0.clone());
        let work = async move {
            core.begin_checkpoint(&protected).await;
            let grown = core.add_segment(&protected, segment, member_blocks, &current).await;
            protected.end_checkpoint();
            protected.growing.set(false);
            grown
        };
        background.finish(work).await?;
        Ok(self.layout().blocks())
    }

    /// How many blocks the array would have if it used `member_blocks` of each member, as [`Array::grow`] would do now.
    ///
    /// Nothing is changed. *Errors*: those with which growing would be refused.
    pub fn blocks_with(&self, member_blocks: Blocks) -> Result<Blocks, GrowError> {
        let core = self.core();
        let protected = core.admit_growing()?;
        let segment = core.plan_growth(&protected, member_blocks)?;
        Ok(Blocks(segment.blocks.end().0 / core.layout.chunk_blocks() * core.layout.stripe_blocks()))
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// Nobody else changes the shape until `growing` is unset.
    fn begin_growing(&self) -> Result<Rc<Protected>, GrowError> {
        let protected = self.admit_growing()?;
        protected.growing.set(true);
        Ok(protected)
    }

    fn admit_growing(&self) -> Result<Rc<Protected>, GrowError> {
        let protected = self.protected.clone().ok_or(GrowError::NotProtected)?;
        self.members.serving(Extent::default())?;
        if let Some(member) = self.members.not_in_service().iter().next() {
            return Err(GrowError::NotInService(member));
        }
        if self.moving.is_some() || protected.growing.get() {
            return Err(GrowError::Busy);
        }
        Ok(protected)
    }

    /// True while members may not come and go, for the array takes another shape.
    pub(crate) fn is_reshaping(&self) -> bool {
        self.moving.is_some() || self.protected.as_ref().is_some_and(|protected| protected.growing.get())
    }

    fn plan_growth(&self, protected: &Protected, member_blocks: Blocks) -> Result<Segment, GrowError> {
        let segments = &protected.segments;
        if member_blocks <= segments.member_blocks() {
            return Err(GrowError::NotLarger { blocks: member_blocks.0, used: segments.member_blocks().0 });
        }
        if segments.is_full() {
            return Err(GrowError::TooOften);
        }
        self.members.admit(member_blocks)?;
        Ok(segments.next(member_blocks, self.layout.chunk_blocks())?)
    }

    /// The pages that are missing are there, then the anchor says so, then commands see it. No checkpoint runs.
    async fn add_segment(
        self: &Rc<Self>,
        protected: &Protected,
        segment: Segment,
        member_blocks: Blocks,
        current: &Current<D>,
    ) -> Result<(), IoError> {
        let segments = &protected.segments;
        for pages in self.pages_to_make(protected, &segment) {
            if sabotage::is(Bug::GrowthWithoutPages) {
                break;
            }
            self.make_pages(protected, &segment, pages).await?;
        }
        self.members.flush_those(self.members.in_use()).await?;
        self.blank_rest(protected).await;
        protected.coarsen(segments.region_pages_with(&segment) / segments.region_pages());
        segments.add(segment, member_blocks);
        protected.cache.borrow_mut().widen(self.members.width(), segments.pages());
        self.run_checkpoint(protected).await?;
        let (old, blocks) = (self.layout, segments.data_blocks());
        let chunk_bytes = u32::try_from(old.chunk_blocks()).expect("a chunk is small") * crate::BLOCK_BYTES;
        let layout = Layout::new(old.level(), usize::from(old.members()), chunk_bytes, blocks);
        let layout = layout.expect("a layout of more stripes is as valid as it was");
        current.replace(Rc::new(self.reshaped(layout, self.members.places().into(), None)));
        Ok(())
    }

    /// Runs of pages that count as written once the segment is there, and were not before: those behind the last in
    /// a region that is used, and those that fall into one region with others that are.
    fn pages_to_make(&self, protected: &Protected, segment: &Segment) -> Vec<std::ops::Range<u64>> {
        let (before, after) = (protected.segments.region_pages(), protected.segments.region_pages_with(segment));
        let used = protected.used.borrow();
        let is_there = |page: u64| page < segment.pages.start && used.contains(page / before);
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for region in used.coarsened(after / before).iter() {
            let pages = region * after..((region + 1) * after).min(segment.pages.end);
            for page in pages.filter(|&page| !is_there(page)) {
                match runs.last_mut() {
                    // The pages of a segment do not lie behind those of the one before.
                    Some(last) if last.end == page && page % RUN_PAGES != 0 && page != segment.pages.start => {
                        last.end += 1;
                    }
                    _ => runs.push(page..page + 1),
                }
            }
        }
        runs
    }

    /// What the last page says of blocks behind the data is that they are unwritten: where both of its copies were
    /// lost once, it says that nothing is known of them, and rebuilds only put right what there was.
    async fn blank_rest(self: &Rc<Self>, protected: &Protected) {
        let end = protected.segments.data_blocks().0;
        let rest = Extent::new(end, end.next_multiple_of(PAGE_ENTRIES) - end);
        if rest.is_empty() {
            return;
        }
        for member in 0..self.members.width() {
            let _pins = self.hold_pages(protected, member, rest).await;
            let mut cache = protected.cache.borrow_mut();
            for block in rest.start.0..rest.end().0 {
                if cache.entry(member, block) != Some(Entry::UNWRITTEN) {
                    cache.set(member, block, Entry::UNWRITTEN);
                }
            }
        }
    }

    /// These pages are on all members that are in use, and say that nothing was written.
    async fn make_pages(
        self: &Rc<Self>,
        protected: &Protected,
        segment: &Segment,
        pages: std::ops::Range<u64>,
    ) -> Result<(), IoError> {
        let [own, other] = protected.segments.homes_with(segment, pages.start);
        let unwritten = [Entry::UNWRITTEN; PAGE_ENTRIES as usize];
        let make = |member: u16| {
            let mut run = Buf::zeroed(crate::geometry::bytes(pages.end - pages.start));
            for (page, into) in pages.clone().zip(run.chunks_mut(crate::BLOCK_BYTES as usize)) {
                into.copy_from_slice(&emit(protected.id, PageId { member, page }, protected.stamp.get(), &unwritten));
            }
            let run = run.freeze();
            [(member, own, run.clone()), ((member + 1) % self.members.width(), other, run)]
        };
        let in_use = self.members.in_use();
        let writes = (0..self.members.width()).flat_map(make).filter(|(member, ..)| in_use.contains(*member));
        let write = |(member, at, run)| async move { (member, self.members.write_beside_data(member, at, run).await) };
        for (member, written) in join_all(writes.map(write)).await {
            if let Err(error) = written {
                self.members.lose(member, error);
            }
        }
        self.members.serving(Extent::default())
    }
}
