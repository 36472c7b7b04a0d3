//! Two nodes with access to the same disks.

use crate::care::filled;
use crate::node::{MEMBERS, Node, name};
use control::request::{ImportPool, NewBackend, NewGroup, NewPool, NewVolume, Removal, Unpresent};
use model::{Level, Name, PoolState, Size, code, event};
use shard::{DiskOptions, GroupCommit, World};
use sim::{DiskFaults, DiskHandle, Sim};
use std::rc::Rc;
use std::time::Duration;
use volume::{Uuid, assemble, probe};

fn tank() -> Name {
    name("tank")
}

/// Starts another node that knows the disks.
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
            let refused =
                other.control.pools.import(&tank(), ImportPool { force, ..ImportPool::default() }).await.unwrap_err();
            assert_eq!(refused.code, code::POOL_OWNED);
            assert_eq!(refused.message, "pool \"tank\" is in use by node array1; export it there first");
        }
        assert!(other.codes().await.contains(&event::IMPORT_REFUSED));
        assert_eq!(node.state().await, PoolState::Healthy, "nobody has disturbed it");
        let volume = "tank/vm1".parse().unwrap();
        node.control
            .presentations
            .unpresent(&Unpresent { volume, host: name("web"), target: None, force: true })
            .await
            .unwrap();
        node.control.pools.export(&tank(), Removal::default()).await.unwrap();
        let pool = other.control.pools.import(&tank(), ImportPool::default()).await.unwrap();
        assert_eq!((pool.state, pool.volumes), (PoolState::Healthy, 1));
        assert!(!other.codes().await.contains(&event::POOL_TAKEN_OVER), "it was let go of");
        assert_eq!(
            node.control
                .pools
                .import(&tank(), ImportPool { force: true, ..ImportPool::default() })
                .await
                .unwrap_err()
                .code,
            code::POOL_OWNED
        );
    });
}

#[test]
fn pool_of_a_node_that_died_is_taken_over_only_when_that_is_told() {
    Sim::new(32).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = second(&sim, &disks).await;
        node.kill();
        let refused = other.control.pools.import(&tank(), ImportPool::default()).await.unwrap_err();
        assert_eq!(refused.code, code::POOL_NOT_RELEASED);
        assert!(refused.message.contains("was in use by node array1") && refused.message.contains("--force"));
        let pool =
            other.control.pools.import(&tank(), ImportPool { force: true, ..ImportPool::default() }).await.unwrap();
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
        // A foreign node claims the pool without checking whether it is in use.
        let thief = sim.add_node("10.0.0.9".parse().unwrap());
        let mut open = Vec::new();
        for (path, disk) in ["/a", "/b", "/c", "/d"].into_iter().zip(&disks) {
            thief.attach_disk(path, disk);
            let options = DiskOptions { block_bytes: 4096, read_only: false };
            open.push(Rc::new(GroupCommit::new(thief.open_disk(path, options).await.unwrap())));
        }
        let mut probes = Vec::new();
        for disk in &open {
            probes.push(probe(disk).await);
        }
        let found = assemble(&probes).pools.remove(0);
        let node_id = cluster::Node {
            id: Uuid::from_u128(9),
            name: "thief".into(),
            boot_instance: Uuid::from_u128(9),
            machine: None,
        };
        found.claim(|place| open[place].clone(), &node_id, 1).await.unwrap();
        sim.sleep(Duration::from_secs(3)).await;
        assert!(node.codes().await.contains(&event::POOL_FENCED));
        assert_eq!(node.state().await, PoolState::Failed);
        assert_eq!(host.try_write(0, 1).await, Err((5, 0x25, 0)), "the volume is not there any more");
        let writes: Vec<u64> = disks.iter().map(|disk| disk.counts().writes).collect();
        sim.sleep(Duration::from_secs(30)).await;
        assert_eq!(disks.iter().map(|disk| disk.counts().writes).collect::<Vec<_>>(), writes, "nothing is written");
        // The pool can be closed, which writes nothing either.
        node.control.stop().await.unwrap();
        assert_eq!(disks.iter().map(|disk| disk.counts().writes).collect::<Vec<_>>(), writes);
    });
}

#[test]
fn pool_that_is_watched_before_it_is_opened_holds_up_nothing_else() {
    Sim::new(35).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = second(&sim, &disks).await;
        other.add_disk("e0", 80).await;
        node.kill();
        let (control, tank) = (&other.control, tank());
        let begin = sim.now();
        let meanwhile = async {
            sim.sleep(Duration::from_secs(1)).await;
            let backend = Some(NewBackend::Ram {});
            let spare = NewVolume { backend, ..NewVolume::new("spare".parse().unwrap(), Some(Size::new(1 << 20))) };
            control.volumes.create(spare).await.unwrap();
            let again =
                control.pools.import(&tank, ImportPool { force: true, ..ImportPool::default() }).await.unwrap_err();
            assert_eq!(again.code, code::POOL_BUSY);
            let in_use = control.disks.remove(&name("d0")).await.unwrap_err();
            assert_eq!((in_use.code, in_use.message.as_str()), (code::DISK_IN_USE, "disk d0 is a member of pool tank"));
            let groups = vec![NewGroup {
                level: Level::Raid0,
                chunk: None,
                no_integrity: true,
                member_size: None,
                disks: vec![name("e0")],
            }];
            let same = NewPool { name: tank.clone(), groups, force: false, spares: Vec::new(), spread: false };
            assert_eq!(control.pools.create(same).await.unwrap_err().code, code::NAME_TAKEN);
            assert!(sim.now() - begin < Duration::from_secs(2), "nobody has waited for the watch");
        };
        let (pool, ()) =
            tokio::join!(control.pools.import(&tank, ImportPool { force: true, ..ImportPool::default() }), meanwhile);
        assert!(sim.now() - begin > Duration::from_secs(6), "it was watched");
        assert_eq!(pool.unwrap().volumes, 1);
        assert_eq!(
            control.pools.import(&tank, ImportPool { force: true, ..ImportPool::default() }).await.unwrap_err().code,
            code::NAME_TAKEN
        );
        let seen: Vec<String> =
            control.volumes.list().await.unwrap().iter().map(|volume| volume.name.to_string()).collect();
        assert_eq!(seen, ["spare", "tank/vm1"]);
    });
}

#[test]
fn daemon_that_stops_while_it_watches_a_pool_lets_go_of_it() {
    Sim::new(36).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = second(&sim, &disks).await;
        node.kill();
        let tank = tank();
        let stopping = async {
            sim.sleep(Duration::from_secs(1)).await;
            other.control.stop().await.unwrap();
        };
        // The daemon no longer sees that the pool was opened and closed again.
        tokio::select! {
            _ = other.control.pools.import(&tank, ImportPool { force: true, ..ImportPool::default() }) => unreachable!("its turn never comes again"),
            () = stopping => {}
        }
        let node = node.revived(1, None).await;
        assert_eq!(node.state().await, PoolState::Healthy, "nobody else has it, and it needs no resync");
    });
}

/// A write waits for two disks that do not answer within an hour, one of which is needed: the daemon stops within a
/// bound, and names the pending work.
#[test]
fn daemon_whose_disk_does_not_answer_stops_within_a_bound_and_says_what_waits() {
    Sim::new(37).run(async move |sim| {
        let (node, disks, mut host) = filled(&sim, &[]).await;
        let hour = Duration::from_secs(3600);
        for disk in &disks[..2] {
            disk.set_faults(DiskFaults { latency: hour..=hour, ..DiskFaults::default() });
        }
        let _task = host.submit_write(0, 0x77).await;
        sim.sleep(Duration::from_secs(1)).await;
        let began = sim.now();
        let refusal = node.control.stop().await.unwrap_err();
        assert_eq!(refusal.code, code::STOP_INCOMPLETE);
        let waits = "commands of sessions that have ended, pool tank (the flush of its groups)";
        assert_eq!(refusal.message, format!("shutdown timed out: {waits}"));
        assert!(sim.now().since(began) < Duration::from_secs(45), "{:?}", sim.now().since(began));
    });
}
