//! The arrays of a pool: their members, and where their failures are written down.

use crate::counted::Counted;
use crate::fence::Fenced;
use crate::pool::OpenPool;
use block::{IoError, IoErrorKind, Stable};
use raid::{Array, FailureLog};
use shard::{GroupCommit, World, mailbox};
use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use volume::Window;

/// A member disk as a whole: labels and catalogs at its ends, the array's data area between.
pub type Disk<W> = Rc<GroupCommit<Fenced<Counted<<W as World>::Disk>>>>;

/// What an array uses of a member disk.
pub type Member<W> = Window<Disk<W>>;

/// The array of one group. Shared by the pool, its volumes and whoever repairs it.
pub type Group<W> = Rc<Array<Member<W>>>;

/// The array's disk, opened.
pub fn disk<W: World>(device: W::Disk) -> Disk<W> {
    Rc::new(GroupCommit::new(Fenced::new(Counted::new(device))))
}

/// Writes a member's failure into the catalog of its pool, on the disks that are left.
pub struct FailureRecord<W: World> {
    group: usize,
    /// Set once the pool is open: arrays are made before their pool.
    pool: OnceCell<Weak<OpenPool<W>>>,
}

impl<W: World> FailureRecord<W> {
    /// The record of the group at `group` in the catalog.
    pub fn new(group: usize) -> Rc<Self> {
        Rc::new(Self { group, pool: OnceCell::new() })
    }

    /// Failures are recorded in `pool` from now on.
    pub fn bind(&self, pool: &Rc<OpenPool<W>>) {
        let bound = self.pool.set(Rc::downgrade(pool));
        assert!(bound.is_ok(), "a record is bound once");
    }
}

impl<W: World> FailureLog for FailureRecord<W> {
    fn record(&self, member: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        let pool = self.pool.get().and_then(Weak::upgrade);
        let group = self.group;
        Box::pin(async move {
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
