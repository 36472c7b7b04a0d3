//! Tests of the control plane over the real engine on a simulated machine.

mod access;
mod care;
mod crash;
mod disruption;
mod explain;
mod findings;
mod hosts;
mod luns;
mod notices;
mod operations;
mod racks;
mod reconciler;
mod refusals;
mod restart;
mod returns;
mod snapshots;
mod spares;

use crate::request::{NewDisk, NewGroup, NewHost, NewPool, NewPresentation, NewVolume};
use crate::{Control, Engine, Settings, Store};
use model::{Access, Call, Level, PoolReport, Refusal, Size, VolumeReport};
use shard::mailbox::Sender;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;
use testbed::Testbed;

/// An array in a folder of its own.
pub struct Array {
    pub control: Arc<Control>,
    pub dir: TempDir,
    access: Arc<Mutex<Access>>,
    engine: JoinHandle<()>,
}

impl Array {
    /// Creates an empty array.
    pub async fn new() -> Self {
        Self::on(tempfile::tempdir().expect("a folder"), Testbed::default()).await
    }

    /// Starts the array in `dir` over `testbed`.
    pub async fn on(dir: TempDir, testbed: Testbed) -> Self {
        let access = testbed.access.clone();
        let (sender, engine) = testbed.start();
        let control = Arc::new(boot_on(dir.path(), sender).await);
        Self { control, dir, access, engine }
    }

    /// Restarts the array, as after a stop or a kill of the daemon.
    pub async fn restarted(self) -> Self {
        self.restarted_on(Testbed::default()).await
    }

    /// Restarts the array over `testbed`.
    pub async fn restarted_on(self, testbed: Testbed) -> Self {
        Self::on(self.killed(), testbed).await
    }

    /// Kills the daemon and returns the folder: no thread writes to it any more.
    pub fn killed(self) -> TempDir {
        let Self { control, dir, engine, .. } = self;
        drop(control);
        engine.join().expect("the simulation goes well");
        dir
    }

    pub fn folder(&self) -> PathBuf {
        disks(self.dir.path())
    }

    /// Returns the access rules that the data plane received last.
    pub fn access(&self) -> Access {
        self.access.lock().expect("not poisoned").clone()
    }

    /// Creates and adds disks `d0`… of 512 MiB.
    pub async fn add_disks(&self, names: &[&str]) {
        for name in names {
            self.control.disks.add(new_disk(&self.folder(), name, Size::mib(512))).await.expect("a disk");
        }
    }

    pub async fn create_pool(&self, name: &str, level: Level, disks: &[&str]) -> Result<PoolReport, Refusal> {
        self.control.pools.create(new_pool(name, level, disks)).await
    }

    pub async fn create_volume(&self, name: &str, size: Size) -> Result<VolumeReport, Refusal> {
        self.control.volumes.create(new_volume(name, Some(size))).await
    }

    /// Sets the pool to open immediately without absent disks.
    pub async fn wait_for_no_disk(&self, pool: &str) {
        let settings = [("disk.wait".to_owned(), "0s".to_owned())].into();
        let pool = pool.parse().expect("a name");
        self.control.pools.set(&pool, crate::request::PoolSettings { settings }).await.expect("a setting");
    }

    /// Creates four disks, a RAID-6 pool `tank`, a volume `tank/vm1`, and a host `web` that it is presented to.
    pub async fn furnish(&self) {
        self.add_disks(&["d0", "d1", "d2", "d3"]).await;
        self.create_pool("tank", Level::Raid6, &["d0", "d1", "d2", "d3"]).await.expect("a pool");
        self.create_volume("tank/vm1", Size::mib(8)).await.expect("a volume");
        self.control.hosts.add(new_host("web", &["iqn.2001-04.com.example:web"])).await.expect("a host");
        self.control.presentations.present(new_presentation("tank/vm1", "web")).await.expect("a presentation");
    }
}

pub(crate) async fn boot(dir: &Path, testbed: Testbed) -> Control {
    boot_on(dir, testbed.start().0).await
}

async fn boot_on(dir: &Path, orders: Sender<Call>) -> Control {
    std::fs::create_dir_all(disks(dir)).expect("a folder");
    let settings = Settings {
        state_dir: dir.join("state"),
        socket: dir.join("socket"),
        node: "node1".parse().expect("a name"),
        target_base: "iqn.2026-11.io.blockyard".to_owned(),
        portals: vec!["127.0.0.1:3260".parse().expect("an address")],
        disk_search: Vec::new(),
    };
    let store = Store::open(&settings.state_dir).expect("a store");
    Control::start(settings, store, Engine::new(orders)).await.expect("starts")
}

/// Writes a foreign file system over the start of the file, which keeps its length.
pub(crate) fn make_foreign(path: impl AsRef<Path>) {
    let file = std::fs::File::options().write(true).open(path).expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&file, b"XFSB, and what somebody has there", 0).expect("writes");
}

pub(crate) fn disks(dir: &Path) -> PathBuf {
    dir.join("disks")
}

pub(crate) fn new_disk(folder: &Path, name: &str, size: Size) -> NewDisk {
    let path = folder.join(format!("{name}.img")).to_string_lossy().into_owned();
    NewDisk { path, name: Some(name.parse().expect("a name")), create: Some(size), force: false, ..NewDisk::default() }
}

pub(crate) fn new_pool(name: &str, level: Level, disks: &[&str]) -> NewPool {
    let disks = disks.iter().map(|disk| disk.parse().expect("a name")).collect();
    NewPool {
        name: name.parse().expect("a name"),
        groups: vec![NewGroup { level, chunk: None, no_integrity: false, member_size: None, disks }],
        force: false,
        spares: Vec::new(),
        spread: false,
    }
}

pub(crate) fn new_volume(name: &str, size: Option<Size>) -> NewVolume {
    NewVolume::new(name.parse().expect("a name"), size)
}

pub(crate) fn new_host(name: &str, initiators: &[&str]) -> NewHost {
    NewHost {
        name: name.parse().expect("a name"),
        initiators: initiators.iter().map(|iqn| iqn.parse().expect("an iSCSI name")).collect(),
        any: false,
        networks: Vec::new(),
        chap: None,
        mutual_chap: None,
        force: false,
    }
}

pub(crate) fn new_presentation(volume: &str, host: &str) -> NewPresentation {
    NewPresentation {
        volume: volume.parse().expect("a name"),
        host: host.parse().expect("a name"),
        target: None,
        lun: None,
        read_only: false,
        groups: Vec::new(),
        force: false,
    }
}
