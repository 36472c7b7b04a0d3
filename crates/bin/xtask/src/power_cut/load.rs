//! Load of a round: writes until the kill, and reads all blocks afterwards.

use super::oracle::{BLOCK_BYTES, Oracle};
use crate::client::{Client, ensure_good};
use anyhow::{Context, Result};
use block::{Buf, Rope};
use iscsi::TaskId;
use iscsi::initiator::DataIn;
use lab::random::Random;
use lab::target::Unit;
use lab::target::product::Product;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of blocks in use; small, so that each is written many times.
pub(super) const BLOCKS: u64 = 24 << 11;
const DEPTH: usize = 24;
const WRITE_BLOCKS_MAX: u64 = 400;
const READ_BLOCKS: u32 = 256;

/// Load of one round.
pub(super) struct Load<'a> {
    pub random: Random,
    /// Time from the first write to the kill.
    pub span: Duration,
    /// Member that fails in the middle of the load.
    pub victim: Option<&'a str>,
}

impl Load<'_> {
    /// Writes for `span`, kills the daemon, and records the acknowledgments; returns their number.
    pub(super) fn run(&mut self, product: &mut Product, unit: &Unit, oracle: &mut Oracle) -> Result<u64> {
        let mut client = Client::log_in(unit, 1)?;
        let mut under_way = BTreeMap::new();
        let mut acknowledged = 0;
        let begin = Instant::now();
        let half = self.span / 2;
        while begin.elapsed() < half {
            acknowledged += self.turn(&mut client, oracle, &mut under_way)?;
        }
        std::thread::scope(|scope| -> Result<()> {
            let product = &*product;
            // The load goes on while the member fails, hence the thread.
            let failing = self.victim.map(|disk| scope.spawn(move || product.attempt(&["disk", "fail", disk])));
            // The answer is awaited: a member that has half failed at the kill could be in either state.
            while begin.elapsed() < self.span || failing.as_ref().is_some_and(|failing| !failing.is_finished()) {
                acknowledged += self.turn(&mut client, oracle, &mut under_way)?;
            }
            if let Some(failing) = failing {
                let ended = failing.join().expect("the command line does not panic")?;
                anyhow::ensure!(ended.well(), "disk fail: {}", ended.said.trim());
            }
            Ok(())
        })?;
        // A random delay, so that the kill does not always follow a turn of the initiator.
        std::thread::sleep(Duration::from_micros(self.random.below(400)));
        product.kill()?;
        // An answer that was sent before the kill counts, even if it is received only now.
        while !under_way.is_empty() && client.turn(Duration::from_millis(100)).is_ok() {
            match take_completions(&mut client, oracle, &mut under_way) {
                Ok(count) => acknowledged += count,
                Err(_) => break,
            }
        }
        Ok(acknowledged)
    }

    fn turn(
        &mut self,
        client: &mut Client,
        oracle: &mut Oracle,
        under_way: &mut BTreeMap<TaskId, (u64, u32)>,
    ) -> Result<u64> {
        // A range with an outstanding write is skipped; the next turn draws another.
        for _ in under_way.len()..DEPTH {
            let (lba, blocks) = self.place();
            if oracle.is_free(lba, blocks) {
                let (_, data) = oracle.submit(lba, blocks);
                let task = client.write(lba, Rope::from(Buf::copy_of(&data)))?;
                under_way.insert(task, (lba, blocks));
            }
        }
        client.turn(Duration::from_secs(10))?;
        take_completions(client, oracle, under_way)
    }

    /// Returns a range anywhere: mostly a few blocks, sometimes whole stripes.
    fn place(&mut self) -> (u64, u32) {
        let blocks =
            if self.random.one_in(4) { 1 + self.random.below(WRITE_BLOCKS_MAX) } else { 1 + self.random.below(16) };
        let lba = self.random.below(BLOCKS - blocks + 1);
        (lba, u32::try_from(blocks).expect("a write is short"))
    }
}

fn take_completions(
    client: &mut Client,
    oracle: &mut Oracle,
    under_way: &mut BTreeMap<TaskId, (u64, u32)>,
) -> Result<u64> {
    let mut acknowledged = 0;
    while let Some(completion) = client.completion()? {
        ensure_good(&completion)?;
        let (lba, blocks) = under_way.remove(&completion.task).context("a write ended that nobody sent")?;
        oracle.acknowledge(lba, blocks);
        acknowledged += 1;
    }
    Ok(acknowledged)
}

/// Reads and checks every block in use; returns the faults.
pub(super) fn judge(client: &mut Client, oracle: &mut Oracle) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let bytes = READ_BLOCKS as usize * BLOCK_BYTES;
    for lba in (0..BLOCKS).step_by(READ_BLOCKS as usize) {
        client.read(lba, READ_BLOCKS, DataIn::Into(Buf::zeroed(bytes)))?;
        let completion = client.await_completion()?;
        // An unreadable block ends the test, since no power cut may make one.
        ensure_good(&completion).with_context(|| format!("reading block {lba}"))?;
        let data = completion.data_in.context("a read brought nothing")?;
        anyhow::ensure!(data.len() == bytes, "a read of {bytes} bytes brought {}", data.len());
        faults.extend(oracle.judge(lba, &data));
    }
    Ok(faults)
}
