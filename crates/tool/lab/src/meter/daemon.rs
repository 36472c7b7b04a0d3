//! What a daemon of ours counts of its disks.

use crate::seen::Disk;
use anyhow::{Context, Result, ensure};
use model::DiskReport;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The members of the pools of one daemon at a moment.
#[derive(Debug)]
pub struct Members {
    at: Instant,
    disks: BTreeMap<String, Disk>,
}

#[derive(Deserialize)]
struct Answer {
    disks: Vec<DiskReport>,
}

/// Asks the daemon behind `door`, its socket; `prefix` goes before the names of its disks.
///
/// *Errors*: it does not answer, or not in a form that this build knows.
pub fn read(door: &Path, prefix: &str) -> Result<Members> {
    let mut stream = UnixStream::connect(door).with_context(|| format!("no daemon at {}", door.display()))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(b"GET /api/v1/disks HTTP/1.0\r\nhost: blockyard\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let at = Instant::now();
    let text = String::from_utf8(bytes)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the daemon's answer has no end of its head")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "the daemon says {}", head.lines().next().unwrap_or_default());
    let answer: Answer = serde_json::from_str(body).context("the daemon speaks of disks in another form")?;
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
    /// What they did since `before`.
    pub fn since(&self, before: &Self) -> Vec<Disk> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let grown = |(name, now): (&String, &Disk)| Some(super::kernel::grown(now, before.disks.get(name)?, seconds));
        self.disks.iter().filter_map(grown).collect()
    }
}
