//! Commands in flight and their processing stage.

use crate::{DiskName, Name, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// SCSI command in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReport {
    /// TSIH of the session.
    pub session: u32,
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// Host to which the initiator belongs.
    pub host: Option<Name>,
    /// Initiator task tag.
    pub tag: u32,
    /// Command sequence number (`CmdSN`). With session and tag it identifies the command.
    pub cmd_sn: u32,
    /// Logical unit number; absent if the command does not address a unit.
    pub lun: Option<u16>,
    /// Volume of the LUN.
    pub volume: Option<VolumeName>,
    /// Operation code.
    pub operation_code: u8,
    /// Processing stage.
    pub stage: TaskStage,
    /// Disk with the most work, if the command waits for a disk.
    pub disk: Option<DiskName>,
    /// Time since the arrival, in milliseconds.
    pub waited_ms: u64,
}

/// Processing stage of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStage {
    /// Waiting for data from the initiator, or for an earlier command that has not arrived.
    Receiving,
    /// Queued behind other commands of the unit, because of its task attribute or its blocks.
    Waiting,
    /// Delayed by QoS: the limit of the volume is reached, or other volumes have precedence.
    Limit,
    /// Waiting for space in the write cache: writes arrive faster than they are destaged.
    Cache,
    /// Executing while a rebuild of the pool competes for the disks.
    Rebuild,
    /// Waiting for a disk of the volume.
    Disk,
    /// Executing, without a known obstacle.
    Running,
    /// Sending the response.
    Answering,
}

impl TaskReport {
    /// Returns the reason for waiting, in words.
    #[must_use]
    pub fn waits_for(&self) -> String {
        match (&self.disk, self.stage) {
            (Some(disk), TaskStage::Disk) => format!("disk {disk}"),
            (_, stage) => stage.as_str().to_owned(),
        }
    }
}

impl TaskStage {
    /// Returns the reason for waiting in this stage, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receiving => "the initiator",
            Self::Waiting => "other commands",
            Self::Limit => "QoS limit",
            Self::Cache => "write cache space",
            Self::Rebuild => "rebuild of its pool",
            Self::Disk => "a disk",
            Self::Running => "the volume",
            Self::Answering => "transmission of the response",
        }
    }
}
