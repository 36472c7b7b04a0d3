//! The catalog on its disks: one commit at a time, shared by all whose changes it carries.
//!
//! A commit writes generation n+1 to the first slot of every member that takes part, flushes it, then does the same with the
//! second slot, and is done when all of them have both. A member that cannot be reached is marked failed, and generation n+2
//! says so on the others before anybody hears of the commit. Where its group cannot serve without that member nothing is said
//! of it, for the pool would be lost by that: no more changes are taken, and the disks are as they are when the pool is opened
//! again. A disk that refuses for want of space is asked again for some seconds before.
//!
//! Exchange of a member for a guest, which gets every commit already: the guest has the place with the commit that follows the
//! first one that it has taken. No other commit comes between these two. The first asks the member like any other, because the
//! members beside it may all be unable to take it; where the member alone misses it, the member is not failed. So a crash finds
//! the member, or the guest after that, at most one commit behind.
//!
//! A commit that nobody waits for any more is carried to its end by a task of its own: it is half written, and its flushes
//! are those that others of the same disks wait for.

pub(crate) use crate::catalog::SINCE_NEXT;
use crate::catalog::{Catalog, GroupRecord, GroupRole, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::SLOT_STARTS;
use crate::owner::{Loss, Sight};
use crate::slot;
use block::{BlockDevice, IoError, IoErrorKind, Lba, Stable, View};
use cluster::Claim;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use shard::{Pause, SingleFlight, Spawner, insist};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// What follows the commit that says that a pool is written.
pub(crate) type OnWritten = Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>;

/// A number that grows with every change of the catalog; see [`Store::committed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a change is durable only once it is committed"]
pub(crate) struct Change(u64);

/// A catalog as bytes.
#[derive(Clone)]
pub(crate) struct Body {
    bytes: Rc<[u8]>,
    /// True when its slot is written to the end, whatever its length.
    whole: bool,
}

impl Body {
    pub(crate) fn of(bytes: impl Into<Rc<[u8]>>) -> Self {
        Self { bytes: bytes.into(), whole: false }
    }
}

type OnFailed = Rc<dyn Fn(Uuid)>;
type OnFenced = Rc<dyn Fn(&Loss)>;
/// Whether the group can serve, with true for each member that holds all that it should.
type Tolerates = Rc<dyn Fn(&GroupRecord, &[bool]) -> bool>;

/// Why a disk did not take a commit.
enum Missed {
    Io(IoError),
    /// The pool is not ours any more.
    Fenced(Loss),
}

/// How one disk took a commit.
struct Took<D> {
    id: Uuid,
    disk: Rc<D>,
    result: Result<(), Missed>,
}

/// The catalog, and the disks that it lies on.
pub(crate) struct Store<D> {
    state: Rc<RefCell<State<D>>>,
    /// The commit under way. How it went stands in the state.
    commits: SingleFlight<Infallible>,
    spawner: Spawner,
}

/// Member in service and the guest that is to have its place.
#[derive(Clone, Copy)]
struct Exchange {
    old: Uuid,
    new: Uuid,
}

struct State<D> {
    catalog: Catalog,
    /// The newest generation that was written anywhere.
    generation: u64,
    changed: u64,
    committed: u64,
    lost: bool,
    /// True when the next commit writes its slots to the end.
    whole: bool,
    disks: Vec<(Uuid, Rc<D>)>,
    /// Disks that get every commit and are no members yet.
    guests: Vec<Uuid>,
    /// Exchange that the next commit to its guest decides.
    exchange: Option<Exchange>,
    on_failed: OnFailed,
    tolerates: Tolerates,
    /// How to wait before a disk is asked again.
    pause: Option<Pause>,
    /// Whose the pool is, as its members say when nobody else has it.
    guard: Option<Claim>,
    fenced: Option<Loss>,
    on_fenced: OnFenced,
    /// True until writes are announced that are the first since a member was given up.
    is_opening: bool,
    /// What follows the commit that says that the pool is written, before anybody hears of it.
    on_written: Option<OnWritten>,
}

impl<D: BlockDevice + 'static> Store<D> {
    /// The store of a pool whose members that take part hold `catalog` as `generation`.
    pub(crate) fn new(catalog: Catalog, generation: u64, disks: Vec<(Uuid, Rc<D>)>) -> Self {
        let state = State {
            catalog,
            generation,
            changed: 0,
            committed: 0,
            lost: false,
            whole: false,
            disks,
            guests: Vec::new(),
            exchange: None,
            on_failed: Rc::new(|_| {}),
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

    /// Who carries on with what nobody waits for any more, as soon as it is set.
    pub(crate) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// The pool is being opened by one who announces writes: nothing is written to it before [`Store::serve`].
    pub(crate) fn begin_opening(&self) {
        self.state.borrow_mut().is_opening = true;
    }

    /// The pool is open: who gives up a member does so to go on writing.
    pub(crate) fn serve(&self) {
        self.state.borrow_mut().is_opening = false;
    }

    /// `on_written` follows the first commit that says that the pool is written, before [`Store::committed`] returns.
    pub(crate) fn on_written(&self, on_written: OnWritten) {
        self.state.borrow_mut().on_written = Some(on_written);
    }

    async fn tell_written(&self) {
        let on_written = {
            let state = self.state.borrow();
            if state.catalog.must_announce() { None } else { state.on_written.clone() }
        };
        if let Some(on_written) = on_written {
            on_written().await;
            self.state.borrow_mut().on_written = None;
        }
    }

    /// To be called with each change that gives up a member.
    pub(crate) fn note_given_up(&self) {
        self.state.borrow_mut().note_given_up();
    }

    /// `on_failed` hears of every disk that a commit could not reach, before the commit goes on without it.
    pub(crate) fn on_failed(&self, on_failed: OnFailed) {
        self.state.borrow_mut().on_failed = on_failed;
    }

    /// No member is marked failed without which its group could not serve, as `tolerates` says.
    pub(crate) fn spare(&self, tolerates: Tolerates) {
        self.state.borrow_mut().tolerates = tolerates;
    }

    /// Disks that refuse for want of space are asked again from now on.
    pub(crate) fn insist_with(&self, pause: Pause) {
        self.state.borrow_mut().pause = Some(pause);
    }

    /// `on_fenced` hears, once, why the pool is not ours any more.
    pub(crate) fn on_fenced(&self, on_fenced: OnFenced) {
        self.state.borrow_mut().on_fenced = on_fenced;
    }

    /// Every commit from now on looks whether the pool is still this claim's.
    pub(crate) fn guard(&self, owner: Option<Claim>) {
        self.state.borrow_mut().guard = owner;
    }

    /// The claim that commits look after.
    pub(crate) fn guarded(&self) -> Option<Claim> {
        self.state.borrow().guard.clone()
    }

    /// Why the pool is not ours any more.
    pub(crate) fn fenced_by(&self) -> Option<Loss> {
        self.state.borrow().fenced.clone()
    }

    /// The pool is somebody else's: it takes no change any more.
    pub(crate) fn fence(&self, by: Loss) {
        self.close();
        fence(&self.state, by);
    }

    /// What `look` sees in the catalog as it is now, committed or not.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Catalog) -> R) -> R {
        look(&self.state.borrow().catalog)
    }

    /// The newest generation that was written.
    pub(crate) fn generation(&self) -> u64 {
        self.state.borrow().generation
    }

    /// The change that everything so far is part of.
    pub(crate) fn latest(&self) -> Change {
        Change(self.state.borrow().changed)
    }

    /// The catalog is as `change` makes it; not committed yet. An error changes nothing if `change` did not.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut Catalog) -> Result<R, PoolError>,
    ) -> Result<(R, Change), PoolError> {
        let mut state = self.state.borrow_mut();
        if state.lost {
            return Err(PoolError::CatalogLost);
        }
        // What it makes of the pool is written with it, and counts as a write.
        let before = state.catalog.must_announce().then(|| state.catalog.clone());
        let made = change(&mut state.catalog)?;
        if before.is_some_and(|before| !before.has_same_content(&state.catalog)) {
            state.catalog.written = Some(SINCE_NEXT);
        }
        state.changed += 1;
        Ok((made, Change(state.changed)))
    }

    /// The next commit writes its slots to the end: nothing older is left behind what they say.
    pub(crate) fn write_whole_slots(&self) {
        self.state.borrow_mut().whole = true;
    }

    /// `disk` takes part from the next commit on, if the catalog says so by then.
    pub(crate) fn attach(&self, id: Uuid, disk: Rc<D>) {
        let mut state = self.state.borrow_mut();
        state.disks.retain(|(known, _)| *known != id);
        state.disks.push((id, disk));
    }

    /// `disk` gets every commit from the next on, so that it is never more than one behind when the catalog names it.
    pub(crate) fn invite(&self, id: Uuid, disk: Rc<D>) {
        self.attach(id, disk);
        self.state.borrow_mut().guests.push(id);
    }

    /// True while the disk gets every commit though it is no member.
    pub(crate) fn is_guest(&self, id: Uuid) -> bool {
        self.state.borrow().guests.contains(&id)
    }

    /// The disk gets commits as a member, or none.
    pub(crate) fn end_visit(&self, id: Uuid) {
        self.state.borrow_mut().guests.retain(|guest| *guest != id);
    }

    /// Gives the guest `new` the place of the member `old` with the next commit but one, if it takes the next one and `old` is still
    /// in service then.
    ///
    /// *Shape*: the caller commits a change after this. The catalog says then which of the two has the place. Where it is `new`,
    /// that is durable with the latest change.
    pub(crate) fn exchange(&self, old: Uuid, new: Uuid) {
        let mut state = self.state.borrow_mut();
        assert!(state.guests.contains(&new), "a disk gets commits before it gets a place");
        let before = state.exchange.replace(Exchange { old, new });
        assert!(before.is_none(), "one member is exchanged at a time");
    }

    /// Nothing of the store holds `disk` any more, but a commit that is under way.
    pub(crate) fn detach(&self, id: Uuid) {
        self.end_visit(id);
        self.state.borrow_mut().disks.retain(|(known, _)| *known != id);
    }

    /// Takes no change any more; a commit that is under way is let go of.
    pub(crate) fn close(&self) {
        self.state.borrow_mut().lost = true;
        self.commits.abandon();
    }

    /// No commit is under way.
    pub(crate) async fn rest(&self) {
        self.commits.rest().await;
    }

    /// The disks that are attached, whether they take part or not.
    pub(crate) fn disks(&self) -> Vec<(Uuid, Rc<D>)> {
        self.state.borrow().disks.clone()
    }

    /// `change` and all before it survive power loss.
    ///
    /// *Errors*: `CatalogLost` when no disk took it, or a disk did not that its group cannot spare; nothing can be committed
    /// any more then.
    pub(crate) async fn committed(&self, change: Change) -> Result<(), PoolError> {
        assert!(change <= self.latest(), "only changes that were made are waited for");
        self.until_committed(change).await?;
        self.tell_written().await;
        Ok(())
    }

    async fn until_committed(&self, change: Change) -> Result<(), PoolError> {
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
            // It holds the store no longer than it looks at it: one that is dropped takes its commit along.
            let commit = || {
                let state = Rc::downgrade(&self.state);
                async move {
                    commit(state).await;
                    Ok(())
                }
                .boxed_local()
            };
            let Ok(()) = self.commits.joined(commit).await;
        }
    }
}

/// Writes the catalog as it is now, and once more where a disk missed it. A store that takes no change any more writes nothing.
async fn commit<D: BlockDevice + 'static>(state: Weak<RefCell<State<D>>>) {
    loop {
        let Some(begins) = state.upgrade() else { return };
        let (change, writes) = {
            let mut state = begins.borrow_mut();
            if state.lost {
                return;
            }
            (state.changed, state.start())
        };
        drop(begins);
        let outcome = join_all(writes).await;
        let Some(state) = state.upgrade().filter(|state| !state.borrow().lost) else { return };
        end(&state, change, outcome);
        if state.borrow().committed >= change {
            return;
        }
    }
}

/// Takes in how a commit went. When a disk missed it the next commit says so, and nobody is answered before.
fn end<D: BlockDevice + 'static>(store: &RefCell<State<D>>, change: u64, outcome: Vec<Took<D>>) {
    let fenced = outcome.iter().find_map(|took| match &took.result {
        Err(Missed::Fenced(by)) => Some(by.clone()),
        _ => None,
    });
    if let Some(by) = fenced {
        return fence(store, by);
    }
    let (failed, on_failed) = {
        let mut state = store.borrow_mut();
        let missed = || outcome.iter().filter(|took| took.result.is_err());
        // A pool without its members is lost, however many guests it has.
        let is_member = |took: &&Took<D>| !state.guests.contains(&took.id);
        state.lost = missed().filter(is_member).count() == outcome.iter().filter(is_member).count();
        let exchanged = if state.lost { None } else { state.exchange_after(&outcome) };
        // Where another device has the place by now, it was not asked.
        let is_own =
            |took: &&Took<D>| !state.disks.iter().any(|(id, disk)| *id == took.id && !Rc::ptr_eq(disk, &took.disk));
        let is_failed = |took: &&Took<D>| is_own(took) && exchanged != Some(took.id);
        let failed: Vec<Uuid> = missed().filter(is_failed).map(|took| took.id).collect();
        let is_everywhere = missed().filter(is_own).count() == 0;
        let is_spared = state.can_spare(&failed);
        state.lost |= !is_spared;
        let is_next = (state.committed..=state.changed).contains(&change);
        assert!(is_next, "commits end in the order of their changes");
        if is_everywhere {
            state.committed = change;
        }
        if !is_everywhere || exchanged.is_some() {
            state.changed += 1;
        }
        state.guests.retain(|guest| !failed.contains(guest));
        for disk in failed.iter().filter(|_| is_spared) {
            if let Some(member) = state.catalog.member_mut(*disk) {
                member.state = MemberState::Failed;
                member.since = SINCE_NEXT;
            }
            state.note_given_up();
        }
        (failed, state.on_failed.clone())
    };
    failed.into_iter().for_each(|disk| on_failed(disk));
}

/// The pool is somebody else's: it takes no change any more.
fn fence<D>(store: &RefCell<State<D>>, by: Loss) {
    let on_fenced = {
        let mut state = store.borrow_mut();
        state.lost = true;
        if state.fenced.replace(by.clone()).is_some() {
            return;
        }
        state.on_fenced.clone()
    };
    on_fenced(&by);
}

impl<D: BlockDevice + 'static> State<D> {
    /// True unless a group that volumes lie on can serve now, and could not without these members. What a log holds its cache
    /// holds, too.
    fn can_spare(&self, failed: &[Uuid]) -> bool {
        let loses = |group: &&GroupRecord| group.members.iter().any(|member| failed.contains(&member.disk));
        let serves_without = |group: &GroupRecord, lost: &[Uuid]| {
            let is_there =
                |member: &MemberRecord| member.state == MemberState::InService && !lost.contains(&member.disk);
            (self.tolerates)(group, &group.members.iter().map(is_there).collect::<Vec<_>>())
        };
        let groups = self.catalog.groups.iter().filter(|group| group.role == GroupRole::Data);
        groups.filter(loses).all(|group| serves_without(group, failed) || !serves_without(group, &[]))
    }

    /// Makes the exchange after a commit that went to its guest, or gives it up. Returns the member that has lost its place.
    fn exchange_after(&mut self, outcome: &[Took<D>]) -> Option<Uuid> {
        let Exchange { old, new } = self.exchange?;
        let took = outcome.iter().find(|took| took.id == new)?;
        self.exchange = None;
        let member = self.catalog.member_mut(old).filter(|member| member.state == MemberState::InService)?;
        if took.result.is_err() {
            return None;
        }
        *member = MemberRecord { disk: new, state: MemberState::InService, since: SINCE_NEXT };
        if self.catalog.must_announce() {
            self.catalog.written = Some(SINCE_NEXT);
        }
        self.guests.retain(|guest| *guest != new);
        Some(old)
    }

    /// A member was given up: writes follow that nobody announces, unless the pool is only being opened.
    fn note_given_up(&mut self) {
        if !self.is_opening {
            self.catalog.written = Some(SINCE_NEXT);
        }
    }

    /// The writes of the catalog as it is now, a generation on.
    fn start(&mut self) -> Vec<impl Future<Output = Took<D>> + use<D>> {
        self.generation += 1;
        let generation = self.generation;
        let members = self.catalog.groups.iter_mut().flat_map(|group| &mut group.members);
        members.filter(|member| member.since == SINCE_NEXT).for_each(|member| member.since = generation);
        if self.catalog.written == Some(SINCE_NEXT) {
            self.catalog.written = Some(generation);
        }
        assert!(self.catalog.check().is_ok(), "no commit writes a catalog that contradicts itself");
        let body = Body { bytes: self.catalog.emit().into(), whole: std::mem::take(&mut self.whole) };
        let catalog = &self.catalog;
        let is_member = |disk: Uuid| catalog.member(disk).is_some_and(|member| member.state.takes_part());
        let is_guest = |disk: Uuid| self.guests.contains(&disk);
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

/// Both slots of a disk, in the order in which a commit writes them.
pub(crate) const ALL_SLOTS: [usize; 2] = [0, 1];

/// What a commit writes to each disk.
pub(crate) struct NewSlot {
    pub(crate) pool: Uuid,
    pub(crate) generation: u64,
    pub(crate) body: Body,
}

/// Writes the slot to one disk, durably, if the pool is still `guard`'s there.
async fn commit_one<D: BlockDevice>(
    (id, disk): (Uuid, Rc<D>),
    slot: NewSlot,
    guard: Option<Claim>,
    pause: Option<Pause>,
) -> Took<D> {
    // A slot that has the commit is not written again: where another attempt ends half done, one of the two is whole.
    let left = Cell::new(&ALL_SLOTS[..]);
    let attempt = async || commit_to(id, &disk, &slot, guard.as_ref(), &left).await;
    let may_pass = |missed: &Missed| matches!(missed, Missed::Io(IoError { kind: IoErrorKind::NoSpace, .. }));
    let mut result = attempt().await;
    if let Some(pause) = pause {
        result = insist(&pause, result, may_pass, attempt).await;
    }
    Took { id, disk, result }
}

async fn commit_to<D: BlockDevice>(
    id: Uuid,
    disk: &Rc<D>,
    new: &NewSlot,
    guard: Option<&Claim>,
    left: &Cell<&[usize]>,
) -> Result<(), Missed> {
    if let Some(own) = guard {
        let sight = Sight::of(&**disk, new.pool, id, Some(own)).await;
        if let Some(loss) = sight.loss {
            return Err(Missed::Fenced(loss));
        }
        sight.marks.map_err(Missed::Io)?;
    }
    new.write(id, &**disk, left).await.map_err(Missed::Io)
}

impl NewSlot {
    /// The slots that are `left` of the disk `id` hold the commit, one after the other; those that do not yet stay in `left`.
    ///
    /// *Durability*: when it returns.
    pub(crate) async fn write<D: BlockDevice>(&self, id: Uuid, disk: &D, left: &Cell<&[usize]>) -> Result<(), IoError> {
        assert!((1..SINCE_NEXT).contains(&self.generation), "a commit has a generation");
        let data: View = slot::emit(self.pool, id, self.generation, &self.body.bytes, self.body.whole);
        while let [slot, behind @ ..] = left.get() {
            let written = disk.write(Lba(SLOT_STARTS[*slot]), data.clone()).await?;
            let _: Stable = disk.flush(written).await?;
            left.set(behind);
        }
        Ok(())
    }
}

impl<D> Store<D> {
    /// Gives up the exchange that no commit has decided yet.
    pub(crate) fn end_exchange(&self) {
        self.state.borrow_mut().exchange = None;
    }
}

impl<D> Clone for Store<D> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), commits: self.commits.clone(), spawner: self.spawner.clone() }
    }
}

#[cfg(test)]
mod tests;
