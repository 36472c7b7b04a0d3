//! A node that wants to overwrite disks with `--force` while another node uses them.

use crate::care::filled;
use crate::node::{BLOCKS, MEMBERS, Node, name};
use block::Blocks;
use block::memory::Ram;
use control::request::{NewGroup, NewPool};
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
    node.control.create_pool(pool).await.map(drop)
}

fn fill(block: u64, round: u64) -> u8 {
    (block * 7 + round * 3 + 1).to_le_bytes()[0]
}

/// The owner serves every block that it has acknowledged: nobody has written to its disks.
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
        assert_eq!(other.control.pool_report(&name("grab")).await.unwrap().state, PoolState::Healthy);
        let node = node.revived(1, None).await;
        assert_eq!(node.state().await, PoolState::Missing, "its disks are another pool's");
        sim.sleep(Duration::from_secs(10)).await;
        assert_eq!(other.control.pool_report(&name("grab")).await.unwrap().state, PoolState::Healthy);
    });
}

/// What a program does that does not look at marks, or a person with an image of a disk.
async fn overwrite_unwatched(sim: &Sim, disks: &[DiskHandle]) {
    let thief = sim.add_node("10.0.0.9".parse().unwrap());
    let mut members = Vec::new();
    for (path, handle) in ["/a", "/b", "/c", "/d"].into_iter().zip(disks) {
        thief.attach_disk(path, handle);
        let options = DiskOptions { block_bytes: BLOCK_BYTES, read_only: false };
        let device = Rc::new(GroupCommit::new(thief.open_disk(path, options).unwrap()));
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
            let status = node.control.status().await.unwrap();
            let problem = status.problems.iter().find(|problem| problem.subject == "pool tank").unwrap();
            assert_eq!(problem.state, "used by another owner");
            let alerts = node.control.conditions().await.unwrap().there;
            assert!(alerts.iter().any(|alert| alert.code == event::POOL_FENCED));
            let writes: Vec<u64> = disks.iter().map(|disk| disk.counts().writes).collect();
            sim.sleep(Duration::from_secs(30)).await;
            node.control.stop().await.unwrap();
            assert_eq!(disks.iter().map(|disk| disk.counts().writes).collect::<Vec<_>>(), writes);
        });
    }
}
