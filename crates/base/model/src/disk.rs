//! Disks: state, identity and counters.

use crate::{DiskHealth, DiskId, DiskName, MachineId, Name, NodeId, PoolId, RemoteReport, Size, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskReport {
    /// Name of the disk; absent for a disk that was only inspected.
    pub name: Option<DiskName>,
    /// Device path.
    pub path: String,
    /// Capacity; zero for a missing disk.
    pub size: Size,
    /// Logical block size in bytes: the smallest unit of a read or write.
    pub logical_block_bytes: u32,
    /// Physical block size in bytes: the smallest write without read-modify-write in the disk.
    pub physical_block_bytes: u32,
    /// Content of the label area.
    pub label: Label,
    /// State.
    pub state: DiskState,
    /// Counters since the disk was opened.
    pub counters: DiskCounters,
    /// Hot spare assignment, if the disk is a spare.
    #[serde(default)]
    pub spare: Option<SpareReport>,
    /// Pool from which the disk was removed, if it is a former member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerMember>,
    /// Hardware identity and location.
    #[serde(default)]
    pub identity: DiskIdentity,
    /// Health data, if it has been queried.
    #[serde(default)]
    pub health: Option<DiskHealth>,
    /// Connection to the disk, if it is a disk of another array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteReport>,
}

/// Hardware identity and location of a disk. Unknown fields are absent; a file has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskIdentity {
    /// Serial number.
    pub serial: Option<String>,
    /// Model name.
    pub model: Option<String>,
    /// World wide name.
    pub wwn: Option<String>,
    /// Partition number, if it is a partition.
    pub partition: Option<u32>,
    /// Persistent device path, which does not depend on the order of detection.
    pub stable_path: Option<String>,
    /// True for rotating media.
    pub rotational: Option<bool>,
    /// Enclosure that contains the disk.
    pub enclosure: Option<String>,
    /// Slot in the enclosure.
    pub slot: Option<String>,
    /// True if the slot has a locate LED.
    pub has_light: bool,
}

impl DiskIdentity {
    /// Returns the unique key of the disk, if known: serial number and partition.
    #[must_use]
    pub fn key(&self) -> Option<(String, Option<u32>)> {
        // A partition shares the serial number with its disk.
        self.serial.clone().map(|serial| (serial, self.partition))
    }

    /// Returns true if both keys are known and differ.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        // A missing serial number is no contradiction: files and many virtual disks have none.
        matches!((self.key(), other.key()), (Some(one), Some(other)) if one != other)
    }

    /// Returns enclosure and slot in words, as far as they are known.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        match (&self.enclosure, &self.slot) {
            (Some(enclosure), Some(slot)) => Some(format!("{enclosure}/{slot}")),
            (None, Some(slot)) => Some(slot.clone()),
            (Some(enclosure), None) => Some(enclosure.clone()),
            (None, None) => None,
        }
    }
}

/// Hot spare: a disk that replaces a lost member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpareReport {
    /// Pool for which the spare is reserved; absent for all pools.
    pub pool: Option<Name>,
}

/// Earlier membership of a disk in a pool, which has replaced it with another disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormerMember {
    /// Name of the pool.
    pub pool: Name,
    /// True if the disk was out of service at that time: failed, not responding, or over the error limit of its pool.
    #[serde(default)]
    pub failed: bool,
    /// Disk that replaced it.
    #[serde(default)]
    pub replaced_by: Option<DiskName>,
    /// Time of the replacement.
    #[serde(default)]
    pub since: Option<Timestamp>,
}

impl FormerMember {
    /// Returns a description such as `failed member of pool tank, replaced by disk s0 on 2026-11-28T14:00:00Z`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let kind = if self.failed { "failed" } else { "former" };
        let by = self.replaced_by.as_ref().map_or_else(String::new, |by| format!(", replaced by disk {by}"));
        let since = self.since.map_or_else(String::new, |since| format!(" on {since}"));
        format!("{kind} member of pool {}{by}{since}", self.pool)
    }
}

/// Content of the label area of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Label {
    /// No recognizable content.
    None,
    /// Member of a Blockyard pool.
    PoolMember {
        /// Identity of the pool.
        pool: PoolId,
        /// Name of the pool.
        pool_name: Name,
        /// Identity of the disk within the pool.
        disk: DiskId,
        /// Last owner of the pool according to this disk; absent if the pool was never claimed, or the disk has no
        /// valid owner record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<LabelOwner>,
    },
    /// Damaged Blockyard label: power was lost while its pool was created or destroyed, or the label has decayed.
    Damaged,
    /// Foreign content: a file system, a partition table, or the label of another product.
    Foreign {
        /// Description, such as `ext4 file system`.
        description: String,
    },
}

/// Description of content that has no known signature.
pub const UNKNOWN_DATA: &str = "unrecognized data";

/// Newest owner record on a disk: the node that imported the pool last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelOwner {
    /// Identity of the node.
    pub node: NodeId,
    /// Name of the node.
    pub node_name: String,
    /// Machine that the node ran on, if known.
    #[serde(default)]
    pub machine: Option<MachineId>,
    /// True if the node has exported the pool.
    pub released: bool,
}

/// State of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskState {
    /// Open, and not a member of an open pool.
    Free,
    /// Member of an open pool, with current data.
    InUse,
    /// Member of an open pool that is being rebuilt onto it.
    Rebuilding,
    /// Removed from service by its pool, or not responding.
    Failed,
    /// Known, but not found.
    Missing,
    /// Former member of a pool that has replaced it; holds outdated data.
    Former,
}

/// I/O counters of a disk since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskCounters {
    /// Completed read operations.
    pub reads: u64,
    /// Completed write operations.
    pub writes: u64,
    /// Completed flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Failed operations.
    pub errors: u64,
    /// Time with at least one operation in flight, in nanoseconds.
    #[serde(default)]
    pub busy_ns: u64,
    /// Sum of the latencies of all operations, in nanoseconds. Divided by `busy_ns`, the average queue depth.
    #[serde(default)]
    pub waited_ns: u64,
    /// Lower bound of the age of the oldest operation in flight, in nanoseconds.
    #[serde(default)]
    pub oldest_ns: u64,
}

impl Label {
    /// Returns the identity of the disk if it has a valid Blockyard label.
    #[must_use]
    pub fn disk(&self) -> Option<DiskId> {
        match self {
            Self::PoolMember { disk, .. } => Some(*disk),
            // A damaged label names no disk reliably, even if parts of it can be read.
            Self::None | Self::Damaged | Self::Foreign { .. } => None,
        }
    }

    /// Returns identity and name of the pool that the label names.
    #[must_use]
    pub fn pool(&self) -> Option<(PoolId, &Name)> {
        match self {
            Self::PoolMember { pool, pool_name, .. } => Some((*pool, pool_name)),
            Self::None | Self::Damaged | Self::Foreign { .. } => None,
        }
    }
}

impl DiskReport {
    /// Returns true if the disk belongs to an open pool.
    #[must_use]
    pub const fn is_member(&self) -> bool {
        // A failed member keeps its slot until it is replaced.
        matches!(self.state, DiskState::InUse | DiskState::Rebuilding | DiskState::Failed)
    }
}

impl DiskState {
    /// Returns the state in one or two words, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::InUse => "in use",
            Self::Rebuilding => "rebuilding",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Former => "former member",
        }
    }
}
