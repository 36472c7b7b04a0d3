//! Members that fail, are filled again, and are replaced.

mod joining;
mod labels;

pub use labels::Decayed;

use super::Pool;
use super::create::{NewDisk, admit_disk, label_of, made_by_us};
use crate::assembly::parts;
use crate::catalog::{GroupRecord, MemberRecord, MemberState};
use crate::error::PoolError;
use crate::layout::{BLOCK_BYTES, data_area};
use crate::probe::{prepare, write_label};
use crate::store::{SINCE_NEXT, Store};
use block::{BlockDevice, Blocks};
use shard::Pause;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

/// The member disks of a pool, of all of its groups: their states, their labels, and which disks come and go.
pub struct Members<'a, D> {
    store: &'a Store<D>,
    /// True while a group or a place is being added or removed.
    regrouping: &'a Cell<bool>,
}

/// Holds off others who would add or remove a group or a place.
pub(super) struct Regrouping<'a>(&'a Cell<bool>);

impl Drop for Regrouping<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The member disks of the pool.
    #[must_use]
    pub fn members(&self) -> Members<'_, D> {
        Members { store: &self.shared.store, regrouping: &self.shared.regrouping }
    }
}

impl<D: BlockDevice + 'static> Members<'_, D> {
    /// True when the disk, which was a member, went on without others that the pool counts on, and was written then: who takes it back
    /// overwrites what is nowhere else.
    #[must_use]
    pub fn was_written_apart(&self, disk: &crate::probe::Member) -> bool {
        self.store.look(|catalog| parts::was_written_apart(catalog, disk))
    }

    pub(super) fn regroup(&self) -> Result<Regrouping<'_>, PoolError> {
        if self.regrouping.replace(true) {
            return Err(PoolError::Regrouping);
        }
        Ok(Regrouping(self.regrouping))
    }

    /// `on_failed` hears of every disk that could not take a commit and is therefore marked failed: its
    /// array must not use it any more.
    pub fn on_failed(&self, on_failed: impl Fn(Uuid) + 'static) {
        self.store.on_failed(Rc::new(on_failed));
    }

    /// No member is marked failed because it missed a commit when its group could not serve without it, as `tolerates` says
    /// with true for each member that holds all that it should; disks that refuse for want of space are asked again.
    pub fn spare(&self, tolerates: impl Fn(&GroupRecord, &[bool]) -> bool + 'static, pause: Pause) {
        self.store.spare(Rc::new(tolerates));
        self.store.insist_with(pause);
    }

    /// The catalog says that the member is in `state`. A failed member is never believed again, whatever
    /// happens after this returns; so this returns before a write that the member missed is acknowledged.
    ///
    /// *Durability*: when it returns. *Errors*: `MemberUnknown`, `CatalogLost`; `MemberState` for a state that
    /// does not follow from the present one: failed and missing from all, rebuilt and in service from rebuilding only.
    pub async fn set_state(&self, disk: Uuid, state: MemberState) -> Result<(), PoolError> {
        let ((), change) = self.store.change(|catalog| {
            let member = catalog.member_mut(disk).ok_or(PoolError::MemberUnknown(disk))?;
            let follows = match (member.state, state) {
                (
                    MemberState::InService | MemberState::Rebuilding { .. },
                    MemberState::Failed | MemberState::Missing,
                ) => true,
                // Whether it may come back by itself is known only after it missed a commit.
                (MemberState::Failed, MemberState::Missing) | (MemberState::Missing, MemberState::Failed) => true,
                (MemberState::Rebuilding { .. }, MemberState::Rebuilding { .. } | MemberState::InService) => true,
                (is, asked) => is == asked,
            };
            if !follows {
                return Err(PoolError::MemberState { disk, is: member.state.word(), asked: state.word() });
            }
            if !member.state.is_like(state) {
                member.since = SINCE_NEXT;
            }
            member.state = state;
            Ok(())
        })?;
        if !state.takes_part() {
            self.store.note_given_up();
        }
        self.store.committed(change).await
    }

    /// The pool lets go of the disk of a member that takes no part, so that it can be opened again. Without
    /// effect on one that does.
    pub fn release(&self, disk: Uuid) {
        let store = self.store;
        if !store.look(|catalog| catalog.member(disk).is_some_and(|member| member.state.takes_part())) {
            store.detach(disk);
        }
    }

    /// `replacement` has the place of the member `lost`, and is to be filled from the beginning.
    ///
    /// Its label is written first; until the catalog names it, a crash leaves a disk that the pool does not
    /// count. *Durability*: when it returns. *Errors*: `MemberUnknown`; `MemberState` when `lost` still takes part;
    /// `DiskKnown`, `DiskTooSmall`, `ReplacementTooSmall`, `DiskOfPool`, `DiskForeign`, `DiskFails`, `CatalogLost`.
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
        if !force && !self.is_given_up(&replacement.device).await {
            admit_disk(&replacement).await?;
        }
        let device = Rc::new(replacement.device);
        let (generation, created_by) = (self.store.generation(), made_by_us(created_by));
        let label = self.store.look(|catalog| label_of(catalog, id, generation, blocks, now, &created_by));
        let prepared = async {
            let _ = prepare(&*device).await?;
            write_label(&*device, &label).await
        };
        prepared.await.map_err(|error| PoolError::DiskFails { disk: id, error })?;
        // Others may have changed the catalog meanwhile.
        self.admit_replacement(lost, id)?;
        self.store.attach(id, device);
        let ((), change) = self.store.change(|catalog| {
            let member = catalog.member_mut(lost).ok_or(PoolError::MemberUnknown(lost))?;
            let state = MemberState::Rebuilding { front: Blocks(0) };
            *member = MemberRecord { disk: id, state, since: SINCE_NEXT };
            Ok(())
        })?;
        self.store.committed(change).await?;
        self.admit_reached(id)
    }

    /// The disk of a member that takes no part has come back to its place, and is to be filled with what it has missed.
    ///
    /// *Shape*: `device` bears the label of `disk` and is as large as it was; the caller has looked. *Durability*: when
    /// it returns. *Errors*: `MemberUnknown`; `MemberState` when the member takes part; `ReplacementTooSmall`, `CatalogLost`.
    pub async fn readmit(&self, disk: Uuid, device: D) -> Result<(), PoolError> {
        let needed = self.admit_replacement(disk, disk)?;
        let data = data_area(device.geometry().blocks).map_or(Blocks(0), |area| area.len);
        if data < needed {
            let (bytes, needed_bytes) = (data.bytes(BLOCK_BYTES), needed.bytes(BLOCK_BYTES));
            return Err(PoolError::ReplacementTooSmall { bytes, needed_bytes });
        }
        self.store.attach(disk, Rc::new(device));
        let ((), change) = self.store.change(|catalog| {
            let member = catalog.member_mut(disk).ok_or(PoolError::MemberUnknown(disk))?;
            *member = MemberRecord { disk, state: MemberState::Rebuilding { front: Blocks(0) }, since: SINCE_NEXT };
            Ok(())
        })?;
        self.store.committed(change).await?;
        self.admit_reached(disk)
    }

    /// How much of its data area the replacement of `lost` must give.
    fn admit_replacement(&self, lost: Uuid, id: Uuid) -> Result<Blocks, PoolError> {
        self.store.look(|catalog| {
            let member = catalog.member(lost).ok_or(PoolError::MemberUnknown(lost))?;
            if member.state.takes_part() {
                return Err(PoolError::MemberState { disk: lost, is: member.state.word(), asked: "replaced" });
            }
            if id != lost && catalog.member(id).is_some() {
                return Err(PoolError::DiskKnown(id));
            }
            let group = catalog.groups.iter().find(|group| group.members.iter().any(|member| member.disk == lost));
            Ok(group.expect("a member is in a group").member_blocks)
        })
    }

    /// Whether a new member took the commit that made it one.
    pub(super) fn admit_reached(&self, disk: Uuid) -> Result<(), PoolError> {
        let state = self.store.look(|catalog| catalog.member(disk).map(|member| member.state));
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
