//! Overall state of the data plane, and the identity of the node.

use crate::{MachineId, Name, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State and counters of the data plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineReport {
    /// Number of shards.
    pub shards: u32,
    /// I/O backend for disks and sockets: `io_uring` or `threads`.
    pub io: String,
    /// Uptime in seconds.
    pub uptime_seconds: u64,
    /// Current number of sessions.
    pub sessions: u32,
    /// SCSI commands completed since the start.
    pub commands: u64,
    /// Bytes sent to initiators.
    pub read_bytes: u64,
    /// Bytes received from initiators.
    pub written_bytes: u64,
    /// Buffer memory in use, in bytes.
    pub buffer_bytes: u64,
    /// Limit of buffer memory, in bytes.
    pub buffer_bytes_max: u64,
}

/// Identity of the node, as written into the owner records of its pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Persistent identity of the node.
    pub id: NodeId,
    /// Name of the node.
    pub name: Name,
    /// Identity of this daemon's place on the running machine: unique among concurrently running daemons, and inherited
    /// by a restarted daemon until the machine reboots.
    pub boot_instance: [u8; 16],
    /// Machine that the node runs on; `None` if the system has no machine identity.
    pub machine: Option<MachineId>,
}
