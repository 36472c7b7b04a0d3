//! Arrays of a pool: the device stack of their members, and the link from an array to its pool for failures and
//! findings.
//!
//! Used by `pool` when it creates, opens or changes groups. Also maps RAID levels between the model, the catalog and
//! the `raid` crate.

use crate::counted::Counted;
use crate::fence::Fenced;
use crate::inspect;
use crate::loss_tracking::LossTrackingArray;
use crate::overlay::Overlay;
use crate::pool::OpenPool;
use crate::remote::MemberDisk;
use crate::shard_context::ShardContext;
use block::{BlockDevice, IoError, IoErrorKind, Stable};
use model::Refusal;
use raid::{FailureLog, Finding, Options};
use shard::{AbandonableDevice, GroupCommit, World, mailbox, pause_on, spawn_on};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use volume::Window;

/// Layers over a member disk.
pub(crate) type MemberStack<W> = GroupCommit<Fenced<AbandonableDevice<Counted<Overlay<MemberDisk<W>>>>>>;

/// A member disk in full: labels and catalogs at its ends, the data area of the array between them.
pub(crate) type Disk<W> = Rc<MemberStack<W>>;

/// Data area of a member disk, as the array sees it.
pub(crate) type Member<W> = Window<Disk<W>>;

/// Array of one group with its list of lost blocks. Shared by the pool, its volumes and the maintenance tasks.
pub(crate) type Group<W> = Rc<LossTrackingArray<Member<W>>>;

/// Opens the disk at `path` for use as a member.
///
/// *Errors*: as [`inspect::open_as`].
pub(crate) async fn open_disk<W: World>(shard: &ShardContext<W>, path: &str) -> Result<Disk<W>, Refusal> {
    open_disk_as(shard, path, false, false).await
}

/// As [`open_disk`], read-only on request; with `force`, reservations of other initiators are preempted.
pub(crate) async fn open_disk_as<W: World>(
    shard: &ShardContext<W>,
    path: &str,
    read_only: bool,
    force: bool,
) -> Result<Disk<W>, Refusal> {
    let device = inspect::open_as(&shard.remotes, path, read_only, force).await?;
    let world = shard.world.clone();
    // Counted below the interruptible layer: an operation that its caller has left still occupies the disk.
    let counted = Counted::new(Overlay::new(device), move || world.now());
    let device = AbandonableDevice::new(counted, shard.run_clock(), spawn_on(&shard.world));
    // Registered before anything is sent to the disk: it must not be opened again while an operation is in flight.
    shard.remotes.landings().watch(path, device.in_flight());
    // The fence lies above: a write that waits for the lease was not sent to the disk, so it cannot land late.
    Ok(Rc::new(GroupCommit::new(Fenced::new(device))))
}

/// Layer that lets callers of the disk stop waiting for an operation.
pub(crate) fn interruptible<W: World>(disk: &Disk<W>) -> &AbandonableDevice<Counted<Overlay<MemberDisk<W>>>> {
    disk.device().device()
}

/// Layer that counts the operations of the disk.
pub(crate) fn counted<W: World>(disk: &Disk<W>) -> &Counted<Overlay<MemberDisk<W>>> {
    interruptible(disk).device()
}

/// Layer that keeps writes to the disk in memory if the pool is read-only.
pub(crate) fn overlay<W: World>(disk: &Disk<W>) -> &Overlay<MemberDisk<W>> {
    counted(disk).device()
}

/// Listener for the failures and findings of one group. Records failed members in the catalog of the pool, on the
/// remaining disks, and reports blocks that differ from what was written.
pub(crate) struct GroupListener<W: World> {
    group: usize,
    /// True if the array records failures in its own log; that is the only record until the pool is open.
    protected: bool,
    /// Pool of the group; set once it is open, because arrays are assembled before their pool.
    pool: OnceCell<Weak<OpenPool<W>>>,
    /// Findings from before the pool was open.
    early: RefCell<Vec<Finding>>,
    /// True if the operator accepts the loss of damaged batches of the redo log.
    accepts_log_loss: Cell<bool>,
}

impl<W: World> GroupListener<W> {
    /// Creates the listener for the group at `group` in the catalog.
    pub(crate) fn new(group: usize, protected: bool) -> Rc<Self> {
        let (pool, early, accepts_log_loss) = Default::default();
        Rc::new(Self { group, protected, pool, early, accepts_log_loss })
    }

    /// Lets the array of the group open even if batches of its redo log cannot be read.
    pub(crate) fn accept_log_loss(&self) {
        self.accepts_log_loss.set(true);
    }

    /// Binds the listener to `pool`, which receives all findings from now on, and those from before.
    pub(crate) fn bind(&self, pool: &Rc<OpenPool<W>>) {
        // Weak: the pool owns its arrays, and these own this listener.
        let bound = self.pool.set(Rc::downgrade(pool));
        assert!(bound.is_ok(), "a watch is bound once");
        self.early.take().into_iter().for_each(|finding| pool.note_finding(self.group, finding));
    }

    /// Options of a protected array over `disks` with this listener and `page_bytes` of memory for its checksums.
    pub(crate) fn options<'a>(
        self: &Rc<Self>,
        world: &W,
        page_bytes: usize,
        disks: impl Iterator<Item = &'a Disk<W>>,
    ) -> Options {
        // Disks with sectors of a whole block are taken to write a block atomically at a power loss.
        let mut sectors = disks.map(|disk| disk.geometry().physical_block_bytes);
        let blocks_are_atomic = sectors.all(|bytes| bytes >= raid::BLOCK_BYTES);
        // The array holds the listener through this closure.
        let watch = self.clone();
        let findings: Rc<dyn Fn(Finding)> = Rc::new(move |finding| watch.on_finding(finding));
        let (spawn, pause) = (Some(spawn_on(world)), Some(pause_on(world)));
        let accept_log_loss = self.accepts_log_loss.get();
        Options { page_bytes, blocks_are_atomic, accept_log_loss, findings: Some(findings), spawn, pause }
    }

    fn on_finding(&self, finding: Finding) {
        match self.pool.get().map(Weak::upgrade) {
            Some(Some(pool)) => pool.note_finding(self.group, finding),
            // The pool is being dropped: nobody is left to report to.
            Some(None) => {}
            None => self.early.borrow_mut().push(finding),
        }
    }
}

impl<W: World> FailureLog for GroupListener<W> {
    fn record(&self, member: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        let pool = self.pool.get().and_then(Weak::upgrade);
        let group = self.group;
        // Before the pool is open the array's own record counts, afterwards the catalog.
        let recorded_by_array = self.protected && self.pool.get().is_none();
        Box::pin(async move {
            if recorded_by_array {
                // The anchor written at the end of the opening lists the absent members; the catalog follows once the
                // pool is open.
                return Ok(Stable::attest());
            }
            // While the pool is created or closed a failure cannot be recorded, so nothing may be acknowledged.
            let gone = IoError { kind: IoErrorKind::Gone, ..error };
            let pool = pool.ok_or(gone)?;
            let (tell, told) = mailbox::channel();
            // A task of its own: the array runs its work only while a command waits for it, and a failure that only
            // reads have met must be recorded as well.
            pool.clone().spawn(async move {
                // The send fails only if the array is gone.
                let _ = tell.send(pool.record_failure(group, member, error).await);
            });
            told.receive().await.unwrap_or(Err(gone))
        })
    }
}

/// Code of a RAID level in the catalog (`docs/on-disk.md`).
pub(crate) fn level_code(level: model::Level) -> u8 {
    match level {
        model::Level::Raid0 => 0,
        model::Level::Raid1 => 1,
        model::Level::Raid5 => 5,
        model::Level::Raid6 => 6,
        model::Level::Raid10 => 10,
    }
}

/// RAID level of a code; `None` for a code that this version does not know.
pub(crate) fn level_of_code(code: u8) -> Option<model::Level> {
    model::Level::ALL.into_iter().find(|&level| level_code(level) == code)
}

/// RAID level in the terms of the `raid` crate.
pub(crate) fn raid_level(level: model::Level) -> raid::Level {
    match level {
        model::Level::Raid0 => raid::Level::Raid0,
        model::Level::Raid1 => raid::Level::Raid1,
        model::Level::Raid5 => raid::Level::Raid5,
        model::Level::Raid6 => raid::Level::Raid6,
        model::Level::Raid10 => raid::Level::Raid10,
    }
}
