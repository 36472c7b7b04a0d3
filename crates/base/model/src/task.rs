//! Commands under way, and where they stand.

use crate::{Name, VolumeName};
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
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStage {
    /// The initiator sends its data, or a command before it has not come.
    Receiving,
    /// The unit has it, and it waits for others: its attribute or its blocks say so.
    Waiting,
    /// The unit carries it out.
    Running,
    /// Its answer is being sent.
    Answering,
}

impl TaskStage {
    /// The stage in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receiving => "waits for the initiator",
            Self::Waiting => "waits for other commands",
            Self::Running => "at the volume",
            Self::Answering => "its answer is on the way",
        }
    }
}
