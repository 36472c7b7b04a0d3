//! Complete product on a simulated machine: a pool, a volume in it, and a host that sees it.

use crate::array::{OPEN, TARGET, identity, initiator, pool_secret, portal};
use crate::host::{Host, Login};
use control::request::{
    NewDisk, NewGroup, NewHost, NewPool, NewPresentation, NewTarget, NewVolume, PoolSettings, Unpresent,
};
use control::{Control, Engine, EventFilter, Settings, Store};
use engine::{Budget, Limits};
use iscsi_target::{Facts, conduct, shard_seeds};
use model::{EventCode, Level, Name, PoolReport, PoolState, Size, code};
use shard::mailbox::{self, Sender};
use shard::{StreamOptions, World};
use sim::{Crash, DiskHandle, DiskShape, Sim};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const MEMBERS: [&str; 4] = ["d0", "d1", "d2", "d3"];
/// Number of 512-byte blocks that tests write, from the start of the volume.
pub(crate) const BLOCKS: u64 = 256;
/// Size of the volume, the minimum.
pub(crate) const SIZE: Size = model::VOLUME_SIZE_MIN;

/// Complete product on a simulated machine: the data plane, control, and its maintenance loop.
pub(crate) struct Node {
    pub control: Arc<Control>,
    machine: Sim,
    dir: TempDir,
    /// Ends the maintenance loop when dropped.
    stop: [Sender<()>; 2],
}

impl Node {
    pub(crate) async fn start(world: &Sim, shards: usize) -> Self {
        let machine = world.add_node(portal().ip());
        Box::pin(Self::boot(machine, tempfile::tempdir().unwrap(), shards, 1)).await
    }

    /// Starts another node, which has no disks yet.
    pub(crate) async fn start_second(world: &Sim) -> Self {
        Self::start_second_within(world, |limits| limits).await
    }

    /// Starts it with other limits.
    pub(crate) async fn start_second_within(world: &Sim, change: impl FnOnce(Limits) -> Limits) -> Self {
        let machine = world.add_node("10.0.0.3".parse().unwrap());
        Box::pin(Self::boot_within(machine, tempfile::tempdir().unwrap(), change(limits(1)), 2)).await
    }

    /// Returns the same node after a stop and a start of the daemon.
    pub(crate) async fn restarted(self, shards: usize) -> Self {
        self.control.stop().await.unwrap();
        let Self { control, machine, dir, stop } = self;
        drop(stop);
        while Arc::strong_count(&control) > 1 {
            machine.sleep(Duration::from_millis(10)).await;
        }
        drop(control);
        Box::pin(Self::boot(machine, dir, shards, 1)).await
    }

    /// Returns the same node after a kill, or after a power loss with `crash`, and a start.
    pub(crate) async fn revived(self, shards: usize, crash: Option<Crash>) -> Self {
        match crash {
            None => self.machine.kill(),
            Some(crash) => self.machine.crash(crash),
        }
        let Self { control, machine, dir, stop } = self;
        drop(stop);
        while Arc::strong_count(&control) > 1 {
            tokio::task::yield_now().await;
        }
        drop(control);
        if crash.is_some() {
            machine.boot();
        }
        Box::pin(Self::boot(machine, dir, shards, 1)).await
    }

    async fn boot(machine: Sim, dir: TempDir, shards: usize, number: u8) -> Self {
        Self::boot_within(machine, dir, limits(shards), number).await
    }

    async fn boot_within(machine: Sim, dir: TempDir, limits: Limits, number: u8) -> Self {
        let address = SocketAddr::new(machine.address(), portal().port());
        let (orders, inbox) = mailbox::channel();
        let mut inbox = Some(inbox);
        for ticket in shard_seeds::<Sim>(limits, &StreamOptions::default()) {
            let inbox = if ticket.index == 0 { inbox.take() } else { None };
            let shard = ticket.start(machine.clone());
            if let Some(inbox) = inbox {
                let (_, address_changes) = mailbox::channel();
                let facts = Facts {
                    io: "sim".to_owned(),
                    node: identity(number),
                    secret: pool_secret(number),
                    addresses: Vec::new(),
                    address_changes,
                };
                machine.spawn(conduct(shard, inbox, facts));
            }
        }
        let settings = Settings {
            state_dir: dir.path().join("state"),
            socket: dir.path().join("socket"),
            node: identity(number).name,
            target_base: "iqn.2026-11.io.blockyard".to_owned(),
            portals: vec![address],
            disk_search: Vec::new(),
        };
        let store = Store::open(&settings.state_dir).unwrap();
        let control = Arc::new(Control::start(settings, store, Engine::new(orders)).await.unwrap());
        // The whole handle: the next start of the node waits until this task has released the control plane.
        let tended = control.clone();
        let (stop, stopped) = mailbox::channel::<()>();
        machine.spawn(async move {
            loop {
                tokio::select! {
                    raised = tended.reconciler.next_events() => match raised {
                        Ok(raised) => match tended.reconciler.handle_events(raised).await {
                            Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                            seen => seen.unwrap(),
                        },
                        Err(_) => return,
                    },
                    _ = stopped.receive() => return,
                }
            }
        });
        let remembering = control.clone();
        let (stop_remembering, stopped) = mailbox::channel::<()>();
        machine.spawn(async move {
            loop {
                tokio::select! {
                    kept = remembering.memberships.keep_next() => match kept {
                        Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                        kept => kept.unwrap(),
                    },
                    _ = stopped.receive() => return,
                }
            }
        });
        Self { control, machine, dir, stop: [stop, stop_remembering] }
    }

    /// Adds a simulated disk as `disk`. Control checks the file system for its path.
    pub(crate) async fn add_disk(&self, disk: &str, mib: u64) -> DiskHandle {
        let path = self.path(disk);
        fs::write(&path, []).unwrap();
        let handle = self.machine.add_disk(&path, DiskShape::of(mib << 20));
        self.control.disks.add(NewDisk { path, name: Some(name(disk)), ..NewDisk::default() }).await.unwrap();
        handle
    }

    /// Makes the disk available to this node as well, as `disk`.
    pub(crate) async fn attach_disk(&self, disk: &str, handle: &DiskHandle) {
        let path = self.path(disk);
        fs::write(&path, []).unwrap();
        self.machine.attach_disk(&path, handle);
        self.control.disks.add(NewDisk { path, name: Some(name(disk)), ..NewDisk::default() }).await.unwrap();
    }

    /// Kills the daemon, as by `kill -9`.
    pub(crate) fn kill(&self) {
        self.machine.kill();
    }

    /// Returns the machine that it runs on.
    pub(crate) fn machine(&self) -> Sim {
        self.machine.clone()
    }

    fn path(&self, disk: &str) -> String {
        Path::new(self.dir.path()).join(disk).to_string_lossy().into_owned()
    }

    /// Creates a RAID-5 pool with spares, a volume in it, and a host that sees it.
    pub(crate) async fn furnish(&self, spares: &[&str]) {
        self.furnish_with(spares, false).await;
    }

    /// The same, optionally without checksums and log.
    pub(crate) async fn furnish_with(&self, spares: &[&str], no_integrity: bool) {
        self.furnish_at(Level::Raid5, spares, no_integrity).await;
    }

    /// The same with this RAID level.
    pub(crate) async fn furnish_at(&self, level: Level, spares: &[&str], no_integrity: bool) {
        let control = &self.control;
        let names = |disks: &[&str]| disks.iter().map(|disk| name(disk)).collect();
        let (chunk, disks) = (Some(Size::new(4096)), names(&MEMBERS));
        let groups = vec![NewGroup { level, chunk, no_integrity, member_size: None, disks }];
        let pool = NewPool { name: name("tank"), groups, force: false, spares: names(spares), spread: false };
        control.pools.create(pool).await.unwrap();
        // No time passes for control here.
        self.wait_for_disks("0s").await;
        let volume = "tank/vm1".parse().unwrap();
        control.volumes.create(NewVolume::new(volume, Some(SIZE))).await.unwrap();
        control.targets.add(NewTarget { name: name("t"), iqn: Some(TARGET.parse().unwrap()) }).await.unwrap();
        let host = NewHost {
            name: name("web"),
            initiators: vec![initiator(OPEN).parse().unwrap()],
            any: false,
            networks: Vec::new(),
            chap: None,
            mutual_chap: None,
            force: false,
        };
        control.hosts.add(host).await.unwrap();
        self.show().await;
    }

    /// Sets the time that the pool waits for absent disks.
    pub(crate) async fn wait_for_disks(&self, span: &str) {
        let settings = [("disk.wait".to_owned(), span.to_owned())].into();
        self.control.pools.set(&name("tank"), PoolSettings { settings }).await.unwrap();
    }

    /// Presents the volume to the host as LUN 0.
    pub(crate) async fn show(&self) {
        self.show_as("tank/vm1", 0).await;
    }

    /// Presents the volume to the host with this LUN.
    pub(crate) async fn show_as(&self, volume: &str, lun: u16) {
        self.show_in(volume, lun, Vec::new()).await;
    }

    /// The same, only through portals of these groups.
    pub(crate) async fn show_in(&self, volume: &str, lun: u16, groups: Vec<u16>) {
        let (volume, target) = (volume.parse().unwrap(), Some(name("t")));
        let (host, lun) = (name("web"), Some(lun));
        let presentation = NewPresentation { volume, host, target, lun, read_only: false, groups, force: false };
        self.control.presentations.present(presentation).await.unwrap();
    }

    /// Unmaps the volume from the host.
    pub(crate) async fn hide(&self, volume: &str) {
        let seen = Unpresent { volume: volume.parse().unwrap(), host: name("web"), target: None, force: true };
        self.control.presentations.unpresent(&seen).await.unwrap();
    }

    pub(crate) async fn pool(&self) -> PoolReport {
        self.control.pools.report(&name("tank")).await.unwrap()
    }

    pub(crate) async fn state(&self) -> PoolState {
        self.pool().await.state
    }

    pub(crate) async fn codes(&self) -> Vec<EventCode> {
        self.control.reconciler.events(EventFilter::default()).await.into_iter().map(|event| event.code).collect()
    }
}

fn limits(shards: usize) -> Limits {
    Limits::of(Budget { shards, buffer_bytes: 1 << 40, cache_bytes: 8 << 20 })
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Creates a node with the pool `tank`, whose host sees the thick volume `tank/vm1` as LUN 0.
pub(crate) async fn furnished(sim: &Sim, shards: usize) -> (Node, Host) {
    let (node, _, host) = furnished_with(sim, shards, &[], false).await;
    (node, host)
}

/// The same with its disks and with spares, optionally without checksums and log.
pub(crate) async fn furnished_with(
    sim: &Sim,
    shards: usize,
    spares: &[&str],
    no_integrity: bool,
) -> (Node, Vec<DiskHandle>, Host) {
    furnished_at(sim, shards, Level::Raid5, (spares, no_integrity)).await
}

/// The same with this RAID level.
pub(crate) async fn furnished_at(
    sim: &Sim,
    shards: usize,
    level: Level,
    (spares, no_integrity): (&[&str], bool),
) -> (Node, Vec<DiskHandle>, Host) {
    let node = Node::start(sim, shards).await;
    let mut disks = Vec::new();
    for disk in MEMBERS.iter().chain(spares) {
        disks.push(node.add_disk(disk, 80).await);
    }
    node.furnish_at(level, spares, no_integrity).await;
    let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
    host.take_attention().await;
    (node, disks, host)
}

/// Waits until all members of the pool are in sync.
pub(crate) async fn until_healthy(sim: &Sim, node: &Node) {
    for _ in 0..600 {
        if node.state().await == PoolState::Healthy {
            return;
        }
        sim.sleep(Duration::from_millis(500)).await;
    }
    panic!("{:?}", node.pool().await);
}
