//! EXTENDED COPY (LID1): what the list names is found and looked at, and only then copied, piece by piece.

use super::list::{Cscd, List, ListId, SELF, Segment};
use super::{CopyAsker, Neighbour, Neighbours};
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::inquiry::vpd::uuid_designator;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::Ticket;
use crate::unit::{Job, LogicalUnit};
use block::{BlockDevice, Extent, Geometry, Lba, Rope};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// How much is held in memory at a time; between two pieces an abort is noticed, and others have their turn.
const PIECE_BYTES: u64 = 1 << 20;
/// Copies of one nexus of which it is known how they ended.
const KNOWN_MAX: usize = 16;

/// The designator types of units that fit into a CSCD descriptor.
const NAA: u8 = 0x3;
const UUID: u8 = 0xA;

/// The copies of one unit's copy manager.
#[derive(Default)]
pub(crate) struct Copies {
    neighbours: Option<Rc<dyn Neighbours>>,
    known: RefCell<BTreeMap<(NexusId, u8), Known>>,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub state: State,
    pub segments: u16,
    pub bytes: u64,
}

/// COPY MANAGER STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Running = 0x00,
    Done = 0x01,
    Failed = 0x02,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Copies {
    pub fn between(neighbours: Rc<dyn Neighbours>) -> Self {
        Self { neighbours: Some(neighbours), ..Self::default() }
    }

    fn seen_by(&self, asker: &CopyAsker) -> Vec<Neighbour> {
        self.neighbours.as_ref().map_or_else(Vec::new, |neighbours| neighbours.of(asker))
    }

    /// What is known of the copy that `nexus` called `id`.
    pub(super) fn known(&self, nexus: NexusId, id: u8) -> Option<Known> {
        self.known.borrow().get(&(nexus, id)).copied()
    }

    /// `nexus` is gone, and nobody asks for its copies any more.
    pub fn forget(&self, nexus: NexusId) {
        self.known.borrow_mut().retain(|&(owner, _), _| owner != nexus);
    }

    #[cfg(test)]
    pub fn known_count(&self) -> usize {
        self.known.borrow().len()
    }

    /// A copy begins. *Errors*: 00/16 when one that is called so has not ended.
    fn begin(&self, nexus: NexusId, id: ListId) -> Result<(), Sense> {
        let ListId::Kept(id) = id else { return Ok(()) };
        let mut known = self.known.borrow_mut();
        if known.get(&(nexus, id)).is_some_and(|known| known.state == State::Running) {
            return Err(Sense::illegal(AdditionalSense::OPERATION_IN_PROGRESS));
        }
        let own = |known: &BTreeMap<(NexusId, u8), Known>| known.range((nexus, 0)..=(nexus, u8::MAX)).count();
        if own(&known) >= KNOWN_MAX {
            let ended = known.range((nexus, 0)..=(nexus, u8::MAX)).find(|(_, known)| known.state != State::Running);
            let ended = ended.map(|(&key, _)| key).ok_or(Sense::illegal(AdditionalSense::OPERATION_IN_PROGRESS))?;
            known.remove(&ended);
        }
        known.insert((nexus, id), Known { state: State::Running, segments: 0, bytes: 0 });
        Ok(())
    }

    fn note(&self, nexus: NexusId, id: ListId, change: impl FnOnce(&mut Known)) {
        if let ListId::Kept(id) = id
            && let Some(known) = self.known.borrow_mut().get_mut(&(nexus, id))
        {
            change(known);
        }
    }
}

/// A copy that is dropped before its end has failed.
struct Running<'a> {
    copies: &'a Copies,
    nexus: NexusId,
    id: ListId,
    ends_as: State,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.copies.note(self.nexus, self.id, |known| known.state = self.ends_as);
    }
}

/// A segment whose ends were found.
struct Found {
    from: End,
    to: End,
    bytes: u64,
}

struct End {
    neighbour: Neighbour,
    which: usize,
    geometry: Geometry,
    start: Lba,
}

impl<D: BlockDevice> LogicalUnit<D> {
    pub(crate) async fn extended_copy(&self, job: &Job, ticket: &Ticket<'_>) -> Result<Rope, Failure> {
        let list = job.whole_data()?;
        if list.is_empty() {
            return Ok(Rope::new());
        }
        let list = List::parse(&list)?;
        let (name, port) = self.nexuses.names(job.nexus).ok_or(Status::Busy)?;
        let initiator = name.initiator.clone();
        let asker = CopyAsker { nexus: job.nexus, initiator, port: (*port).clone(), read_only: false };
        self.copies.begin(job.nexus, list.id)?;
        let (copies, nexus, id) = (&self.copies, job.nexus, list.id);
        let mut running = Running { copies, nexus, id, ends_as: State::Failed };
        // Nothing is copied unless everything is there and may be.
        let seen = copies.seen_by(&asker);
        let mut found = Vec::with_capacity(list.segments.len());
        for segment in &list.segments {
            found.push(self.find(&list.cscds, segment, &seen).await?);
        }
        for found in &found {
            self.copy_segment(&asker, found, ticket, |bytes| copies.note(nexus, id, |known| known.bytes += bytes))
                .await?;
            copies.note(nexus, id, |known| known.segments = known.segments.saturating_add(1));
        }
        running.ends_as = State::Done;
        Ok(Rope::new())
    }

    async fn find(&self, cscds: &[Cscd], segment: &Segment, seen: &[Neighbour]) -> Result<Found, Sense> {
        let from = self.end(cscds, segment.source, segment.source_lba, seen).await?;
        let to = self.end(cscds, segment.destination, segment.destination_lba, seen).await?;
        if to.neighbour.read_only {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        let counted = if segment.counts_destination { &to } else { &from };
        let bytes = u64::from(segment.blocks) * u64::from(counted.geometry.block_bytes);
        for end in [&from, &to] {
            let block_bytes = u64::from(end.geometry.block_bytes);
            if !bytes.is_multiple_of(block_bytes) {
                return Err(aborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT));
            }
            let extent = Extent::checked(end.start.0, bytes / block_bytes);
            extent.filter(|&extent| end.geometry.admit(extent).is_ok()).ok_or(aborted(AdditionalSense::NONE))?;
        }
        Ok(Found { from, to, bytes })
    }

    /// The unit that a segment names, among those that the nexus sees.
    async fn end(&self, cscds: &[Cscd], id: u16, lba: u64, seen: &[Neighbour]) -> Result<End, Sense> {
        let unreachable = aborted(AdditionalSense::UNREACHABLE_COPY_TARGET);
        let absent = Neighbour::NOT_REACHABLE;
        let is_it = |neighbour: &Neighbour| match cscds.get(usize::from(id)) {
            _ if id == SELF => neighbour.identity == self.identity,
            Some(Cscd::Unit { kind: NAA, designator, .. }) => neighbour.identity.naa == designator[..],
            Some(Cscd::Unit { kind: UUID, designator, .. }) => uuid_designator(&neighbour.identity) == designator[..],
            _ => false,
        };
        if id != SELF && !matches!(cscds.get(usize::from(id)), Some(Cscd::Unit { .. })) {
            return Err(unreachable);
        }
        let which = seen.iter().position(is_it).ok_or(absent)?;
        let neighbour = seen[which].clone();
        let geometry = neighbour.unit.geometry().await.ok_or(absent)?;
        if let Some(Cscd::Unit { block_bytes, .. }) = cscds.get(usize::from(id))
            && *block_bytes != 0
            && *block_bytes != geometry.block_bytes
        {
            return Err(aborted(AdditionalSense::INCORRECT_COPY_TARGET_TYPE));
        }
        Ok(End { neighbour, which, geometry, start: Lba(lba) })
    }

    async fn copy_segment(
        &self,
        asker: &CopyAsker,
        found: &Found,
        ticket: &Ticket<'_>,
        copied: impl Fn(u64),
    ) -> Result<(), Failure> {
        let Found { from, to, bytes } = found;
        let asker =
            Asker { reads: asker.clone(), writes: CopyAsker { read_only: to.neighbour.read_only, ..asker.clone() } };
        if from.which == to.which {
            // Of blocks that overlap, none is overwritten before it was read.
            let pieces = bytes.div_ceil(PIECE_BYTES);
            for nth in 0..pieces {
                let at = if to.start > from.start { pieces - 1 - nth } else { nth } * PIECE_BYTES;
                let here = PIECE_BYTES.min(bytes - at);
                copy_piece(&asker, found, at, here, ticket).await?;
                copied(here);
            }
            return Ok(());
        }
        let mut at = 0;
        while at < *bytes {
            let here = copy_run(&asker, found, at, ticket).await?;
            copied(here);
            at += here;
        }
        Ok(())
    }
}

/// As whom the two ends are asked.
struct Asker {
    reads: CopyAsker,
    writes: CopyAsker,
}

impl End {
    /// The blocks of so many bytes behind the first `at`.
    fn extent(&self, at: u64, bytes: u64) -> Extent {
        let block_bytes = u64::from(self.geometry.block_bytes);
        Extent::new(self.start.0 + at / block_bytes, bytes / block_bytes)
    }
}

/// Copies `bytes` behind the first `at` of a segment by way of memory.
async fn copy_piece(asker: &Asker, found: &Found, at: u64, bytes: u64, ticket: &Ticket<'_>) -> Result<(), Failure> {
    let Found { from, to, .. } = found;
    ticket.check_live()?;
    let data = from.neighbour.unit.read(asker.reads.clone(), from.extent(at, bytes)).await.map_err(third_party)?;
    ticket.check_live()?;
    let start = to.extent(at, bytes).start;
    to.neighbour.unit.write(asker.writes.clone(), start, data.into_view()).await.map_err(third_party)?;
    Ok(())
}

/// Copies what of a segment begins behind its first `at` bytes and is alike: blocks, or a hole, which the destination then has
/// too, where discarded blocks of it read as zeros. How many bytes that were.
async fn copy_run(asker: &Asker, found: &Found, at: u64, ticket: &Ticket<'_>) -> Result<u64, Failure> {
    let Found { from, to, bytes } = found;
    ticket.check_live()?;
    let run = from.neighbour.unit.run(asker.reads.clone(), from.extent(at, bytes - at)).await.map_err(third_party)?;
    // In blocks that both have whole; of a run that is shorter than one, all of it is read.
    let block = u64::from(from.geometry.block_bytes.max(to.geometry.block_bytes));
    let run_bytes = run.extent.len.bytes(from.geometry.block_bytes);
    let alike = (run_bytes / block * block).min(bytes - at);
    if !run.mapped && alike > 0 && to.geometry.discard_zeroes {
        ticket.check_live()?;
        to.neighbour.unit.discard(asker.writes.clone(), to.extent(at, alike)).await.map_err(third_party)?;
        return Ok(alike);
    }
    let here = alike.max(block).min(PIECE_BYTES).min(bytes - at);
    copy_piece(asker, found, at, here, ticket).await?;
    Ok(here)
}

fn aborted(code: AdditionalSense) -> Sense {
    Sense::new(SenseKey::CopyAborted, code)
}

/// What a unit said, to whom asked for the copy: that there is no space it hears as from a write of its own.
fn third_party(sense: Sense) -> Sense {
    if sense.code == AdditionalSense::SPACE_ALLOCATION_FAILED {
        return sense;
    }
    aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
}
