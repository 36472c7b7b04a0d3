//! The log devices of pools: added, and taken away.

use crate::change::pools::Pools;
use crate::request::{AddLog, NewGroup, RemoveLog};
use model::{DiskName, Level, LogState, Name, Order, PoolReport, Refusal, code};

impl Pools {
    /// The pool has a log device of the disks, and its volumes may be written back; those that were to be and could not
    /// are from now on.
    ///
    /// *Errors*: there is no pool of this name, it is not open or has a log already; a disk is unknown, missing, in use or named
    /// twice; one disk is not confirmed for a pool that bears the loss of a disk; and what the data plane refuses. Nothing is
    /// changed then.
    pub async fn add_log(&self, name: &Name, request: AddLog) -> Result<PoolReport, Refusal> {
        let turn = self.core.turn().await;
        self.admit_open(name).await?;
        let pool = self.report(name).await?;
        if pool.log.is_some() {
            let message = format!("pool {name} has a log already");
            let hint = format!("take it away first with blockyard pool remove-log {name}");
            return Err(Refusal::new(code::LOG_KNOWN, message, hint));
        }
        let level = if request.disks.len() > 1 { Level::Raid1 } else { Level::Raid0 };
        let group = NewGroup { level, chunk: None, no_integrity: false, member_size: None, disks: request.disks };
        self.admit_groups(std::slice::from_ref(&group), request.force).await?;
        let bears = pool.groups.iter().map(|group| group.level.tolerated(group.members.len())).min().unwrap_or(0);
        if let ([disk], false, 1..) = (&group.disks[..], request.confirmed, bears) {
            return Err(Refusal::new(
                code::UNCONFIRMED,
                format!(
                    "pool {name} bears the loss of a disk, and a log of disk {disk} alone does not: with it volumes lose what they acknowledged last"
                ),
                "name two disks, or repeat with --yes if that is wanted",
            ));
        }
        let order = Order::AddLog { pool: name.clone(), disks: group.disks, force: request.force };
        let pool = self.core.engine.pool(order).await?;
        self.core.commit(&turn, |state| state.learn(&pool))?;
        self.volumes.apply_policies(&turn, name).await?;
        drop(turn);
        self.report(name).await
    }

    /// The pool has no log device any more, and its disks are free.
    ///
    /// *Errors*: there is no pool of this name, it is not open or has no log; a volume is written back through it, or waits for
    /// what it holds and that is not given up; it is given up and can be read, or that is not confirmed. Nothing is changed then.
    pub async fn remove_log(&self, name: &Name, request: RemoveLog) -> Result<PoolReport, Refusal> {
        let turn = self.core.turn().await;
        self.admit_open(name).await?;
        let pool = self.report(name).await?;
        let Some(log) = pool.log else {
            return Err(Refusal::new(code::LOG_UNKNOWN, format!("pool {name} has no log"), "see blockyard pool show"));
        };
        if request.lost && !request.confirmed && log.state == LogState::Lost && !log.volumes.is_empty() {
            let volumes: Vec<String> = log.volumes.iter().map(ToString::to_string).collect();
            return Err(Refusal::new(
                code::UNCONFIRMED,
                format!("what these volumes acknowledged last would be lost: {}", volumes.join(", ")),
                "repeat with --yes if that is wanted",
            ));
        }
        // A label that is not there any more would make a disk look like another one.
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
        self.core.or_restore(&turn, removed.map(drop), &before)?;
        self.volumes.apply_policies(&turn, name).await?;
        drop(turn);
        self.report(name).await
    }
}
