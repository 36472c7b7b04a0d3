//! Power failures and kills of the data plane, and the restart after them.

use crate::oracle::Torn;
use crate::pool::Pool;
use crate::stage::{CheckResult, PresentedVolume, Stage};
use futures_util::future::{Either, select};
use model::{Order, PoolReport, Refusal, Report, VolumeReport};
use shard::World;
use sim::Crash;
use std::pin::pin;
use std::time::Duration;

/// Upper bound of the time before the power fails during an order.
const ORDER_TIME_MAX: Duration = Duration::from_millis(60);

/// Outcome of an order that a power failure may interrupt.
pub(crate) enum OrderOutcome {
    /// The order was answered.
    Answered(Result<(), Refusal>),
    /// The power fails before the answer.
    PowerFailed,
}

impl Stage {
    /// Ends the data plane now, by a power failure of its machine or by a kill; returns the possible state of blocks
    /// under way.
    pub(crate) fn crash_or_kill(&self, volumes: &[PresentedVolume]) -> Torn {
        let small_blocks = volumes.iter().any(|volume| volume.unit.block_bytes < 4096);
        match self.chance.below(8) {
            0 | 1 => self.kill(volumes),
            2 => self.cut_power(volumes, Crash::AllLanded),
            3 => self.cut_power(volumes, Crash::NoneLanded),
            // A torn atom damages its neighbors in the same 4096-byte block, which with small blocks may belong to
            // other blocks.
            4 | 5 if !small_blocks => self.cut_power(volumes, Crash::Torn),
            _ => self.cut_power(volumes, Crash::AnySubset),
        }
    }

    /// Kills the data plane; its disks keep the content of their caches.
    pub(crate) fn kill(&self, volumes: &[PresentedVolume]) -> Torn {
        // A kill leaves the machine running, so its disks lose nothing.
        self.array.kill();
        self.record_interruption(volumes, Torn::Whole)
    }

    /// Cuts the power of the machine; its disks keep what `crash` determines.
    pub(crate) fn cut_power(&self, volumes: &[PresentedVolume], crash: Crash) -> Torn {
        self.array.crash(crash);
        let torn = match crash {
            Crash::AllLanded | Crash::NoneLanded => Torn::Whole,
            Crash::AnySubset => Torn::Mixed,
            Crash::Torn => Torn::Garbage,
        };
        self.record_interruption(volumes, torn)
    }

    fn record_interruption(&self, volumes: &[PresentedVolume], torn: Torn) -> Torn {
        // Commands that were sent before are exempt from the limit on response times.
        self.lives.set(self.lives.get() + 1);
        self.is_dead.set(true);
        tracing::info!(at = self.world.now().0, ?torn, "the plug is pulled");
        self.mark_uncertain(volumes, torn);
        torn
    }

    /// Records that unacknowledged writes may or may not be present once the pool is opened again.
    pub(crate) fn mark_uncertain(&self, volumes: &[PresentedVolume], torn: Torn) {
        for volume in volumes {
            volume.unit.oracle.borrow_mut().crash(torn);
        }
    }

    /// Sends an order and returns its outcome, unless it is time to cut the power before.
    pub(crate) async fn until_power_failure(&self, order: Order) -> OrderOutcome {
        if self.chance.percent(40) {
            return OrderOutcome::Answered(self.ask(order).await.map(drop));
        }
        // Drawn before the order is sent, so that the failure may come at any step of it.
        let dark = self.world.sleep(self.chance.moment(ORDER_TIME_MAX));
        match select(pin!(self.ask(order)), dark).await {
            Either::Left((answer, _)) => OrderOutcome::Answered(answer.map(drop)),
            Either::Right(_) => OrderOutcome::PowerFailed,
        }
    }

    /// Restores the power and starts the data plane, with nothing open.
    pub(crate) async fn power_on(&self, pool: &Pool) {
        // Time passes without power, so that every timeout of hosts can expire.
        self.world.sleep(self.chance.moment(Duration::from_secs(10))).await;
        // The pool recognizes its disks by their labels, so their paths may change while there is no power.
        pool.shuffle_places(self);
        self.array.boot();
        self.start_daemon();
    }

    /// Opens the pool and lets the hosts log in.
    pub(crate) async fn reopen(&self, pool: &Pool, volumes: &[PresentedVolume]) -> CheckResult<PoolReport> {
        let report = pool.open(self).await?;
        self.expect_volumes(volumes).await?;
        self.present(volumes).await?;
        self.open_portals().await?;
        Ok(report)
    }

    /// Stops the data plane cleanly and restarts it.
    pub(crate) async fn restart(&self, pool: &Pool, volumes: &[PresentedVolume]) -> CheckResult<PoolReport> {
        self.order(Order::Stop).await?;
        // The machine stays powered, and only its tasks end.
        self.array.kill();
        self.power_on(pool).await;
        self.reopen(pool, volumes).await
    }

    /// Returns the volumes of the data plane.
    pub(crate) async fn volumes(&self) -> CheckResult<Vec<VolumeReport>> {
        match self.order(Order::Volumes).await? {
            Report::Volumes(found) => Ok(found),
            other => Err(format!("Volumes was answered with {other:?}")),
        }
    }

    /// Checks that the data plane has exactly these volumes.
    // Unchanged sizes matter as well: a growth that was cut off must not show in part.
    async fn expect_volumes(&self, volumes: &[PresentedVolume]) -> CheckResult<()> {
        let found = self.volumes().await?;
        let there = |volume: &PresentedVolume| {
            let bytes = volume.unit.oracle.borrow().blocks() * volume.unit.block_bytes as u64;
            found.iter().any(|found| found.id == volume.id && found.name == volume.name && found.size.bytes() == bytes)
        };
        if found.len() == volumes.len() && volumes.iter().all(there) {
            return Ok(());
        }
        let names: Vec<String> = volumes.iter().map(|volume| volume.name.to_string()).collect();
        Err(format!("the pool should have the volumes {names:?}, and has {found:?}"))
    }
}

#[cfg(test)]
mod tests;
