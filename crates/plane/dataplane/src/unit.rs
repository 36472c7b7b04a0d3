//! A volume as hosts see it: the SCSI logical unit, and the store that it stands on.

mod alone;
mod copies;
mod meter;
mod policy;
mod reservations;
mod sanitize;
mod standing;
mod store;
mod trace;
mod units;

pub use alone::{close_alone, open_alone, resize_alone};
use copies::Neighbourhood;
pub use meter::{HostLoad, Meter};
pub use policy::{cache_id, cache_of, policy_of};
use reservations::{PoolCatalog, ReservationKeeper};
pub use reservations::{clear_reservations, roles};
use sanitize::Sanitation;
pub use sanitize::Spared;
pub use standing::Place;
pub use store::Store;
pub use trace::TraceRoom;
use trace::{Ended, Tracer};
pub use units::Units;

use crate::latency::Latencies;
use crate::repeats::Repeats;
use crate::seat::Seat;
use block::IoError;
use iscsi::TaskId;
use model::{
    Backend, CacheReport, LatencyReport, Size, VolumeActivity, VolumeCounters, VolumeId, VolumeName, VolumePolicy,
    VolumeReport, VolumeState, WritePolicy, event,
};
use scsi::{
    Incoming, InitiatorPort, Kept, LogicalUnit, ManagementOutcome, NexusId, Outcome, Status, TargetPort, TaskManagement,
};
use shard::{Time, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

/// A logical unit at home on this shard.
pub struct Unit<W: World> {
    /// The volume's identity.
    pub id: VolumeId,
    /// The volume's name.
    pub name: VolumeName,
    /// What holds its data.
    pub backend: Backend,
    logical_unit: LogicalUnit<Rc<Store<W>>>,
    store: Rc<Store<W>>,
    world: W,
    meter: Rc<Meter>,
    latencies: Latencies,
    tracer: Tracer,
    /// Who reaches the unit, by the names of their initiators.
    nexuses: RefCell<BTreeMap<NexusId, String>>,
    policy: Cell<VolumePolicy>,
    conflicts: Repeats<W>,
    /// How many are there that need its content as it is.
    spared: Cell<usize>,
}

/// Which operation a command is, and when all of it was there.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The operation code.
    pub operation_code: u8,
    /// When it began.
    pub began: Time,
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
pub async fn run<W: World>(unit: Rc<Unit<W>>, ran: Ran) -> Done {
    let Ran { task, nexus, command, way, clock } = ran;
    let metered = unit.meter.begin(&unit.world, &unit.latencies, clock);
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
pub fn run_at_once<W: World>(unit: &Unit<W>, brief: Brief<'_>) -> Option<End> {
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
    unit.meter.pass(&unit.latencies, clock, ended);
    let number = unit.tracer.begin();
    unit.trace_end(number, &Ended { nexus, cdb: command.cdb, clock, ended, written, outcome: &outcome });
    Some(End { outcome, written, needed, ended })
}

/// Answers a command for a unit that is not there any more.
pub fn absent(ran: Ran) -> Done {
    let outcome = scsi::absent::execute(ran.command.cdb, &[]);
    let end = End { outcome, written: 0, needed: ran.way.of_nothing(), ended: ran.clock.began };
    Done { task: ran.task, clock: ran.clock, end }
}

impl<W: World> Unit<W> {
    /// A unit that no nexus reaches yet, of what holds its blocks; true when no host may write them.
    pub fn new(
        seat: &Rc<Seat<W>>,
        id: VolumeId,
        name: VolumeName,
        backend: Backend,
        (store, read_only): (Store<W>, bool),
    ) -> Self {
        let store = Rc::new(store);
        let options = scsi::Options {
            provisioning: match backend {
                Backend::Ram | Backend::Null => scsi::Provisioning::Thin,
                Backend::Pool { .. } | Backend::File { .. } => scsi::Provisioning::Full,
            },
            transfer_bytes_max: seat.limits.transfer_bytes_max,
            read_only,
            ..scsi::Options::default()
        };
        let keeper = Rc::new(ReservationKeeper::new(seat, id, None));
        let logical_unit = LogicalUnit::new(store.clone(), identity(id), options)
            .with_keeper(keeper)
            .with_neighbours(Rc::new(Neighbourhood::new(seat)));
        let logical_unit = match backend {
            // What is ordered must go on after a restart, and a file has no place beside it where that could be kept. What memory
            // holds is gone then.
            Backend::File { .. } => logical_unit,
            Backend::Ram | Backend::Null | Backend::Pool { .. } => {
                let encrypted = matches!(backend, Backend::Pool { encrypted: true, .. });
                logical_unit.with_sanitizer(Rc::new(Sanitation::new(seat, id, encrypted)))
            }
        };
        let world = seat.world.clone();
        let (meter, latencies, tracer, nexuses, policy, spared) = Default::default();
        let conflicts = Repeats::told_to(world.clone(), seat.events.clone(), event::RESERVED);
        Self {
            id,
            name,
            backend,
            logical_unit,
            store,
            world,
            meter,
            latencies,
            tracer,
            nexuses,
            policy,
            conflicts,
            spared,
        }
    }

    /// The unit's commands are counted by `meter`, with those of others.
    pub fn metered_by(self, meter: Rc<Meter>) -> Self {
        Self { meter, ..self }
    }

    /// What hosts reserve of the unit, and order of it, is kept in `pool`, and `kept` is what was kept before.
    pub fn reserved_in(self, seat: &Rc<Seat<W>>, pool: PoolCatalog<W>, kept: Kept) -> Self {
        let keeper = Rc::new(ReservationKeeper::new(seat, self.id, Some(pool)));
        let logical_unit = self.logical_unit.with_keeper(keeper);
        logical_unit.restore(kept);
        Self { logical_unit, ..self }
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

    /// How many sessions have sent a command to the unit, and are still there.
    pub fn sessions(&self) -> usize {
        self.nexuses.borrow().len()
    }

    /// Runs `change`, after which the unit may show something else, and tells its initiators.
    ///
    /// Nothing may wait to be written: see [`Unit::write_through`].
    pub async fn replace_content<T, E>(&self, change: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let changed = match self.store.policed() {
            Some(volume) => volume.replace(change).await?,
            None => change.await?,
        };
        self.logical_unit.medium_may_have_changed();
        Ok(changed)
    }

    /// What is set for the volume.
    pub fn policy(&self) -> VolumePolicy {
        self.policy.get()
    }

    /// The volume follows `policy` from now on, and its initiators hear when their writes may be lost before a flush.
    ///
    /// *Errors*: what the device below says, or `Unsupported` for `back` without a log; writes are then acknowledged
    /// as before, and everything else holds.
    pub async fn set_policy(&self, policy: VolumePolicy) -> Result<(), IoError> {
        self.logical_unit.set_removable(policy.removable);
        let Some(volume) = self.store.policed() else { return Ok(()) };
        let set = volume.set_policy(&policy_of(&policy)).await;
        let write = if set.is_ok() { policy.write } else { self.policy.get().write };
        self.policy.set(VolumePolicy { write, ..policy });
        self.logical_unit.set_write_cache(write == WritePolicy::BackVolatile);
        set
    }

    /// Everything acknowledged is on the disks, and writes go through until the policy is set again.
    pub async fn write_through(&self) -> Result<(), IoError> {
        match self.store.policed() {
            Some(volume) => volume.close().await,
            None => Ok(()),
        }
    }

    /// `back` acknowledges from `log` from now on. The volume is not written back just now.
    pub async fn set_log(&self, log: Option<cache::WriteLog>) {
        if let Some(volume) = self.store.policed() {
            volume.set_log(log).await;
        }
    }

    /// True when something may be in the log of its pool.
    pub fn is_written_back(&self) -> bool {
        self.store.policed().is_some_and(|volume| volume.write_policy() == cache::WritePolicy::Back)
    }

    /// What waits to be written is thrown away: the volume is gone for good.
    pub async fn throw_away(&self) {
        if let Some(volume) = self.store.policed() {
            volume.throw_away().await;
        }
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

    /// The unit has grown, and its initiators are told.
    pub fn capacity_changed(&self) {
        self.logical_unit.capacity_changed();
    }

    /// Initiators are told that the pool of the unit has reached a threshold (38/07).
    pub fn soft_threshold_reached(&self) {
        self.logical_unit.soft_threshold_reached();
    }

    /// Initiators are told of thresholds that they have set and that others have crossed.
    pub fn check_thresholds(&self) {
        self.logical_unit.check_thresholds();
    }

    /// True when blocks take space as they are written.
    pub fn is_thin(&self) -> bool {
        block::BlockDevice::space(&*self.store).is_some()
    }

    /// What CDBs are judged against.
    pub fn shape(&self) -> scsi::Shape {
        self.logical_unit.shape()
    }

    /// The device under the unit.
    pub fn store(&self) -> &Store<W> {
        &self.store
    }

    /// How long its commands took.
    pub fn latencies(&self) -> Vec<LatencyReport> {
        self.latencies.report()
    }

    /// What hosts have done with it.
    fn activity(&self) -> VolumeActivity {
        VolumeActivity {
            name: self.name.clone(),
            id: self.id,
            counters: self.counters(),
            policy: self.policy.get(),
            cache: self.cache_report(),
            took: self.latencies.took(),
        }
    }

    fn cache_report(&self) -> Option<CacheReport> {
        self.store.policed().map(|volume| policy::cache_report(&volume.counters()))
    }

    fn counters(&self) -> VolumeCounters {
        let counted = self.logical_unit.statistics();
        VolumeCounters {
            reads: counted.reads,
            writes: counted.writes,
            read_bytes: counted.read_bytes,
            written_bytes: counted.written_bytes,
            errors: counted.errors,
            conflicts: counted.conflicts,
        }
    }

    /// How the unit is.
    pub fn report(&self) -> VolumeReport {
        let geometry = block::BlockDevice::geometry(&*self.store);
        VolumeReport {
            name: self.name.clone(),
            id: self.id,
            size: Size::new(geometry.bytes()),
            block_bytes: geometry.block_bytes,
            backend: self.backend.clone(),
            state: VolumeState::Online,
            why: None,
            counters: self.counters(),
            space: None,
            policy: self.store.policed().map(|_| self.policy.get()),
            cache: self.cache_report(),
            copy: None,
            reservation: self.reservation_report(),
            sanitize: self.sanitize_report(),
        }
    }
}

/// Of so many units is told at once what hosts have done with them: commands wait meanwhile.
pub const ACTIVITIES_MAX: usize = 128;

/// What hosts have done with units at home here: the next ones after this one, in the order of their identities.
pub fn activities<W: World>(seat: &Seat<W>, after: Option<VolumeId>) -> Vec<VolumeActivity> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let units = seat.units.borrow();
    units.range((from, Bound::Unbounded)).take(ACTIVITIES_MAX).map(|(_, unit)| unit.activity()).collect()
}

/// The reports of all units at home here.
pub fn reports<W: World>(seat: &Seat<W>) -> Vec<VolumeReport> {
    let mut reports: Vec<VolumeReport> = seat.units.borrow().values().map(|unit| unit.report()).collect();
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    for (name, pool) in &*seat.pools.borrow() {
        // Sorted by name, those of one pool stand together.
        let of_pool = |report: &VolumeReport| report.name.pool() == Some(name);
        let first = reports.iter().position(of_pool).unwrap_or(reports.len());
        let count = reports[first..].iter().take_while(|report| of_pool(report)).count();
        pool.describe_space(&mut reports[first..first + count]);
    }
    reports.extend(held_reports(seat));
    reports
}

/// The volumes of the pools at home here that do not serve.
pub fn held_reports<W: World>(seat: &Seat<W>) -> Vec<VolumeReport> {
    seat.pools.borrow().values().flat_map(|pool| pool.held_reports()).collect()
}

/// The report of one that is at home here.
pub fn report<W: World>(seat: &Seat<W>, id: VolumeId, name: &VolumeName) -> Option<VolumeReport> {
    let pools = seat.pools.borrow();
    let pool = name.pool().and_then(|pool| pools.get(pool));
    let Some(unit) = seat.unit(id) else {
        return pool?.held_reports().into_iter().find(|held| held.name == *name);
    };
    let mut report = unit.report();
    if let Some(pool) = pool {
        pool.describe_space(std::slice::from_mut(&mut report));
    }
    Some(report)
}

/// Who a volume is to its hosts: everything follows from its identity, so it is the same on every path,
/// after every restart and on every node.
fn identity(id: VolumeId) -> scsi::Identity {
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
