//! Logical unit: a block device as initiators address it, composed of the components of this crate.

mod copied;
mod execute;
mod fast_path;
mod owner;
mod parameters;
mod reservations;
mod tasks;

use crate::alua::PortGroups;
use crate::command::NexusId;
use crate::copy::{Copies, CopyEnvironment};
use crate::identity::{Identity, Options, Provisioning, TargetPort};
use crate::medium::Medium;
use crate::mode::ModePages;
use crate::nexus::PendingDataCounter;
use crate::nexus::{InitiatorPort, ItNexus, Nexuses};
use crate::persistence::{Persistence, StateStore, StoreError};
use crate::persistent_state::PersistentState;
use crate::readiness::Readiness;
use crate::reservation::Reservations;
use crate::sanitize::{Sanitize, Sanitizer};
use crate::shape::Shape;
use crate::task_set::{Aborted, Affected, TaskSet};
use block::{BlockDevice, Geometry};
use std::rc::Rc;
use std::sync::Arc;

/// Device server and task set of one logical unit (SAM-5, logical unit) over any block device.
///
/// Owned by one shard and never shared between threads. The components do not know the unit: each holds one part of the
/// SCSI state and is given references to the others as a command needs them.
#[derive(Debug)]
pub struct LogicalUnit<D> {
    identity: Identity,
    options: Options,
    /// Block device, with geometry, ROD tokens and counters.
    medium: Medium<D>,
    /// Attached I_T nexuses and the pending unit attentions of each.
    nexuses: Rc<Nexuses>,
    /// Tasks that have been accepted and have not completed.
    tasks: TaskSet,
    mode: Rc<ModePages>,
    /// Start/stop state and presence of the medium.
    readiness: Readiness,
    reservations: Reservations,
    /// Access state of each target port group (ALUA).
    port_groups: PortGroups,
    /// State of the copy manager: third-party copies and ROD tokens.
    copies: Copies,
    sanitize: Sanitize,
    /// Store that keeps reservations, saved mode parameters and the sanitize operation through power loss.
    persistence: Persistence,
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// Creates a logical unit without attached nexuses. A device that reports its space makes the unit thin
    /// provisioned, regardless of `options`.
    #[must_use]
    pub fn new(device: D, identity: Identity, options: Options) -> Self {
        let (mode, nexuses) = (Rc::<ModePages>::default(), Rc::<Nexuses>::default());
        Self {
            identity,
            options,
            medium: Medium::new(device, options.provisioning, mode.clone(), nexuses.clone()),
            nexuses,
            tasks: TaskSet::new(options.tasks_max),
            mode,
            readiness: Readiness::new(options.removable),
            reservations: Reservations::default(),
            port_groups: PortGroups::default(),
            copies: Copies::default(),
            sanitize: Sanitize::default(),
            persistence: Persistence::default(),
        }
    }

    /// Sets the state store, which persists reservations and enumerates the target ports of the unit.
    #[must_use]
    pub fn with_state_store(self, keeper: Rc<dyn StateStore>) -> Self {
        Self { persistence: Persistence::by(keeper), ..self }
    }

    /// Sets the copy environment, which resolves the units that a nexus may copy from and to. Without it, no unit can
    /// be named in a third-party copy.
    #[must_use]
    pub fn with_copy_environment(self, neighbours: Rc<dyn CopyEnvironment>) -> Self {
        Self { copies: Copies::new(neighbours), ..self }
    }

    /// Sets the `sanitizer`, which carries out SANITIZE. Without one, SANITIZE is an unknown operation.
    #[must_use]
    pub fn with_sanitizer(self, sanitizer: Rc<dyn Sanitizer>) -> Self {
        Self { sanitize: Sanitize::by(sanitizer), ..self }
    }

    /// Restores the state that was stored last. Must be called before any nexus is attached.
    pub fn restore(&self, kept: PersistentState) {
        // No nexus is attached yet, so no command can observe an intermediate state.
        self.reservations.install(kept.reservations);
        self.sanitize.install(kept.sanitize);
        self.mode.restore(kept.mode);
    }

    /// Returns the state to [restore](Self::restore) in the unit that replaces this one within the same process. It
    /// includes registrations that do not survive power loss (APTPL is zero).
    pub fn state_for_handover(&self) -> PersistentState {
        self.persistent_state()
    }

    /// Collects the persistent state as it is now.
    fn persistent_state(&self) -> PersistentState {
        let reservations = self.reservations.state().clone();
        PersistentState { reservations, sanitize: self.sanitize.state(), mode: self.mode.saved() }
    }

    /// Makes `kept` durable, where there is a state store. The caller must hold the serialization slot
    /// [`PERSISTENT_STATE_SLOT`](crate::task_set::PERSISTENT_STATE_SLOT).
    async fn store(&self, kept: PersistentState) -> Result<(), StoreError> {
        self.persistence.store(kept.emit()).await
    }

    /// Returns the block device below the unit.
    pub fn device(&self) -> &D {
        self.medium.device()
    }

    /// Returns the identity that the unit reports (VPD pages, serial number, vendor).
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the limits that CDBs are validated against. They change when the device grows.
    pub fn shape(&self) -> Shape {
        self.shape_of(self.medium.geometry())
    }

    fn shape_of(&self, geometry: Geometry) -> Shape {
        Shape {
            block_bytes: geometry.block_bytes,
            blocks: geometry.blocks.0,
            transfer_bytes_max: self.options.transfer_bytes_max,
            unmap: self.medium.provisioning() != Provisioning::Full,
            atomic_blocks_max: self.atomic_blocks_max(geometry),
            sanitize: self.sanitize.is_offered(),
            key: self.sanitize.has_key(),
            removable: self.readiness.is_removable(),
            read_only: self.options.read_only,
        }
    }

    /// Returns the maximum length of WRITE ATOMIC (16) in blocks: bounded by the device, by the transfer length limit
    /// and by the 16-bit field of the CDB. Zero where the device does not write atomically.
    fn atomic_blocks_max(&self, geometry: Geometry) -> u32 {
        let bytes = self.medium.device().atomic_bytes_max().min(self.options.transfer_bytes_max);
        // The device may support larger atomic writes than one command can express.
        bytes.checked_div(geometry.block_bytes).unwrap_or(0).min(u32::from(u16::MAX))
    }

    /// Attaches `nexus`, which connects `initiator` with `port`, and establishes a unit attention (29/00 POWER ON,
    /// RESET, OR BUS DEVICE RESET OCCURRED). A persistent registration of the same two ports applies again.
    pub fn attach(&self, nexus: NexusId, initiator: InitiatorPort, port: Rc<TargetPort>) {
        // The highest number is used for the owner's own tasks.
        assert_ne!(nexus, NexusId(u64::MAX), "the highest number is nobody's");
        let name = Rc::new(ItNexus::new(initiator, &port));
        // Registrations are bound to port names, so a new session of a registered initiator port is a registrant at
        // once.
        let standing = self.reservations.role(&name);
        self.nexuses.attach(nexus, name, port, standing);
    }

    /// Sets the counter of commands of `nexus` that await their data: an operation that clears tasks of the nexus
    /// clears these commands, too.
    pub fn set_pending_data(&self, nexus: NexusId, incoming: Arc<PendingDataCounter>) {
        incoming.set_block_bytes(self.medium.geometry().block_bytes);
        self.nexuses.set_pending_data(nexus, incoming);
    }

    /// Sets or lifts write protection for `nexus` alone.
    pub fn set_read_only(&self, nexus: NexusId, read_only: bool) {
        self.nexuses.set_read_only(nexus, read_only);
    }

    /// Handles the loss of `nexus` (SAM-5, I_T nexus loss): aborts its tasks, drops its pending unit attentions and
    /// releases its RESERVE reservation. Its persistent registration stays.
    ///
    /// Tasks that have begun still run to completion, with [`Status::Unanswered`](crate::Status::Unanswered). The
    /// caller must keep polling them, so that no write of an old session lands after those of its successor.
    pub fn detach(&self, nexus: NexusId) {
        self.end_nexus(nexus, Aborted::Unanswered);
    }

    /// Removes the unit from the view of `nexus`, whose session continues. As [`LogicalUnit::detach`], but the
    /// initiator still awaits its commands, so they end with TASK ABORTED. The TAS bit is not consulted: no unit
    /// remains that could report a unit attention instead.
    pub fn withdraw(&self, nexus: NexusId) {
        // Commands that still await their data have not reached the task set, so they are cleared separately.
        self.nexuses.clear_pending_data(true, |one| one == nexus);
        self.end_nexus(nexus, Aborted::WithStatus);
    }

    fn end_nexus(&self, nexus: NexusId, how: Aborted) {
        self.tasks.abort(Affected::OfNexus(nexus), |_| how);
        self.reservations.release_of(nexus);
        self.copies.forget(nexus);
        self.readiness.forget(nexus);
        self.nexuses.detach(nexus);
    }
}

#[cfg(test)]
pub(crate) mod tests;
