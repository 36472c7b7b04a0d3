//! Two nodes that reach the same disks.

use crate::care::filled;
use crate::node::{MEMBERS, Node, name};
use control::request::Unpresent;
use model::{Name, PoolState, code, event};
use shard::{DiskOptions, GroupCommit, World};
use sim::{DiskHandle, Sim};
use std::rc::Rc;
use std::time::Duration;
use volume::{Uuid, assemble, probe};

fn tank() -> Name {
    name("tank")
}

/// Another node that knows the disks.
async fn second(sim: &Sim, disks: &[DiskHandle]) -> Node {
    let node = Node::start_second(sim).await;
    for (disk, handle) in MEMBERS.iter().zip(disks) {
        node.attach_disk(disk, handle).await;
    }
    node
}

#[test]
fn pool_is_refused_while_another_node_has_it_and_opened_once_that_has_exported_it() {
    Sim::new(31).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = second(&sim, &disks).await;
        for force in [false, true] {
            let refused = other.control.import_pool(&tank(), force).await.unwrap_err();
            assert_eq!(refused.code, code::POOL_OWNED);
            assert_eq!(refused.message, "pool \"tank\" is in use by node array1; export it there first");
        }
        assert!(other.codes().await.contains(&event::IMPORT_REFUSED));
        assert_eq!(node.state().await, PoolState::Healthy, "nobody has disturbed it");
        let volume = "tank/vm1".parse().unwrap();
        node.control.unpresent(&Unpresent { volume, host: name("web"), target: None }).await.unwrap();
        node.control.export_pool(&tank()).await.unwrap();
        let pool = other.control.import_pool(&tank(), false).await.unwrap();
        assert_eq!((pool.state, pool.volumes), (PoolState::Healthy, 1));
        assert!(!other.codes().await.contains(&event::POOL_TAKEN_OVER), "it was let go of");
        assert_eq!(node.control.import_pool(&tank(), true).await.unwrap_err().code, code::POOL_OWNED);
    });
}

#[test]
fn pool_of_a_node_that_died_is_taken_over_only_when_that_is_told() {
    Sim::new(32).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = second(&sim, &disks).await;
        node.kill();
        let refused = other.control.import_pool(&tank(), false).await.unwrap_err();
        assert_eq!(refused.code, code::POOL_NOT_RELEASED);
        assert!(refused.message.contains("was in use by node array1") && refused.message.contains("--force"));
        let pool = other.control.import_pool(&tank(), true).await.unwrap();
        assert_eq!(pool.volumes, 1);
        assert!(other.codes().await.contains(&event::POOL_TAKEN_OVER));
        sim.sleep(Duration::from_secs(60)).await;
        assert_ne!(other.state().await, PoolState::Failed, "it keeps what it has taken");
    });
}

#[test]
fn pool_of_a_node_that_is_started_again_is_open_at_once() {
    Sim::new(33).run(async move |sim| {
        let (node, _disks, _host) = filled(&sim, &[]).await;
        let node = node.restarted(1).await;
        assert_eq!(node.state().await, PoolState::Healthy);
    });
}

#[test]
fn pool_that_was_taken_over_is_not_written_any_more_and_operators_hear_of_it() {
    Sim::new(34).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &[]).await;
        // Somebody claims the pool and does not care whether it is in use.
        let thief = sim.add_node("10.0.0.9".parse().unwrap());
        let mut open = Vec::new();
        for (path, disk) in ["/a", "/b", "/c", "/d"].into_iter().zip(&disks) {
            thief.attach_disk(path, disk);
            let options = DiskOptions { block_bytes: 4096, read_only: false };
            open.push(Rc::new(GroupCommit::new(thief.open_disk(path, options).unwrap())));
        }
        let mut probes = Vec::new();
        for disk in &open {
            probes.push(probe(disk).await);
        }
        let found = assemble(&probes).pools.remove(0);
        let node_id = volume::Node { id: Uuid::from_u128(9), name: "thief".into(), seat: Uuid::from_u128(9) };
        found.claim(|place| open[place].clone(), &node_id, 1).await.unwrap();
        sim.sleep(Duration::from_secs(3)).await;
        assert!(node.codes().await.contains(&event::POOL_FENCED));
        assert_eq!(node.state().await, PoolState::Failed);
        assert_eq!(host.try_write(0, 1).await, Err((5, 0x25, 0)), "the volume is not there any more");
        let writes: Vec<u64> = disks.iter().map(|disk| disk.counts().writes).collect();
        sim.sleep(Duration::from_secs(30)).await;
        assert_eq!(disks.iter().map(|disk| disk.counts().writes).collect::<Vec<_>>(), writes, "nothing is written");
        // It can be closed, and that writes nothing either.
        node.control.stop().await.unwrap();
        assert_eq!(disks.iter().map(|disk| disk.counts().writes).collect::<Vec<_>>(), writes);
    });
}
