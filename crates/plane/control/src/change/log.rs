//! Log devices of pools: add and remove.

use crate::change::pools::Pools;
use crate::request::{AddLog, NewGroup, RemoveLog};
use model::{DiskName, Level, LogState, Name, Order, PoolReport, Refusal, code};

impl Pools {
    /// Adds a log device to the pool, which allows write-back for its volumes; volumes that were configured for
    /// write-back switch to it.
    ///
    /// *Errors*: there is no pool of this name, it is not open or has a log already; a disk is unknown,
    /// missing, in use or named twice; a single disk for a redundant pool is not confirmed; or the refusal of
    /// the data plane. Nothing is changed then.
    pub async fn add_log(&self, name: &Name, request: AddLog) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.admit_open(name).await?;
        let pool = self.report(name).await?;
        // Before the disks are checked, because no choice of disks would help.
        if pool.log.is_some() {
            let message = format!("pool {name} already has a log device");
            let hint = format!("remove it first with blockyard pool remove-log {name}");
            return Err(Refusal::new(code::LOG_KNOWN, message, hint));
        }
        // Several disks form a mirror; a single one has no redundancy.
        let level = if request.disks.len() > 1 { Level::Raid1 } else { Level::Raid0 };
        let group = NewGroup { level, chunk: None, no_integrity: false, member_size: None, disks: request.disks };
        self.admit_groups(std::slice::from_ref(&group), request.force).await?;
        // The log must survive as many failures as the data whose latest writes only it holds.
        let bears = pool.groups.iter().map(|group| group.level.tolerated(group.members.len())).min().unwrap_or(0);
        if let ([disk], false, 1..) = (&group.disks[..], request.confirmed, bears) {
            return Err(Refusal::new(
                code::UNCONFIRMED,
                format!(
                    "a log device with only disk {disk} has no redundancy, but pool {name} has: if the disk \
                     fails, the last acknowledged writes are lost"
                ),
                "give two disks, or repeat with --yes to confirm",
            ));
        }
        let order = Order::AddLog { pool: name.clone(), disks: group.disks, force: request.force };
        // The commit point is the pool's own; the state only mirrors its members.
        let pool = self.core.engine.pool(order).await?;
        self.core.commit(&turn, |state| state.learn(&pool))?;
        // Volumes that are configured for write-back switch to the new log.
        self.volumes.apply_policies(&turn, name).await?;
        // The report needs no lock, so other changes may run.
        drop(turn);
        self.report(name).await
    }

    /// Removes the log device from the pool and frees its disks.
    ///
    /// *Errors*: there is no pool of this name, it is not open or has no log; a volume uses it for write-back,
    /// or waits for its content without giving that up; it is to be given up though it can be read, or without
    /// confirmation. Nothing is changed then.
    pub async fn remove_log(&self, name: &Name, request: RemoveLog) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.admit_open(name).await?;
        let pool = self.report(name).await?;
        let Some(log) = pool.log else {
            return Err(Refusal::new(
                code::LOG_UNKNOWN,
                format!("pool {name} has no log device"),
                "see blockyard pool show",
            ));
        };
        if request.lost && !request.confirmed && log.state == LogState::Lost && !log.volumes.is_empty() {
            let volumes: Vec<String> = log.volumes.iter().map(ToString::to_string).collect();
            return Err(Refusal::new(
                code::UNCONFIRMED,
                format!("the last acknowledged writes of these volumes would be lost: {}", volumes.join(", ")),
                "repeat with --yes to confirm",
            ));
        }
        // With its label erased, a disk with a recorded identity would look like another disk.
        let before = self.core.state();
        let disks: Vec<DiskName> = log.group.members.iter().filter_map(|member| member.disk.clone()).collect();
        self.core.commit(&turn, |state| {
            for disk in &disks {
                if let Some(record) = state.disks.get_mut(disk) {
                    record.id = None;
                }
            }
        })?;
        let removed = self.core.engine.pool(Order::RemoveLog { pool: name.clone(), lost: request.lost }).await;
        // A refusal leaves the labels in place, so the identities are restored.
        self.core.or_restore(&turn, removed.map(drop), &before)?;
        self.volumes.apply_policies(&turn, name).await?;
        drop(turn);
        self.report(name).await
    }
}
