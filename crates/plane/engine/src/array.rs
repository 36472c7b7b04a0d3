//! The arrays of a pool: their members, and who hears of what is wrong with them.

use crate::counted::Counted;
use crate::fence::Fenced;
use crate::overlay::Overlay;
use crate::pool::OpenPool;
use crate::remote::MemberDisk;
use block::{BlockDevice, IoError, IoErrorKind, Stable};
use raid::{Array, FailureLog, Finding, Options};
use shard::{GroupCommit, World, mailbox, pause_on, spawn_on};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use volume::Window;

/// A member disk as a whole: labels and catalogs at its ends, the array's data area between.
pub type Disk<W> = Rc<GroupCommit<Fenced<Counted<Overlay<MemberDisk<W>>>>>>;

/// What an array uses of a member disk.
pub type Member<W> = Window<Disk<W>>;

/// The array of one group. Shared by the pool, its volumes and whoever repairs it.
pub type Group<W> = Rc<Array<Member<W>>>;

/// The array's disk, opened.
pub fn disk<W: World>(world: &W, device: MemberDisk<W>) -> Disk<W> {
    let world = world.clone();
    Rc::new(GroupCommit::new(Fenced::new(Counted::new(Overlay::new(device), move || world.now()))))
}

/// What keeps writes of the disk in memory, where they are kept.
pub fn overlay<W: World>(disk: &Disk<W>) -> &Overlay<MemberDisk<W>> {
    disk.device().device().device()
}

/// Hears of what is wrong with the members of one group: writes their failures into the catalog of the pool, on
/// the disks that are left, and tells what they return that was not written.
pub struct Watch<W: World> {
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
    pub fn new(group: usize, protected: bool) -> Rc<Self> {
        let (pool, early, accepts_log_loss) = Default::default();
        Rc::new(Self { group, protected, pool, early, accepts_log_loss })
    }

    /// The array of the group opens also where batches of its redo log cannot be read.
    pub fn accept_log_loss(&self) {
        self.accepts_log_loss.set(true);
    }

    /// `pool` hears of everything from now on, also of what was found before.
    pub fn bind(&self, pool: &Rc<OpenPool<W>>) {
        let bound = self.pool.set(Rc::downgrade(pool));
        assert!(bound.is_ok(), "a watch is bound once");
        self.early.take().into_iter().for_each(|finding| pool.note_finding(self.group, finding));
    }

    /// How a protected array of `disks` is run that is watched so, with `page_bytes` of memory for its sums.
    pub fn options<'a>(
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
pub fn level_code(level: model::Level) -> u8 {
    match level {
        model::Level::Raid0 => 0,
        model::Level::Raid1 => 1,
        model::Level::Raid5 => 5,
        model::Level::Raid6 => 6,
        model::Level::Raid10 => 10,
    }
}

/// The level behind a code, or `None` for one that this version does not know.
pub fn level_of_code(code: u8) -> Option<model::Level> {
    model::Level::ALL.into_iter().find(|&level| level_code(level) == code)
}

/// The level in the words of `raid`.
pub fn raid_level(level: model::Level) -> raid::Level {
    match level {
        model::Level::Raid0 => raid::Level::Raid0,
        model::Level::Raid1 => raid::Level::Raid1,
        model::Level::Raid5 => raid::Level::Raid5,
        model::Level::Raid6 => raid::Level::Raid6,
        model::Level::Raid10 => raid::Level::Raid10,
    }
}
