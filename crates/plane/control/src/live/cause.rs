//! Where the time of a volume's commands goes, as far as the figures of one second tell it.

use super::{DiskRates, Rates};
use model::{DiskName, MemberState, Name, PoolReport, Size, VolumePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A volume that does so much of what it may is held back by that.
const OF_LIMIT: f64 = 0.9;
/// Below this nobody waits for anything but the command itself; microseconds.
const QUICK_US: u64 = 200;
/// A disk that takes so much of a command's time is what it waits for.
const OF_COMMAND: f64 = 0.4;

/// What most of the time goes into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// The volume may do no more commands in a second.
    IopsLimit {
        /// How many.
        iops: u64,
    },
    /// The volume may move no more bytes in a second.
    BandwidthLimit {
        /// How many.
        bandwidth: Size,
    },
    /// A disk under it takes long.
    Disk {
        /// Which.
        disk: DiskName,
        /// How long an operation takes there on average; microseconds.
        mean_us: f64,
        /// In how much of the time at least one was under way, of one.
        busy: f64,
    },
    /// A member of its pool is being filled.
    Rebuild {
        /// The pool.
        pool: Name,
    },
    /// A member of its pool is lost, and what it held is worked out from the others.
    Lost {
        /// The pool.
        pool: Name,
    },
}

/// What `pool` and its disks have to do with how long commands of a volume took; none where they were quick, or where nothing
/// here tells it.
pub(super) fn cause(
    rates: &Rates,
    policy: &VolumePolicy,
    pool: Option<&PoolReport>,
    disks: &[DiskRates],
) -> Option<Cause> {
    if let Some(limit) = limit(rates, policy) {
        return Some(limit);
    }
    let pool = pool.filter(|_| rates.p99_us > QUICK_US)?;
    let of_pool = |disk: &&DiskRates| pool.members().any(|member| member.disk.as_ref() == Some(&disk.disk));
    let slowest = disks.iter().filter(of_pool).max_by(|a, b| a.mean_us.total_cmp(&b.mean_us));
    let is = |state| pool.members().any(|member| member.state == state);
    if is(MemberState::Rebuilding) {
        return Some(Cause::Rebuild { pool: pool.name.clone() });
    }
    #[allow(clippy::cast_precision_loss, reason = "microseconds of a command")]
    let slowest = slowest.filter(|disk| disk.mean_us >= rates.p50_us as f64 * OF_COMMAND);
    match slowest {
        Some(disk) => Some(Cause::Disk { disk: disk.disk.clone(), mean_us: disk.mean_us, busy: disk.busy }),
        None if [MemberState::Failed, MemberState::Missing, MemberState::Behind].into_iter().any(is) => {
            Some(Cause::Lost { pool: pool.name.clone() })
        }
        None => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate of 2^53 is not met")]
fn limit(rates: &Rates, policy: &VolumePolicy) -> Option<Cause> {
    let iops = policy.iops.filter(|&iops| rates.commands() >= iops as f64 * OF_LIMIT);
    if let Some(iops) = iops {
        return Some(Cause::IopsLimit { iops });
    }
    let moved = rates.read_bytes + rates.written_bytes;
    let bandwidth = policy.bandwidth.filter(|bandwidth| moved >= bandwidth.bytes() as f64 * OF_LIMIT)?;
    Some(Cause::BandwidthLimit { bandwidth })
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IopsLimit { iops } => write!(f, "its limit of {iops} IOPS"),
            Self::BandwidthLimit { bandwidth } => write!(f, "its limit of {bandwidth}/s"),
            Self::Disk { disk, mean_us, busy } => {
                write!(f, "disk {disk}: {:.1} ms each, {:.0} % busy", mean_us / 1e3, busy * 100.0)
            }
            Self::Rebuild { pool } => write!(f, "the rebuild of pool {pool}"),
            Self::Lost { pool } => write!(f, "a lost disk of pool {pool}"),
        }
    }
}
