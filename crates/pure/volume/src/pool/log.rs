//! What the catalog remembers of the write log, for whoever runs it: `docs/on-disk.md` has the rules.

use super::members::Members;
use super::{GroupPlan, Labelling, Pool};
use crate::assembly::{FoundPool, Standing};
use crate::catalog::{Catalog, GroupRecord, GroupRole, LogRecord, LogState, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::BLOCK_BYTES;
use crate::store::{Change, SINCE_NEXT, Store};
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

/// What the catalog of a pool remembers of its write log, and the group that the log lies on.
pub struct WriteLog<'a, D> {
    store: &'a Store<D>,
    members: Members<'a, D>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The write log of the pool.
    #[must_use]
    pub fn write_log(&self) -> WriteLog<'_, D> {
        WriteLog { store: &self.shared.store, members: self.members() }
    }
}

impl<D: BlockDevice + 'static> WriteLog<'_, D> {
    /// The group that is there for the write log, by its place.
    #[must_use]
    pub fn group(&self) -> Option<u16> {
        self.store.look(Catalog::log_group)
    }

    /// The write log as the catalog has it, with those of its volumes that the pool still has.
    #[must_use]
    pub fn record(&self) -> Option<LogRecord> {
        self.store.look(|catalog| {
            let log = catalog.log.as_ref()?;
            Some(LogRecord { volumes: catalog.log_volumes(), ..log.clone() })
        })
    }

    /// The log of the pool is `id`, which lies formatted on the group for it. What was there before is never opened again.
    ///
    /// *Shape*: `id` is new. *Durability*: when it returns. *Errors*: `LogUnknown` without a group for it; `LogInUse`
    /// while volumes need the present one; `CatalogLost`.
    pub async fn set(&self, id: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            let group = catalog.log_group().ok_or(PoolError::LogUnknown)?;
            match catalog.log_volumes().len() {
                0 => catalog.log = Some(LogRecord { group, id, state: LogState::Live, volumes: Vec::new() }),
                volumes => return Err(PoolError::LogInUse(volumes)),
            }
            Ok(())
        })
        .await
    }

    /// The volume may have data in the log `id` from now on: it does not serve without it.
    ///
    /// *Durability*: when it returns, so that nothing is in the log before. *Errors*: `LogUnknown` when that log is not
    /// the pool's or was abandoned; `VolumeUnknown`; `CatalogLost`.
    pub async fn enter(&self, id: Uuid, volume: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            if catalog.volume(volume).is_none() && catalog.branch(volume).is_none() {
                return Err(PoolError::VolumeUnknown(volume));
            }
            // Volumes that are deleted are forgotten here, so that the list never has more than a pool can.
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

    /// The log has nothing of the volume: all that it had is stable below, or the operator knows that it is lost.
    ///
    /// *Durability*: when it returns. *Errors*: `CatalogLost`.
    pub async fn leave(&self, volume: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            catalog.log.iter_mut().for_each(|log| log.volumes.retain(|known| *known != volume));
            Ok(())
        })
        .await
    }

    /// The volumes have lost what they had in the log, which is never opened again, and the group is nobody's: an operator
    /// has admitted it. Which disks the group had, blank as far as they are here.
    ///
    /// *Durability* and *errors* as of [`WriteLog::remove_group`], without `LogInUse`.
    pub async fn forget_group(&self) -> Result<Vec<Uuid>, PoolError> {
        self.change(|catalog| {
            catalog.log = None;
            Ok(())
        })
        .await?;
        self.remove_group().await
    }

    /// The log `id` is never opened again, and `volumes` have acknowledged data in memory alone.
    ///
    /// *Durability*: when it returns; found so after a crash, they have lost it. *Errors*: `LogUnknown` when that log is
    /// not the pool's; `CatalogLost`.
    pub async fn abandon(&self, id: Uuid, volumes: Vec<Uuid>) -> Result<(), PoolError> {
        self.change(|catalog| {
            let log = catalog.log.as_mut().filter(|log| log.id == id).ok_or(PoolError::LogUnknown)?;
            (log.state, log.volumes) = (LogState::Abandoned, volumes);
            log.volumes.sort_unstable();
            log.volumes.dedup();
            let known = catalog.log_volumes();
            catalog.log.iter_mut().for_each(|log| log.volumes.retain(|volume| known.contains(volume)));
            Ok(())
        })
        .await
    }

    /// Nothing that was acknowledged through the abandoned log `id` is in memory alone any more.
    ///
    /// *Durability*: when it returns. *Errors*: `LogUnknown` when that log is not the pool's or is live; `CatalogLost`.
    pub async fn settle(&self, id: Uuid) -> Result<(), PoolError> {
        self.change(|catalog| {
            let log = catalog.log.as_mut().filter(|log| log.id == id && log.state == LogState::Abandoned);
            log.ok_or(PoolError::LogUnknown)?.volumes.clear();
            Ok(())
        })
        .await
    }

    /// The log, which was away when the pool was opened, is live again on those of its disks that are back as they were.
    ///
    /// *Shape*: `found` is the pool on its disks as they are now; `disk` gives the device of a probe. *Durability*: when it
    /// returns; a crash before leaves it away, to be taken up when the pool is opened. *Errors*: `LogUnknown` when the log is
    /// not away, or none of its disks is back; `NotReached` when one of them took no commit; `CatalogLost`.
    pub async fn take_up(&self, found: &FoundPool, disk: impl Fn(usize) -> D) -> Result<(), PoolError> {
        let _held = self.members.regroup()?;
        let store = self.store;
        let is_away = self.record().is_some_and(|log| log.state == LogState::Away);
        let group = self.group().filter(|_| is_away).ok_or(PoolError::LogUnknown)?;
        let positions = &found.groups[usize::from(group)].positions;
        let current = positions.iter().filter(|position| position.standing == Standing::Current);
        let back: Vec<_> = current.filter_map(|position| Some((position.disk, position.probe?))).collect();
        if back.is_empty() {
            return Err(PoolError::LogUnknown);
        }
        // They have a whole commit before one counts on them: a crash finds them at most one behind.
        back.iter().for_each(|&(id, place)| store.invite(id, Rc::new(disk(place))));
        let reached = async {
            let ((), change) = store.change(|_| Ok(()))?;
            store.committed(change).await?;
            back.iter().find(|(id, _)| !store.is_guest(*id)).map_or(Ok(()), |(id, _)| Err(PoolError::NotReached(*id)))
        };
        let reached = reached.await;
        let returned = reached.and_then(|()| {
            store.change(|catalog| {
                for member in &mut catalog.groups[usize::from(group)].members {
                    let is_back = back.iter().any(|(id, _)| *id == member.disk);
                    let state = if is_back { MemberState::InService } else { member.state };
                    *member = MemberRecord { state, since: SINCE_NEXT, ..*member };
                }
                catalog.log.iter_mut().for_each(|log| log.state = LogState::Live);
                Ok(())
            })
        });
        back.iter().for_each(|(id, _)| store.end_visit(*id));
        match returned {
            Ok(((), change)) => store.committed(change).await,
            Err(error) => {
                back.iter().for_each(|(id, _)| store.detach(*id));
                Err(error)
            }
        }
    }

    /// The pool has a group for a write log, and no log on it yet; its place in the catalog. Whoever builds the
    /// array serves it: the pool itself never touches it.
    ///
    /// *Durability* and *errors* as of [`Pool::add_group`], and `LogKnown`.
    pub async fn add_group(&self, plan: GroupPlan<D>, labelling: Labelling) -> Result<u16, PoolError> {
        let slab_blocks = self.store.look(|catalog| catalog.slab_bytes) / u64::from(BLOCK_BYTES);
        let slab_blocks = u32::try_from(slab_blocks).map_err(|_| PoolError::Plan("a slab is too large"))?;
        let record = GroupRecord { role: GroupRole::Log, ..GroupRecord::of(&plan, slab_blocks, 0) };
        let _held = self.members.regroup()?;
        if self.group().is_some() {
            return Err(PoolError::LogKnown);
        }
        self.members.join(plan, record, labelling).await
    }

    /// The pool has no group for a write log any more, and its disks are blank; which they were.
    ///
    /// *Durability*: when it returns; after a crash on the way they may still bear the label of the pool, which does
    /// not count them. *Errors*: `LogUnknown`, `LogInUse`, `Regrouping`, `CatalogLost`.
    pub async fn remove_group(&self) -> Result<Vec<Uuid>, PoolError> {
        let _held = self.members.regroup()?;
        let (members, change) = self.store.change(|catalog| {
            let place = catalog.log_group().ok_or(PoolError::LogUnknown)?;
            match catalog.log_volumes().len() {
                0 => catalog.log = None,
                volumes => return Err(PoolError::LogInUse(volumes)),
            }
            Ok(catalog.groups[usize::from(place)].remove())
        })?;
        self.store.committed(change).await?;
        self.members.let_go(&members).await;
        Ok(members)
    }

    /// Commits what `change` makes of the log; nothing when that is nothing.
    async fn change(&self, change: impl FnOnce(&mut Catalog) -> Result<(), PoolError>) -> Result<(), PoolError> {
        let store = self.store;
        let unchanged: Change = store.latest();
        let before = store.look(|catalog| catalog.log.clone());
        let ((), change) = store.change(change)?;
        let same = store.look(|catalog| catalog.log == before);
        store.committed(if same { unchanged } else { change }).await
    }
}
