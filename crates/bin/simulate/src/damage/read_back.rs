//! Complete read of volumes that may have lost data.

use crate::host::command::{self, Verdict};
use crate::host::session::{Answer, Session};
use crate::host::traffic::{Host, Unit, WorkloadProfile};
use crate::stage::{CheckResult, Stage};
use crate::volumes::runs;
use iscsi::initiator::Command;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Attempts for a unit that is not ready.
const TRIES: u32 = 20;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of blocks and units that were lost.
#[derive(Debug, Default)]
pub(super) struct LossCount {
    pub lost_blocks: u64,
    pub lost_units: u64,
}

/// Result of a command.
enum ReadOutcome {
    Data(block::Buf),
    Error,
}

impl Stage {
    /// Reads every written block of `units` and counts errors; data that the oracle does not allow fails the run.
    pub(super) async fn check_with_losses(&self, units: &[Unit]) -> CheckResult<LossCount> {
        let habits = WorkloadProfile {
            depth: 1,
            blocks: 1,
            large_bytes: 0,
            manages: false,
            drops_connections: false,
            media_fail: true,
            answers_within: None,
        };
        // No host of the load has this number, so its session replaces none.
        let host = self.host(200, &Rc::new(Cell::new(0)), units, habits);
        let Some(session) = host.log_in_to_whatever_serves().await else { return Err("nobody can log in".to_owned()) };
        let mut seen = LossCount::default();
        for unit in units {
            match self.came(&host, &session, || command::read_capacity(unit.lun)).await? {
                ReadOutcome::Data(_) => seen.lost_blocks += self.look_at_blocks(&host, &session, unit).await?,
                ReadOutcome::Error => seen.lost_units += 1,
            }
        }
        session.logout().await;
        Ok(seen)
    }

    async fn look_at_blocks(&self, host: &Host, session: &Session, unit: &Unit) -> CheckResult<u64> {
        // Blocks that were never written hold no data that could be lost.
        let touched = unit.oracle.borrow().touched();
        let mut lost = 0;
        for range in runs(&touched) {
            if self.reads(host, session, unit, range.clone()).await? {
                continue;
            }
            // The large read failed. One block per command shows which of them are lost.
            for block in range {
                lost += u64::from(!self.reads(host, session, unit, block..block + 1).await?);
            }
        }
        Ok(lost)
    }

    /// Reads a range and lets the oracle judge the data; false for an I/O error.
    async fn reads(&self, host: &Host, session: &Session, unit: &Unit, range: Range<u64>) -> CheckResult<bool> {
        // Begun before the command is sent, since a value that is written meanwhile would be allowed.
        let op = unit.oracle.borrow_mut().begin();
        match self.came(host, session, || command::read(unit.lun, &range, unit.block_bytes)).await? {
            ReadOutcome::Data(data) => unit.oracle.borrow_mut().end_read(op, range, &data).map(|()| true),
            ReadOutcome::Error => {
                unit.oracle.borrow_mut().give_up(op);
                Ok(false)
            }
        }
    }

    async fn came(&self, host: &Host, session: &Session, command: impl Fn() -> Command) -> CheckResult<ReadOutcome> {
        for _ in 0..TRIES {
            let mut done = match host.until_abort_timeout(session.command(command(), |_| ())).await {
                Some(Answer::Completed(done)) => done,
                Some(answer) => return Err(format!("a command was answered with {answer:?}")),
                None => return Err("a command has no answer".to_owned()),
            };
            match command::verdict(&done) {
                Verdict::Good => {
                    let data = done.data_in.take();
                    return Ok(ReadOutcome::Data(data.unwrap_or_else(|| block::Buf::zeroed(0))));
                }
                // The attention has taken the place of the command, so it is sent again.
                Verdict::Attention(..) | Verdict::Aborted => {}
                Verdict::NotNow => shard::World::sleep(&self.world, PAUSE).await,
                // Every other answer is a loss; whether it is allowed depends on the corruption, which the caller
                // knows.
                _ => return Ok(ReadOutcome::Error),
            }
        }
        Ok(ReadOutcome::Error)
    }
}
