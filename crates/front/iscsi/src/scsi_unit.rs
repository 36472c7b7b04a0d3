//! SCSI view of a unit: the SBC-4 logical unit on top of the block device of an engine's unit.

mod reservations;
mod sanitize;
mod task_location;
mod trace;
mod units;

pub(crate) use reservations::kind_of;
pub(crate) use task_location::TaskLocation;
pub(crate) use trace::TraceRoom;
use trace::{Ended, Tracer};
pub(crate) use units::Units;

use crate::coalesced_events::CoalescedEvents;
use engine::{
    front::{FrontUnit, Pending},
    unit::{CommandStart, Store, Unit},
};
use iscsi::TaskId;
use model::{VolumeCounters, VolumeId, VolumeReport};
use scsi::{
    InitiatorPort, LogicalUnit, ManagementOutcome, NexusId, Outcome, PendingDataCounter, Status, TargetPort,
    TaskManagement,
};
use shard::{Time, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Unit of the engine as a SCSI logical unit, on its home shard.
pub struct ScsiUnit<W: World> {
    /// Unit of the engine.
    pub unit: Rc<Unit<W>>,
    pub(crate) logical_unit: LogicalUnit<Rc<Store<W>>>,
    world: W,
    tracer: Tracer,
    /// Attached nexuses with their initiator names.
    nexuses: RefCell<BTreeMap<NexusId, String>>,
    /// Coalesced events about reservation conflicts.
    conflicts: CoalescedEvents<W>,
}

/// Command for execution on a unit.
pub struct PendingCommand {
    /// Task identifier of the connection.
    pub task: TaskId,
    /// Issuing nexus.
    pub nexus: NexusId,
    /// Command with its data.
    pub command: scsi::Command,
    /// Announced data direction, on which the residual count depends.
    pub direction: DataDirection,
    /// Start time.
    pub clock: CommandStart,
}

/// Data direction announced by the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirection {
    /// No data.
    Neither,
    /// Data-out.
    Out,
    /// Data-in, or both directions: the residual count refers to data-in.
    In,
}

/// Command for the fast path, without ownership of its data.
#[derive(Clone, Copy)]
pub struct FastPathCommand<'a> {
    /// Issuing nexus.
    pub nexus: NexusId,
    /// Command with its data.
    pub command: scsi::CommandRef<'a>,
    /// Announced data direction, on which the residual count depends.
    pub direction: DataDirection,
    /// Start time.
    pub clock: CommandStart,
}

/// Completed command.
pub struct Completed {
    /// Task identifier of the connection.
    pub task: TaskId,
    /// Start time.
    pub clock: CommandStart,
    /// Result.
    pub result: CommandResult,
}

/// Result of a command.
pub struct CommandResult {
    /// Status, sense data and data-in.
    pub outcome: Outcome,
    /// Data-out bytes received with the command.
    pub written: u64,
    /// Data-out bytes that the CDB transfers, on which the residual count of a command without data-in is based. `None`
    /// for a command that returns data although none was expected.
    pub needed: Option<u64>,
    /// Completion time.
    pub ended: Time,
}

impl DataDirection {
    /// Returns the direction of the announced lengths.
    pub fn of(out_bytes: u32, in_bytes: u32) -> Self {
        match (out_bytes, in_bytes) {
            (0, 0) => Self::Neither,
            (_, 0) => Self::Out,
            _ => Self::In,
        }
    }

    /// Data-out length of a command that transfers none: see [`CommandResult::needed`].
    pub fn of_nothing(self) -> Option<u64> {
        (self == Self::Out).then_some(0)
    }
}

/// Data-out bytes that the command transfers: 0 when it is refused or returns data. `None` when the residual count is
/// based on its data-in.
fn needed_by(cdb: scsi::Cdb, shape: &scsi::Shape, way: DataDirection) -> Option<u64> {
    match (way, scsi::judge(cdb, shape)) {
        // The residual of a read is computed from the data returned.
        (DataDirection::In, _) => None,
        (DataDirection::Neither, Ok(need)) if need.data_in > 0 => None,
        (_, Ok(need)) => Some(need.data_out),
        // A command with an invalid CDB transfers nothing.
        (_, Err(_)) => Some(0),
    }
}

/// Executes a command on its unit.
pub(crate) async fn run<W: World>(unit: Rc<ScsiUnit<W>>, ran: PendingCommand) -> Completed {
    let PendingCommand { task, nexus, command, direction: way, clock } = ran;
    // The meter counts the command as in flight until it is ended or dropped.
    let metered = unit.unit.meter.begin(&unit.world, &unit.unit.latencies, clock);
    let written = command.data_out.len() as u64;
    // Evaluated before the execution, because the capacity can change while the command waits.
    let needed = needed_by(command.cdb, &unit.logical_unit.shape(), way);
    let cdb = command.cdb;
    // Numbered at the start, so that a trace shows the order of arrival.
    let number = unit.tracer.begin();
    let outcome = unit.logical_unit.execute(nexus, command).await;
    // Read at once: the next task of this shard may change the reservations.
    if outcome.status == Status::ReservationConflict {
        unit.tell_of_conflict(nexus, cdb);
    }
    let ended = metered.end();
    unit.trace_end(number, &Ended { nexus, cdb, clock, ended, written, outcome: &outcome });
    Completed { task, clock, result: CommandResult { outcome, written, needed, ended } }
}

impl PendingCommand {
    /// Borrowed view of the command, for the fast path.
    pub fn as_fast_path(&self) -> FastPathCommand<'_> {
        FastPathCommand {
            nexus: self.nexus,
            command: self.command.borrowed(),
            direction: self.direction,
            clock: self.clock,
        }
    }
}

/// Executes a command that completes synchronously. `None` when it cannot; it has had no effect in this case.
#[inline]
pub(crate) fn run_fast_path<W: World>(unit: &ScsiUnit<W>, brief: FastPathCommand<'_>) -> Option<CommandResult> {
    let FastPathCommand { nexus, command, direction: way, clock } = brief;
    let outcome = unit.logical_unit.execute_fast_path(nexus, command)?;
    let written = command.data_out.len() as u64;
    let needed = match outcome.status {
        // The residual of a read is computed from the data returned.
        _ if way == DataDirection::In => None,
        // A command with status GOOD has transferred either all data that it brought, or none of it.
        Status::Good if written > 0 => Some(if outcome.data_in.is_empty() { written } else { 0 }),
        _ => needed_by(command.cdb, &unit.logical_unit.shape(), way),
    };
    if outcome.status == Status::ReservationConflict {
        unit.tell_of_conflict(nexus, command.cdb);
    }
    let ended = unit.world.now();
    unit.unit.meter.pass(&unit.unit.latencies, clock, ended);
    let number = unit.tracer.begin();
    unit.trace_end(number, &Ended { nexus, cdb: command.cdb, clock, ended, written, outcome: &outcome });
    Some(CommandResult { outcome, written, needed, ended })
}

/// Answers a command for a unit that no longer exists.
pub(crate) fn answer_closed_unit(ran: PendingCommand) -> Completed {
    // REPORT LUNS is answered by the session, so no inventory is needed here.
    let outcome = scsi::no_unit::execute(ran.command.cdb, &[]);
    let end = CommandResult { outcome, written: 0, needed: ran.direction.of_nothing(), ended: ran.clock.began };
    Completed { task: ran.task, clock: ran.clock, result: end }
}

impl<W: World> ScsiUnit<W> {
    /// Creates the SCSI unit of `unit`, without any attached nexus. Reservation conflicts are reported through
    /// `conflicts`.
    pub fn new(
        world: W,
        unit: Rc<Unit<W>>,
        logical_unit: LogicalUnit<Rc<Store<W>>>,
        conflicts: CoalescedEvents<W>,
    ) -> Self {
        let (tracer, nexuses) = Default::default();
        Self { unit, logical_unit, world, tracer, nexuses, conflicts }
    }

    /// Applies the ALUA states of the portal groups.
    pub async fn set_port_groups(&self, groups: &[scsi::PortGroup]) {
        self.logical_unit.set_port_groups(groups).await;
    }

    /// Attaches `nexus`, which connects `initiator` with `port`.
    pub fn attach(
        &self,
        nexus: NexusId,
        initiator: InitiatorPort,
        port: TargetPort,
        incoming: Arc<PendingDataCounter>,
        read_only: bool,
    ) {
        self.nexuses.borrow_mut().insert(nexus, initiator.name.clone());
        self.logical_unit.attach(nexus, initiator, Rc::new(port));
        // After `attach`, which creates the nexus that both settings belong to.
        self.logical_unit.set_pending_data(nexus, incoming);
        self.logical_unit.set_read_only(nexus, read_only);
    }

    /// Detaches `nexus` after loss of the nexus; all of its commands have ended.
    pub fn detach(&self, nexus: NexusId) {
        self.nexuses.borrow_mut().remove(&nexus);
        self.logical_unit.detach(nexus);
    }

    /// Detaches `nexus` after its mapping was removed; its session continues, and its commands are answered.
    pub fn withdraw(&self, nexus: NexusId) {
        self.nexuses.borrow_mut().remove(&nexus);
        self.logical_unit.withdraw(nexus);
    }

    /// Reports to `nexus` that its LUN inventory has changed, and applies its access mode.
    pub fn inventory_changed(&self, nexus: NexusId, read_only: bool) {
        self.logical_unit.set_read_only(nexus, read_only);
        self.logical_unit.lun_inventory_changed(nexus);
    }

    /// Reports to `nexus` that the unit has replaced another one under its LUN.
    pub fn replaced_other_unit(&self, nexus: NexusId) {
        self.logical_unit.replaced_other_unit(nexus);
    }

    /// Clears the pending REPORTED LUNS DATA HAS CHANGED of `nexus` after REPORT LUNS.
    pub fn inventory_reported(&self, nexus: NexusId) {
        self.logical_unit.lun_inventory_reported(nexus);
    }

    /// Reports to `nexus` that commands were lost with a connection of its session.
    pub fn commands_lost(&self, nexus: NexusId) {
        self.logical_unit.commands_lost(nexus);
    }

    /// Executes a task management function.
    pub async fn manage(&self, nexus: NexusId, function: TaskManagement) -> ManagementOutcome {
        self.logical_unit.manage(nexus, function).await
    }

    /// Properties of the unit against which CDBs are validated.
    pub fn shape(&self) -> scsi::Shape {
        self.logical_unit.shape()
    }
}

impl<W: World> FrontUnit for ScsiUnit<W> {
    fn capacity_changed(&self) {
        self.logical_unit.capacity_changed();
    }

    fn content_replaced(&self) {
        self.logical_unit.medium_may_have_changed();
    }

    fn set_removable(&self, removable: bool) {
        self.logical_unit.set_removable(removable);
    }

    fn set_write_cache(&self, volatile: bool) {
        self.logical_unit.set_write_cache(volatile);
    }

    fn soft_threshold_reached(&self) {
        self.logical_unit.soft_threshold_reached();
    }

    fn check_thresholds(&self) {
        self.logical_unit.check_thresholds();
    }

    fn sessions(&self) -> usize {
        self.nexuses.borrow().len()
    }

    fn count(&self, counters: &mut VolumeCounters) {
        let counted = self.logical_unit.statistics();
        counters.reads += counted.reads;
        counters.writes += counted.writes;
        counters.read_bytes += counted.read_bytes;
        counters.written_bytes += counted.written_bytes;
        counters.errors += counted.errors;
        counters.conflicts += counted.conflicts;
    }

    fn describe(&self, report: &mut VolumeReport) {
        report.reservation = self.reservation_report();
        report.sanitize = self.sanitize_report();
    }

    fn is_being_sanitized(&self) -> bool {
        self.logical_unit.is_being_sanitized()
    }

    fn stop_sanitizing(&self) -> Pending<'_, ()> {
        Box::pin(self.logical_unit.stop_sanitizing())
    }
}

/// SCSI identity of a volume. Derived only from the volume identifier, so it is the same on every path, after every
/// restart and on every node.
pub(crate) fn identity(id: VolumeId) -> scsi::Identity {
    let uuid = id.to_bytes();
    // NAA 6, locally assigned: the upper half of the first byte says so, the other 124 bits come from the random
    // identifier.
    let mut naa = uuid;
    naa[0] = 0x60 | (naa[0] & 0x0f);
    scsi::Identity {
        vendor: "BLOCKYRD".to_owned(),
        product: "Volume".to_owned(),
        revision: env!("CARGO_PKG_VERSION_MAJOR").to_owned() + "." + env!("CARGO_PKG_VERSION_MINOR"),
        serial: id.to_string().replace('-', ""),
        naa,
        uuid,
    }
}
