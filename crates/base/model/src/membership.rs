//! Which disks of a pool were current last: what a node remembers, so that older disks alone are not taken for the pool.

use crate::{DiskId, PoolId, Timestamp};
use serde::{Deserialize, Serialize};

/// The members of a pool as of the last commit of its catalog that gave one up or took one back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMembership {
    /// Which pool.
    pub pool: PoolId,
    /// The generation of that commit.
    pub generation: u64,
    /// When that was.
    pub at: Timestamp,
    /// The members that are current.
    pub current: Vec<MemberDisk>,
    /// The members that are not: what they hold is old.
    pub absent: Vec<MemberDisk>,
}

impl PoolMembership {
    /// True when both say the same of the same commit, whenever they were noted.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        Self { at: other.at, ..self.clone() } == *other
    }
}

/// A disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDisk {
    /// Which, by its label.
    pub id: DiskId,
    /// What it was called.
    pub name: String,
}
