//! Write log record in the catalog: which log device a pool uses and which volumes depend on it.
//!
//! Called by the owner of the log in the engine. The rules and their order are in `docs/on-disk.md`, *The write
//! log*; the pool itself never reads or writes the log's group.

use super::members::Members;
use super::{GroupPlan, LabelParams, Pool};
use crate::assembly::{AssembledPool, DiskState};
use crate::catalog::{Catalog, GroupRecord, GroupRole, LogRecord, LogState, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::BLOCK_BYTES;
use crate::store::{Change, SINCE_NEXT, Store};
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

/// Catalog record of the pool's write log and its group.
pub struct WriteLog<'a, D> {
    store: &'a Store<D>,
    members: Members<'a, D>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Write log of the pool.
    #[must_use]
    pub fn write_log(&self) -> WriteLog<'_, D> {
        WriteLog { store: &self.shared.store, members: self.members() }
    }
}

impl<D: BlockDevice + 'static> WriteLog<'_, D> {
    /// Index of the log group; none where the pool has no such group.
    #[must_use]
    pub fn group(&self) -> Option<u16> {
        self.store.with_catalog(Catalog::log_group)
    }

    /// Log record in the catalog, limited to volumes that still exist.
    #[must_use]
    pub fn record(&self) -> Option<LogRecord> {
        self.store.with_catalog(|catalog| {
            let log = catalog.log.as_ref()?;
            Some(LogRecord { volumes: catalog.log_volumes(), ..log.clone() })
        })
    }

    /// Sets the log of the pool to `id`, which is already formatted on the log group. A previous log is never
    /// opened again.
    ///
    /// *Shape*: `id` is new. *Durability*: when it returns. *Errors*: `LogUnknown` without a log group;
    /// `LogInUse` while volumes need the present log; `CatalogLost`.
    pub async fn set(&self, id: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            let group = catalog.log_group().ok_or(PoolError::LogUnknown)?;
            // A log is not replaced while it may have the only copy of acknowledged writes.
            match catalog.log_volumes().len() {
                0 => catalog.log = Some(LogRecord { group, id, state: LogState::Live, volumes: Vec::new() }),
                volumes => return Err(PoolError::LogInUse(volumes)),
            }
            Ok(())
        })
        .await
    }

    /// Adds a volume to the log `id`: it may have data there from now on and does not serve without the log.
    ///
    /// *Durability*: when it returns, so nothing is in the log before. *Errors*: `LogUnknown` when that log is
    /// not the pool's or was abandoned; `VolumeUnknown`; `CatalogLost`.
    pub async fn add_volume(&self, id: Uuid, volume: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            if catalog.volume(volume).is_none() && catalog.branch(volume).is_none() {
                return Err(PoolError::VolumeUnknown(volume));
            }
            // Deleted volumes are dropped here, so that the list never exceeds the number of volumes of a pool.
            let known = catalog.log_volumes();
            let log = catalog.log.as_mut().filter(|log| log.id == id && log.state == LogState::Live);
            let log = log.ok_or(PoolError::LogUnknown)?;
            log.volumes = known;
            if !log.volumes.contains(&volume) {
                log.volumes.push(volume);
            }
            Ok(())
        })
        .await
    }

    /// Removes a volume from the log: all its data is stable on its groups, or the operator has accepted the
    /// loss.
    ///
    /// *Durability*: when it returns. *Errors*: `CatalogLost`.
    pub async fn remove_volume(&self, volume: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            catalog.log.iter_mut().for_each(|log| log.volumes.retain(|known| *known != volume));
            Ok(())
        })
        .await
    }

    /// Gives up the log and its group after the operator has accepted the loss: the volumes lose what they had
    /// in it. Returns the disks of the group, wiped as far as they are present.
    ///
    /// *Durability* and *errors* as of [`WriteLog::remove_group`], without `LogInUse`.
    pub async fn discard_group(&self) -> Result<Vec<Uuid>, PoolError> {
        self.change(|catalog| {
            // Dropped first: `remove_group` refuses while volumes are named in it.
            catalog.log = None;
            Ok(())
        })
        .await?;
        self.remove_group().await
    }

    /// Marks the log `id` as abandoned: it is never opened again, and `volumes` have acknowledged data in
    /// memory only.
    ///
    /// *Durability*: when it returns; after a crash the volumes have lost that data. *Errors*: `LogUnknown`
    /// when that log is not the pool's; `CatalogLost`.
    pub async fn abort(&self, id: Uuid, volumes: Vec<Uuid>) -> Result<(), PoolError> {
        self.change(|catalog| {
            let log = catalog.log.as_mut().filter(|log| log.id == id).ok_or(PoolError::LogUnknown)?;
            // State and volumes change in one commit; see rule 3 of *The write log*.
            (log.state, log.volumes) = (LogState::Abandoned, volumes);
            // The check of the catalog refuses a log that names a volume twice.
            log.volumes.sort_unstable();
            log.volumes.dedup();
            let known = catalog.log_volumes();
            catalog.log.iter_mut().for_each(|log| log.volumes.retain(|volume| known.contains(volume)));
            Ok(())
        })
        .await
    }

    /// Records that nothing acknowledged through the abandoned log `id` is in memory only any more.
    ///
    /// *Durability*: when it returns. *Errors*: `LogUnknown` when that log is not the pool's or is live;
    /// `CatalogLost`.
    pub async fn mark_settled(&self, id: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            let log = catalog.log.as_mut().filter(|log| log.id == id && log.state == LogState::Abandoned);
            log.ok_or(PoolError::LogUnknown)?.volumes.clear();
            Ok(())
        })
        .await
    }

    /// Makes the log, which was missing when the pool was opened, live again on those of its disks that are
    /// back unchanged.
    ///
    /// *Shape*: `found` is the pool as probed now; `disk` returns the device of a probe. *Durability*: when it
    /// returns; a crash before leaves the log away, to be taken up at the next opening. *Errors*: `LogUnknown`
    /// when the log is not away, or none of its disks is back; `NotReached` when one of them did not take a
    /// commit; `CatalogLost`.
    pub async fn reattach(&self, found: &AssembledPool, disk: impl Fn(usize) -> D) -> Result<(), PoolError> {
        let _held = self.members.begin_membership_change()?;
        let store = self.store;
        let is_away = self.record().is_some_and(|log| log.state == LogState::Missing);
        let group = self.group().filter(|_| is_away).ok_or(PoolError::LogUnknown)?;
        // Fresh probes decide, because the disks were absent when the pool was opened.
        let positions = &found.groups[usize::from(group)].positions;
        let current = positions.iter().filter(|position| position.state == DiskState::Current);
        let back: Vec<_> = current.filter_map(|position| Some((position.disk, position.probe?))).collect();
        if back.is_empty() {
            return Err(PoolError::LogUnknown);
        }
        // The disks get one whole commit before the commit that makes them members: after a crash they are at
        // most one commit behind.
        back.iter().for_each(|&(id, place)| store.add_joining(id, Rc::new(disk(place))));
        let reached = async {
            let ((), change) = store.change(|_| Ok(()))?;
            store.committed(change).await?;
            back.iter().find(|(id, _)| !store.is_joining(*id)).map_or(Ok(()), |(id, _)| Err(PoolError::NotReached(*id)))
        };
        let reached = reached.await;
        let returned = reached.and_then(|()| {
            store.change(|catalog| {
                for member in &mut catalog.groups[usize::from(group)].members {
                    // Disks that did not return become failed or missing from this commit on.
                    let is_back = back.iter().any(|(id, _)| *id == member.disk);
                    let state = if is_back { MemberState::InService } else { member.state };
                    *member = MemberRecord { state, since: SINCE_NEXT, ..*member };
                }
                catalog.log.iter_mut().for_each(|log| log.state = LogState::Live);
                Ok(())
            })
        });
        // From here on they get commits as members; on error they are detached below.
        back.iter().for_each(|(id, _)| store.end_joining(*id));
        match returned {
            Ok(((), change)) => store.committed(change).await,
            Err(error) => {
                back.iter().for_each(|(id, _)| store.detach(*id));
                Err(error)
            }
        }
    }

    /// Adds a group for the write log, without a log on it yet; returns its index. The caller builds the array
    /// and serves it: the pool never touches it.
    ///
    /// *Durability* and *errors* as of [`Pool::add_group`], and `LogKnown`.
    pub async fn add_group(&self, plan: GroupPlan<D>, labelling: LabelParams) -> Result<u16, PoolError> {
        let slab_blocks = self.store.with_catalog(|catalog| catalog.slab_bytes) / u64::from(BLOCK_BYTES);
        let slab_blocks = u32::try_from(slab_blocks).map_err(|_| PoolError::Plan("a slab is too large"))?;
        // A log group has no slabs, but the check of the catalog requires a slab size.
        let record = GroupRecord { role: GroupRole::Log, ..GroupRecord::of(&plan, slab_blocks, 0) };
        let _held = self.members.begin_membership_change()?;
        if self.group().is_some() {
            return Err(PoolError::LogKnown);
        }
        self.members.add_group_disks(plan, record, labelling).await
    }

    /// Removes the log group and wipes its disks; returns their UUIDs.
    ///
    /// *Durability*: when it returns; after a crash in between the disks may still have the label of the pool,
    /// which no longer lists them. *Errors*: `LogUnknown`, `LogInUse`, `MembershipChanging`, `CatalogLost`.
    pub async fn remove_group(&self) -> Result<Vec<Uuid>, PoolError> {
        let _held = self.members.begin_membership_change()?;
        let (members, change) = self.store.change(|catalog| {
            let place = catalog.log_group().ok_or(PoolError::LogUnknown)?;
            match catalog.log_volumes().len() {
                0 => catalog.log = None,
                volumes => return Err(PoolError::LogInUse(volumes)),
            }
            Ok(catalog.groups[usize::from(place)].remove())
        })?;
        // Committed before the wipe: a disk must not lose its metadata while the catalog still counts on it.
        self.store.committed(change).await?;
        self.members.detach_and_wipe(&members).await;
        Ok(members)
    }

    /// Commits the log record as `change` leaves it; skips the commit when nothing changed.
    async fn change(&self, change: impl FnOnce(&mut Catalog) -> Result<(), PoolError>) -> Result<(), PoolError> {
        let store = self.store;
        let unchanged: Change = store.latest();
        let before = store.with_catalog(|catalog| catalog.log.clone());
        let ((), change) = store.change(change)?;
        let same = store.with_catalog(|catalog| catalog.log == before);
        // Still waits for the latest change: an earlier identical call may not be durable yet.
        store.committed(if same { unchanged } else { change }).await
    }
}
