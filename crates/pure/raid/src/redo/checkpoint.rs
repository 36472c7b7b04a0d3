//! Checkpoints: everything logged is in place and in stable checksum pages, so that its log space can be freed.
//!
//! Order: writes in place have ended; pages go to the doublewrite area, then to their homes, each with a flush; then
//! the anchor. A checkpoint needs no log space itself, so a full log can always be freed.

use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::geometry::{MemberSet, bytes};
use crate::on_disk::anchor::{Anchor, WRITTEN_BLOCKS, page_key};
use crate::on_disk::area::{Area, PAGE_ENTRIES};
use crate::on_disk::entry::Entry;
use crate::on_disk::page::{PageId, emit};
use crate::redo::RedoLog;
use crate::redo::ring::Head;
use block::{BlockDevice, Buf, Extent, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::task::Poll;

/// Upper bound of adjacent pages written in one operation.
const RUN_PAGES: usize = 64;
/// Runs of pages that are written concurrently.
const RUNS_AT_ONCE: usize = 16;

/// Page that is being written to its homes.
struct PageWrite {
    id: PageId,
    block: View,
}

impl<D: BlockDevice + 'static> RedoLog<D> {
    /// Starts a checkpoint in the background unless one is running.
    pub(crate) fn start_checkpoint(self: &Rc<Self>) {
        if self.state.checkpointing.replace(true) {
            return;
        }
        let log = self.clone();
        self.background.start(async move {
            // A checkpoint fails only where the array has stopped, and every command returns that.
            let _ = log.run_checkpoint().await;
            log.state.end_checkpoint();
        });
    }

    /// Writes back everything that was logged before this call and advances the log's tail behind it.
    pub(crate) async fn checkpoint(self: &Rc<Self>) -> Result<(), IoError> {
        self.checkpoint_with(MemberSet::NONE).await
    }

    /// Checkpoints, and lets the anchor count the members of `admitted`, which lack no pages except those dirty now.
    pub(crate) async fn checkpoint_with(self: &Rc<Self>, admitted: MemberSet) -> Result<(), IoError> {
        let log = self.clone();
        let work = async move {
            log.begin_checkpoint().await;
            // Set while no other checkpoint runs, so that an anchor never counts a member in the middle of its pages.
            log.state.admitted.set(log.state.admitted.get() | admitted);
            let done = log.run_checkpoint().await;
            log.state.end_checkpoint();
            done
        };
        self.background.finish(work).await
    }

    /// Waits for a running checkpoint and prevents others until [`LogState::end_checkpoint`].
    pub(crate) async fn begin_checkpoint(&self) {
        self.end_of_checkpoint().await;
        assert!(!self.state.checkpointing.replace(true), "one checkpoint runs at a time");
    }

    /// Waits until no checkpoint is running.
    pub(crate) async fn end_of_checkpoint(&self) {
        let free = self.background.until(|cx| {
            if !self.state.checkpointing.get() {
                return Poll::Ready(());
            }
            self.state.ring.watch(cx);
            Poll::Pending
        });
        free.await;
    }

    /// Runs the steps of a checkpoint; the caller holds the right to run one. On an error the log's tail stays where
    /// it was.
    pub(crate) async fn run_checkpoint(self: &Rc<Self>) -> Result<(), IoError> {
        assert!(self.state.checkpointing.get(), "a checkpoint runs alone");
        // The tail advances to here: batches sealed later are not covered, even if their writes end before the
        // anchor.
        let head = self.state.ring.head();
        // What is logged from here on is covered by the next checkpoint only.
        self.state.missed.checkpoint_started();
        // Pages must not be written before the changes they describe are in place.
        let settled = self.background.until(|cx| {
            if self.members.serving(Extent::default()).is_err()
                || self.state.ring.is_settled(head.number)
                || bug_injection::is_injected(InjectedBug::TailBeforeInPlace)
            {
                return Poll::Ready(());
            }
            self.state.ring.watch(cx);
            Poll::Pending
        });
        settled.await;
        self.members.serving(Extent::default())?;
        if bug_injection::is_injected(InjectedBug::AnchorBeforePages) {
            self.write_anchor(self.state.ring.epoch(), head).await?;
            return self.write_pages().await;
        }
        self.write_pages().await?;
        if !bug_injection::is_injected(InjectedBug::TailBeforeFlush) {
            // Makes in-place writes durable, unless the flushes of the pages did already.
            self.members.flush_those(self.members.in_use()).await?;
        }
        self.write_anchor(self.state.ring.epoch(), head).await?;
        // Only after the anchor is stable: until then a crash would replay these batches.
        self.state.ring.free(head);
        self.state.missed.checkpoint_ended();
        Ok(())
    }

    /// Writes every dirty page to both homes, in rounds that go through the doublewrite area first, so that a page torn
    /// in its homes is whole there. A page that a needed member refuses stays dirty.
    pub(crate) async fn write_pages(self: &Rc<Self>) -> Result<(), IoError> {
        let (pages, regions) = self.pages_to_write();
        let mut alone: BTreeSet<PageId> = BTreeSet::new();
        for round in pages.chunks(usize::try_from(self.state.area.doublewrite.len.0).unwrap_or(usize::MAX)) {
            // Only the round with the highest stamp can be torn, so recovery restores that round alone.
            self.checksums.pages.stamp.set(self.checksums.pages.stamp.get() + 1);
            let round: Vec<PageWrite> = round.iter().map(|&(id, _)| self.encode_page(id)).collect();
            let round = &round[..];
            if !bug_injection::is_injected(InjectedBug::PagesNotSpared) {
                // The doublewrite area is stable before the first home is overwritten.
                self.write_doublewrite(round).await?;
            }
            let mut refused: BTreeMap<PageId, u8> = BTreeMap::new();
            // Copy 0, copy 1, and the home that a page gets once a joining member counts.
            for copy in 0..3 {
                for id in self.write_copies(round, copy).await {
                    *refused.entry(id).or_default() += 1;
                }
            }
            if refused.values().any(|&copies| copies == 2) {
                // Both homes refused: the log must not forget what no page remembers.
                self.members.stop(IoError::new(IoErrorKind::Medium, Extent::default()));
            }
            alone.extend(refused.into_keys());
            if !bug_injection::is_injected(InjectedBug::TailBeforeFlush) {
                self.members.flush_those(self.members.in_use()).await?;
            }
        }
        self.members.serving(Extent::default())?;
        // Only now, because an anchor must not count a region before all of its pages exist.
        regions.into_iter().for_each(|region| self.checksums.pages.used.borrow_mut().add(region));
        let mut cache = self.checksums.pages.cache.borrow_mut();
        for (id, changes) in pages {
            // A page with one good copy stays dirty: the refused copy is old, and the member of the other may be
            // lost.
            if let Some(changes) = changes.filter(|_| !alone.contains(&id)) {
                cache.written(id, changes);
            }
        }
        Ok(())
    }

    /// Encodes the current state of a page with this round's stamp.
    fn encode_page(&self, id: PageId) -> PageWrite {
        let unwritten = [Entry::UNWRITTEN; PAGE_ENTRIES as usize];
        let entries = self.checksums.pages.cache.borrow().on_disk_entries(id);
        let block = emit(self.state.id, id, self.checksums.pages.stamp.get(), entries.as_deref().unwrap_or(&unwritten));
        PageWrite { id, block }
    }

    /// Writes the pages to the doublewrite area, on as many members as a batch.
    async fn write_doublewrite(self: &Rc<Self>, pages: &[PageWrite]) -> Result<(), IoError> {
        self.write_log_mirrors(self.checksums.pages.stamp.get(), self.state.area.doublewrite.start, &joined(pages))
            .await
    }

    /// Lists dirty pages with their change counts, all pages of regions used for the first time (without a count),
    /// and those regions.
    fn pages_to_write(&self) -> (Vec<(PageId, Option<u64>)>, Vec<u64>) {
        let cache = self.checksums.pages.cache.borrow();
        let dirty = cache.dirty_pages();
        let per_region = self.checksums.pages.segments.region_pages();
        let mut regions: Vec<u64> = dirty.iter().map(|(id, _)| id.page / per_region).collect();
        regions.sort_unstable();
        regions.dedup();
        // A region used for the first time needs all of its pages: from now on absent ones would be damage.
        regions.retain(|&region| !self.checksums.pages.used.borrow().contains(region));
        let mut ids: BTreeMap<PageId, Option<u64>> = BTreeMap::new();
        for &region in &regions {
            let pages = region * per_region..((region + 1) * per_region).min(self.checksums.pages.segments.pages());
            for page in pages {
                ids.extend((0..).zip(self.members.places()).map(|(member, _)| (PageId { member, page }, None)));
            }
        }
        // Last, so that the change counts replace the entries without one.
        ids.extend(dirty.into_iter().map(|(id, changes)| (id, Some(changes))));
        (ids.into_iter().collect(), regions)
    }

    /// Writes one copy of each page; returns the pages that a member refused which the array needs.
    async fn write_copies(self: &Rc<Self>, pages: &[PageWrite], copy: usize) -> Vec<PageId> {
        // Copy B is laid out as copy A, so the runs of the one are those of the other.
        let first = |write: &PageWrite| self.checksums.pages.segments.page_addresses(write.id.page)[0];
        let follows = |one: &PageWrite, next: &PageWrite| {
            // Adjacent homes are one write; a segment boundary breaks the run.
            one.id.member == next.id.member && one.id.page + 1 == next.id.page && first(one).0 + 1 == first(next).0
        };
        let runs = pages.chunk_by(follows).flat_map(|run| run.chunks(RUN_PAGES));
        let write = |run: &'_ [PageWrite]| {
            let address = self.checksums.write_address(run[0].id, copy);
            let ids: Vec<PageId> = run.iter().map(|page| page.id).collect();
            let joined = joined(run);
            async move {
                // A member that is not in use gets its pages with its rebuild.
                let Some(address) = address.filter(|address| self.members.in_use().contains(address.member)) else {
                    return Vec::new();
                };
                let place = self.members.place(address.member);
                let incarnation = place.device_incarnation.get();
                match self.members.write_metadata(address.member, address.at, joined).await {
                    Ok(_) => {
                        // Only complete homes count as given: copy 2 belongs to a member that is still joining.
                        if let (0 | 1, Some(last)) = (copy, ids.last()) {
                            let key = (page_key(last.page, copy), self.checksums.pages.stamp.get());
                            self.state.last_pages.borrow_mut()[usize::from(address.member)] = key;
                        }
                        Vec::new()
                    }
                    Err(error) if error.kind == IoErrorKind::Medium && !self.members.can_lose(address.member) => ids,
                    Err(error) => {
                        self.members.mark_failed_in(address.member, incarnation, error);
                        Vec::new()
                    }
                }
            }
        };
        let refused: Vec<Vec<PageId>> = stream::iter(runs).map(write).buffer_unordered(RUNS_AT_ONCE).collect().await;
        refused.into_iter().flatten().collect()
    }

    /// Writes an anchor to all counted members: the log starts at `head`, in `epoch`.
    pub(crate) async fn write_anchor(self: &Rc<Self>, epoch: u64, head: Head) -> Result<(), IoError> {
        let anchor = self.next_anchor(epoch, head);
        {
            let last = self.state.anchor.borrow();
            assert!(last.age() < anchor.age(), "anchors are numbered upwards");
            assert!(last.tail_number <= anchor.tail_number, "the log does not go back");
            assert!(last.stamp <= anchor.stamp, "pages are stamped upwards");
            assert!(self.members.layout.survives(anchor.absent), "an anchor counts enough members to serve from");
        }
        // Kept before it is written: after a failed write the next anchor must not use its number again.
        self.state.anchor.replace(anchor.clone());
        self.put_anchor(&anchor, self.members.counted() - anchor.absent).await
    }

    /// Builds the next anchor from the current state.
    pub(crate) fn next_anchor(&self, epoch: u64, head: Head) -> Anchor {
        let mut members = self.members.in_use() & self.members.counted();
        // A joining member is counted only once it has all of its pages.
        if !bug_injection::is_injected(InjectedBug::CountedBeforePages) {
            members = members - (self.members.joining() - self.state.admitted.get());
        }
        let mut anchor = self.state.anchor.borrow().clone();
        anchor.number += 1;
        (anchor.epoch, anchor.tail_number) = (epoch, head.number);
        anchor.tail_block = head.at % self.state.ring.blocks;
        anchor.stamp = self.checksums.pages.stamp.get();
        anchor.absent = self.members.counted() - members;
        // Number of counted members; a joining one is not included.
        anchor.shape[1] = u64::from(self.members.counted_len());
        if !bug_injection::is_injected(InjectedBug::GrowthNotInAnchor) {
            anchor.sizes = self.checksums.pages.segments.sizes();
        }
        anchor.reshape = self.checksums.pages.position.get();
        anchor.last_pages.clone_from(&self.state.last_pages.borrow());
        anchor.used.clone_from(&self.checksums.pages.used.borrow());
        anchor.missed.clone_from(&self.state.missed.regions.borrow());
        // All members are current, so nothing is missed any more.
        if anchor.absent.is_empty() {
            anchor.missed.clear();
        }
        for member in members.iter() {
            // Lets a later opening tell a device that returns as it left from one that went on elsewhere.
            anchor.last_anchor[usize::from(member)] = anchor.age();
        }
        anchor
    }

    /// Writes the anchor to these members and flushes them; a member that fails to write it is failed.
    pub(crate) async fn put_anchor(self: &Rc<Self>, anchor: &Anchor, members: MemberSet) -> Result<(), IoError> {
        let write = |member| {
            let block = Anchor { member, ..anchor.clone() }.emit();
            // The slots alternate, so a torn write leaves the previous anchor.
            let at = Area::anchor(anchor.number % 2);
            async move {
                let place = self.members.place(member);
                let incarnation = place.device_incarnation.get();
                if let Err(error) = self.members.write_metadata(member, at, block).await {
                    self.members.mark_failed_in(member, incarnation, error);
                }
            }
        };
        join_all(members.iter().map(write)).await;
        self.members.flush_those(members).await
    }

    /// Erases the anchor slots and the first block of the ring, so that nothing of an earlier array is found.
    pub(crate) async fn wipe(self: &Rc<Self>, member: u16) -> Result<(), IoError> {
        let place = self.members.place(member);
        let zeros = View::zeroed(WRITTEN_BLOCKS as usize * BLOCK_BYTES as usize);
        for slot in [0, 1] {
            let _ = place.write_metadata(Area::anchor(slot), zeros.clone()).await?;
        }
        // The log of a new array starts here, and a batch of an earlier one must not be found.
        let _ = place.write_metadata(self.state.area.ring.start, zeros.slice(..BLOCK_BYTES as usize)).await?;
        place.flush().await.map(drop)
    }
}

/// Concatenates the blocks of a run of pages.
fn joined(run: &[PageWrite]) -> View {
    if let [page] = run {
        return page.block.clone();
    }
    let mut joined = Buf::recycled(bytes(run.len() as u64));
    for (into, page) in joined.chunks_mut(BLOCK_BYTES as usize).zip(run) {
        into.copy_from_slice(&page.block);
    }
    joined.freeze()
}
