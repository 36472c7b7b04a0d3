//! How everything is, in one sentence and then in detail.

use crate::{DiskName, EngineReport, MeasureReport, MemoryReport, Name, PoolReport, PoolState, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the whole array is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusReport {
    /// The node's name.
    pub node: Name,
    /// The version of the daemon.
    pub version: String,
    /// As bad as the worst problem.
    pub severity: Severity,
    /// One sentence: `All good`, or the one thing to do.
    pub verdict: String,
    /// What is wrong, the worst first.
    pub problems: Vec<Problem>,
    /// What is as somebody wanted it, or hurts nobody who is here, and should not be forgotten.
    #[serde(default)]
    pub notices: Vec<Problem>,
    /// How many pools are known.
    pub pools: u32,
    /// How much they hold together.
    pub size: Size,
    /// How much of it is taken.
    pub used: Size,
    /// How many disks are known.
    pub disks: u32,
    /// How many volumes are known.
    pub volumes: u32,
    /// How many hosts are known.
    pub hosts: u32,
    /// The data plane.
    pub engine: EngineReport,
    /// The memory of the daemon, as soon as it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// What confines the daemon, each measure with its state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confinement: Vec<MeasureReport>,
}

/// How bad something is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong.
    Good,
    /// Everything serves, and something wants attention.
    Warning,
    /// Something does not serve.
    Critical,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: `pool tank`.
    pub subject: String,
    /// What is so.
    pub state: String,
    /// What it means.
    pub meaning: String,
    /// What to do about it.
    pub action: String,
}

impl Problem {
    /// How `pool` is, in a word for headings and tables, where `problems` concern it, the worst first: what is critical goes before
    /// its redundancy, and so does whatever is wrong with a healthy pool itself.
    #[must_use]
    pub fn pool_state<'a>(pool: &PoolReport, problems: impl IntoIterator<Item = &'a Self>) -> String {
        let own = format!("pool {}", pool.name);
        let is_told = |problem: &&Self| {
            problem.severity == Severity::Critical || (pool.state == PoolState::Healthy && problem.subject == own)
        };
        match problems.into_iter().find(is_told) {
            None => pool.state.as_str().to_owned(),
            Some(Self { severity, subject, state, .. }) => {
                let subject = if *subject == own { String::new() } else { format!("{subject} ") };
                format!("{subject}{state} ({})", severity.as_str())
            }
        }
    }

    /// True where it is about the pool, its log, one of its volumes or one of these disks, its members.
    #[must_use]
    pub fn concerns_pool(&self, pool: &Name, members: &[&DiskName]) -> bool {
        let (kind, name) = self.subject.rsplit_once(' ').unwrap_or(("", &self.subject));
        match kind {
            "pool" | "log of pool" => name == pool.as_str(),
            "volume" => name.split_once('/').is_some_and(|(of, _)| of == pool.as_str()),
            "disk" | "file system of disk" => members.iter().any(|member| member.as_str() == name),
            _ => false,
        }
    }
}

impl Severity {
    /// The severity in one word, as tables show it.
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
