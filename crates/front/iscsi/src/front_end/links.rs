//! Reaction to link state changes below the portals.

use super::IscsiFront;
use crate::links::Links;
use model::{LocalAddress, Subject, SubjectKind, event};
use shard::World;
use shard::mailbox::Receiver;
use std::net::SocketAddr;
use std::rc::Rc;

impl<W: World> IscsiFront<W> {
    /// Applies link state changes. New sessions are not redirected to a portal without a link. Existing sessions stay:
    /// they cannot be asked to move over a dead link, may survive a short interruption, and end by their own timeouts.
    pub(super) async fn watch_links(self: Rc<Self>, changes: Receiver<Vec<LocalAddress>>) {
        while let Some(addresses) = changes.receive().await {
            let before = self.links.replace(Links(addresses));
            let portals: Vec<SocketAddr> = self.portals.borrow().keys().copied().collect();
            portals.into_iter().for_each(|portal| self.tell_of_link(portal, &before));
            // Published before the rebalancing, which reads the link state from the snapshot.
            self.publish_access().await;
            self.rebalance();
        }
    }

    /// Raises an event when the link state of a portal differs from `before`.
    pub(super) fn tell_of_link(&self, portal: SocketAddr, before: &Links) {
        let now = self.links.borrow().missing_at(portal.ip());
        let subject = Subject::new(SubjectKind::Portal, &portal);
        match (before.missing_at(portal.ip()).is_some(), now) {
            (false, Some(why)) => {
                let sentence = format!(
                    "portal {portal} is unreachable: {why}; no sessions are redirected there until this is repaired"
                );
                self.shard.engine.raise(event::PORTAL_LINK_DOWN, subject, sentence);
            }
            (true, None) => {
                let sentence = format!("portal {portal} has a link again and accepts sessions");
                self.shard.engine.raise(event::PORTAL_LINK_UP, subject, sentence);
            }
            _ => {}
        }
    }
}
