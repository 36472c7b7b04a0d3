//! Catalog store: commits the catalog to all member disks, one commit at a time (group commit).
//!
//! A commit writes generation n+1 to slot 0 of every participating member and flushes it, then does the same
//! with slot 1, and is done when all members have both. A member that cannot be reached is marked failed, and
//! generation n+2 records that on the others before anybody is answered. Where its group cannot serve without
//! that member, nothing is recorded, because that would lose the pool: the store accepts no more changes, and
//! the disks stay as they are for the next opening. A disk that is out of space is retried for some seconds
//! first.
//!
//! A commit whose waiters were all dropped is finished by a task of its own: it is half written, and others
//! wait for the flushes of the same disks.

mod exchange;

pub(crate) use crate::catalog::SINCE_NEXT;
use crate::catalog::{Catalog, GroupRecord, GroupRole, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::SLOT_STARTS;
use crate::owner::{FenceReason, OwnershipState};
use crate::slot;
use block::{BlockDevice, IoError, IoErrorKind, Lba, Stable, View};
use cluster::Claim;
use exchange::Exchange;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use shard::{Pause, SingleFlight, Spawner, retry_on_error};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Callback that runs after the commit that announces writes.
pub(crate) type OnWritten = Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>;

/// Sequence number of a catalog change; see [`Store::committed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a change is durable only once it is committed"]
pub(crate) struct Change(u64);

/// Encoded catalog.
#[derive(Clone)]
pub(crate) struct Body {
    bytes: Rc<[u8]>,
    /// True when the slot is written to its end, whatever the length of the catalog.
    full_slot: bool,
}

impl Body {
    pub(crate) fn of(bytes: impl Into<Rc<[u8]>>) -> Self {
        Self { bytes: bytes.into(), full_slot: false }
    }
}

type OnFailed = Rc<dyn Fn(Uuid, IoError)>;
type OnFenced = Rc<dyn Fn(&FenceReason)>;
/// Tells whether a group can serve, given true for each up-to-date member.
type Tolerates = Rc<dyn Fn(&GroupRecord, &[bool]) -> bool>;

/// Reason why a disk did not take a commit.
enum CommitError {
    Io(IoError),
    /// Pool lost to another owner.
    Fenced(FenceReason),
}

/// Result of a commit on one disk.
struct CommitResult<D> {
    id: Uuid,
    disk: Rc<D>,
    result: Result<(), CommitError>,
}

impl<D> CommitResult<D> {
    /// Error for which the disk missed the commit, unless the pool is lost to another owner.
    fn missed_by(&self) -> Option<IoError> {
        match &self.result {
            Err(CommitError::Io(error)) => Some(*error),
            Err(CommitError::Fenced(_)) | Ok(()) => None,
        }
    }
}

/// Catalog and the disks it is stored on.
pub(crate) struct Store<D> {
    state: Rc<RefCell<State<D>>>,
    /// Commit in flight. Its result is kept in `state`.
    commits: SingleFlight<Infallible>,
    spawner: Spawner,
}

struct State<D> {
    catalog: Catalog,
    /// Newest generation written to any disk.
    generation: u64,
    changed: u64,
    committed: u64,
    lost: bool,
    /// True when the next commit writes its slots to the end.
    full_slot: bool,
    disks: Vec<(Uuid, Rc<D>)>,
    /// Disks that get every commit but are not members yet.
    joining: Vec<Uuid>,
    /// Exchange that the next commit to its joining disk decides.
    exchange: Option<Exchange>,
    /// Exchange that the next commit records.
    exchanged: Option<Exchange>,
    on_failed: OnFailed,
    tolerates: Tolerates,
    /// Timer for retries of a disk that is out of space.
    pause: Option<Pause>,
    /// Claim that every commit verifies on the members before it writes.
    guard: Option<Claim>,
    fenced: Option<FenceReason>,
    on_fenced: OnFenced,
    /// True until writes are announced for the first time since a member was given up.
    is_opening: bool,
    /// Callback after the commit that announces writes, before anybody is answered.
    on_written: Option<OnWritten>,
}

impl<D: BlockDevice + 'static> Store<D> {
    /// Creates the store of a pool whose participating members hold `catalog` as `generation`.
    pub(crate) fn new(catalog: Catalog, generation: u64, disks: Vec<(Uuid, Rc<D>)>) -> Self {
        let state = State {
            catalog,
            generation,
            changed: 0,
            committed: 0,
            lost: false,
            full_slot: false,
            disks,
            joining: Vec::new(),
            exchange: None,
            exchanged: None,
            on_failed: Rc::new(|_, _| {}),
            tolerates: Rc::new(|_, _| true),
            pause: None,
            guard: None,
            fenced: None,
            on_fenced: Rc::new(|_| {}),
            is_opening: false,
            on_written: None,
        };
        let spawner = Spawner::default();
        let commits = SingleFlight::new(spawner.clone());
        Self { state: Rc::new(RefCell::new(state)), commits, spawner }
    }

    /// Spawner for commits that have lost all waiters; effective as soon as it is set.
    pub(crate) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// Marks the pool as being opened by a node that announces writes: nothing is written to it before
    /// [`Store::finish_opening`].
    pub(crate) fn begin_opening(&self) {
        self.state.borrow_mut().is_opening = true;
    }

    /// Marks the pool as open: a member is from now on given up in order to continue writing.
    pub(crate) fn finish_opening(&self) {
        self.state.borrow_mut().is_opening = false;
    }

    /// Sets the callback that runs after the first commit that announces writes, before [`Store::committed`]
    /// returns.
    pub(crate) fn on_written(&self, on_written: OnWritten) {
        self.state.borrow_mut().on_written = Some(on_written);
    }

    async fn report_written(&self) {
        let on_written = {
            let state = self.state.borrow();
            // The borrow ends before the await: the callback uses the store itself.
            if state.catalog.must_announce() { None } else { state.on_written.clone() }
        };
        if let Some(on_written) = on_written {
            on_written().await;
            // Cleared only now: a waiter that comes while the callback runs must run it too, not return before
            // its effect.
            self.state.borrow_mut().on_written = None;
        }
    }

    /// Records that a member was given up; called with each such change.
    pub(crate) fn note_member_failed(&self) {
        self.state.borrow_mut().note_member_failed();
    }

    /// Sets the callback that learns of every disk that a commit could not reach, before the commit continues
    /// without it.
    pub(crate) fn on_failed(&self, on_failed: OnFailed) {
        self.state.borrow_mut().on_failed = on_failed;
    }

    /// Sets the RAID rule: no member is marked failed without which its group could not serve.
    pub(crate) fn set_tolerance(&self, tolerates: Tolerates) {
        self.state.borrow_mut().tolerates = tolerates;
    }

    /// Sets the timer with which disks that are out of space are retried.
    pub(crate) fn set_retry(&self, pause: Pause) {
        self.state.borrow_mut().pause = Some(pause);
    }

    /// Sets the callback that learns, once, why the pool was lost to another owner.
    pub(crate) fn on_fenced(&self, on_fenced: OnFenced) {
        self.state.borrow_mut().on_fenced = on_fenced;
    }

    /// Sets the claim that every later commit verifies on the members; none verifies nothing.
    pub(crate) fn guard(&self, owner: Option<Claim>) {
        self.state.borrow_mut().guard = owner;
    }

    /// Claim that commits verify.
    pub(crate) fn guarded(&self) -> Option<Claim> {
        self.state.borrow().guard.clone()
    }

    /// Reason why the pool was lost to another owner, if it was.
    pub(crate) fn fenced_by(&self) -> Option<FenceReason> {
        self.state.borrow().fenced.clone()
    }

    /// Fences the store: the pool belongs to another owner, and no change is accepted any more.
    pub(crate) fn fence(&self, by: FenceReason) {
        self.close();
        fence(&self.state, by);
    }

    /// Runs `look` on the current catalog, committed or not.
    pub(crate) fn with_catalog<R>(&self, look: impl FnOnce(&Catalog) -> R) -> R {
        look(&self.state.borrow().catalog)
    }

    /// Newest generation written.
    pub(crate) fn generation(&self) -> u64 {
        self.state.borrow().generation
    }

    /// Sequence number of the latest change.
    pub(crate) fn latest(&self) -> Change {
        Change(self.state.borrow().changed)
    }

    /// Applies `change` to the catalog in memory; [`Store::committed`] makes it durable. On error the catalog
    /// is unchanged if `change` left it so.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut Catalog) -> Result<R, PoolError>,
    ) -> Result<(R, Change), PoolError> {
        let mut state = self.state.borrow_mut();
        if state.lost {
            return Err(PoolError::CatalogLost);
        }
        // A change of the pool's content counts as a write, so the announcement goes into the same commit.
        let before = state.catalog.must_announce().then(|| state.catalog.clone());
        let made = change(&mut state.catalog)?;
        if before.is_some_and(|before| !before.has_same_content(&state.catalog)) {
            state.catalog.written = Some(SINCE_NEXT);
        }
        state.changed += 1;
        Ok((made, Change(state.changed)))
    }

    /// Makes the next commit write its slots to the end, so that no older content is left behind the catalog.
    pub(crate) fn write_full_slots_next(&self) {
        self.state.borrow_mut().full_slot = true;
    }

    /// Adds `disk`; it takes part from the next commit on, if the catalog names it by then.
    pub(crate) fn attach(&self, id: Uuid, disk: Rc<D>) {
        let mut state = self.state.borrow_mut();
        // A new device for a known UUID replaces the old one.
        state.disks.retain(|(known, _)| *known != id);
        state.disks.push((id, disk));
    }

    /// Adds `disk` as a joining disk: it gets every commit from the next on, so that it is at most one behind
    /// when the catalog names it.
    pub(crate) fn add_joining(&self, id: Uuid, disk: Rc<D>) {
        self.attach(id, disk);
        self.state.borrow_mut().joining.push(id);
    }

    /// True while the disk gets every commit without being a member.
    pub(crate) fn is_joining(&self, id: Uuid) -> bool {
        self.state.borrow().joining.contains(&id)
    }

    /// Ends the joining state: the disk gets commits as a member, or none.
    pub(crate) fn end_joining(&self, id: Uuid) {
        self.state.borrow_mut().joining.retain(|guest| *guest != id);
    }

    /// Removes `disk`; only a commit in flight may still hold it.
    pub(crate) fn detach(&self, id: Uuid) {
        self.end_joining(id);
        self.state.borrow_mut().disks.retain(|(known, _)| *known != id);
    }

    /// Accepts no more changes and abandons a commit in flight.
    pub(crate) fn close(&self) {
        self.state.borrow_mut().lost = true;
        // A closed store must not write, not even the rest of a commit.
        self.commits.abandon();
    }

    /// Waits until no commit is in flight.
    pub(crate) async fn drain(&self) {
        self.commits.until_idle().await;
    }

    /// Attached disks, whether they take part or not.
    pub(crate) fn disks(&self) -> Vec<(Uuid, Rc<D>)> {
        self.state.borrow().disks.clone()
    }

    /// Makes `change` and all changes before it durable.
    ///
    /// *Errors*: `CatalogLost` when no disk took it, or when a disk did not that its group needs; nothing can
    /// be committed after that.
    pub(crate) async fn committed(&self, change: Change) -> Result<(), PoolError> {
        assert!(change <= self.latest(), "only changes that were made are waited for");
        self.until_committed(change).await?;
        self.report_written().await;
        Ok(())
    }

    async fn until_committed(&self, change: Change) -> Result<(), PoolError> {
        // A commit carries everything changed before it began; a change made meanwhile needs the next one.
        loop {
            {
                let state = self.state.borrow();
                if state.committed >= change.0 {
                    return Ok(());
                }
                if state.lost {
                    return Err(PoolError::CatalogLost);
                }
            }
            // The run holds only a weak reference while it waits: dropping the store drops its commit.
            let commit = || {
                let state = Rc::downgrade(&self.state);
                async move {
                    commit(state).await;
                    Ok(())
                }
                .boxed_local()
            };
            let Ok(()) = self.commits.join_or_start(commit).await;
        }
    }
}

/// Writes the current catalog, and once more where a disk missed it. A closed store writes nothing.
async fn commit<D: BlockDevice + 'static>(state: Weak<RefCell<State<D>>>) {
    loop {
        let Some(begins) = state.upgrade() else { return };
        let (change, writes) = {
            let mut state = begins.borrow_mut();
            if state.lost {
                return;
            }
            // The bytes are taken here: a change that is made while the writes run belongs to the next commit.
            (state.changed, state.start())
        };
        drop(begins);
        let outcome = join_all(writes).await;
        // The store may have been closed or fenced while the disks wrote; the result counts for nothing then.
        let Some(state) = state.upgrade().filter(|state| !state.borrow().lost) else { return };
        end(&state, change, outcome);
        if state.borrow().committed >= change {
            return;
        }
    }
}

/// Evaluates a commit. When a disk missed it, the next commit records that, and no waiter is answered before.
fn end<D: BlockDevice + 'static>(store: &RefCell<State<D>>, change: u64, outcome: Vec<CommitResult<D>>) {
    let fenced = outcome.iter().find_map(|took| match &took.result {
        Err(CommitError::Fenced(by)) => Some(by.clone()),
        _ => None,
    });
    // A fence outranks every other result: nothing more may be written, not even that a member failed.
    if let Some(by) = fenced {
        return fence(store, by);
    }
    let (failed, on_failed) = {
        let mut state = store.borrow_mut();
        let missed = || outcome.iter().filter_map(|took| Some((took, took.missed_by()?)));
        // A commit that only joining disks took is lost: they are not members.
        let is_member = |took: &CommitResult<D>| !state.joining.contains(&took.id);
        let is_lost = outcome.iter().filter(|took| is_member(took)).all(|took| took.result.is_err());
        // The old disk of an exchange has its place again where the new one missed the commit that named it.
        let replaced = state.replaced();
        let reverted = state.revert_exchange(&outcome);
        state.lost = is_lost && reverted.is_none();
        let exchanged = if state.lost { None } else { state.exchange_after(&outcome) };
        // A disk that was replaced meanwhile was not written; its result says nothing about the device that has
        // its place now.
        let is_own = |took: &CommitResult<D>| {
            !state.disks.iter().any(|(id, disk)| *id == took.id && !Rc::ptr_eq(disk, &took.disk))
        };
        let is_failed =
            |took: &CommitResult<D>| is_own(took) && ![exchanged, replaced, reverted].contains(&Some(took.id));
        let failed: Vec<(Uuid, IoError)> =
            missed().filter(|(took, _)| is_failed(took)).map(|(took, error)| (took.id, error)).collect();
        let disks: Vec<Uuid> = failed.iter().map(|(disk, _)| *disk).collect();
        let is_everywhere = !missed().any(|(took, _)| is_own(took));
        let is_spared = state.tolerates_loss(&disks);
        state.lost |= !is_spared;
        let is_next = (state.committed..=state.changed).contains(&change);
        assert!(is_next, "commits end in the order of their changes");
        // The failure itself is a change, so waiters stay until the commit that records it on the other
        // members.
        if is_everywhere {
            state.committed = change;
        }
        // Failed members and an exchange are changes of the catalog themselves, which the next commit records.
        if !is_everywhere || exchanged.is_some() {
            state.changed += 1;
        }
        // A joining disk that missed a commit would be two behind when the catalog names it.
        state.joining.retain(|joining| !disks.contains(joining));
        for (disk, error) in failed.iter().filter(|_| is_spared) {
            // A member that its array gave up meanwhile is recorded already, as missing where it may return.
            if let Some(member) = state.catalog.member_mut(*disk).filter(|member| member.state.takes_part()) {
                member.state = MemberState::after(*error);
                member.since = SINCE_NEXT;
            }
            state.note_member_failed();
        }
        (failed, state.on_failed.clone())
    };
    // Called without a borrow: the callback may use the store.
    failed.into_iter().for_each(|(disk, error)| on_failed(disk, error));
}

/// Fences the store: the pool belongs to another owner, and no change is accepted any more.
fn fence<D>(store: &RefCell<State<D>>, by: FenceReason) {
    let on_fenced = {
        let mut state = store.borrow_mut();
        state.lost = true;
        // The callback runs once, for the first reason.
        if state.fenced.replace(by.clone()).is_some() {
            return;
        }
        state.on_fenced.clone()
    };
    on_fenced(&by);
}

impl<D: BlockDevice + 'static> State<D> {
    /// True unless marking these members failed would stop a data group that serves now.
    ///
    /// Groups of the write log do not count, because the cache still holds in memory what the log holds.
    fn tolerates_loss(&self, failed: &[Uuid]) -> bool {
        let loses = |group: &&GroupRecord| group.members.iter().any(|member| failed.contains(&member.disk));
        let serves_without = |group: &GroupRecord, lost: &[Uuid]| {
            // A member being rebuilt cannot replace one that is lost.
            let is_there =
                |member: &MemberRecord| member.state == MemberState::InService && !lost.contains(&member.disk);
            (self.tolerates)(group, &group.members.iter().map(is_there).collect::<Vec<_>>())
        };
        let groups = self.catalog.groups.iter().filter(|group| group.role == GroupRole::Data);
        groups.filter(loses).all(|group| serves_without(group, failed) || !serves_without(group, &[]))
    }

    /// Records that a member was given up. Writes will follow without an announcement, unless the pool is still
    /// being opened.
    fn note_member_failed(&mut self) {
        if !self.is_opening {
            self.catalog.written = Some(SINCE_NEXT);
        }
    }

    /// Starts a commit of the current catalog with the next generation: returns one write per disk.
    fn start(&mut self) -> Vec<impl Future<Output = CommitResult<D>> + use<D>> {
        self.generation += 1;
        let generation = self.generation;
        let members = self.catalog.groups.iter_mut().flat_map(|group| &mut group.members);
        // Members whose state changed since the last commit get the generation of the commit that records it.
        members.filter(|member| member.since == SINCE_NEXT).for_each(|member| member.since = generation);
        if self.catalog.written == Some(SINCE_NEXT) {
            self.catalog.written = Some(generation);
        }
        // Our own bug is caught here, before it reaches a disk.
        assert!(self.catalog.check().is_ok(), "no commit writes a catalog that contradicts itself");
        // Encoded once: the slots of the disks differ in their headers alone.
        let body = Body { bytes: self.catalog.emit().into(), full_slot: std::mem::take(&mut self.full_slot) };
        let catalog = &self.catalog;
        let is_member = |disk: Uuid| catalog.member(disk).is_some_and(|member| member.state.takes_part());
        let is_guest = |disk: Uuid| self.joining.contains(&disk);
        self.disks
            .iter()
            .filter(|(id, _)| is_member(*id) || is_guest(*id))
            .cloned()
            .map(|disk| {
                let slot = NewSlot { pool: catalog.pool, generation, body: body.clone() };
                commit_one(disk, slot, self.guard.clone(), self.pause.clone())
            })
            .collect()
    }
}

/// Both slots of a disk, in commit order.
pub(crate) const ALL_SLOTS: [usize; 2] = [0, 1];

/// Slot content of one commit.
pub(crate) struct NewSlot {
    pub(crate) pool: Uuid,
    pub(crate) generation: u64,
    pub(crate) body: Body,
}

/// Writes the commit to one disk, durably, if the pool still belongs to `guard` there.
async fn commit_one<D: BlockDevice>(
    (id, disk): (Uuid, Rc<D>),
    slot: NewSlot,
    guard: Option<Claim>,
    pause: Option<Pause>,
) -> CommitResult<D> {
    // A slot that has the commit is not written again, so that one of the two stays intact when a retry is
    // interrupted.
    let left = Cell::new(&ALL_SLOTS[..]);
    let attempt = async || commit_to(id, &disk, &slot, guard.as_ref(), &left).await;
    // Only lack of space is retried: a thin LUN or a full file system below may get space again. Other errors
    // fail the disk.
    let may_pass = |missed: &CommitError| matches!(missed, CommitError::Io(IoError { kind: IoErrorKind::NoSpace, .. }));
    let mut result = attempt().await;
    if let Some(pause) = pause {
        result = retry_on_error(&pause, result, may_pass, attempt).await;
    }
    CommitResult { id, disk, result }
}

async fn commit_to<D: BlockDevice>(
    id: Uuid,
    disk: &Rc<D>,
    new: &NewSlot,
    guard: Option<&Claim>,
    left: &Cell<&[usize]>,
) -> Result<(), CommitError> {
    if let Some(own) = guard {
        // Read before every commit: a disk that shows another owner must not be written.
        let sight = OwnershipState::read(&**disk, new.pool, id, Some(own)).await;
        if let Some(loss) = sight.fence_reason {
            return Err(CommitError::Fenced(loss));
        }
        // A disk whose marks cannot be read may belong to another owner, so it does not get the commit.
        sight.marks.map_err(CommitError::Io)?;
    }
    new.write(id, &**disk, left).await.map_err(CommitError::Io)
}

impl NewSlot {
    /// Writes the commit to the slots in `left` of disk `id`, one after the other; slots not yet flushed stay
    /// in `left`.
    ///
    /// *Durability*: when it returns.
    pub(crate) async fn write<D: BlockDevice>(&self, id: Uuid, disk: &D, left: &Cell<&[usize]>) -> Result<(), IoError> {
        assert!((1..SINCE_NEXT).contains(&self.generation), "a commit has a generation");
        let data: View = slot::emit(self.pool, id, self.generation, &self.body.bytes, self.body.full_slot);
        while let [slot, behind @ ..] = left.get() {
            let written = disk.write(Lba(SLOT_STARTS[*slot]), data.clone()).await?;
            // Flushed before the other slot is written: at any time one of the two is intact.
            let _: Stable = disk.flush(written).await?;
            left.set(behind);
        }
        Ok(())
    }
}

impl<D> Clone for Store<D> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), commits: self.commits.clone(), spawner: self.spawner.clone() }
    }
}

#[cfg(test)]
mod tests;
