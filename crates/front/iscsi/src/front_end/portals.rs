//! Portals: opening, closing, and rebalancing of sessions.

use super::IscsiFront;
use crate::access::{Placement, canonical};
use crate::links::Links;
use crate::nexus::SessionId;
use crate::portal::OpenPortal;
use crate::registry::{Entry, Notice};
use model::{PortalReport, PortalState, Refusal, code};
use shard::World;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time for an initiator to log out after it was asked to; after it the connection is closed.
const LOGOUT_TIME: Duration = Duration::from_secs(15);
/// Interval between two rounds of logout requests.
const ROUND: Duration = Duration::from_secs(3);
/// Upper bound of rounds for one change of the portals.
const ROUNDS_MAX: u32 = 100;

impl<W: World> IscsiFront<W> {
    /// Opens a portal on the address.
    pub(super) fn open_portal(&self, address: SocketAddr) -> Result<PortalReport, Refusal> {
        if self.portals.borrow().contains_key(&address) {
            return Err(Refusal::new(
                code::PORTAL_TAKEN,
                format!("portal {address} is already open"),
                "choose another address or port",
            ));
        }
        // Port 0 selects a free port, so the actual address is taken from the open portal below.
        let portal = OpenPortal::open(&self.shard, address, self.next_connection.clone()).map_err(|error| {
            Refusal::new(
                code::PORTAL_UNUSABLE,
                format!("cannot listen on {address}: {error}"),
                "choose an address of this machine and a free port",
            )
        })?;
        let OpenPortal { address, also_ipv4, .. } = portal;
        self.portals.borrow_mut().insert(address, portal);
        // No login can be over yet: connections are accepted once this call has returned.
        self.shard.registry.set_open(address, true);
        // Without an earlier link state to compare with, a missing link is reported once.
        self.tell_of_link(address, &Links::default());
        let policy = self.shard.access.borrow().policy_at(address);
        Ok(PortalReport { address, policy, state: PortalState::Open, also_ipv4, sessions: 0 })
    }

    /// Closes the portal. Returns when all connections of sessions through it are closed. A login in progress through
    /// it is closed when it ends.
    pub(super) async fn close_portal(&self, address: SocketAddr) -> Result<(), Refusal> {
        // Removed first: from here on, the portal accepts no connection.
        if self.portals.borrow_mut().remove(&address).is_none() {
            return Err(Refusal::new(
                code::PORTAL_UNKNOWN,
                format!("portal {address} does not exist"),
                "`blockyard portal list` shows the portals",
            ));
        }
        // Before the sessions are notified: a login that ends meanwhile is one of them, or finds the portal closed.
        self.shard.registry.set_open(address, false);
        self.tell_sessions(|gone| Notice::PortalClosed { portal: address, gone }).await;
        Ok(())
    }

    /// Asks sessions on drained or overloaded portals to log in again. One session of each initiator is asked per
    /// round, so that its other paths continue.
    pub(super) fn rebalance(self: &Rc<Self>) {
        // A newer change of the portals supersedes this run.
        let turn = self.sharing.get() + 1;
        self.sharing.set(turn);
        let mut asked = BTreeSet::new();
        // In most cases no session has to move, and no task is started.
        if !self.ask_to_move(&mut asked) {
            return;
        }
        let front = self.clone();
        self.shard.world.spawn(async move {
            for _ in 0..ROUNDS_MAX {
                front.shard.world.sleep(ROUND).await;
                if front.sharing.get() != turn || !front.ask_to_move(&mut asked) {
                    return;
                }
            }
        });
    }

    /// Asks one session of each initiator among those that should move and were not asked yet. Returns false when no
    /// such session is left.
    fn ask_to_move(&self, asked: &mut BTreeSet<SessionId>) -> bool {
        let view = self.shard.access.borrow().clone();
        let sessions = self.shard.registry.sessions();
        let may_not_stay = |entry: &Entry| {
            let goes = !entry.is_discovery() && view.policy_at(entry.portal).drained;
            // Without another portal, a drained one keeps its sessions.
            goes && view.place_for(entry.portal, entry.peer.ip()) != Placement::Nowhere
        };
        let groups = view.data_portals();
        let surplus: BTreeSet<_> = groups.values().flat_map(|portals| self.shard.registry.surplus(portals)).collect();
        let moves = |(id, entry): &&(SessionId, Arc<Entry>)| {
            // A session that was asked and still exists keeps its initiator busy.
            asked.contains(id) || entry.is_reached() && (may_not_stay(entry) || surplus.contains(&entry.nexus))
        };
        let moving: Vec<&(SessionId, Arc<Entry>)> = sessions.iter().filter(moves).collect();
        // An initiator with a request in progress is skipped: at least one of its paths must stay up.
        let mut busy: BTreeSet<&str> = moving
            .iter()
            .filter(|(id, _)| asked.contains(id))
            .map(|(_, entry)| entry.nexus.initiator.as_str())
            .collect();
        for (id, entry) in &moving {
            if busy.insert(&entry.nexus.initiator) {
                tracing::info!(initiator = entry.nexus.initiator, portal = %canonical(entry.portal), "asked to \
                     log in again");
                // A session that is ending needs no notice.
                let _ = entry.notices.send(Notice::RequestLogout { within: LOGOUT_TIME });
                asked.insert(*id);
            }
        }
        !moving.is_empty()
    }
}
