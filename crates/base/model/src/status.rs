//! Overall status of the array.

use crate::{DiskName, EngineReport, MeasureReport, MemoryReport, Name, PoolReport, PoolState, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Overall status of the array: one sentence, then details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusReport {
    /// Name of the node.
    pub node: Name,
    /// Version of the daemon.
    pub version: String,
    /// Highest severity of all problems.
    pub severity: Severity,
    /// Summary in one sentence: `All good`, or the most important action.
    pub summary: String,
    /// Problems, most severe first.
    pub problems: Vec<Problem>,
    /// Notices: conditions that are intended or have no effect at present, but should not be forgotten.
    #[serde(default)]
    pub notices: Vec<Problem>,
    /// Number of pools.
    pub pools: u32,
    /// Usable capacity of all pools.
    pub size: Size,
    /// Allocated capacity of all pools.
    pub used: Size,
    /// Number of disks.
    pub disks: u32,
    /// Number of volumes.
    pub volumes: u32,
    /// Number of hosts.
    pub hosts: u32,
    /// State of the data plane.
    pub engine: EngineReport,
    /// Memory of the daemon, once it has been determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// Confinement measures of the daemon and their states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confinement: Vec<MeasureReport>,
}

/// Severity of a problem, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    // The order of declaration ranks the severities: the overall severity is the maximum.
    /// No problem.
    Good,
    /// All services are available, but attention is required.
    Warning,
    /// A service is unavailable.
    Critical,
}

/// Problem that requires attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// Affected object, such as `pool tank`.
    pub subject: String,
    /// Description of the condition.
    pub state: String,
    /// Consequences.
    pub meaning: String,
    /// Recommended action.
    pub action: String,
}

impl Problem {
    /// Returns the state of `pool` in a few words for headings and tables, given the `problems` that concern it, most
    /// severe first. A critical problem takes precedence over the state of the redundancy, and so does any problem of a
    /// healthy pool itself.
    #[must_use]
    pub fn pool_state<'a>(pool: &PoolReport, problems: impl IntoIterator<Item = &'a Self>) -> String {
        // Subjects are text in the API, so the pool is recognized by its subject.
        let own = format!("pool {}", pool.name);
        let is_told = |problem: &&Self| {
            problem.severity == Severity::Critical || (pool.state == PoolState::Healthy && problem.subject == own)
        };
        // Sorted by severity, so the first match is the most severe one.
        match problems.into_iter().find(is_told) {
            None => pool.state.as_str().to_owned(),
            Some(Self { severity, subject, state, .. }) => {
                let subject = if *subject == own { String::new() } else { format!("{subject} ") };
                format!("{subject}{state} ({})", severity.as_str())
            }
        }
    }

    /// Returns true if the problem concerns the pool, its log, one of its volumes, or one of its member disks
    /// `members`.
    #[must_use]
    pub fn concerns_pool(&self, pool: &Name, members: &[&DiskName]) -> bool {
        // Names do not contain spaces, so the last word is the name.
        let (kind, name) = self.subject.rsplit_once(' ').unwrap_or(("", &self.subject));
        match kind {
            "pool" | "log of pool" => name == pool.as_str(),
            // A volume without a pool has no slash and concerns no pool.
            "volume" => name.split_once('/').is_some_and(|(of, _)| of == pool.as_str()),
            "disk" | "file system of disk" => members.iter().any(|member| member.as_str() == name),
            _ => false,
        }
    }
}

impl Severity {
    /// Returns the severity as one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_of_a_pool_is_also_one_of_its_disks() {
        let about = |subject: &str| Problem {
            severity: Severity::Critical,
            subject: subject.to_owned(),
            state: String::new(),
            meaning: String::new(),
            action: String::new(),
        };
        let (pool, disk): (Name, DiskName) = ("tank".parse().expect("a name"), "d1".parse().expect("a name"));
        let concerns = |subject: &str| about(subject).concerns_pool(&pool, &[&disk]);
        for subject in ["pool tank", "log of pool tank", "volume tank/v", "disk d1", "file system of disk d1"] {
            assert!(concerns(subject), "{subject}");
        }
        for subject in ["pool tank2", "volume tank2/v", "disk d10", "disk tank", "portal d1", "memory"] {
            assert!(!concerns(subject), "{subject}");
        }
    }
}
