//! A logical unit: a block device as initiators see it.

mod at_once;
mod copied;
mod execute;
mod owner;
mod parameters;
mod reservations;
mod tasks;

use crate::alua::PortGroups;
use crate::command::NexusId;
use crate::copy::{Copies, Neighbours};
use crate::identity::{Identity, Options, Provisioning, TargetPort};
use crate::keeper::{Keeper, NotKept, Persistence};
use crate::kept::Kept;
use crate::medium::Medium;
use crate::mode::ModePages;
use crate::nexus::Incoming;
use crate::nexus::{InitiatorPort, ItNexus, Nexuses};
use crate::readiness::Readiness;
use crate::reservation::Reservations;
use crate::sanitize::{Sanitize, Sanitizer};
use crate::shape::Shape;
use crate::task_set::{Aborted, Affected, TaskSet};
use block::{BlockDevice, Geometry};
use std::rc::Rc;
use std::sync::Arc;

/// The device server and the task set of one logical unit (SAM-5, logical unit), over any block device.
///
/// It belongs to one shard. It is composed of parts that do not know it: each keeps one thing that SCSI knows of the unit, and
/// is given what it needs of the others.
#[derive(Debug)]
pub struct LogicalUnit<D> {
    identity: Identity,
    options: Options,
    /// Its blocks.
    medium: Medium<D>,
    /// Who reaches it, and which unit attentions each has pending.
    nexuses: Rc<Nexuses>,
    /// Which tasks there are, and which of them wait.
    tasks: TaskSet,
    mode: Rc<ModePages>,
    /// Whether it is started, and its medium is there.
    readiness: Readiness,
    reservations: Reservations,
    /// Through which target port groups it is served, and how well.
    port_groups: PortGroups,
    /// What its copy manager knows of copies.
    copies: Copies,
    sanitize: Sanitize,
    /// What keeps its reservations, saved mode parameters and sanitize operation through power loss.
    persistence: Persistence,
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// A logical unit that no nexus reaches yet. It is thin when the device tells its space, whatever the
    /// options say.
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

    /// The unit, whose reservations `keeper` keeps and knows the ports for.
    #[must_use]
    pub fn with_keeper(self, keeper: Rc<dyn Keeper>) -> Self {
        Self { persistence: Persistence::by(keeper), ..self }
    }

    /// The unit, whose nexuses see what `neighbours` says. Without, they see nothing to copy from or to.
    #[must_use]
    pub fn with_neighbours(self, neighbours: Rc<dyn Neighbours>) -> Self {
        Self { copies: Copies::between(neighbours), ..self }
    }

    /// The unit, which `sanitizer` has sanitized; without one SANITIZE is not known.
    #[must_use]
    pub fn with_sanitizer(self, sanitizer: Rc<dyn Sanitizer>) -> Self {
        Self { sanitize: Sanitize::by(sanitizer), ..self }
    }

    /// The unit is as its keeper has kept it last. Nobody has reached it yet.
    pub fn restore(&self, kept: Kept) {
        self.reservations.install(kept.reservations);
        self.sanitize.install(kept.sanitize);
        self.mode.restore(kept.mode);
    }

    /// What is to be [restored](Self::restore) in the unit that takes the place of this one in the same run of its owner:
    /// registrations, too, that do not survive power loss.
    pub fn handed_over(&self) -> Kept {
        self.kept()
    }

    /// What survives power loss as it is now.
    fn kept(&self) -> Kept {
        let reservations = self.reservations.state().clone();
        Kept { reservations, sanitize: self.sanitize.state(), mode: self.mode.saved() }
    }

    /// `kept` survives power loss, where anything does. The caller has its turn ([`TURN`](crate::task_set::TURN)).
    async fn keep(&self, kept: Kept) -> Result<(), NotKept> {
        self.persistence.keep(kept.emit()).await
    }

    /// The device below.
    pub fn device(&self) -> &D {
        self.medium.device()
    }

    /// Who the unit is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What CDBs are judged against now. It changes when the device grows.
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

    /// No more than WRITE ATOMIC (16) can name and one command may move.
    fn atomic_blocks_max(&self, geometry: Geometry) -> u32 {
        let bytes = self.medium.device().atomic_bytes_max().min(self.options.transfer_bytes_max);
        bytes.checked_div(geometry.block_bytes).unwrap_or(0).min(u32::from(u16::MAX))
    }

    /// `nexus`, which comes from `initiator`, reaches the unit through `port` from now on, and will be told once that
    /// everything it knew of the unit may be wrong (29/00). What the two ports are registered for holds again.
    pub fn attach(&self, nexus: NexusId, initiator: InitiatorPort, port: Rc<TargetPort>) {
        assert_ne!(nexus, NexusId(u64::MAX), "the highest number is nobody's");
        let name = Rc::new(ItNexus::new(initiator, &port));
        let standing = self.reservations.standing(&name);
        self.nexuses.attach(nexus, name, port, standing);
    }

    /// Commands of `nexus` that wait for their data are counted in `incoming`: what clears its tasks clears these.
    pub fn set_incoming(&self, nexus: NexusId, incoming: Arc<Incoming>) {
        incoming.tell_block_bytes(self.medium.geometry().block_bytes);
        self.nexuses.set_incoming(nexus, incoming);
    }

    /// `nexus` may not write from now on, or may again; others are not concerned.
    pub fn set_read_only(&self, nexus: NexusId, read_only: bool) {
        self.nexuses.set_read_only(nexus, read_only);
    }

    /// `nexus` is lost (SAM-5, I_T nexus loss): its tasks are aborted, what it was to be told is forgotten, and what it
    /// reserved with RESERVE is free. Its registration stays.
    ///
    /// Its tasks that have begun still run to their end, which comes as
    /// [`Status::Unanswered`](crate::Status::Unanswered): keep polling them, so that no write of an
    /// old session lands after those of its successor.
    pub fn detach(&self, nexus: NexusId) {
        self.end_nexus(nexus, Aborted::Unanswered);
    }

    /// The unit is removed from what `nexus` sees, which goes on: as [`LogicalUnit::detach`], but the initiator waits for its
    /// commands, so they end with TASK ABORTED. TAS does not matter: there is no unit any more that could tell otherwise.
    pub fn withdraw(&self, nexus: NexusId) {
        self.nexuses.clear_incoming(true, |one| one == nexus);
        self.end_nexus(nexus, Aborted::Told);
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
