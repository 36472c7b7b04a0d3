//! Where the commands of a unit are that have no answer yet. Nobody notes it as they go: it is found when somebody asks.

use super::ScsiUnit;
use engine::ShardContext;
use model::{DiskName, TaskStage};
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

impl<W: World> ScsiUnit<W> {
    /// Where its commands are.
    pub fn places(&self, engine: &ShardContext<W>) -> Vec<Place> {
        let standing = self.logical_unit.standing_tasks();
        if standing.is_empty() {
            return Vec::new();
        }
        let below = self.unit.below(engine);
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
        if task.has_begun { self.unit.hold(task.extent) } else { Some(TaskStage::Waiting) }
    }
}
