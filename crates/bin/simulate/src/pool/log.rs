//! Log device of a pool: creation, partial and total loss, replacement.

use super::Pool;
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::{LogReport, LogState, MemberState, Order, Report, VolumePolicy, VolumeState, WritePolicy};
use sim::DiskHandle;

impl Pool {
    /// Adds a log device of one or two new disks and returns them.
    pub(crate) async fn add_log(&self, stage: &Stage) -> CheckResult<Vec<DiskHandle>> {
        let (mut names, mut handles) = (Vec::new(), Vec::new());
        for _ in 0..stage.chance.within(1..=2) {
            let disk = self.add_disk(stage, self.plan.disk_mib).await?;
            // Before the log device is created, so that a planted bug also meets its first writes.
            stage.plant.record_log(&self.path(&disk)?);
            handles.push(self.handle(stage, &disk)?);
            names.push(disk);
        }
        stage.order(Order::AddLog { pool: self.name.clone(), disks: names, force: false }).await?;
        Ok(handles)
    }

    /// Replaces the failed or missing disks of the log device.
    pub(crate) async fn mend_log(&self, stage: &Stage) -> CheckResult<()> {
        let log = stage.log().await?;
        for lost in log.group.members.iter().filter(|member| member.state != MemberState::InSync) {
            // A member that is being rebuilt is neither in sync nor lost, and needs only time.
            if lost.state.is_lost() {
                self.replace_member(stage, lost).await?;
            }
        }
        stage.idle_disks().await
    }
}

impl Stage {
    /// Returns the report on the log device of the pool.
    pub(crate) async fn log(&self) -> CheckResult<LogReport> {
        self.pool().await?.log.ok_or_else(|| "the pool has lost its log".to_owned())
    }

    /// Sets the write policy of the volumes.
    pub(crate) async fn write_as(&self, volumes: &[PresentedVolume], write: WritePolicy) -> CheckResult<()> {
        for volume in volumes {
            let policy = VolumePolicy { write, ..VolumePolicy::default() };
            let order = Order::SetVolumePolicy { volume: volume.name.clone(), policy };
            // The answer is checked, since a policy that was refused silently would hide every fault.
            let Report::Volume(report) = self.order(order).await? else {
                return Err("SetVolumePolicy was not answered with a volume".to_owned());
            };
            if report.policy.map(|policy| policy.write) != Some(write) {
                return Err(format!("the volume is not written as it was set: {report:?}"));
            }
        }
        Ok(())
    }

    /// Checks the volumes while the log device is missing: a volume serves only if none of its data is in the log.
    pub(crate) async fn expect_held(&self, volumes: &[PresentedVolume]) -> CheckResult<()> {
        let log = self.log().await?;
        if log.state != LogState::Lost {
            return Err(format!("all disks of the log are away, and it is said to be so: {log:?}"));
        }
        let found = self.volumes().await?;
        for volume in volumes {
            let report = found.iter().find(|found| found.id == volume.id);
            let state = report.map(|report| report.state);
            let waits = log.volumes.contains(&volume.name);
            if state != Some(if waits { VolumeState::Failed } else { VolumeState::Online }) {
                return Err(format!("volume {} waits for the log: {waits}, but is {state:?}", volume.name));
            }
        }
        Ok(())
    }
}
