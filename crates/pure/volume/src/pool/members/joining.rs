//! Addition of disks to a pool, with a new group or as one more member of a group, and their removal.

use super::super::create::{admit_disk, admit_size, label_of, sanitize_created_by};
use super::super::groups::admit_group;
use super::super::{GroupPlan, LabelParams, NewDisk};
use super::Members;
use crate::catalog::{Catalog, GroupRecord, GroupRole, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::{BLOCK_BYTES, data_area};
use crate::probe::{Contents, prepare, probe, wipe, write_label};
use crate::store::{SINCE_NEXT, Store};
use block::{BlockDevice, Blocks, IoError};
use futures_util::future::join_all;
use std::rc::Rc;
use uuid::Uuid;

/// Exchange under way; dropped before a commit has decided it, it is given up.
struct Exchanging<'a, D>(&'a Store<D>);

impl<D> Drop for Exchanging<'_, D> {
    fn drop(&mut self) {
        self.0.end_exchange();
    }
}

impl<D: BlockDevice + 'static> Members<'_, D> {
    /// Adds `disk` as one more member at the end of the group; returns its position.
    ///
    /// Called before the array learns of the disk, so that the next opening gives the disk to the array. *Shape*: `state`
    /// is in service where the array uses the disk once it has joined, and rebuilding where it must be filled.
    /// *Durability*: when it returns; a crash before leaves the group with or without the member, in the latter
    /// case with a disk that the pool does not list and that can be added again. *Errors*: `GroupUnknown`,
    /// `Plan`, `MembershipChanging`, `DiskKnown`, `DiskTooSmall`, `ReplacementTooSmall`, `DiskOfPool`, `DiskForeign`,
    /// `CatalogFull` before anything is written; `DiskFails`, `NotReached`, `CatalogLost` after that.
    pub async fn add(
        &self,
        group: u16,
        disk: NewDisk<D>,
        state: MemberState,
        labelling: LabelParams,
    ) -> Result<u16, PoolError> {
        let _held = self.begin_membership_change()?;
        let (id, record) = (disk.id, MemberRecord { disk: disk.id, state, since: SINCE_NEXT });
        // Everything that can be refused is checked before the disk is written.
        let place = self.store.with_catalog(|catalog| admit_place(catalog, group, record))?;
        self.admit_room(group, &disk)?;
        if !labelling.force && !self.is_former_member(&disk.device).await {
            admit_disk(&disk).await?;
        }
        let device = Rc::new(disk.device);
        let joined = async {
            self.label_all(&[(id, device.clone())], &labelling).await?;
            // The disk gets one whole commit before the commit that makes it a member: after a crash it is at
            // most one commit behind.
            self.store.add_joining(id, device);
            let ((), change) = self.store.change(|_| Ok(()))?;
            self.store.committed(change).await?;
            if !self.store.is_joining(id) {
                return Err(PoolError::NotReached(id));
            }
            let ((), change) = self.store.change(|catalog| {
                catalog.groups[usize::from(group)].members.push(record);
                Ok(())
            })?;
            // From here on its results count as those of a member: if it misses a commit, it is given up.
            self.store.end_joining(id);
            self.store.committed(change).await?;
            // The commit that names the disk may have failed on it; the place is then removed again.
            match self.store.with_catalog(|catalog| catalog.member(id).map(|member| member.state.takes_part())) {
                Some(true) => Ok(place),
                _ => self.drop_place(id).await.and(Err(PoolError::NotReached(id))),
            }
        };
        let joined = joined.await;
        // With the catalog lost, a commit on some disks may name this one already, so it keeps its metadata.
        if joined.as_ref().is_err_and(|error| *error != PoolError::CatalogLost) {
            self.detach_and_wipe(&[id]).await;
        }
        joined
    }

    /// Replaces the member `old`, which is in service, by `disk`, which holds the same data and goes into
    /// service.
    ///
    /// A member beside `old` that misses a commit meanwhile fails; `old` does not. *Shape*: not to be dropped where the
    /// array continues with `old`, because the catalog may name `disk` already. *Durability*: when it returns; a crash
    /// before leaves `old` or `disk` in the position, and `disk` has had every write by then. *Errors*: `MemberUnknown`,
    /// `MemberState`, `MembershipChanging`, `DiskKnown`, `DiskTooSmall`, `ReplacementTooSmall`, `DiskOfPool`,
    /// `DiskForeign`, `DiskFails`, `NotReached` with `old` still in place, or in place again; `CatalogLost`.
    pub async fn exchange(&self, old: Uuid, disk: NewDisk<D>, labelling: LabelParams) -> Result<(), PoolError> {
        let _held = self.begin_membership_change()?;
        let id = disk.id;
        self.admit_exchange(old, &disk, labelling.force).await?;
        let device = Rc::new(disk.device);
        let joined = async {
            self.label_all(&[(id, device.clone())], &labelling).await?;
            // The disk gets one whole commit before the commit that makes it a member: after a crash it is at
            // most one commit behind.
            self.store.add_joining(id, device);
            // Set before the next commit, which decides the exchange.
            self.store.exchange(old, id);
            // An exchange that nobody waits for any more is given up, if no commit has decided it.
            let _exchanging = Exchanging(self.store);
            let ((), change) = self.store.change(|_| Ok(()))?;
            self.store.committed(change).await?;
            self.store.with_catalog(|catalog| match (catalog.member(id), catalog.member(old)) {
                (Some(_), _) => Ok(()),
                (None, Some(old)) if old.state == MemberState::InService => Err(PoolError::NotReached(id)),
                (None, Some(old)) => {
                    Err(PoolError::MemberState { disk: old.disk, is: old.state.word(), asked: "copied" })
                }
                (None, None) => Err(PoolError::MemberUnknown(old)),
            })
        };
        match joined.await {
            Ok(()) => {
                // The commit above decided the exchange; the one that names the disk follows it.
                self.store.committed(self.store.latest()).await?;
                // The disk missed the commit that names it, and the member has its place again.
                if self.store.with_catalog(|catalog| catalog.member(id).is_none()) {
                    self.detach_and_wipe(&[id]).await;
                    return Err(PoolError::NotReached(id));
                }
                self.store.detach(old);
                self.admit_reached(id)
            }
            Err(error) => {
                // With the catalog lost, a commit on some disks may name this one already, so it keeps its metadata.
                if error != PoolError::CatalogLost {
                    self.detach_and_wipe(&[id]).await;
                }
                Err(error)
            }
        }
    }

    /// Admits a disk as the copy target and replacement of a member. Writes nothing.
    ///
    /// *Errors*: as of [`Members::exchange`].
    pub async fn admit_exchange(&self, old: Uuid, disk: &NewDisk<D>, force: bool) -> Result<(), PoolError> {
        let group = self.store.with_catalog(|catalog| {
            let member = catalog.member(old).ok_or(PoolError::MemberUnknown(old))?;
            if member.state != MemberState::InService {
                return Err(PoolError::MemberState { disk: old, is: member.state.word(), asked: "copied" });
            }
            if catalog.member(disk.id).is_some() {
                return Err(PoolError::DiskKnown(disk.id));
            }
            let has = |group: &GroupRecord| group.members.iter().any(|member| member.disk == old);
            Ok(catalog.groups.iter().position(has).expect("a member is in a group"))
        })?;
        self.admit_room(u16::try_from(group).expect("bounded by GROUPS_MAX"), disk)?;
        if !force && !self.is_former_member(&disk.device).await {
            admit_disk(disk).await?;
        }
        Ok(())
    }

    /// Removes the last member of a group, which is `disk`, and wipes the disk as far as possible.
    ///
    /// *Shape*: the array has never used it. *Durability*: when it returns. *Errors*: `MemberUnknown` when
    /// `disk` is not the last of its group; `CatalogLost`.
    pub async fn remove_last(&self, disk: Uuid) -> Result<(), PoolError> {
        let _held = self.begin_membership_change()?;
        self.drop_place(disk).await?;
        self.detach_and_wipe(&[disk]).await;
        Ok(())
    }

    async fn drop_place(&self, disk: Uuid) -> Result<(), PoolError> {
        let ((), change) = self.store.change(|catalog| {
            // The array addresses members by position, so only the last place of a group can go.
            let is_last = |group: &&mut GroupRecord| group.members.last().is_some_and(|last| last.disk == disk);
            let group = catalog.groups.iter_mut().find(is_last).ok_or(PoolError::MemberUnknown(disk))?;
            group.members.pop();
            Ok(())
        })?;
        self.store.committed(change).await
    }

    /// Adds the group to the catalog, without slabs, with all of its disks participating.
    pub(in super::super) async fn add_group_disks(
        &self,
        plan: GroupPlan<D>,
        record: GroupRecord,
        labelling: LabelParams,
    ) -> Result<u16, PoolError> {
        let place = self.store.with_catalog(|catalog| {
            let place = u16::try_from(catalog.groups.len()).expect("bounded by GROUPS_MAX");
            admit_group(catalog, place, &record).map(|()| place)
        })?;
        // All disks are checked before the first is written.
        for disk in &plan.members {
            admit_size(disk)?;
            if !labelling.force && !self.is_former_member(&disk.device).await {
                admit_disk(disk).await?;
            }
        }
        let disks: Vec<(Uuid, Rc<D>)> =
            plan.members.into_iter().map(|NewDisk { id, device }| (id, Rc::new(device))).collect();
        let ids: Vec<Uuid> = disks.iter().map(|(id, _)| *id).collect();
        let joined = async {
            self.label_all(&disks, &labelling).await?;
            // Each disk gets one whole commit before the commit that makes it a member: after a crash it is at
            // most one commit behind.
            disks.iter().for_each(|(id, disk)| self.store.add_joining(*id, disk.clone()));
            let ((), change) = self.store.change(|_| Ok(()))?;
            self.store.committed(change).await?;
            if let Some(&lost) = ids.iter().find(|&&id| !self.store.is_joining(id)) {
                return Err(PoolError::NotReached(lost));
            }
            let ((), change) = self.store.change(|catalog| {
                // Without slabs no volume can be on the group, so it can be taken back.
                catalog.groups.push(GroupRecord { slabs: 0, ..record });
                Ok(())
            })?;
            ids.iter().for_each(|&id| self.store.end_joining(id));
            self.store.committed(change).await?;
            let takes_part = |id| move |catalog: &Catalog| catalog.member(id).is_some_and(|one| one.state.takes_part());
            // The commit that names the disks may have failed on one of them.
            match ids.iter().find(|&&id| !self.store.with_catalog(takes_part(id))) {
                None => Ok(()),
                Some(&lost) => self.remove_added_group(place).await.and(Err(PoolError::NotReached(lost))),
            }
        };
        match joined.await {
            Ok(()) => Ok(place),
            Err(error) => {
                if error != PoolError::CatalogLost {
                    self.detach_and_wipe(&ids).await;
                }
                Err(error)
            }
        }
    }

    /// Writes labels of the pool to all disks.
    async fn label_all(&self, disks: &[(Uuid, Rc<D>)], labelling: &LabelParams) -> Result<(), PoolError> {
        let generation = self.store.generation();
        let created_by = sanitize_created_by(&labelling.created_by);
        let one = async |id: Uuid, disk: Rc<D>| -> Result<(), IoError> {
            // Wiped first: until the new label is complete, the disk belongs to no pool.
            let _ = prepare(&*disk).await?;
            let blocks = disk.geometry().blocks;
            let label = |catalog: &Catalog| label_of(catalog, id, generation, blocks, labelling.now, &created_by);
            let label = self.store.with_catalog(label);
            write_label(&*disk, &label).await
        };
        let outcomes = join_all(disks.iter().map(|(id, disk)| one(*id, disk.clone()))).await;
        for ((id, _), outcome) in disks.iter().zip(outcomes) {
            outcome.map_err(|error| PoolError::DiskFails { disk: *id, error })?;
        }
        Ok(())
    }

    /// Removes the group that was just added and has no slabs.
    async fn remove_added_group(&self, place: u16) -> Result<(), PoolError> {
        // The record stays without members: indices of groups are not reused while the pool is open.
        let (_, change) = self.store.change(|catalog| Ok(catalog.groups[usize::from(place)].remove()))?;
        self.store.committed(change).await
    }

    /// Detaches the disks from the pool and wipes them as far as possible.
    pub(in super::super) async fn detach_and_wipe(&self, ids: &[Uuid]) {
        let disks = self.store.disks();
        let those: Vec<Rc<D>> = disks.into_iter().filter(|(id, _)| ids.contains(id)).map(|(_, disk)| disk).collect();
        // Detached first, so that no commit writes to a disk that is being wiped.
        ids.iter().for_each(|&id| self.store.detach(id));
        join_all(those.iter().map(|disk| wipe(&**disk))).await;
    }

    /// True when `device` has a label of this pool that the pool does not use any more: its data is outdated.
    pub(super) async fn is_former_member(&self, device: &D) -> bool {
        let probed = probe(device).await;
        let Contents::Member(member) = &probed.contents else { return false };
        let counted =
            |disk| self.store.with_catalog(|catalog| catalog.member(disk).map(|member| member.state.takes_part()));
        // Outdated content of this pool only; foreign data needs force.
        member.label.pool == self.store.with_catalog(|catalog| catalog.pool)
            && member.overwritten.is_none()
            && counted(member.label.disk) != Some(true)
    }

    /// Admits a disk with as much data space as each member of the group contributes.
    fn admit_room(&self, group: u16, disk: &NewDisk<D>) -> Result<(), PoolError> {
        let needed = self.store.with_catalog(|catalog| catalog.groups[usize::from(group)].member_blocks);
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

/// Position that `member` would get in the group, if the catalog stays consistent with it.
fn admit_place(catalog: &Catalog, group: u16, member: MemberRecord) -> Result<u16, PoolError> {
    let data = |group: &&GroupRecord| group.role == GroupRole::Data;
    let record = catalog.groups.get(usize::from(group)).filter(data).ok_or(PoolError::GroupUnknown(group))?;
    if catalog.member(member.disk).is_some() {
        return Err(PoolError::DiskKnown(member.disk));
    }
    let place = u16::try_from(record.members.len()).expect("bounded by MEMBERS_MAX");
    let mut wider = record.clone();
    // The check covers limits and the size of the catalog with the member in it.
    wider.members.push(member);
    admit_group(catalog, group, &wider).map(|()| place)
}
