//! The conductor: answers control's orders, knows which shard is whose home, and forwards.
//!
//! Orders that change something run one at a time, in order; questions are answered beside them, and pools are opened beside them.

mod copies;
mod disks;
mod links;
mod openings;
mod pools;
mod portals;
mod questions;
mod read_only;
mod sessions;
mod snapshots;
mod stopping;
mod tasks;
mod traces;
mod volumes;

use crate::access::AccessView;
use crate::links::Links;
use crate::pool::Taking;
use crate::portal::OpenPortal;
use crate::registry::Notice;
use crate::seat::Seat;
use copies::Copies;
use disks::KnownDisk;
use model::{
    Access, Call, DiskName, LocalAddress, Name, NodeIdentity, Order, PoolId, Refusal, Report, Secret, VolumeId,
    VolumeName, code,
};
use openings::Openings;
use shard::mailbox::{self, Receiver, Sender};
use shard::{RangeLocks, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// What the conductor knows: where everything has its home.
pub struct Conductor<W: World> {
    seat: Rc<Seat<W>>,
    disks: RefCell<BTreeMap<DiskName, KnownDisk>>,
    pools: RefCell<BTreeMap<Name, PoolHome>>,
    volumes: RefCell<BTreeMap<VolumeName, VolumeHome>>,
    copies: Copies,
    openings: Openings,
    portals: RefCell<BTreeMap<SocketAddr, OpenPortal>>,
    access: RefCell<Access>,
    /// One view is published at a time, so that nobody gets an older one last.
    publishing: RangeLocks,
    links: RefCell<Links>,
    next_home: Cell<usize>,
    next_connection: Rc<Cell<usize>>,
    /// Counts tables of access, so that sessions are shared out by the newest alone.
    sharing: Cell<u64>,
    started: shard::Time,
    stopped: Cell<bool>,
    /// Names how disks and sockets are driven, for reports.
    io: String,
    /// Who this node is, for the marks on the disks of its pools.
    node: NodeIdentity,
    /// What the keys of its pools are made of.
    secret: Secret,
}

#[derive(Clone, Copy)]
struct PoolHome {
    id: PoolId,
    home: usize,
    /// True when nothing is written to its disks.
    read_only: bool,
}

#[derive(Clone, Copy)]
struct VolumeHome {
    id: VolumeId,
    home: usize,
    /// False while it does not serve: hosts do not see it then.
    serves: bool,
}

/// Answers the calls of `inbox` until an order to stop is done, or every sender is gone.
pub async fn conduct<W: World>(seat: Rc<Seat<W>>, inbox: Receiver<Call>, facts: Facts) {
    let Facts { io, node, secret, addresses, address_changes } = facts;
    seat.remotes.logins().set_node(&node);
    let conductor = Rc::new(Conductor::new(seat.clone(), io, (node, secret), Links(addresses)));
    seat.world.spawn(conductor.clone().watch_links(address_changes));
    let (queue, changes) = mailbox::channel::<Call>();
    let worker = conductor.clone();
    seat.world.spawn(async move {
        while let Some(call) = changes.receive().await {
            worker.clone().take_turn(call).await;
        }
    });
    while let Some(call) = inbox.receive().await {
        if is_question(&call.order) {
            let conductor = conductor.clone();
            seat.world.spawn(async move {
                let answer = conductor.answer(&call.order).await;
                call.answer(answer);
            });
        } else if matches!(call.order, Order::Stop) {
            let answer = conductor.stop().await;
            call.answer(answer);
            return;
        } else if queue.send(call).is_err() {
            return;
        }
    }
    let _ = conductor.stop().await;
}

/// What the program that starts the data plane tells about its surroundings.
pub struct Facts {
    /// How disks and sockets are driven: `io_uring` or `threads`.
    pub io: String,
    /// Who this node is.
    pub node: NodeIdentity,
    /// What only this node knows, and knows again after every restart: the keys of its pools are made of it.
    pub secret: Secret,
    /// The addresses of this machine now; none where nobody knows.
    pub addresses: Vec<LocalAddress>,
    /// All of them again, whenever something about them has changed.
    pub address_changes: Receiver<Vec<LocalAddress>>,
}

fn is_question(order: &Order) -> bool {
    use Order::{
        Activity, CheckPool, Disks, DumpPool, EndConnection, EndSession, HeldVolumes, InspectDisk, Latencies,
        NextEvents, NextRecorded, Pools, Portals, Record, RefusedLogins, Session, Sessions, SetReadCache, Snapshots,
        StartTrace, Status, StopRecording, StopTrace, TakeTrace, Tasks, Trace, Volume, VolumeNames, Volumes,
    };
    // A session may take its time to end; nothing else waits for that.
    let of_sessions = matches!(order, Session { .. } | EndSession { .. } | EndConnection { .. } | Latencies { .. });
    // Nor does anything wait for the target of a remote disk.
    let looks = matches!(order, CheckPool { .. } | DumpPool { .. } | InspectDisk { remote: Some(_), .. });
    let of_volumes = matches!(order, Volume { .. } | Volumes | VolumeNames | HeldVolumes | Snapshots);
    let lists = of_volumes || matches!(order, Disks | Pools | Sessions | Portals | RefusedLogins);
    let records = matches!(order, Record { .. } | NextRecorded { .. } | StopRecording { .. });
    // A trace changes nothing of its volume.
    let traces = matches!(order, Trace { .. } | StartTrace { .. } | TakeTrace { .. } | StopTrace { .. });
    // Memory that is short does not wait for a change that takes long.
    let memory = matches!(order, SetReadCache { .. });
    let now = memory || matches!(order, Status | Activity | Tasks | NextEvents);
    looks || lists || of_sessions || records || traces || now
}

impl<W: World> Conductor<W> {
    fn new(seat: Rc<Seat<W>>, io: String, (node, secret): (NodeIdentity, Secret), links: Links) -> Self {
        Self {
            started: seat.world.now(),
            seat,
            disks: RefCell::default(),
            pools: RefCell::default(),
            volumes: RefCell::default(),
            copies: Copies::default(),
            openings: Openings::default(),
            publishing: RangeLocks::new(),
            portals: RefCell::default(),
            access: RefCell::default(),
            links: RefCell::new(links),
            node,
            secret,
            next_home: Cell::new(0),
            next_connection: Rc::default(),
            sharing: Cell::default(),
            stopped: Cell::new(false),
            io,
        }
    }

    /// The order of `call` is done, or it is for a pool that is being opened from now on.
    async fn take_turn(self: Rc<Self>, call: Call) {
        let Order::OpenPool { id, force, accept_log_loss, read_only, key } = &call.order else {
            let answer = self.change(&call.order).await;
            return call.answer(answer);
        };
        let taking = Taking { told: *force, accept_log_loss: *accept_log_loss, key: key.clone(), ..self.taking() };
        let begun = if self.stopped.get() { Err(engine_gone()) } else { self.begin_opening(*id, taking, *read_only) };
        match begun {
            Ok(opening) => self.seat.world.clone().spawn(async move {
                let opened = self.open_pool(opening).await;
                call.answer(opened.map(Report::Pool));
            }),
            Err(refusal) => call.answer(Err(refusal)),
        }
    }

    async fn change(self: &Rc<Self>, order: &Order) -> Result<Report, Refusal> {
        if self.stopped.get() {
            return Err(engine_gone());
        }
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
            Order::KeepState { version, bytes } => self.keep_state(*version, bytes).await,
            Order::PoolKey { pool } => self.pool_key(pool).await,
            Order::ClosePool { pool } => self.close_pool(pool).await.map(|()| Report::Done),
            Order::DestroyPool { pool } => self.destroy_pool(pool).await.map(|()| Report::Done),
            Order::FailDisk { disk } => self.fail_disk(disk).await.map(Report::Pool),
            Order::ReplaceDisk { failed, member, replacement, force } => {
                self.replace_disk(failed, *member, replacement, *force).await.map(Report::Pool)
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
            Order::ClearReservations { volume } => self.clear_reservations(volume).await.map(Report::Volume),
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
            Order::SetAccess(access) => Ok(self.set_access(access.clone()).await),
            Order::RememberRefused(logins) => {
                self.seat.registry.remember_refused(logins);
                Ok(Report::Done)
            }
            Order::OpenPortal { address } => self.open_portal(*address).map(Report::Portal),
            Order::ClosePortal { address } => self.close_portal(*address).await.map(|()| Report::Done),
            _ => self.answer(order).await,
        }
    }

    /// Sessions go by this access table from now on.
    async fn set_access(self: &Rc<Self>, access: Access) -> Report {
        *self.access.borrow_mut() = access;
        self.publish_access().await;
        self.share_out();
        Report::Done
    }

    /// Every shard, and every session, goes by the present access table and volume homes.
    async fn publish_access(&self) {
        let _one = self.publishing.exclusive(0..1).await;
        let homes = self.volumes.borrow().values().filter(|it| it.serves).map(|it| (it.id, it.home)).collect();
        let access = self.access.borrow().clone();
        let view = Arc::new(AccessView::new(access, homes, self.links.borrow().clone()));
        for home in 0..self.seat.limits.shards {
            let view = view.clone();
            self.seat.call(home, move |seat| async move { seat.set_access(view) }).await;
        }
        self.tell_sessions(|applied| Notice::AccessChanged { applied }).await;
    }

    /// Every session has done what it is told: it has dropped what came with the notice.
    async fn tell_sessions(&self, notice: impl Fn(Sender<()>) -> Notice) {
        let (telling, told) = mailbox::channel();
        for (_, session) in self.seat.registry.sessions() {
            // A session that is just ending needs no notice.
            let _ = session.notices.send(notice(telling.clone()));
        }
        drop(telling);
        while told.receive().await.is_some() {}
    }

    /// Every session has ended, and nothing of it runs any more.
    async fn end_sessions(&self) {
        self.tell_sessions(|gone| Notice::Close { gone }).await;
    }

    /// The shard that the next pool or volume has its home on.
    fn choose_home(&self) -> usize {
        let home = self.next_home.get() % self.seat.limits.shards;
        self.next_home.set(home + 1);
        home
    }
}

fn engine_gone() -> Refusal {
    Refusal::new(code::ENGINE_GONE, "the data plane is stopping", "start the daemon again")
}
