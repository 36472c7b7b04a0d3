//! Pool memberships as remembered by the node, so that outdated disks alone are not accepted as the pool.

use crate::{DiskId, PoolId, Timestamp};
use serde::{Deserialize, Serialize};

/// Members of a pool as of the last catalog commit that removed or returned a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMembership {
    /// Identity of the pool.
    pub pool: PoolId,
    /// Generation of that commit.
    pub generation: u64,
    /// Time of the record.
    pub at: Timestamp,
    /// Members with current data.
    pub current: Vec<MemberDisk>,
    /// Members with outdated data.
    pub absent: Vec<MemberDisk>,
}

impl PoolMembership {
    /// Returns true if both describe the same commit with the same members, regardless of the time of the record.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        // Equal times, so that only the members and the commit decide: an unchanged row is not stored again.
        Self { at: other.at, ..self.clone() } == *other
    }
}

/// Member disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDisk {
    /// Identity from its label.
    pub id: DiskId,
    /// Name at the time of the record.
    pub name: String,
}
