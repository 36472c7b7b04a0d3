//! The members of an array: which there are, which of them can be used, and every operation on them.
//!
//! All that reads or writes a device goes through [`Members`], so that the failure of a member is noticed in one place and means
//! the same everywhere (`failure`). The members know nothing of checksums, of the log or of commands.

mod absence;
mod failure;
mod member;
mod op;
mod retry;
mod shadow;

pub(crate) use absence::Missed;
pub use failure::FailureLog;
pub(crate) use member::{Member, Patience, Usable, admit, count};
pub use member::{MemberState, MemberStatus};
pub(crate) use op::{Change, Op, Ops};
pub(crate) use shadow::Shadow;

use crate::error::ArrayError;
use crate::geometry::{Layout, MemberSet};
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Rope, Stable};
use futures_util::future::join_all;
use shard::{Detached, Pause, Signal};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

/// The members as one layout of the array has them. Commands keep those that they began with.
pub(crate) struct Members<D> {
    /// Which losses the array survives, and where each stripe lies on the members.
    pub(crate) layout: Layout,
    /// Every place that there is; the layout may have fewer of them.
    places: Box<[Rc<Member<D>>]>,
    shared: Rc<Shared>,
}

/// What all layouts of one array have in common.
struct Shared {
    /// How many places count, in all layouts: one that is joining does not.
    width: Cell<u16>,
    /// Members that are not in service yet and take pages and the log already.
    joining: Cell<MemberSet>,
    failures: failure::Failures,
    log: Rc<dyn FailureLog>,
    /// What absent members miss, where that is remembered.
    missed: Option<Rc<Missed>>,
    /// Waits. With it, a write that a member refuses for want of space is tried again before that costs anything.
    pause: Option<Pause>,
    background: Rc<Detached>,
    /// Raised when the array stops, and when a layout is not used any more.
    changed: Rc<Signal>,
}

/// What the members of an array use of their owner's.
pub(crate) struct Services {
    pub(crate) log: Rc<dyn FailureLog>,
    pub(crate) missed: Option<Rc<Missed>>,
    pub(crate) pause: Option<Pause>,
    pub(crate) background: Rc<Detached>,
    pub(crate) changed: Rc<Signal>,
}

impl<D> Drop for Members<D> {
    fn drop(&mut self) {
        // Whoever waits for the last command of this layout looks again.
        self.shared.changed.raise();
    }
}

impl<D: BlockDevice + 'static> Members<D> {
    /// These members, all of which count.
    ///
    /// *Panics*: when the layout has more of them.
    pub(crate) fn new(layout: Layout, places: Box<[Rc<Member<D>>]>, services: Services) -> Self {
        assert!(places.len() >= usize::from(layout.members()), "every member of the layout has a place");
        let Services { log, missed, pause, background, changed } = services;
        let width = Cell::new(u16::try_from(places.len()).expect("the layout judges their number"));
        let (joining, failures) = Default::default();
        let shared = Shared { width, joining, failures, log, missed, pause, background, changed };
        Self { layout, places, shared: Rc::new(shared) }
    }

    /// The members of the same array in another layout, or with more places.
    pub(crate) fn reshaped(&self, layout: Layout, places: Box<[Rc<Member<D>>]>) -> Self {
        assert!(places.len() >= usize::from(layout.members()), "every member of the layout has a place");
        Self { layout, places, shared: self.shared.clone() }
    }

    /// Admits members' devices that are large enough for `needed` blocks of each.
    pub(crate) fn admit(&self, needed: Blocks) -> Result<(), ArrayError> {
        for (number, place) in (0..).zip(&self.places) {
            place.device().map_or(Ok(()), |device| admit(needed, number, &device.geometry()))?;
        }
        Ok(())
    }

    /// Every place, in order.
    pub(crate) fn places(&self) -> &[Rc<Member<D>>] {
        &self.places
    }

    /// The place of a member that the caller knows to be there.
    pub(crate) fn place(&self, member: u16) -> &Member<D> {
        &self.places[usize::from(member)]
    }

    /// The place with the number that an operator has given, if there is one.
    pub(crate) fn find(&self, member: u16) -> Option<&Member<D>> {
        self.places.get(usize::from(member)).map(|place| &**place)
    }

    /// The geometry of each device that there is.
    pub(crate) fn geometries(&self) -> impl Iterator<Item = Geometry> {
        self.places.iter().filter_map(|place| place.device()).map(|device| device.geometry())
    }

    /// How many members count.
    pub(crate) fn width(&self) -> u16 {
        self.shared.width.get()
    }

    /// From now on `member`, which was joining, counts.
    ///
    /// *Panics*: when it is not the next one.
    pub(crate) fn count_in(&self, member: u16) {
        assert_eq!(member, self.width(), "members join one after the other");
        self.end_joining(MemberSet::only(member));
        self.shared.width.set(member + 1);
    }

    /// The members that count.
    pub(crate) fn all(&self) -> MemberSet {
        MemberSet::first(self.width())
    }

    /// Members that are not in service yet and take pages and the log already.
    pub(crate) fn joining(&self) -> MemberSet {
        self.shared.joining.get()
    }

    /// `member` takes pages and the log from now on.
    pub(crate) fn begin_joining(&self, member: u16) {
        assert!(!self.in_service().contains(member), "a member in service has joined already");
        self.shared.joining.set(self.joining().with(member));
    }

    /// These members are in service, or are not going to be.
    pub(crate) fn end_joining(&self, members: MemberSet) {
        self.shared.joining.set(self.joining() - members);
    }

    /// The members in service.
    pub(crate) fn in_service(&self) -> MemberSet {
        self.all() - self.not_in_service()
    }

    /// The members that pages and the log are written to.
    pub(crate) fn in_use(&self) -> MemberSet {
        let takes = |member: &u16| match self.place(*member).state() {
            MemberState::InService => true,
            MemberState::Rebuilding { .. } => self.joining().contains(*member),
            MemberState::Failed | MemberState::Missing => false,
        };
        (0..).zip(&self.places).map(|(member, _)| member).filter(takes).collect()
    }

    /// Members that take no batch. One that is joining takes it, and counts as if it would stay: if it does not, the
    /// others that have the batch suffice, and if it does, they would not have.
    pub(crate) fn not_in_use(&self) -> MemberSet {
        if sabotage::is(Bug::JoiningWithoutLog) { self.not_in_service() } else { self.all() - self.in_use() }
    }

    /// The members that hold what was written, also those that are being rebuilt.
    pub(crate) fn written(&self) -> MemberSet {
        let written = |member: &u16| {
            let state = self.place(*member).state();
            matches!(state, MemberState::InService | MemberState::Rebuilding { .. })
        };
        self.all().iter().filter(written).collect()
    }

    /// Which members can be used in `stripe`, as things stand.
    pub(crate) fn usable(&self, stripe: u64) -> Usable {
        let mut usable = Usable { read: MemberSet::NONE, write: MemberSet::NONE };
        for (number, member) in (0..self.layout.members()).zip(&self.places) {
            let (read, write) = member.usable(stripe);
            usable.read = if read { usable.read.with(number) } else { usable.read };
            usable.write = if write { usable.write.with(number) } else { usable.write };
        }
        usable
    }

    /// Members that are absent, if any are, miss these blocks, which are about to be written.
    pub(crate) fn note_missed(&self, blocks: &[(u64, u64)]) {
        if let Some(missed) = self.shared.missed.as_ref().filter(|_| !self.not_in_service().is_empty()) {
            missed.add(blocks);
        }
    }

    /// Reads from a member what is there.
    pub(crate) async fn read_data(
        self: &Rc<Self>,
        member: u16,
        extent: Extent,
        patience: Patience,
    ) -> Result<Rope, IoError> {
        self.note_gone(member, self.place(member).read(extent, self.patience_with(member, patience))).await
    }

    /// Reads blocks of the member that are not of its data: pages, anchors, the log.
    pub(crate) async fn read_beside_data(
        self: &Rc<Self>,
        member: u16,
        extent: Extent,
        patience: Patience,
    ) -> Result<Rope, IoError> {
        self.note_gone(member, self.place(member).read_beside_data(extent, self.patience_with(member, patience))).await
    }

    /// A member that the array cannot do without is waited for as long as it takes.
    fn patience_with(&self, member: u16, patience: Patience) -> Patience {
        if self.spares(member) { patience } else { Patience::Patient }
    }

    /// What `read` of the member gives; one that is gone is lost.
    async fn note_gone(
        self: &Rc<Self>,
        member: u16,
        read: impl Future<Output = Result<Rope, IoError>>,
    ) -> Result<Rope, IoError> {
        let tenure = self.place(member).tenure.get();
        let result = read.await;
        if let Err(error) = result.as_ref()
            && error.kind == IoErrorKind::Gone
        {
            self.lose_in(member, tenure, *error);
        }
        result
    }

    pub(crate) async fn flush_member(self: &Rc<Self>, member: u16) -> Result<Stable, IoError> {
        let place = self.place(member);
        let tenure = place.tenure.get();
        // The member may be busy with a flush that only our own work brings to its end: the record of a
        // failure is written to the same disks.
        let mut flush = pin!(place.flush());
        let flushed = self.shared.background.until(|cx| flush.as_mut().poll(cx)).await;
        if let Err(error) = flushed {
            self.lose_in(member, tenure, error);
        }
        flushed
    }

    /// What has ended on these members is durable, or they have failed and that is recorded.
    pub(crate) async fn flush_those(self: &Rc<Self>, members: MemberSet) -> Result<(), IoError> {
        self.flush_all(members.iter().filter(|&member| self.place(member).needs_flush()).collect()).await
    }

    /// As [`Members::flush_those`], also members that were not written since the array was opened.
    pub(crate) async fn flush_all(self: &Rc<Self>, members: MemberSet) -> Result<(), IoError> {
        let flush = |member| self.flush_member(member);
        for flushed in join_all(members.iter().map(flush)).await {
            // A failed flush costs the member; whether the array can do without is judged below.
            drop(flushed);
        }
        self.failures_recorded(Extent::default()).await
    }
}
