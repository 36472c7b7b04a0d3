//! Changes of access: logins, mappings and portals. The state and the access control of the data plane change
//! together.
//!
//! Hosts, groups, targets, presentations, portals and authentication commit here, so that every change is
//! checked for sessions that would lose access ([`crate::impact`]). Portals belong here because the data plane
//! needs to know which of them are open.

use crate::State;
use crate::closed_pools::ClosedPools;
use crate::core::{ChangeGuard, Core};
use crate::state::lun_history::Replaced;
use model::{Order, PortalReport, PortalState, Refusal, Subject, SubjectKind, event};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Access control and the portals that it applies to.
pub(crate) struct Access {
    pub(crate) core: Arc<Core>,
    /// Configured portals, including those that failed to open.
    portals: Mutex<Vec<PortalReport>>,
    /// Pools that are not open, with the reasons.
    pub(crate) closed_pools: ClosedPools,
}

impl Access {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, portals: Mutex::default(), closed_pools: ClosedPools::default() }
    }

    /// Commits the edited state durably and applies it in the data plane. If the data plane refuses, the state
    /// is restored.
    ///
    /// *Errors*: hosts would find other volumes under LUNs that they know, or sessions would lose access,
    /// without confirmation; or the refusal of the data plane.
    pub(crate) async fn commit(
        &self,
        turn: &ChangeGuard<'_>,
        consent: Confirmation,
        edit: impl FnOnce(&mut State),
    ) -> Result<(), Refusal> {
        let before = self.core.state();
        let mut next = State::clone(&before);
        edit(&mut next);
        // The check and the commit run under one change lock, so the admitted state is the committed one.
        let replaced = self.admit(turn, &before, &mut next, consent).await?;
        // Durable first: after a crash the next start applies what was committed.
        self.core.commit(turn, |state| *state = next)?;
        let applied = self.apply().await;
        // A refused order has changed nothing in the data plane, so the state of before is true again.
        self.core.or_restore(turn, applied, &before)?;
        // Only now, because an assignment that was rolled back is no event.
        replaced.iter().for_each(|lun| self.raise_replaced(lun));
        Ok(())
    }

    /// Raises the event that an operator has assigned a known LUN to another volume.
    fn raise_replaced(&self, Replaced { who, target, lun, volume }: &Replaced) {
        let sentence = format!("LUN {lun} of {target} is now volume {volume}; {who} used it for another volume");
        self.core.raise(event::LUN_REPLACED, Subject::new(SubjectKind::Host, who), sentence);
    }

    /// Applies the access rules of the state in the data plane.
    pub(crate) async fn apply(&self) -> Result<(), Refusal> {
        // Only open ones, because hosts must not be sent to others.
        let open: Vec<SocketAddr> = self
            .portals()
            .iter()
            .filter(|portal| portal.state == PortalState::Open)
            .map(|portal| portal.address)
            .collect();
        // No await between reading the state and sending the order: a later order never carries an older state.
        let mut access = self.core.state().access(&open);
        // The sense data of LUNs in closed pools depends on whether an operator is needed.
        self.closed_pools.mark(&mut access);
        self.core.engine.done(Order::SetAccess(access)).await
    }

    /// Returns the configured portals, including those that failed to open.
    pub(crate) fn portals(&self) -> Vec<PortalReport> {
        self.portals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a portal, replacing an earlier record of its address.
    pub(crate) fn remember(&self, portal: PortalReport) {
        let mut portals = self.portals.lock().unwrap_or_else(PoisonError::into_inner);
        portals.retain(|known| known.address != portal.address);
        portals.push(portal);
    }

    pub(crate) fn forget(&self, address: SocketAddr) {
        self.portals.lock().unwrap_or_else(PoisonError::into_inner).retain(|portal| portal.address != address);
    }
}

/// Confirmations that a request for a change carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    /// True when sessions may end or lose access.
    pub disruption: bool,
    /// True when a LUN that hosts know as one volume may become another.
    pub luns: bool,
    /// The command-line option that confirms a disruption.
    pub option: &'static str,
}

impl Confirmation {
    /// Confirms everything: for automatic changes and for rollbacks.
    pub(crate) const ALL: Self = Self { disruption: true, luns: true, option: "" };

    /// Confirms the loss of access if `force` is set, never the reuse of a LUN.
    pub(crate) fn forced(force: bool) -> Self {
        Self { disruption: force, luns: false, option: "--force" }
    }
}
