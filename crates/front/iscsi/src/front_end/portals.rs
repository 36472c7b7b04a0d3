//! Portals: opened, closed, and sessions shared out over them.

use super::IscsiFront;
use crate::access::{Place, canonical};
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

/// How long an initiator may take to log out after it was asked to.
const LOGOUT_TIME: Duration = Duration::from_secs(15);
/// How long those that were asked have before others are.
const ROUND: Duration = Duration::from_secs(3);
/// How often sessions are asked to move for one change of the portals.
const ROUNDS_MAX: u32 = 100;

impl<W: World> IscsiFront<W> {
    /// Listens on the address.
    pub(super) fn open_portal(&self, address: SocketAddr) -> Result<PortalReport, Refusal> {
        if self.portals.borrow().contains_key(&address) {
            return Err(Refusal::new(
                code::PORTAL_TAKEN,
                format!("portal {address} is open already"),
                "choose another address or port",
            ));
        }
        let portal = OpenPortal::open(&self.shard, address, self.next_connection.clone()).map_err(|error| {
            Refusal::new(
                code::PORTAL_UNUSABLE,
                format!("cannot listen on {address}: {error}"),
                "choose an address of this machine and a port that nothing else uses",
            )
        })?;
        let OpenPortal { address, also_ipv4, .. } = portal;
        self.portals.borrow_mut().insert(address, portal);
        self.tell_of_link(address, &Links::default());
        let policy = self.shard.access.borrow().policy_at(address);
        Ok(PortalReport { address, policy, state: PortalState::Open, also_ipv4, sessions: 0 })
    }

    /// Listens there no more; the connections that came in there have ended.
    pub(super) async fn close_portal(&self, address: SocketAddr) -> Result<(), Refusal> {
        if self.portals.borrow_mut().remove(&address).is_none() {
            return Err(Refusal::new(
                code::PORTAL_UNKNOWN,
                format!("no portal has the address {address}"),
                "`blockyard portal list` shows them",
            ));
        }
        self.tell_sessions(|gone| Notice::Leave { portal: address, gone }).await;
        Ok(())
    }

    /// Sessions that may not stay where they are, or had better be elsewhere, are asked to log in anew: in rounds, one
    /// session of each initiator at a time, so that its other paths carry on.
    pub(super) fn share_out(self: &Rc<Self>) {
        let turn = self.sharing.get() + 1;
        self.sharing.set(turn);
        let mut asked = BTreeSet::new();
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

    /// Asks one session of each initiator, of those that should move and were not asked yet; false when there are none.
    fn ask_to_move(&self, asked: &mut BTreeSet<SessionId>) -> bool {
        let view = self.shard.access.borrow().clone();
        let sessions = self.shard.registry.sessions();
        let may_not_stay = |entry: &Entry| {
            let goes = !entry.is_discovery() && view.policy_at(entry.portal).drained;
            goes && view.place_for(entry.portal, entry.peer.ip()) != Place::Nowhere
        };
        let groups = view.data_portals();
        let surplus: BTreeSet<_> = groups.values().flat_map(|portals| self.shard.registry.surplus(portals)).collect();
        let moves = |(id, entry): &&(SessionId, Arc<Entry>)| {
            asked.contains(id) || entry.is_reached() && (may_not_stay(entry) || surplus.contains(&entry.nexus))
        };
        let moving: Vec<&(SessionId, Arc<Entry>)> = sessions.iter().filter(moves).collect();
        let mut busy: BTreeSet<&str> = moving
            .iter()
            .filter(|(id, _)| asked.contains(id))
            .map(|(_, entry)| entry.nexus.initiator.as_str())
            .collect();
        for (id, entry) in &moving {
            if busy.insert(&entry.nexus.initiator) {
                tracing::info!(initiator = entry.nexus.initiator, portal = %canonical(entry.portal), "asked to log in anew");
                // A session that is just ending needs no notice.
                let _ = entry.notices.send(Notice::MoveAway { within: LOGOUT_TIME });
                asked.insert(*id);
            }
        }
        !moving.is_empty()
    }
}
