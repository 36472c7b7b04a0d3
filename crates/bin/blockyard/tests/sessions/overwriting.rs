//! A node that tries to overwrite disks with `--force` while another node uses them.

use crate::care::filled;
use crate::node::{BLOCKS, MEMBERS, Node, name};
use block::Blocks;
use block::memory::Ram;
use control::request::{ImportPool, NewBackend, NewGroup, NewPool, NewVolume, Removal};
use model::{Level, PoolState, Refusal, Size, code, event};
use shard::{DiskOptions, GroupCommit, World};
use sim::{DiskHandle, Sim};
use std::rc::Rc;
use std::time::Duration;
use volume::{BLOCK_BYTES, CreatePool, GroupPlan, Uuid, data_area};

async fn second(sim: &Sim, disks: &[DiskHandle]) -> Node {
    let node = Node::start_second(sim).await;
    for (disk, handle) in MEMBERS.iter().zip(disks) {
        node.attach_disk(disk, handle).await;
    }
    node
}

async fn overwrite(node: &Node, force: bool) -> Result<(), Refusal> {
    let disks = MEMBERS.iter().map(|disk| name(disk)).collect();
    let groups = vec![NewGroup {
        level: Level::Raid0,
        chunk: Some(Size::new(4096)),
        no_integrity: true,
        member_size: None,
        disks,
    }];
    let pool = NewPool { name: name("grab"), groups, force, spares: Vec::new(), spread: false };
    node.control.pools.create(pool).await.map(drop)
}

fn fill(block: u64, round: u64) -> u8 {
    (block * 7 + round * 3 + 1).to_le_bytes()[0]
}

/// The owner serves every acknowledged block: its disks were not written by anyone else.
#[test]
fn pool_of_a_living_node_is_not_overwritten_with_force_while_that_is_idle_or_under_load() {
    for load in [false, true] {
        Sim::new(41).run(async move |sim| {
            let (node, disks, mut host) = filled(&sim, &[]).await;
            let other = second(&sim, &disks).await;
            assert_eq!(overwrite(&other, false).await.unwrap_err().code, code::DISK_IN_USE);
            let begin = sim.now();
            let mut expected: Vec<u8> = (0..BLOCKS).map(|block| fill(block, 0)).collect();
            let loading = async {
                let mut round = 1;
                while load && sim.now() - begin < Duration::from_secs(9) {
                    for (block, kept) in (0..BLOCKS).zip(&mut expected) {
                        host.write(block, fill(block, round)).await;
                        *kept = fill(block, round);
                    }
                    round += 1;
                    sim.sleep(Duration::from_millis(5)).await;
                }
                round
            };
            let (refused, rounds) = tokio::join!(overwrite(&other, true), loading);
            let refused = refused.unwrap_err();
            assert_eq!((refused.code, refused.message.contains("node array1 writes to it")), (code::POOL_OWNED, true));
            assert!(sim.now() - begin > Duration::from_secs(6), "it was watched");
            assert!(other.codes().await.contains(&event::OVERWRITE_REFUSED));
            assert!(!load || rounds > 10);
            sim.sleep(Duration::from_secs(10)).await;
            assert_eq!(node.state().await, PoolState::Healthy);
            for (block, kept) in (0..BLOCKS).zip(expected) {
                assert_eq!(host.read(block).await, vec![kept; 512], "block {block}");
            }
        });
    }
}

#[test]
fn disks_of_a_node_that_is_down_are_overwritten_with_force_behind_a_watch() {
    Sim::new(42).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = second(&sim, &disks).await;
        node.kill();
        let begin = sim.now();
        overwrite(&other, true).await.unwrap();
        assert!(sim.now() - begin > Duration::from_secs(6), "it was watched");
        sim.sleep(Duration::from_secs(30)).await;
        assert_eq!(other.control.pools.report(&name("grab")).await.unwrap().state, PoolState::Healthy);
        let node = node.revived(1, None).await;
        assert_eq!(node.state().await, PoolState::Missing, "its disks are another pool's");
        sim.sleep(Duration::from_secs(10)).await;
        assert_eq!(other.control.pools.report(&name("grab")).await.unwrap().state, PoolState::Healthy);
    });
}

/// Writes like a program that ignores owner marks, or like a restored disk image.
async fn overwrite_unwatched(sim: &Sim, disks: &[DiskHandle]) {
    let thief = sim.add_node("10.0.0.9".parse().unwrap());
    let mut members = Vec::new();
    for (path, handle) in ["/a", "/b", "/c", "/d"].into_iter().zip(disks) {
        thief.attach_disk(path, handle);
        let options = DiskOptions { block_bytes: BLOCK_BYTES, read_only: false };
        let device = Rc::new(GroupCommit::new(thief.open_disk(path, options).await.unwrap()));
        members.push(volume::NewDisk { id: Uuid::from_u128(70 + members.len() as u128), device });
    }
    let member_blocks = data_area(Blocks(80 << 8)).unwrap().len;
    let array = Ram::new(BLOCK_BYTES, Blocks(member_blocks.0 * 4));
    let group =
        GroupPlan { id: Uuid::from_u128(60), level: 0, protected: false, chunk_bytes: 4096, member_blocks, members };
    let plan = CreatePool {
        id: Uuid::from_u128(61),
        name: "grab".into(),
        slab_bytes: 0,
        groups: vec![group],
        now: 1,
        created_by: "thief".into(),
        force: true,
    };
    volume::Pool::create(plan, vec![array]).await.unwrap();
}

#[test]
fn owner_whose_disks_were_overwritten_stops_within_two_beats_and_says_why() {
    for load in [false, true] {
        Sim::new(43).run(async move |sim| {
            let (node, disks, mut host) = filled(&sim, &[]).await;
            overwrite_unwatched(&sim, &disks).await;
            let begin = sim.now();
            while sim.now() - begin < Duration::from_secs(4) {
                if load {
                    let _ = host.try_write(sim.now().since(begin).as_millis() as u64 % BLOCKS, 9).await;
                }
                sim.sleep(Duration::from_millis(10)).await;
            }
            assert!(node.codes().await.contains(&event::POOL_FENCED));
            assert_eq!(host.try_write(0, 1).await, Err((5, 0x25, 0)), "the volume is not served any more");
            let pool = node.pool().await;
            let told = pool.fenced.unwrap_or_default();
            assert!(told.contains("now has the label of pool \"grab\" (disk d"), "{told}");
            let status = node.control.status.report().await.unwrap();
            let problem = status.problems.iter().find(|problem| problem.subject == "pool tank").unwrap();
            assert_eq!(problem.state, "used by another owner");
            let alerts = node.control.status.conditions().await.unwrap().active;
            assert!(alerts.iter().any(|alert| alert.code == event::POOL_FENCED));
            let writes: Vec<u64> = disks.iter().map(|disk| disk.counts().writes).collect();
            sim.sleep(Duration::from_secs(30)).await;
            node.control.stop().await.unwrap();
            assert_eq!(disks.iter().map(|disk| disk.counts().writes).collect::<Vec<_>>(), writes);
        });
    }
}

/// Creates a node with the pool `tank` without volumes, killed at the start of its destruction; returns the node, and
/// the pool's disks.
async fn interrupted(sim: &Sim) -> (Node, Vec<DiskHandle>) {
    let node = Node::start(sim, 1).await;
    let mut disks = Vec::new();
    for disk in MEMBERS {
        disks.push(node.add_disk(disk, 80).await);
    }
    let members = MEMBERS.iter().map(|disk| name(disk)).collect();
    let groups =
        vec![NewGroup { level: Level::Raid5, chunk: None, no_integrity: true, member_size: None, disks: members }];
    let pool = NewPool { name: name("tank"), groups, force: false, spares: Vec::new(), spread: false };
    node.control.pools.create(pool).await.unwrap();
    let tank = name("tank");
    let begun = async {
        while node.control.core.state().pending.is_empty() {
            tokio::task::yield_now().await;
        }
        node.kill();
    };
    tokio::select! {
        biased;
        () = begun => {}
        destroyed = node.control.pools.destroy(&tank) => panic!("it was too fast: {destroyed:?}"),
    }
    (node, disks)
}

/// Regression: the pool was wiped at the next start of the first node, with the volumes that the second node had
/// created meanwhile.
#[test]
fn pool_that_another_node_has_taken_is_not_erased_by_one_that_was_destroying_it() {
    for is_up in [true, false] {
        Sim::new(45).run(async move |sim| {
            let (node, disks) = interrupted(&sim).await;
            let other = second(&sim, &disks).await;
            let taken = ImportPool { force: true, ..ImportPool::default() };
            other.control.pools.import(&name("tank"), taken).await.unwrap();
            let volume = NewVolume::new("tank/theirs".parse().unwrap(), Some(Size::new(1 << 20)));
            other.control.volumes.create(volume).await.unwrap();
            if !is_up {
                other.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
            }
            let node = node.revived(1, None).await;
            assert!(node.control.core.state().pending.is_empty(), "it is none of that node's any more");
            sim.sleep(Duration::from_secs(10)).await;
            // An owner that is up does not read its labels again until it opens the pool anew.
            if is_up {
                other.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
            }
            other.control.pools.import(&name("tank"), ImportPool::default()).await.unwrap();
            assert_eq!((other.state().await, other.pool().await.volumes), (PoolState::Healthy, 1));
            assert!(node.codes().await.contains(&event::OVERWRITE_REFUSED));
        });
    }
}

#[test]
fn pool_whose_destruction_was_interrupted_is_erased_at_the_next_start() {
    Sim::new(46).run(async move |sim| {
        let (node, _disks) = interrupted(&sim).await;
        let begin = sim.now();
        let node = node.revived(1, None).await;
        assert!(sim.now() - begin < Duration::from_secs(6), "its own mark needs no watch");
        assert!(node.control.core.state().pending.is_empty());
        let disks = node.control.disks.list().await.unwrap();
        assert!(disks.iter().all(|disk| disk.label == model::Label::None), "{disks:?}");
        assert!(!node.codes().await.contains(&event::OVERWRITE_REFUSED));
    });
}

/// Regression: a volume without a pool was created on it, and hosts could overwrite the pool.
#[test]
fn disk_of_a_pool_is_no_file_of_a_volume() {
    Sim::new(47).run(async move |sim| {
        let (node, disks, _host) = filled(&sim, &[]).await;
        let other = Node::start_second(&sim).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sdx").to_string_lossy().into_owned();
        std::fs::write(&path, []).unwrap();
        other.machine().attach_disk(&path, &disks[0]);
        for size in [None, Some(Size::new(1 << 20))] {
            let backend = Some(NewBackend::File { path: path.clone() });
            let volume = NewVolume { backend, ..NewVolume::new("raw".parse().unwrap(), size) };
            let refused = other.control.volumes.create(volume).await.unwrap_err();
            assert_eq!((refused.code, refused.message), (code::DISK_IN_USE, format!("{path} is a disk of pool tank")));
        }
        assert_eq!(node.state().await, PoolState::Healthy);
    });
}
