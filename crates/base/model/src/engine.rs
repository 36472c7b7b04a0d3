//! How the data plane itself is.

use crate::{MachineId, Name, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The data plane as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineReport {
    /// How many shards run.
    pub shards: u32,
    /// How the machine's disks and sockets are driven: `io_uring` or `threads`.
    pub io: String,
    /// For how many seconds it has been running.
    pub uptime_seconds: u64,
    /// Sessions now.
    pub sessions: u32,
    /// SCSI commands done since the start.
    pub commands: u64,
    /// Bytes sent to initiators.
    pub read_bytes: u64,
    /// Bytes received from initiators.
    pub written_bytes: u64,
    /// Bytes of buffers in use.
    pub buffer_bytes: u64,
    /// Bytes of buffers that may be in use.
    pub buffer_bytes_max: u64,
}

/// Who the node is, for the marks that it leaves on the disks of its pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Which node: the same after every restart.
    pub id: NodeId,
    /// What it is called.
    pub name: Name,
    /// What no other daemon can have as long as this one runs, and what the next one that is started in its place has
    /// until the machine is started anew.
    pub seat: [u8; 16],
    /// The machine that it runs on; none where the system does not identify itself.
    pub machine: Option<MachineId>,
}
