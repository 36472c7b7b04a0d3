//! The arrays of a pool: their members, and who hears of what is wrong with them.

use crate::counted::Counted;
use crate::fence::Fenced;
use crate::guarded::Guarded;
use crate::inspect;
use crate::overlay::Overlay;
use crate::pool::OpenPool;
use crate::remote::MemberDisk;
use crate::shard_context::ShardContext;
use block::{BlockDevice, IoError, IoErrorKind, Stable};
use model::Refusal;
use raid::{FailureLog, Finding, Options};
use shard::{GroupCommit, Interruptible, World, mailbox, pause_on, spawn_on};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use volume::Window;

/// A member disk as a whole: labels and catalogs at its ends, the array's data area between.
pub(crate) type Disk<W> = Rc<GroupCommit<Fenced<Interruptible<Counted<Overlay<MemberDisk<W>>>>>>>;

/// What an array uses of a member disk.
pub(crate) type Member<W> = Window<Disk<W>>;

/// The array of one group, with its lost blocks. Shared by the pool, its volumes and whoever repairs it.
pub(crate) type Group<W> = Rc<Guarded<Member<W>>>;

/// Opens the disk at `path` as members are opened.
///
/// *Errors*: as of [`inspect::open_as`].
pub(crate) async fn open_disk<W: World>(shard: &ShardContext<W>, path: &str) -> Result<Disk<W>, Refusal> {
    open_disk_as(shard, path, false, false).await
}

/// The same, for reading alone where that is asked for; with `force`, registrations of other initiators are preempted.
pub(crate) async fn open_disk_as<W: World>(
    shard: &ShardContext<W>,
    path: &str,
    read_only: bool,
    force: bool,
) -> Result<Disk<W>, Refusal> {
    let device = inspect::open_as(&shard.remotes, path, read_only, force).await?;
    let world = shard.world.clone();
    let counted = Counted::new(Overlay::new(device), move || world.now());
    let device = Interruptible::new(counted, shard.run_clock(), spawn_on(&shard.world));
    shard.remotes.landings().watch(path, device.landings());
    Ok(Rc::new(GroupCommit::new(Fenced::new(device))))
}

/// What lets callers of the disk stop waiting for it.
pub(crate) fn interruptible<W: World>(disk: &Disk<W>) -> &Interruptible<Counted<Overlay<MemberDisk<W>>>> {
    disk.device().device()
}

/// What counts the operations of the disk.
pub(crate) fn counted<W: World>(disk: &Disk<W>) -> &Counted<Overlay<MemberDisk<W>>> {
    interruptible(disk).device()
}

/// What keeps writes of the disk in memory, where they are kept.
pub(crate) fn overlay<W: World>(disk: &Disk<W>) -> &Overlay<MemberDisk<W>> {
    counted(disk).device()
}

/// Hears of what is wrong with the members of one group: writes their failures into the catalog of the pool, on
/// the disks that are left, and tells what they return that was not written.
pub(crate) struct Watch<W: World> {
    group: usize,
    /// The array keeps a record of its own, which is all that there is until its pool is open.
    protected: bool,
    /// Set once the pool is open: arrays are made before their pool.
    pool: OnceCell<Weak<OpenPool<W>>>,
    /// What was found before that.
    early: RefCell<Vec<Finding>>,
    /// The operator accepts what a damaged redo log has lost.
    accepts_log_loss: Cell<bool>,
}

impl<W: World> Watch<W> {
    /// The watch over the group at `group` in the catalog.
    pub(crate) fn new(group: usize, protected: bool) -> Rc<Self> {
        let (pool, early, accepts_log_loss) = Default::default();
        Rc::new(Self { group, protected, pool, early, accepts_log_loss })
    }

    /// The array of the group opens also where batches of its redo log cannot be read.
    pub(crate) fn accept_log_loss(&self) {
        self.accepts_log_loss.set(true);
    }

    /// `pool` hears of everything from now on, also of what was found before.
    pub(crate) fn bind(&self, pool: &Rc<OpenPool<W>>) {
        let bound = self.pool.set(Rc::downgrade(pool));
        assert!(bound.is_ok(), "a watch is bound once");
        self.early.take().into_iter().for_each(|finding| pool.note_finding(self.group, finding));
    }

    /// How a protected array of `disks` is run that is watched so, with `page_bytes` of memory for its sums.
    pub(crate) fn options<'a>(
        self: &Rc<Self>,
        world: &W,
        page_bytes: usize,
        disks: impl Iterator<Item = &'a Disk<W>>,
    ) -> Options {
        let mut sectors = disks.map(|disk| disk.geometry().physical_block_bytes);
        let blocks_are_atomic = sectors.all(|bytes| bytes >= raid::BLOCK_BYTES);
        let watch = self.clone();
        let findings: Rc<dyn Fn(Finding)> = Rc::new(move |finding| watch.hear_of(finding));
        let (spawn, pause) = (Some(spawn_on(world)), Some(pause_on(world)));
        let accept_log_loss = self.accepts_log_loss.get();
        Options { page_bytes, blocks_are_atomic, accept_log_loss, findings: Some(findings), spawn, pause }
    }

    fn hear_of(&self, finding: Finding) {
        match self.pool.get().map(Weak::upgrade) {
            Some(Some(pool)) => pool.note_finding(self.group, finding),
            Some(None) => {}
            None => self.early.borrow_mut().push(finding),
        }
    }
}

impl<W: World> FailureLog for Watch<W> {
    fn record(&self, member: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        let pool = self.pool.get().and_then(Weak::upgrade);
        let group = self.group;
        let recorded_by_array = self.protected && self.pool.get().is_none();
        Box::pin(async move {
            if recorded_by_array {
                // The anchor that ends the opening says who is absent; the catalog hears of it once the pool is open.
                return Ok(Stable::attest());
            }
            // A failure while the pool is being made or closed cannot be recorded, so nothing is acknowledged.
            let gone = IoError { kind: IoErrorKind::Gone, ..error };
            let pool = pool.ok_or(gone)?;
            let (tell, told) = mailbox::channel();
            // A task of its own: the array drives its work only while somebody waits for it, and a failure
            // that only reads have met is to be written down too.
            pool.clone().spawn(async move {
                // Nobody waits when the array is gone.
                let _ = tell.send(pool.record_failure(group, member, error).await);
            });
            told.receive().await.unwrap_or(Err(gone))
        })
    }
}

/// The code of a level in the catalog; see `docs/on-disk.md`.
pub(crate) fn level_code(level: model::Level) -> u8 {
    match level {
        model::Level::Raid0 => 0,
        model::Level::Raid1 => 1,
        model::Level::Raid5 => 5,
        model::Level::Raid6 => 6,
        model::Level::Raid10 => 10,
    }
}

/// The level behind a code, or `None` for one that this version does not know.
pub(crate) fn level_of_code(code: u8) -> Option<model::Level> {
    model::Level::ALL.into_iter().find(|&level| level_code(level) == code)
}

/// The level in the words of `raid`.
pub(crate) fn raid_level(level: model::Level) -> raid::Level {
    match level {
        model::Level::Raid0 => raid::Level::Raid0,
        model::Level::Raid1 => raid::Level::Raid1,
        model::Level::Raid5 => raid::Level::Raid5,
        model::Level::Raid6 => raid::Level::Raid6,
        model::Level::Raid10 => raid::Level::Raid10,
    }
}
