//! Ownership of a pool: claiming it, renewing the claim by heartbeats, and stopping when another node has it.
//!
//! The rules are in `cluster`, the format of the marks in `volume::owner` (`docs/adr/0021-one-table-of-ownership.md`).
//! Nothing may be written to a pool before it is claimed, and nothing after its fence is closed.

use super::open::ProbedDisk;
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
use volume::{AssembledPool, FenceReason, Uuid};

/// Longest wait for disks to store a copy of the state. The control plane receives no events of the engine during that
/// time.
const COPY_PATIENCE: Duration = Duration::from_secs(2);

/// Claimant of a pool, with the operator's decisions about the claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRequest {
    /// Node that claims the pool.
    pub node: NodeIdentity,
    /// True if the operator states that the last owner is down (forced import).
    pub told: bool,
    /// True if the operator accepts the loss of damaged batches of the redo log.
    pub accept_log_loss: bool,
    /// Disk whose part of a split pool is kept.
    pub keep: Option<DiskName>,
    /// True if the operator has confirmed that data may be lost.
    pub confirmed: bool,
    /// Highest claim number on disks that the operator has given up; the new claim must exceed it.
    pub above: u64,
    /// Secret of this node, from which the keys of its pools are derived.
    pub secret: Secret,
    /// Pool key of another node, given by the operator.
    pub key: Option<Secret>,
}

impl ClaimRequest {
    /// Translates the node into the terms of `cluster`.
    pub(super) fn node(&self) -> Node {
        let NodeIdentity { id, name, boot_instance: seat, machine } = &self.node;
        Node {
            id: Uuid::from_bytes(id.to_bytes()),
            name: name.to_string(),
            boot_instance: Uuid::from_bytes(*seat),
            machine: machine.map(|machine| Uuid::from_bytes(machine.to_bytes())),
        }
    }
}

/// Heartbeat and fence of an open pool.
#[derive(Default)]
pub(super) struct OwnershipGuard {
    fence: OnceCell<Rc<Fence>>,
    /// True once no more heartbeats are to be written.
    ended: Cell<bool>,
}

impl OwnershipGuard {
    /// Puts a disk that joins the pool behind its fence.
    pub(super) fn cover<W: World>(&self, disk: &Disk<W>) {
        if let Some(fence) = self.fence.get() {
            disk.device().guard(fence);
        }
    }

    /// Ends the heartbeats.
    pub(super) fn end(&self) {
        self.ended.set(true);
    }
}

/// A claimed pool that is not open yet, with the heartbeats that keep the claim until it is.
pub(super) struct ClaimHeartbeat<W: World> {
    shard: Rc<ShardContext<W>>,
    found: AssembledPool,
    disks: Vec<Disk<W>>,
    own: RefCell<Claim>,
    ended: Cell<bool>,
}

/// Claims the pool `found`. `again` probes its disks once more.
///
/// *Errors*: `POOL_OWNED` and `POOL_NOT_RELEASED`, with nothing written.
pub(super) async fn take<W: World>(
    shard: &Rc<ShardContext<W>>,
    taking: &ClaimRequest,
    found: AssembledPool,
    looked: &[ProbedDisk<W>],
    again: impl AsyncFn() -> Result<AssembledPool, Refusal>,
) -> Result<(AssembledPool, ClaimedPool<W>), Refusal> {
    let node = taking.node();
    let mut found = watch(shard, taking, found, &again).await?;
    found.set_highest_known_epoch(taking.above);
    let before = found.owner().cloned();
    let disk = |place: usize| looked[place].disk.clone();
    let own = found.claim(disk, &node, shard.world.unix_seconds()).await.map_err(|error| plain(&error))?;
    let of_another = before.filter(|before| before.node != node.id);
    if of_another.is_some() {
        // Another claimant has written its mark by then; the higher claim on the disks decides.
        shard.world.sleep(HEARTBEAT).await;
        let now = again().await?;
        // Read back: our claim must be the one that stands, or the other node has won.
        if now.owner() != Some(&own) {
            let node = now.owner().map_or_else(String::new, |owner| owner.name.clone());
            return Err(plain(&volume::PoolError::Contested { node }));
        }
    }
    let disks = looked.iter().map(|looked| looked.disk.clone()).collect();
    let (own, ended) = (RefCell::new(own), Cell::new(false));
    // Assembling the pool may take longer than a lease, so the heartbeats start now.
    let beating = Rc::new(ClaimHeartbeat { shard: shard.clone(), found: found.clone(), disks, own, ended });
    shard.world.spawn(beat_until_open(Rc::downgrade(&beating), shard.clone()));
    Ok((found, ClaimedPool { beating, from: of_another.filter(|before| !before.released).map(|before| before.name) }))
}

/// Stores a copy of the state on the members of all pools at home here. A disk that does not answer soon is not waited
/// for; it gets the next copy.
pub(crate) async fn keep_state<W: World>(shard: &Rc<ShardContext<W>>, version: u64, bytes: &Arc<[u8]>) {
    let (writing, written) = mailbox::channel::<()>();
    for pool in shard.pools.borrow().values() {
        let (pool, bytes, writing) = (pool.clone(), bytes.clone(), writing.clone());
        shard.world.spawn(async move {
            pool.pool.ownership().store_state_copy(version, &bytes).await;
            drop(writing);
        });
    }
    // The channel closes when the last write has dropped its sender.
    drop(writing);
    select(pin!(written.receive()), pin!(shard.world.sleep(COPY_PATIENCE))).await;
}

/// Watches the marks of a pool that may have another owner, and admits it if they stand still. Returns the pool as
/// found last.
///
/// *Errors*: `POOL_OWNED` and `POOL_NOT_RELEASED`, with nothing written.
pub(super) async fn watch<W: World>(
    shard: &Rc<ShardContext<W>>,
    taking: &ClaimRequest,
    mut found: AssembledPool,
    again: impl AsyncFn() -> Result<AssembledPool, Refusal>,
) -> Result<AssembledPool, Refusal> {
    let node = taking.node();
    let mut earlier = None;
    if found.must_be_watched(&node) {
        tracing::info!(pool = found.catalog.name, "another node may use the pool; watching its heartbeat");
        shard.world.sleep(WATCH).await;
        let now = again().await?;
        // Both observations are compared: a mark that has moved belongs to a living owner.
        earlier = Some(std::mem::replace(&mut found, now));
    }
    found.admit_owner(earlier.as_ref(), &node, taking.told).map_err(|refused| plain(&refused.into()))?;
    Ok(found)
}

/// Replaces the refusal of a pool with too few, absent or old disks if another node was its last owner and has not
/// exported it: that is the reason then.
pub(super) fn of_another(found: Option<&AssembledPool>, taking: &ClaimRequest, refusal: Refusal) -> Refusal {
    let is_for_lack = matches!(refusal.code, code::POOL_INCOMPLETE | code::POOL_WAITING | code::POOL_OUTDATED);
    let owner = found.and_then(AssembledPool::owner).filter(|owner| owner.node != taking.node().id && !owner.released);
    let (Some(owner), true) = (owner, is_for_lack) else { return refusal };
    let message = format!("{}; node {} used these disks last and did not export the pool", refusal.message, owner.name);
    Refusal::new(
        code::POOL_NOT_RELEASED,
        message,
        format!("export it on node {}, or shut down that node first", owner.name),
    )
}

/// A claimed pool.
pub(super) struct ClaimedPool<W: World> {
    beating: Rc<ClaimHeartbeat<W>>,
    /// Name of the previous owner that did not export the pool.
    from: Option<String>,
}

impl<W: World> Drop for ClaimedPool<W> {
    fn drop(&mut self) {
        if self.beating.ended.replace(true) {
            return;
        }
        // The pool could not be opened: a released mark saves the next node from watching.
        let beating = self.beating.clone();
        self.beating.shard.world.spawn(async move {
            let own = beating.own.borrow().clone();
            // One beat further than the last mark, so that the release replaces it on every disk.
            let mark = Claim { beat: own.beat + 1, released: true, ..own };
            beating.found.renew(|place| beating.disks[place].clone(), &mark).await;
        });
    }
}

async fn beat_until_open<W: World>(beating: Weak<ClaimHeartbeat<W>>, shard: Rc<ShardContext<W>>) {
    loop {
        shard.world.sleep(HEARTBEAT).await;
        let Some(beating) = beating.upgrade().filter(|beating| !beating.ended.get()) else { return };
        beating.own.borrow_mut().beat += 1;
        let mark = beating.own.borrow().clone();
        beating.found.renew(|place| beating.disks[place].clone(), &mark).await;
    }
}

impl<W: World> OpenPool<W> {
    /// Keeps the claim of the pool, which is open now, until it is closed or another node takes it over.
    pub(super) async fn keep_claim(self: &Rc<Self>, taken: ClaimedPool<W>) -> Result<(), Refusal> {
        let own = taken.beating.own.borrow().clone();
        self.pool.ownership().hold(own).await.map_err(|error| refusal(&error, self))?;
        // Ended only now: the temporary heartbeats have kept the claim until the catalog has it.
        assert!(!taken.beating.ended.replace(true), "a pool that was taken is held once");
        if let Some(from) = &taken.from {
            let sentence = format!("pool {} forcibly imported; node {from} did not export it", self.name);
            self.shard.raise(event::POOL_TAKEN_OVER, Subject::pool(&self.name), sentence);
        }
        self.start_heartbeat();
        Ok(())
    }

    /// Claims the pool, which was just created, as [`OpenPool::keep_claim`] does for an opened one.
    pub(super) async fn claim(self: &Rc<Self>, taking: &ClaimRequest) -> Result<(), Refusal> {
        let claimed = self.pool.ownership().claim(&taking.node(), self.shard.world.unix_seconds()).await;
        claimed.map_err(|error| refusal(&error, self))?;
        self.start_heartbeat();
        Ok(())
    }

    /// Waits for a former owner of the disks that only seemed to be silent.
    ///
    /// *Errors*: `POOL_FENCED` if it has returned; both have stopped then.
    pub(super) async fn outlast_owner(&self) -> Result<(), Refusal> {
        // Both the new pool and a living former owner have written a heartbeat within this time.
        self.shard.world.sleep(HEARTBEAT + HEARTBEAT / 2).await;
        self.admit_own("stop the node that uses these disks, then create the pool again")
    }

    /// Releases the pool: its marks say that it has no owner.
    pub(super) async fn let_go(&self) {
        // First: a heartbeat that starts after the release would look like a living owner.
        self.ownership_guard.ended.set(true);
        // A disk that does not answer must not delay the close; the next owner will have to watch the marks.
        select(pin!(self.pool.ownership().release()), pin!(self.shard.world.sleep(LEASE))).await;
    }

    /// True if another node has the pool.
    pub(super) fn is_fenced(&self) -> bool {
        self.pool.ownership().fenced_by().is_some() || self.overtaken.get().is_some()
    }

    /// Reason why the pool is not ours any more; `None` while it is.
    pub(super) fn loss(&self) -> Option<String> {
        self.pool.ownership().fenced_by().map(|loss| self.told_of(&loss)).or_else(|| self.overtaken.get().cloned())
    }

    fn told_of(&self, loss: &FenceReason) -> String {
        let slots = self.slots();
        let disk = loss.disk().and_then(|id| slots.into_iter().find(|slot| uuid(slot.id) == id));
        disk.map_or_else(|| loss.to_string(), |slot| format!("{loss} (disk {})", slot.called()))
    }

    /// Admits changes of the pool while it is ours; `hint` says what to do otherwise.
    pub(super) fn admit_own(&self, hint: &str) -> Result<(), Refusal> {
        let Some(loss) = self.loss() else { return Ok(()) };
        Err(Refusal::new(
            code::POOL_FENCED,
            format!("pool {} is no longer owned by this node: {loss}", self.name),
            hint,
        ))
    }

    fn start_heartbeat(self: &Rc<Self>) {
        let world = self.shard.world.clone();
        let fence = Fence::new(move || world.now());
        // Set once: `claim` and `hold` do not both install a fence.
        if self.ownership_guard.fence.set(fence.clone()).is_err() {
            return;
        }
        for slot in self.slots() {
            slot.disk.iter().for_each(|disk| self.ownership_guard.cover(disk));
        }
        let (name, shard, closing) = (self.name.clone(), self.shard.clone(), fence.clone());
        let pool = Rc::downgrade(self);
        self.pool.ownership().on_fenced(move |loss| {
            // The fence is closed before the units are withdrawn: no write may pass in between.
            closing.close();
            let told = pool.upgrade().map_or_else(|| loss.to_string(), |pool| pool.told_of(loss));
            stop_serving(&shard, &name, &told);
        });
        self.shard.world.spawn(beat(Rc::downgrade(self), self.shard.clone(), fence));
    }
}

/// Withdraws the volumes of the pool from hosts and raises an event with the reason.
fn stop_serving<W: World>(shard: &ShardContext<W>, pool: &Name, why: &str) {
    tracing::error!(%pool, why, "the pool is owned by another node; no more writes");
    shard.withdraw_where(|unit| unit.name.pool() == Some(pool));
    let sentence = format!("pool {pool}: {why}; this node has stopped using the pool, and its volumes are offline");
    shard.raise(event::POOL_FENCED, Subject::pool(pool), sentence);
}

/// Writes heartbeats at fixed intervals, however long a slow disk takes for one of them.
async fn beat<W: World>(pool: Weak<OpenPool<W>>, shard: Rc<ShardContext<W>>, fence: Rc<Fence>) {
    loop {
        shard.world.sleep(HEARTBEAT).await;
        // Writes that wait for the lease are checked even if no heartbeat gets through.
        fence.tick();
        let Some(pool) = pool.upgrade().filter(|pool| !pool.ownership_guard.ended.get() && !pool.is_fenced()) else {
            return;
        };
        let (began, fence) = (shard.world.now(), fence.clone());
        // A task for each heartbeat: a disk that hangs must not delay the next one.
        shard.world.spawn(async move {
            // If another node has the pool, `on_fenced` was called already.
            if let Err(error) = pool.pool.ownership().beat(|| fence.renew(began)).await {
                tracing::debug!(pool = %pool.name, %error, "no beat");
            }
            for disk in pool.pool.ownership().take_repaired_marks() {
                pool.tell_of_repair(disk, "its owner's mark");
            }
        });
    }
}
