//! Log device of a pool: writes of volumes with the policy `back` are acknowledged from it, and it is replayed after a
//! crash.

use super::refusals::refusal;
use super::volumes::uuid_of;
use super::{Candidate, NewGroup, OpenPool, find, new_uuid};
use crate::array;
use crate::shard_context::ShardContext;
use crate::unit::Unit;
use block::{IoError, IoErrorKind, Stable};
use cache::{LogId, LogOwner, WriteLog};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use model::{
    GroupReport, Level, LogReport, LogState, MemberReport, MemberSize, MemberState, Name, PoolReport, PoolState,
    Refusal, Size, Subject, SubjectKind, VolumeName, VolumeReport, WritePolicy, code, event, first_few,
};
use shard::World;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use volume::{GroupRecord, Uuid};

/// Chunk of the log's group in bytes: of a stripe set, the data on one disk before the next; of a mirror, the unit of a
/// scrub step.
const CHUNK: Size = Size::new(64 << 10);

/// Log of an open pool.
#[derive(Default)]
pub(super) struct LogDevice(RefCell<Running>);

#[derive(Default)]
enum Running {
    /// The pool has no log.
    #[default]
    None,
    /// The log takes writes, unless it has failed.
    Runs { id: Uuid, log: WriteLog },
    /// The log cannot be used, for the reason `why`.
    Lost { why: String },
}

impl LogDevice {
    /// The log, if it was opened, whether it has failed since or not.
    pub(super) fn running(&self) -> Option<WriteLog> {
        match &*self.0.borrow() {
            Running::Runs { log, .. } => Some(log.clone()),
            Running::None | Running::Lost { .. } => None,
        }
    }

    /// Stops its tasks without waiting for them.
    pub(super) fn stop(&self) {
        self.running().iter().for_each(WriteLog::stop);
    }

    pub(super) fn begin(&self, id: Uuid, log: WriteLog) {
        let before = self.0.replace(Running::Runs { id, log });
        assert!(!matches!(before, Running::Runs { .. }), "a pool has one log");
    }

    pub(super) fn lose(&self, why: String) {
        let before = self.0.replace(Running::Lost { why });
        assert!(!matches!(before, Running::Runs { .. }), "a log that runs is not lost, it fails");
    }
}

/// Parameters of a new log device.
pub(crate) struct NewLog {
    /// Disks of the log; several form a mirror.
    pub disks: Vec<Candidate>,
    /// True if foreign data on the disks may be overwritten.
    pub force: bool,
}

/// Adds a log device to the pool. Its volumes may use write-back afterwards.
///
/// *Errors*: `LOG_KNOWN` if the pool has one; those of creating a group, with nothing changed. *Durability*: when it
/// returns.
pub(crate) async fn add_log<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    new: NewLog,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.admit_own("change its log device there")?;
    if pool.pool.write_log().group().is_some() {
        let message = format!("pool {} already has a log device", pool.name);
        let hint = format!("remove it first with blockyard pool remove-log {}", pool.name);
        return Err(Refusal::new(code::LOG_KNOWN, message, hint));
    }
    // A single disk has no redundancy: its loss costs the latest acknowledged writes.
    let level = if new.disks.len() > 1 { Level::Raid1 } else { Level::Raid0 };
    let group = NewGroup { level, chunk: CHUNK, integrity: true, member_size: MemberSize::default(), disks: new.disks };
    // The array stays with the log: the pool records its group and never touches it.
    let add = async |plan, _, labelling| pool.pool.write_log().add_group(plan, labelling).await;
    let place = pool.make_group(&group, new.force, add).await?;
    // A group without a usable log is removed again, so that nothing is left half done.
    if let Err(refusal) = pool.make_log(place).await {
        LogRemoval { pool: &pool, place, lost: true }.drop_group().await?;
        return Err(refusal);
    }
    let sentence = format!("log device of {1} disks added to pool {0}", pool.name, group.disks.len());
    pool.raise(event::LOG_ADDED, sentence);
    Ok(pool.report())
}

/// Removes the log device from the pool and blanks its disks. With `lost`, volumes that waited for its content serve
/// again without it, and their reports are returned.
///
/// *Errors*: `LOG_IN_USE` while a volume is in write-back or waits for the log; `LOG_NOT_LOST`; `POOL_BUSY` while one
/// of its disks is being rebuilt. *Durability*: when it returns.
pub(crate) async fn remove_log<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    lost: bool,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let pool = find(&shard, &pool)?;
    pool.admit_own("change its log device there")?;
    let Some(place) = pool.pool.write_log().group().map(usize::from) else {
        return Err(Refusal::new(code::LOG_UNKNOWN, format!("pool {} has no log device", pool.name), ""));
    };
    let removal = LogRemoval { pool: &pool, place, lost };
    removal.admit().await?;
    // No unit may write to the log any more before its group is removed.
    for unit in pool.units() {
        unit.set_log(None).await;
    }
    pool.end_log().await;
    removal.drop_group().await?;
    pool.raise(event::LOG_REMOVED, format!("log device of pool {} removed", pool.name));
    // With the log given up, volumes that waited for it can serve without its content.
    let shown = if lost { pool.open_blocked().await } else { Vec::new() };
    Ok((pool.report(), shown))
}

impl<W: World> OpenPool<W> {
    /// Units of the pool's volumes.
    pub(super) fn units(&self) -> Vec<Rc<Unit<W>>> {
        let units = self.shard.units();
        units.values().filter(|unit| unit.name.pool() == Some(&self.name)).cloned().collect()
    }

    /// Formats an empty log on the group and makes it the pool's log.
    pub(super) async fn make_log(self: &Rc<Self>, place: usize) -> Result<(), Refusal> {
        let failed = |error: &dyn std::fmt::Display| {
            Refusal::new(code::POOL_FAILED, format!("no log device can be created in pool {}: {error}", self.name), "")
        };
        let (id, device) = (new_uuid(&self.shard.world), self.groups[place].array.clone());
        let log = LogId(id.as_u128());
        // Format first, then name the log in the catalog: a crash in between leaves a group without a log, not a log
        // that cannot be read.
        let _: Stable = WriteLog::format(&device, log).await.map_err(|error| failed(&error))?;
        self.pool.write_log().set(id).await.map_err(|error| refusal(&error, self))?;
        let opened = WriteLog::open(device, log, self.shard.world.clone(), Keeper::of(self, id)).await;
        let log = opened.map_err(|error| failed(&error))?.finish().await.map_err(|error| failed(&error))?;
        self.log.begin(id, log.clone());
        for unit in self.units() {
            unit.set_log(Some(log.clone())).await;
        }
        Ok(())
    }

    /// Records in the catalog that the log may hold writes of the volume.
    ///
    /// *Durability*: when it returns, and before any write is acknowledged from the log. *Errors*: `POLICY_IMPOSSIBLE`
    /// without a working log.
    pub(super) async fn enter_log(&self, volume: Uuid, name: &VolumeName) -> Result<(), Refusal> {
        let why = match &*self.log.0.borrow() {
            Running::Runs { id, log } if !log.has_failed() => Ok(*id),
            Running::Runs { .. } => Err(format!("the log device of pool {} has failed", self.name)),
            Running::Lost { why } => Err(format!("the log device of pool {} cannot be used: {why}", self.name)),
            Running::None => Err(format!("pool {} has no log device", self.name)),
        };
        let id = why.map_err(|why| {
            let hint = format!(
                "add one with blockyard pool add-log {} DISK DISK, or choose back-volatile, which loses \
                     unflushed writes at a power failure",
                self.name
            );
            Refusal::new(code::POLICY_IMPOSSIBLE, format!("volume {name} cannot use write-back: {why}"), hint)
        })?;
        self.pool.write_log().add_volume(id, volume).await.map_err(|error| refusal(&error, self))
    }

    /// Removes the volume from the record of the log. The volume must be in write-through with nothing left in the log.
    pub(super) async fn leave_log(&self, volume: Uuid) {
        // The usual case: the log has nothing of the volume.
        if !self.pool.write_log().record().is_some_and(|log| log.volumes.contains(&volume)) {
            return;
        }
        if let Err(error) = self.pool.write_log().remove_volume(volume).await {
            // Harmless: the next opening asks the log for writes of a volume of which it has none.
            tracing::warn!(pool = %self.name, %volume, %error, "a volume could not be taken off the log");
        }
    }

    /// Writes the acknowledged data of the volume to the disks before it is closed. What cannot be written stays in the
    /// log, if the volume was in write-back.
    pub(super) async fn destage_unit(&self, unit: &Unit<W>) {
        // Asked before `write_through` changes the write policy in effect.
        let was_back = unit.is_written_back();
        match unit.write_through().await {
            Ok(()) => self.leave_log(uuid_of(unit.id)).await,
            Err(error) if was_back => {
                tracing::warn!(volume = %unit.name, %error, "what was acknowledged stays in the log until its pool is opened");
            }
            Err(error) => {
                // With `back-volatile` nothing but memory held the data; the operator has to know.
                tracing::error!(volume = %unit.name, %error, "acknowledged data is lost: it could not be written \
                     before shutdown");
                if unit.policy().write == WritePolicy::BackVolatile {
                    let name = &unit.name;
                    let sentence = format!(
                        "volume {name} uses write=back-volatile, and its pool was closed without its disks \
                         ({error}): unflushed writes are lost. Check the file system on it, and use write=through \
                         or a log device"
                    );
                    self.shard.raise(event::UNFLUSHED_LOST, Subject::new(SubjectKind::Volume, name), sentence);
                }
            }
        }
    }

    /// Ends the tasks of the log and waits for them.
    pub(super) async fn end_log(&self) {
        // The borrow must end before the await.
        let log = self.log.running();
        if let Some(log) = log {
            log.close().await;
        }
    }

    /// Names of the volumes that may have writes in the log.
    fn log_volumes(&self) -> Vec<VolumeName> {
        let ids = self.pool.write_log().record().map(|log| log.volumes).unwrap_or_default();
        let mut names: Vec<VolumeName> = ids.iter().filter_map(|id| self.volume_name(*id)).collect();
        names.sort();
        names
    }

    /// Report of the log; `None` if the pool has none.
    pub(super) fn log_report(&self) -> Option<LogReport> {
        let place = self.pool.write_log().group().map(usize::from)?;
        let (state, size, used, cause) = match &*self.log.0.borrow() {
            Running::Runs { log, .. } => {
                let state = if log.has_failed() { LogState::Failed } else { LogState::Ready };
                let cause = log.has_failed().then(|| "it failed".to_owned());
                (state, Size::new(log.ring_bytes()), Size::new(log.used_bytes()), cause)
            }
            Running::Lost { why } => (LogState::Lost, Size::ZERO, Size::ZERO, Some(why.clone())),
            // Neither opened nor judged: reported as lost rather than as ready.
            Running::None => (LogState::Lost, Size::ZERO, Size::ZERO, None),
        };
        // Without its disks there is no array, but the catalog still knows the members.
        let group = match self.groups.get(place) {
            Some(_) => self.group_report(place),
            None => absent(
                self.pool.write_log().group()?,
                self.pool.status().groups.get(place).map(|group| &group.record)?,
            )?,
        };
        let volumes = self.log_volumes();
        let why = state.meaning(cause.as_deref(), volumes.len());
        Some(LogReport { state, size, used, volumes, reason: why, group })
    }
}

/// Removal of a log device: its group, and whether its content is given up.
struct LogRemoval<'a, W: World> {
    pool: &'a Rc<OpenPool<W>>,
    place: usize,
    lost: bool,
}

impl<W: World> LogRemoval<'_, W> {
    /// Admits the removal: no volume is in write-back, and none waits for the log unless its content is given up.
    async fn admit(&self) -> Result<(), Refusal> {
        let Self { place, lost, .. } = *self;
        let is_lost = matches!(&*self.pool.log.0.borrow(), Running::Lost { .. });
        if lost && !is_lost {
            let message = format!("the log device of pool {} is available", self.pool.name);
            let hint = "set its volumes to write-through and omit --lost";
            return Err(Refusal::new(code::LOG_NOT_LOST, message, hint));
        }
        let in_use = |message: String, hint: String| Err(Refusal::new(code::LOG_IN_USE, message, hint));
        // Either is enough: a policy that could not be applied leaves the unit in write-back.
        let back = |unit: &&Rc<Unit<W>>| unit.policy().write == WritePolicy::Back || unit.is_written_back();
        if let Some(unit) = self.pool.units().iter().find(back) {
            let message = format!("volume {} uses the log device of pool {}", unit.name, self.pool.name);
            return in_use(
                message,
                format!("set it to write-through first: blockyard volume set {} --write-policy through", unit.name),
            );
        }
        if let Some(waiting) = self.pool.log_volumes().first().filter(|_| is_lost && !lost) {
            let message = format!("volume {waiting} waits for its data in the log device of pool {}", self.pool.name);
            let hint = format!(
                "attach its disks and open the pool again; or discard the last acknowledged writes: blockyard \
                 pool remove-log {} --lost",
                self.pool.name
            );
            return in_use(message, hint);
        }
        // A rebuild writes to the group that would be dismantled.
        if self.pool.groups.get(place).is_some_and(|group| group.repairing.get()) {
            let message = format!("a disk of the log device of pool {} is being rebuilt", self.pool.name);
            return Err(Refusal::new(code::POOL_BUSY, message, "wait until the rebuild has finished"));
        }
        // All volumes are in write-through, so no entry of the log is needed any more.
        for volume in
            self.pool.pool.write_log().record().filter(|_| !is_lost).map(|log| log.volumes).unwrap_or_default()
        {
            self.pool.pool.write_log().remove_volume(volume).await.map_err(|error| refusal(&error, self.pool))?;
        }
        Ok(())
    }

    /// Removes the group of the log from the catalog and frees its disks.
    async fn drop_group(&self) -> Result<(), Refusal> {
        let Self { place, lost, .. } = *self;
        if let Some(group) = self.pool.groups.get(place) {
            // An error is harmless: the log was empty.
            if let Err(error) = group.array.close().await {
                tracing::debug!(pool = %self.pool.name, %error, "the array of a log that goes");
            }
            // Marked first, so that no task finds the group while its disks are closed.
            group.removed.set(true);
            group.array.shut_down();
            group.slots.borrow_mut().iter_mut().for_each(|slot| slot.disk = None);
        }
        if lost && let Some(volumes) = Some(self.pool.log_volumes()).filter(|volumes| !volumes.is_empty()) {
            let sentence = format!(
                "the log device of pool {} was discarded; the last acknowledged writes of these volumes are lost: {}",
                self.pool.name,
                first_few(volumes.iter(), 5)
            );
            self.pool.raise(event::LOG_GIVEN_UP, sentence);
        }
        // Removing checks that no volume needs the log; giving it up does not.
        let removed = if lost {
            self.pool.pool.write_log().discard_group().await
        } else {
            self.pool.pool.write_log().remove_group().await
        };
        // Also after a failure: the array of the group is shut down by now.
        self.pool.log.0.replace(Running::None);
        removed.map(drop).map_err(|error| refusal(&error, self.pool))
    }
}

/// Report of a group whose array is not assembled.
fn absent(place: u16, record: &GroupRecord) -> Option<GroupReport> {
    let member = |(slot, member): (u16, &volume::MemberRecord)| MemberReport {
        slot,
        id: super::disk_id(member.disk),
        disk: None,
        // A member that did not fail is missing: its disk was not found.
        state: if member.state == volume::MemberState::Failed { MemberState::Failed } else { MemberState::Missing },
        errors: 0,
        checksum_errors: 0,
        replaces: None,
        errors_24h: 0,
        health: model::MemberFitness::Good,
        copy: None,
        next_spare: None,
        latency: None,
    };
    Some(GroupReport {
        number: place,
        level: array::level_of_code(record.level)?,
        chunk: Size::new(u64::from(record.chunk_bytes)),
        integrity: record.protected,
        member_size: super::report::disk_size_for(record.member_blocks),
        state: PoolState::Failed,
        members: (0..).zip(&record.members).map(member).collect(),
        rebuild: None,
        resync: None,
        reshape: None,
        growth: None,
    })
}

/// Observer of the log that records its failure in the catalog.
pub(super) struct Keeper<W: World> {
    pool: Weak<OpenPool<W>>,
    id: Uuid,
}

impl<W: World> Keeper<W> {
    /// Creates the observer of the log `id`.
    pub(super) fn of(pool: &Rc<OpenPool<W>>, id: Uuid) -> Rc<dyn LogOwner> {
        Rc::new(Self { pool: Rc::downgrade(pool), id })
    }
}

impl<W: World> LogOwner for Keeper<W> {
    fn abandon(
        &self,
        error: IoError,
        volumes: Vec<cache::VolumeId>,
    ) -> LocalBoxFuture<'static, Result<Stable, IoError>> {
        let (pool, id) = (self.pool.upgrade(), self.id);
        async move {
            // While the pool is being dropped nothing can be recorded, so nothing may be acknowledged.
            let gone = IoError { kind: IoErrorKind::Gone, ..error };
            let pool = pool.ok_or(gone)?;
            tracing::error!(pool = %pool.name, %error, "the log device has failed; volumes use write-through");
            let volumes = volumes.into_iter().map(|volume| Uuid::from_u128(volume.0)).collect();
            // The catalog must say that the log failed before a volume is acknowledged in write-through: its entries
            // are older from then on.
            let abandoned = pool.pool.write_log().abort(id, volumes).await;
            let sentence = format!(
                "the log device of pool {} has failed: {error}; its volumes use write-through, and its contents \
                 are being destaged from memory",
                pool.name
            );
            pool.shard.raise(event::LOG_FAILED, Subject::pool(&pool.name), sentence);
            abandoned.map(|()| Stable::attest()).map_err(|refusal| {
                tracing::error!(pool = %pool.name, %refusal, "the failure of the log could not be recorded; its volumes take no writes");
                gone
            })
        }
        .boxed_local()
    }

    fn all_destaged(&self) -> LocalBoxFuture<'static, ()> {
        let (pool, id) = (self.pool.upgrade(), self.id);
        async move {
            let Some(pool) = pool else { return };
            match pool.pool.write_log().mark_settled(id).await {
                Ok(()) => {
                    let sentence = format!(
                        "the contents of the failed log device of pool {0} are on the disks; set its volumes to \
                         write-through, remove it with blockyard pool remove-log {0}, and add another",
                        pool.name
                    );
                    pool.raise(event::LOG_SETTLED, sentence);
                }
                Err(error) => {
                    tracing::error!(pool = %pool.name, %error, "the end of a failed log could not be recorded")
                }
            }
        }
        .boxed_local()
    }
}
