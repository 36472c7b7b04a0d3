//! The one place that changes the desired state.

use crate::event_log::EventLog;
use crate::live::Live;
use crate::machine::Machine;
use crate::parts::Consent;
use crate::parts::Health;
use crate::parts::Noticed;
use crate::parts::Registration;
use crate::parts::Vigil;
use crate::parts::Written;
use crate::privileged::{Confinement, Privileged};
use crate::state::lun_memory::Replaced;
use crate::{AuditHead, Engine, Settings, State, Store};
use model::{DiskName, Name, Order, PoolState, PortalReport, PortalState, Refusal, Subject, SubjectKind, event};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{MutexGuard, watch};
use tokio::time::Instant;

/// The control plane: the state, the data plane that makes it so, and one change at a time.
pub struct Control {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) engine: Engine,
    change: tokio::sync::Mutex<()>,
    /// One document is applied at a time.
    pub(crate) applying: tokio::sync::Mutex<()>,
    portals: Mutex<Vec<PortalReport>>,
    pub(crate) events: EventLog,
    /// True once the daemon stops: see [`stopped`].
    pub(crate) stopping: watch::Sender<bool>,
    /// How we are registered with an iSNS server.
    pub(crate) isns: Registration,
    /// Where the kernel tells which block devices there are.
    pub(crate) machine: Machine,
    /// What disks say of their health.
    pub(crate) health: Health,
    /// How much memory there is, and what is used.
    pub(crate) memory: crate::parts::Memory,
    /// What parts of the daemon beside the data plane find wrong.
    pub(crate) noticed: Noticed,
    /// Who watches what happens just now.
    pub(crate) live: Live,
    /// What was written down of who was not let in.
    pub(crate) refused: tokio::sync::Mutex<Written>,
    /// How everything was when it was last looked at.
    pub(crate) seen: tokio::sync::Mutex<Seen>,
    /// Who does what the daemon has no privilege for.
    pub(crate) confinement: Confinement,
}

/// What the steward has seen in its last round.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) pools: BTreeMap<Name, PoolState>,
    pub(crate) vigil: Vigil,
    /// The version of the state that the disks of pools have a copy of.
    pub(crate) copied: u64,
    /// True where the state folder was not the one that was opened.
    pub(crate) replaced: bool,
    /// Disks that did not answer.
    pub(crate) stalled: BTreeSet<DiskName>,
    /// When all of the array was looked at last.
    pub(crate) looked: Option<Instant>,
    /// Remote disks that were lost, and when it was tried last to bring them back.
    pub(crate) returning: BTreeMap<DiskName, Instant>,
}

/// The control plane of a daemon that is confined so.
#[must_use]
pub fn confined(mut control: Control, confinement: Confinement) -> Control {
    control.confinement = confinement;
    control
}

/// Who does what this process has no privilege for; none where it has.
#[must_use]
pub fn privileged(control: &Control) -> Option<Arc<dyn Privileged>> {
    control.confinement.privileged.clone()
}

/// Held by the change that is under way.
pub(crate) type Turn<'a> = MutexGuard<'a, ()>;

impl Control {
    pub(crate) fn new(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let events = EventLog::open(&store)?;
        let (change, applying, portals, stopping, isns, machine, health, memory, noticed, live, refused, seen) =
            Default::default();
        let confinement = Confinement::default();
        Ok(Self {
            settings,
            store,
            engine,
            change,
            applying,
            portals,
            events,
            stopping,
            isns,
            machine,
            health,
            memory,
            noticed,
            live,
            refused,
            seen,
            confinement,
        })
    }

    /// The last record of the audit that the state tells of.
    #[must_use]
    pub fn audit_head(&self) -> AuditHead {
        self.store.audit_head()
    }

    /// The audit has this last record: what is written to the state next tells of it.
    pub fn note_audit_head(&self, head: AuditHead) {
        self.store.note_audit_head(head);
    }

    /// The desired state as it is now.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.store.state()
    }

    /// The facts that the daemon was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Answers that are long in coming end soon, and what was begun for others is taken back.
    pub fn announce_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Every change under way has ended, the data plane has stopped cleanly, and no change follows.
    ///
    /// *Errors*: what the data plane could not do; it has stopped as far as it could.
    pub async fn stop(&self) -> Result<(), Refusal> {
        if let Err(refusal) = self.note_refused_at_last().await {
            tracing::warn!(%refusal, "who was not let in lately could not be written down");
        }
        let turn = self.turn().await;
        let stopped = self.engine.done(Order::Stop).await;
        // A change that still waits for its turn never gets it.
        std::mem::forget(turn);
        stopped
    }

    /// Waits until no other change is under way.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        self.change.lock().await
    }

    /// The edited state is the state, durably, and remembers the LUN numbers that it takes away. Only with the turn.
    pub(crate) fn commit(&self, _turn: &Turn<'_>, edit: impl FnOnce(&mut State)) -> Result<(), Refusal> {
        let before = self.state();
        let mut next = State::clone(&before);
        edit(&mut next);
        next.remember_luns(&before)?;
        self.store.commit(next)
    }

    /// The edited state is the state, durably, and the data plane lets in accordingly. When it refuses,
    /// the state is what it was.
    ///
    /// *Errors*: hosts would find other volumes under numbers that they know, or sessions would lose something, and neither was
    /// confirmed; or what the data plane refuses.
    pub(crate) async fn commit_access(
        &self,
        turn: &Turn<'_>,
        consent: Consent,
        edit: impl FnOnce(&mut State),
    ) -> Result<(), Refusal> {
        let before = self.state();
        let mut next = State::clone(&before);
        edit(&mut next);
        let replaced = self.admit_access(turn, &before, &mut next, consent).await?;
        self.commit(turn, |state| *state = next)?;
        let applied = self.apply_access().await;
        self.or_restore(turn, applied, &before)?;
        replaced.iter().for_each(|lun| self.raise_replaced(lun));
        Ok(())
    }

    /// What the data plane answered. When it refused, the state is what it was `before`.
    pub(crate) fn or_restore(&self, _: &Turn<'_>, done: Result<(), Refusal>, before: &State) -> Result<(), Refusal> {
        if done.is_err() {
            // Nobody was shown what is taken back here, so there is nothing to remember of it.
            self.store.commit(before.clone())?;
        }
        done
    }

    /// The operator has given a number to another volume than a host knew under it.
    fn raise_replaced(&self, Replaced { who, target, lun, volume }: &Replaced) {
        let sentence = format!("LUN {lun} of {target} is volume {volume} now, and {who} knew another volume there");
        self.raise(event::LUN_REPLACED, Subject::new(SubjectKind::Host, who), sentence);
    }

    /// The data plane lets in as the state says.
    pub(crate) async fn apply_access(&self) -> Result<(), Refusal> {
        let open: Vec<SocketAddr> = self
            .portals()
            .iter()
            .filter(|portal| portal.state == PortalState::Open)
            .map(|portal| portal.address)
            .collect();
        self.engine.done(Order::SetAccess(self.state().access(&open))).await
    }

    /// The portals that were asked for, also those that could not be opened.
    pub(crate) fn portals(&self) -> Vec<PortalReport> {
        self.portals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The portal is known, in place of what was known of this address before.
    pub(crate) fn remember_portal(&self, portal: PortalReport) {
        let mut portals = self.portals.lock().unwrap_or_else(PoisonError::into_inner);
        portals.retain(|known| known.address != portal.address);
        portals.push(portal);
    }

    pub(crate) fn forget_portal(&self, address: SocketAddr) {
        self.portals.lock().unwrap_or_else(PoisonError::into_inner).retain(|portal| portal.address != address);
    }
}
