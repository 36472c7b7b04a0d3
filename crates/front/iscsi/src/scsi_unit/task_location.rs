//! Location of commands in flight: not recorded by the data path, but derived when a report is requested.

use super::ScsiUnit;
use engine::ShardContext;
use model::{DiskName, TaskStage};
use scsi::{NexusId, TaskSnapshot};
use shard::World;

/// Stage of a command, with the disk for which it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLocation {
    /// Issuing nexus.
    pub nexus: NexusId,
    /// Task identifier of the connection.
    pub task: u32,
    /// Stage of the command.
    pub stage: TaskStage,
    /// Disk, if the command waits for one with a name.
    pub disk: Option<DiskName>,
}

impl<W: World> ScsiUnit<W> {
    /// Returns the stages of the commands of the unit.
    pub fn places(&self, engine: &ShardContext<W>) -> Vec<TaskLocation> {
        let standing = self.logical_unit.task_snapshots();
        if standing.is_empty() {
            return Vec::new();
        }
        // Queried once: below the unit, commands are no longer distinguishable.
        let below = self.unit.wait_stage(engine);
        let place = |task: &TaskSnapshot| {
            let (stage, disk) = match self.held_at(task) {
                Some(stage) => (stage, None),
                None => below.clone(),
            };
            TaskLocation { nexus: task.nexus, task: task.tag.0, stage, disk }
        };
        standing.iter().map(place).collect()
    }

    /// Returns the stage at which the command is held before it reaches the layers below the unit.
    fn held_at(&self, task: &TaskSnapshot) -> Option<TaskStage> {
        if task.has_begun { self.unit.wait_reason(task.extent) } else { Some(TaskStage::Waiting) }
    }
}
