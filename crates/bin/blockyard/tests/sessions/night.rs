//! 3 am: a disk dies under load, nobody does anything, and the array is whole again.

use crate::array::{TARGET, initiator, portal};
use crate::host::{Host, Login};
use control::request::{NewDisk, NewGroup, NewHost, NewPool, NewPresentation, NewTarget, NewVolume};
use control::{Control, Engine, Settings, Store, Wanted};
use dataplane::{Budget, Facts, Limits, Seat, conduct, tickets};
use model::{EventCode, Level, Name, PoolState, Size, event};
use shard::mailbox;
use shard::{StreamOptions, World};
use sim::{DiskHandle, DiskShape, Sim};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const MEMBERS: [&str; 4] = ["d0", "d1", "d2", "d3"];
const BLOCKS: u64 = 256;

/// The whole product on a simulated machine: the data plane, control, and its steward.
struct Node {
    control: Arc<Control>,
    machine: Sim,
    dir: TempDir,
}

impl Node {
    async fn start(world: &Sim, shards: usize) -> Self {
        let machine = world.add_node(portal().ip());
        let dir = tempfile::tempdir().unwrap();
        let (orders, inbox) = mailbox::channel();
        let mut inbox = Some(inbox);
        let limits = Limits::of(Budget { shards, buffer_bytes: 1 << 40 });
        for ticket in tickets::<Sim>(limits, &StreamOptions::default()) {
            let inbox = if ticket.index == 0 { inbox.take() } else { None };
            let seat = Seat::take(machine.clone(), ticket);
            if let Some(inbox) = inbox {
                let facts = Facts { io: "sim".to_owned(), networks: Box::new(Vec::new) };
                machine.spawn(conduct(seat, inbox, facts));
            }
        }
        let settings = Settings {
            state_dir: dir.path().join("state"),
            socket: dir.path().join("socket"),
            node: name("array1"),
            target_base: "iqn.2026-11.io.blockyard".to_owned(),
            portals: vec![portal()],
            disk_search: Vec::new(),
        };
        let store = Store::open(&settings.state_dir).unwrap();
        let control = Arc::new(Control::start(settings, store, Engine::new(orders)).await.unwrap());
        let steward = control.clone();
        machine.spawn(async move {
            while let Ok(raised) = steward.hear().await {
                steward.look_after(raised).await.unwrap();
            }
        });
        Self { control, machine, dir }
    }

    /// A simulated disk, known as `disk`. Control asks the file system whether its path is there.
    async fn add_disk(&self, disk: &str, mib: u64) -> DiskHandle {
        let path = self.path(disk);
        fs::write(&path, []).unwrap();
        let handle = self.machine.add_disk(&path, DiskShape::of(mib << 20));
        self.control.add_disk(NewDisk { path, name: Some(name(disk)), create: None }).await.unwrap();
        handle
    }

    fn path(&self, disk: &str) -> String {
        Path::new(self.dir.path()).join(disk).to_string_lossy().into_owned()
    }

    /// A RAID-5 pool with spares, a volume in it, and a host that sees it.
    async fn furnish(&self, spares: &[&str]) {
        let control = &self.control;
        let names = |disks: &[&str]| disks.iter().map(|disk| name(disk)).collect();
        let groups = vec![NewGroup { level: Level::Raid5, chunk: Some(Size::new(4096)), disks: names(&MEMBERS) }];
        let pool = NewPool { name: name("tank"), groups, force: false, spares: names(spares) };
        control.create_pool(pool).await.unwrap();
        let volume = "tank/vm1".parse().unwrap();
        let size = Some(Size::new(BLOCKS * 512));
        let spec = NewVolume { name: volume, size, block_bytes: None, stripe_unit: None, backend: None };
        control.create_volume(spec).await.unwrap();
        control.add_target(NewTarget { name: name("t"), iqn: Some(TARGET.parse().unwrap()) }).await.unwrap();
        let host = NewHost {
            name: name("web"),
            initiators: vec![initiator(crate::array::OPEN).parse().unwrap()],
            any: false,
            networks: Vec::new(),
            chap: None,
            mutual_chap: None,
        };
        control.add_host(host).await.unwrap();
        let volume = "tank/vm1".parse().unwrap();
        let target = Some(name("t"));
        let presentation = NewPresentation { volume, host: name("web"), target, lun: Some(0), read_only: false };
        control.present(presentation).await.unwrap();
    }

    async fn state(&self) -> PoolState {
        self.control.pool_report(&name("tank")).await.unwrap().state
    }

    async fn codes(&self) -> Vec<EventCode> {
        self.control.events(Wanted::default()).await.into_iter().map(|event| event.code).collect()
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// What block `block` holds after round `round` over the volume.
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
            let mut host = Host::login(&sim, &Login::of(crate::array::OPEN, 0)).await;
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
            let pool = node.control.pool_report(&name("tank")).await.unwrap();
            let place = &pool.groups[0].members[dead];
            assert_eq!(place.disk, Some(name("s2")), "the smallest that fits");
            assert_eq!(place.stands_for.as_deref(), Some(MEMBERS[dead]));
            let told = node.codes().await;
            for code in [event::DISK_FAILED, event::SPARE_TOOK_OVER, event::REBUILD_ENDED, event::POOL_WHOLE] {
                assert_eq!(told.iter().filter(|told| **told == code).count(), 1, "{code}: {told:?}");
            }

            // It protects again: another one may die.
            disks[(dead + 1) % 4].fail();
            for block in 0..BLOCKS {
                let found = host.read(block).await;
                assert_eq!(found, [fill(last, block); 512], "block {block}");
            }
        });
    }
}
