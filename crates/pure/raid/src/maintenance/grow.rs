//! Larger members: the array uses more of each, and nothing moves. A segment is added behind what is there.

use crate::array::Array;
use crate::error::GrowError;
use crate::geometry::Layout;
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page;
use crate::on_disk::page::PageId;
use crate::on_disk::segments::Segment;
use crate::path::{Current, Path};
use crate::protected::Protected;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Blocks, Buf, Extent, IoError};
use futures_util::future::join_all;
use std::ops::Range;
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
        let growth = Growth::begin(&self.path())?;
        let segment = growth.plan(member_blocks).inspect_err(|_| growth.end())?;
        let (background, current) = (growth.array.background.clone(), self.0.clone());
        let work = async move {
            let log = &growth.array.log;
            log.begin_checkpoint().await;
            let grown = growth.add_segment(segment, member_blocks, &current).await;
            log.state.end_checkpoint();
            growth.end();
            grown
        };
        background.finish(work).await?;
        Ok(self.layout().blocks())
    }

    /// How many blocks the array would have if it used `member_blocks` of each member, as [`Array::grow`] would do now.
    ///
    /// Nothing is changed. *Errors*: those with which growing would be refused.
    pub fn blocks_with(&self, member_blocks: Blocks) -> Result<Blocks, GrowError> {
        let growth = Growth::admit(&self.path())?;
        let (segment, layout) = (growth.plan(member_blocks)?, growth.array.layout);
        Ok(Blocks(segment.blocks.end().0 / layout.chunk_blocks() * layout.stripe_blocks()))
    }
}

/// A protected array that may become larger.
pub(super) struct Growth<D> {
    pub(super) array: Rc<Protected<D>>,
}

impl<D: BlockDevice + 'static> Growth<D> {
    /// Nobody else changes the shape until [`Growth::end`].
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
        if path.is_reshaping() || array.members.places().iter().any(|place| place.shadow().is_some()) {
            return Err(GrowError::Busy);
        }
        Ok(Self { array })
    }

    /// The shape may be changed again.
    pub(super) fn end(&self) {
        assert!(self.array.commands.growing.replace(false), "a growth ends once");
    }

    fn plan(&self, member_blocks: Blocks) -> Result<Segment, GrowError> {
        let segments = &self.array.checksums.pages.segments;
        if member_blocks <= segments.member_blocks() {
            return Err(GrowError::NotLarger { blocks: member_blocks.0, used: segments.member_blocks().0 });
        }
        if segments.is_full() {
            return Err(GrowError::TooOften);
        }
        self.array.members.admit(member_blocks)?;
        Ok(segments.next(member_blocks, self.array.layout.chunk_blocks())?)
    }

    /// The pages that are missing are there, then the anchor says so, then commands see it. No checkpoint runs.
    async fn add_segment(&self, segment: Segment, member_blocks: Blocks, current: &Current<D>) -> Result<(), IoError> {
        let segments = &self.array.checksums.pages.segments;
        for pages in self.pages_to_make(&segment) {
            if sabotage::is(Bug::GrowthWithoutPages) {
                break;
            }
            self.make_pages(&segment, pages).await?;
        }
        self.array.members.flush_those(self.array.members.in_use()).await?;
        self.blank_rest().await;
        let factor = segments.region_pages_with(&segment) / segments.region_pages();
        self.array.checksums.pages.coarsen(factor);
        self.array.log.state.missed.coarsen(factor);
        segments.add(segment, member_blocks);
        self.array.checksums.pages.cache.borrow_mut().widen(self.array.members.width(), segments.pages());
        self.array.log.run_checkpoint().await?;
        let (old, blocks) = (self.array.layout, segments.data_blocks());
        let chunk_bytes = u32::try_from(old.chunk_blocks()).expect("a chunk is small") * crate::BLOCK_BYTES;
        let layout = Layout::new(old.level(), usize::from(old.members()), chunk_bytes, blocks);
        let layout = layout.expect("a layout of more stripes is as valid as it was");
        let grown = self.array.reshaped(layout, self.array.members.places().into());
        current.replace(Path::Protected(Rc::new(grown)));
        Ok(())
    }

    /// Runs of pages that count as written once the segment is there, and were not before: those behind the last in
    /// a region that is used, and those that fall into one region with others that are.
    fn pages_to_make(&self, segment: &Segment) -> Vec<Range<u64>> {
        let (before, after) = (
            self.array.checksums.pages.segments.region_pages(),
            self.array.checksums.pages.segments.region_pages_with(segment),
        );
        let used = self.array.checksums.pages.used.borrow();
        let is_there = |page: u64| page < segment.pages.start && used.contains(page / before);
        let mut runs: Vec<Range<u64>> = Vec::new();
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
    async fn blank_rest(&self) {
        let end = self.array.checksums.pages.segments.data_blocks().0;
        let rest = Extent::new(end, end.next_multiple_of(PAGE_ENTRIES) - end);
        if rest.is_empty() {
            return;
        }
        for member in 0..self.array.members.width() {
            let _pins = self.array.checksums.hold_pages(member, rest).await;
            let mut cache = self.array.checksums.pages.cache.borrow_mut();
            for block in rest.start.0..rest.end().0 {
                if cache.entry(member, block) != Some(Entry::UNWRITTEN) {
                    cache.set(member, block, Entry::UNWRITTEN);
                }
            }
        }
    }

    /// These pages are on all members that are in use, and say that nothing was written.
    async fn make_pages(&self, segment: &Segment, pages: Range<u64>) -> Result<(), IoError> {
        let [own, other] = self.array.checksums.pages.segments.homes_with(segment, pages.start);
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
            [(member, own, run.clone()), ((member + 1) % self.array.members.width(), other, run)]
        };
        let in_use = self.array.members.in_use();
        let writes = (0..self.array.members.width()).flat_map(make).filter(|(member, ..)| in_use.contains(*member));
        let write =
            |(member, at, run)| async move { (member, self.array.members.write_beside_data(member, at, run).await) };
        for (member, written) in join_all(writes.map(write)).await {
            if let Err(error) = written {
                self.array.members.lose(member, error);
            }
        }
        self.array.members.serving(Extent::default())
    }
}
