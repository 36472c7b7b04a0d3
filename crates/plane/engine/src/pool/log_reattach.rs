//! Return of a log device whose disks were absent when its pool was opened, while the pool is open.

use super::blocked_volumes::open_held;
use super::open::{self, AfterOpen, ProbedDisk};
use super::refusals::refusal;
use super::replay::LogReplay;
use super::{Candidate, DiskId, OpenPool, uuid};
use crate::array::{self, GroupListener};
use futures_util::future::join_all;
use model::{Refusal, VolumeReport, code, event};
use shard::World;
use std::rc::Rc;
use volume::{DiskState, Uuid, assemble, probe};

impl<W: World> OpenPool<W> {
    /// True if the disk belongs to the log device without which the pool was opened.
    pub(super) fn awaits(&self, disk: DiskId) -> bool {
        let Some(place) = self.pool.write_log().group().map(usize::from) else { return false };
        let members = &self.pool.status().groups[place].record.members;
        self.groups.get(place).is_none() && members.iter().any(|member| member.disk == uuid(disk))
    }
}

/// Return of a disk of the absent log device.
pub(super) struct LogReattach<'a, W: World> {
    pub(super) pool: &'a Rc<OpenPool<W>>,
    pub(super) candidate: Candidate,
}

impl<W: World> LogReattach<'_, W> {
    /// Takes the log up again on the disk. Volumes that waited for it get their logged writes and serve; their reports
    /// are returned.
    ///
    /// *Errors*: `LOG_AWAY` if the disk is another one or was changed; nothing is changed then.
    pub(super) async fn reattach(self) -> Result<Vec<VolumeReport>, Refusal> {
        let name = self.candidate.name.clone();
        let looked = self.look().await?;
        // All disks of the pool are assembled together: only the newest catalog tells whether the returned disk is
        // current.
        let probes: Vec<_> = looked.iter().map(|looked| looked.probe.clone()).collect();
        let own = Uuid::from_bytes(self.pool.id.to_bytes());
        let found = assemble(&probes).pools.into_iter().find(|found| found.catalog.pool == own);
        let place = usize::from(self.pool.pool.write_log().group().expect("the pool awaits its log"));
        let back = found.filter(|found| {
            let positions = found.groups.get(place).map_or(&[][..], |group| &group.positions);
            positions.iter().any(|position| position.state == DiskState::Current)
        });
        let found = back.ok_or_else(|| {
            let message = format!("disk {name} was changed since it left the log device of pool {}", self.pool.name);
            let hint = "attach the original disks of the log device, or discard the last acknowledged writes with \
                 blockyard pool remove-log --lost";
            Refusal::new(code::LOG_AWAY, message, hint)
        })?;
        let record = &found.catalog.groups[place];
        let watch = GroupListener::new(place, record.protected);
        let (state, trouble) =
            open::assemble_group(&self.pool.shard, record, &found.groups[place], &looked, &watch).await?;
        // The catalog must count on the disk before the log is replayed from it.
        let returned = self.pool.pool.write_log().reattach(&found, |at| looked[at].disk.clone()).await;
        returned.map_err(|error| refusal(&error, self.pool))?;
        // Behind the fence, and bound to the pool, before the replay writes anything.
        self.pool.take_in(place, state, &watch);
        let opened = AfterOpen { pool: self.pool, found: &found, guard: None };
        opened.report_problems(&[(place, trouble)]);
        opened.agree().await?;
        self.pool.raise(
            event::LOG_RETURNED,
            format!("the log device of pool {} is available again, on disk {name}", self.pool.name),
        );
        self.serve_waiting_volumes().await
    }

    /// Probes the disks of the pool and the returned one.
    async fn look(&self) -> Result<Vec<ProbedDisk<W>>, Refusal> {
        let back = array::open_disk(&self.pool.shard, &self.candidate.path).await?;
        let slots = self.pool.slots();
        // Disks of members are open already and must not be opened a second time.
        let here = slots
            .into_iter()
            .filter_map(|slot| Some((Candidate { name: slot.name?, path: String::new() }, slot.disk?)));
        let all = here.chain([(self.candidate.clone(), back)]);
        Ok(join_all(all.map(async |(candidate, disk)| {
            let probe = probe(&disk).await;
            ProbedDisk { candidate, disk, probe }
        }))
        .await)
    }

    async fn serve_waiting_volumes(&self) -> Result<Vec<VolumeReport>, Refusal> {
        let found = open_held(self.pool).await?;
        LogReplay { pool: self.pool, volumes: &found }.run(None).await;
        // Volumes that serve already learn the log, so that they can use write-back again.
        if let Some(log) = self.pool.log.running() {
            for unit in self.pool.units() {
                unit.set_log(Some(log.clone())).await;
            }
        }
        let serving = found.into_iter().filter(|found| !self.pool.blocked.holds(found.id));
        let mut reports: Vec<VolumeReport> = serving.filter_map(|found| self.pool.show_found(found)).collect();
        self.pool.describe_space(&mut reports);
        Ok(reports)
    }
}
