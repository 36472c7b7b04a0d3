//! At 3 am a disk fails under load, no operator intervenes, and the array is healthy again.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{BLOCKS, MEMBERS, Node, name};
use model::{PoolState, event};
use shard::World;
use sim::Sim;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Returns the content of block `block` after round `round` over the volume.
fn fill(round: u64, block: u64) -> u8 {
    (round * 31 + block * 7 + 1).to_le_bytes()[0]
}

#[test]
fn disk_that_dies_at_night_is_replaced_by_a_spare_and_nothing_is_lost() {
    for (seed, shards) in [(1, 1), (2, 2), (3, 1)] {
        Sim::new(seed).run(async move |sim| {
            let node = Node::start(&sim, shards).await;
            let mut disks = Vec::new();
            for disk in MEMBERS {
                disks.push(node.add_disk(disk, 80).await);
            }
            // Neither the first nor the smallest that fits.
            let _others =
                [node.add_disk("s0", 128).await, node.add_disk("s1", 64).await, node.add_disk("s2", 96).await];
            node.furnish(&["s0", "s1", "s2"]).await;
            let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
            host.take_attention().await;

            let dead = usize::try_from(sim.random_below(4)).unwrap();
            let (over, watched) = (Rc::new(Cell::new(false)), disks[dead].clone());
            let mut last = 0;
            for round in 0.. {
                last = round;
                for block in 0..BLOCKS {
                    host.write(block, fill(round, block)).await;
                    if round == 1 && block == BLOCKS / 2 {
                        watched.fail();
                        over.set(true);
                    }
                }
                if over.get() && node.state().await == PoolState::Healthy {
                    break;
                }
                assert!(round < 1000, "the pool is {:?}", node.state().await);
                sim.sleep(Duration::from_millis(100)).await;
            }
            let pool = node.control.pools.report(&name("tank")).await.unwrap();
            let place = &pool.groups[0].members[dead];
            assert_eq!(place.disk, Some(name("s2")), "the smallest that fits");
            assert_eq!(place.replaces.as_deref(), Some(MEMBERS[dead]));
            let told = node.codes().await;
            for code in [event::DISK_FAILED, event::SPARE_TOOK_OVER, event::REBUILD_ENDED, event::POOL_WHOLE] {
                assert_eq!(told.iter().filter(|told| **told == code).count(), 1, "{code}: {told:?}");
            }
            // The group has more space than hosts have written, and only that was written to the new disk.
            let events = node.control.reconciler.events(control::EventFilter::default()).await;
            let filled = events.iter().find(|told| told.code == event::REBUILD_ENDED).expect("it was told");
            let written = filled.message.split(" finished: ").nth(1).and_then(|said| said.split(' ').next());
            let unit = filled.message.contains(" KiB written to it in ");
            let written: f64 = written.expect("an amount").parse().expect("a number");
            assert!(unit && written < 1024.0, "{}", filled.message);

            // Redundancy is restored: another disk may fail.
            disks[(dead + 1) % 4].fail();
            for block in 0..BLOCKS {
                let found = host.read(block).await;
                assert_eq!(found, [fill(last, block); 512], "block {block}");
            }
        });
    }
}
