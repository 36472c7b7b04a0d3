//! How a disk is.

use crate::{DiskHealth, DiskId, DiskName, MachineId, Name, NodeId, PoolId, RemoteReport, Size, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One disk as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskReport {
    /// Its name; none for a disk that was only looked at.
    pub name: Option<DiskName>,
    /// Where it is.
    pub path: String,
    /// How much it holds. Zero for a missing disk.
    pub size: Size,
    /// Bytes of the smallest thing that it reads or writes.
    pub logical_block_bytes: u32,
    /// Bytes of the smallest write that costs it no read.
    pub physical_block_bytes: u32,
    /// What it says about itself.
    pub label: Label,
    /// How it is.
    pub state: DiskState,
    /// What it has done since it was opened.
    pub counters: DiskCounters,
    /// Which pools it is a spare for, if it is one.
    #[serde(default)]
    pub spare: Option<SpareReport>,
    /// Which pool it was a member of, where a pool has let go of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerMember>,
    /// Which piece of hardware it is, and where it sits.
    #[serde(default)]
    pub identity: DiskIdentity,
    /// What it says of its health, where it was asked.
    #[serde(default)]
    pub health: Option<DiskHealth>,
    /// How it is reached, where it is a disk of another array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteReport>,
}

/// Which piece of hardware a disk is, and where it sits. What is not known is absent; of a file nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskIdentity {
    /// Its maker's number.
    pub serial: Option<String>,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Its world wide name.
    pub wwn: Option<String>,
    /// Which part of the disk it is, when it is a partition.
    pub partition: Option<u32>,
    /// A path that stays when other disks come and go.
    pub stable_path: Option<String>,
    /// True for one that turns.
    pub rotational: Option<bool>,
    /// The enclosure that it sits in.
    pub enclosure: Option<String>,
    /// Its slot there.
    pub slot: Option<String>,
    /// True when its slot has a light.
    pub has_light: bool,
}

impl DiskIdentity {
    /// What no two disks have in common, where it is known: the serial number, and which part of the disk.
    #[must_use]
    pub fn key(&self) -> Option<(String, Option<u32>)> {
        self.serial.clone().map(|serial| (serial, self.partition))
    }

    /// True when both are known, and are two different disks.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        matches!((self.key(), other.key()), (Some(one), Some(other)) if one != other)
    }

    /// Enclosure and slot in words, as far as they are known.
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

/// A disk that waits to take the place of a lost member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpareReport {
    /// The pool that it is for; every pool when absent.
    pub pool: Option<Name>,
}

/// A pool that a disk was a member of until another one got its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormerMember {
    /// The pool.
    pub pool: Name,
    /// True when it was out of service by then: it had failed, did not answer, or erred more than its pool allows.
    #[serde(default)]
    pub failed: bool,
    /// The disk that has its place.
    #[serde(default)]
    pub replaced_by: Option<DiskName>,
    /// When that got its place.
    #[serde(default)]
    pub since: Option<Timestamp>,
}

impl FormerMember {
    /// The same in words: `failed member of pool tank, replaced by disk s0 on 2026-11-28T14:00:00Z`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let kind = if self.failed { "failed" } else { "former" };
        let by = self.replaced_by.as_ref().map_or_else(String::new, |by| format!(", replaced by disk {by}"));
        let since = self.since.map_or_else(String::new, |since| format!(" on {since}"));
        format!("{kind} member of pool {}{by}{since}", self.pool)
    }
}

/// What stands at the beginning of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Label {
    /// Nothing that anybody would miss, as far as we can tell.
    None,
    /// It is a member of a pool of ours.
    Ours {
        /// Which pool.
        pool: PoolId,
        /// What the pool is called.
        pool_name: Name,
        /// Which disk of it.
        disk: DiskId,
        /// The last owner of the pool according to this disk; absent when the pool was never claimed, or the disk has no
        /// owner's mark that is whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<LabelOwner>,
    },
    /// A label of ours that is not whole: its pool was being made or destroyed when the power went, or it decayed.
    Damaged,
    /// Something else: a file system, a partition table, another product's label.
    Foreign {
        /// What, in words: `ext4 file system`.
        what: String,
    },
}

/// What is said of a disk that holds something that no signature names.
pub const UNKNOWN_DATA: &str = "data of an unknown kind";

/// The newest owner's mark of a disk: which node had its pool last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelOwner {
    /// The node.
    pub node: NodeId,
    /// The name of the node.
    pub node_name: String,
    /// The machine that the node ran on, where that was known.
    #[serde(default)]
    pub machine: Option<MachineId>,
    /// True when the node has exported the pool.
    pub released: bool,
}

/// How a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskState {
    /// Open, in no open pool.
    Free,
    /// A member of an open pool, in step.
    InUse,
    /// A member of an open pool that is being rebuilt onto it.
    Rebuilding,
    /// Taken out of its pool, or not answering.
    Failed,
    /// Known, but not found.
    Missing,
    /// It was a member of a pool that has given its place to another disk; it holds old data.
    Former,
}

/// What a disk has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskCounters {
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// How long at least one operation was under way.
    #[serde(default)]
    pub busy_ns: u64,
    /// How long operations took, all together: through `busy_ns`, how many were under way at once.
    #[serde(default)]
    pub waited_ns: u64,
    /// For how long at least the operation has been under way that has been so longest.
    #[serde(default)]
    pub oldest_ns: u64,
}

impl Label {
    /// The identity of the disk, when it is one of ours.
    #[must_use]
    pub fn disk(&self) -> Option<DiskId> {
        match self {
            Self::Ours { disk, .. } => Some(*disk),
            Self::None | Self::Damaged | Self::Foreign { .. } => None,
        }
    }

    /// The pool that the disk says it belongs to.
    #[must_use]
    pub fn pool(&self) -> Option<(PoolId, &Name)> {
        match self {
            Self::Ours { pool, pool_name, .. } => Some((*pool, pool_name)),
            Self::None | Self::Damaged | Self::Foreign { .. } => None,
        }
    }
}

impl DiskReport {
    /// True while a pool counts it among its members.
    #[must_use]
    pub const fn is_member(&self) -> bool {
        matches!(self.state, DiskState::InUse | DiskState::Rebuilding | DiskState::Failed)
    }
}

impl DiskState {
    /// The state in one word, as tables show it.
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
