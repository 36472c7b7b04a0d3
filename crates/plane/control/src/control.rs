//! The one place that changes the desired state.

use crate::access::Access;
use crate::core::Core;
use crate::live::Live;
use crate::machine::Machine;
use crate::parts::Health;
use crate::parts::Noticed;
use crate::parts::Registration;
use crate::parts::Vigil;
use crate::parts::Written;
use crate::privileged::Confinement;
use crate::{Engine, Settings, Store};
use model::{DiskName, Name, Order, PoolState, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// The control plane: the state, the data plane that makes it so, and one change at a time.
pub struct Control {
    /// The state, the data plane, and one change at a time.
    pub core: Arc<Core>,
    /// Access control, and the portals that it applies to.
    pub(crate) access: Arc<Access>,
    /// One document is applied at a time.
    pub(crate) applying: tokio::sync::Mutex<()>,
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
pub fn confined(control: Control, confinement: Confinement) -> Control {
    control.core.confine(confinement);
    control
}

impl Control {
    pub(crate) fn new(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let core = Arc::new(Core::new(settings, store, engine)?);
        let access = Arc::new(Access::new(core.clone()));
        let (applying, isns, machine, health, memory, noticed, live, refused, seen) = Default::default();
        Ok(Self { core, access, applying, isns, machine, health, memory, noticed, live, refused, seen })
    }

    /// Every change under way has ended, the data plane has stopped cleanly, and no change follows.
    ///
    /// *Errors*: what the data plane could not do; it has stopped as far as it could.
    pub async fn stop(&self) -> Result<(), Refusal> {
        if let Err(refusal) = self.note_refused_at_last().await {
            tracing::warn!(%refusal, "who was not let in lately could not be written down");
        }
        let turn = self.core.turn().await;
        let stopped = self.core.engine.done(Order::Stop).await;
        // A change that still waits for its turn never gets it.
        std::mem::forget(turn);
        stopped
    }
}
