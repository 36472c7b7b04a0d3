//! Profile `network`: every network fault, with healthy volumes.

use crate::host::traffic::WorkloadProfile;
use crate::pool::PoolPlan;
use crate::stage::{CheckResult, PresentedVolume, Stage, Traffic};
use model::Level;
use shard::World;
use sim::NetworkFaults;
use std::time::Duration;

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let volumes = volumes(stage).await?;
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    let breaks = stage.chance.percent(75);
    let habits = WorkloadProfile {
        depth: 8,
        blocks: stage.chance.within(1..=16),
        large_bytes: stage.chance.pick(&[16 << 10, 256 << 10]),
        manages: stage.chance.percent(60),
        drops_connections: breaks && stage.chance.percent(50),
        media_fail: false,
        answers_within: None,
    };
    // Only after the volumes exist, since orders do not use the network.
    stage.world.network().set_faults(stage.bad_network(breaks));
    let traffic = stage.start_hosts(stage.chance.count(1..=3), stage.chance.within(50..=250), &units, &habits);
    if breaks {
        disturb(stage, &traffic).await;
    }
    stage.until_over(&traffic, Duration::from_secs(1)).await;
    // The network is healthy again, so that what does not end now never ends.
    stage.world.network().set_faults(NetworkFaults::default());
    stage.until_quiet(&traffic).await?;
    // Twice: the first check decides what each block holds, and the second must find the same.
    stage.check_all_blocks(&units).await?;
    stage.check_all_blocks(&units).await?;
    leave(stage).await
}

/// Injects network faults until the hosts have no commands left.
async fn disturb(stage: &Stage, traffic: &Traffic) {
    let (chance, network) = (&stage.chance, stage.world.network());
    // The array has a portal on each of its two addresses.
    let (hosts, array) = (stage.world.address(), [stage.array.address(), [10, 0, 1, 2].into()]);
    for _ in 0..chance.below(12) {
        stage.world.sleep(chance.moment(Duration::from_secs(10))).await;
        if traffic.is_over() {
            return;
        }
        match chance.below(4) {
            0 => network.reset_all(),
            1 => network.set_faults(stage.bad_network(true)),
            2 => network.set_faults(stage.bad_network(false)),
            _ => {
                // The other of the two portals stays reachable.
                network.cut(hosts, chance.pick(&array));
                stage.world.sleep(chance.moment(Duration::from_secs(100))).await;
                network.heal();
            }
        }
    }
}

/// Creates one or two volumes, in memory or in a pool.
async fn volumes(stage: &Stage) -> CheckResult<Vec<PresentedVolume>> {
    let block_bytes = stage.chance.pick(&[512, 4096]);
    let pool = if stage.chance.percent(35) {
        let plan = PoolPlan::of_chance(stage, &Level::ALL);
        Some(plan.make(stage).await?)
    } else {
        None
    };
    let mut volumes = Vec::new();
    for number in 0..stage.chance.within(1..=2) {
        let number = u16::try_from(number).expect("few volumes");
        let bytes = stage.chance.within(1..=8) << 20;
        let name = pool.as_ref().map(|pool| &pool.name);
        volumes.push(stage.make_volume(name, number, bytes, block_bytes).await?);
    }
    Ok(volumes)
}

/// Checks that no session remains.
async fn leave(stage: &Stage) -> CheckResult<()> {
    // Connections that the initiator lost end after the idle timeout of the target.
    stage.world.sleep(Duration::from_secs(60)).await;
    let sessions = stage.sessions().await;
    if !sessions.is_empty() {
        return Err(format!("sessions are left that nobody has: {sessions:?}"));
    }
    Ok(())
}
