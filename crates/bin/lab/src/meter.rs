//! What processes take of the machine, from /proc.

use crate::run::{Sample, Usage};
use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

/// Reads what both sides have used so far.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// The processes that serve; none where they are on another machine.
    pub servers: Vec<u32>,
}

/// What both sides had used at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    server: Option<Usage>,
    client: Usage,
}

impl Meter {
    /// The present figures.
    ///
    /// *Errors*: a process is gone.
    pub fn read(&self) -> Result<Reading> {
        let mut server = (!self.servers.is_empty()).then(Usage::default);
        for &pid in &self.servers {
            let (used, sum) = (usage(pid)?, server.get_or_insert_default());
            sum.cpu_seconds += used.cpu_seconds;
            sum.resident_bytes += used.resident_bytes;
        }
        Ok(Reading { server, client: usage(std::process::id())? })
    }
}

impl Reading {
    /// A sample that holds what was used since `before`, and nothing else yet.
    #[must_use]
    pub fn since(&self, before: &Self) -> Sample {
        let spent = |now: Usage, then: Usage| Usage { cpu_seconds: now.cpu_seconds - then.cpu_seconds, ..now };
        let server = self.server.zip(before.server).map(|(now, then)| spent(now, then));
        Sample { server, client: spent(self.client, before.client), ..Sample::default() }
    }
}

fn usage(pid: u32) -> Result<Usage> {
    Ok(Usage { cpu_seconds: cpu_time(pid)?.as_secs_f64(), resident_bytes: resident_kib(pid)? << 10 })
}

/// The CPU time that all threads of a process have used, to the nanosecond.
///
/// *Errors*: the process is gone.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))? {
        // A thread that has just ended takes its time with it.
        let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        nanos += text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Resident memory of a process in KiB.
///
/// *Errors*: the process is gone.
pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.split_whitespace().next().and_then(|word| word.parse().ok()).context("no VmRSS")
}

/// This thread, and those that it starts, run on `core` only.
///
/// *Errors*: there is no such core.
pub fn stay_on(core: usize) -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).with_context(|| format!("there is no core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn cpu_time_of_a_busy_process_grows() {
        let before = cpu_time(std::process::id()).expect("we live");
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(cpu_time(std::process::id()).expect("we live") > before);
    }
}
