//! Rebuild of a replaced member during host I/O.

use crate::array::Array;
use crate::error::RebuildError;
use crate::geometry::{Layout, MemberSet, Role, Rows, StripePosition};
use crate::maintenance::rebuild_pages::written_rows;
use crate::members::{MemberState, Members, Op, Ops};
use crate::protected::Protected;
use crate::status::Progress;
use crate::stripes::{Excluded, Stripes};
use block::{BlockDevice, Blocks, Extent, IoError, Stable};
use futures_util::future::{Either, join_all, select};
use futures_util::stream::{FuturesOrdered, StreamExt};
use shard::RangeGuard;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// Owner of a rebuild: sets its pace and records its result.
#[expect(async_fn_in_trait, reason = "arrays live on one shard; their futures need not be Send")]
pub trait RebuildOwner {
    /// Called after every few stripes; the rebuild continues when this is ready.
    async fn pace(&mut self, progress: Progress);

    /// Records durably that `member` is a current member of the array after any crash.
    ///
    /// Called once, with everything rebuilt and flushed; the member is in service when this is ready. A failure of
    /// the member that is recorded meanwhile counts as later. *Errors*: when that cannot be promised; the member then
    /// stays as it was.
    async fn commit(&mut self, member: u16, flushed: Stable, rebuilt: &Rebuilt) -> Result<Stable, IoError>;
}

/// Result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Stripes written to the replacement.
    pub stripes: u64,
    /// Blocks of the replacement whose content was lost, because more members could not read them than the level can
    /// restore. Reads are a medium error until they are written.
    pub unreadable: Vec<Extent>,
    /// Blocks of the array whose content was lost: the data among `unreadable`, and blocks of other members needed to
    /// restore it that were unreadable, too.
    pub lost: Vec<Extent>,
}

/// Steps of a rebuild in flight at once.
const STEPS_AT_ONCE: usize = 3;

/// Stripes that are written to the replacement and still locked, with the blocks that could not be restored.
struct Filled {
    step: Range<u64>,
    losses: Losses,
    guard: RangeGuard,
}

/// Blocks that could not be restored.
#[derive(Default)]
pub(super) struct Losses {
    /// Blocks of the member.
    on_member: Vec<Extent>,
    /// Blocks of the array.
    in_array: Vec<Extent>,
}

impl Losses {
    pub(super) fn add(&mut self, on_member: Extent, in_array: Vec<Extent>) {
        self.on_member.push(on_member);
        self.in_array.extend(in_array);
    }
}

/// Running rebuild of one member.
pub(super) struct Rebuild<'a, D: BlockDevice + 'static> {
    pub(super) stripes: &'a Rc<Stripes<D>>,
    pub(super) members: &'a Rc<Members<D>>,
    pub(super) protected: Option<&'a Rc<Protected<D>>>,
    pub(super) layout: Layout,
    pub(super) member: u16,
    /// Changes when another device takes the place.
    incarnation: u64,
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
    /// Rebuilds `member`, which was replaced, in `stripes`, and puts it into service.
    ///
    /// *Shape*: `stripes` in ascending order, without overlap; they include every stripe in use. The host is served
    /// during the rebuild. *Errors*: see [`RebuildError`]. *Durability*: everything rebuilt is flushed before
    /// [`RebuildOwner::commit`] is called, and the member is in service after that.
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
        // One rebuild of a place at a time; the flag is cleared when `Rebuild` is dropped.
        if !waits || place.rebuild_runs.replace(true) {
            return Err(RebuildError::NotWaiting(member));
        }
        let (protected, layout, incarnation) = (path.protected(), all.layout, place.device_incarnation.get());
        let rebuild = Rebuild { stripes: all, members, protected, layout, member, incarnation };
        // Before the ranges are fixed: such commands add stripes that the member has missed.
        let stripes = rebuild.with_missed_by_inflight(stripes).await?;
        place.begin_rebuild(&stripes);
        let rebuilt = rebuild.fill(&stripes, owner).await?;
        // After the data: from here on the member takes batches, and must not lack anything that they rely on.
        rebuild.join_pages().await.map_err(RebuildError::Stopped)?;
        rebuild.still_rebuilding()?;
        let flushed = members.flush_member(member).await.map_err(|_| RebuildError::ReplacementLost(member))?;
        // Recorded first: in service sooner, the failure of another member would be recorded as survivable, and after
        // a crash both would be missing.
        let _committed: Stable = owner.commit(member, flushed, &rebuilt).await.map_err(RebuildError::Stopped)?;
        rebuild.still_rebuilding()?;
        place.set_state(MemberState::InService);
        rebuild.clear_missed();
        Ok(rebuilt)
    }
}

impl<D: BlockDevice + 'static> Rebuild<'_, D> {
    /// Writes the stripes to the replacement; while some are written, the next are read from the others.
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
            let mut reported = 0;
            while reported < rebuilt.stripes {
                reported = rebuilt.stripes;
                // No step starts before the owner agrees; steps in flight end and release their stripes.
                let mut pace = pin!(owner.pace(Progress { done: reported, total, front_stripe }));
                loop {
                    if under_way.is_empty() {
                        pace.await;
                        break;
                    }
                    // The owner is ready: progress made meanwhile is reported, then the next steps start.
                    let Either::Right((filled, _)) = select(pace.as_mut(), under_way.next()).await else { break };
                    let filled = filled.expect("some are under way")?;
                    front_stripe = self.advance(filled, &mut rebuilt)?;
                }
            }
            assert!(rebuilt.stripes <= total, "no stripe is rebuilt twice");
        }
    }

    /// Rebuilds the stripes of `step` on the replacement, under their locks.
    async fn rebuild_step(&self, step: Range<u64>) -> Result<Filled, RebuildError> {
        // Held until the front has passed: a write sees the replacement either filled or absent.
        let guard = self.stripes.locks.exclusive(step.clone()).await;
        self.still_rebuilding()?;
        // Fresh entries are logged first: what is logged for these blocks below must come after them.
        if let Some(array) = self.protected {
            array.settle_stripes(&step).await.map_err(RebuildError::Stopped)?;
        }
        let mut ops = Ops::new();
        let mut losses = Losses::default();
        for part in join_all(step.clone().map(|stripe| self.rebuild_stripe(stripe))).await {
            let (writes, lost) = part.map_err(RebuildError::Stopped)?;
            ops.extend(writes);
            losses.on_member.extend(lost.on_member);
            losses.in_array.extend(lost.in_array);
        }
        self.still_rebuilding()?;
        // Before the content is written: a read after the front has passed must not return what the device had there.
        losses.on_member.iter().for_each(|&extent| self.members.place(self.member).mark_unreadable(extent));
        let guard = self.fill_in(ops, losses.on_member.clone(), guard).await.map_err(RebuildError::Stopped)?;
        Ok(Filled { step, losses, guard })
    }

    /// Moves the front behind these stripes and unlocks them; returns the front.
    ///
    /// There is no await between the two, so no command sees one without the other. A rebuild dropped before leaves
    /// the front where it was.
    fn advance(&self, filled: Filled, rebuilt: &mut Rebuilt) -> Result<u64, RebuildError> {
        let Filled { step, losses, guard } = filled;
        assert!(step.end <= self.layout.stripes(), "a rebuild is within the array");
        self.still_rebuilding()?;
        if let MemberState::Rebuilding { front_stripe } = self.members.place(self.member).state() {
            assert!(front_stripe <= step.start, "the front of a rebuild moves forward");
        }
        self.members.place(self.member).set_state(MemberState::Rebuilding { front_stripe: step.end });
        drop(guard);
        rebuilt.add(step.end - step.start, losses);
        Ok(step.end)
    }

    /// Returns the writes that restore the member in `stripe`, and its blocks that cannot be restored.
    async fn rebuild_stripe(&self, stripe: u64) -> Result<(Ops, Losses), IoError> {
        let role = self.layout.role_of(stripe, self.member);
        // The replacement itself is never a source.
        let excluded = Excluded::of(MemberSet::only(self.member));
        let (mut ops, mut losses) = (Ops::new(), Losses::default());
        let mut parts = Vec::new();
        for rows in written_rows(&self.layout, self.protected, self.member, stripe).await {
            parts.extend(self.stripes.salvage(stripe, role, rows, excluded).await);
        }
        for part in parts {
            let extent = self.layout.member_extent(stripe, part.rows);
            match part.content {
                Ok(view) => ops.push(Op::write(self.member, extent, view)),
                Err(_) => {
                    losses.add(extent, lost_with(self.stripes, stripe, role, part.rows, excluded).await);
                }
            }
        }
        // A stopped array explains errors above, and must not be mistaken for lost blocks.
        self.members.serving(Extent::new(0, self.layout.blocks().0))?;
        Ok((ops, losses))
    }

    /// Fails when the replacement has failed, was removed or exchanged, or the array has stopped.
    pub(super) fn still_rebuilding(&self) -> Result<(), RebuildError> {
        self.members.serving(Extent::new(0, self.layout.blocks().0)).map_err(RebuildError::Stopped)?;
        let place = self.members.place(self.member);
        match place.state() {
            MemberState::Rebuilding { .. } if place.device_incarnation.get() == self.incarnation => Ok(()),
            _ => Err(RebuildError::ReplacementLost(self.member)),
        }
    }
}

/// Lists the blocks of the array that are lost where `role` cannot be restored: its own, and with parity those of
/// other members that cannot be read either.
pub(super) async fn lost_with<D: BlockDevice + 'static>(
    stripes: &Rc<Stripes<D>>,
    stripe: u64,
    role: Role,
    rows: Rows,
    excluded: Excluded,
) -> Vec<Extent> {
    let layout = &stripes.layout;
    let of_column = |column| {
        let start = layout.lba_of(StripePosition { stripe, column, row: rows.start });
        Extent { start, len: Blocks(rows.len()) }
    };
    // Parity of its own holds no data of the array.
    let own = match role {
        Role::Data { column, .. } => Some(column),
        Role::P | Role::Q => None,
    };
    let mut lost: Vec<Extent> = own.into_iter().map(of_column).collect();
    if layout.has_parity() {
        for column in (0..layout.columns()).filter(|&column| Some(column) != own) {
            let mut excluded = excluded;
            // Reads with the same member excluded: what cannot be reconstructed now is lost as well.
            let role = Role::Data { column, copy: 0 };
            if stripes.content(stripe, role, rows, &mut excluded).await.is_err() {
                lost.push(of_column(column));
            }
        }
    }
    lost
}

impl Rebuilt {
    /// Adds stripes that were written, and their losses.
    pub(super) fn add(&mut self, stripes: u64, mut losses: Losses) {
        // Parts arrive by column; the owner's list is in the order of addresses.
        losses.in_array.sort_by_key(|run| run.start);
        self.stripes += stripes;
        let join = |runs: &mut Vec<Extent>, run: Extent| match runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => runs.push(run),
        };
        losses.on_member.into_iter().for_each(|run| join(&mut self.unreadable, run));
        losses.in_array.into_iter().for_each(|run| join(&mut self.lost, run));
    }
}
