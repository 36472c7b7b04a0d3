//! The fake's log devices: disks, and nothing in them.

use super::Fake;
use super::label::{self, Label};
use super::pool::{Pool, group_report};
use model::{
    DiskName, GroupSpec, Level, LogReport, LogState, MemberSize, Name, Order, Refusal, Report, Size, VolumeName,
    VolumePolicy, WritePolicy, code,
};

impl Fake {
    pub(super) fn change_log(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::AddLog { pool, disks, force } => self.add_log(pool, disks, *force),
            Order::RemoveLog { pool, .. } => self.remove_log(pool),
            _ => unreachable!("an order about a log"),
        }
    }

    fn add_log(&mut self, name: &Name, disks: &[DiskName], force: bool) -> Result<Report, Refusal> {
        let level = if disks.len() > 1 { Level::Raid1 } else { Level::Raid0 };
        let spec = GroupSpec {
            level,
            chunk: Size::new(64 << 10),
            integrity: true,
            member_size: MemberSize::default(),
            disks: disks.to_vec(),
        };
        let mut paths = Vec::new();
        let (group, _) = self.draft_group(&spec, force, &mut paths)?;
        let pool = self.pools.get_mut(name).expect("control asks for open pools");
        pool.catalogue.log = Some(group);
        for (disk, path) in paths {
            label::write(&path, &Label { disk, pool: pool.catalogue.clone() })?;
        }
        pool.save(&self.disks)?;
        Ok(self.pool_report(name))
    }

    pub(super) fn set_volume_policy(&mut self, name: &VolumeName, policy: VolumePolicy) -> Result<Report, Refusal> {
        let pool = name.pool().expect("control asks for volumes of pools");
        if policy.write == WritePolicy::Back && self.pools[pool].catalogue.log.is_none() {
            let message = format!("volume {name} cannot be written back: pool {pool} has no log device");
            let hint = format!(
                "give it one with blockyard pool add-log {pool} DISK DISK, or choose back-volatile, which loses what was not flushed when the power fails"
            );
            return Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, hint));
        }
        self.policies.insert(name.clone(), policy);
        Ok(Report::Volume(self.volume_named(name)))
    }

    fn remove_log(&mut self, name: &Name) -> Result<Report, Refusal> {
        let back = |(volume, policy): &(&VolumeName, &VolumePolicy)| {
            volume.pool() == Some(name) && policy.write == WritePolicy::Back
        };
        if let Some((volume, _)) = self.policies.iter().find(back) {
            let message = format!("volume {volume} is written back through the log of pool {name}");
            let hint = format!("write it through first: blockyard volume set {volume} --write-policy through");
            return Err(Refusal::new(code::LOG_IN_USE, message, hint));
        }
        let pool = self.pools.get_mut(name).expect("control asks for open pools");
        let group = pool.catalogue.log.take().expect("control asks for pools with a log");
        for (disk, label) in super::pool::labels(&self.disks) {
            if group.members.iter().any(|(member, _)| *member == label.disk) {
                label::erase(&self.disks[&disk])?;
            }
        }
        pool.save(&self.disks)?;
        Ok(self.pool_report(name))
    }
}

impl Pool {
    pub(super) fn log_report(&self, names: &std::collections::BTreeMap<model::DiskId, DiskName>) -> Option<LogReport> {
        let group = group_report(self.catalogue.log.as_ref()?, names, None);
        Some(LogReport {
            state: LogState::Ready,
            size: Size::new(60 << 20),
            used: Size::ZERO,
            volumes: Vec::new(),
            why: None,
            group,
        })
    }
}
