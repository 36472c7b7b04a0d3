//! Commands under way, and where they stand.

use crate::{DiskName, Name, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A command of a host that has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReport {
    /// The session: its TSIH.
    pub session: u32,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The host that it is.
    pub host: Option<Name>,
    /// The initiator task tag.
    pub tag: u32,
    /// The number of the command: with the session and the tag it tells it from those before and after.
    pub cmd_sn: u32,
    /// The logical unit number; none where it addresses no unit.
    pub lun: Option<u16>,
    /// The volume there.
    pub volume: Option<VolumeName>,
    /// The operation code of the command.
    pub operation_code: u8,
    /// Where it stands.
    pub stage: TaskStage,
    /// The disk that has most to do, where it waits for one.
    pub disk: Option<DiskName>,
    /// How long it has been here, in milliseconds.
    pub waited_ms: u64,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStage {
    /// The initiator sends its data, or a command before it has not come.
    Receiving,
    /// The unit has it, and it waits for others: its attribute or its blocks say so.
    Waiting,
    /// Its volume may do no more just now, or others go first.
    Limit,
    /// Writes are acknowledged faster than they go below: it waits for room among those that wait.
    Cache,
    /// A member of the volume's pool is being filled, and the disks have that to do as well.
    Rebuild,
    /// A disk under the volume has not answered.
    Disk,
    /// The unit carries it out, and nothing known holds it.
    Running,
    /// Its answer is being sent.
    Answering,
}

impl TaskReport {
    /// What it waits for, in words.
    #[must_use]
    pub fn waits_for(&self) -> String {
        match (&self.disk, self.stage) {
            (Some(disk), TaskStage::Disk) => format!("disk {disk}"),
            (_, stage) => stage.as_str().to_owned(),
        }
    }
}

impl TaskStage {
    /// What a command there waits for, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receiving => "the initiator",
            Self::Waiting => "other commands",
            Self::Limit => "its volume's limit",
            Self::Cache => "room in the write cache",
            Self::Rebuild => "a rebuild of its pool",
            Self::Disk => "a disk",
            Self::Running => "the volume",
            Self::Answering => "its answer to be taken",
        }
    }
}
