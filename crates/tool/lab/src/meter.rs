//! Resource usage of processes, and of the path between them.

mod daemon;
mod kernel;
mod sockets;

use crate::run::{Sample, Usage};
use crate::seen::Readings;
use anyhow::{Context, Result};
use daemon::Members;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

/// Meter of both ends.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Process IDs of the target; empty if it is on another machine.
    pub servers: Vec<u32>,
    /// Control sockets of those processes that are our daemons.
    pub doors: Vec<PathBuf>,
    /// TCP ports of the target.
    pub ports: BTreeSet<u16>,
}

/// Cumulative usage of both ends at one moment.
#[derive(Debug)]
pub struct Reading {
    server: Option<Usage>,
    client: Usage,
    counters: kernel::Counters,
    sockets: sockets::Ends,
    /// Counters of pool members; daemons answer late, and the load does not wait for them.
    members: Option<JoinHandle<Vec<Option<Members>>>>,
}

impl Meter {
    /// Reads the present counters; the calling thread is the one of the load.
    ///
    /// *Errors*: a process is gone.
    pub fn read(&self) -> Result<Reading> {
        let mut server = (!self.servers.is_empty()).then(Usage::default);
        for &pid in &self.servers {
            let (used, sum) = (usage(pid)?, server.get_or_insert_default());
            sum.cpu_seconds += used.cpu_seconds;
            sum.resident_bytes += used.resident_bytes;
        }
        let (client, counters) = (usage(std::process::id())?, kernel::Counters::read(&self.servers));
        // Files and disks are measured without sockets.
        let sockets = if self.ports.is_empty() { Ok(sockets::Ends::new()) } else { sockets::read(&self.ports) };
        let members = if self.doors.is_empty() {
            None
        } else {
            // In a thread of its own: the load runs on this one, and must not be delayed.
            let doors = self.doors.clone();
            Some(std::thread::Builder::new().name("meters".to_owned()).spawn(move || members_of(&doors))?)
        };
        // Counters that the kernel does not provide are missing.
        Ok(Reading { server, client, counters, sockets: sockets.unwrap_or_default(), members })
    }
}

/// Returns the counters of each daemon; none for one that does not answer.
fn members_of(doors: &[PathBuf]) -> Vec<Option<Members>> {
    // The disks of several daemons may have the same names.
    let prefix = |index: usize| if doors.len() > 1 { format!("daemon {index}: ") } else { String::new() };
    doors.iter().enumerate().map(|(index, door)| daemon::read(door, &prefix(index)).ok()).collect()
}

impl Reading {
    /// Returns a sample with the usage since `before`, and nothing else.
    #[must_use]
    pub fn since(self, before: Self) -> Sample {
        let spent = |now: Usage, then: Usage| Usage { cpu_seconds: now.cpu_seconds - then.cpu_seconds, ..now };
        let server = self.server.zip(before.server).map(|(now, then)| spent(now, then));
        let counted = self.counters.since(&before.counters);
        let mut seen = Readings { sockets: sockets::since(&self.sockets, &before.sockets), ..counted };
        // A thread that panicked is like a daemon that did not answer.
        let told = |reading: Option<JoinHandle<_>>| reading.and_then(|thread| thread.join().ok());
        if let (Some(now), Some(then)) = (told(self.members), told(before.members)) {
            // Only daemons that answered both times.
            let pairs = now.iter().zip(&then).filter_map(|(now, then)| now.as_ref().zip(then.as_ref()));
            let members: Vec<_> = pairs.flat_map(|(now, then): (&Members, &Members)| now.since(then)).collect();
            // Members first, since they explain more than the disks of the whole machine.
            seen.disks.splice(0..0, members);
        }
        Sample { server, client: spent(self.client, before.client), seen: Some(seen), ..Sample::default() }
    }
}

fn usage(pid: u32) -> Result<Usage> {
    Ok(Usage { cpu_seconds: cpu_time(pid)?.as_secs_f64(), resident_bytes: resident_kib(pid)? << 10 })
}

/// Returns the CPU time of all threads of a process, in nanoseconds resolution.
///
/// *Errors*: the process is gone.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    // The scheduler counts nanoseconds; the times in `stat` have a resolution of ticks, mostly 10 ms.
    let mut nanos = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))? {
        // A thread that has just ended takes its counter along.
        let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        nanos += text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Returns the resident memory of a process in KiB, including huge pages.
///
/// *Errors*: the process is gone.
pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    kib_of(&status).context("no VmRSS")
}

/// Adds `HugetlbPages` to `VmRSS`, which does not include them.
fn kib_of(status: &str) -> Option<u64> {
    Some(number_of(status, "VmRSS")? + number_of(status, "HugetlbPages").unwrap_or(0))
}

/// Returns the number after `name:` in a file of `/proc`, without its unit.
pub(crate) fn number_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value?.split_whitespace().next()?.parse().ok()
}

/// Pins this thread, and threads that it starts, to `core`.
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
    use crate::child::Background;
    use std::process::Command;

    #[test]
    fn huge_pages_are_resident_memory() {
        let status = "VmRSS:\t   21000 kB\nVmSwap:\t 0 kB\nHugetlbPages:\t  866304 kB\n";
        assert_eq!((kib_of(status), kib_of("VmRSS:\t 7 kB\n"), kib_of("")), (Some(887_304), Some(7), None));
    }

    #[test]
    fn cpu_time_of_a_busy_process_grows() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let busy = Background::start(Command::new("sh").args(["-c", "while :; do :; done"]), log.path());
        let busy = busy.expect("there is a shell");
        let before = cpu_time(busy.pid()).expect("it lives");
        std::thread::sleep(Duration::from_millis(100));
        assert!(cpu_time(busy.pid()).expect("it lives") > before);
    }
}
