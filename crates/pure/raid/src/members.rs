//! Members of an array: the devices, their states, and every operation on them.
//!
//! All reads and writes of a device go through [`Members`], so that the failure of a member is noticed in one place
//! and means the same everywhere (`failure`). The members know nothing of checksums, of the log or of commands.

mod absence;
mod copy_target;
mod failure;
mod member;
mod op;
mod retry;

pub(crate) use absence::MissedRegions;
pub(crate) use copy_target::CopyTarget;
pub use failure::FailureLog;
pub(crate) use member::{Member, ReadWait, Usable, admit, count};
pub use member::{MemberState, MemberStatus};
pub(crate) use op::{Change, Op, Ops};

use crate::bug_injection::{self, InjectedBug};
use crate::error::ArrayError;
use crate::geometry::{Layout, MemberSet};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Rope, Stable};
use futures_util::future::join_all;
use shard::{Detached, Pause, Signal};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

/// Members as one layout of the array has them. A command keeps those that it started with.
pub(crate) struct Members<D> {
    /// Placement of stripes on the members, and the losses that the array survives.
    pub(crate) layout: Layout,
    /// Every place, in order; the layout may have fewer, while a member joins or before a reshape.
    places: Box<[Rc<Member<D>>]>,
    shared: Rc<Shared>,
}

/// State shared by all layouts of one array.
struct Shared {
    /// Number of places that count, in all layouts: a member that is joining does not.
    counted_len: Cell<u16>,
    /// Members not in service that already take pages and log batches.
    joining: Cell<MemberSet>,
    failures: failure::Failures,
    log: Rc<dyn FailureLog>,
    /// Regions that absent members miss; `None` for a plain array.
    missed: Option<Rc<MissedRegions>>,
    /// Timer. With it, a write that a member refuses for want of space is retried before the refusal counts.
    pause: Option<Pause>,
    background: Rc<Detached>,
    /// Raised when the array stops, and when a layout is no longer used.
    changed: Rc<Signal>,
}

/// Services of the owner and of the array that members use.
pub(crate) struct Services {
    pub(crate) log: Rc<dyn FailureLog>,
    pub(crate) missed: Option<Rc<MissedRegions>>,
    pub(crate) pause: Option<Pause>,
    pub(crate) background: Rc<Detached>,
    pub(crate) changed: Rc<Signal>,
}

impl<D> Drop for Members<D> {
    fn drop(&mut self) {
        // Wakes a growth or reshape that waits for the last command of this layout.
        self.shared.changed.raise();
    }
}

impl<D: BlockDevice + 'static> Members<D> {
    /// Creates the members of a layout; all places count.
    ///
    /// *Panics*: when the layout has more members than there are places.
    pub(crate) fn new(layout: Layout, places: Box<[Rc<Member<D>>]>, services: Services) -> Self {
        assert!(places.len() >= usize::from(layout.members()), "every member of the layout has a place");
        let Services { log, missed, pause, background, changed } = services;
        let counted_len = Cell::new(u16::try_from(places.len()).expect("the layout judges their number"));
        let (joining, failures) = Default::default();
        let shared = Shared { counted_len, joining, failures, log, missed, pause, background, changed };
        Self { layout, places, shared: Rc::new(shared) }
    }

    /// The same members in another layout, or with more places.
    pub(crate) fn reshaped(&self, layout: Layout, places: Box<[Rc<Member<D>>]>) -> Self {
        assert!(places.len() >= usize::from(layout.members()), "every member of the layout has a place");
        Self { layout, places, shared: self.shared.clone() }
    }

    /// Checks that every device has at least `needed` blocks.
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

    /// The place of a member known to exist.
    pub(crate) fn place(&self, member: u16) -> &Member<D> {
        &self.places[usize::from(member)]
    }

    /// The place with a number given by an operator, if there is one.
    pub(crate) fn find(&self, member: u16) -> Option<&Member<D>> {
        self.places.get(usize::from(member)).map(|place| &**place)
    }

    /// Geometry of each device present.
    pub(crate) fn geometries(&self) -> impl Iterator<Item = Geometry> {
        self.places.iter().filter_map(|place| place.device()).map(|device| device.geometry())
    }

    /// Number of members that count.
    pub(crate) fn counted_len(&self) -> u16 {
        self.shared.counted_len.get()
    }

    /// Makes `member`, which was joining, count.
    ///
    /// *Panics*: when it is not the next one.
    pub(crate) fn count_member(&self, member: u16) {
        assert_eq!(member, self.counted_len(), "members join one after the other");
        self.end_joining(MemberSet::only(member));
        self.shared.counted_len.set(member + 1);
    }

    /// Members that count.
    pub(crate) fn counted(&self) -> MemberSet {
        MemberSet::first(self.counted_len())
    }

    /// Members not in service that already take pages and log batches.
    pub(crate) fn joining(&self) -> MemberSet {
        self.shared.joining.get()
    }

    /// Makes `member` take pages and log batches.
    pub(crate) fn begin_joining(&self, member: u16) {
        assert!(!self.in_service().contains(member), "a member in service has joined already");
        self.shared.joining.set(self.joining().with(member));
    }

    /// Ends the joining of these members: they are in service, or have failed to join.
    pub(crate) fn end_joining(&self, members: MemberSet) {
        self.shared.joining.set(self.joining() - members);
    }

    /// The members in service.
    pub(crate) fn in_service(&self) -> MemberSet {
        self.counted() - self.not_in_service()
    }

    /// Members that pages and log batches are written to.
    pub(crate) fn in_use(&self) -> MemberSet {
        let takes = |member: &u16| match self.place(*member).state() {
            MemberState::InService => true,
            // A replacement takes pages and batches only once its stripes are filled.
            MemberState::Rebuilding { .. } => self.joining().contains(*member),
            MemberState::Failed | MemberState::Missing => false,
        };
        (0..).zip(&self.places).map(|(member, _)| member).filter(takes).collect()
    }

    /// Members that take no batch. A joining member takes it and is counted as if it stayed: if it leaves, the others
    /// with the batch suffice; if it stays and had not taken it, they would not.
    pub(crate) fn not_in_use(&self) -> MemberSet {
        if bug_injection::is_injected(InjectedBug::JoiningWithoutLog) {
            self.not_in_service()
        } else {
            self.counted() - self.in_use()
        }
    }

    /// Members that hold written data, including those being rebuilt.
    pub(crate) fn written(&self) -> MemberSet {
        let written = |member: &u16| {
            // A replacement under rebuild takes writes as well, and a flush must cover them.
            let state = self.place(*member).state();
            matches!(state, MemberState::InService | MemberState::Rebuilding { .. })
        };
        self.counted().iter().filter(written).collect()
    }

    /// Members that can be read, and that must be written, in `stripe`.
    pub(crate) fn usable(&self, stripe: u64) -> Usable {
        let mut usable = Usable { read: MemberSet::NONE, write: MemberSet::NONE };
        // Places behind the layout hold none of its stripes yet.
        for (number, member) in (0..self.layout.members()).zip(&self.places) {
            let (read, write) = member.usable(stripe);
            usable.read = if read { usable.read.with(number) } else { usable.read };
            usable.write = if write { usable.write.with(number) } else { usable.write };
        }
        usable
    }

    /// Notes that absent members miss these blocks, which are about to be written. No effect when none is absent.
    pub(crate) fn note_missed(&self, blocks: &[(u64, u64)]) {
        // With all members in service nothing is missed; what they might lose with a failing cache is noted as
        // recent.
        if let Some(missed) = self.shared.missed.as_ref().filter(|_| !self.not_in_service().is_empty()) {
            missed.add(blocks);
        }
    }

    /// Reads data blocks of a member, without verification.
    pub(crate) async fn read_data(
        self: &Rc<Self>,
        member: u16,
        extent: Extent,
        wait: ReadWait,
    ) -> Result<Rope, IoError> {
        self.note_gone(member, self.place(member).read(extent, self.read_wait(member, wait))).await
    }

    /// Reads blocks outside of the data area: pages, anchors, the log.
    pub(crate) async fn read_metadata(
        self: &Rc<Self>,
        member: u16,
        extent: Extent,
        wait: ReadWait,
    ) -> Result<Rope, IoError> {
        self.note_gone(member, self.place(member).read_metadata(extent, self.read_wait(member, wait))).await
    }

    /// Wait limit for a read: a member that the array needs is waited for without a deadline.
    fn read_wait(&self, member: u16, wait: ReadWait) -> ReadWait {
        // No other member has the content, so ending the read early would only turn silence into an error.
        if self.can_lose(member) { wait } else { ReadWait::Unbounded }
    }

    /// Awaits a read of the member; fails a member that is gone.
    async fn note_gone(
        self: &Rc<Self>,
        member: u16,
        read: impl Future<Output = Result<Rope, IoError>>,
    ) -> Result<Rope, IoError> {
        // The place may get another device during the read, which must not fail for the old one's error.
        let incarnation = self.place(member).device_incarnation.get();
        let result = read.await;
        if let Err(error) = result.as_ref()
            && error.kind == IoErrorKind::Gone
        {
            self.mark_failed_in(member, incarnation, *error);
        }
        result
    }

    /// Flushes one member; a failed flush fails the member.
    pub(crate) async fn flush_member(self: &Rc<Self>, member: u16) -> Result<Stable, IoError> {
        let place = self.place(member);
        let incarnation = place.device_incarnation.get();
        // Drives the background work meanwhile: this flush may wait for a group commit that only that work completes,
        // because the record of a failure goes to the same disks.
        let mut flush = pin!(place.flush());
        let flushed = self.shared.background.until(|cx| flush.as_mut().poll(cx)).await;
        if let Err(error) = flushed {
            self.mark_failed_in(member, incarnation, error);
        }
        flushed
    }

    /// Flushes those of the members that were written since their last flush; on return the data is durable, or their
    /// failure is recorded.
    pub(crate) async fn flush_those(self: &Rc<Self>, members: MemberSet) -> Result<(), IoError> {
        // A flush without new writes would cost latency and make nothing more durable.
        self.flush_all(members.iter().filter(|&member| self.place(member).needs_flush()).collect()).await
    }

    /// Flushes as [`Members::flush_those`], also members not written since the array was opened.
    pub(crate) async fn flush_all(self: &Rc<Self>, members: MemberSet) -> Result<(), IoError> {
        let flush = |member| self.flush_member(member);
        for flushed in join_all(members.iter().map(flush)).await {
            // A failed flush fails the member; whether the array can spare it is judged below.
            drop(flushed);
        }
        self.failures_recorded(Extent::default()).await
    }
}
