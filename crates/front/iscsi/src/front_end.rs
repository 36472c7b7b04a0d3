//! iSCSI front end of the daemon, on the shard of the conductor: portals, sessions, access control, and the orders that
//! concern them.

mod links;
mod portals;
mod questions;
mod reservations;
mod sessions;
mod tasks;
mod traces;

use crate::access::{AccessView, STAND_INS_HOME};
use crate::iscsi_shard::IscsiShard;
use crate::links::Links;
use crate::portal::OpenPortal;
use crate::registry::Notice;
use crate::unit_factory::stand_ins;
use engine::{
    VolumeHome, VolumeHomes, conductor,
    front::{FrontEnd, Pending, SessionTotals},
};
use model::{
    Access, Call, LocalAddress, NodeIdentity, Order, Refusal, Report, Secret, SessionActivity, TaskReport, VolumeId,
    VolumeName,
};
use shard::mailbox::{self, Receiver, Sender};
use shard::{RangeLocks, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Environment of the array, from the program that starts it.
pub struct Facts {
    /// I/O backend of disks and sockets: `io_uring` or `threads`.
    pub io: String,
    /// Identity of this node.
    pub node: NodeIdentity,
    /// Secret of this node, the same after every restart. The keys of its pools are derived from it.
    pub secret: Secret,
    /// Current addresses of this machine; empty when unknown.
    pub addresses: Vec<LocalAddress>,
    /// Complete address list, sent at every change.
    pub address_changes: Receiver<Vec<LocalAddress>>,
}

/// Processes the calls of `inbox` on the shard of the conductor, until an order to stop is done or every sender is
/// dropped.
pub async fn conduct<W: World>(shard: Rc<IscsiShard<W>>, inbox: Receiver<Call>, facts: Facts) {
    let Facts { io, node, secret, addresses, address_changes } = facts;
    let volumes = VolumeHomes::default();
    let front = Rc::new(IscsiFront::new(shard.clone(), volumes.clone(), Links(addresses)));
    shard.world.spawn(front.clone().watch_links(address_changes));
    conductor::conduct(shard.engine.clone(), inbox, conductor::EngineFacts { io, node, secret }, (volumes, front))
        .await;
}

/// Front end: open portals, and the state from which access snapshots are built.
pub(crate) struct IscsiFront<W: World> {
    shard: Rc<IscsiShard<W>>,
    /// Home shards of all volumes, maintained by the conductor.
    volumes: VolumeHomes,
    /// Open portals by listening address.
    portals: RefCell<BTreeMap<SocketAddr, OpenPortal>>,
    /// Access table from the control plane.
    access: RefCell<Access>,
    /// Serializes the publication of snapshots, so that an older one never overwrites a newer one.
    publishing: RangeLocks,
    /// Link state of the local addresses.
    links: RefCell<Links>,
    /// Round-robin counter for accepted connections.
    next_connection: Rc<Cell<usize>>,
    /// Generation of the portal configuration. A rebalancing run of an older generation stops.
    sharing: Cell<u64>,
}

impl<W: World> FrontEnd for IscsiFront<W> {
    fn carry_out(self: Rc<Self>, order: Order) -> Pending<'static, Result<Report, Refusal>> {
        Box::pin(async move {
            match &order {
                Order::SetAccess(access) => Ok(self.set_access(access.clone()).await),
                Order::RememberRefused(logins) => {
                    self.shard.registry.remember_refused(logins);
                    Ok(Report::Done)
                }
                Order::OpenPortal { address } => self.open_portal(*address).map(Report::Portal),
                Order::ClosePortal { address } => self.close_portal(*address).await.map(|()| Report::Done),
                Order::ClearReservations { volume } => self.clear_reservations(volume).await,
                question => self.answer(question).await,
            }
        })
    }

    fn volumes_changed(&self) -> Pending<'_, ()> {
        Box::pin(self.publish_access())
    }

    fn presents(&self, volume: VolumeId) -> bool {
        self.access.borrow().presentations.iter().any(|presentation| presentation.volume_id == volume)
    }

    fn totals(&self) -> SessionTotals {
        SessionTotals { sessions: self.shard.registry.count(), ..self.shard.registry.totals() }
    }

    fn session_activities(&self) -> Vec<SessionActivity> {
        self.shard.registry.sessions().iter().map(|(_, entry)| questions::session_activity(entry)).collect()
    }

    fn close_portals(&self) {
        // Dropping a portal closes its socket. A login under way must not become a session behind `end_sessions`.
        for address in std::mem::take(&mut *self.portals.borrow_mut()).into_keys() {
            self.shard.registry.set_open(address, false);
        }
    }

    fn end_sessions(&self) -> Pending<'_, ()> {
        Box::pin(self.tell_sessions(|gone| Notice::Close { gone }))
    }

    fn tasks(&self) -> Pending<'_, Vec<TaskReport>> {
        Box::pin(self.task_reports())
    }
}

impl<W: World> IscsiFront<W> {
    fn new(shard: Rc<IscsiShard<W>>, volumes: VolumeHomes, links: Links) -> Self {
        Self {
            shard,
            volumes,
            portals: RefCell::default(),
            access: RefCell::default(),
            publishing: RangeLocks::new(),
            links: RefCell::new(links),
            next_connection: Rc::default(),
            sharing: Cell::default(),
        }
    }

    /// Applies a new access table to all shards and sessions.
    async fn set_access(self: &Rc<Self>, access: Access) -> Report {
        // Published first: portals are rebalanced by the new policies.
        *self.access.borrow_mut() = access;
        self.publish_access().await;
        self.rebalance();
        Report::Done
    }

    /// Publishes a snapshot of the access table and the volume homes to every shard and session.
    async fn publish_access(&self) {
        // Held until all sessions have applied the snapshot.
        let _one = self.publishing.exclusive(0..1).await;
        let homes = self.volumes.borrow().values().filter(|it| it.serves).map(|it| (it.id, it.home)).collect();
        let held = self.volumes.borrow().values().filter(|it| !it.serves).map(|it| it.id).collect();
        let access = self.access.borrow().clone();
        let view = Arc::new(AccessView::new(access, homes, held, self.links.borrow().clone()));
        // One shard after another; sessions are told only after the last one.
        for home in 0..self.shard.limits.shards {
            let view = view.clone();
            let follow = async move |shard: Rc<IscsiShard<W>>| {
                // Stand-ins must exist before sessions of any shard can see them.
                if shard.index == STAND_INS_HOME {
                    stand_ins::follow(&shard, &view);
                }
                shard.set_access(view);
            };
            // A shard that has stopped has no sessions to tell.
            self.shard.call(home, follow).await;
        }
        // Returns only after all sessions have applied the snapshot: an unmapped volume is then no longer visible to
        // any of them.
        self.tell_sessions(|applied| Notice::AccessChanged { applied }).await;
    }

    /// Sends a notice to every session and waits until each one has dropped the sender that came with it.
    async fn tell_sessions(&self, notice: impl Fn(Sender<()>) -> Notice) {
        let (telling, told) = mailbox::channel();
        for (_, session) in self.shard.registry.sessions() {
            // A session that is ending needs no notice.
            let _ = session.notices.send(notice(telling.clone()));
        }
        // With the own sender dropped, the channel closes when the last session has finished.
        drop(telling);
        while told.receive().await.is_some() {}
    }

    async fn clear_reservations(&self, volume: &VolumeName) -> Result<Report, Refusal> {
        let VolumeHome { id, home, .. } = engine::home_of(&self.volumes, volume)?;
        let name = volume.clone();
        let cleared = self.shard.call(home, move |shard| reservations::clear_reservations(shard, id, name)).await;
        cleared.ok_or_else(conductor::engine_gone)?.map(Report::Volume)
    }
}
