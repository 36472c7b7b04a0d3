//! Counters of the kernel: threads, cores, disks and network interfaces.

use crate::seen::{Core, Disk, Line, Readings, Thread};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Counters at one moment.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    at: Instant,
    /// Threads by process and thread number.
    threads: BTreeMap<(u32, u32), Thread>,
    load: Option<Thread>,
    cores: Vec<Core>,
    disks: BTreeMap<String, Disk>,
    lines: BTreeMap<String, Line>,
}

impl Counters {
    /// Reads the counters of the threads of `servers`, and of the calling thread.
    pub(super) fn read(servers: &[u32]) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let threads = (0..).zip(servers).flat_map(|(process, &pid)| threads_of(process, pid));
        // `/sys/block` contains only whole disks.
        let is_whole = |name: &str| fs::exists(format!("/sys/block/{name}")).unwrap_or(false);
        let carries = |name: &str| text(&format!("/sys/class/net/{name}/speed")).trim().parse().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Self {
            at: Instant::now(),
            threads: threads.collect(),
            load: thread(0, "load".to_owned(), &text("/proc/thread-self/schedstat")),
            cores: cores(&text("/proc/stat"), ticks),
            disks: disks(&text("/proc/diskstats"), is_whole),
            lines: lines(&text("/proc/net/dev"), carries),
        }
    }

    /// Returns the activity since `before`; idle disks are omitted.
    pub(super) fn since(&self, before: &Self) -> Readings {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        // Threads that have ended are missing: their counters are gone with them.
        let threads = self.threads.iter().map(|(key, now)| spent(now, before.threads.get(key)));
        let load = self.load.as_ref().map(|now| spent(now, before.load.as_ref()));
        let cores = self.cores.iter().filter_map(|now| {
            let then = before.cores.iter().find(|then| then.core == now.core)?;
            let busy_seconds = now.busy_seconds - then.busy_seconds;
            Some(Core { busy_seconds, stolen_seconds: now.stolen_seconds - then.stolen_seconds, ..*now })
        });
        let disks = self.disks.iter().filter_map(|(name, now)| {
            let disk = grown(now, before.disks.get(name)?, seconds);
            (disk.operations() > 0).then_some(disk)
        });
        let lines = self.lines.iter().filter_map(|(name, now)| {
            // An interface that came up meanwhile has no earlier count, and is omitted.
            let then = before.lines.get(name)?;
            Some(Line {
                received_bytes: now.received_bytes.saturating_sub(then.received_bytes),
                sent_bytes: now.sent_bytes.saturating_sub(then.sent_bytes),
                ..now.clone()
            })
        });
        Readings {
            threads: threads.collect(),
            load,
            cores: cores.collect(),
            disks: disks.collect(),
            lines: lines.collect(),
            ..Readings::default()
        }
    }
}

/// Returns the activity of a disk from `then` to `now`, in `seconds`.
pub(super) fn grown(now: &Disk, then: &Disk, seconds: f64) -> Disk {
    Disk {
        name: now.name.clone(),
        member: now.member,
        seconds,
        busy_seconds: now.busy_seconds - then.busy_seconds,
        waited_seconds: now.waited_seconds - then.waited_seconds,
        reads: now.reads.saturating_sub(then.reads),
        writes: now.writes.saturating_sub(then.writes),
    }
}

fn spent(now: &Thread, then: Option<&Thread>) -> Thread {
    // A thread that did not exist before starts at zero.
    Thread {
        cpu_seconds: now.cpu_seconds - then.map_or(0.0, |then| then.cpu_seconds),
        queued_seconds: now.queued_seconds - then.map_or(0.0, |then| then.queued_seconds),
        ..now.clone()
    }
}

/// Returns the present threads of a process.
fn threads_of(process: u32, pid: u32) -> Vec<((u32, u32), Thread)> {
    let folder = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?.trim().to_owned();
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        Some(((process, tid), thread(process, name, &text)?))
    };
    folder.filter_map(read).collect()
}

/// Parses `schedstat`: nanoseconds on a core, nanoseconds in a run queue, time slices.
fn thread(process: u32, name: String, text: &str) -> Option<Thread> {
    let mut nanos = text.split_whitespace().map_while(|word| word.parse::<u64>().ok()).map(|nanos| nanos as f64 / 1e9);
    Some(Thread { process, name, cpu_seconds: nanos.next()?, queued_seconds: nanos.next()? })
}

/// Parses the `cpuN` lines of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
fn cores(text: &str, ticks: f64) -> Vec<Core> {
    let core = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let core = words.next()?.parse().ok()?;
        let counts: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        // Guest time is left out, since the kernel includes it in user and nice time (proc(5)).
        let &[user, nice, system, _, _, irq, softirq, steal, ..] = counts.as_slice() else { return None };
        let busy_seconds = (user + nice + system + irq + softirq) / ticks;
        Some(Core { core, busy_seconds, stolen_seconds: steal / ticks })
    };
    // The line without a number is the sum of all cores.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(core).collect()
}

/// Parses the whole disks of `/proc/diskstats`.
fn disks(text: &str, is_whole: impl Fn(&str) -> bool) -> BTreeMap<String, Disk> {
    let disk = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = (*words.get(2)?).to_owned();
        // Fields, counted from 0: 3 reads, 7 writes, 12 milliseconds busy, 13 weighted milliseconds.
        let count = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        let (busy_ms, waited_ms) = (count(12)?, count(13)?);
        let disk = Disk {
            name: name.clone(),
            busy_seconds: busy_ms as f64 / 1e3,
            waited_seconds: waited_ms as f64 / 1e3,
            reads: count(3)?,
            writes: count(7)?,
            ..Disk::default()
        };
        // Partitions repeat the counters of their disk.
        is_whole(&name).then_some((name, disk))
    };
    text.lines().filter_map(disk).collect()
}

/// Parses the interfaces of `/proc/net/dev` without loopback; `carries` returns the speed in Mbit/s.
fn lines(text: &str, carries: impl Fn(&str) -> Option<i64>) -> BTreeMap<String, Line> {
    let line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let name = name.trim().to_owned();
        let counts: Vec<u64> = counts.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let (&received_bytes, &sent_bytes) = (counts.first()?, counts.get(8)?);
        // A link without a carrier reports -1.
        let bytes_per_second = carries(&name).and_then(|megabits| u64::try_from(megabits).ok()).map(|m| m * 125_000);
        (name != "lo").then(|| (name.clone(), Line { name, received_bytes, sent_bytes, bytes_per_second }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read_in_its_units() {
        let read = thread(1, "shard-0".into(), "2500000000 500000000 17\n").expect("it is as the kernel writes it");
        assert_eq!((read.cpu_seconds, read.queued_seconds), (2.5, 0.5));
        assert_eq!(thread(0, String::new(), "gone"), None);
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 700 3 20 30 40 0 0\nintr 5\n";
        assert_eq!(cores(stat, 100.0), [Core { core: 0, busy_seconds: 2.0, stolen_seconds: 0.4 }]);
        let stats = "   8  0 sda 10 0 80 9 20 0 160 30 0 1500 3000\n   8  1 sda1 1 0 8 1 0 0 0 0 0 1 1\n";
        let disks = disks(stats, |name| name == "sda");
        assert_eq!((disks.len(), disks["sda"].operations()), (1, 30));
        assert_eq!((disks["sda"].busy_seconds, disks["sda"].waited_seconds), (1.5, 3.0));
        let dev = "Inter-| Receive\n face |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1\n  eth0: 700 1 0 0 0 0 0 0 900 1 0 0\n";
        let lines = lines(dev, |_| Some(10_000));
        let eth0 =
            Line { name: "eth0".into(), received_bytes: 700, sent_bytes: 900, bytes_per_second: Some(1_250_000_000) };
        assert_eq!(lines.into_values().collect::<Vec<_>>(), [eth0]);
    }

    #[test]
    fn a_busy_thread_is_seen_to_be_busy() {
        let ran = || {
            let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            ran.tv_sec * 1_000_000_000 + ran.tv_nsec
        };
        let before = Counters::read(&[std::process::id()]);
        // Independent of how little of a core the thread gets.
        let until = ran() + 60_000_000;
        while ran() < until {
            std::hint::spin_loop();
        }
        let seen = Counters::read(&[std::process::id()]).since(&before);
        assert!(seen.load.as_ref().is_some_and(|thread| thread.cpu_seconds > 0.01), "{seen:?}");
        assert!(seen.threads.iter().any(|thread| thread.cpu_seconds > 0.01) && !seen.cores.is_empty(), "{seen:?}");
    }
}
