//! Portals: add, configure, drain, remove.

use crate::access::{Access, Confirmation};
use crate::core::Core;
use crate::impact;
use crate::request::{NewPortal, PortalSettings, Removal, SetBalance};
use crate::sessions::Sessions;
use crate::state::{PortalRecord, State};
use model::{
    Balance, Order, PortalAddress, PortalPolicy, PortalReport, PortalRole, PortalState, Refusal, SessionLoss,
    SessionReport, code,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Portals that hosts log in through.
pub struct Portals {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) sessions: Arc<Sessions>,
}

impl Portals {
    /// Opens a portal, now and after every start.
    ///
    /// *Errors*: the address is a portal already, it cannot be opened, or a setting is invalid.
    pub async fn add(&self, request: NewPortal) -> Result<PortalReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let PortalAddress(address) = request.address;
        let policy = changed(address, PortalPolicy::default(), &request.settings)?;
        if self.access.portals().iter().any(|portal| portal.address == address) {
            let message = format!("portal {address} already exists");
            return Err(Refusal::new(code::PORTAL_TAKEN, message, "choose another address or port"));
        }
        // Opened before it is recorded: port 0 is replaced by the port that the system assigned.
        let opened = self.core.engine.portal(Order::OpenPortal { address }).await?;
        let report = PortalReport { policy, ..opened };
        // Before the commit, which tells the data plane which portals are open.
        self.access.remember(report.clone());
        let record = PortalRecord { added: true, policy: report.policy.clone() };
        // A further portal takes nothing away, so no session has to be compared.
        let kept = self.access.commit(&turn, Confirmation::ALL, |state| {
            state.portals.insert(report.address, record);
        });
        let kept = kept.await;
        if kept.is_err() {
            self.access.forget(report.address);
            self.core.engine.done(Order::ClosePortal { address: report.address }).await?;
        }
        kept.map(|()| report)
    }

    /// Closes a portal and removes it.
    ///
    /// *Errors*: there is no such portal, it was configured at the start of the daemon, or sessions use it and
    /// `force` is not set.
    pub async fn remove(&self, address: PortalAddress, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        let PortalReport { address, state, .. } = self.report(address).await?;
        // A portal of the configuration file would be back after the next start.
        if !self.core.state().portals.get(&address).is_some_and(|record| record.added) {
            let message = format!("portal {address} is set in the configuration of the daemon");
            let hint = "remove it from the configuration file or from the --portal arguments, and restart the daemon";
            return Err(Refusal::new(code::PORTAL_CONFIGURED, message, hint));
        }
        let losses = self.sessions_at(address).await?;
        if !losses.is_empty() && !request.force {
            let message =
                format!("{} sessions are logged in at portal {address}: {}", losses.len(), impact::named(&losses));
            let hint =
                format!("drain the portal with blockyard portal drain {address}, or close the sessions with --force");
            return Err(impact::listed(Refusal::new(code::PORTAL_IN_USE, message, hint), losses));
        }
        let before = self.core.state();
        // Durable first: if the removal cannot be stored, the portal stays open and its sessions continue. No further
        // confirmation is needed: sessions at the portal were refused above, or `force` is set.
        self.core.commit(&turn, |state| {
            state.portals.remove(&address);
        })?;
        // A portal that failed to open is unknown to the data plane.
        if !matches!(state, PortalState::Failed { .. }) {
            let closed = self.core.engine.done(Order::ClosePortal { address }).await;
            self.core.or_restore(&turn, closed, &before)?;
        }
        // After it is closed: an open portal that the access rules do not name has the default policy, by which a
        // drained one would accept sessions.
        self.access.forget(address);
        self.access.apply().await
    }

    /// Returns the sessions with a connection through the portal.
    async fn sessions_at(&self, portal: SocketAddr) -> Result<Vec<SessionLoss>, Refusal> {
        let is_at =
            // A session names the address that it reached, never the wildcard address of its portal.
            |reached: SocketAddr| reached == portal || portal.ip().is_unspecified() && portal.port() == reached.port();
        let mut sessions = self.sessions.list().await?;
        sessions.retain(|session| {
            is_at(session.portal) || session.connections.iter().any(|connection| is_at(connection.portal))
        });
        let loss = |session: SessionReport| SessionLoss {
            session: session.id,
            initiator: session.initiator,
            host: session.host,
            address: session.address,
            effect: "ends".to_owned(),
        };
        Ok(sessions.into_iter().map(loss).collect())
    }

    /// Changes the settings of the portal; sessions are rebalanced accordingly.
    ///
    /// *Errors*: there is no such portal, a setting is invalid, or sessions would lose access and `force` is
    /// not set.
    pub async fn set(&self, address: PortalAddress, request: PortalSettings) -> Result<PortalReport, Refusal> {
        let consent = Confirmation::forced(request.force);
        self.change(address, consent, |address, policy, _| changed(address, policy, &request.settings)).await
    }

    /// Drains the portal: its sessions are asked to move to other portals, and new ones are redirected. Or
    /// resumes it.
    ///
    /// *Errors*: there is no such portal, or no other portal can take its sessions.
    pub async fn drain(&self, address: PortalAddress, drained: bool) -> Result<PortalReport, Refusal> {
        self.change(address, Confirmation::forced(false), |address, policy, others| {
            // Only a portal of the same group offers the same target port group, so sessions keep their access.
            // A front hands sessions on and serves none while a data portal is left, so it cannot take them over.
            let takes =
                |other: &PortalPolicy| !other.drained && other.role != PortalRole::Front && other.tag == policy.tag;
            if drained && !others.iter().any(takes) {
                let message =
                    format!("no other portal of group {} can take over the sessions of {address}", policy.tag);
                let hint = "add one with blockyard portal add, or resume a drained one";
                return Err(Refusal::new(code::PORTAL_LAST, message, hint));
            }
            Ok(PortalPolicy { drained, ..policy })
        })
        .await
    }

    /// Returns the criterion by which sessions are distributed.
    #[must_use]
    pub fn balance(&self) -> Balance {
        self.core.state().balance
    }

    /// Sets the criterion by which sessions are distributed.
    ///
    /// *Errors*: the state cannot be written.
    pub async fn set_balance(&self, request: SetBalance) -> Result<Balance, Refusal> {
        let turn = self.core.lock_changes().await;
        self.access.commit(&turn, Confirmation::forced(false), |state| state.balance = request.by).await?;
        Ok(request.by)
    }

    /// Changes the policy of a portal; `change` gets its address, its policy and the policies of the others.
    async fn change(
        &self,
        address: PortalAddress,
        consent: Confirmation,
        change: impl FnOnce(SocketAddr, PortalPolicy, &[PortalPolicy]) -> Result<PortalPolicy, Refusal>,
    ) -> Result<PortalReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let report = self.report(address).await?;
        let (address, state) = (report.address, self.core.state());
        let others = self.access.portals().into_iter().map(|portal| portal.address).filter(|&other| other != address);
        let others: Vec<PortalPolicy> = others.map(|other| state.portal_policy(other)).collect();
        let policy = change(address, state.portal_policy(address), &others)?;
        self.access.commit(&turn, consent, |state| state.set_portal(address, policy.clone())).await?;
        Ok(PortalReport { policy, ..report })
    }

    /// Returns one portal. *Errors*: there is none of this address.
    pub async fn report(&self, PortalAddress(address): PortalAddress) -> Result<PortalReport, Refusal> {
        let portals = self.list().await?;
        portals.into_iter().find(|portal| portal.address == address).ok_or_else(|| {
            let message = format!("portal {address} does not exist");
            Refusal::new(code::PORTAL_UNKNOWN, message, "see blockyard portal list")
        })
    }

    /// Lists the open portals and those that failed to open.
    pub async fn list(&self) -> Result<Vec<PortalReport>, Refusal> {
        let mut portals = self.core.engine.portals(Order::Portals).await?;
        // The data plane reports open portals only.
        portals.extend(self.access.portals().into_iter().filter(|portal| portal.state != PortalState::Open));
        portals.sort_by_key(|portal| portal.address);
        Ok(portals)
    }
}

/// Applies settings to a policy.
pub(crate) fn changed(
    address: SocketAddr,
    mut policy: PortalPolicy,
    settings: &BTreeMap<String, String>,
) -> Result<PortalPolicy, Refusal> {
    settings.iter().try_for_each(|(key, value)| policy.set(key, value))?;
    // A redirected initiator needs a concrete address to connect to.
    if policy.role == PortalRole::Data && address.ip().is_unspecified() {
        let message = format!("sessions cannot be redirected to the wildcard address {address}");
        let hint = "add a portal for each address with blockyard portal add";
        return Err(Refusal::new(code::PORTAL_WILDCARD, message, hint));
    }
    Ok(policy)
}

impl State {
    /// Sets the policy of a portal. A portal of the configuration file with default settings needs no record.
    fn set_portal(&mut self, address: SocketAddr, policy: PortalPolicy) {
        let added = self.portals.get(&address).is_some_and(|record| record.added);
        self.portals.insert(address, PortalRecord { added, policy });
        self.portals.retain(|_, record| *record != PortalRecord::default());
    }
}
