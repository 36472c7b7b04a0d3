//! Memory of a pool that is opened read-only: the content of its logs, and no more.

use crate::care::filled;
use crate::node::{MEMBERS, Node, name};
use control::request::ImportPool;
use engine::Limits;
use model::{PoolState, VolumeState, code};
use sim::Sim;

/// Kills a node while a host writes, and opens its pool read-only on another node with this much memory; returns the
/// refusal, if any.
fn opened_with(read_only_bytes_max: u64) -> Option<String> {
    Sim::new(61).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        node.kill();
        let within = |limits| Limits { read_only_bytes_max, ..limits };
        let other = Node::start_second_within(&sim, within).await;
        for (disk, handle) in MEMBERS.iter().zip(&disks) {
            other.attach_disk(disk, handle).await;
        }
        let writes = || disks.iter().map(|disk| disk.counts().writes).sum::<u64>();
        let before = writes();
        let request = ImportPool { read_only: true, force: true, ..ImportPool::default() };
        let imported = other.control.pools.import(&name("tank"), request).await;
        assert_eq!(writes(), before, "nothing is written to the disks");
        match imported {
            Ok(pool) => {
                assert!(pool.read_only.is_some() && pool.state != PoolState::Failed, "{pool:?}");
                let volume = other.control.volumes.report(&"tank/vm1".parse().unwrap()).await.unwrap();
                assert_eq!(volume.state, VolumeState::Online);
                None
            }
            Err(refusal) => {
                assert_eq!(refusal.code, code::LIMIT_REACHED, "{refusal}");
                assert!(other.control.pools.list().await.unwrap().is_empty());
                assert!(other.control.volumes.list().await.unwrap().is_empty(), "nothing half open is left");
                // A refusal does not prevent opening the pool for writing.
                let request = ImportPool { force: true, confirmed: true, ..ImportPool::default() };
                other.control.pools.import(&name("tank"), request).await.unwrap();
                Some(refusal.to_string())
            }
        }
    })
}

#[test]
fn pool_whose_logs_hold_more_than_memory_may_be_taken_for_is_refused_and_never_shown_in_part() {
    // From nothing to enough: whichever step of the recovery lacks memory, the pool is refused.
    let mut refused = 0;
    let mut bytes = 4096;
    while let Some(sentence) = opened_with(bytes) {
        assert!(sentence.contains("exceeds the") && sentence.contains("of memory for read-only pools"), "{sentence}");
        refused += 1;
        bytes += bytes / 2 / 4096 * 4096 + 4096;
        assert!(bytes < 64 << 20, "it would need {bytes} bytes");
    }
    assert!(refused > 3, "{bytes} bytes are enough");
}
