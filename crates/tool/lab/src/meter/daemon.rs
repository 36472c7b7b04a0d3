//! Disk counters of our daemons.

use crate::seen::Disk;
use anyhow::{Context, Result};
use model::DiskReport;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Pool members of one daemon at one moment.
#[derive(Debug)]
pub(super) struct Members {
    at: Instant,
    disks: BTreeMap<String, Disk>,
}

#[derive(Deserialize)]
struct Answer {
    disks: Vec<DiskReport>,
}

/// Queries the daemon behind the socket `door`; `prefix` is prepended to the names of its disks.
///
/// *Errors*: it does not answer, or in an unknown format.
pub(super) fn read(door: &Path, prefix: &str) -> Result<Members> {
    let body = http_client::get(door, "/api/v1/disks", ANSWER_LIMIT)
        .with_context(|| format!("the daemon at {} does not tell of its disks", door.display()))?;
    // Taken after the answer: the counters were read before it, so the interval is not overestimated.
    let at = Instant::now();
    let answer: Answer = serde_json::from_slice(&body).context("the daemon speaks of disks in another form")?;
    let named = |report: DiskReport| report.name.map(|name| (name.to_string(), report.counters));
    let disk = |(name, counters): (String, model::DiskCounters)| {
        let disk = Disk {
            name: format!("{prefix}{name}"),
            member: true,
            busy_seconds: counters.busy_ns as f64 / 1e9,
            waited_seconds: counters.waited_ns as f64 / 1e9,
            reads: counters.reads,
            writes: counters.writes,
            ..Disk::default()
        };
        (name, disk)
    };
    Ok(Members { at, disks: answer.disks.into_iter().filter_map(named).map(disk).collect() })
}

impl Members {
    /// Returns the activity since `before`.
    pub(super) fn since(&self, before: &Self) -> Vec<Disk> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        // A disk that was added meanwhile has no earlier figures, and is omitted.
        let grown = |(name, now): (&String, &Disk)| Some(super::kernel::grown(now, before.disks.get(name)?, seconds));
        self.disks.iter().filter_map(grown).collect()
    }
}
