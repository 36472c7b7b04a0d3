//! Execution of EXTENDED COPY: resolves and checks all segments first, then copies piece by piece.

use super::list::{Cscd, List, SELF};
use super::segment::{Length, Segment, SegmentEnd};
use super::status::{ListId, Running, State};
use super::{Copies, CopyContext, CopyPrincipal, MappedUnit};
use crate::designator::uuid_designator;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::TaskGuard;
use crate::token::TokenBytes;
use block::{Extent, Geometry, Lba, Rope};

/// Service action of EXTENDED COPY (LID1).
const SHORT: u8 = 0x00;
/// Bytes held in memory at a time. Between two pieces an abort is noticed, and other tasks may run.
const PIECE_BYTES: u64 = 1 << 20;
/// Designator types that a CSCD descriptor can hold.
const NAA: u8 = 0x3;
const UUID: u8 = 0xA;

/// Segment with resolved source and destination.
pub(super) struct ResolvedSegment {
    pub from: ResolvedEnd,
    pub to: ResolvedEnd,
    pub bytes: u64,
    /// Token that must still be valid between reading blocks and writing them.
    pub token: Option<TokenBytes>,
}

#[derive(Clone)]
pub(super) struct ResolvedEnd {
    pub mapped_unit: MappedUnit,
    pub which: usize,
    pub geometry: Geometry,
    pub start: Lba,
}

impl Copies {
    /// Executes EXTENDED COPY.
    pub(crate) async fn extended_copy(&self, asked: &CopyContext<'_>) -> Result<Rope, Failure> {
        let (job, ticket) = (asked.job, asked.ticket);
        let list = job.whole_data()?;
        // SPC-4: a parameter list length of zero is not an error.
        if list.is_empty() {
            return Ok(Rope::new());
        }
        let list = match job.request.cdb.u8_at(1) & 0x1F {
            SHORT => List::parse(&list)?,
            _ => List::parse_long(&list)?,
        };
        let asker = asked.principal()?;
        let work = async |running: &Running<'_>| {
            let seen = self.mapped_units(&asker);
            // All segments are resolved and checked before any block is copied.
            let mut found = Vec::with_capacity(list.segments.len());
            for segment in &list.segments {
                found.push(resolve_segment(asked.identity, &list.cscds, segment, &seen).await?);
            }
            for found in &found {
                copy_segment(&asker, found, ticket, |bytes| running.note(|known| known.bytes += bytes)).await?;
                running.note(|known| known.segments = known.segments.saturating_add(1));
            }
            Ok(State::Done)
        };
        self.recorded(job, list.id, list.immediate, work).await
    }

    /// Runs `work` and records its result under `id`. With IMMED the command completes with GOOD regardless of the
    /// result.
    pub(super) async fn recorded(
        &self,
        job: &Job,
        id: ListId,
        immediate: bool,
        work: impl AsyncFnOnce(&Running<'_>) -> Result<State, Failure>,
    ) -> Result<Rope, Failure> {
        let action = job.request.cdb.u8_at(1) & 0x1F;
        // Registered before the work starts, so that its status can be queried while it runs.
        let mut running = self.begin(job.nexus, id, action, job.tag)?;
        match work(&running).await {
            Ok(state) => running.ends_as = state,
            // A copy ended by COPY OPERATION ABORT counts as terminated, not as failed.
            Err(Failure::Check(sense)) if sense.code != AdditionalSense::COMMANDS_CLEARED_BY_DEVICE_SERVER => {
                running.note(|known| known.sense = Some(sense));
                // With IMMED the result is available through the status commands only.
                if !immediate {
                    return Err(sense.into());
                }
            }
            // Aborts, and statuses such as BUSY, end the command even with IMMED.
            Err(failure) => return Err(failure),
        }
        Ok(Rope::new())
    }
}

async fn resolve_segment(
    own: &Identity,
    cscds: &[Cscd],
    segment: &Segment,
    seen: &[MappedUnit],
) -> Result<ResolvedSegment, Sense> {
    let from = resolve_end(own, cscds, segment.source, seen).await?;
    let to = resolve_end(own, cscds, segment.destination, seen).await?;
    // A copy is subject to write protection like any WRITE.
    if to.mapped_unit.read_only {
        return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
    }
    let bytes_of = |end: &ResolvedEnd, blocks: u16| u64::from(blocks) * u64::from(end.geometry.block_bytes);
    let bytes = match segment.length {
        Length::SourceBlocks(blocks) => bytes_of(&from, blocks),
        Length::DestinationBlocks(blocks) => bytes_of(&to, blocks),
        Length::Bytes(bytes) => bytes.into(),
    };
    for end in [&from, &to] {
        let block_bytes = u64::from(end.geometry.block_bytes);
        // A segment must consist of whole blocks of both units, which may differ in block size.
        if !bytes.is_multiple_of(block_bytes) {
            return Err(aborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT));
        }
        let extent = Extent::checked(end.start.0, bytes / block_bytes);
        extent.filter(|&extent| end.geometry.admit(extent).is_ok()).ok_or(aborted(AdditionalSense::NONE))?;
    }
    Ok(ResolvedSegment { from, to, bytes, token: None })
}

/// Resolves the unit that a segment names, among those mapped to the nexus, and the block where the segment starts.
async fn resolve_end(
    own: &Identity,
    cscds: &[Cscd],
    place: SegmentEnd,
    seen: &[MappedUnit],
) -> Result<ResolvedEnd, Sense> {
    let SegmentEnd { id, lba, offset } = place;
    let unreachable = aborted(AdditionalSense::UNREACHABLE_COPY_TARGET);
    let absent = MappedUnit::NOT_REACHABLE;
    let is_it = |neighbour: &MappedUnit| match cscds.get(usize::from(id)) {
        // The unit itself has a fixed descriptor ID and needs no descriptor.
        _ if id == SELF => neighbour.identity == *own,
        Some(Cscd::Unit { kind: NAA, designator, .. }) => neighbour.identity.naa == designator[..],
        Some(Cscd::Unit { kind: UUID, designator, .. }) => uuid_designator(&neighbour.identity) == designator[..],
        _ => false,
    };
    // A descriptor ID without a descriptor, or with a null one, names no unit.
    if id != SELF && !matches!(cscds.get(usize::from(id)), Some(Cscd::Unit { .. })) {
        return Err(unreachable);
    }
    let which = seen.iter().position(is_it).ok_or(absent)?;
    let neighbour = seen[which].clone();
    let geometry = neighbour.unit.geometry().await.ok_or(absent)?;
    // A block size that is stated must match, because the lengths of segments are counted in it.
    if let Some(Cscd::Unit { block_bytes, .. }) = cscds.get(usize::from(id))
        && *block_bytes != 0
        && *block_bytes != geometry.block_bytes
    {
        return Err(aborted(AdditionalSense::INCORRECT_COPY_TARGET_TYPE));
    }
    // A partial block would need a read-modify-write under exclusion of other writers, so offsets must be block
    // aligned.
    let (offset, block_bytes) = (u64::from(offset), u64::from(geometry.block_bytes));
    if !offset.is_multiple_of(block_bytes) {
        return Err(aborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT));
    }
    let start = lba.checked_add(offset / block_bytes).ok_or(aborted(AdditionalSense::NONE))?;
    Ok(ResolvedEnd { mapped_unit: neighbour, which, geometry, start: Lba(start) })
}

pub(super) async fn copy_segment(
    asker: &CopyPrincipal,
    found: &ResolvedSegment,
    ticket: &TaskGuard<'_>,
    copied: impl Fn(u64),
) -> Result<(), Failure> {
    let ResolvedSegment { from, to, bytes, .. } = found;
    // A source needs no write access, so only the destination carries the write protection.
    let asker = CopyPrincipals {
        reads: asker.clone(),
        writes: CopyPrincipal { read_only: to.mapped_unit.read_only, ..asker.clone() },
    };
    if from.which == to.which {
        // Overlapping ranges are copied from the far end, so that no block is overwritten before it was read.
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
        // Different units: the order is arbitrary, so holes can be skipped.
        let here = copy_run(&asker, found, at, ticket).await?;
        copied(here);
        at += here;
    }
    Ok(())
}

/// Principals for the two ends of a copy.
struct CopyPrincipals {
    reads: CopyPrincipal,
    writes: CopyPrincipal,
}

impl ResolvedSegment {
    /// Refuses data that was read from blocks that may have changed since the token was created.
    async fn check_token(&self, asker: &CopyPrincipal) -> Result<(), Sense> {
        let Some(token) = &self.token else { return Ok(()) };
        self.from.mapped_unit.unit.token(asker.clone(), token.clone(), false).await.map(drop)
    }
}

impl ResolvedEnd {
    /// Returns the blocks of `bytes` bytes behind the first `at` bytes.
    fn extent(&self, at: u64, bytes: u64) -> Extent {
        let block_bytes = u64::from(self.geometry.block_bytes);
        assert!(at.is_multiple_of(block_bytes) && bytes.is_multiple_of(block_bytes), "a copy is of whole blocks");
        Extent::new(self.start.0 + at / block_bytes, bytes / block_bytes)
    }
}

/// Copies `bytes` bytes behind the first `at` bytes of a segment through memory.
async fn copy_piece(
    asker: &CopyPrincipals,
    found: &ResolvedSegment,
    at: u64,
    bytes: u64,
    ticket: &TaskGuard<'_>,
) -> Result<(), Failure> {
    let ResolvedSegment { from, to, .. } = found;
    assert!(bytes > 0 && at + bytes <= found.bytes, "a piece lies within its segment");
    // An abort takes effect between two pieces.
    ticket.check_live()?;
    let data = from.mapped_unit.unit.read(asker.reads.clone(), from.extent(at, bytes)).await.map_err(third_party)?;
    assert_eq!(data.len() as u64, bytes, "a unit reads exactly the blocks that it is asked for");
    // Checked again: the read may have taken long.
    ticket.check_live()?;
    // Checked after the read: a change that precedes the check may be in the data.
    found.check_token(&asker.reads).await?;
    let start = to.extent(at, bytes).start;
    to.mapped_unit.unit.write(asker.writes.clone(), start, data.into_view()).await.map_err(third_party)?;
    Ok(())
}

/// Copies the run that starts `at` bytes into a segment: data, or a hole, which stays a hole where discarded blocks of
/// the destination read as zeros. Returns the number of bytes done.
async fn copy_run(
    asker: &CopyPrincipals,
    found: &ResolvedSegment,
    at: u64,
    ticket: &TaskGuard<'_>,
) -> Result<u64, Failure> {
    let ResolvedSegment { from, to, bytes, .. } = found;
    ticket.check_live()?;
    let run = from.mapped_unit.unit.run(asker.reads.clone(), from.extent(at, bytes - at)).await.map_err(third_party)?;
    // Runs are rounded to blocks of both units; a run shorter than one such block is copied as data.
    let block = u64::from(from.geometry.block_bytes.max(to.geometry.block_bytes));
    assert!(!run.extent.is_empty(), "a unit tells a run of at least one block");
    let run_bytes = run.extent.len.bytes(from.geometry.block_bytes);
    let alike = (run_bytes / block * block).min(bytes - at);
    // A hole stays a hole: the destination does not allocate space for zeros.
    if !run.mapped && alike > 0 && to.geometry.discard_zeroes {
        ticket.check_live()?;
        found.check_token(&asker.reads).await?;
        to.mapped_unit.unit.discard(asker.writes.clone(), to.extent(at, alike)).await.map_err(third_party)?;
        return Ok(alike);
    }
    let here = alike.max(block).min(PIECE_BYTES).min(bytes - at);
    assert!(here > 0, "a copy goes on");
    copy_piece(asker, found, at, here, ticket).await?;
    Ok(here)
}

pub(super) fn aborted(code: AdditionalSense) -> Sense {
    Sense::new(SenseKey::CopyAborted, code)
}

/// Maps the sense of a unit to the sense of the copy command. Exhausted space is passed on, as for a write of the
/// initiator itself.
pub(super) fn third_party(sense: Sense) -> Sense {
    if sense.code == AdditionalSense::SPACE_ALLOCATION_FAILED {
        return sense;
    }
    aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
}
