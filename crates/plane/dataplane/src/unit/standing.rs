//! Where the commands of a unit are that have no answer yet. Nobody notes it as they go: it is found when somebody asks.

use super::{Store, Unit};
use crate::seat::Seat;
use cache::Hold;
use model::{Backend, DiskName, TaskStage};
use scsi::{NexusId, TaskStanding};
use shard::World;

/// Where a command is, and the disk that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose it is.
    pub nexus: NexusId,
    /// The connection's name for the task.
    pub task: u32,
    /// Where it is.
    pub stage: TaskStage,
    /// The disk, where it is at one that has a name.
    pub disk: Option<DiskName>,
}

impl<W: World> Unit<W> {
    /// Where its commands are.
    pub fn places(&self, seat: &Seat<W>) -> Vec<Place> {
        let standing = self.logical_unit.standing_tasks();
        if standing.is_empty() {
            return Vec::new();
        }
        let below = self.below(seat);
        let place = |task: &TaskStanding| {
            let (stage, disk) = match self.held_at(task) {
                Some(stage) => (stage, None),
                None => below.clone(),
            };
            Place { nexus: task.nexus, task: task.tag.0, stage, disk }
        };
        standing.iter().map(place).collect()
    }

    /// Where it is held before it goes below.
    fn held_at(&self, task: &TaskStanding) -> Option<TaskStage> {
        if !task.has_begun {
            return Some(TaskStage::Waiting);
        }
        let hold = match &*self.store {
            Store::Volume(volume) => volume.hold(task.extent),
            Store::Volume512(sectors) => sectors.device().hold(volume::blocks_of_sectors(task.extent)),
            Store::File(_) | Store::Ram(_) | Store::Null(_) => None,
        };
        hold.map(|hold| match hold {
            Hold::Limit => TaskStage::Limit,
            Hold::Room => TaskStage::Cache,
        })
    }

    /// Where commands are that nothing above holds.
    fn below(&self, seat: &Seat<W>) -> (TaskStage, Option<DiskName>) {
        match &self.backend {
            Backend::File { .. } => (TaskStage::Disk, None),
            Backend::Ram | Backend::Null => (TaskStage::Running, None),
            Backend::Pool { .. } => {
                let pools = seat.pools.borrow();
                let pool = self.name.pool().and_then(|name| pools.get(name));
                pool.map_or((TaskStage::Running, None), |pool| pool.where_commands_wait())
            }
        }
    }
}
