//! How a pool is.

use crate::{DiskId, DiskName, Level, LostBlocks, Name, PoolId, PoolPolicy, ScrubReport, Size, Timestamp, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One pool as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolReport {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub id: PoolId,
    /// How it is: as bad as its worst group.
    pub state: PoolState,
    /// Why it is read-only, where it is: nothing is written to its disks, and hosts cannot write to its volumes.
    #[serde(default)]
    pub read_only: Option<String>,
    /// True when it was imported read-only: each start opens it so, until it is imported for writing.
    #[serde(default)]
    pub imported_read_only: bool,
    /// How much its volumes may take together.
    pub size: Size,
    /// How much they take.
    pub used: Size,
    /// Whether volumes that take space as they are written still find some.
    #[serde(default)]
    pub space: SpaceState,
    /// How many volumes it has.
    pub volumes: u32,
    /// Its disk groups.
    pub groups: Vec<GroupReport>,
    /// Its log device, where it has one.
    #[serde(default)]
    pub log: Option<LogReport>,
    /// The spares that are ready to take a place in it.
    #[serde(default)]
    pub spares: Vec<DiskName>,
    /// How it is to be repaired and looked through.
    #[serde(default)]
    pub policy: PoolPolicy,
    /// The scrub that runs, or ran last.
    #[serde(default)]
    pub scrub: Option<ScrubReport>,
    /// The enclosures without which it would lose data, where enclosures are known.
    #[serde(default)]
    pub weak_enclosures: Vec<String>,
    /// When the next one begins by itself.
    #[serde(default)]
    pub next_scrub: Option<Timestamp>,
    /// The blocks that no copy can be read of, by volume and LBA.
    #[serde(default)]
    pub lost: LostBlocks,
    /// Why this node does not use the pool any more, when another owner has its disks.
    #[serde(default)]
    pub fenced: Option<String>,
    /// What it waits for, while it is not open.
    #[serde(default)]
    pub waiting: Option<PoolWaiting>,
}

/// What a pool waits for that is not open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolWaiting {
    /// Why it is not open.
    pub why: String,
    /// True when it does not open without an operator.
    pub needs_operator: bool,
    /// What the operator is to do, where that is known.
    #[serde(default)]
    pub hint: Option<String>,
    /// The disks that are absent, as far as they are known.
    #[serde(default)]
    pub disks: Vec<DiskName>,
    /// Seconds until it opens without them, where it can.
    #[serde(default)]
    pub degraded_in_s: Option<u64>,
}

/// How a pool or a group of it is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// All members are in step.
    Healthy,
    /// It serves, and a member is being filled.
    Rebuilding,
    /// It serves with less protection than it should have.
    Degraded,
    /// It does not serve: more members are lost than it bears.
    Failed,
    /// It is known, but could not be opened: too many of its disks were not found, or their metadata cannot be read.
    Missing,
}

/// How full a pool is, by its thresholds, best first. Only of pools that have volumes which take space as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpaceState {
    /// Below its thresholds.
    #[default]
    Enough,
    /// Above the soft threshold: more disks should be thought of.
    Low,
    /// Above the hard threshold: writes will be refused soon.
    NearlyFull,
    /// Writes that need space are refused.
    Full,
}

/// The log device of a pool: what volumes with the policy `back` are acknowledged from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogReport {
    /// How it is.
    pub state: LogState,
    /// How much it has room for.
    pub size: Size,
    /// How much of it holds what is not known to be on the pool's disks yet.
    pub used: Size,
    /// The volumes that may have something in it.
    pub volumes: Vec<VolumeName>,
    /// Why it is not ready and what that means, in words.
    #[serde(default)]
    pub why: Option<String>,
    /// Its disks.
    pub group: GroupReport,
}

/// How the log device of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    /// Writes are acknowledged from it.
    Ready,
    /// It has failed while it was used; writes go through since, and nothing is lost.
    Failed,
    /// It cannot be read. Volumes that have something in it do not serve.
    Lost,
}

/// One disk group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupReport {
    /// Its number in the pool.
    #[serde(default)]
    pub number: u16,
    /// How it protects.
    pub level: Level,
    /// Bytes on one member before the next member's turn.
    pub chunk: Size,
    /// True when it keeps a checksum of every block, and a log that makes writes whole after a crash.
    #[serde(default)]
    pub integrity: bool,
    /// The least size of a disk that can be one of its members.
    pub member_size: Size,
    /// How it is.
    pub state: PoolState,
    /// Its members, by slot.
    pub members: Vec<MemberReport>,
    /// How far its rebuild is, while one runs.
    pub rebuild: Option<Progress>,
    /// How far the comparison after a crash is, while it runs.
    #[serde(default)]
    pub resync: Option<Progress>,
    /// How far it is laid out over one member more, while it is.
    #[serde(default)]
    pub reshape: Option<Progress>,
    /// How much more the pool would have if the group used all of its disks; none when there is nothing to gain now.
    #[serde(default)]
    pub growth: Option<Size>,
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberReport {
    /// Its place in the group.
    pub slot: u16,
    /// Which disk belongs there.
    pub id: DiskId,
    /// What that disk is called, when it is open (or was when it failed).
    pub disk: Option<DiskName>,
    /// How it is.
    pub state: MemberState,
    /// Reads and writes of it that failed.
    pub errors: u64,
    /// Blocks of it that were not as they had been written, since the pool was opened.
    #[serde(default)]
    pub wrong_blocks: u64,
    /// What the disk is called whose place it has taken as a spare, until there is another spare.
    #[serde(default)]
    pub stands_for: Option<String>,
    /// How it answers; none of a member whose disk is not open.
    #[serde(default)]
    pub latency: Option<MemberLatency>,
    /// Reads of it that failed or were wrong within the last 24 hours, since the pool was opened.
    #[serde(default)]
    pub errors_of_day: u64,
    /// What the pool's policy says of it.
    #[serde(default)]
    pub fitness: MemberFitness,
    /// The disk that it is being copied to, which then takes its place.
    #[serde(default)]
    pub copy: Option<MemberCopy>,
    /// The spare that takes its place, and when, unless it returns before.
    #[serde(default)]
    pub next_spare: Option<NextSpare>,
}

/// A spare that takes the place of a member that is missing or does not answer, once it has been waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextSpare {
    /// The spare.
    pub disk: DiskName,
    /// When it takes the place.
    pub at: Timestamp,
    /// Seconds until then.
    pub in_s: u64,
}

/// What the policy of a pool for errors says of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberFitness {
    /// Nothing.
    #[default]
    Fit,
    /// It has been many times slower than the others for longer than it may.
    Slow,
    /// It has failed more reads within 24 hours than it may.
    Failing,
    /// It has failed a larger part of its reads within the last minute than it may.
    Useless,
}

/// A copy of a member to another disk beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberCopy {
    /// The disk that takes its place.
    pub disk: DiskName,
    /// How far the copy is.
    pub progress: Progress,
}

/// How a member has answered since its disk was opened, the recent past counting most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberLatency {
    /// Median latency of reads in microseconds; 0 while there were too few.
    pub read_p50_us: u64,
    /// Latency in microseconds that one read in a hundred exceeds.
    pub read_p99_us: u64,
    /// Median latency of writes and flushes in microseconds.
    pub write_p50_us: u64,
    /// Latency in microseconds that one write or flush in a hundred exceeds.
    pub write_p99_us: u64,
    /// For how long the disk has owed an answer, in milliseconds; 0 while it answers.
    pub silent_ms: u64,
    /// True when it is many times slower than the other members of its group.
    pub slow: bool,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// It holds what it should.
    InSync,
    /// It is being filled.
    Rebuilding,
    /// It is attached, but what it holds is not used any more.
    Failed,
    /// It was not found.
    Missing,
    /// It did not answer and is not waited for; it gets what it misses when it answers again.
    Behind,
    /// It is to be one more member of its group, which does not count on it yet.
    Joining,
}

impl MemberState {
    /// True for a member that its group does without.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Failed | Self::Missing | Self::Behind)
    }
}

/// How far a long task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes per second, lately.
    pub bytes_per_second: u64,
    /// Seconds until it ends at this rate; none while nobody can tell.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Both tasks together.
    fn and(self, other: Self) -> Self {
        Self {
            done_bytes: self.done_bytes + other.done_bytes,
            total_bytes: self.total_bytes + other.total_bytes,
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            seconds_left: self.seconds_left.zip(other.seconds_left).map(|(a, b)| a.max(b)),
        }
    }

    /// How far it is, in whole percent; 100 only at the end.
    #[must_use]
    pub fn percent(&self) -> u8 {
        let done = u128::from(self.done_bytes.min(self.total_bytes)) * 100;
        let percent = done.checked_div(u128::from(self.total_bytes)).unwrap_or(100);
        u8::try_from(percent).expect("a part of the whole is at most 100 percent")
    }
}

impl PoolReport {
    /// How far the rebuilds of all groups are, together; none when none runs.
    #[must_use]
    pub fn rebuild(&self) -> Option<Progress> {
        self.all_groups().filter_map(|group| group.rebuild).reduce(Progress::and)
    }

    /// How far all groups are that are laid out over one member more, together; none when none is.
    #[must_use]
    pub fn reshape(&self) -> Option<Progress> {
        self.groups.iter().filter_map(|group| group.reshape).reduce(Progress::and)
    }

    /// All members of all groups, those of the log after the others.
    pub fn members(&self) -> impl Iterator<Item = &MemberReport> {
        self.all_groups().flat_map(|group| &group.members)
    }

    /// All groups, that of the log last.
    pub fn all_groups(&self) -> impl Iterator<Item = &GroupReport> {
        self.groups.iter().chain(self.log.iter().map(|log| &log.group))
    }

    /// All groups, that of the log last.
    pub fn all_groups_mut(&mut self) -> impl Iterator<Item = &mut GroupReport> {
        self.groups.iter_mut().chain(self.log.iter_mut().map(|log| &mut log.group))
    }

    /// The groups whose lost members can be replaced: not that of a log that does not work any more.
    pub fn kept_groups(&self) -> impl Iterator<Item = &GroupReport> {
        let log = self.log.iter().filter(|log| log.state == LogState::Ready);
        self.groups.iter().chain(log.map(|log| &log.group))
    }

    /// The command that opens it once more as it was imported.
    #[must_use]
    pub fn import_command(&self) -> String {
        let option = if self.imported_read_only { " --read-only" } else { "" };
        format!("blockyard pool import {}{option}", self.name)
    }

    /// How it can be opened for writing, where it is read-only.
    #[must_use]
    pub fn way_to_write(&self) -> String {
        let before = if self.imported_read_only { "to write to it," } else { "make its disks writable and" };
        format!("{before} run blockyard pool import {}", self.name)
    }

    /// How much is free.
    #[must_use]
    pub fn free(&self) -> Size {
        Size::new(self.size.bytes().saturating_sub(self.used.bytes()))
    }
}

impl MemberReport {
    /// What becomes of its place by itself, in words.
    #[must_use]
    pub fn next_step(&self) -> Option<String> {
        let NextSpare { disk, at, .. } = self.next_spare.as_ref()?;
        Some(format!("spare {disk} takes its place at {at} unless it returns"))
    }
}

impl GroupReport {
    /// Its members that have failed or were not found.
    pub fn lost(&self) -> impl Iterator<Item = &MemberReport> {
        self.members.iter().filter(|member| member.state.is_lost())
    }
}

impl PoolState {
    /// The state in one word, as tables show it.
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
    /// The state in one word, as tables show it.
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
    /// What it means for the pool, for all who tell of it; nothing of one that is ready. `cause` is why it is so, and `held` how many
    /// volumes may have something in it.
    #[must_use]
    pub fn meaning(self, cause: Option<&str>, held: usize) -> Option<String> {
        let volumes = if held == 1 { "1 volume".to_owned() } else { format!("{held} volumes") };
        let meaning = match (self, held) {
            (Self::Ready, _) => return None,
            (Self::Failed, 0) => {
                "everything that it held is on the pool's disks, and volumes are written through".to_owned()
            }
            (Self::Failed, _) => {
                format!("volumes are written through; what it holds for {volumes} is being written to the pool's disks")
            }
            (Self::Lost, 0) => "nothing is lost with it, but volumes cannot be written back".to_owned(),
            (Self::Lost, _) => format!("{volumes} that may have something in it do not serve"),
        };
        Some(cause.map_or_else(|| meaning.clone(), |cause| format!("{cause}; {meaning}")))
    }
}

impl LogReport {
    /// How full it is, in whole percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        (self.used.bytes().saturating_mul(100)).checked_div(self.size.bytes()).unwrap_or(0)
    }
}

impl MemberState {
    /// The state in one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in sync",
            Self::Rebuilding => "rebuilding",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Behind => "not answering",
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
