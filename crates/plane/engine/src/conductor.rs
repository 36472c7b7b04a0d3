//! Conductor: carries out the orders of the control plane. Runs on shard 0, keeps the home of every pool and volume,
//! and forwards orders to them.
//!
//! Orders that change something run one at a time, in order. Queries are answered concurrently, and pools are opened
//! concurrently. The conductor never touches a pool itself; only its home shard does.

mod copies;
mod disks;
mod openings;
mod pools;
mod queries;
mod read_only;
mod snapshots;
mod stopping;
mod volumes;

use crate::front::FrontEnd;
use crate::homes::{VolumeHome, VolumeHomes};
use crate::pool::ClaimRequest;
use crate::shard_context::ShardContext;
use copies::Copies;
use disks::KnownDisks;
use model::{Call, Name, NodeIdentity, Order, PoolId, Refusal, Report, Secret, code};
use openings::Openings;
use shard::World;
use shard::mailbox::{self, Receiver};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// State of the conductor: known disks, and the homes of pools and volumes.
pub struct Conductor<W: World> {
    shard: Rc<ShardContext<W>>,
    disks: KnownDisks,
    pools: RefCell<BTreeMap<Name, PoolHome>>,
    volumes: VolumeHomes,
    front: Rc<dyn FrontEnd>,
    copies: Copies,
    openings: Openings,
    next_home: Cell<usize>,
    former: RefCell<BTreeMap<PoolId, usize>>,
    started: shard::Time,
    stopped: Cell<bool>,
    /// I/O back end for reports: how disks and sockets are driven.
    io: String,
    /// Identity of this node, for the owner's marks on the disks of its pools.
    node: NodeIdentity,
    /// Secret of this node, from which the keys of its pools are derived.
    secret: Secret,
}

#[derive(Clone, Copy)]
struct PoolHome {
    id: PoolId,
    home: usize,
    /// True if the pool is open read-only.
    read_only: bool,
}

/// Serves the calls of `inbox` until a stop was carried out or every sender is gone.
pub async fn conduct<W: World>(
    shard: Rc<ShardContext<W>>,
    inbox: Receiver<Call>,
    facts: EngineFacts,
    (volumes, front): (VolumeHomes, Rc<dyn FrontEnd>),
) {
    // Before any disk is opened: sessions to remote disks use the name of the node.
    shard.remotes.logins().set_node(&facts.node);
    let conductor = Rc::new(Conductor::new(shard.clone(), facts, volumes, front));
    let (queue, changes) = mailbox::channel::<Call>();
    let worker = conductor.clone();
    // One task runs all changes, which makes them sequential; queries overtake them.
    shard.world.spawn(async move {
        while let Some(call) = changes.receive().await {
            worker.clone().take_turn(call).await;
        }
    });
    copies::continuing::start_periodic_search(&conductor);
    while let Some(call) = inbox.receive().await {
        if call.order.runs_concurrently() {
            let conductor = conductor.clone();
            shard.world.spawn(async move {
                let answer = conductor.answer(&call.order).await;
                call.answer(answer);
            });
        } else if matches!(call.order, Order::Stop) {
            // A stop does not queue behind a change that may wait for a disk.
            let answer = conductor.stop().await;
            call.answer(answer);
            return;
        } else if queue.send(call).is_err() {
            return;
        }
    }
    // Every sender is gone: the daemon ends without an order to stop.
    let _ = conductor.stop().await;
}

/// Facts about the environment, given by the program that starts the engine.
pub struct EngineFacts {
    /// I/O back end: `io_uring` or `threads`.
    pub io: String,
    /// Identity of this node.
    pub node: NodeIdentity,
    /// Secret of this node, the same after every restart; the keys of its pools are derived from it.
    pub secret: Secret,
}

impl<W: World> Conductor<W> {
    fn new(shard: Rc<ShardContext<W>>, facts: EngineFacts, volumes: VolumeHomes, front: Rc<dyn FrontEnd>) -> Self {
        let EngineFacts { io, node, secret } = facts;
        Self {
            started: shard.world.now(),
            shard,
            disks: KnownDisks::default(),
            pools: RefCell::default(),
            volumes,
            front,
            copies: Copies::default(),
            openings: Openings::default(),
            node,
            secret,
            next_home: Cell::new(0),
            former: RefCell::default(),
            stopped: Cell::new(false),
            io,
        }
    }

    /// Carries out the order of `call`, or starts to open its pool.
    async fn take_turn(self: Rc<Self>, call: Call) {
        // Opening a pool may take seconds, so only its admission runs in the queue.
        let Order::OpenPool { id, force, accept_log_loss, read_only, key, whole, keep, confirmed } = &call.order else {
            let answer = self.change(&call.order).await;
            return call.answer(answer);
        };
        let (key, keep, confirmed) = (key.clone(), keep.clone(), *confirmed);
        let taking =
            ClaimRequest { told: *force, accept_log_loss: *accept_log_loss, key, keep, confirmed, ..self.taking() };
        // A stop may have come in between.
        let begun =
            if self.stopped.get() { Err(engine_gone()) } else { self.begin_opening(*id, taking, *read_only, *whole) };
        match begun {
            Ok(opening) => self.shard.world.clone().spawn(async move {
                let opened = self.open_pool(opening).await;
                let is_open = opened.is_ok();
                // Answered first, because continuing the copies may take long.
                call.answer(opened.map(Report::Pool));
                // Copies that waited for this pool continue.
                if is_open {
                    copies::continuing::continue_copies(&self).await;
                }
            }),
            Err(refusal) => call.answer(Err(refusal)),
        }
    }

    async fn change(self: &Rc<Self>, order: &Order) -> Result<Report, Refusal> {
        if self.stopped.get() {
            return Err(engine_gone());
        }
        // Checked in one place for all orders that write to disks of a read-only pool.
        self.admit_change(order)?;
        match order {
            Order::OpenDisk { disk, path, remote } => {
                self.open_disk(disk, path, remote.as_deref()).await.map(Report::Disk)
            }
            Order::CloseDisk { disk } => self.close_disk(disk).await.map(|()| Report::Done),
            Order::EraseDisk { disk, pool } => self.erase_disk(disk, *pool).await.map(|()| Report::Done),
            Order::LocateDisk { disk, on } => self.locate_disk(disk, *on).map(|()| Report::Done),
            Order::BlinkDisk { disk, seconds } => self.blink_disk(disk, *seconds).await.map(|()| Report::Done),
            Order::CreatePool { pool, id, groups, force } => {
                self.create_pool(pool, *id, groups, *force).await.map(Report::Pool)
            }
            Order::AddGroup { pool, group, force } => self.add_group(pool, group, *force).await.map(Report::Pool),
            Order::AddMember { pool, group, disk, force } => {
                self.add_member(pool, *group, disk, *force).await.map(Report::Pool)
            }
            Order::GrowPool { pool, group, member_size } => {
                self.grow_pool(pool, *group, *member_size).await.map(Report::Pool)
            }
            Order::AddLog { pool, disks, force } => self.add_log(pool, disks, *force).await.map(Report::Pool),
            Order::RemoveLog { pool, lost } => self.remove_log(pool, *lost).await.map(Report::Pool),
            Order::PoolKey { pool } => self.pool_key(pool).await,
            Order::ClosePool { pool } => self.close_pool(pool).await.map(|()| Report::Done),
            Order::DestroyPool { pool } => self.destroy_pool(pool).await.map(|()| Report::Done),
            Order::FailDisk { disk } => self.fail_disk(disk).await.map(Report::Pool),
            Order::ReturnDisk { disk, member } => self.return_disk(disk, *member).await.map(Report::Pool),
            Order::ReplaceDisk { failed, member, replacement, force } => {
                self.replace_disk(failed, *member, replacement, *force).await.map(Report::Pool)
            }
            Order::CopyMember { disk, replacement, force } => {
                self.copy_member(disk, replacement, *force).await.map(Report::Pool)
            }
            Order::SetRepair { pool, policy } => self.set_repair(pool, policy).await.map(Report::Pool),
            Order::SetSpace { pool, policy } => self.set_space(pool, *policy).await.map(Report::Pool),
            Order::StartScrub { pool, repairs } => self.start_scrub(pool, *repairs).await.map(Report::Pool),
            Order::StopScrub { pool } => self.stop_scrub(pool).await.map(Report::Pool),
            Order::HoldScrub { pool, held } => self.hold_scrub(pool, *held).await.map(Report::Pool),
            Order::CreateVolume(spec) => self.create_volume(spec).await.map(Report::Volume),
            Order::ResizeVolume { volume, size } => self.resize_volume(volume, *size).await.map(Report::Volume),
            Order::SetVolumePolicy { volume, policy } => {
                self.set_volume_policy(volume, *policy).await.map(Report::Volume)
            }
            Order::CopyVolume { source, target, id } => self.copy_volume(source, target, *id).await.map(Report::Volume),
            Order::CancelCopy { target } => self.cancel_copy(target).await.map(|()| Report::Done),
            Order::DeleteVolume { volume } => self.delete_volume(volume).await.map(|()| Report::Done),
            Order::CreateSnapshots { snapshots, lock } => {
                self.create_snapshots(snapshots, *lock).await.map(Report::Snapshots)
            }
            Order::DeleteSnapshot { snapshot } => self.delete_snapshot(snapshot).await.map(|()| Report::Done),
            Order::LockSnapshot { snapshot, lock } => self.lock_snapshot(snapshot, *lock).await.map(Report::Snapshots),
            Order::CloneSnapshot { snapshot, volume, id, provision, zero_detection } => {
                let (snapshot, name) = (snapshot.clone(), volume.clone());
                let (id, provision, zero_detection) = (*id, *provision, *zero_detection);
                let new = crate::pool::NewClone { snapshot, name, id, provision, zero_detection };
                self.clone_snapshot(new).await.map(Report::Volume)
            }
            Order::RollBack { snapshot, in_use } => self.roll_back(snapshot, *in_use).await.map(Report::Volume),
            // Changes of front ends are forwarded in the same place as their queries, but in this queue.
            _ => self.answer(order).await,
        }
    }

    /// Publishes changes of volumes and their homes to the front ends. When this returns, all sessions use them.
    async fn publish_volumes(&self) {
        self.front.volumes_changed().await;
    }

    /// Chooses the home of the next pool or volume: round robin over all shards.
    fn choose_home(&self) -> usize {
        assert!(self.shard.index < self.shard.limits.shards, "a home is one of the shards");
        let home = self.next_home.get() % self.shard.limits.shards;
        // Open volumes are never moved, so an even spread at creation is all the balance there is.
        self.next_home.set(home + 1);
        home
    }
}

/// Refusal of an order that comes during or after a stop.
pub fn engine_gone() -> Refusal {
    Refusal::new(code::ENGINE_GONE, "the data plane is stopping", "restart the daemon")
}
