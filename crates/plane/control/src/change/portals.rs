//! Portals: added, set, drained, removed.

use crate::access::{Access, Consent};
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
    /// Hosts can log in there too, now and after every start.
    ///
    /// *Errors*: it is a portal already, it cannot be listened on, or a setting does not fit.
    pub async fn add(&self, request: NewPortal) -> Result<PortalReport, Refusal> {
        let turn = self.core.turn().await;
        let PortalAddress(address) = request.address;
        let policy = changed(address, PortalPolicy::default(), &request.settings)?;
        if self.access.portals().iter().any(|portal| portal.address == address) {
            let message = format!("{address} is a portal already");
            return Err(Refusal::new(code::PORTAL_TAKEN, message, "choose another address or port"));
        }
        let opened = self.core.engine.portal(Order::OpenPortal { address }).await?;
        let report = PortalReport { policy, ..opened };
        self.access.remember(report.clone());
        let record = PortalRecord { added: true, policy: report.policy.clone() };
        let kept = self.access.commit(&turn, Consent::ALL, |state| {
            state.portals.insert(report.address, record);
        });
        let kept = kept.await;
        if kept.is_err() {
            self.access.forget(report.address);
            self.core.engine.done(Order::ClosePortal { address: report.address }).await?;
        }
        kept.map(|()| report)
    }

    /// Nobody logs in there any more.
    ///
    /// *Errors*: it is none, the daemon was given it at its start, or hosts are logged in there and it is not forced.
    pub async fn remove(&self, address: PortalAddress, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.turn().await;
        let PortalReport { address, state, .. } = self.report(address).await?;
        if !self.core.state().portals.get(&address).is_some_and(|record| record.added) {
            let message = format!("portal {address} was given to the daemon at its start");
            let hint = "take it out of its configuration file or of its --portal arguments, and start it again";
            return Err(Refusal::new(code::PORTAL_CONFIGURED, message, hint));
        }
        let losses = self.sessions_at(address).await?;
        if !losses.is_empty() && !request.force {
            let message =
                format!("{} sessions are logged in at portal {address}: {}", losses.len(), impact::named(&losses));
            let hint = format!("move them with blockyard portal drain {address}, or cut them off with --force");
            return Err(impact::listed(Refusal::new(code::PORTAL_IN_USE, message, hint), losses));
        }
        if !matches!(state, PortalState::Failed { .. }) {
            self.core.engine.done(Order::ClosePortal { address }).await?;
        }
        self.access.forget(address);
        self.access
            .commit(&turn, Consent::ALL, |state| {
                state.portals.remove(&address);
            })
            .await
    }

    /// The sessions with a connection through the portal.
    async fn sessions_at(&self, portal: SocketAddr) -> Result<Vec<SessionLoss>, Refusal> {
        let is_at =
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
            loses: "ends".to_owned(),
        };
        Ok(sessions.into_iter().map(loss).collect())
    }

    /// The portal has these settings; sessions move where they should be now.
    ///
    /// *Errors*: it is none, a setting does not fit, or sessions there would lose access and it is not forced.
    pub async fn set(&self, address: PortalAddress, request: PortalSettings) -> Result<PortalReport, Refusal> {
        let consent = Consent::forced(request.force);
        self.change(address, consent, |address, policy, _| changed(address, policy, &request.settings)).await
    }

    /// No session stays there: those that are there are asked to go to other portals, and new ones are sent there. Or it
    /// takes sessions again.
    ///
    /// *Errors*: it is none, or there is no other portal to go to.
    pub async fn drain(&self, address: PortalAddress, drained: bool) -> Result<PortalReport, Refusal> {
        self.change(address, Consent::forced(false), |address, policy, others| {
            let takes =
                |other: &PortalPolicy| !other.drained && other.role != PortalRole::Front && other.tag == policy.tag;
            if drained && !others.iter().any(takes) {
                let message = format!("no other portal of group {} would take the sessions of {address}", policy.tag);
                let hint = "add one with blockyard portal add, or resume one that is drained";
                return Err(Refusal::new(code::PORTAL_LAST, message, hint));
            }
            Ok(PortalPolicy { drained, ..policy })
        })
        .await
    }

    /// By what sessions are shared out.
    #[must_use]
    pub fn balance(&self) -> Balance {
        self.core.state().balance
    }

    /// Sessions are shared out by this from now on.
    ///
    /// *Errors*: the state cannot be written.
    pub async fn set_balance(&self, request: SetBalance) -> Result<Balance, Refusal> {
        let turn = self.core.turn().await;
        self.access.commit(&turn, Consent::forced(false), |state| state.balance = request.by).await?;
        Ok(request.by)
    }

    /// `change` is given the address, what is set, and what is set for the others.
    async fn change(
        &self,
        address: PortalAddress,
        consent: Consent,
        change: impl FnOnce(SocketAddr, PortalPolicy, &[PortalPolicy]) -> Result<PortalPolicy, Refusal>,
    ) -> Result<PortalReport, Refusal> {
        let turn = self.core.turn().await;
        let report = self.report(address).await?;
        let (address, state) = (report.address, self.core.state());
        let others = self.access.portals().into_iter().map(|portal| portal.address).filter(|&other| other != address);
        let others: Vec<PortalPolicy> = others.map(|other| state.portal_policy(other)).collect();
        let policy = change(address, state.portal_policy(address), &others)?;
        self.access.commit(&turn, consent, |state| state.set_portal(address, policy.clone())).await?;
        Ok(PortalReport { policy, ..report })
    }

    /// One portal. *Errors*: there is none of this address.
    pub async fn report(&self, PortalAddress(address): PortalAddress) -> Result<PortalReport, Refusal> {
        let portals = self.list().await?;
        portals.into_iter().find(|portal| portal.address == address).ok_or_else(|| {
            let message = format!("no portal has the address {address}");
            Refusal::new(code::PORTAL_UNKNOWN, message, "see blockyard portal list")
        })
    }

    /// Where we listen, and where we should but cannot.
    pub async fn list(&self) -> Result<Vec<PortalReport>, Refusal> {
        let mut portals = self.core.engine.portals(Order::Portals).await?;
        portals.extend(self.access.portals().into_iter().filter(|portal| portal.state != PortalState::Open));
        portals.sort_by_key(|portal| portal.address);
        Ok(portals)
    }
}

/// The policy with these settings.
pub(crate) fn changed(
    address: SocketAddr,
    mut policy: PortalPolicy,
    settings: &BTreeMap<String, String>,
) -> Result<PortalPolicy, Refusal> {
    settings.iter().try_for_each(|(key, value)| policy.set(key, value))?;
    if policy.role == PortalRole::Data && address.ip().is_unspecified() {
        let message = format!("sessions cannot be sent to {address}, which stands for every address");
        let hint = "add a portal for each address with blockyard portal add";
        return Err(Refusal::new(code::PORTAL_WILDCARD, message, hint));
    }
    Ok(policy)
}

impl State {
    /// Nothing is kept of a portal of the configuration file for which nothing is set.
    fn set_portal(&mut self, address: SocketAddr, policy: PortalPolicy) {
        let added = self.portals.get(&address).is_some_and(|record| record.added);
        self.portals.insert(address, PortalRecord { added, policy });
        self.portals.retain(|_, record| *record != PortalRecord::default());
    }
}
