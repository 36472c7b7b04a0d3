//! Growth to larger members: a segment is appended behind the existing ones, and nothing moves.

use crate::array::Array;
use crate::bug_injection::{self, InjectedBug};
use crate::error::GrowError;
use crate::geometry::Layout;
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page;
use crate::on_disk::page::PageId;
use crate::on_disk::segments::Segment;
use crate::path::{Current, Path};
use crate::protected::Protected;
use block::{BlockDevice, Blocks, Buf, Extent, IoError};
use futures_util::future::join_all;
use std::ops::Range;
use std::rc::Rc;

/// Upper bound of adjacent pages written in one operation.
const RUN_PAGES: u64 = 64;

impl<D: BlockDevice + 'static> Array<D> {
    /// Grows the array to `member_blocks` blocks of each member, and returns its new number of blocks.
    ///
    /// For members that are larger than when the array was formatted, because each was replaced by a larger one or
    /// the devices grew. Hosts are served during the growth; existing data stays in place, and new blocks read as
    /// zeros. *Errors*: see [`GrowError`]. *Durability*: when it returns; after an earlier crash the array has the
    /// old size or the new one.
    pub async fn grow(&self, member_blocks: Blocks) -> Result<Blocks, GrowError> {
        let growth = Growth::begin(&self.path())?;
        // A refused plan releases the right to change the shape.
        let segment = growth.plan(member_blocks).inspect_err(|_| growth.end())?;
        let (background, current) = (growth.array.background.clone(), self.0.clone());
        let work = async move {
            let log = &growth.array.log;
            // No checkpoint may write an anchor while pages and sizes are half changed.
            log.begin_checkpoint().await;
            let grown = growth.add_segment(segment, member_blocks, &current).await;
            log.state.end_checkpoint();
            growth.end();
            grown
        };
        background.finish(work).await?;
        Ok(self.layout().blocks())
    }

    /// Returns the number of blocks that the array would have after [`Array::grow`] to `member_blocks`.
    ///
    /// Nothing is changed. *Errors*: those with which growing would be refused.
    pub fn blocks_with(&self, member_blocks: Blocks) -> Result<Blocks, GrowError> {
        let growth = Growth::admit(&self.path())?;
        let (segment, layout) = (growth.plan(member_blocks)?, growth.array.layout);
        // Exact, because a segment ends with a whole chunk.
        Ok(Blocks(segment.blocks.end().0 / layout.chunk_blocks() * layout.stripe_blocks()))
    }
}

/// Protected array whose shape may be changed.
pub(super) struct Growth<D> {
    pub(super) array: Rc<Protected<D>>,
}

impl<D: BlockDevice + 'static> Growth<D> {
    /// Reserves the right to change the shape until [`Growth::end`].
    pub(super) fn begin(path: &Path<D>) -> Result<Self, GrowError> {
        let growth = Self::admit(path)?;
        assert!(!growth.array.commands.growing.replace(true), "an array grows in one way at a time");
        Ok(growth)
    }

    fn admit(path: &Path<D>) -> Result<Self, GrowError> {
        let array = path.protected().cloned().ok_or(GrowError::NotProtected)?;
        array.members.serving(Extent::default())?;
        if let Some(member) = array.members.not_in_service().iter().next() {
            return Err(GrowError::NotInService(member));
        }
        if path.is_reshaping() || array.members.places().iter().any(|place| place.copy_target().is_some()) {
            return Err(GrowError::Busy);
        }
        Ok(Self { array })
    }

    /// Releases the right to change the shape.
    pub(super) fn end(&self) {
        assert!(self.array.commands.growing.replace(false), "a growth ends once");
    }

    fn plan(&self, member_blocks: Blocks) -> Result<Segment, GrowError> {
        let segments = &self.array.checksums.pages.segments;
        if member_blocks <= segments.member_blocks() {
            return Err(GrowError::NotLarger { blocks: member_blocks.0, used: segments.member_blocks().0 });
        }
        // The anchor has room for eight sizes.
        if segments.is_full() {
            return Err(GrowError::TooOften);
        }
        self.array.members.admit(member_blocks)?;
        Ok(segments.next(member_blocks, self.array.layout.chunk_blocks())?)
    }

    /// Writes the missing pages, then the anchor with the new size, then switches commands to it. No checkpoint runs.
    async fn add_segment(&self, segment: Segment, member_blocks: Blocks, current: &Current<D>) -> Result<(), IoError> {
        let segments = &self.array.checksums.pages.segments;
        // Where no one reads yet: until the anchor, a crash leaves the old size.
        for pages in self.pages_to_make(&segment) {
            if bug_injection::is_injected(InjectedBug::GrowthWithoutPages) {
                break;
            }
            self.make_pages(&segment, pages).await?;
        }
        self.array.members.flush_those(self.array.members.in_use()).await?;
        self.mark_tail_unwritten().await;
        let factor = segments.region_pages_with(&segment) / segments.region_pages();
        // All bitmaps change together, with no await in between.
        self.array.checksums.pages.coarsen(factor);
        self.array.log.state.missed.coarsen(factor);
        segments.add(segment, member_blocks);
        self.array.checksums.pages.cache.borrow_mut().widen(self.array.members.counted_len(), segments.pages());
        self.array.log.run_checkpoint().await?;
        let (old, blocks) = (self.array.layout, segments.data_blocks());
        let chunk_bytes = u32::try_from(old.chunk_blocks()).expect("a chunk is small") * crate::BLOCK_BYTES;
        let layout = Layout::new(old.level(), usize::from(old.members()), chunk_bytes, blocks);
        let layout = layout.expect("a layout of more stripes is as valid as it was");
        let grown = self.array.reshaped(layout, self.array.members.places().into());
        // Commands see the new size only after the anchor is stable.
        current.replace(Path::Protected(Rc::new(grown)));
        Ok(())
    }

    /// Runs of pages that will count as written once the segment is added and do not exist yet: those behind the last
    /// page of a used region, and those that share a coarser region with used ones.
    fn pages_to_make(&self, segment: &Segment) -> Vec<Range<u64>> {
        let (before, after) = (
            self.array.checksums.pages.segments.region_pages(),
            self.array.checksums.pages.segments.region_pages_with(segment),
        );
        let used = self.array.checksums.pages.used.borrow();
        // Pages behind the old end are new, even where their region is used.
        let is_there = |page: u64| page < segment.pages.start && used.contains(page / before);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for region in used.coarsened(after / before).iter() {
            let pages = region * after..((region + 1) * after).min(segment.pages.end);
            for page in pages.filter(|&page| !is_there(page)) {
                match runs.last_mut() {
                    // The pages of a segment do not lie directly behind those of the one before.
                    Some(last) if last.end == page && page % RUN_PAGES != 0 && page != segment.pages.start => {
                        last.end += 1;
                    }
                    _ => runs.push(page..page + 1),
                }
            }
        }
        runs
    }

    /// Marks the entries behind the data in the last page as unwritten: they would say unknown if both copies of the
    /// page had been lost once, because rebuilds restore only existing blocks.
    async fn mark_tail_unwritten(&self) {
        let end = self.array.checksums.pages.segments.data_blocks().0;
        let rest = Extent::new(end, end.next_multiple_of(PAGE_ENTRIES) - end);
        if rest.is_empty() {
            return;
        }
        for member in 0..self.array.members.counted_len() {
            let _pins = self.array.checksums.hold_pages(member, rest).await;
            let mut cache = self.array.checksums.pages.cache.borrow_mut();
            for block in rest.start.0..rest.end().0 {
                // Setting an entry makes its page dirty, so unchanged ones are left alone.
                if cache.entry(member, block) != Some(Entry::UNWRITTEN) {
                    cache.set(member, block, Entry::UNWRITTEN);
                }
            }
        }
    }

    /// Writes these pages, all unwritten, to all members in use.
    async fn make_pages(&self, segment: &Segment, pages: Range<u64>) -> Result<(), IoError> {
        let [own, other] = self.array.checksums.pages.segments.page_addresses_with(segment, pages.start);
        let unwritten = [Entry::UNWRITTEN; PAGE_ENTRIES as usize];
        let make = |member: u16| {
            let mut run = Buf::zeroed(crate::geometry::bytes(pages.end - pages.start));
            for (page, into) in pages.clone().zip(run.chunks_mut(crate::BLOCK_BYTES as usize)) {
                into.copy_from_slice(&page::emit(
                    self.array.log.state.id,
                    PageId { member, page },
                    self.array.checksums.pages.stamp.get(),
                    &unwritten,
                ));
            }
            let run = run.freeze();
            // Both copies: on the member itself and on the next one.
            [(member, own, run.clone()), ((member + 1) % self.array.members.counted_len(), other, run)]
        };
        let in_use = self.array.members.in_use();
        let writes =
            (0..self.array.members.counted_len()).flat_map(make).filter(|(member, ..)| in_use.contains(*member));
        let write =
            |(member, at, run)| async move { (member, self.array.members.write_metadata(member, at, run).await) };
        for (member, written) in join_all(writes.map(write)).await {
            if let Err(error) = written {
                self.array.members.mark_failed(member, error);
            }
        }
        self.array.members.serving(Extent::default())
    }
}
