//! POPULATE TOKEN and WRITE USING TOKEN (SBC-3), and COPY OPERATION ABORT (SPC-4).

use super::ranges::{Populate, Write};
use super::run::{ResolvedEnd, ResolvedSegment, aborted, copy_segment};
use super::status::{ListId, Running, State};
use super::{Copies, CopyContext, CopyPrincipal, MappedUnit};
use crate::failure::Failure;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use crate::task_set::{Aborted, Affected, TaskSet};
use crate::token::{Kind, Represented, SECRET_BYTES, TOKEN_BYTES, Tokens, kind_of};
use block::{Blocks, Extent, Rope};

impl Copies {
    /// POPULATE TOKEN: creates a token for blocks of this unit at one instant. The task runs alone, so no block changes
    /// meanwhile.
    pub(crate) async fn populate_token(&self, asked: &CopyContext<'_>, tokens: &Tokens) -> Result<Rope, Failure> {
        let job = asked.job;
        let list = job.whole_data()?;
        if list.is_empty() {
            return Ok(Rope::new());
        }
        let Populate { immediate, inactivity, extents } = Populate::parse(&list, job.geometry)?;
        let asker = asked.principal()?;
        let work = async |running: &Running<'_>| {
            // Tokens need a source of random numbers, which the environment supplies.
            let outside =
                self.environment().ok_or(Sense::illegal(AdditionalSense::INSUFFICIENT_RESOURCES_FOR_TOKEN))?;
            let mut secret = [0; SECRET_BYTES];
            // The secret part makes a token unforgeable.
            outside.random(&mut secret);
            let bytes = extents.iter().map(|extent| extent.len.bytes(job.geometry.block_bytes)).sum();
            let block_bytes = job.geometry.block_bytes;
            let represented = Represented { identity: asked.identity, port: &asker.port, block_bytes, extents };
            let token = tokens.make(represented, &secret, inactivity, outside.now())?;
            running.note(|known| (known.token, known.bytes) = (Some(token), bytes));
            Ok(State::Done)
        };
        self.recorded(job, list_id(job), immediate, work).await
    }

    /// WRITE USING TOKEN: writes the data that a token represents to blocks of this unit.
    pub(crate) async fn write_using_token(
        &self,
        asked: &CopyContext<'_>,
        zeros: impl AsyncFn(&CopyPrincipal, Extent) -> Result<(), Failure>,
    ) -> Result<Rope, Failure> {
        let job = asked.job;
        let list = job.whole_data()?;
        if list.is_empty() {
            return Ok(Rope::new());
        }
        let order = Write::parse(&list, job.geometry)?;
        let asker = asked.principal()?;
        let work = async |running: &Running<'_>| match kind_of(&order.token)? {
            Kind::Zero => {
                for &extent in &order.extents {
                    zeros(&asker, extent).await?;
                    running.note(|known| known.bytes += extent.len.bytes(job.geometry.block_bytes));
                }
                Ok(State::Done)
            }
            Kind::Blocks { naa } => self.write_token(asked, &asker, &order, &naa, running).await,
        };
        self.recorded(job, list_id(job), order.immediate, work).await
    }

    async fn write_token(
        &self,
        asked: &CopyContext<'_>,
        asker: &CopyPrincipal,
        order: &Write,
        naa: &[u8],
        running: &Running<'_>,
    ) -> Result<State, Failure> {
        // A token of a unit that is not mapped to the nexus is unknown to it, regardless of its creator.
        let unknown = Sense::illegal(AdditionalSense::TOKEN_UNKNOWN);
        let seen = self.mapped_units(asker);
        let from = ResolvedEnd::of(&seen, |neighbour| neighbour.identity.naa == naa).await?.ok_or(unknown)?;
        // The executing unit is missing only if it was unmapped while the command waited.
        let to = ResolvedEnd::of(&seen, |neighbour| neighbour.identity == *asked.identity)
            .await?
            .ok_or(MappedUnit::NOT_REACHABLE)?;
        let token = order.token.clone();
        let source = from.mapped_unit.unit.token(asker.clone(), token.clone(), false).await?;
        let (found, is_whole) = pairs(&from, &to, &source, order)?;
        for found in found {
            // Each segment checks the token again between reading and writing, since a change of the source cancels it.
            let found = ResolvedSegment { token: Some(token.clone()), ..found };
            copy_segment(asker, &found, asked.ticket, |bytes| running.note(|known| known.bytes += bytes)).await?;
        }
        // DEL_TKN takes effect only after the copy has succeeded.
        if order.deletes {
            from.mapped_unit.unit.token(asker.clone(), token, true).await?;
        }
        Ok(if is_whole { State::Done } else { State::DoneInPart })
    }

    /// COPY OPERATION ABORT: ends the running copy with this list identifier; its command completes with COPY ABORTED.
    pub(crate) async fn abort(&self, job: &Job, tasks: &TaskSet) -> Result<Rope, Failure> {
        // Only a running copy of the same nexus can be aborted.
        let known = self.status_of(job.nexus, job.request.cdb.u32_at(2));
        let running = known.filter(|known| known.state == State::Running).ok_or(Sense::cdb_byte(2))?;
        let affected = Affected::One(job.nexus, running.tag);
        tasks.abort(affected, |_| Aborted::Copy);
        // The command completes only after the copy has ended.
        tasks.ended(affected).await;
        Ok(Rope::new())
    }

    /// Returns the extents that `token` represents; `deletes` invalidates it.
    ///
    /// *Errors*: 23/04 and 23/07 to 23/09.
    pub(crate) fn open(&self, token: &[u8; TOKEN_BYTES], deletes: bool, tokens: &Tokens) -> Result<Vec<Extent>, Sense> {
        let outside = self.environment().ok_or(Sense::illegal(AdditionalSense::TOKEN_UNKNOWN))?;
        tokens.open(token, deletes, outside.now())
    }
}

/// LIST IDENTIFIER of POPULATE TOKEN and WRITE USING TOKEN.
fn list_id(job: &Job) -> ListId {
    ListId::Retained(job.request.cdb.u32_at(6))
}

impl ResolvedEnd {
    /// Returns the first matching unit, positioned at its first block.
    async fn of(seen: &[MappedUnit], is_meant: impl Fn(&MappedUnit) -> bool) -> Result<Option<Self>, Sense> {
        let Some(which) = seen.iter().position(is_meant) else { return Ok(None) };
        let neighbour = seen[which].clone();
        let geometry = neighbour.unit.geometry().await.ok_or(MappedUnit::NOT_REACHABLE)?;
        Ok(Some(Self { mapped_unit: neighbour, which, geometry, start: block::Lba(0) }))
    }
}

/// Pairs source and destination extents, in whole blocks of the destination. The flag is false when the token ends
/// before the destination ranges do.
///
/// *Errors*: 26/00 for an offset beyond the end of the token; A/26/0A where blocks of different sizes do not align.
fn pairs(
    from: &ResolvedEnd,
    to: &ResolvedEnd,
    source: &[Extent],
    order: &Write,
) -> Result<(Vec<ResolvedSegment>, bool), Sense> {
    let [from_bytes, to_bytes] = [from, to].map(|end| u64::from(end.geometry.block_bytes));
    // Block sizes of the two units may differ, so the pairing is done in bytes.
    // No overflow: the ranges of a token and of a command are bounded by `TRANSFER_BYTES_MAX`.
    let held: u64 = source.iter().map(|extent| extent.len.0 * from_bytes).sum();
    let offset = order.offset_blocks.checked_mul(to_bytes).filter(|&offset| offset < held);
    let mut skip = offset.ok_or(Sense::parameter(8, None))?;
    let wanted: u64 = order.extents.iter().map(|extent| extent.len.0 * to_bytes).sum();
    // Only whole destination blocks are written; the rest is residual data.
    let mut left = wanted.min((held - skip) / to_bytes * to_bytes);
    let is_whole = left == wanted;
    let mut pairs = Vec::new();
    let mut targets = order.extents.iter().copied();
    let (mut target, mut done) = (targets.next(), 0);
    for extent in source {
        let mut at = skip.min(extent.len.0 * from_bytes);
        skip -= at;
        while let Some(here) = target.filter(|_| left > 0 && at < extent.len.0 * from_bytes) {
            // A pair ends with its source extent, its destination range or the data, whichever ends first.
            let bytes = left.min(extent.len.0 * from_bytes - at).min(here.len.0 * to_bytes - done);
            // Neither unit can transfer a part of a block.
            if [at, bytes].iter().any(|bytes| !bytes.is_multiple_of(from_bytes))
                || [done, bytes].iter().any(|bytes| !bytes.is_multiple_of(to_bytes))
            {
                return Err(aborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT));
            }
            pairs.push(ResolvedSegment {
                from: ResolvedEnd { start: extent.start + Blocks(at / from_bytes), ..from.clone() },
                to: ResolvedEnd { start: here.start + Blocks(done / to_bytes), ..to.clone() },
                bytes,
                token: None,
            });
            (at, done, left) = (at + bytes, done + bytes, left - bytes);
            // The destination range is filled; the next one continues.
            if done == here.len.0 * to_bytes {
                (target, done) = (targets.next(), 0);
            }
        }
    }
    assert_eq!(left, 0, "what is to be copied has its source and its place");
    Ok((pairs, is_whole))
}
