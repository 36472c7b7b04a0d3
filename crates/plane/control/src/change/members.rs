//! Members of pools: failed by an operator, and replaced.

use crate::change::disks::{admit_former, admit_unused, missing, pool_of};
use crate::change::pools::Pools;
use crate::request::Replace;
use crate::system::now;
use model::{DiskName, DiskReport, DiskState, FormerMember, Order, PoolReport, Refusal, code};

impl Pools {
    /// Fails the disk in its pool, as if it had died.
    ///
    /// *Errors*: it is unknown or in no pool, has failed already, or the pool cannot spare it.
    pub async fn fail_disk(&self, name: &DiskName) -> Result<PoolReport, Refusal> {
        let _turn = self.core.lock_changes().await;
        self.core.state().disk(name)?;
        if self.disks.opened(name).await?.is_none() {
            return Err(missing(name));
        }
        // The pool records the failure on its disks, so there is nothing to commit here.
        self.core.engine.pool(Order::FailDisk { disk: name.clone() }).await
    }

    /// Replaces the disk `name` by another one and starts the rebuild. A failed disk may be retried in its own
    /// place.
    ///
    /// *Errors*: one of them is unknown, the first is healthy without both `force` and confirmation, the second
    /// is missing, in use, too small or holds foreign data.
    pub async fn replace_disk(&self, name: &DiskName, request: Replace) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.core.state().disk(name)?;
        self.core.state().disk(&request.replacement)?;
        if self.disks.opened(&request.replacement).await?.is_none() {
            // The replacement may have been attached after the start.
            self.disks.open_all(&turn).await?;
        }
        let Some(replacement) = self.disks.opened(&request.replacement).await? else {
            return Err(missing(&request.replacement));
        };
        if request.replacement == *name {
            admit_own_place(name, &replacement)?;
        } else {
            admit_unused(&request.replacement, &replacement)?;
        }
        let opened = self.disks.opened(name).await?;
        // A missing disk needs no confirmation, because it cannot be healthy.
        if let Some(disk) = &opened {
            admit_replaced(name, disk, &request)?;
        }
        // In its own place a disk is a former member by nature.
        if request.replacement != *name {
            let known = self.core.state().disk(&request.replacement)?.former.clone();
            admit_former(&request.replacement, known.as_ref(), request.force)?;
        }
        // Prepared before the order, because afterwards the old disk no longer counts as a member.
        let former = FormerMember {
            // A placeholder: only the report of the replacement names the pool, and the commit below sets it.
            pool: name.clone(),
            failed: opened.is_none_or(|disk| disk.state != DiskState::InUse),
            replaced_by: Some(request.replacement.clone()),
            since: Some(now()),
        };
        let in_its_place = request.replacement == *name;
        let state = self.core.state();
        let order = Order::ReplaceDisk {
            failed: name.clone(),
            // A missing disk has no label to read, so the recorded identity names the member.
            member: state.disk(name)?.id,
            replacement: request.replacement,
            force: request.force,
        };
        let pool = self.core.engine.pool(order).await?;
        // The pool has committed already: a crash here loses the record of the former member, and no more.
        self.core.commit(&turn, |state| {
            state.learn(&pool);
            if !in_its_place {
                state.mark_former_member(name, FormerMember { pool: pool.name.clone(), ..former });
            }
        })?;
        if in_its_place {
            // It may be a disk of the log, so that volumes can return to write-back.
            self.volumes.apply_policies(&turn, &pool.name).await?;
        }
        Ok(pool)
    }
}

/// Admits the replacement of a failed disk; that of a healthy one needs both `force` and confirmation.
fn admit_replaced(name: &DiskName, disk: &DiskReport, request: &Replace) -> Result<(), Refusal> {
    match (disk.state, request.force, request.confirmed) {
        (DiskState::InUse, false, _) => Err(Refusal::new(
            code::DISK_HEALTHY,
            format!("disk {name} is healthy"),
            "give the failed disk, or repeat with --force to replace a healthy one",
        )),
        (DiskState::InUse, true, false) => Err(Refusal::new(
            code::UNCONFIRMED,
            format!(
                "disk {name} is healthy, and {} would run without it until the rebuild has finished",
                pool_of(disk)
            ),
            "repeat with --yes to confirm",
        )),
        _ => Ok(()),
    }
}

/// Admits a disk to its own place: a failed one, or one that was missing and is back.
fn admit_own_place(name: &DiskName, disk: &DiskReport) -> Result<(), Refusal> {
    match disk.state {
        DiskState::InUse => Err(Refusal::new(
            code::DISK_HEALTHY,
            format!("disk {name} is healthy and in use"),
            format!("give a free disk, or fail it first with blockyard disk fail {name}"),
        )),
        DiskState::Rebuilding => Err(Refusal::new(
            code::DISK_IN_USE,
            format!("disk {name} is already being rebuilt"),
            "wait until the rebuild has finished, see blockyard pool show",
        )),
        DiskState::Free | DiskState::Failed | DiskState::Missing | DiskState::Former => Ok(()),
    }
}
