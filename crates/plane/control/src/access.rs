//! Changes of who may log in where and who sees what: the state and the data plane's access control change together.
//!
//! Hosts, groups, targets, presentations, portals and authentication commit here, so that every change is checked for sessions that would lose access
//! ([`crate::impact`]). The portals are here because the data plane is told which of them are open.

use crate::State;
use crate::absences::Absences;
use crate::core::{Core, Turn};
use crate::state::lun_memory::Replaced;
use model::{Order, PortalReport, PortalState, Refusal, Subject, SubjectKind, event};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Access control, and the portals that it applies to.
pub(crate) struct Access {
    pub(crate) core: Arc<Core>,
    /// The portals that were asked for, also those that could not be opened.
    portals: Mutex<Vec<PortalReport>>,
    /// Pools that are not open, and what they wait for.
    pub(crate) absences: Absences,
}

impl Access {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, portals: Mutex::default(), absences: Absences::default() }
    }

    /// The edited state is the state, durably, and the data plane lets in accordingly. When it refuses,
    /// the state is what it was.
    ///
    /// *Errors*: hosts would find other volumes under numbers that they know, or sessions would lose something, and neither was
    /// confirmed; or what the data plane refuses.
    pub(crate) async fn commit(
        &self,
        turn: &Turn<'_>,
        consent: Consent,
        edit: impl FnOnce(&mut State),
    ) -> Result<(), Refusal> {
        let before = self.core.state();
        let mut next = State::clone(&before);
        edit(&mut next);
        let replaced = self.admit(turn, &before, &mut next, consent).await?;
        self.core.commit(turn, |state| *state = next)?;
        let applied = self.apply().await;
        self.core.or_restore(turn, applied, &before)?;
        replaced.iter().for_each(|lun| self.raise_replaced(lun));
        Ok(())
    }

    /// The operator has given a number to another volume than a host knew under it.
    fn raise_replaced(&self, Replaced { who, target, lun, volume }: &Replaced) {
        let sentence = format!("LUN {lun} of {target} is volume {volume} now, and {who} knew another volume there");
        self.core.raise(event::LUN_REPLACED, Subject::new(SubjectKind::Host, who), sentence);
    }

    /// The data plane lets in as the state says.
    pub(crate) async fn apply(&self) -> Result<(), Refusal> {
        let open: Vec<SocketAddr> = self
            .portals()
            .iter()
            .filter(|portal| portal.state == PortalState::Open)
            .map(|portal| portal.address)
            .collect();
        let mut access = self.core.state().access(&open);
        self.absences.mark(&mut access);
        self.core.engine.done(Order::SetAccess(access)).await
    }

    /// The portals that were asked for, also those that could not be opened.
    pub(crate) fn portals(&self) -> Vec<PortalReport> {
        self.portals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The portal is known, in place of what was known of this address before.
    pub(crate) fn remember(&self, portal: PortalReport) {
        let mut portals = self.portals.lock().unwrap_or_else(PoisonError::into_inner);
        portals.retain(|known| known.address != portal.address);
        portals.push(portal);
    }

    pub(crate) fn forget(&self, address: SocketAddr) {
        self.portals.lock().unwrap_or_else(PoisonError::into_inner).retain(|portal| portal.address != address);
    }
}

/// What the operator who asks for a change has confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consent {
    /// True when sessions may end or lose access.
    pub disruption: bool,
    /// True when a LUN that hosts know as one volume may become another.
    pub luns: bool,
    /// The option that confirms the first.
    pub option: &'static str,
}

impl Consent {
    /// Whatever it costs: what the array does by itself, and what takes back.
    pub(crate) const ALL: Self = Self { disruption: true, luns: true, option: "" };

    /// Sessions may lose something when it is forced.
    pub(crate) fn forced(force: bool) -> Self {
        Self { disruption: force, luns: false, option: "--force" }
    }
}
