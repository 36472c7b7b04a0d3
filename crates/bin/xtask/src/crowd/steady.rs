//! Measured sessions: few of them, with few outstanding commands each.

use crate::client::{Client, ensure_good};
use anyhow::Result;
use iscsi::initiator::DataIn;
use lab::random::Random;
use std::time::{Duration, Instant};

const DEPTH: usize = 4;
const IO_BYTES: u32 = 4096;

/// Rate and latency of the measured sessions.
pub(super) struct Rate {
    pub per_second: f64,
    pub p99: Duration,
}

/// Measures random reads of 4 KiB on all sessions for `span`.
pub(super) fn measure(clients: &mut [Client], span: Duration) -> Result<Rate> {
    // A fixed seed, so that all measurements read the same blocks.
    let mut random = Random::new(1);
    let mut latencies: Vec<Duration> = Vec::new();
    let mut under_way: Vec<Vec<(iscsi::TaskId, Instant)>> = clients.iter().map(|_| Vec::new()).collect();
    let begin = Instant::now();
    // Commands in flight at the end are awaited, since the next measurement starts with idle sessions.
    while begin.elapsed() < span || under_way.iter().any(|tasks| !tasks.is_empty()) {
        for (client, tasks) in clients.iter_mut().zip(&mut under_way) {
            while tasks.len() < DEPTH && begin.elapsed() < span {
                let blocks = IO_BYTES / client.block_bytes;
                let lba = random.below(client.blocks / u64::from(blocks)) * u64::from(blocks);
                tasks.push((client.read(lba, blocks, DataIn::Discard(IO_BYTES))?, Instant::now()));
            }
            // Sessions are polled instead of awaited, so that one thread serves all of them.
            client.turn(Duration::ZERO)?;
            while let Some(completion) = client.completion()? {
                ensure_good(&completion)?;
                if let Some(at) = tasks.iter().position(|(task, _)| *task == completion.task) {
                    latencies.push(tasks.swap_remove(at).1.elapsed());
                }
            }
        }
    }
    let per_second = latencies.len() as f64 / begin.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    Ok(Rate { per_second, p99 })
}
