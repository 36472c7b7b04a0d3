//! State of pools, disk groups and members.

use crate::{DiskId, DiskName, Level, LostBlocks, Name, PoolId, PoolPolicy, ScrubReport, Size, Timestamp, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolReport {
    /// Name of the pool.
    pub name: Name,
    /// Identity of the pool.
    pub id: PoolId,
    /// State: that of its worst group.
    pub state: PoolState,
    /// Reason why the pool is read-only, if it is: nothing is written to its disks, and hosts cannot write to its
    /// volumes.
    #[serde(default)]
    pub read_only: Option<String>,
    /// True if it was imported read-only: every start opens it read-only until it is imported for writing.
    #[serde(default)]
    pub imported_read_only: bool,
    /// Usable capacity.
    pub size: Size,
    /// Allocated capacity.
    pub used: Size,
    /// Availability of space for thin volumes.
    #[serde(default)]
    pub space: SpaceState,
    /// Number of volumes.
    pub volumes: u32,
    /// Disk groups.
    pub groups: Vec<GroupReport>,
    /// Log device, if there is one.
    #[serde(default)]
    pub log: Option<LogReport>,
    /// Hot spares that are available to the pool.
    #[serde(default)]
    pub spares: Vec<DiskName>,
    /// Policies of the pool.
    #[serde(default)]
    pub policy: PoolPolicy,
    /// Running or latest scrub.
    #[serde(default)]
    pub scrub: Option<ScrubReport>,
    /// Enclosures whose failure would cause data loss, where enclosures are known.
    #[serde(default)]
    pub weak_enclosures: Vec<String>,
    /// Time of the next automatic scrub.
    #[serde(default)]
    pub next_scrub: Option<Timestamp>,
    /// Lost blocks, which cannot be read from any copy, by volume and LBA.
    #[serde(default)]
    pub lost: LostBlocks,
    /// Reason why this node has been fenced from the pool, if another owner has its disks.
    #[serde(default)]
    pub fenced: Option<String>,
    /// Conditions that it waits for, while it is not open.
    #[serde(default)]
    pub waiting: Option<PoolWaiting>,
}

/// Reason why a pool is not open, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolWaiting {
    /// Reason in words.
    pub reason: String,
    /// True if it requires an operator.
    pub needs_operator: bool,
    /// Recommended action, if known.
    #[serde(default)]
    pub hint: Option<String>,
    /// Absent disks, as far as they are known.
    #[serde(default)]
    pub disks: Vec<DiskName>,
    /// Seconds until it is opened degraded, if that is possible.
    #[serde(default)]
    pub degraded_in_s: Option<u64>,
}

/// State of a pool or of a disk group, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    // The order of declaration ranks the states: that of a pool is the maximum over its groups.
    /// All members hold current data.
    Healthy,
    /// Online, with a rebuild in progress.
    Rebuilding,
    /// Online with reduced redundancy.
    Degraded,
    /// Offline: more members are lost than the redundancy tolerates.
    Failed,
    /// Known, but could not be opened: too many disks were not found, or the metadata cannot be read.
    Missing,
}

/// Fill level of a pool relative to its thresholds, best first. Determined only for pools with thin volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpaceState {
    /// Below the thresholds.
    #[default]
    Enough,
    /// Above the soft threshold: more disks should be planned.
    Low,
    /// Above the hard threshold: the pool will be full soon.
    NearlyFull,
    /// Writes that need new space are rejected.
    Full,
}

/// Log device of a pool, from which writes to volumes with the write policy `back` are acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogReport {
    /// State of the log device.
    pub state: LogState,
    /// Capacity.
    pub size: Size,
    /// Space occupied by data that is not yet confirmed on the disks of the pool.
    pub used: Size,
    /// Volumes that may have data in the log.
    pub volumes: Vec<VolumeName>,
    /// Reason why it is not ready, and the consequences.
    #[serde(default)]
    pub reason: Option<String>,
    /// Disk group of the log device.
    pub group: GroupReport,
}

/// State of the log device of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    /// Writes are acknowledged from the log.
    Ready,
    /// Failed while in use: writes are written through since then, and no data is lost.
    Failed,
    /// Unreadable: volumes that may have data in it are offline.
    Lost,
}

/// State of a disk group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupReport {
    /// Number within the pool.
    #[serde(default)]
    pub number: u16,
    /// RAID level.
    pub level: Level,
    /// Chunk size: contiguous bytes on one member.
    pub chunk: Size,
    /// True if it stores a checksum per block, with a redo log that makes writes atomic in a crash.
    #[serde(default)]
    pub integrity: bool,
    /// Minimum size of a disk that can become a member.
    pub member_size: Size,
    /// State of the group.
    pub state: PoolState,
    /// Members in slot order.
    pub members: Vec<MemberReport>,
    /// Progress of the rebuild, while one runs.
    pub rebuild: Option<Progress>,
    /// Progress of the resync after a crash, while it runs.
    #[serde(default)]
    pub resync: Option<Progress>,
    /// Progress of the reshape over an additional member, while it runs.
    #[serde(default)]
    pub reshape: Option<Progress>,
    /// Additional pool capacity if the group used its disks completely; absent if nothing can be gained now.
    #[serde(default)]
    pub growth: Option<Size>,
}

/// State of a member of a disk group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberReport {
    /// Slot in the group.
    pub slot: u16,
    /// Identity of the disk.
    pub id: DiskId,
    /// Name of the disk, if it is open (or was when it failed).
    pub disk: Option<DiskName>,
    /// State of the member.
    pub state: MemberState,
    /// Number of failed reads and writes.
    pub errors: u64,
    /// Number of blocks with wrong content since the pool was opened.
    #[serde(default)]
    pub checksum_errors: u64,
    /// Name of the disk that it replaced as a spare, until another spare is available.
    #[serde(default)]
    pub replaces: Option<String>,
    /// Latency; absent if the disk is not open.
    #[serde(default)]
    pub latency: Option<MemberLatency>,
    /// Number of failed or wrong reads within the last 24 hours, since the pool was opened.
    #[serde(default)]
    pub errors_24h: u64,
    /// Assessment by the error policy of the pool.
    #[serde(default)]
    pub health: MemberFitness,
    /// Copy to the disk that will replace it, if one runs.
    #[serde(default)]
    pub copy: Option<MemberCopy>,
    /// Spare that will replace it unless it returns before.
    #[serde(default)]
    pub next_spare: Option<NextSpare>,
}

/// Scheduled replacement of a member that is missing or does not respond by a hot spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextSpare {
    /// Name of the spare.
    pub disk: DiskName,
    /// Time of the replacement.
    pub at: Timestamp,
    /// Seconds until the replacement.
    pub seconds_left: u64,
}

/// Assessment of a member by the error policy of its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberFitness {
    /// Within all limits.
    #[default]
    Good,
    /// Many times slower than the other members, for longer than permitted.
    Slow,
    /// More failed reads within 24 hours than permitted.
    Failing,
    /// Higher share of failed reads in the last minute than permitted.
    Critical,
}

/// Copy of a member to the disk that will replace it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberCopy {
    /// Name of the disk that will replace it.
    pub disk: DiskName,
    /// Progress of the copy.
    pub progress: Progress,
}

/// Latency of a member since its disk was opened, weighted toward the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberLatency {
    /// Median latency of reads in microseconds; 0 if there were too few.
    pub read_p50_us: u64,
    /// 99th percentile of the read latency in microseconds.
    pub read_p99_us: u64,
    /// Median latency of writes and flushes in microseconds.
    pub write_p50_us: u64,
    /// 99th percentile of the latency of writes and flushes in microseconds.
    pub write_p99_us: u64,
    /// Time since the disk stopped responding, in milliseconds; 0 while it responds.
    pub unresponsive_ms: u64,
    /// True if it is many times slower than the other members of its group.
    pub slow: bool,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Holds current data.
    InSync,
    /// Rebuild in progress.
    Rebuilding,
    /// Attached, but no longer used by the pool.
    Failed,
    /// Not found.
    Missing,
    /// Not responding; the group continues without it and resyncs it when it responds again.
    NotResponding,
    /// Being added to its group by a reshape, and not yet part of its redundancy.
    Joining,
}

impl MemberState {
    /// Returns true for a member that its group has to do without.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        // Rebuilding and joining members are present, although their content is still incomplete.
        matches!(self, Self::Failed | Self::Missing | Self::NotResponding)
    }
}

/// Progress of a long-running operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Bytes processed.
    pub done_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
    /// Current rate in bytes per second.
    pub bytes_per_second: u64,
    /// Estimated seconds to completion at this rate; absent if unknown.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Returns the combined progress of two concurrent operations.
    fn and(self, other: Self) -> Self {
        Self {
            done_bytes: self.done_bytes + other.done_bytes,
            total_bytes: self.total_bytes + other.total_bytes,
            // Groups are rebuilt side by side on different disks, so their rates add up.
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            // The operation that takes longer determines the end of both.
            seconds_left: self.seconds_left.zip(other.seconds_left).map(|(a, b)| a.max(b)),
        }
    }

    /// Returns the progress in whole percent; 100 only at the end.
    #[must_use]
    pub fn percent(&self) -> u8 {
        // The product needs 128 bits. The minimum keeps the result at most 100, which `expect` below relies on.
        let done = u128::from(self.done_bytes.min(self.total_bytes)) * 100;
        // An operation without any bytes is complete.
        let percent = done.checked_div(u128::from(self.total_bytes)).unwrap_or(100);
        u8::try_from(percent).expect("a part of the whole is at most 100 percent")
    }
}

impl PoolReport {
    /// Returns the combined progress of all rebuilds; `None` if none runs.
    #[must_use]
    pub fn rebuild(&self) -> Option<Progress> {
        // The members of a log device are rebuilt as well.
        self.all_groups().filter_map(|group| group.rebuild).reduce(Progress::and)
    }

    /// Returns the combined progress of all reshapes; `None` if none runs.
    #[must_use]
    pub fn reshape(&self) -> Option<Progress> {
        // Log devices are never reshaped, so their group is left out.
        self.groups.iter().filter_map(|group| group.reshape).reduce(Progress::and)
    }

    /// Returns the members of all groups, those of the log device last.
    pub fn members(&self) -> impl Iterator<Item = &MemberReport> {
        self.all_groups().flat_map(|group| &group.members)
    }

    /// Returns all groups, that of the log device last.
    pub fn all_groups(&self) -> impl Iterator<Item = &GroupReport> {
        self.groups.iter().chain(self.log.iter().map(|log| &log.group))
    }

    /// Returns all groups for modification, that of the log device last.
    pub fn all_groups_mut(&mut self) -> impl Iterator<Item = &mut GroupReport> {
        self.groups.iter_mut().chain(self.log.iter_mut().map(|log| &mut log.group))
    }

    /// Returns the groups whose lost members can be replaced: without that of a log device that is not ready.
    pub fn kept_groups(&self) -> impl Iterator<Item = &GroupReport> {
        let log = self.log.iter().filter(|log| log.state == LogState::Ready);
        self.groups.iter().chain(log.map(|log| &log.group))
    }

    /// Returns the command that imports the pool again in the same mode.
    #[must_use]
    pub fn import_command(&self) -> String {
        // Without the option the hint would make a pool writable that the operator imported read-only.
        let option = if self.imported_read_only { " --read-only" } else { "" };
        format!("blockyard pool import {}{option}", self.name)
    }

    /// Returns the way to open a read-only pool for writing, as an instruction.
    #[must_use]
    pub fn writable_hint(&self) -> String {
        // A pool that is read-only by itself has disks that reject writes: an import alone would end the same way.
        let before = if self.imported_read_only { "to write to it," } else { "make its disks writable and" };
        format!("{before} run blockyard pool import {}", self.name)
    }

    /// Returns the free capacity.
    #[must_use]
    pub fn free(&self) -> Size {
        Size::new(self.size.bytes().saturating_sub(self.used.bytes()))
    }
}

impl MemberReport {
    /// Returns the scheduled automatic replacement in words.
    #[must_use]
    pub fn next_step(&self) -> Option<String> {
        // The time is absolute, because alerts quote this text and may be read later.
        let NextSpare { disk, at, .. } = self.next_spare.as_ref()?;
        Some(format!("hot spare {disk} replaces it at {at} unless it returns"))
    }
}

impl GroupReport {
    /// Returns the members that have failed, are missing or do not respond.
    pub fn lost(&self) -> impl Iterator<Item = &MemberReport> {
        self.members.iter().filter(|member| member.state.is_lost())
    }
}

impl PoolState {
    /// Returns the state as one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Rebuilding => "rebuilding",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

impl LogState {
    /// Returns the state as one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

impl LogState {
    /// Returns the consequences of the state for the pool, for all user interfaces; `None` if the log is ready. `cause`
    /// is the reason for the state, and `held` is the number of volumes that may have data in the log.
    #[must_use]
    pub fn meaning(self, cause: Option<&str>, held: usize) -> Option<String> {
        let volumes = if held == 1 { "1 volume".to_owned() } else { format!("{held} volumes") };
        let meaning = match (self, held) {
            (Self::Ready, _) => return None,
            // Acknowledged writes are in memory as well, so a log that fails in use loses none of them.
            (Self::Failed, 0) => {
                "all of its data is on the disks of the pool; volumes run in write-through mode".to_owned()
            }
            (Self::Failed, _) => {
                format!(
                    "volumes run in write-through mode; its data for {volumes} is being destaged to the disks of the pool"
                )
            }
            (Self::Lost, 0) => "no data is lost, but write-back is unavailable".to_owned(),
            // After a restart the log has the only copy of the writes that were acknowledged from it.
            (Self::Lost, 1) => "1 volume that may have data in it is offline".to_owned(),
            (Self::Lost, _) => format!("{volumes} that may have data in it are offline"),
        };
        Some(cause.map_or_else(|| meaning.clone(), |cause| format!("{cause}; {meaning}")))
    }
}

impl LogReport {
    /// Returns the fill level in whole percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        // A lost log has size zero.
        (self.used.bytes().saturating_mul(100)).checked_div(self.size.bytes()).unwrap_or(0)
    }
}

impl MemberState {
    /// Returns the state in one or two words, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in sync",
            Self::Rebuilding => "rebuilding",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::NotResponding => "not responding",
            Self::Joining => "joining",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reaches_a_hundred_percent_only_at_the_end() {
        let at = |done_bytes, total_bytes| Progress { done_bytes, total_bytes, ..Progress::default() }.percent();
        assert_eq!((at(0, 10), at(999, 1000), at(1000, 1000)), (0, 99, 100));
        assert_eq!(at(0, 0), 100);
        assert_eq!(at(u64::MAX, u64::MAX), 100);
    }
}
