//! Report of commands in flight.

use super::IscsiFront;
use crate::iscsi_shard::IscsiShard;
use crate::registry::{Entry, Notice};
use crate::scsi_unit::{ScsiUnit, TaskLocation};
use futures_util::future::{Either, join_all, select};
use iscsi::target::{CommandSnapshot, CommandStage};
use model::{DiskName, TaskReport, TaskStage, VolumeId, VolumeName};
use scsi::NexusId;
use shard::{Time, World, mailbox};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Time for a session to report its commands.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Stage of each task, by volume, nexus and task identifier of the connection.
type TaskLocations = BTreeMap<(VolumeId, NexusId, u32), (TaskStage, Option<DiskName>)>;

impl<W: World> IscsiFront<W> {
    pub(super) async fn task_reports(&self) -> Vec<TaskReport> {
        let mut places = TaskLocations::new();
        for home in 0..self.shard.limits.shards {
            places.extend(self.shard.call(home, |shard| async move { places_at(&shard) }).await.unwrap_or_default());
        }
        let names: BTreeMap<VolumeId, VolumeName> =
            self.volumes.borrow().iter().map(|(name, home)| (home.id, name.clone())).collect();
        let sessions = self.shard.registry.sessions();
        let told = join_all(sessions.iter().map(|(_, entry)| self.command_snapshots(entry))).await;
        let now = self.shard.world.now();
        let mut reports = Vec::new();
        // The reports of sessions and units are not taken at the same instant: a task may be missing in one of them.
        for ((id, entry), standing) in sessions.iter().zip(told) {
            let luns = self.luns_of(entry);
            reports.extend(standing.iter().map(|one| {
                // Decoded as for the command itself, so that a LUN in any form finds its unit.
                let lun = scsi::Lun(one.lun).number();
                let unit = lun.and_then(|lun| luns.get(&lun).copied());
                let place = unit.and_then(|unit| places.get(&(unit, NexusId(id.0), one.task.bits())));
                let volume = unit.and_then(|unit| names.get(&unit).cloned());
                report(entry, one, (lun, volume), place, now)
            }));
        }
        // The longest wait first, because that is the one to investigate.
        reports.sort_by_key(|task| (Reverse(task.waited_ms), task.session, task.cmd_sn));
        reports
    }

    async fn command_snapshots(&self, entry: &Entry) -> Vec<CommandSnapshot> {
        let (tell, told) = mailbox::channel();
        // A session that is ending does not report.
        let _ = entry.notices.send(Notice::TellTasks { tell });
        // A busy or stuck session must not block the report of all others.
        match select(pin!(told.receive()), pin!(self.shard.world.sleep(ANSWER_TIME))).await {
            Either::Left((standing, _)) => standing.unwrap_or_default(),
            Either::Right(_) => Vec::new(),
        }
    }

    fn luns_of(&self, entry: &Entry) -> BTreeMap<u16, VolumeId> {
        let view = self.shard.access.borrow().clone();
        let host = view.host(&entry.host);
        let target = view.target_of(&entry.nexus.target);
        let luns = target.zip(host).map(|(target, host)| view.luns(target, host, view.policy_at(entry.portal).tag));
        luns.into_iter().flatten().map(|(lun, shown)| (lun, shown.unit)).collect()
    }
}

/// Returns the stages of the tasks of all units whose home is this shard.
fn places_at<W: World>(shard: &IscsiShard<W>) -> TaskLocations {
    let units = shard.units.borrow();
    let of_unit = |(&id, unit): (&VolumeId, &Rc<ScsiUnit<W>>)| {
        let place = move |place: TaskLocation| ((id, place.nexus, place.task), (place.stage, place.disk));
        unit.places(&shard.engine).into_iter().map(place)
    };
    units.iter().flat_map(of_unit).collect()
}

fn report(
    entry: &Entry,
    one: &CommandSnapshot,
    (lun, volume): (Option<u16>, Option<VolumeName>),
    place: Option<&(TaskStage, Option<DiskName>)>,
    now: Time,
) -> TaskReport {
    let (stage, disk) = match one.stage {
        CommandStage::Receiving => (TaskStage::Receiving, None),
        // A running command without a place is between shards or has just ended.
        CommandStage::Running => place.cloned().unwrap_or((TaskStage::Running, None)),
        CommandStage::Responding => (TaskStage::Answering, None),
    };
    TaskReport {
        session: u32::from(entry.tsih),
        initiator: entry.nexus.initiator.clone(),
        host: entry.host.parse().ok(),
        tag: one.tag,
        cmd_sn: one.cmd_sn,
        lun,
        volume,
        operation_code: one.operation_code,
        stage,
        disk,
        waited_ms: u64::try_from(now.since(one.since).as_millis()).unwrap_or(u64::MAX),
    }
}
