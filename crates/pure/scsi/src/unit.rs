//! A logical unit: a block device as initiators see it.

mod at_once;
mod execute;

use crate::alua::PortGroups;
use crate::attention::UnitAttention;
use crate::command::{ManagementOutcome, NexusId, TaskAttribute, TaskManagement, TaskTag};
use crate::copy::Copies;
use crate::identity::{Identity, Options, Provisioning, TargetPort};
use crate::incoming::Incoming;
use crate::log::{Counters, Statistics};
use crate::medium::Medium;
use crate::mode::ModeParameters;
use crate::nexus::{InitiatorPort, ItNexus, Nexuses};
use crate::reservation::Reservations;
use crate::sanitize::{EVERYTHING, Sanitize};
use crate::shape::Shape;
use crate::task_set::{Aborted, Affected, Claim, TaskSet, TaskStanding, Ticket};
use crate::threshold::Reached;
use crate::token::Tokens;
use block::{BlockDevice, Extent, Geometry};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

/// The device server and the task set of one logical unit (SAM-5, logical unit), over any block device.
///
/// It belongs to one shard. Its state is what SCSI knows of the unit: nexuses and what they have not
/// been told, tasks under way, mode parameters, counters.
#[derive(Debug)]
pub struct LogicalUnit<D> {
    pub(crate) device: D,
    pub(crate) identity: Identity,
    pub(crate) options: Options,
    pub(crate) tasks: TaskSet,
    pub(crate) nexuses: Nexuses,
    pub(crate) mode: Cell<ModeParameters>,
    /// What a reset brings back.
    pub(crate) saved_mode: Cell<ModeParameters>,
    pub(crate) stopped: Cell<bool>,
    pub(crate) medium: Medium,
    pub(crate) counters: Counters,
    pub(crate) reservations: Reservations,
    pub(crate) port_groups: PortGroups,
    pub(crate) copies: Copies,
    pub(crate) tokens: Tokens,
    pub(crate) sanitize: Sanitize,
    /// True when the device tells its space: a thin one, with thresholds.
    pub(crate) tells_space: bool,
    pub(crate) reached: Cell<Reached>,
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// A logical unit that no nexus reaches yet. It is thin when the device tells its space, whatever the
    /// options say.
    #[must_use]
    pub fn new(device: D, identity: Identity, mut options: Options) -> Self {
        let tells_space = device.space().is_some();
        if tells_space {
            options.provisioning = Provisioning::Thin;
        }
        Self {
            device,
            identity,
            options,
            tasks: TaskSet::new(options.tasks_max),
            nexuses: Nexuses::default(),
            mode: Cell::default(),
            saved_mode: Cell::default(),
            stopped: Cell::new(false),
            medium: Medium::new(options.removable),
            counters: Counters::default(),
            reservations: Reservations::default(),
            port_groups: PortGroups::default(),
            copies: Copies::default(),
            tokens: Tokens::default(),
            sanitize: Sanitize::default(),
            tells_space,
            reached: Cell::default(),
        }
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Who the unit is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What CDBs are judged against now. It changes when the device grows.
    pub fn shape(&self) -> Shape {
        self.shape_of(self.device.geometry())
    }

    pub(crate) fn shape_of(&self, geometry: Geometry) -> Shape {
        Shape {
            block_bytes: geometry.block_bytes,
            blocks: geometry.blocks.0,
            transfer_bytes_max: self.options.transfer_bytes_max,
            unmap: self.options.provisioning != Provisioning::Full,
            atomic_blocks_max: self.atomic_blocks_max(geometry),
            sanitize: self.sanitize.is_offered(),
            key: self.sanitize.has_key(),
            removable: self.medium.is_removable(),
            read_only: self.options.read_only,
        }
    }

    /// No more than WRITE ATOMIC (16) can name and one command may move.
    fn atomic_blocks_max(&self, geometry: Geometry) -> u32 {
        let bytes = self.device.atomic_bytes_max().min(self.options.transfer_bytes_max);
        bytes.checked_div(geometry.block_bytes).unwrap_or(0).min(u32::from(u16::MAX))
    }

    /// `nexus`, which comes from `initiator`, reaches the unit through `port` from now on, and will be told once that
    /// everything it knew of the unit may be wrong (29/00). What the two ports are registered for holds again.
    pub fn attach(&self, nexus: NexusId, initiator: InitiatorPort, port: Rc<TargetPort>) {
        let name = Rc::new(ItNexus::new(initiator, &port));
        let standing = self.reservations.standing(&name);
        self.nexuses.attach(nexus, name, port, standing);
    }

    /// Commands of `nexus` that wait for their data are counted in `incoming`: what clears its tasks clears these.
    pub fn set_incoming(&self, nexus: NexusId, incoming: Arc<Incoming>) {
        incoming.tell_block_bytes(self.device.geometry().block_bytes);
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
        self.release_reserve_of(nexus);
        self.copies.forget(nexus);
        self.medium.forget(nexus);
        self.nexuses.detach(nexus);
    }

    /// Is ready when no task of `nexus` is under way any more: what a successor's login waits for.
    pub async fn quiesced(&self, nexus: NexusId) {
        self.tasks.ended(Affected::OfNexus(nexus)).await;
    }

    /// Carries out a task management function for `nexus`. When it returns, none of the affected tasks runs any more. Those
    /// of `nexus` are not answered; those of others end with TASK ABORTED, or without an answer and 2F/00 where TAS is zero.
    ///
    /// Tasks that have begun are waited for, not torn out of the device, so that nothing that they write
    /// lands later. Their futures must be polled meanwhile.
    pub async fn manage(&self, nexus: NexusId, function: TaskManagement) -> ManagementOutcome {
        let affected = match function {
            TaskManagement::AbortTask(tag) => Affected::One(nexus, tag),
            TaskManagement::AbortTaskSet => Affected::OfNexus(nexus),
            TaskManagement::ClearTaskSet | TaskManagement::LogicalUnitReset | TaskManagement::TargetReset => {
                Affected::All
            }
        };
        let tells = self.mode.get().task_aborted_status;
        let mut cleared = self.tasks.nexuses();
        if matches!(affected, Affected::All) {
            // Its own that wait were dropped by whoever received them.
            cleared.extend(self.nexuses.clear_incoming(tells, |other| other != nexus));
        }
        let found = self.tasks.abort(affected, |one| self.aborted_by(nexus, one));
        match function {
            TaskManagement::AbortTask(_) if !found => return ManagementOutcome::TaskDoesNotExist,
            TaskManagement::AbortTask(_) | TaskManagement::AbortTaskSet => {}
            TaskManagement::ClearTaskSet => self.tell_of_cleared(cleared.into_iter().filter(|&other| other != nexus)),
            TaskManagement::LogicalUnitReset | TaskManagement::TargetReset => self.reset(),
        }
        self.tasks.ended(affected).await;
        ManagementOutcome::Complete
    }

    /// How a task of `owner` ends that `nexus` aborts.
    ///
    /// Source: SPC-4, TAS in the control mode page.
    pub(crate) fn aborted_by(&self, nexus: NexusId, owner: NexusId) -> Aborted {
        let is_told = owner != nexus && self.mode.get().task_aborted_status;
        if is_told { Aborted::Told } else { Aborted::Unanswered }
    }

    /// Tasks of `others` were cleared. With TAS each of them is answered; without, a unit attention is all that they hear.
    ///
    /// Source: SAM-5, COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub(crate) fn tell_of_cleared(&self, others: impl Iterator<Item = NexusId>) {
        if !self.mode.get().task_aborted_status {
            others.for_each(|other| self.nexuses.establish(other, UnitAttention::CommandsCleared));
        }
    }

    /// Tasks of `nexus` ended with a connection of its session, which goes on; it is told (47/7F).
    ///
    /// Source: RFC 7143 §7.6.
    pub fn commands_lost(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::CommandsLost);
    }

    /// The number of blocks changed; every nexus is told (2A/09).
    pub fn capacity_changed(&self) {
        self.nexuses.establish_for_all(UnitAttention::CapacityChanged);
    }

    /// WRITEs without FUA are answered before they are stable from now on (WCE is one), or not any more; every nexus
    /// is told when that is new (2A/01). SYNCHRONIZE CACHE, and whatever else promises it, makes everything stable.
    pub fn set_write_cache(&self, enabled: bool) {
        let before = self.mode.get();
        if before.write_cache != enabled {
            self.mode.set(ModeParameters { write_cache: enabled, ..before });
            self.nexuses.establish_for_all(UnitAttention::ModeParametersChanged);
        }
    }

    /// Blocks may hold something else than hosts wrote, as after a roll-back; every nexus is told (28/00).
    ///
    /// Hosts do not forget what they have cached because of it: the caller sees to it that nobody has the unit in use.
    pub fn medium_may_have_changed(&self) {
        self.tokens.cancel(EVERYTHING);
        self.nexuses.establish_for_all(UnitAttention::MediumMayHaveChanged);
    }

    /// The set of units that `nexus` sees beside this one changed; it is told (3F/0E).
    pub fn lun_inventory_changed(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::LunsChanged);
    }

    /// The number under which `nexus` sees this unit was another unit's before; it is told (3F/03), beside that the nexus is new.
    pub fn took_the_place_of_another(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::InquiryDataChanged);
    }

    /// The tasks that have no answer yet. Those that end at once never are tasks.
    #[must_use]
    pub fn standing_tasks(&self) -> Vec<TaskStanding> {
        self.tasks.standing()
    }

    /// What the unit has done since it came up.
    pub fn statistics(&self) -> Statistics {
        self.counters.statistics(self.device.geometry().block_bytes)
    }

    /// `nexus` has read the list of units elsewhere; it need not be told that it changed.
    pub fn lun_inventory_reported(&self, nexus: NexusId) {
        self.nexuses.clear(nexus, UnitAttention::LunsChanged);
    }

    /// The owner's turn at a place where tasks wait for each other. A function that ends all tasks does not end this one.
    pub(crate) async fn owner_turn(&self, place: Extent) -> Ticket<'_> {
        let attribute = TaskAttribute::Simple;
        let claim =
            Claim { nexus: NexusId(u64::MAX), tag: TaskTag(0), attribute, extent: place, alone: true, is_part: false };
        let mut turn = self.tasks.enter_anyway(claim);
        while poll_fn(|cx| turn.poll_begun(cx)).await.is_err() {
            turn = self.tasks.enter_anyway(claim);
        }
        turn
    }

    fn reset(&self) {
        let write_cache = self.mode.get().write_cache;
        self.mode.set(ModeParameters { write_cache, ..self.saved_mode.get() });
        self.stopped.set(false);
        self.medium.reset();
        self.reservations.set_reserved_by(None);
        self.nexuses.establish_for_all(UnitAttention::Reset);
    }
}

#[cfg(test)]
pub(crate) mod tests;
