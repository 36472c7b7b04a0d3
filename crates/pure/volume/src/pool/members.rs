//! Members of a pool: state changes, replacement and return of disks.

mod joining;
mod labels;

pub use labels::DamagedMetadata;

use super::Pool;
use super::create::{NewDisk, admit_disk, label_of, sanitize_created_by};
use crate::assembly::parts;
use crate::catalog::{GroupRecord, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::{BLOCK_BYTES, data_area};
use crate::probe::{prepare, write_label};
use crate::store::{SINCE_NEXT, Store};
use block::{BlockDevice, Blocks, IoError};
use shard::Pause;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

/// Member disks of all groups of a pool: states, labels, additions and removals.
pub struct Members<'a, D> {
    store: &'a Store<D>,
    /// True while a group or a member is being added or removed.
    membership_changing: &'a Cell<bool>,
}

/// Guard that excludes other additions and removals of groups and members.
pub(super) struct MembershipChange<'a>(&'a Cell<bool>);

impl Drop for MembershipChange<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Member disks of the pool.
    #[must_use]
    pub fn members(&self) -> Members<'_, D> {
        Members { store: &self.shared.store, membership_changing: &self.shared.membership_changing }
    }
}

impl<D: BlockDevice + 'static> Members<'_, D> {
    /// True when the disk, a former member, continued without others that the pool uses and was written then:
    /// taking it back would destroy the only copy of that data.
    #[must_use]
    pub fn is_diverged_and_written(&self, disk: &crate::probe::Member) -> bool {
        self.store.with_catalog(|catalog| parts::is_diverged_and_written(catalog, disk))
    }

    pub(super) fn begin_membership_change(&self) -> Result<MembershipChange<'_>, PoolError> {
        // One change of the member list at a time: each takes several commits.
        if self.membership_changing.replace(true) {
            return Err(PoolError::MembershipChanging);
        }
        Ok(MembershipChange(self.membership_changing))
    }

    /// Sets the callback that learns of every disk that missed a commit, with the error, and is therefore recorded as
    /// failed or missing: its array must stop using it.
    pub fn on_failed(&self, on_failed: impl Fn(Uuid, IoError) + 'static) {
        self.store.on_failed(Rc::new(on_failed));
    }

    /// Sets the rule and the timer for disks that miss a commit.
    ///
    /// No member is marked failed without which its group could not serve, as `tolerates` says, given true for
    /// each up-to-date member. Disks that are out of space are retried with `pause`.
    pub fn set_failure_policy(&self, tolerates: impl Fn(&GroupRecord, &[bool]) -> bool + 'static, pause: Pause) {
        self.store.set_tolerance(Rc::new(tolerates));
        self.store.set_retry(pause);
    }

    /// Records the state of a member in the catalog.
    ///
    /// A failed member is never trusted again once this returns, so it returns before a write that the member
    /// missed is acknowledged. *Durability*: when it returns. *Errors*: `MemberUnknown`, `CatalogLost`;
    /// `MemberState` for an invalid transition: failed and missing follow every state, rebuilding and in
    /// service only rebuilding.
    pub async fn set_state(&self, disk: Uuid, state: MemberState) -> Result<(), PoolError> {
        let ((), change) = self.store.change(|catalog| {
            let member = catalog.member_mut(disk).ok_or(PoolError::MemberUnknown(disk))?;
            let follows = match (member.state, state) {
                (
                    MemberState::InService | MemberState::Rebuilding { .. },
                    MemberState::Failed | MemberState::Missing,
                ) => true,
                // Whether the disk may return by itself is known only after it missed a commit.
                (MemberState::Failed, MemberState::Missing) | (MemberState::Missing, MemberState::Failed) => true,
                (MemberState::Rebuilding { .. }, MemberState::Rebuilding { .. } | MemberState::InService) => true,
                // The same state once more is no error: two paths may report one failure.
                (is, asked) => is == asked,
            };
            if !follows {
                return Err(PoolError::MemberState { disk, is: member.state.word(), asked: state.word() });
            }
            // Rebuild progress does not change `since`, which tells when the member was given up.
            if !member.state.is_like(state) {
                member.since = SINCE_NEXT;
            }
            member.state = state;
            Ok(())
        })?;
        // Giving up a member counts as an announcement of writes; see `catalog::written`.
        if !state.takes_part() {
            // No await since the change, so that one commit has both.
            self.store.note_member_failed();
        }
        self.store.committed(change).await
    }

    /// Releases the device of a member that does not participate, so that it can be opened again. No effect on
    /// one that does.
    pub fn release(&self, disk: Uuid) {
        let store = self.store;
        // A participating member stays attached: commits and marks go to it.
        if !store.with_catalog(|catalog| catalog.member(disk).is_some_and(|member| member.state.takes_part())) {
            store.detach(disk);
        }
    }

    /// Puts `replacement` in the place of the member `lost`, to be rebuilt from the start.
    ///
    /// Its label is written first; a crash before the catalog names it leaves a disk that the pool does not
    /// list. *Durability*: when it returns. *Errors*: `MemberUnknown`; `MemberState` when `lost` still
    /// participates; `DiskKnown`, `DiskTooSmall`, `ReplacementTooSmall`, `DiskOfPool`, `DiskForeign`,
    /// `DiskFails`, `CatalogLost`.
    pub async fn replace(
        &self,
        lost: Uuid,
        replacement: NewDisk<D>,
        now: u64,
        created_by: &str,
        force: bool,
    ) -> Result<(), PoolError> {
        let id = replacement.id;
        let needed = self.admit_replacement(lost, id)?;
        let blocks = replacement.device.geometry().blocks;
        let bytes = blocks.bytes(BLOCK_BYTES);
        let data = data_area(blocks).ok_or(PoolError::DiskTooSmall { disk: id, bytes })?;
        if data.len < needed {
            let (bytes, needed_bytes) = (data.len.bytes(BLOCK_BYTES), needed.bytes(BLOCK_BYTES));
            return Err(PoolError::ReplacementTooSmall { bytes, needed_bytes });
        }
        // A former member of this pool is accepted without force: its data is outdated.
        if !force && !self.is_former_member(&replacement.device).await {
            admit_disk(&replacement).await?;
        }
        let device = Rc::new(replacement.device);
        // The label records the generation at which the disk joined.
        let (generation, created_by) = (self.store.generation(), sanitize_created_by(created_by));
        let label = self.store.with_catalog(|catalog| label_of(catalog, id, generation, blocks, now, &created_by));
        let prepared = async {
            let _ = prepare(&*device).await?;
            write_label(&*device, &label).await
        };
        prepared.await.map_err(|error| PoolError::DiskFails { disk: id, error })?;
        // The catalog may have changed while the label was written.
        self.admit_replacement(lost, id)?;
        // Attached before the catalog names it: the commit that does must reach it.
        self.store.attach(id, device);
        let ((), change) = self.store.change(|catalog| {
            let member = catalog.member_mut(lost).ok_or(PoolError::MemberUnknown(lost))?;
            let state = MemberState::Rebuilding { front: Blocks(0) };
            // The rebuild starts at block 0: nothing on the new disk is valid.
            *member = MemberRecord { disk: id, state, since: SINCE_NEXT };
            Ok(())
        })?;
        self.store.committed(change).await?;
        // The commit may have failed on exactly this disk, which is then marked failed already.
        self.admit_reached(id)
    }

    /// Takes back the disk of a member that does not participate, to be rebuilt.
    ///
    /// *Shape*: `device` has the label of `disk` and is as large as before; the caller has checked that.
    /// *Durability*: when it returns. *Errors*: `MemberUnknown`; `MemberState` when the member participates;
    /// `ReplacementTooSmall`, `CatalogLost`.
    pub async fn rejoin(&self, disk: Uuid, device: D) -> Result<(), PoolError> {
        let needed = self.admit_replacement(disk, disk)?;
        let data = data_area(device.geometry().blocks).map_or(Blocks(0), |area| area.len);
        if data < needed {
            let (bytes, needed_bytes) = (data.bytes(BLOCK_BYTES), needed.bytes(BLOCK_BYTES));
            return Err(PoolError::ReplacementTooSmall { bytes, needed_bytes });
        }
        // Attached before the catalog counts on it: the commit that does must reach it.
        self.store.attach(disk, Rc::new(device));
        let ((), change) = self.store.change(|catalog| {
            let member = catalog.member_mut(disk).ok_or(PoolError::MemberUnknown(disk))?;
            *member = MemberRecord { disk, state: MemberState::Rebuilding { front: Blocks(0) }, since: SINCE_NEXT };
            Ok(())
        })?;
        self.store.committed(change).await?;
        // The commit that counts on the disk may have failed on it.
        self.admit_reached(disk)
    }

    /// Number of data blocks that a replacement of `lost` must have.
    fn admit_replacement(&self, lost: Uuid, id: Uuid) -> Result<Blocks, PoolError> {
        self.store.with_catalog(|catalog| {
            let member = catalog.member(lost).ok_or(PoolError::MemberUnknown(lost))?;
            if member.state.takes_part() {
                return Err(PoolError::MemberState { disk: lost, is: member.state.word(), asked: "replaced" });
            }
            // The same UUID is permitted for a disk that returns to its own position.
            if id != lost && catalog.member(id).is_some() {
                return Err(PoolError::DiskKnown(id));
            }
            let group = catalog.groups.iter().find(|group| group.members.iter().any(|member| member.disk == lost));
            Ok(group.expect("a member is in a group").member_blocks)
        })
    }

    /// Verifies that a new member took the commit that made it one.
    pub(super) fn admit_reached(&self, disk: Uuid) -> Result<(), PoolError> {
        let state = self.store.with_catalog(|catalog| catalog.member(disk).map(|member| member.state));
        match state {
            Some(state) if state.takes_part() => Ok(()),
            Some(state) => Err(PoolError::MemberState { disk, is: state.word(), asked: "filled" }),
            None => Err(PoolError::MemberUnknown(disk)),
        }
    }
}

impl MemberState {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::InService => "in service",
            Self::Rebuilding { .. } => "being rebuilt",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}
