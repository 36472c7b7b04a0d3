//! What processes, and the way between them, take of the machine.

mod daemon;
mod kernel;
mod sockets;

use crate::run::{Sample, Usage};
use crate::seen::Seen;
use anyhow::{Context, Result};
use daemon::Members;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

/// Reads what both sides have used so far.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// The processes that serve; none where they are on another machine.
    pub servers: Vec<u32>,
    /// The sockets of those of them that are daemons of ours.
    pub doors: Vec<PathBuf>,
    /// The ports that are served.
    pub ports: BTreeSet<u16>,
}

/// What both sides had used at a moment.
#[derive(Debug)]
pub struct Reading {
    server: Option<Usage>,
    client: Usage,
    counters: kernel::Counters,
    sockets: sockets::Ends,
    /// Daemons take longer to answer, and the load does not wait for them.
    members: Option<JoinHandle<Vec<Option<Members>>>>,
}

impl Meter {
    /// The present figures, of this thread as the one that loads.
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
        let sockets = if self.ports.is_empty() { Ok(sockets::Ends::new()) } else { sockets::read(&self.ports) };
        let members = if self.doors.is_empty() {
            None
        } else {
            let doors = self.doors.clone();
            Some(std::thread::Builder::new().name("meters".to_owned()).spawn(move || members_of(&doors))?)
        };
        // What the kernel does not tell is absent.
        Ok(Reading { server, client, counters, sockets: sockets.unwrap_or_default(), members })
    }
}

/// What each of the daemons counts; nothing of one that does not answer.
fn members_of(doors: &[PathBuf]) -> Vec<Option<Members>> {
    let prefix = |index: usize| if doors.len() > 1 { format!("daemon {index}: ") } else { String::new() };
    doors.iter().enumerate().map(|(index, door)| daemon::read(door, &prefix(index)).ok()).collect()
}

impl Reading {
    /// A sample that holds what was used since `before`, and nothing else yet.
    #[must_use]
    pub fn since(self, before: Self) -> Sample {
        let spent = |now: Usage, then: Usage| Usage { cpu_seconds: now.cpu_seconds - then.cpu_seconds, ..now };
        let server = self.server.zip(before.server).map(|(now, then)| spent(now, then));
        let counted = self.counters.since(&before.counters);
        let mut seen = Seen { sockets: sockets::since(&self.sockets, &before.sockets), ..counted };
        let told = |reading: Option<JoinHandle<_>>| reading.and_then(|thread| thread.join().ok());
        if let (Some(now), Some(then)) = (told(self.members), told(before.members)) {
            let pairs = now.iter().zip(&then).filter_map(|(now, then)| now.as_ref().zip(then.as_ref()));
            let members: Vec<_> = pairs.flat_map(|(now, then): (&Members, &Members)| now.since(then)).collect();
            seen.disks.splice(0..0, members);
        }
        Sample { server, client: spent(self.client, before.client), seen: Some(seen), ..Sample::default() }
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

/// Resident memory of a process in KiB, with its huge pages.
///
/// *Errors*: the process is gone.
pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    kib_of(&status).context("no VmRSS")
}

/// `VmRSS`, and `HugetlbPages`, which Linux counts apart from it.
fn kib_of(status: &str) -> Option<u64> {
    Some(number_of(status, "VmRSS")? + number_of(status, "HugetlbPages").unwrap_or(0))
}

/// The number behind `name:` in a file of `/proc`, without its unit.
pub(crate) fn number_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value?.split_whitespace().next()?.parse().ok()
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
