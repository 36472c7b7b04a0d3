//! One measurement: a load for a while, and what it cost.

use crate::client::{Client, ensure_good};
use anyhow::{Context, Result, ensure};
use block::{Buf, Rope};
use iscsi::initiator::DataIn;
use lab::random::Random;
use std::fs;
use std::time::{Duration, Instant};

const IO_BYTES: u32 = 4096;
const FILL_BYTES: u32 = 64 << 10;

/// What a client asks for.
pub struct Load {
    pub depth: usize,
    pub writes: bool,
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub iops: f64,
    /// CPU time of the server per command, in microseconds.
    pub server_us: f64,
    /// CPU time of the client per command, in microseconds.
    pub client_us: f64,
}

/// Keeps `load` up for `span`, and tells what it cost the process `server`.
pub fn run(client: &mut Client, server: u32, load: &Load, span: Duration) -> Result<Sample> {
    let blocks = IO_BYTES / client.block_bytes;
    let places = client.blocks / u64::from(blocks);
    let data = Rope::from(Buf::zeroed(IO_BYTES as usize));
    let mut random = Random::new(load.seed);
    let mut submit = |client: &mut Client| {
        let lba = random.below(places) * u64::from(blocks);
        if load.writes { client.write(lba, data.clone()) } else { client.read(lba, blocks, DataIn::Discard(IO_BYTES)) }
    };
    let (server_before, client_before) = (cpu_time(server)?, cpu_time(std::process::id())?);
    let begin = Instant::now();
    let mut under_way = 0;
    let mut ended: u64 = 0;
    while under_way > 0 || begin.elapsed() < span {
        while under_way < load.depth && begin.elapsed() < span {
            submit(client)?;
            under_way += 1;
        }
        client.turn(Duration::from_secs(10))?;
        while let Some(completion) = client.completion()? {
            ensure_good(&completion)?;
            ensure!(load.writes || completion.data_in_bytes == IO_BYTES, "a read brought too little");
            under_way -= 1;
            ended += 1;
        }
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let per_command = |pid: u32, before: Duration| -> Result<f64> {
        Ok(cpu_time(pid)?.saturating_sub(before).as_secs_f64() * 1e6 / ended as f64)
    };
    let client_us = per_command(std::process::id(), client_before)?;
    Ok(Sample { iops: ended as f64 / elapsed, server_us: per_command(server, server_before)?, client_us })
}

/// Writes every block of the unit once.
pub fn fill(client: &mut Client) -> Result<()> {
    let data = Rope::from(Buf::zeroed(FILL_BYTES as usize));
    let step = u64::from(FILL_BYTES / client.block_bytes);
    for lba in (0..client.blocks).step_by(usize::try_from(step)?) {
        client.write(lba, data.clone())?;
        ensure_good(&client.await_completion()?)?;
    }
    Ok(())
}

/// The median of each figure.
pub fn median(samples: &[Sample]) -> Sample {
    let of = |figure: fn(&Sample) -> f64| {
        let mut figures: Vec<f64> = samples.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or_default()
    };
    Sample { iops: of(|s| s.iops), server_us: of(|s| s.server_us), client_us: of(|s| s.client_us) }
}

/// The CPU time that all threads of a process have used, to the nanosecond.
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
pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.split_whitespace().next().and_then(|word| word.parse().ok()).context("no VmRSS")
}

/// This thread runs on `core` only.
pub fn stay_on(core: usize) -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_of_each_figure_alone() {
        let sample = |iops, server_us| Sample { iops, server_us, client_us: 0.0 };
        let middle = median(&[sample(3.0, 10.0), sample(1.0, 30.0), sample(2.0, 20.0)]);
        assert_eq!((middle.iops, middle.server_us), (2.0, 20.0));
        assert_eq!(median(&[]).iops, 0.0);
    }

    #[test]
    fn cpu_time_of_a_busy_process_grows() {
        let before = cpu_time(std::process::id()).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(cpu_time(std::process::id()).unwrap() > before);
    }
}
