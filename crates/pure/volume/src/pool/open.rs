//! Opening of a pool that was found.

use super::Pool;
use crate::assembly::{AssembledPool, DiskState, OVERTAKE_MAX, Position};
use crate::catalog::{GroupRecord, GroupRole, LogState, MemberState};
use crate::error::PoolError;
use crate::probe::write_label;
use crate::store::{Body, NewSlot, SINCE_NEXT, Store};
use block::{BlockDevice, IoError, Stable, Written};
use futures_util::future::join_all;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Opens the pool and completes what the last crash interrupted: marks members that were not found as
    /// missing and repairs damaged label copies.
    ///
    /// *Shape*: the caller has admitted the pool ([`AssembledPool::admit`]); `disk` returns the device of a probe,
    /// by index; `groups` are the arrays over the participating members, in catalog order, of those groups that
    /// volumes can be on. *Durability*: when it returns, including what a killed daemon had written to its
    /// disks without a flush. Opening again writes nothing. *Errors*: `Refused`; `Plan` when a group is smaller
    /// than the catalog says; `DiskFails` when a disk that its group needs, as `tolerates` says
    /// ([`AssembledPool::admit`]), cannot be written, with nothing changed; `CatalogLost`.
    pub async fn open(
        found: &AssembledPool,
        mut disk: impl FnMut(usize) -> D,
        groups: Vec<G>,
        tolerates: impl Fn(&GroupRecord, &[bool]) -> bool,
    ) -> Result<Self, PoolError> {
        if let Some(refusal) = &found.refusal {
            return Err(refusal.clone().into());
        }
        admit_groups(found, &groups)?;
        let positions = found.groups.iter().flat_map(|group| &group.positions);
        let disks: Vec<(Uuid, Rc<D>)> = positions
            .filter(|position| position.state.takes_part())
            .filter_map(|position| Some((position.disk, Rc::new(disk(position.probe?)))))
            .collect();
        // Before anything new is committed, all members must have the newest commit.
        let unreachable = complete(found, &disks).await;
        // An unwritable or silent disk is given up like a missing one, but only where its group can serve without it.
        if let Some(&(disk, error)) = unreachable.first()
            && found.admit_without(|disk| unreachable.iter().any(|(id, _)| *id == disk), tolerates).is_err()
        {
            return Err(PoolError::DiskFails { disk, error });
        }
        let mut states: Vec<(Uuid, MemberState)> =
            found.lost().map(|position| (position.disk, found.lost_as(position))).collect();
        // Members of a log that was away return without a rebuild.
        states.extend(found.returned().map(|disk| (disk, MemberState::InService)));
        states.extend(unreachable.into_iter().map(|(disk, error)| (disk, MemberState::after(error))));
        let store = Store::new((*found.catalog).clone(), found.generation, disks);
        if found.announces_writes {
            store.begin_opening();
        }
        // An opener that does not announce writes counts as writing at once.
        let is_unannounced = !found.announces_writes && found.catalog.must_announce();
        if !states.is_empty() || is_unannounced {
            let ((), change) = store.change(|catalog| {
                for &(disk, state) in &states {
                    let member = catalog.member_mut(disk).expect("positions are the catalog's members");
                    (member.state, member.since) = (state, SINCE_NEXT);
                }
                catalog.written = match found.announces_writes {
                    // Members given up before have no record of announcements, so the pool counts as written
                    // since then.
                    true => catalog.written.or(Some(found.generation)),
                    false => Some(SINCE_NEXT),
                };
                if let Some(log) = catalog.log.as_mut().filter(|log| log.state != LogState::Abandoned) {
                    log.state = if found.lacks_log() { LogState::Missing } else { LogState::Live };
                }
                Ok(())
            })?;
            store.committed(change).await?;
        }
        overtake(found, &store).await?;
        let pool = Self::of(store, groups);
        pool.finish_groups().await?;
        Ok(pool)
    }
}

impl AssembledPool {
    /// New state of a participating member that cannot be trusted now.
    ///
    /// Members of a missing log are trusted again when they return, so only those that were up to date and
    /// not found are marked missing; the others are marked failed.
    fn lost_as(&self, position: &Position) -> MemberState {
        let of_log = self.catalog.log_group().map(|log| &self.groups[usize::from(log)].positions);
        let away = self.lacks_log() && of_log.is_some_and(|positions| positions.contains(position));
        let was_whole = self.catalog.member(position.disk).is_some_and(|member| member.state == MemberState::InService);
        if away && !(was_whole && position.state == DiskState::Missing) {
            MemberState::Failed
        } else {
            MemberState::Missing
        }
    }

    /// Members of a log that was away and that are back unchanged.
    fn returned(&self) -> impl Iterator<Item = Uuid> {
        let current = self.groups.iter().flat_map(|group| &group.positions);
        let current = current.filter(|position| position.state == DiskState::Current).map(|position| position.disk);
        current.filter(|&disk| self.catalog.member(disk).is_some_and(|member| !member.state.takes_part()))
    }
}

/// Commits until the pool is newer than its other parts, durably; their disks are merely outdated from then on.
///
/// The generation is raised in single steps, so that a crash in between leaves no member more than one behind.
async fn overtake<D: BlockDevice + 'static>(found: &AssembledPool, store: &Store<D>) -> Result<(), PoolError> {
    let Some(others) = found.overtake_to else { return Ok(()) };
    assert!(others.saturating_sub(found.generation) <= OVERTAKE_MAX, "whoever wants that has been refused");
    while store.generation() <= others {
        let ((), change) = store.change(|_| Ok(()))?;
        store.committed(change).await?;
    }
    // From this commit on the other parts are merely old: it gives up their members after all that they have.
    if found.discards_other_parts {
        let ((), change) = store.change(|catalog| {
            let members = catalog.groups.iter_mut().flat_map(|group| &mut group.members);
            members.filter(|member| !member.state.takes_part()).for_each(|member| member.since = SINCE_NEXT);
            catalog.written = Some(SINCE_NEXT);
            Ok(())
        })?;
        store.committed(change).await?;
    }
    Ok(())
}

/// Admits devices that are at least as large as the catalog's groups.
fn admit_groups<G: BlockDevice>(found: &AssembledPool, groups: &[G]) -> Result<(), PoolError> {
    // The array of the log is opened by the owner of the log, and not passed in here.
    let records: Vec<_> = found.catalog.groups.iter().filter(|group| group.role == GroupRole::Data).collect();
    let fits = records.len() == groups.len()
        && records.iter().zip(groups).all(|(record, device)| {
            let geometry = device.geometry();
            let blocks = u64::from(record.slab_blocks) * u64::from(record.slabs);
            geometry.block_bytes == crate::layout::BLOCK_BYTES && blocks <= geometry.blocks.0
        });
    if fits { Ok(()) } else { Err(PoolError::Plan("a group is smaller than its catalog says, or is not there")) }
}

/// Brings every disk to the newest commit, in both slots, and to intact labels, durably; returns the disks
/// where that failed, with the error.
///
/// The newest commit may have reached some disks only, and must be on all before another is written, because a
/// participating member may be one commit behind, never two. Where it was found it may be in a cache only, if a
/// daemon was killed without a power loss; the flush covers that, and the last writes of hosts. A damaged slot
/// may hold a later commit that was never acknowledged; it is overwritten.
async fn complete<D: BlockDevice>(found: &AssembledPool, disks: &[(Uuid, Rc<D>)]) -> Vec<(Uuid, IoError)> {
    let slot = NewSlot { pool: found.catalog.pool, generation: found.generation, body: Body::of(&found.body[..]) };
    let one = async |id: Uuid, disk: Rc<D>| -> Result<(), IoError> {
        let _: Stable = disk.flush(Written::attest()).await?;
        if let Some((_, slots)) = found.behind.iter().find(|(behind, _)| *behind == id) {
            slot.write(id, &*disk, &Cell::new(slots)).await?;
        }
        match found.torn_labels.iter().find(|label| label.disk == id) {
            Some(label) => write_label(&*disk, label).await,
            None => Ok(()),
        }
    };
    let outcomes = join_all(disks.iter().map(|(id, disk)| one(*id, disk.clone()))).await;
    disks.iter().zip(outcomes).filter_map(|((id, _), outcome)| Some((*id, outcome.err()?))).collect()
}
