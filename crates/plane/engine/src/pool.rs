//! A pool on its home shard: its disks, the arrays over them, its volumes, and the units that show them.

mod answering;
mod behind;
mod care;
mod check;
mod concerned;
mod copy;
mod copying;
mod create;
mod device;
mod erring;
mod findings;
mod groups;
mod grow;
mod held;
mod keys;
mod log;
mod losses;
mod maps;
mod members;
mod membership;
mod open;
mod overwrite;
mod own;
mod pace;
mod parting;
mod read_only;
mod rebuild;
mod refusals;
mod rejoin;
mod replay;
mod report;
mod returning;
mod scrub;
mod snapshots;
mod space;
mod takeup;
mod tending;
mod volumes;
mod watchdog;
mod widen;
mod work;

pub(crate) use care::set_repair;
pub(crate) use check::{check, dump};
pub(crate) use copy::{
    CopyEnd, CopyState, Original, abandon_copy, complete_copy, continued, let_go_of_copy, offer_copy, receive_copy,
    send_copy, withdraw_copy,
};
pub(crate) use copying::copy_member;
pub(crate) use create::{NewGroup, NewPool, create};
pub(crate) use device::PoolVolume;
pub(crate) use groups::add_group;
pub(crate) use grow::grow;
pub(crate) use keys::key_of;
pub(crate) use log::{NewLog, add_log, remove_log};
pub(crate) use members::{blink, fail_disk, replace_disk};
pub(crate) use open::{Opening, open};
pub(crate) use overwrite::admit_erasure;
pub(crate) use own::{Taking, keep_state};
pub(crate) use report::{disk_counters, reports};
pub(crate) use returning::return_disk;
pub(crate) use scrub::{hold_scrub, start_scrub, stop_scrub};
pub(crate) use snapshots::{
    NewClone, clone_snapshot, create_snapshots, delete_snapshot, lock_snapshot, roll_back, snapshots,
};
pub(crate) use space::set_space;
pub(crate) use volumes::{create_volume, delete_volume, resize_volume, set_policy};
pub(crate) use widen::add_member;

use crate::array::{self, Disk, Group, Watch};
use crate::shard_context::ShardContext;
use block::{BlockDevice, Blocks, IoError, IoErrorKind, Stable};
use care::Care;
use findings::Findings;
use futures_util::future::select;
use model::{DiskId, DiskName, Level, Name, PoolId, Refusal, Size, VolumeName, code, event};
use rebuild::Halt;
use refusals::refusal;
use shard::{Landings, World, pause_on, spawn_on};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use volume::Uuid;
use work::{Work, WorkKind};

/// What every label says of who wrote it.
const CREATED_BY: &str = concat!("blockyard ", env!("CARGO_PKG_VERSION"));

/// A pool that serves on this shard.
pub struct OpenPool<W: World> {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub id: PoolId,
    /// Its catalog, and everything that changes it.
    pub pool: volume::Pool<Disk<W>, Group<W>>,
    shard: Rc<ShardContext<W>>,
    groups: groups::Groups<W>,
    /// Why nothing is written to its disks, where that is so.
    read_only: OnceCell<String>,
    /// Why a read-only pool is not shown any more: another node writes to its disks.
    overtaken: OnceCell<String>,
    /// Ends what repairs the pool.
    halt: Rc<Halt>,
    /// Ends what its arrays do by themselves: after everything that waits for them.
    parting: Rc<Halt>,
    /// What its closing waits for, while it is being closed.
    closing: Cell<Option<&'static str>>,
    /// The member that an operator takes out just now.
    taking_out: Cell<Option<DiskId>>,
    care: Care<W>,
    guarding: own::Guard,
    findings: Findings,
    losses: losses::Losses,
    map_repairs: maps::MapRepairs,
    log: log::LogDevice,
    held: held::Held,
    copies: copy::Copies<W>,
}

/// One group of an open pool.
struct GroupState<W: World> {
    level: Level,
    chunk: Size,
    array: Group<W>,
    slots: RefCell<Vec<Slot<W>>>,
    /// True until a group that was found dirty was resynced.
    needs_resync: Cell<bool>,
    /// True while somebody repairs the group.
    repairing: Cell<bool>,
    /// True once the pool does not have it any more.
    removed: Cell<bool>,
    /// The rebuild or resync that runs, if one does.
    work: Cell<Option<Work>>,
    /// True while the last place is not counted by the array yet.
    joining: Cell<bool>,
    /// Members that came back while the array was laid out anew, and are taken back after that.
    returning: RefCell<Vec<(u16, Disk<W>)>>,
    /// What a member lacks that came back as it left, in stripes; others are filled from the beginning.
    to_fill: RefCell<BTreeMap<u16, Vec<Range<u64>>>>,
    /// The member that is copied to another disk, if one is.
    copying: RefCell<Option<Rc<copying::Copying<W>>>>,
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
            copying: RefCell::default(),
        }
    }

    /// Bytes of data in a stripe.
    fn stripe_bytes(&self) -> u64 {
        self.array.stripe_blocks() * u64::from(raid::BLOCK_BYTES)
    }

    /// Bytes of data in a stripe over one member more.
    fn moved_stripe_bytes(&self) -> u64 {
        self.stripe_bytes() + self.chunk.bytes()
    }

    /// Bytes that were written to its disks, or to that of this member, since they were opened.
    fn written_bytes(&self, member: Option<u16>) -> u64 {
        let slots = self.slots.borrow();
        let wanted = slots.iter().zip(0..).filter(|(_, number)| member.is_none_or(|member| member == *number));
        let disks = wanted.filter_map(|(slot, _)| slot.disk.as_ref());
        disks.map(|disk| array::counted(disk).counters().written_bytes).sum()
    }

    /// True from when a disk is to be one more member until the group is laid out over all of them and the pool has its room.
    fn is_widening(&self) -> bool {
        let reshapes = self.work.get().is_some_and(|work| work.kind() == WorkKind::Reshape);
        self.joining.get() || reshapes || self.array.status().reshape.is_some()
    }

    /// Where on a member's disk a block of its data lies that the array numbers so, in bytes.
    fn byte_on_disk(&self, block: u64) -> u64 {
        let area = volume::member_area(self.array.member_blocks()).start.0;
        (area + self.array.place_of_data(block).0) * u64::from(volume::BLOCK_BYTES)
    }
}

/// One place of a group.
struct Slot<W: World> {
    /// Which disk belongs there.
    id: DiskId,
    /// What it is called, if it was ever open.
    name: Option<DiskName>,
    /// The disk, while it is attached.
    disk: Option<Disk<W>>,
    /// How much it has for the array, as its label says; nothing of a disk that was not found.
    room: Blocks,
    /// Where it was opened last; empty if it never was.
    path: String,
    /// How it answers.
    answering: Rc<answering::Answering>,
    /// What it does wrong.
    erring: Rc<erring::Erring>,
    /// The disk that was copied to it while the pool was open, and whose place it has.
    stands_for: Option<String>,
}

impl<W: World> Slot<W> {
    /// A place whose disk is labelled now.
    fn of(id: Uuid, candidate: &Candidate, disk: &Disk<W>) -> Self {
        let room = volume::data_area(disk.geometry().blocks).map_or(Blocks(0), |area| area.len);
        let (name, disk, path) = (Some(candidate.name.clone()), Some(disk.clone()), candidate.path.clone());
        let (answering, erring) = Default::default();
        Self { id: disk_id(id), name, disk, room, path, answering, erring, stands_for: None }
    }

    /// What its disk is called, or else its identity.
    fn called(&self) -> String {
        self.name.as_ref().map_or_else(|| self.id.to_string(), ToString::to_string)
    }
}

impl<W: World> Clone for Slot<W> {
    fn clone(&self) -> Self {
        let Self { id, ref name, ref disk, room, ref path, ref answering, ref erring, ref stands_for } = *self;
        let (name, disk, path, stands_for) = (name.clone(), disk.clone(), path.clone(), stands_for.clone());
        let (answering, erring) = (answering.clone(), erring.clone());
        Self { id, name, disk, room, path, answering, erring, stands_for }
    }
}

/// A disk that may become, or may be, a member.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// What control calls it.
    pub name: DiskName,
    /// Where it is.
    pub path: String,
}

impl<W: World> OpenPool<W> {
    /// See [`ShardContext::abandon`].
    pub(crate) fn abandon(&self) {
        self.pool.abandon();
    }

    /// The pool over these groups, whose failures and findings it hears of from now on; its arrays do what they
    /// have to do when no command drives them.
    fn assembled(
        shard: &Rc<ShardContext<W>>,
        name: Name,
        id: PoolId,
        pool: volume::Pool<Disk<W>, Group<W>>,
        groups: Vec<(usize, GroupState<W>, Rc<Watch<W>>)>,
    ) -> Rc<Self> {
        let (groups, watches): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|(place, group, watch)| ((place, group), watch)).unzip();
        let (halt, parting, taking_out, guarding, findings, log, held) = Default::default();
        let losses = losses::Losses::default();
        let care = Care::new(shard.world.clone());
        let (copies, closing) = (copy::Copies::default(), Cell::default());
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
            parting,
            closing,
            taking_out,
            care,
            guarding,
            findings,
            losses,
            map_repairs,
            log,
            held,
            copies,
        });
        watches.iter().for_each(|watch| watch.bind(&pool));
        pool.hear_of_failures();
        pool.pool.members().spare(open::survives, pause_on(&shard.world));
        pool.pool.carry_on_with(spawn_on(&shard.world));
        pool.watch_maps();
        pool.groups.iter().for_each(|(_, group)| pool.drive(group));
        watchdog::watch_members(&pool);
        losses::watch(&pool);
        pool
    }

    /// What commands leave to the group's array is done also when no command comes.
    fn drive(&self, group: &GroupState<W>) {
        let (array, parting) = (group.array.clone(), self.parting.clone());
        self.spawn(async move {
            select(pin!(array.drive()), pin!(parting.pulled())).await;
        });
    }

    /// After any crash the member is not taken for a current one.
    ///
    /// *Errors*: `Gone` when that cannot be promised.
    pub async fn record_failure(&self, group: usize, member: u16, error: IoError) -> Result<Stable, IoError> {
        let disk = copying::recorded_disk(self, group, member);
        let name = self.disk_name(group, member);
        tracing::error!(pool = %self.name, group, disk = name, %error, "a member has failed and is not used any more");
        // Whatever still waits for it waits in vain, a commit of the catalog that is under way among that.
        if let Some(disk) = &self.groups[group].slots.borrow()[usize::from(member)].disk {
            array::interruptible(disk).interrupt();
        }
        self.tell_of_failure(group, member, error);
        match self.pool.members().set_state(disk, behind::recorded_state(error)).await {
            Ok(()) => {
                membership::keep_membership(self).await;
                Ok(Stable::attest())
            }
            Err(refusal) => {
                tracing::error!(pool = %self.name, %refusal, "a failed member could not be recorded; the group stops");
                Err(IoError { kind: IoErrorKind::Gone, ..error })
            }
        }
    }

    /// True when nothing is written to its disks.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// Runs `task` on the pool's home shard.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.shard.world.spawn(task);
    }

    /// The places of all groups.
    fn slots(&self) -> Vec<Slot<W>> {
        self.groups.iter().flat_map(|(_, group)| group.slots.borrow().clone()).collect()
    }

    /// Where a disk belongs: its group and its place there.
    fn place_of(&self, disk: DiskId) -> Option<(usize, u16)> {
        self.groups.iter().find_map(|(group, state)| {
            let at = state.slots.borrow().iter().position(|slot| slot.id == disk)?;
            Some((group, u16::try_from(at).expect("a group has at most 64 members")))
        })
    }

    /// The first volume of this name.
    fn volume_id(&self, name: &VolumeName) -> Result<Uuid, Refusal> {
        let status = self.pool.status();
        let own = name.volume().as_str();
        let in_segments = status.volumes.iter().map(|volume| (volume.name.as_str(), volume.id));
        let mapped = status.families.iter().flat_map(|family| &family.volumes);
        let mapped = mapped.filter(|volume| !volume.is_dying && !volume.is_partial);
        let mapped = mapped.map(|volume| (volume.name.as_str(), volume.id));
        in_segments.chain(mapped).find(|(name, _)| *name == own).map(|(_, id)| id).ok_or_else(|| {
            let hint = "`blockyard volume list` shows the volumes";
            Refusal::new(code::VOLUME_UNKNOWN, format!("no volume is called {name}"), hint)
        })
    }
}

impl<W: World> Drop for OpenPool<W> {
    fn drop(&mut self) {
        self.log.stop();
        self.halt.pull();
        self.parting.pull();
    }
}

/// How long the disks of a pool that is closed may be held by what has not ended.
const LET_GO_MAX: Duration = Duration::from_secs(1);
const LET_GO_STEP: Duration = Duration::from_millis(1);

/// The pool `name`, which has its home here.
fn find<W: World>(shard: &ShardContext<W>, name: &Name) -> Result<Rc<OpenPool<W>>, Refusal> {
    shard.pools.borrow().get(name).cloned().ok_or_else(|| {
        let hint = "`blockyard pool list` shows the pools";
        Refusal::new(code::POOL_UNKNOWN, format!("no pool is called {name}"), hint)
    })
}

/// Everything of the pool is stable, its groups are marked clean, and its disks are closed.
///
/// What cannot be written any more is told, as an event, and the pool is closed all the same.
pub(crate) async fn close<W: World>(shard: Rc<ShardContext<W>>, name: Name) -> Result<(), Refusal> {
    let pool = find(&shard, &name)?;
    let step = |step| pool.closing.set(Some(step));
    step("the work on its maps");
    pool.care.space.chores.stop().await;
    step("its rebuild, resync or scrub");
    pool.stop_work().await;
    step("what its cache has to write");
    let units: Vec<_> = shard.units().values().filter(|unit| unit.name.pool() == Some(&name)).cloned().collect();
    for unit in units {
        unit.stop_sanitizing().await;
        pool.write_to_the_end(&unit).await;
    }
    shard.withdraw_where(|unit| unit.name.pool() == Some(&name));
    step("its log device");
    pool.end_log().await;
    step("the commits of its maps");
    pool.pool.rest().await;
    step("the flush of its groups");
    for (number, group) in pool.groups.iter() {
        let number = u16::try_from(number).expect("a pool has at most 64 groups");
        if group.needs_resync.get() || pool.is_fenced() || pool.read_only.get().is_some() {
            continue;
        }
        if let Err(error) = pool.pool.mark_clean(number).await {
            let refusal = refusal(&error, &pool);
            tracing::error!(number, %refusal, "a group could not be marked clean");
            let sentence = format!("pool {name} was closed while group {number} was not in order: {}", refusal.message);
            pool.raise(event::POOL_UNCLEAN, sentence);
            continue;
        }
        if group.array.is_protected()
            && let Err(error) = group.array.close().await
        {
            // Nothing is lost by it: what was acknowledged is in the log, which the next opening replays.
            tracing::warn!(pool = %pool.name, number, %error, "the log of a group was not emptied");
        }
    }
    step("the marks on its disks");
    pool.let_go().await;
    pool.parting.pull();
    part_with(&shard, pool).await;
    Ok(())
}

/// The pool is not open here any more, and its disks can be opened again.
async fn part_with<W: World>(shard: &ShardContext<W>, pool: Rc<OpenPool<W>>) {
    shard.pools.borrow_mut().remove(&pool.name);
    let disks = pool.slots().into_iter().filter_map(|slot| Some(array::interruptible(&slot.disk?).landings()));
    let disks: Vec<Landings> = disks.collect();
    drop(pool);
    until_let_go(shard, &disks).await;
}

/// Nobody holds the disks any more: what was ended has a last turn first, and a command that a disk does not answer is not waited for.
async fn until_let_go<W: World>(shard: &ShardContext<W>, disks: &[Landings]) {
    let end = shard.world.now() + LET_GO_MAX;
    while !disks.iter().all(Landings::is_over) && shard.world.now() < end {
        shard.world.sleep(LET_GO_STEP).await;
    }
}

/// What the closing of the pool waits for; nothing where it is not being closed.
pub(crate) fn closing_step<W: World>(shard: &ShardContext<W>, name: &Name) -> Option<&'static str> {
    shard.pools.borrow().get(name)?.closing.get()
}

/// The pool is no more, and its disks are blank.
pub(crate) async fn destroy<W: World>(shard: Rc<ShardContext<W>>, name: Name) -> Result<(), Refusal> {
    let pool = find(&shard, &name)?;
    let volumes = pool.pool.space().volumes;
    if volumes > 0 {
        let message = format!("pool {name} has {volumes} volumes");
        return Err(Refusal::new(code::POOL_IN_USE, message, "delete its volumes first"));
    }
    pool.care.space.chores.stop().await;
    pool.stop_work().await;
    pool.end_log().await;
    pool.parting.pull();
    pool.guarding.end();
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

/// A new identity.
fn new_uuid<W: World>(world: &W) -> Uuid {
    let mut bytes = [0; 16];
    world.random(&mut bytes);
    uuid(DiskId::from_random(bytes))
}
