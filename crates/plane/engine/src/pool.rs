//! A pool on its home shard: its disks, the arrays over them, its volumes and their units.
//!
//! The conductor calls the functions re-exported here, on the home shard of the pool. Data commands do not pass through
//! [`OpenPool`]; they go from the unit through the volume to the array. No other shard may touch a pool.

mod affected_volumes;
mod blocked_volumes;
mod check;
mod create;
mod device;
mod expand;
mod findings;
mod groups;
mod grow;
mod keys;
mod log;
mod log_reattach;
mod losses;
mod maintenance;
mod map_work;
mod maps;
mod member_copy;
mod member_errors;
mod members;
mod membership;
mod open;
mod overwrite;
mod ownership;
mod pace;
mod read_only;
mod rebuild;
mod refusals;
mod rejoin;
mod replay;
mod report;
mod responsiveness;
mod returning;
mod scrub;
mod silence_guard;
mod snapshots;
mod space;
mod split;
mod unresponsive;
mod volume_copy;
mod volumes;
mod watchdog;
mod work;

pub(crate) use check::{check, dump};
pub(crate) use create::{NewGroup, NewPool, create};
pub(crate) use device::PoolVolume;
pub(crate) use expand::add_member;
pub(crate) use groups::add_group;
pub(crate) use grow::grow;
pub(crate) use keys::key_of;
pub(crate) use log::{NewLog, add_log, remove_log};
pub(crate) use maintenance::set_repair;
pub(crate) use member_copy::copy_member;
pub(crate) use members::{blink, fail_disk, replace_disk};
pub(crate) use open::{Opening, open};
pub(crate) use overwrite::admit_erasure;
pub(crate) use ownership::{ClaimRequest, keep_state};
pub(crate) use report::{disk_counters, reports};
pub(crate) use returning::return_disk;
pub(crate) use scrub::{hold_scrub, start_scrub, stop_scrub};
pub(crate) use snapshots::{
    NewClone, clone_snapshot, create_snapshots, delete_snapshot, lock_snapshot, roll_back, snapshots,
};
pub(crate) use space::set_space;
pub(crate) use volume_copy::{
    CopyEnd, CopySourceInfo, CopyState, abandon_copy, close_copy_ends, complete_copy, continued, create_copy_target,
    open_copy_source, send_copy, withdraw_copy,
};
pub(crate) use volumes::{create_volume, delete_volume, resize_volume, set_policy};

use crate::array::{self, Disk, Group, GroupListener};
use crate::shard_context::ShardContext;
use block::{BlockDevice, Blocks, IoError, IoErrorKind, Stable};
use findings::Findings;
use futures_util::future::select;
use maintenance::Maintenance;
use model::{DiskId, DiskName, Level, Name, PoolId, Refusal, Size, VolumeName, code, event};
use rebuild::StopSignal;
use refusals::refusal;
use shard::{InFlightOperations, World, pause_on, spawn_on};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use volume::Uuid;
use work::{Work, WorkKind};

/// Version string in every label that this version writes.
const CREATED_BY: &str = concat!("blockyard ", env!("CARGO_PKG_VERSION"));

/// A pool that is open on this shard.
pub struct OpenPool<W: World> {
    /// Name of the pool.
    pub name: Name,
    /// Identity of the pool.
    pub id: PoolId,
    /// Catalog of the pool, and all operations that change it.
    pub pool: volume::Pool<Disk<W>, Group<W>>,
    shard: Rc<ShardContext<W>>,
    groups: groups::Groups<W>,
    /// Reason why the pool is read-only; unset for a writable pool.
    read_only: OnceCell<String>,
    /// Reason why a read-only pool was withdrawn: another node writes to its disks.
    overtaken: OnceCell<String>,
    /// Stops the maintenance of the pool: rebuild, resync, scrub.
    halt: Rc<StopSignal>,
    /// Stops the background tasks of its arrays. Pulled last, because other tasks wait for them.
    stop_arrays: Rc<StopSignal>,
    /// Present step of the closing, while the pool is being closed.
    closing: Cell<Option<&'static str>>,
    /// Member that an operator is taking out at this moment.
    taking_out: Cell<Option<DiskId>>,
    maintenance: Maintenance<W>,
    ownership_guard: ownership::OwnershipGuard,
    findings: Findings,
    losses: losses::Losses,
    map_repairs: maps::MapRepairs,
    log: log::LogDevice,
    blocked: blocked_volumes::BlockedVolumes,
    copies: volume_copy::Copies<W>,
}

/// One group of an open pool.
struct GroupState<W: World> {
    level: Level,
    chunk: Size,
    array: Group<W>,
    slots: RefCell<Vec<Slot<W>>>,
    /// True until a group that was found dirty has been resynced.
    needs_resync: Cell<bool>,
    /// True while a maintenance task runs on the group.
    repairing: Cell<bool>,
    /// True once the group was removed from the pool.
    removed: Cell<bool>,
    /// Running rebuild, resync or reshape.
    work: Cell<Option<Work>>,
    /// True while the array does not use the last member yet, which was just added.
    joining: Cell<bool>,
    /// Members that returned during a reshape; they are taken back after it.
    returning: RefCell<Vec<(u16, Disk<W>)>>,
    /// Stripes that a returned member has missed. A member without an entry is rebuilt in full.
    to_fill: RefCell<BTreeMap<u16, Vec<Range<u64>>>>,
    /// Running copy of a member to another disk.
    member_copy: RefCell<Option<Rc<member_copy::MemberCopyTask<W>>>>,
}

impl<W: World> GroupState<W> {
    fn new(level: Level, chunk: Size, array: Group<W>, slots: Vec<Slot<W>>) -> Self {
        assert!(!slots.is_empty(), "a group has members");
        let slots = RefCell::new(slots);
        Self {
            level,
            chunk,
            array,
            slots,
            needs_resync: Cell::default(),
            repairing: Cell::default(),
            removed: Cell::default(),
            work: Cell::default(),
            joining: Cell::default(),
            returning: RefCell::default(),
            to_fill: RefCell::default(),
            member_copy: RefCell::default(),
        }
    }

    /// Bytes of data in a stripe.
    fn stripe_bytes(&self) -> u64 {
        self.array.stripe_blocks() * u64::from(raid::BLOCK_BYTES)
    }

    /// Bytes of data in a stripe after one more member was added.
    fn moved_stripe_bytes(&self) -> u64 {
        self.stripe_bytes() + self.chunk.bytes()
    }

    /// Bytes written to the disks of the group, or to that of `member`, since they were opened.
    fn written_bytes(&self, member: Option<u16>) -> u64 {
        let slots = self.slots.borrow();
        let wanted = slots.iter().zip(0..).filter(|(_, number)| member.is_none_or(|member| member == *number));
        let disks = wanted.filter_map(|(slot, _)| slot.disk.as_ref());
        disks.map(|disk| array::counted(disk).counters().written_bytes).sum()
    }

    /// True while a member is being added, from the order until the reshape has ended and the pool has the space.
    fn is_expanding(&self) -> bool {
        // A reshape also counts when it has no task yet, as after an opening.
        let reshapes = self.work.get().is_some_and(|work| work.kind() == WorkKind::Reshape);
        self.joining.get() || reshapes || self.array.status().reshape.is_some()
    }

    /// Byte offset on a member's disk of the array block `block`.
    fn byte_on_disk(&self, block: u64) -> u64 {
        // The data area of a member starts behind its label and catalog.
        let area = volume::member_area(self.array.member_blocks()).start.0;
        (area + self.array.place_of_data(block).0) * u64::from(volume::BLOCK_BYTES)
    }
}

/// One slot of a group.
struct Slot<W: World> {
    /// Identity of the disk that belongs in the slot.
    id: DiskId,
    /// Name of the disk, if it was ever open.
    name: Option<DiskName>,
    /// The disk, while it is attached.
    disk: Option<Disk<W>>,
    /// Blocks that its label reserves for the array; zero for a disk that was not found.
    room: Blocks,
    /// Path at which it was opened last; empty if it never was.
    path: String,
    /// Latency state of the disk.
    responsiveness: Rc<responsiveness::Responsiveness>,
    /// Error counts of the disk.
    errors: Rc<member_errors::MemberErrors>,
    /// Name of the disk that was copied to this one since the pool was opened, and whose slot it took.
    stands_for: Option<String>,
}

impl<W: World> Slot<W> {
    /// Creates the slot of a disk that was just labeled.
    fn of(id: Uuid, candidate: &Candidate, disk: &Disk<W>) -> Self {
        let room = volume::data_area(disk.geometry().blocks).map_or(Blocks(0), |area| area.len);
        let (name, disk, path) = (Some(candidate.name.clone()), Some(disk.clone()), candidate.path.clone());
        let (answering, erring) = Default::default();
        Self { id: disk_id(id), name, disk, room, path, responsiveness: answering, errors: erring, stands_for: None }
    }

    /// Name of the disk, or its identity if it has no name.
    fn called(&self) -> String {
        self.name.as_ref().map_or_else(|| self.id.to_string(), ToString::to_string)
    }
}

impl<W: World> Clone for Slot<W> {
    fn clone(&self) -> Self {
        let Self {
            id,
            ref name,
            ref disk,
            room,
            ref path,
            responsiveness: ref answering,
            errors: ref erring,
            ref stands_for,
        } = *self;
        let (name, disk, path, stands_for) = (name.clone(), disk.clone(), path.clone(), stands_for.clone());
        let (answering, erring) = (answering.clone(), erring.clone());
        Self { id, name, disk, room, path, responsiveness: answering, errors: erring, stands_for }
    }
}

/// A disk that may become a member or may be one already.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Name of the disk in the control plane.
    pub name: DiskName,
    /// Path of the disk.
    pub path: String,
}

impl<W: World> OpenPool<W> {
    /// Drops the pool without closing it: see [`ShardContext::abandon`].
    pub(crate) fn abandon(&self) {
        self.pool.abort();
    }

    /// Creates the open pool over these groups: binds their listeners and starts the background tasks of the arrays,
    /// the watchdog and the settling of lost blocks.
    fn assembled(
        shard: &Rc<ShardContext<W>>,
        name: Name,
        id: PoolId,
        pool: volume::Pool<Disk<W>, Group<W>>,
        groups: Vec<(usize, GroupState<W>, Rc<GroupListener<W>>)>,
    ) -> Rc<Self> {
        let (groups, watches): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|(place, group, watch)| ((place, group), watch)).unzip();
        let (halt, parting, taking_out, guarding, findings, log, held) = Default::default();
        let losses = losses::Losses::default();
        let care = Maintenance::new(shard.world.clone());
        let (copies, closing) = (volume_copy::Copies::default(), Cell::default());
        let (read_only, overtaken) = (OnceCell::new(), OnceCell::new());
        let map_repairs = maps::MapRepairs::default();
        let pool = Rc::new(Self {
            name,
            id,
            pool,
            shard: shard.clone(),
            groups: groups.into_iter().collect(),
            read_only,
            overtaken,
            halt,
            stop_arrays: parting,
            closing,
            taking_out,
            maintenance: care,
            ownership_guard: guarding,
            findings,
            losses,
            map_repairs,
            log,
            blocked: held,
            copies,
        });
        // Before any background task: findings and failures must reach the pool.
        watches.iter().for_each(|watch| watch.bind(&pool));
        pool.subscribe_to_failures();
        pool.pool.members().set_failure_policy(open::survives, pause_on(&shard.world));
        pool.pool.set_spawner(spawn_on(&shard.world));
        pool.watch_maps();
        pool.groups.iter().for_each(|(_, group)| pool.drive(group));
        watchdog::watch_members(&pool);
        losses::watch(&pool);
        pool
    }

    /// Starts the task that runs the deferred work of the array of the group when no command drives it.
    fn drive(&self, group: &GroupState<W>) {
        let (array, parting) = (group.array.clone(), self.stop_arrays.clone());
        self.spawn(async move {
            select(pin!(array.drive()), pin!(parting.raised())).await;
        });
    }

    /// Records a failed member in the catalog on the other members. After any crash the member is then not taken for
    /// current.
    ///
    /// *Errors*: `Gone` if the record could not be made durable; the group then stops.
    pub async fn record_failure(&self, group: usize, member: u16, error: IoError) -> Result<Stable, IoError> {
        // In the last step of a copy the catalog names the new disk already.
        let disk = member_copy::recorded_disk(self, group, member);
        let name = self.disk_name(group, member);
        tracing::error!(pool = %self.name, group, disk = name, %error, "a member has failed and is no longer used");
        // Whatever waits for the failed disk would wait in vain, including a commit of the catalog that is in flight.
        if let Some(disk) = &self.groups[group].slots.borrow()[usize::from(member)].disk {
            array::interruptible(disk).interrupt();
        }
        self.tell_of_failure(group, member, error);
        match self.pool.members().set_state(disk, volume::MemberState::after(error)).await {
            Ok(()) => {
                // The node's row follows the commit and precedes the answer to the write that the member missed (ADR
                // 27).
                membership::keep_membership(self).await;
                Ok(Stable::attest())
            }
            Err(refusal) => {
                // Without the record a crash could bring the stale member back as current, so no write may be
                // acknowledged.
                tracing::error!(pool = %self.name, %refusal, "a failed member could not be recorded; the group stops");
                Err(IoError { kind: IoErrorKind::Gone, ..error })
            }
        }
    }

    /// True if the pool is open read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// Runs `task` on the pool's home shard.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.shard.world.spawn(task);
    }

    /// Slots of all groups.
    fn slots(&self) -> Vec<Slot<W>> {
        self.groups.iter().flat_map(|(_, group)| group.slots.borrow().clone()).collect()
    }

    /// Group and slot of a disk.
    fn place_of(&self, disk: DiskId) -> Option<(usize, u16)> {
        self.groups.iter().find_map(|(group, state)| {
            let at = state.slots.borrow().iter().position(|slot| slot.id == disk)?;
            Some((group, u16::try_from(at).expect("a group has at most 64 members")))
        })
    }

    /// Identity of the first volume with this name.
    fn volume_id(&self, name: &VolumeName) -> Result<Uuid, Refusal> {
        let status = self.pool.status();
        let own = name.volume().as_str();
        let in_segments = status.volumes.iter().map(|volume| (volume.name.as_str(), volume.id));
        // Volumes that are being deleted or were only copied in part have no name that an operator may use.
        let mapped = status.families.iter().flat_map(|family| &family.volumes);
        let mapped = mapped.filter(|volume| !volume.is_deleting && !volume.is_partial);
        let mapped = mapped.map(|volume| (volume.name.as_str(), volume.id));
        in_segments.chain(mapped).find(|(name, _)| *name == own).map(|(_, id)| id).ok_or_else(|| {
            let hint = "`blockyard volume list` shows the volumes";
            Refusal::new(code::VOLUME_UNKNOWN, format!("volume {name} does not exist"), hint)
        })
    }
}

impl<W: World> Drop for OpenPool<W> {
    fn drop(&mut self) {
        self.log.stop();
        self.halt.raise();
        self.stop_arrays.raise();
    }
}

/// Longest time that the close of a pool waits for operations that still hold its disks.
const LET_GO_MAX: Duration = Duration::from_secs(1);
const LET_GO_STEP: Duration = Duration::from_millis(1);

/// Returns the pool `name`, whose home is this shard.
fn find<W: World>(shard: &ShardContext<W>, name: &Name) -> Result<Rc<OpenPool<W>>, Refusal> {
    shard.pools.borrow().get(name).cloned().ok_or_else(|| {
        let hint = "`blockyard pool list` shows the pools";
        Refusal::new(code::POOL_UNKNOWN, format!("pool {name} does not exist"), hint)
    })
}

/// Closes the pool: makes everything stable, marks its groups clean and closes its disks.
///
/// Data that cannot be written any more is reported as an event, and the pool is closed all the same.
pub(crate) async fn close<W: World>(shard: Rc<ShardContext<W>>, name: Name) -> Result<(), Refusal> {
    let pool = find(&shard, &name)?;
    let step = |step| pool.closing.set(Some(step));
    step("the work on its maps");
    // Order: background tasks, caches, log device, commits of maps, groups, and the owner's marks last.
    pool.maintenance.space.chores.stop().await;
    step("its rebuild, resync or scrub");
    pool.stop_work().await;
    step("what its cache has to write");
    let units: Vec<_> = shard.units().values().filter(|unit| unit.name.pool() == Some(&name)).cloned().collect();
    for unit in units {
        unit.stop_sanitizing().await;
        pool.destage_unit(&unit).await;
    }
    shard.withdraw_where(|unit| unit.name.pool() == Some(&name));
    step("its log device");
    pool.end_log().await;
    step("the commits of its maps");
    pool.pool.drain().await;
    step("the flush of its groups");
    for (number, group) in pool.groups.iter() {
        let number = u16::try_from(number).expect("a pool has at most 64 groups");
        // A group that still needs a resync stays dirty; a fenced or read-only pool must not be written.
        if group.needs_resync.get() || pool.is_fenced() || pool.read_only.get().is_some() {
            continue;
        }
        if let Err(error) = pool.pool.mark_clean(number).await {
            let refusal = refusal(&error, &pool);
            tracing::error!(number, %refusal, "a group could not be marked clean");
            let sentence = format!("pool {name} was closed while group {number} was not clean: {}", refusal.message);
            pool.raise(event::POOL_UNCLEAN, sentence);
            continue;
        }
        // An empty redo log lets the next opening skip the replay.
        if group.array.is_protected()
            && let Err(error) = group.array.close().await
        {
            // Nothing is lost: acknowledged data is in the redo log, which the next opening replays.
            tracing::warn!(pool = %pool.name, number, %error, "the log of a group was not emptied");
        }
    }
    step("the marks on its disks");
    pool.let_go().await;
    // After the release another node may open the pool, so nothing may be written from here on.
    pool.stop_arrays.raise();
    part_with(&shard, pool).await;
    Ok(())
}

/// Removes the pool from this shard and waits until its disks can be opened again.
async fn part_with<W: World>(shard: &ShardContext<W>, pool: Rc<OpenPool<W>>) {
    shard.pools.borrow_mut().remove(&pool.name);
    // The counters of operations in flight outlive the pool, which is dropped here.
    let disks = pool.slots().into_iter().filter_map(|slot| Some(array::interruptible(&slot.disk?).in_flight()));
    let disks: Vec<InFlightOperations> = disks.collect();
    drop(pool);
    until_let_go(shard, &disks).await;
}

/// Waits until nobody holds the disks. Interrupted tasks get a last poll first; a command that a disk does not answer
/// is not waited for.
async fn until_let_go<W: World>(shard: &ShardContext<W>, disks: &[InFlightOperations]) {
    let end = shard.world.now() + LET_GO_MAX;
    while !disks.iter().all(InFlightOperations::is_over) && shard.world.now() < end {
        shard.world.sleep(LET_GO_STEP).await;
    }
}

/// Present step of closing the pool; `None` if it is not being closed.
pub(crate) fn closing_step<W: World>(shard: &ShardContext<W>, name: &Name) -> Option<&'static str> {
    shard.pools.borrow().get(name)?.closing.get()
}

/// Destroys the pool: its disks are blank afterwards.
pub(crate) async fn destroy<W: World>(shard: Rc<ShardContext<W>>, name: Name) -> Result<(), Refusal> {
    let pool = find(&shard, &name)?;
    // The catalog's count includes volumes that do not serve.
    let volumes = pool.pool.space().volumes;
    if volumes > 0 {
        let message = format!("pool {name} has {volumes} volumes");
        return Err(Refusal::new(code::POOL_IN_USE, message, "delete its volumes first"));
    }
    pool.maintenance.space.chores.stop().await;
    pool.stop_work().await;
    pool.end_log().await;
    pool.stop_arrays.raise();
    // The heartbeat must not write a mark onto a disk that was just wiped.
    pool.ownership_guard.end();
    let destroyed = pool.pool.clone().destroy().await;
    destroyed.map_err(|error| refusal(&error, &pool))?;
    part_with(&shard, pool).await;
    Ok(())
}

fn uuid(disk: DiskId) -> Uuid {
    Uuid::from_bytes(disk.to_bytes())
}

fn disk_id(uuid: Uuid) -> DiskId {
    DiskId::from_bytes(uuid.into_bytes())
}

/// Creates a random identity.
fn new_uuid<W: World>(world: &W) -> Uuid {
    let mut bytes = [0; 16];
    world.random(&mut bytes);
    uuid(DiskId::from_random(bytes))
}
