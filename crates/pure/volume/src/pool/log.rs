//! What the catalog remembers of the write log, for whoever runs it: `docs/on-disk.md` has the rules.

use super::Pool;
use crate::assembly::{FoundPool, Standing};
use crate::catalog::{Catalog, LogRecord, LogState, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::store::{Change, SINCE_NEXT};
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The group that is there for the write log, by its place.
    #[must_use]
    pub fn log_group(&self) -> Option<u16> {
        self.shared.store.look(Catalog::log_group)
    }

    /// The write log as the catalog has it, with those of its volumes that the pool still has.
    #[must_use]
    pub fn log(&self) -> Option<LogRecord> {
        self.shared.store.look(|catalog| {
            let log = catalog.log.as_ref()?;
            Some(LogRecord { volumes: catalog.log_volumes(), ..log.clone() })
        })
    }

    /// The log of the pool is `id`, which lies formatted on the group for it. What was there before is never opened again.
    ///
    /// *Shape*: `id` is new. *Durability*: when it returns. *Errors*: `LogUnknown` without a group for it; `LogInUse`
    /// while volumes need the present one; `CatalogLost`.
    pub async fn set_log(&self, id: Uuid) -> Result<(), PoolError> {
        self.change_log(|catalog| {
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
    pub async fn enter_log(&self, id: Uuid, volume: Uuid) -> Result<(), PoolError> {
        self.change_log(|catalog| {
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
    pub async fn leave_log(&self, volume: Uuid) -> Result<(), PoolError> {
        self.change_log(|catalog| {
            catalog.log.iter_mut().for_each(|log| log.volumes.retain(|known| *known != volume));
            Ok(())
        })
        .await
    }

    /// The volumes have lost what they had in the log, which is never opened again, and the group is nobody's: an operator
    /// has admitted it. Which disks the group had, blank as far as they are here.
    ///
    /// *Durability* and *errors* as of [`Pool::remove_log_group`], without `LogInUse`.
    pub async fn forget_log_group(&self) -> Result<Vec<Uuid>, PoolError> {
        self.change_log(|catalog| {
            catalog.log = None;
            Ok(())
        })
        .await?;
        self.remove_log_group().await
    }

    /// The log `id` is never opened again, and `volumes` have acknowledged data in memory alone.
    ///
    /// *Durability*: when it returns; found so after a crash, they have lost it. *Errors*: `LogUnknown` when that log is
    /// not the pool's; `CatalogLost`.
    pub async fn abandon_log(&self, id: Uuid, volumes: Vec<Uuid>) -> Result<(), PoolError> {
        self.change_log(|catalog| {
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
    pub async fn settle_log(&self, id: Uuid) -> Result<(), PoolError> {
        self.change_log(|catalog| {
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
    pub async fn return_log(&self, found: &FoundPool, disk: impl Fn(usize) -> D) -> Result<(), PoolError> {
        let _held = self.regroup()?;
        let store = &self.shared.store;
        let is_away = self.log().is_some_and(|log| log.state == LogState::Away);
        let group = self.log_group().filter(|_| is_away).ok_or(PoolError::LogUnknown)?;
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

    /// Commits what `change` makes of the log; nothing when that is nothing.
    async fn change_log(&self, change: impl FnOnce(&mut Catalog) -> Result<(), PoolError>) -> Result<(), PoolError> {
        let store = &self.shared.store;
        let unchanged: Change = store.latest();
        let before = store.look(|catalog| catalog.log.clone());
        let ((), change) = store.change(change)?;
        let same = store.look(|catalog| catalog.log == before);
        store.committed(if same { unchanged } else { change }).await
    }
}
