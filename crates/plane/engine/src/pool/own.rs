//! Whose a pool is: taking it, saying so every few seconds, and stopping when somebody else has it.

use super::open::Looked;
use super::refusals::{plain, refusal};
use super::{OpenPool, uuid};
use crate::array::Disk;
use crate::fence::Fence;
use crate::shard_context::ShardContext;
use cluster::{Claim, HEARTBEAT, LEASE, Node, WATCH};
use futures_util::future::select;
use model::{DiskName, Name, NodeIdentity, Refusal, Secret, Subject, code, event};
use shard::{World, mailbox};
use std::cell::{Cell, OnceCell, RefCell};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use volume::{FoundPool, Loss, Uuid};

/// How long disks are waited for that get a copy of the state: control tells no event of the array as long.
const COPY_PATIENCE: Duration = Duration::from_secs(2);

/// Who takes a pool.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    /// The node.
    pub node: NodeIdentity,
    /// True when the operator says that the node that had it last is down.
    pub told: bool,
    /// True when the operator accepts what a damaged redo log has lost.
    pub accept_log_loss: bool,
    /// The disk whose part of the pool is kept, where it is in parts.
    pub keep: Option<DiskName>,
    /// True when the operator has heard what may be lost by it.
    pub confirmed: bool,
    /// The number of the highest claim that disks bear which an operator has given up.
    pub above: u64,
    /// What the keys of this node's pools are made of.
    pub secret: Secret,
    /// The pool key of another node.
    pub key: Option<Secret>,
}

impl Taking {
    /// The node in the words of `cluster`.
    pub(super) fn node(&self) -> Node {
        let NodeIdentity { id, name, seat, machine } = &self.node;
        Node {
            id: Uuid::from_bytes(id.to_bytes()),
            name: name.to_string(),
            seat: Uuid::from_bytes(*seat),
            machine: machine.map(|machine| Uuid::from_bytes(machine.to_bytes())),
        }
    }
}

/// What guards the disks of an open pool.
#[derive(Default)]
pub(super) struct Guard {
    fence: OnceCell<Rc<Fence>>,
    /// True when nobody needs to be told any more.
    ended: Cell<bool>,
}

impl Guard {
    /// The disk that joins the pool is behind its fence.
    pub(super) fn cover<W: World>(&self, disk: &Disk<W>) {
        if let Some(fence) = self.fence.get() {
            disk.device().guard(fence);
        }
    }

    /// Nobody is told any more whose the pool is.
    pub(super) fn end(&self) {
        self.ended.set(true);
    }
}

/// A pool that is ours and not open yet: its members are told so until it is.
pub(super) struct Beating<W: World> {
    shard: Rc<ShardContext<W>>,
    found: FoundPool,
    disks: Vec<Disk<W>>,
    own: RefCell<Claim>,
    ended: Cell<bool>,
}

/// The pool `found` is ours, as it was found last; `again` looks at its disks once more.
///
/// *Errors*: `POOL_OWNED` and `POOL_NOT_RELEASED`, with nothing written.
pub(super) async fn take<W: World>(
    shard: &Rc<ShardContext<W>>,
    taking: &Taking,
    found: FoundPool,
    looked: &[Looked<W>],
    again: impl AsyncFn() -> Result<FoundPool, Refusal>,
) -> Result<(FoundPool, Taken<W>), Refusal> {
    let node = taking.node();
    let mut found = watch(shard, taking, found, &again).await?;
    found.claim_above(taking.above);
    let before = found.owner().cloned();
    let disk = |place: usize| looked[place].disk.clone();
    let own = found.claim(disk, &node, shard.world.unix_seconds()).await.map_err(|error| plain(&error))?;
    let of_another = before.filter(|before| before.node != node.id);
    if of_another.is_some() {
        // Whoever wanted it at the same time has said so by then.
        shard.world.sleep(HEARTBEAT).await;
        let now = again().await?;
        if now.owner() != Some(&own) {
            let node = now.owner().map_or_else(String::new, |owner| owner.name.clone());
            return Err(plain(&volume::PoolError::Contested { node }));
        }
    }
    let disks = looked.iter().map(|looked| looked.disk.clone()).collect();
    let (own, ended) = (RefCell::new(own), Cell::new(false));
    let beating = Rc::new(Beating { shard: shard.clone(), found: found.clone(), disks, own, ended });
    shard.world.spawn(beat_until_open(Rc::downgrade(&beating), shard.clone()));
    Ok((found, Taken { beating, from: of_another.filter(|before| !before.released).map(|before| before.name) }))
}

/// The members of all pools at home here keep the copy of the state; one that does not answer soon is not waited for, and gets the
/// next copy.
pub(crate) async fn keep_state<W: World>(shard: &Rc<ShardContext<W>>, version: u64, bytes: &Arc<[u8]>) {
    let (writing, written) = mailbox::channel::<()>();
    for pool in shard.pools.borrow().values() {
        let (pool, bytes, writing) = (pool.clone(), bytes.clone(), writing.clone());
        shard.world.spawn(async move {
            pool.pool.ownership().keep_state_copy(version, &bytes).await;
            drop(writing);
        });
    }
    drop(writing);
    select(pin!(written.receive()), pin!(shard.world.sleep(COPY_PATIENCE))).await;
}

/// The pool as it is now, which nobody else has.
///
/// *Errors*: `POOL_OWNED` and `POOL_NOT_RELEASED`, with nothing written.
pub(super) async fn watch<W: World>(
    shard: &Rc<ShardContext<W>>,
    taking: &Taking,
    mut found: FoundPool,
    again: impl AsyncFn() -> Result<FoundPool, Refusal>,
) -> Result<FoundPool, Refusal> {
    let node = taking.node();
    let mut earlier = None;
    if found.must_be_watched(&node) {
        tracing::info!(pool = found.catalog.name, "somebody may have the pool; watching whether its marks move");
        shard.world.sleep(WATCH).await;
        let now = again().await?;
        earlier = Some(std::mem::replace(&mut found, now));
    }
    found.admit_owner(earlier.as_ref(), &node, taking.told).map_err(|refused| plain(&refused.into()))?;
    Ok(found)
}

/// Why a pool is not opened whose disks are too few, absent or old: where another node had it last and has not exported it, that is
/// the reason.
pub(super) fn of_another(found: Option<&FoundPool>, taking: &Taking, refusal: Refusal) -> Refusal {
    let is_for_lack = matches!(refusal.code, code::POOL_INCOMPLETE | code::POOL_WAITING | code::POOL_OUTDATED);
    let owner = found.and_then(FoundPool::owner).filter(|owner| owner.node != taking.node().id && !owner.released);
    let (Some(owner), true) = (owner, is_for_lack) else { return refusal };
    let message =
        format!("{}; node {} had these disks last and has not exported the pool", refusal.message, owner.name);
    Refusal::new(
        code::POOL_NOT_RELEASED,
        message,
        format!("export it on node {}, or shut that node down first", owner.name),
    )
}

/// A pool that was taken.
pub(super) struct Taken<W: World> {
    beating: Rc<Beating<W>>,
    /// Whom it was taken from, when that node did not let go of it.
    from: Option<String>,
}

impl<W: World> Drop for Taken<W> {
    fn drop(&mut self) {
        if self.beating.ended.replace(true) {
            return;
        }
        // It could not be opened: whoever comes next need not watch.
        let beating = self.beating.clone();
        self.beating.shard.world.spawn(async move {
            let own = beating.own.borrow().clone();
            let mark = Claim { beat: own.beat + 1, released: true, ..own };
            beating.found.renew(|place| beating.disks[place].clone(), &mark).await;
        });
    }
}

async fn beat_until_open<W: World>(beating: Weak<Beating<W>>, shard: Rc<ShardContext<W>>) {
    loop {
        shard.world.sleep(HEARTBEAT).await;
        let Some(beating) = beating.upgrade().filter(|beating| !beating.ended.get()) else { return };
        beating.own.borrow_mut().beat += 1;
        let mark = beating.own.borrow().clone();
        beating.found.renew(|place| beating.disks[place].clone(), &mark).await;
    }
}

impl<W: World> OpenPool<W> {
    /// The pool that was taken and is open now stays ours until it is closed or somebody takes it over.
    pub(super) async fn hold(self: &Rc<Self>, taken: Taken<W>) -> Result<(), Refusal> {
        let own = taken.beating.own.borrow().clone();
        self.pool.ownership().hold(own).await.map_err(|error| refusal(&error, self))?;
        assert!(!taken.beating.ended.replace(true), "a pool that was taken is held once");
        if let Some(from) = &taken.from {
            let sentence = format!("pool {} was taken over from node {from}, which had not let go of it", self.name);
            self.shard.raise(event::POOL_TAKEN_OVER, Subject::pool(&self.name), sentence);
        }
        self.stand_guard();
        Ok(())
    }

    /// The pool that was just made is ours, as [`OpenPool::hold`] has it.
    pub(super) async fn claim(self: &Rc<Self>, taking: &Taking) -> Result<(), Refusal> {
        let claimed = self.pool.ownership().claim(&taking.node(), self.shard.world.unix_seconds()).await;
        claimed.map_err(|error| refusal(&error, self))?;
        self.stand_guard();
        Ok(())
    }

    /// An owner of another pool on the disks of this one, which only seemed to be silent, has not come back.
    ///
    /// *Errors*: `POOL_FENCED` when it has: both have stopped then.
    pub(super) async fn outlast_owner(&self) -> Result<(), Refusal> {
        // The first beat of the new pool is in between, and whoever had the disks before had one as well.
        self.shard.world.sleep(HEARTBEAT + HEARTBEAT / 2).await;
        self.admit_own("stop the node that uses its disks, and create the pool again")
    }

    /// Nobody has the pool any more.
    pub(super) async fn let_go(&self) {
        self.guarding.ended.set(true);
        // A disk that does not answer any more holds nobody up; the next owner then watches.
        select(pin!(self.pool.ownership().release()), pin!(self.shard.world.sleep(LEASE))).await;
    }

    /// True when another node has the pool.
    pub(super) fn is_fenced(&self) -> bool {
        self.pool.ownership().fenced_by().is_some() || self.overtaken.get().is_some()
    }

    /// Why the pool is not ours any more, in words.
    pub(super) fn loss(&self) -> Option<String> {
        self.pool.ownership().fenced_by().map(|loss| self.told_of(&loss)).or_else(|| self.overtaken.get().cloned())
    }

    fn told_of(&self, loss: &Loss) -> String {
        let slots = self.slots();
        let disk = loss.disk().and_then(|id| slots.into_iter().find(|slot| uuid(slot.id) == id));
        disk.map_or_else(|| loss.to_string(), |slot| format!("{loss} (disk {})", slot.called()))
    }

    /// Admits changes of the pool, which is ours; `hint` says what to do with one that is not.
    pub(super) fn admit_own(&self, hint: &str) -> Result<(), Refusal> {
        let Some(loss) = self.loss() else { return Ok(()) };
        Err(Refusal::new(code::POOL_FENCED, format!("pool {} is not this node's any more: {loss}", self.name), hint))
    }

    fn stand_guard(self: &Rc<Self>) {
        let world = self.shard.world.clone();
        let fence = Fence::new(move || world.now());
        if self.guarding.fence.set(fence.clone()).is_err() {
            return;
        }
        for slot in self.slots() {
            slot.disk.iter().for_each(|disk| self.guarding.cover(disk));
        }
        let (name, shard, closing) = (self.name.clone(), self.shard.clone(), fence.clone());
        let pool = Rc::downgrade(self);
        self.pool.ownership().on_fenced(move |loss| {
            closing.close();
            let told = pool.upgrade().map_or_else(|| loss.to_string(), |pool| pool.told_of(loss));
            stop_serving(&shard, &name, &told);
        });
        self.shard.world.spawn(beat(Rc::downgrade(self), self.shard.clone(), fence));
    }
}

/// Hosts see the volumes of the pool no more, and operators hear why.
fn stop_serving<W: World>(shard: &ShardContext<W>, pool: &Name, why: &str) {
    tracing::error!(%pool, why, "the pool is not ours any more; nothing is written to it");
    shard.withdraw_where(|unit| unit.name.pool() == Some(pool));
    let sentence = format!("pool {pool}: {why}; this node has stopped using the pool, and its volumes do not serve");
    shard.raise(event::POOL_FENCED, Subject::pool(pool), sentence);
}

/// Says every few seconds that the pool is ours, whatever a slow disk does meanwhile.
async fn beat<W: World>(pool: Weak<OpenPool<W>>, shard: Rc<ShardContext<W>>, fence: Rc<Fence>) {
    loop {
        shard.world.sleep(HEARTBEAT).await;
        fence.tick();
        let Some(pool) = pool.upgrade().filter(|pool| !pool.guarding.ended.get() && !pool.is_fenced()) else { return };
        let (began, fence) = (shard.world.now(), fence.clone());
        shard.world.spawn(async move {
            // Who hears that it is somebody else's has been told by then.
            if let Err(error) = pool.pool.ownership().beat(|| fence.hold(began)).await {
                tracing::debug!(pool = %pool.name, %error, "no beat");
            }
            for disk in pool.pool.ownership().take_mended_marks() {
                pool.tell_of_repair(disk, "its owner's mark");
            }
        });
    }
}
