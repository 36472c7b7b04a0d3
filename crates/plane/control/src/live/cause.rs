//! Bottleneck analysis: where the time of a volume's commands goes, judged by the rates of one second.

use super::{DiskRates, Rates};
use model::{DiskName, MemberState, Name, PoolReport, Size, VolumePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Share of a limit from which it counts as the bottleneck.
const OF_LIMIT: f64 = 0.9;
/// Latency up to which there is no bottleneck beyond the command itself, in microseconds.
const QUICK_US: u64 = 200;
/// Share of a command's latency from which the slowest disk counts as the bottleneck.
const OF_COMMAND: f64 = 0.4;

/// Bottleneck of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// IOPS limit of the volume.
    IopsLimit {
        /// The limit in commands per second.
        iops: u64,
    },
    /// Bandwidth limit of the volume.
    BandwidthLimit {
        /// The limit in bytes per second.
        bandwidth: Size,
    },
    /// Slow disk below the volume.
    Disk {
        /// Name of the disk.
        disk: DiskName,
        /// Mean latency of its operations in microseconds.
        mean_us: f64,
        /// Share of the time in which at least one operation was in flight, 0 to 1.
        busy: f64,
    },
    /// Rebuild in the pool of the volume.
    Rebuild {
        /// Name of the pool.
        pool: Name,
    },
    /// Degraded pool: reads of a lost member are reconstructed from the others.
    Lost {
        /// Name of the pool.
        pool: Name,
    },
}

/// Returns the bottleneck of a volume's commands; `None` where latency is low, or where the rates do not tell
/// it.
pub(super) fn cause(
    rates: &Rates,
    policy: &VolumePolicy,
    pool: Option<&PoolReport>,
    disks: &[DiskRates],
) -> Option<Cause> {
    // A limit applies whatever the disks do, so it is checked first.
    if let Some(limit) = limit(rates, policy) {
        return Some(limit);
    }
    let pool = pool.filter(|_| rates.p99_us > QUICK_US)?;
    let of_pool = |disk: &&DiskRates| pool.members().any(|member| member.disk.as_ref() == Some(&disk.disk));
    let slowest = disks.iter().filter(of_pool).max_by(|a, b| a.mean_us.total_cmp(&b.mean_us));
    // A rebuild explains slow disks, so it is named before any of them.
    let is = |state| pool.members().any(|member| member.state == state);
    if is(MemberState::Rebuilding) {
        return Some(Cause::Rebuild { pool: pool.name.clone() });
    }
    #[allow(clippy::cast_precision_loss, reason = "microseconds of a command")]
    let slowest = slowest.filter(|disk| disk.mean_us >= rates.p50_us as f64 * OF_COMMAND);
    match slowest {
        Some(disk) => Some(Cause::Disk { disk: disk.disk.clone(), mean_us: disk.mean_us, busy: disk.busy }),
        // A degraded pool is named only where no disk stands out.
        None if [MemberState::Failed, MemberState::Missing, MemberState::NotResponding].into_iter().any(is) => {
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
            Self::IopsLimit { iops } => write!(f, "its IOPS limit of {iops}"),
            Self::BandwidthLimit { bandwidth } => write!(f, "its bandwidth limit of {bandwidth}/s"),
            Self::Disk { disk, mean_us, busy } => {
                write!(f, "disk {disk}: {:.1} ms each, {:.0} % busy", mean_us / 1e3, busy * 100.0)
            }
            Self::Rebuild { pool } => write!(f, "the rebuild of pool {pool}"),
            Self::Lost { pool } => write!(f, "a lost disk of pool {pool}"),
        }
    }
}
