//! The iSCSI front end as a whole, on the shard of the conductor: portals, sessions, who may see what, and the orders about them.

mod links;
mod portals;
mod questions;
mod reservations;
mod sessions;
mod tasks;
mod traces;

use crate::access::{AccessView, STAND_INS_HOME};
use crate::faces::stand_ins;
use crate::iscsi_shard::IscsiShard;
use crate::links::Links;
use crate::portal::OpenPortal;
use crate::registry::Notice;
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

/// What the program that starts the array tells about its surroundings.
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

/// Answers the calls of `inbox` on the shard of the conductor, until an order to stop is done, or every sender is gone.
pub async fn conduct<W: World>(shard: Rc<IscsiShard<W>>, inbox: Receiver<Call>, facts: Facts) {
    let Facts { io, node, secret, addresses, address_changes } = facts;
    let volumes = VolumeHomes::default();
    let front = Rc::new(IscsiFront::new(shard.clone(), volumes.clone(), Links(addresses)));
    shard.world.spawn(front.clone().watch_links(address_changes));
    conductor::conduct(shard.engine.clone(), inbox, conductor::Facts { io, node, secret }, (volumes, front)).await;
}

/// The front end: its portals, and what it goes by.
pub(crate) struct IscsiFront<W: World> {
    shard: Rc<IscsiShard<W>>,
    volumes: VolumeHomes,
    portals: RefCell<BTreeMap<SocketAddr, OpenPortal>>,
    access: RefCell<Access>,
    /// One view is published at a time, so that nobody gets an older one last.
    publishing: RangeLocks,
    links: RefCell<Links>,
    next_connection: Rc<Cell<usize>>,
    /// Counts tables of access, so that sessions are shared out by the newest alone.
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
        self.portals.borrow_mut().clear();
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
        let held = self.volumes.borrow().values().filter(|it| !it.serves).map(|it| it.id).collect();
        let access = self.access.borrow().clone();
        let view = Arc::new(AccessView::new(access, homes, held, self.links.borrow().clone()));
        for home in 0..self.shard.limits.shards {
            let view = view.clone();
            let follow = async move |shard: Rc<IscsiShard<W>>| {
                if shard.index == STAND_INS_HOME {
                    stand_ins::follow(&shard, &view);
                }
                shard.set_access(view);
            };
            self.shard.call(home, follow).await;
        }
        self.tell_sessions(|applied| Notice::AccessChanged { applied }).await;
    }

    /// Every session has done what it is told: it has dropped what came with the notice.
    async fn tell_sessions(&self, notice: impl Fn(Sender<()>) -> Notice) {
        let (telling, told) = mailbox::channel();
        for (_, session) in self.shard.registry.sessions() {
            // A session that is just ending needs no notice.
            let _ = session.notices.send(notice(telling.clone()));
        }
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
