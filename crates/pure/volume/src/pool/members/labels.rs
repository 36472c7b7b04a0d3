//! Scrub of the members' metadata: verifies labels and catalogs of all members and rewrites damaged copies.

use super::super::create::{label_of, sanitize_created_by};
use super::Members;
use crate::error::PoolError;
use crate::layout::SLOT_STARTS;
use crate::probe::{Contents, probe, reserve, restore_label, write_label};
use block::{BlockDevice, IoError};
use futures_util::future::join_all;
use std::fmt;
use std::rc::Rc;
use uuid::Uuid;

/// Metadata of a member with damaged copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedMetadata {
    /// True for its label.
    pub label: bool,
    /// True for the newest catalog.
    pub catalog: bool,
}

impl DamagedMetadata {
    const ALL: Self = Self { label: true, catalog: true };
}

impl fmt::Display for DamagedMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.label, self.catalog) {
            (true, false) => "the label",
            (false, _) => "the catalog",
            (true, true) => "the label and the catalog",
        })
    }
}

impl<D: BlockDevice + 'static> Members<'_, D> {
    /// Verifies all label copies and both catalog slots of every participating member; returns those that were
    /// damaged, after rewriting them.
    ///
    /// Nothing else reads these while the pool is open, so damage would stay unnoticed until the next opening
    /// has to do without the disk. *Durability*: when it returns. *Errors*: `CatalogLost`. A disk that cannot
    /// be written fails with the next commit.
    pub async fn scrub(&self, now: u64, created_by: &str) -> Result<Vec<(Uuid, DamagedMetadata)>, PoolError> {
        let store = self.store;
        store.committed(store.latest()).await?;
        // No commit is in flight now, so every member should have this one.
        let generation = store.generation();
        let mut wrong = Vec::new();
        for (id, disk) in store.disks() {
            // The others have not had the commits since they were given up, and are rebuilt when they return.
            let takes_part =
                store.with_catalog(|catalog| catalog.member(id).is_some_and(|member| member.state.takes_part()));
            if takes_part {
                let found = self.scrub_one((id, &disk), generation, now, created_by).await;
                // An I/O error counts as damage: if it persists, the commit below fails the disk.
                wrong.extend(found.unwrap_or(Some(DamagedMetadata::ALL)).map(|decayed| (id, decayed)));
            }
        }
        if !wrong.is_empty() {
            // The commit rewrites both slots of every member.
            let ((), change) = store.change(|_| Ok(()))?;
            store.committed(change).await?;
        }
        Ok(wrong)
    }

    /// Reserves space for the metadata of every participating member; returns the disks without enough space.
    ///
    /// Their files may have been copied as sparse files since they were labeled, or created by a version that
    /// did not reserve space.
    pub async fn reserve_metadata(&self) -> Vec<(Uuid, IoError)> {
        let store = self.store;
        let takes_part =
            |id| store.with_catalog(|catalog| catalog.member(id).is_some_and(|member| member.state.takes_part()));
        let disks = store.disks().into_iter().filter(|(id, _)| takes_part(*id));
        let reserved = join_all(disks.map(async |(id, disk)| Some((id, reserve(&*disk).await.err()?)))).await;
        reserved.into_iter().flatten().collect()
    }

    async fn scrub_one(
        &self,
        (id, disk): (Uuid, &Rc<D>),
        generation: u64,
        now: u64,
        created_by: &str,
    ) -> Result<Option<DamagedMetadata>, IoError> {
        let store = self.store;
        let pool = store.with_catalog(|catalog| catalog.pool);
        match probe(&**disk).await.contents {
            // Foreign content is left alone: another program may own the disk now.
            Contents::Foreign(_) | Contents::Newer { .. } => Ok(None),
            Contents::Member(member) if member.overwritten.is_some() => Ok(None),
            // The next heartbeat detects it, and this node fences itself.
            Contents::Member(member) if member.label.pool != pool => Ok(None),
            Contents::Member(member) if (member.label.pool, member.label.disk) == (pool, id) => {
                restore_label(&**disk, &member.label, member.copies).await?;
                let newest = member.catalogs.iter().filter(|found| found.generation >= generation).count();
                let decayed =
                    DamagedMetadata { label: member.copies.contains(&false), catalog: newest < SLOT_STARTS.len() };
                Ok((decayed.label || decayed.catalog).then_some(decayed))
            }
            // No usable copy is left, so the label is written anew from what the catalog says.
            _ => {
                let (blocks, created_by) = (disk.geometry().blocks, sanitize_created_by(created_by));
                let label = store.with_catalog(|catalog| label_of(catalog, id, generation, blocks, now, &created_by));
                write_label(&**disk, &label).await?;
                Ok(Some(DamagedMetadata::ALL))
            }
        }
    }
}
