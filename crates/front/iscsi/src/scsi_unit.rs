//! A unit as SCSI initiators see it: the logical unit of SBC-4 over the device of an engine's unit.

mod reservations;
mod sanitize;
mod standing;
mod trace;
mod units;

pub(crate) use reservations::kind_of;
pub(crate) use standing::Place;
pub(crate) use trace::TraceRoom;
use trace::{Ended, Tracer};
pub(crate) use units::Units;

use crate::repeats::Repeats;
use engine::{
    front::{FrontUnit, Pending},
    unit::{Clock, Store, Unit},
};
use iscsi::TaskId;
use model::{VolumeCounters, VolumeId, VolumeReport};
use scsi::{
    Incoming, InitiatorPort, LogicalUnit, ManagementOutcome, NexusId, Outcome, Status, TargetPort, TaskManagement,
};
use shard::{Time, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A unit of the engine, served to SCSI initiators on its home shard.
pub struct ScsiUnit<W: World> {
    /// What is served.
    pub unit: Rc<Unit<W>>,
    pub(crate) logical_unit: LogicalUnit<Rc<Store<W>>>,
    world: W,
    tracer: Tracer,
    /// Who reaches the unit, by the names of their initiators.
    nexuses: RefCell<BTreeMap<NexusId, String>>,
    conflicts: Repeats<W>,
}

/// A command on its way through a unit.
pub struct Ran {
    /// The connection's name for the task.
    pub task: TaskId,
    /// Who asks.
    pub nexus: NexusId,
    /// What is asked.
    pub command: scsi::Command,
    /// What the residual is counted from.
    pub way: Way,
    /// Since when.
    pub clock: Clock,
}

/// Which way the initiator expects data to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It has none, and wants none.
    Neither,
    /// From the initiator.
    Out,
    /// To the initiator, perhaps both ways: the residual is counted from what it gets.
    In,
}

/// A command that may end at once.
#[derive(Clone, Copy)]
pub struct Brief<'a> {
    /// Who asks.
    pub nexus: NexusId,
    /// What is asked.
    pub command: scsi::CommandRef<'a>,
    /// What the residual is counted from.
    pub way: Way,
    /// Since when.
    pub clock: Clock,
}

/// A command that has ended, with the connection's name for its task.
pub struct Done {
    /// The connection's name for the task.
    pub task: TaskId,
    /// Since when it ran.
    pub clock: Clock,
    /// How it ended.
    pub end: End,
}

/// How a command ended.
pub struct End {
    /// What came of it.
    pub outcome: Outcome,
    /// Data-out bytes that it brought.
    pub written: u64,
    /// Data-out bytes that its CDB names: what the residual of a command that does not read is counted from. Of one that gives
    /// data though none was expected, nothing.
    pub needed: Option<u64>,
    /// When that was.
    pub ended: Time,
}

impl Way {
    /// The way of what was announced.
    pub fn of(out_bytes: u32, in_bytes: u32) -> Self {
        match (out_bytes, in_bytes) {
            (0, 0) => Self::Neither,
            (_, 0) => Self::Out,
            _ => Self::In,
        }
    }

    /// What a command takes that takes nothing: see [`End::needed`].
    pub fn of_nothing(self) -> Option<u64> {
        (self == Self::Out).then_some(0)
    }
}

/// What a command takes of the initiator's data: nothing of it when it is refused, or gives data. `None` when the residual is
/// that of what it gives.
fn needed_by(cdb: scsi::Cdb, shape: &scsi::Shape, way: Way) -> Option<u64> {
    match (way, scsi::judge(cdb, shape)) {
        (Way::In, _) => None,
        (Way::Neither, Ok(need)) if need.data_in > 0 => None,
        (_, Ok(need)) => Some(need.data_out),
        (_, Err(_)) => Some(0),
    }
}

/// Runs a command on its unit.
pub(crate) async fn run<W: World>(unit: Rc<ScsiUnit<W>>, ran: Ran) -> Done {
    let Ran { task, nexus, command, way, clock } = ran;
    let metered = unit.unit.meter.begin(&unit.world, &unit.unit.latencies, clock);
    let written = command.data_out.len() as u64;
    let needed = needed_by(command.cdb, &unit.logical_unit.shape(), way);
    let cdb = command.cdb;
    let number = unit.tracer.begin();
    let outcome = unit.logical_unit.execute(nexus, command).await;
    if outcome.status == Status::ReservationConflict {
        unit.tell_of_conflict(nexus, cdb);
    }
    let ended = metered.end();
    unit.trace_end(number, &Ended { nexus, cdb, clock, ended, written, outcome: &outcome });
    Done { task, clock, end: End { outcome, written, needed, ended } }
}

impl Ran {
    /// The command, to be looked at.
    pub fn brief(&self) -> Brief<'_> {
        Brief { nexus: self.nexus, command: self.command.borrowed(), way: self.way, clock: self.clock }
    }
}

/// Runs a command that ends before anything else happens; `None` of one that may not, which has not begun then.
#[inline]
pub(crate) fn run_at_once<W: World>(unit: &ScsiUnit<W>, brief: Brief<'_>) -> Option<End> {
    let Brief { nexus, command, way, clock } = brief;
    let outcome = unit.logical_unit.execute_at_once(nexus, command)?;
    let written = command.data_out.len() as u64;
    let needed = match outcome.status {
        _ if way == Way::In => None,
        // It is done, so its CDB names what came, or none of it.
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
    Some(End { outcome, written, needed, ended })
}

/// Answers a command for a unit that is not there any more.
pub(crate) fn absent(ran: Ran) -> Done {
    let outcome = scsi::absent::execute(ran.command.cdb, &[]);
    let end = End { outcome, written: 0, needed: ran.way.of_nothing(), ended: ran.clock.began };
    Done { task: ran.task, clock: ran.clock, end }
}

impl<W: World> ScsiUnit<W> {
    /// The face of `unit` that no nexus reaches yet. Hosts that were refused for a reservation are told of through `conflicts`.
    pub fn new(world: W, unit: Rc<Unit<W>>, logical_unit: LogicalUnit<Rc<Store<W>>>, conflicts: Repeats<W>) -> Self {
        let (tracer, nexuses) = Default::default();
        Self { unit, logical_unit, world, tracer, nexuses, conflicts }
    }

    /// The unit is served so through the portal groups.
    pub async fn set_port_groups(&self, groups: &[scsi::PortGroup]) {
        self.logical_unit.set_port_groups(groups).await;
    }

    /// `nexus` reaches the unit from `initiator` through `port` from now on.
    pub fn attach(
        &self,
        nexus: NexusId,
        initiator: InitiatorPort,
        port: TargetPort,
        incoming: Arc<Incoming>,
        read_only: bool,
    ) {
        self.nexuses.borrow_mut().insert(nexus, initiator.name.clone());
        self.logical_unit.attach(nexus, initiator, Rc::new(port));
        self.logical_unit.set_incoming(nexus, incoming);
        self.logical_unit.set_read_only(nexus, read_only);
    }

    /// `nexus` is lost; its commands have ended before.
    pub fn detach(&self, nexus: NexusId) {
        self.nexuses.borrow_mut().remove(&nexus);
        self.logical_unit.detach(nexus);
    }

    /// The unit is removed from what `nexus` sees, which goes on and is answered.
    pub fn withdraw(&self, nexus: NexusId) {
        self.nexuses.borrow_mut().remove(&nexus);
        self.logical_unit.withdraw(nexus);
    }

    /// `nexus` sees other units beside this one than before, or may write where it might not.
    pub fn inventory_changed(&self, nexus: NexusId, read_only: bool) {
        self.logical_unit.set_read_only(nexus, read_only);
        self.logical_unit.lun_inventory_changed(nexus);
    }

    /// `nexus` sees the unit where it saw another one before.
    pub fn took_the_place_of_another(&self, nexus: NexusId) {
        self.logical_unit.took_the_place_of_another(nexus);
    }

    /// `nexus` has read the list of units.
    pub fn inventory_reported(&self, nexus: NexusId) {
        self.logical_unit.lun_inventory_reported(nexus);
    }

    /// Commands of `nexus` ended with a connection of its session.
    pub fn commands_lost(&self, nexus: NexusId) {
        self.logical_unit.commands_lost(nexus);
    }

    /// Carries out a task management function.
    pub async fn manage(&self, nexus: NexusId, function: TaskManagement) -> ManagementOutcome {
        self.logical_unit.manage(nexus, function).await
    }

    /// What CDBs are judged against.
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

/// Who a volume is to its hosts: everything follows from its identity, so it is the same on every path,
/// after every restart and on every node.
pub(crate) fn identity(id: VolumeId) -> scsi::Identity {
    let uuid = id.to_bytes();
    // NAA 6, locally assigned: the first half byte says so, the rest comes from the identity, which is random.
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
