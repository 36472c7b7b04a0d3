//! Filling a replacement while the host is served.

use crate::array::Array;
use crate::error::RebuildError;
use crate::geometry::{Layout, MemberSet, Place, Role};
use crate::members::{MemberState, Members, Op, Ops};
use crate::protected::Protected;
use crate::status::Progress;
use crate::stripes::Stripes;
use block::{BlockDevice, Extent, IoError, Stable};
use futures_util::future::{Either, join_all, select};
use futures_util::stream::{FuturesOrdered, StreamExt};
use shard::RangeGuard;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// Who has asked for a rebuild, and keeps the record of it.
#[expect(async_fn_in_trait, reason = "arrays live on one shard; their futures need not be Send")]
pub trait RebuildOwner {
    /// Called after every few stripes; the rebuild goes on when this is ready.
    async fn pace(&mut self, progress: Progress);

    /// After any crash, `member` is a current member of the array.
    ///
    /// Called once, with everything rebuilt and flushed; the member is in service when this is ready.
    /// A failure of the member that is recorded meanwhile counts as later than this. *Errors*: when that
    /// cannot be promised; the member then stays as it was.
    async fn commit(&mut self, member: u16, flushed: Stable, rebuilt: &Rebuilt) -> Result<Stable, IoError>;
}

/// What a rebuild has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Stripes that were written to the replacement.
    pub stripes: u64,
    /// Blocks of the replacement whose content was lost: more members could not read them than the level
    /// can give back. Reading them is a medium error until they are written.
    pub unreadable: Vec<Extent>,
    /// The blocks of the array among them (the others held parity).
    pub lost: Vec<Extent>,
}

/// Steps of a rebuild that are under way at once.
const STEPS_AT_ONCE: usize = 3;

/// Stripes that are on the replacement, and locked; blocks of it that nobody could give back, each with its stripe.
struct Filled {
    step: Range<u64>,
    unreadable: Vec<(u64, Extent)>,
    guard: RangeGuard,
}

/// A rebuild of one member that runs.
pub(super) struct Rebuild<'a, D: BlockDevice + 'static> {
    pub(super) stripes: &'a Rc<Stripes<D>>,
    pub(super) members: &'a Rc<Members<D>>,
    pub(super) protected: Option<&'a Rc<Protected<D>>>,
    pub(super) layout: Layout,
    pub(super) member: u16,
    /// Changes when another device takes the place.
    tenure: u64,
}

impl<D: BlockDevice + 'static> Drop for Rebuild<'_, D> {
    /// Lets the next rebuild of the place run, however this one ends.
    fn drop(&mut self) {
        self.members.place(self.member).rebuild_runs.set(false);
        self.members.end_joining(MemberSet::only(self.member));
        if let Some(array) = self.protected {
            let admitted = &array.log.state.admitted;
            admitted.set(admitted.get() - MemberSet::only(self.member));
        }
    }
}

impl<D: BlockDevice + 'static> Array<D> {
    /// `member`, which was replaced, holds what it should in `stripes`, and is in service.
    ///
    /// *Shape*: `stripes` in ascending order, without overlap; they include every stripe in use. The
    /// host is served meanwhile. *Errors*: see [`RebuildError`]. *Durability*: all that was rebuilt is
    /// flushed before [`RebuildOwner::commit`] is asked, and the member is in service after that.
    pub async fn rebuild(
        &self,
        member: u16,
        stripes: &[Range<u64>],
        owner: &mut impl RebuildOwner,
    ) -> Result<Rebuilt, RebuildError> {
        let path = self.path();
        let (all, members) = (path.stripes(), path.members());
        let place = members.find(member).ok_or(RebuildError::NoSuchMember(member))?;
        let waits = matches!(place.state(), MemberState::Rebuilding { .. });
        if !waits || place.rebuild_runs.replace(true) {
            return Err(RebuildError::NotWaiting(member));
        }
        let (protected, layout, tenure) = (path.protected(), all.layout, place.tenure.get());
        let rebuild = Rebuild { stripes: all, members, protected, layout, member, tenure };
        let stripes = rebuild.with_latecomers(stripes).await?;
        place.begin_rebuild(&stripes);
        let rebuilt = rebuild.fill(&stripes, owner).await?;
        rebuild.join_pages().await.map_err(RebuildError::Stopped)?;
        rebuild.still_rebuilding()?;
        let flushed = members.flush_member(member).await.map_err(|_| RebuildError::ReplacementLost(member))?;
        let _committed: Stable = owner.commit(member, flushed, &rebuilt).await.map_err(RebuildError::Stopped)?;
        rebuild.still_rebuilding()?;
        place.set_state(MemberState::InService);
        rebuild.forget_missed();
        Ok(rebuilt)
    }
}

impl<D: BlockDevice + 'static> Rebuild<'_, D> {
    /// The stripes are on the replacement. While some are written to it, the next are read from the others.
    async fn fill(&self, stripes: &[Range<u64>], owner: &mut impl RebuildOwner) -> Result<Rebuilt, RebuildError> {
        let total = stripes.iter().map(|range| range.end - range.start).sum();
        let mut steps = stripes.iter().flat_map(|range| self.layout.steps(range.clone()));
        let (mut under_way, mut rebuilt) = (FuturesOrdered::new(), Rebuilt::default());
        loop {
            while under_way.len() < STEPS_AT_ONCE
                && let Some(step) = steps.next()
            {
                under_way.push_back(self.rebuild_step(step));
            }
            let Some(filled) = under_way.next().await else { return Ok(rebuilt) };
            let mut front_stripe = self.advance(filled?, &mut rebuilt)?;
            let mut told = 0;
            while told < rebuilt.stripes {
                told = rebuilt.stripes;
                // Nothing begins before the owner says so; what has begun ends, and lets go of its stripes.
                let mut pace = pin!(owner.pace(Progress { done: told, total, front_stripe }));
                loop {
                    if under_way.is_empty() {
                        pace.await;
                        break;
                    }
                    let Either::Right((filled, _)) = select(pace.as_mut(), under_way.next()).await else { break };
                    let filled = filled.expect("some are under way")?;
                    front_stripe = self.advance(filled, &mut rebuilt)?;
                }
            }
        }
    }

    /// Writes the stripes of `step` to the replacement, under their locks.
    async fn rebuild_step(&self, step: Range<u64>) -> Result<Filled, RebuildError> {
        let guard = self.stripes.locks.exclusive(step.clone()).await;
        self.still_rebuilding()?;
        if let Some(array) = self.protected {
            array.settle_stripes(&step).await.map_err(RebuildError::Stopped)?;
        }
        let mut ops = Ops::new();
        let mut unreadable: Vec<(u64, Extent)> = Vec::new();
        for (stripe, part) in step.clone().zip(join_all(step.clone().map(|s| self.rebuild_stripe(s))).await) {
            let (writes, lost) = part.map_err(RebuildError::Stopped)?;
            ops.extend(writes);
            unreadable.extend(lost.into_iter().map(|extent| (stripe, extent)));
        }
        self.still_rebuilding()?;
        unreadable.iter().for_each(|&(_, extent)| self.members.place(self.member).mark_unreadable(extent));
        let lost = unreadable.iter().map(|&(_, extent)| extent).collect();
        let guard = self.fill_in(ops, lost, guard).await.map_err(RebuildError::Stopped)?;
        Ok(Filled { step, unreadable, guard })
    }

    /// The front is behind these stripes, and they are free; the front, then.
    ///
    /// Nothing is awaited between the two: nobody sees one without the other. A rebuild that is dropped before
    /// leaves the front where it was.
    fn advance(&self, filled: Filled, rebuilt: &mut Rebuilt) -> Result<u64, RebuildError> {
        let Filled { step, unreadable, guard } = filled;
        assert!(step.end <= self.layout.stripes(), "a rebuild is within the array");
        self.still_rebuilding()?;
        for (stripe, extent) in unreadable {
            let role = self.layout.role_of(stripe, self.member);
            rebuilt.note(extent, self.array_extent_of(stripe, role, extent));
        }
        self.members.place(self.member).set_state(MemberState::Rebuilding { front_stripe: step.end });
        drop(guard);
        rebuilt.stripes += step.end - step.start;
        Ok(step.end)
    }

    /// The writes that restore the member in `stripe`, and its blocks that nothing can restore.
    async fn rebuild_stripe(&self, stripe: u64) -> Result<(Ops, Vec<Extent>), IoError> {
        let role = self.layout.role_of(stripe, self.member);
        let blind = MemberSet::only(self.member);
        let (mut ops, mut lost) = (Ops::new(), Vec::new());
        let mut parts = Vec::new();
        for rows in self.written_rows(stripe).await {
            parts.extend(self.stripes.salvage(stripe, role, rows, blind).await);
        }
        for part in parts {
            let extent = self.layout.member_extent(stripe, part.rows);
            match part.content {
                Ok(view) => ops.push(Op::write(self.member, extent, view)),
                Err(_) => lost.push(extent),
            }
        }
        self.members.serving(Extent::new(0, self.layout.blocks().0))?;
        Ok((ops, lost))
    }

    /// Fails when the replacement has failed, was taken out or exchanged, or the array has stopped.
    pub(super) fn still_rebuilding(&self) -> Result<(), RebuildError> {
        self.members.serving(Extent::new(0, self.layout.blocks().0)).map_err(RebuildError::Stopped)?;
        let place = self.members.place(self.member);
        match place.state() {
            MemberState::Rebuilding { .. } if place.tenure.get() == self.tenure => Ok(()),
            _ => Err(RebuildError::ReplacementLost(self.member)),
        }
    }

    fn array_extent_of(&self, stripe: u64, role: Role, extent: Extent) -> Option<Extent> {
        let Role::Data { column, .. } = role else { return None };
        let row = extent.start.0 - stripe * self.layout.chunk_blocks();
        let start = self.layout.lba_of(Place { stripe, column, row });
        Some(Extent { start, len: extent.len })
    }
}

impl Rebuilt {
    fn note(&mut self, on_member: Extent, in_array: Option<Extent>) {
        let join = |runs: &mut Vec<Extent>, run: Extent| match runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => runs.push(run),
        };
        join(&mut self.unreadable, on_member);
        if let Some(lost) = in_array {
            join(&mut self.lost, lost);
        }
    }
}
