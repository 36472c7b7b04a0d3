//! Queries: reports of the present state, and calls of the control plane that wait for news.

use super::Conductor;
use crate::unit;
use model::{Activity, EngineReport, Order, Refusal, Report};
use shard::World;

impl<W: World> Conductor<W> {
    pub(super) async fn answer(&self, order: &Order) -> Result<Report, Refusal> {
        Ok(match order {
            Order::Status => Report::Engine(engine_report(self)),
            Order::Disks => Report::Disks(self.disk_reports().await),
            Order::InspectDisk { path, remote } => Report::Disk(self.inspect_disk(path, remote.as_deref()).await?),
            Order::Pools => Report::Pools(self.pool_reports().await),
            Order::Volumes => Report::Volumes(self.volume_reports().await),
            Order::HeldVolumes => Report::Volumes(self.blocked_volumes().await),
            Order::UnitShapes => Report::UnitShapes(self.unit_shapes().await),
            Order::VolumeNames => Report::VolumeNames(self.volume_names()),
            Order::Volume { volume } => Report::Volumes(self.volume_report(volume).await.into_iter().collect()),
            Order::Snapshots => Report::Snapshots(self.snapshot_reports().await),
            Order::CheckPool { pool, repair, accept_loss } => {
                let (pool, repair, accept_loss) = (pool.clone(), *repair, *accept_loss);
                let home = self.pool_home(&pool)?.home;
                Report::Check(self.at(home, move |shard| crate::pool::check(shard, pool, repair, accept_loss)).await?)
            }
            Order::DumpPool { pool } => {
                let pool = pool.clone();
                let home = self.pool_home(&pool)?.home;
                Report::Text(self.at(home, move |shard| crate::pool::dump(shard, pool)).await?)
            }
            Order::Activity => Report::Activity(self.activity().await),
            Order::Latencies { volume } => Report::Latencies(self.latencies(volume).await?),
            Order::KeepState { version, bytes } => self.keep_state(*version, bytes).await?,
            Order::SetReadCache { bytes } => {
                // Each shard gets its share of the new total.
                let of_shard = self.shard.limits.read_cache_bytes_of(*bytes);
                for home in 0..self.shard.limits.shards {
                    self.shard.call(home, move |shard| async move { shard.cache.reads.set_bytes_max(of_shard) }).await;
                }
                Report::Done
            }
            Order::KnowMemberships { known } => {
                self.shard.memberships.know(known.clone());
                Report::Done
            }
            Order::NextMemberships => Report::Memberships(self.shard.memberships.next().await),
            Order::MembershipsKept { generations } => {
                self.shard.memberships.kept(generations);
                Report::Done
            }
            // Waits for news in a task of its own, so no other order is held up.
            Order::NextEvents => Report::Events(self.shard.events.next().await),
            // An unknown volume is refused here, so that every front end answers alike.
            _ if order.is_for_front_ends() => {
                order.volume_for_front_ends().map(|volume| self.volume_home(volume)).transpose()?;
                return self.front.clone().carry_out(order.clone()).await;
            }
            _ => unreachable!("{order:?} is no question; `is_question` decides"),
        })
    }

    async fn activity(&self) -> Activity {
        let mut volumes = Vec::new();
        // In batches: commands on the shard wait while one is collected.
        for home in 0..self.shard.limits.shards {
            let mut after = None;
            loop {
                let next = self.shard.call(home, move |shard| async move { unit::activities(&shard, after) });
                let next = next.await.unwrap_or_default();
                after = next.last().map(|volume| volume.id);
                let is_last = next.len() < unit::ACTIVITIES_MAX;
                volumes.extend(next);
                if is_last {
                    break;
                }
            }
        }
        Activity {
            volumes,
            disks: self.disk_counters().await.into_iter().collect(),
            sessions: self.front.session_activities(),
        }
    }
}

fn engine_report<W: World>(conductor: &Conductor<W>) -> EngineReport {
    let limits = &conductor.shard.limits;
    let totals = conductor.front.totals();
    EngineReport {
        shards: u32::try_from(limits.shards).unwrap_or(u32::MAX),
        io: conductor.io.clone(),
        uptime_seconds: conductor.shard.world.now().since(conductor.started).as_secs(),
        sessions: u32::try_from(totals.sessions).unwrap_or(u32::MAX),
        commands: totals.commands,
        read_bytes: totals.read_bytes,
        written_bytes: totals.written_bytes,
        buffer_bytes: block::pool::taken_bytes(),
        buffer_bytes_max: limits.buffer_bytes_max,
    }
}
