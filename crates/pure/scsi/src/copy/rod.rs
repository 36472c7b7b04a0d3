//! POPULATE TOKEN and WRITE USING TOKEN (SBC-3), and COPY OPERATION ABORT (SPC-4).

use super::known::{ListId, Running, State};
use super::ranges::{Populate, Write};
use super::run::{End, Found, aborted};
use super::{CopyAsker, Neighbour};
use crate::failure::Failure;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use crate::task_set::{Aborted, Affected, Ticket};
use crate::token::{Kind, Represented, SECRET_BYTES, TOKEN_BYTES, kind_of};
use crate::unit::LogicalUnit;
use block::{BlockDevice, Blocks, Extent, Rope, View};

/// How much of a unit that cannot forget blocks is made zeros at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl<D: BlockDevice> LogicalUnit<D> {
    /// A token stands for blocks of this unit, all of one instant: the task set lets nobody change one meanwhile.
    pub(crate) async fn populate_token(&self, job: &Job) -> Result<Rope, Failure> {
        let list = job.whole_data()?;
        if list.is_empty() {
            return Ok(Rope::new());
        }
        let Populate { immediate, inactivity, extents } = Populate::parse(&list, job.geometry)?;
        let asker = self.copy_asker(job)?;
        let work = async |running: &Running<'_>| {
            let outside =
                self.copies.neighbours().ok_or(Sense::illegal(AdditionalSense::INSUFFICIENT_RESOURCES_FOR_TOKEN))?;
            let mut secret = [0; SECRET_BYTES];
            outside.random(&mut secret);
            let bytes = extents.iter().map(|extent| extent.len.bytes(job.geometry.block_bytes)).sum();
            let block_bytes = job.geometry.block_bytes;
            let represented = Represented { identity: &self.identity, port: &asker.port, block_bytes, extents };
            let token = self.tokens.make(represented, &secret, inactivity, outside.now())?;
            running.note(|known| (known.token, known.bytes) = (Some(token), bytes));
            Ok(State::Done)
        };
        self.recorded(job, list_id(job), immediate, work).await
    }

    /// Blocks of this unit hold what a token stands for.
    pub(crate) async fn write_using_token(&self, job: &Job, ticket: &Ticket<'_>) -> Result<Rope, Failure> {
        let list = job.whole_data()?;
        if list.is_empty() {
            return Ok(Rope::new());
        }
        let order = Write::parse(&list, job.geometry)?;
        let asker = self.copy_asker(job)?;
        let work = async |running: &Running<'_>| match kind_of(&order.token)? {
            Kind::Zero => self.write_zeros(&asker, &order, ticket, running).await,
            Kind::Blocks { naa } => self.write_token(&asker, &order, &naa, ticket, running).await,
        };
        self.recorded(job, list_id(job), order.immediate, work).await
    }

    async fn write_zeros(
        &self,
        asker: &CopyAsker,
        order: &Write,
        ticket: &Ticket<'_>,
        running: &Running<'_>,
    ) -> Result<State, Failure> {
        let geometry = self.device().geometry();
        let piece_blocks = PIECE_BYTES / u64::from(geometry.block_bytes);
        for &extent in &order.extents {
            ticket.check_live()?;
            if geometry.discard_zeroes {
                self.copy_discard(asker, extent).await?;
            } else {
                let mut rest = extent;
                while !rest.is_empty() {
                    ticket.check_live()?;
                    let here = Blocks(rest.len.0.min(piece_blocks));
                    let zeros = View::zeroed((here.0 * u64::from(geometry.block_bytes)) as usize);
                    self.copy_write(asker, rest.start, zeros).await?;
                    rest = Extent { start: rest.start + here, len: rest.len - here };
                }
            }
            running.note(|known| known.bytes += extent.len.bytes(geometry.block_bytes));
        }
        Ok(State::Done)
    }

    async fn write_token(
        &self,
        asker: &CopyAsker,
        order: &Write,
        naa: &[u8],
        ticket: &Ticket<'_>,
        running: &Running<'_>,
    ) -> Result<State, Failure> {
        // A token of a unit that the nexus does not see is no token, whoever made it.
        let unknown = Sense::illegal(AdditionalSense::TOKEN_UNKNOWN);
        let seen = self.copies.seen_by(asker);
        let from = End::of(&seen, |neighbour| neighbour.identity.naa == naa).await?.ok_or(unknown)?;
        let to =
            End::of(&seen, |neighbour| neighbour.identity == self.identity).await?.ok_or(Neighbour::NOT_REACHABLE)?;
        let token = order.token.clone();
        let source = from.neighbour.unit.token(asker.clone(), token.clone(), false).await?;
        let (found, is_whole) = pairs(&from, &to, &source, order)?;
        for found in found {
            let found = Found { token: Some(token.clone()), ..found };
            self.copy_segment(asker, &found, ticket, |bytes| running.note(|known| known.bytes += bytes)).await?;
        }
        if order.deletes {
            from.neighbour.unit.token(asker.clone(), token, true).await?;
        }
        Ok(if is_whole { State::Done } else { State::DoneInPart })
    }

    /// The copy that the nexus called so has ended, with COPY ABORTED for whoever waits for it.
    pub(crate) async fn copy_operation_abort(&self, job: &Job) -> Result<Rope, Failure> {
        let known = self.copies.known(job.nexus, job.request.cdb.u32_at(2));
        let running = known.filter(|known| known.state == State::Running).ok_or(Sense::cdb_byte(2))?;
        let affected = Affected::One(job.nexus, running.tag);
        self.tasks.abort(affected, |_| Aborted::Copy);
        self.tasks.ended(affected).await;
        Ok(Rope::new())
    }

    /// What a token of this unit stands for, which `deletes` ends.
    ///
    /// *Errors*: 23/04 and 23/07 to 23/09.
    pub fn copy_token(&self, token: &[u8; TOKEN_BYTES], deletes: bool) -> Result<Vec<Extent>, Sense> {
        let outside = self.copies.neighbours().ok_or(Sense::illegal(AdditionalSense::TOKEN_UNKNOWN))?;
        self.tokens.open(token, deletes, outside.now())
    }
}

/// LIST IDENTIFIER of POPULATE TOKEN and WRITE USING TOKEN.
fn list_id(job: &Job) -> ListId {
    ListId::Kept(job.request.cdb.u32_at(6))
}

impl End {
    /// The first of the units that is meant, from its first block on.
    async fn of(seen: &[Neighbour], is_meant: impl Fn(&Neighbour) -> bool) -> Result<Option<Self>, Sense> {
        let Some(which) = seen.iter().position(is_meant) else { return Ok(None) };
        let neighbour = seen[which].clone();
        let geometry = neighbour.unit.geometry().await.ok_or(Neighbour::NOT_REACHABLE)?;
        Ok(Some(Self { neighbour, which, geometry, start: block::Lba(0) }))
    }
}

/// What goes where, in whole blocks of the destination, and whether that is all that was asked for.
///
/// *Errors*: 26/00 for an offset behind the end; A/26/0A where blocks of different sizes do not meet.
fn pairs(from: &End, to: &End, source: &[Extent], order: &Write) -> Result<(Vec<Found>, bool), Sense> {
    let [from_bytes, to_bytes] = [from, to].map(|end| u64::from(end.geometry.block_bytes));
    let held: u64 = source.iter().map(|extent| extent.len.0 * from_bytes).sum();
    let offset = order.offset_blocks.checked_mul(to_bytes).filter(|&offset| offset < held);
    let mut skip = offset.ok_or(Sense::parameter(8, None))?;
    let wanted: u64 = order.extents.iter().map(|extent| extent.len.0 * to_bytes).sum();
    let mut left = wanted.min((held - skip) / to_bytes * to_bytes);
    let is_whole = left == wanted;
    let mut pairs = Vec::new();
    let mut targets = order.extents.iter().copied();
    let (mut target, mut done) = (targets.next(), 0);
    for extent in source {
        let mut at = skip.min(extent.len.0 * from_bytes);
        skip -= at;
        while let Some(here) = target.filter(|_| left > 0 && at < extent.len.0 * from_bytes) {
            let bytes = left.min(extent.len.0 * from_bytes - at).min(here.len.0 * to_bytes - done);
            if [at, bytes].iter().any(|bytes| !bytes.is_multiple_of(from_bytes))
                || [done, bytes].iter().any(|bytes| !bytes.is_multiple_of(to_bytes))
            {
                return Err(aborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT));
            }
            pairs.push(Found {
                from: End { start: extent.start + Blocks(at / from_bytes), ..from.clone() },
                to: End { start: here.start + Blocks(done / to_bytes), ..to.clone() },
                bytes,
                token: None,
            });
            (at, done, left) = (at + bytes, done + bytes, left - bytes);
            if done == here.len.0 * to_bytes {
                (target, done) = (targets.next(), 0);
            }
        }
    }
    Ok((pairs, is_whole))
}
