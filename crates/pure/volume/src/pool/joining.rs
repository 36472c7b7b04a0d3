//! One member more of a group, and taking it back.

use super::create::admit_disk;
use super::groups::admit_group;
use super::{Labelling, NewDisk, Pool};
use crate::catalog::{Catalog, GroupRecord, GroupRole, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::{BLOCK_BYTES, data_area};
use crate::store::SINCE_NEXT;
use block::{BlockDevice, Blocks};
use std::rc::Rc;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The group has one more place behind the others, and `disk` is in it; which place.
    ///
    /// Before its array is told, so that whoever opens the pool gives the array the disk. *Shape*: `state` is in service
    /// where the array counts on the disk once it has joined, and rebuilding where it is to be filled. *Durability*: when
    /// it returns; a crash before leaves the group with the place or without it, and then with a disk that the pool does
    /// not count and that can be added again. *Errors*: `GroupUnknown`, `Plan`, `Regrouping`, `DiskKnown`, `DiskTooSmall`,
    /// `ReplacementTooSmall`, `DiskOfPool`, `DiskForeign`, `CatalogFull` before anything is written; `DiskFails`,
    /// `NotReached`, `CatalogLost` after that.
    pub async fn add_member(
        &self,
        group: u16,
        disk: NewDisk<D>,
        state: MemberState,
        labelling: Labelling,
    ) -> Result<u16, PoolError> {
        let _held = self.regroup()?;
        let (id, record) = (disk.id, MemberRecord { disk: disk.id, state, since: SINCE_NEXT });
        let place = self.shared.store.look(|catalog| admit_place(catalog, group, record))?;
        self.admit_room(group, &disk)?;
        if !labelling.force && !self.is_given_up(&disk.device).await {
            admit_disk(&disk).await?;
        }
        let device = Rc::new(disk.device);
        let joined = async {
            self.label_all(&[(id, device.clone())], &labelling).await?;
            // It has a whole commit before one counts on it: a crash finds it at most one behind.
            self.shared.store.invite(id, device);
            let ((), change) = self.shared.store.change(|_| Ok(()))?;
            self.shared.store.committed(change).await?;
            if !self.shared.store.is_guest(id) {
                return Err(PoolError::NotReached(id));
            }
            let ((), change) = self.shared.store.change(|catalog| {
                catalog.groups[usize::from(group)].members.push(record);
                Ok(())
            })?;
            self.shared.store.end_visit(id);
            self.shared.store.committed(change).await?;
            match self.shared.store.look(|catalog| catalog.member(id).map(|member| member.state.takes_part())) {
                Some(true) => Ok(place),
                _ => self.drop_place(id).await.and(Err(PoolError::NotReached(id))),
            }
        };
        let joined = joined.await;
        if joined.as_ref().is_err_and(|error| *error != PoolError::CatalogLost) {
            self.let_go(&[id]).await;
        }
        joined
    }

    /// The group has the last of its places no more, in which `disk` is, and the disk is blank as far as it can be.
    ///
    /// *Shape*: the array has never counted on it. *Durability*: when it returns. *Errors*: `MemberUnknown` when `disk` is
    /// not the last of its group; `CatalogLost`.
    pub async fn take_back_member(&self, disk: Uuid) -> Result<(), PoolError> {
        let _held = self.regroup()?;
        self.drop_place(disk).await?;
        self.let_go(&[disk]).await;
        Ok(())
    }

    async fn drop_place(&self, disk: Uuid) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            let is_last = |group: &&mut GroupRecord| group.members.last().is_some_and(|last| last.disk == disk);
            let group = catalog.groups.iter_mut().find(is_last).ok_or(PoolError::MemberUnknown(disk))?;
            group.members.pop();
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    /// Admits a disk that has as much for the array as each member gives.
    fn admit_room(&self, group: u16, disk: &NewDisk<D>) -> Result<(), PoolError> {
        let needed = self.shared.store.look(|catalog| catalog.groups[usize::from(group)].member_blocks);
        let blocks = disk.device.geometry().blocks;
        let bytes = |blocks: Blocks| blocks.bytes(BLOCK_BYTES);
        match data_area(blocks) {
            None => Err(PoolError::DiskTooSmall { disk: disk.id, bytes: bytes(blocks) }),
            Some(data) if data.len < needed => {
                Err(PoolError::ReplacementTooSmall { bytes: bytes(data.len), needed_bytes: bytes(needed) })
            }
            Some(_) => Ok(()),
        }
    }
}

/// The place that `member` would have in the group, if the catalog is free of contradictions with it.
fn admit_place(catalog: &Catalog, group: u16, member: MemberRecord) -> Result<u16, PoolError> {
    let data = |group: &&GroupRecord| group.role == GroupRole::Data;
    let record = catalog.groups.get(usize::from(group)).filter(data).ok_or(PoolError::GroupUnknown(group))?;
    if catalog.member(member.disk).is_some() {
        return Err(PoolError::DiskKnown(member.disk));
    }
    let place = u16::try_from(record.members.len()).expect("bounded by MEMBERS_MAX");
    let mut wider = record.clone();
    wider.members.push(member);
    admit_group(catalog, group, &wider).map(|()| place)
}
