//! Data path of a family: locates granules on the groups, encrypts, reads and writes blocks.
//!
//! It never consults the map: callers look up places first.

use super::MapError;
use super::lookup::VisibleVersion;
use super::parts::{Part, bytes};
use crate::bug_injection::{self, InjectedBug};
use crate::catalog::GROUPS_MAX;
use crate::crypt::Encryption;
use crate::layout::BLOCK_BYTES;
use crate::pool::Shared;
use crate::tree::{Damage, GranuleAddress};
use block::{BlockDevice, Buf, Extent, Rope, View, Written};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Pseudo group number of a lost place.
const GROUP_LOST: u16 = u16::MAX;

/// Granule locations, encryption and pending flushes of a family.
pub(crate) struct Data<D, G> {
    shared: Rc<Shared<D, G>>,
    granule_blocks: u32,
    /// Slab size by group, in blocks.
    slab_blocks: RefCell<Vec<u32>>,
    encryption: RefCell<Encryption>,
    /// Bitmap of groups with data not flushed yet.
    dirty: Cell<u64>,
}

/// Contiguous blocks of a group and the blocks of the request that they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Group and first block; none where nothing is mapped.
    pub(crate) place: Option<(u16, u64)>,
    pub(crate) at: u64,
    pub(crate) blocks: u64,
}

/// Part of a write and the current version of its granule.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) part: Part,
    pub(super) seen: Option<VisibleVersion>,
}

pub(super) type Steps = SmallVec<[Step; 4]>;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Data<D, G> {
    pub(super) fn new(shared: Rc<Shared<D, G>>, granule_blocks: u32, cover: Encryption) -> Self {
        let slab_blocks = RefCell::new(shared.slab_blocks());
        Self { shared, granule_blocks, slab_blocks, encryption: RefCell::new(cover), dirty: Cell::new(0) }
    }

    /// Takes the groups of the pool as they are now; they may be longer, and there may be more.
    pub(super) fn follow_groups(&self) {
        *self.slab_blocks.borrow_mut() = self.shared.slab_blocks();
    }

    /// Number of groups of the pool.
    pub(super) fn group_count(&self) -> u16 {
        self.slab_blocks.borrow().len() as u16
    }

    /// Encryption of the data.
    pub(crate) fn encryption(&self) -> Encryption {
        self.encryption.borrow().clone()
    }

    /// Sets the encryption.
    pub(crate) fn set_encryption(&self, cover: Encryption) {
        self.encryption.replace(cover);
    }

    /// Marks the group as having unflushed data.
    fn mark_dirty(&self, group: u16) {
        assert!(usize::from(group) < GROUPS_MAX, "a pool has no more groups than there are bits");
        self.dirty.set(self.dirty.get() | 1 << group);
    }

    /// Takes the bitmap of groups with unflushed data. The caller flushes them or gives the bits back.
    pub(super) fn take_dirty(&self) -> u64 {
        self.dirty.take()
    }

    /// Restores the bits of `groups` that were not flushed.
    pub(super) fn restore_dirty(&self, groups: u64) {
        self.dirty.set(self.dirty.get() | groups);
    }

    /// Place in a version's value. An impossible place counts as lost: the map was damaged before its checksum
    /// was computed.
    pub(super) fn place_of(&self, value: u64) -> GranuleAddress {
        let place = GranuleAddress(value);
        if !place.is_data() {
            return place;
        }
        let group = place.group();
        let slab_blocks = self.slab_blocks.borrow().get(usize::from(group)).copied().unwrap_or(0);
        // A group, slab or granule that does not exist must not become an address.
        let is_somewhere = place.index() < slab_blocks / self.granule_blocks && self.shared.gate_of(group).is_some();
        if is_somewhere && place <= GranuleAddress::LOST { place } else { GranuleAddress::LOST }
    }

    /// Group and first block of a place.
    pub(crate) fn locate(&self, place: GranuleAddress) -> (u16, u64) {
        // A group that no pool has: reads of such a place fail, and no write gets that far.
        if place == GranuleAddress::LOST {
            return (GROUP_LOST, 0);
        }
        let group = place.group();
        // The low 24 bits are the slab within its group.
        let slab = u64::from(place.slab() & 0x00ff_ffff) * u64::from(self.slab_blocks.borrow()[usize::from(group)]);
        (group, slab + u64::from(place.index()) * u64::from(self.granule_blocks))
    }

    /// Merges the parts at `places` into contiguous runs.
    pub(crate) fn runs(&self, parts: impl Iterator<Item = (Part, Option<GranuleAddress>)>) -> SmallVec<[Run; 4]> {
        let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
        for (part, place) in parts {
            let place = place.map(|place| self.locate(place)).map(|(group, start)| (group, start + part.from));
            // Parts that are adjacent on disk and in the request become one I/O.
            let run = Run { place, at: part.at, blocks: part.blocks };
            match runs.last_mut() {
                Some(last) if last.continues_with(&run) => last.blocks += run.blocks,
                _ => runs.push(run),
            }
        }
        runs
    }

    pub(crate) async fn read_run(&self, run: Run) -> Result<Rope, MapError> {
        let Some((group, start)) = run.place else { return Ok(View::zeroed(bytes(run.blocks)).into()) };
        self.read_place(group, start, run.blocks).await
    }

    /// Reads and decrypts blocks of a group.
    pub(crate) async fn read_place(&self, group: u16, start: u64, blocks: u64) -> Result<Rope, MapError> {
        if group == GROUP_LOST {
            return Err(Damage("what the blocks held is lost").into());
        }
        // Taken before the read: only CRYPTOGRAPHIC ERASE replaces the key, and data read across it no longer
        // matters.
        let cover = self.encryption();
        let read = self.shared.gate(group).device().read(Extent::new(start, blocks)).await;
        Ok(cover.decrypt(group, start, read.map_err(|error| MapError::Group { group, error })?)?)
    }

    /// Encrypts and writes blocks of a group; `is_fresh` when their old content is dead.
    pub(crate) async fn write_run(
        &self,
        (group, start): (u16, u64),
        data: View,
        is_fresh: bool,
    ) -> Result<(), MapError> {
        assert_ne!(group, GROUP_LOST, "nothing is written to a place that is lost");
        let len = data.len();
        // The guard keeps the group dirty in the catalog until the write has ended.
        let _writing = self.shared.start_write(group).await.map_err(|_| MapError::CatalogLost)?;
        let data = self.encryption().encrypt(group, start, data)?;
        assert_eq!(data.len(), len, "what is encrypted is as long as it was");
        let device = self.shared.gate(group).device();
        let blocks = data.len() as u64 / u64::from(BLOCK_BYTES);
        // Only whole stripes inside the run can be written fresh.
        let stripe = u64::from(device.geometry().optimal_bytes / BLOCK_BYTES).max(1);
        let (first, end) = (start.next_multiple_of(stripe), (start + blocks) / stripe * stripe);
        let lba = block::Lba;
        self.mark_dirty(group);
        let written = if !is_fresh || first >= end {
            device.write(lba(start), data).await.map(drop)
        } else {
            // Whole stripes of dead content need no read-modify-write; the blocks before and behind them do.
            let cut = |from: u64, to: u64| data.slice(bytes(from - start)..bytes(to - start));
            let edges = [(start, first), (end, start + blocks)].into_iter().filter(|(from, to)| from < to);
            let edges = join_all(edges.map(|(from, to)| device.write(lba(from), cut(from, to))));
            let (whole, edges) =
                futures_util::future::join(device.write_unlogged(lba(first), cut(first, end)), edges).await;
            edges.into_iter().chain([whole]).try_for_each(|part| part.map(|written: Written| drop(written)))
        };
        // Marked again, because a flush may have run while the write was in flight.
        self.mark_dirty(group);
        written.map_err(|error| MapError::Group { group, error })
    }

    pub(super) async fn write_in_place(&self, steps: &Steps, data: &View) -> Result<(), MapError> {
        let runs = self.runs(steps.iter().map(|step| (step.part, step.seen.map(|seen| seen.place))));
        let fresh = bug_injection::is_injected(InjectedBug::FreshOverLive);
        // Every step has an own version here, so each run has a place.
        let writes = runs.into_iter().filter_map(|run| {
            let from = bytes(run.at);
            Some(self.write_run(run.place?, data.slice(from..from + bytes(run.blocks)), fresh))
        });
        all(join_all(writes).await)
    }

    /// Writes whole granules to new places that no reader sees yet: the data of the request, filled up with old
    /// content (copy on write).
    pub(super) async fn write_to(&self, steps: &Steps, places: &[GranuleAddress], data: &View) -> Result<(), MapError> {
        assert_eq!(places.len(), steps.len(), "every granule has a place of its own");
        let mut writes = Vec::new();
        let mut at = 0;
        while at < steps.len() {
            let mut end = at + 1;
            // Granules that got adjacent places in one slab are written together.
            while end < steps.len() && places[end] == places[end - 1].next() && places[end].slab() == places[at].slab()
            {
                end += 1;
            }
            writes.push(self.write_granules(&steps[at..end], places[at], data));
            at = end;
        }
        all(join_all(writes).await)
    }

    /// Writes granules that are adjacent on disk.
    async fn write_granules(&self, steps: &[Step], first: GranuleAddress, data: &View) -> Result<(), MapError> {
        // Data that covers whole granules in order is written without a copy.
        let beside = steps.windows(2).all(|pair| pair[0].part.at + pair[0].part.blocks == pair[1].part.at);
        let content = if beside && steps.iter().all(|step| step.part.is_whole(self.granule_blocks)) {
            let from = bytes(steps[0].part.at);
            data.slice(from..from + bytes(steps.len() as u64 * u64::from(self.granule_blocks)))
        } else {
            self.compose(steps, data).await?
        };
        self.write_run(self.locate(first), content, true).await
    }

    /// Composes whole granules: the data of the request and, around it, the current content of the granules.
    async fn compose(&self, steps: &[Step], data: &View) -> Result<View, MapError> {
        let whole = u64::from(self.granule_blocks);
        // Not zeroed first: each granule is filled below with data, old content or zeros.
        let mut content = Buf::recycled(steps.len() * bytes(whole));
        for (step, place) in steps.iter().zip(content.chunks_exact_mut(bytes(whole))) {
            let (from, end) = (step.part.from, step.part.from + step.part.blocks);
            let (before, rest) = place.split_at_mut(bytes(from));
            let (middle, behind) = rest.split_at_mut(bytes(step.part.blocks));
            middle.copy_from_slice(&step.part.of(data));
            for (part, start) in [(before, 0), (behind, end)].into_iter().filter(|(part, _)| !part.is_empty()) {
                match step.seen.filter(|_| !bug_injection::is_injected(InjectedBug::SkipCopyOnWrite)) {
                    None => part.fill(0),
                    // Copy on write: the rest of the granule comes from the version that was visible until now.
                    Some(seen) => self.read_old(seen.place, start, part).await?.copy_to(part),
                }
            }
        }
        Ok(content.freeze())
    }

    /// Reads as much of a granule as `like` is long, from block `from` on.
    async fn read_old(&self, place: GranuleAddress, from: u64, like: &[u8]) -> Result<Rope, MapError> {
        let (group, start) = self.locate(place);
        let blocks = like.len() as u64 / u64::from(crate::layout::BLOCK_BYTES);
        self.read_place(group, start + from, blocks).await
    }
}

impl Run {
    fn continues_with(&self, next: &Self) -> bool {
        let beside = match (self.place, next.place) {
            (Some((group, start)), Some(next)) => (group, start + self.blocks) == next,
            (None, None) => true,
            _ => false,
        };
        beside && self.at + self.blocks == next.at
    }
}

fn all(results: Vec<Result<(), MapError>>) -> Result<(), MapError> {
    results.into_iter().collect()
}
