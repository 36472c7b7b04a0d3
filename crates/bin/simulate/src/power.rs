//! The power goes and comes back, or the data plane is killed; and then everything is found again.

use crate::oracle::Torn;
use crate::pool::Pool;
use crate::stage::{Judged, Presented, Stage};
use futures_util::future::{Either, select};
use model::{Order, PoolReport, Refusal, Report, VolumeReport};
use shard::World;
use sim::Crash;
use std::pin::pin;
use std::time::Duration;

/// The longest that an order is let alone before the power goes.
const ORDER_TIME_MAX: Duration = Duration::from_millis(60);

/// What an order came to before the power went.
pub(crate) enum Came {
    /// It was answered.
    Answered(Result<(), Refusal>),
    /// The power goes first.
    Dark,
}

impl Stage {
    /// The data plane dies at this instant: by a power cut of its machine, or alone. What that does to blocks under way.
    pub(crate) fn pull_the_plug(&self, volumes: &[Presented]) -> Torn {
        let small_blocks = volumes.iter().any(|volume| volume.unit.block_bytes < 4096);
        match self.chance.below(8) {
            0 | 1 => self.kill(volumes),
            2 => self.cut_power(volumes, Crash::AllLanded),
            3 => self.cut_power(volumes, Crash::NoneLanded),
            // A torn atom takes its neighbours in a block of 4096 bytes along, which other small blocks are.
            4 | 5 if !small_blocks => self.cut_power(volumes, Crash::Torn),
            _ => self.cut_power(volumes, Crash::AnySubset),
        }
    }

    /// The data plane dies alone: its disks keep what is in their caches.
    pub(crate) fn kill(&self, volumes: &[Presented]) -> Torn {
        self.array.kill();
        self.forget_what_was_under_way(volumes, Torn::Whole)
    }

    /// The machine has no power any more, and its disks keep what `crash` says.
    pub(crate) fn cut_power(&self, volumes: &[Presented], crash: Crash) -> Torn {
        self.array.crash(crash);
        let torn = match crash {
            Crash::AllLanded | Crash::NoneLanded => Torn::Whole,
            Crash::AnySubset => Torn::Mixed,
            Crash::Torn => Torn::Garbage,
        };
        self.forget_what_was_under_way(volumes, torn)
    }

    fn forget_what_was_under_way(&self, volumes: &[Presented], torn: Torn) -> Torn {
        self.lives.set(self.lives.get() + 1);
        self.is_dead.set(true);
        tracing::info!(at = self.world.now().0, ?torn, "the plug is pulled");
        self.doubt_what_failed(volumes, torn);
        torn
    }

    /// Of writes that were not answered with GOOD nobody can tell whether they are there once the pool is opened anew.
    pub(crate) fn doubt_what_failed(&self, volumes: &[Presented], torn: Torn) {
        for volume in volumes {
            volume.unit.oracle.borrow_mut().crash(torn);
        }
    }

    /// What the order comes to, unless it is time to pull the plug before.
    pub(crate) async fn until_dark(&self, order: Order) -> Came {
        if self.chance.percent(40) {
            return Came::Answered(self.ask(order).await.map(drop));
        }
        let dark = self.world.sleep(self.chance.moment(ORDER_TIME_MAX));
        match select(pin!(self.ask(order)), dark).await {
            Either::Left((answer, _)) => Came::Answered(answer.map(drop)),
            Either::Right(_) => Came::Dark,
        }
    }

    /// The machine has power, the data plane runs, and has nothing open.
    pub(crate) async fn come_back(&self, pool: &Pool) {
        self.world.sleep(self.chance.moment(Duration::from_secs(10))).await;
        pool.shuffle_places(self);
        self.array.boot();
        self.start_daemon();
    }

    /// The pool is open again, and the hosts are let in.
    pub(crate) async fn reopen(&self, pool: &Pool, volumes: &[Presented]) -> Judged<PoolReport> {
        let report = pool.open(self).await?;
        self.expect_volumes(volumes).await?;
        self.present(volumes).await?;
        self.open_portals().await?;
        Ok(report)
    }

    /// The data plane ends in good order, and is started again.
    pub(crate) async fn restart(&self, pool: &Pool, volumes: &[Presented]) -> Judged<PoolReport> {
        self.order(Order::Stop).await?;
        self.array.kill();
        self.come_back(pool).await;
        self.reopen(pool, volumes).await
    }

    /// The volumes of the data plane.
    pub(crate) async fn volumes(&self) -> Judged<Vec<VolumeReport>> {
        match self.order(Order::Volumes).await? {
            Report::Volumes(found) => Ok(found),
            other => Err(format!("Volumes was answered with {other:?}")),
        }
    }

    /// The data plane has exactly these volumes.
    async fn expect_volumes(&self, volumes: &[Presented]) -> Judged<()> {
        let found = self.volumes().await?;
        let there = |volume: &Presented| {
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
