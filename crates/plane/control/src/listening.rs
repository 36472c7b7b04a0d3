//! Opening of configured portals: at the start, and again while one cannot be opened.
//!
//! An address may be taken for a moment by another program, or arrive late by DHCP. Hosts must not lose a path
//! permanently because of the second in which the daemon was started, so a portal that does not listen is
//! retried every second.

use crate::change::portals::Portals;
use model::{Order, PortalReport, PortalState, Refusal, Subject, SubjectKind, code, event};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::sleep;

/// Retry interval of a portal that cannot be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Portals {
    /// Applies the access rules, then opens every portal that can be opened.
    pub(crate) async fn open_all(&self) -> Result<(), Refusal> {
        // The rules are in force before the first portal listens, so no login is judged without them.
        self.access.apply().await?;
        let state = self.core.state();
        let added = state.portals.iter().filter(|(_, record)| record.added).map(|(address, _)| address);
        // A portal that both the configuration and the state name is opened once.
        let more = added.filter(|address| !self.core.settings.portals.contains(address));
        let mut wanted: Vec<SocketAddr> = self.core.settings.portals.iter().chain(more).copied().collect();
        // `[::]` also takes IPv4 on a port that no other portal holds, so IPv4 portals open first.
        wanted.sort_by_key(SocketAddr::is_ipv6);
        for address in wanted {
            let portal = match self.core.engine.portal(Order::OpenPortal { address }).await {
                Ok(portal) => portal,
                Err(refusal) => {
                    tracing::error!(portal = %address, "{refusal}");
                    let sentence = format!("{}; retried every second", refusal.message);
                    self.core.raise(event::PORTAL_UNUSABLE, Subject::new(SubjectKind::Portal, &address), sentence);
                    let (policy, state) =
                        (state.portal_policy(address), PortalState::Failed { reason: refusal.message });
                    PortalReport { address, policy, state, also_ipv4: false, sessions: 0 }
                }
            };
            self.access.remember(portal);
        }
        // Once more, with the portals that are open now.
        self.access.apply().await
    }

    /// Retries portals that do not listen every second, until the data plane is gone.
    pub async fn keep_open(self: std::sync::Arc<Self>) {
        loop {
            sleep(RETRY_INTERVAL).await;
            match self.open_failed().await {
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => tracing::warn!(%refusal, "portals that do not listen could not be tried again"),
                Ok(()) => {}
            }
        }
    }

    /// Retries every portal that does not listen once.
    pub(crate) async fn open_failed(&self) -> Result<(), Refusal> {
        // The common case: every portal listens, and the change lock is not taken.
        if !self.access.portals().iter().any(has_failed) {
            return Ok(());
        }
        // Under the change lock, so that a portal that is removed at the same time stays removed.
        let _turn = self.core.lock_changes().await;
        for failed in self.access.portals().into_iter().filter(has_failed) {
            match self.core.engine.portal(Order::OpenPortal { address: failed.address }).await {
                Ok(portal) => self.report_opened(failed.address, portal),
                Err(refusal) if refusal.code == code::ENGINE_GONE => return Err(refusal),
                Err(refusal) => {
                    self.access
                        .remember(PortalReport { state: PortalState::Failed { reason: refusal.message }, ..failed });
                }
            }
        }
        self.access.apply().await
    }

    fn report_opened(&self, wanted: SocketAddr, portal: PortalReport) {
        // A portal with port 0 has another port once it listens.
        self.access.forget(wanted);
        self.access.remember(portal);
        tracing::info!(portal = %wanted, "listens now");
        let sentence = format!("portal {wanted} is listening and accepts sessions");
        self.core.raise(event::PORTAL_OPENED, Subject::new(SubjectKind::Portal, &wanted), sentence);
    }
}

fn has_failed(portal: &PortalReport) -> bool {
    matches!(portal.state, PortalState::Failed { .. })
}
