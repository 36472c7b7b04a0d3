//! Daemon of this product, controlled by its own command line.

use super::{Backing, Chap, Setup, Target, Unit, await_portal, pinned};
use crate::child::{Background, Ended, run_within};
use anyhow::{Context, Result, ensure};
use model::{Level, Size};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const COMMAND_LIMIT: Duration = Duration::from_secs(600);
/// Prefix of all target names.
pub const IQN: &str = "iqn.2026-11.io.blockyard:xtask";

/// Start options of the daemon.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Program of the product.
    pub build: PathBuf,
    /// Folder of state, socket and log.
    pub folder: PathBuf,
    /// Portal addresses.
    pub portals: Vec<SocketAddr>,
    /// Cores to pin to; empty for all.
    pub cores: Vec<usize>,
    /// Further arguments of `blockyard serve`.
    pub arguments: Vec<String>,
    /// Command that wraps the daemon, such as one that forbids system calls.
    pub wrapper: Vec<String>,
}

/// Running daemon.
pub struct Product {
    launch: Launch,
    daemon: Background,
    units: Vec<Unit>,
}

impl Product {
    /// Starts the daemon, and waits until its socket and its portals answer.
    pub fn launch(launch: Launch) -> Result<Self> {
        let daemon = spawn(&launch)?;
        let mut product = Self { launch, daemon, units: Vec::new() };
        product.await_answer()?;
        Ok(product)
    }

    /// Starts the daemon and serves the units of the setup, each under its own target.
    pub fn start(setup: &Setup) -> Result<Self> {
        // One shard for each core to which the daemon is pinned.
        let shards = setup.cores.len().to_string();
        let shards: &[&str] = if setup.cores.is_empty() { &[] } else { &["--shards", &shards] };
        let mut product = Self::launch(Launch {
            build: setup.build.clone(),
            folder: setup.folder.clone(),
            portals: [&[setup.portal][..], &setup.more_portals].concat(),
            cores: setup.cores.clone(),
            arguments: shards.iter().map(ToString::to_string).chain(setup.arguments.iter().cloned()).collect(),
            wrapper: setup.wrapper.clone(),
        })?;
        let proof = match &setup.chap {
            Some((host, ours)) => proof(&setup.folder, host, ours.as_ref())?,
            None => Vec::new(),
        };
        let proof: Vec<&str> = proof.iter().map(String::as_str).collect();
        // Every initiator, since each client of a load has a name of its own.
        product.command(&[&["host", "add", "anyone", "--any"][..], &proof].concat())?;
        let block_bytes = setup.block_bytes.to_string();
        let size = format!("{}KiB", setup.unit_bytes >> 10);
        if setup.units.iter().any(in_pool) {
            product.make_pool(setup)?;
        }
        for (index, backing) in setup.units.iter().enumerate() {
            let target = format!("unit{index}");
            let iqn = format!("{IQN}:{target}");
            let name = if in_pool(backing) { format!("tank/{target}") } else { target.clone() };
            let file = setup.folder.join(&target).to_string_lossy().into_owned();
            let kind: &[&str] = match backing {
                Backing::Null => &["--null"],
                Backing::Ram => &["--ram"],
                Backing::File => &["--file", &file],
                Backing::Thin => &["--thin"],
                Backing::Thick => &[],
            };
            product.command(&[&["volume", "create", &name, &size, "--block-size", &block_bytes], kind].concat())?;
            // Settings are made before any initiator can see the unit.
            if !setup.volume.is_empty() {
                let settings = setup.volume.iter().map(String::as_str);
                product.command(&["volume", "set", &name].into_iter().chain(settings).collect::<Vec<_>>())?;
            }
            product.command(&["target", "add", &target, "--iqn", &iqn])?;
            product.command(&["present", &name, "anyone", "--target", &target, "--lun", "0"])?;
            product.units.push(Unit { portal: setup.portal, iqn, lun: 0 });
        }
        Ok(product)
    }

    /// Creates the pool of the setup, `tank`.
    fn make_pool(&self, setup: &Setup) -> Result<()> {
        let shape = &setup.pool;
        let folder = shape.folder.as_deref().unwrap_or(&setup.folder);
        let size = Size::new(shape.disk_bytes).exact();
        make_pool_of(self, folder, shape.level, shape.disks as usize, &size)?;
        if let Some((folder, bytes)) = &shape.log {
            // Two disks, which the log device mirrors.
            let names = ["log0", "log1"];
            names.iter().try_for_each(|name| add_disk(self, folder, name, &Size::new(*bytes).exact()))?;
            self.command(&[&["pool", "add-log", "tank"][..], &names].concat())?;
        }
        Ok(())
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn command(&self, arguments: &[&str]) -> Result<String> {
        let ended = self.attempt(arguments)?;
        ensure!(ended.well(), "blockyard {}: {}", arguments.join(" "), ended.said.trim());
        Ok(ended.said)
    }

    /// Runs a command, and returns its result.
    pub fn attempt(&self, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(&self.launch.build);
        // Several daemons may run on one machine; the socket selects this one.
        command.arg("--socket").arg(self.socket()).args(arguments);
        run_within(&mut command, COMMAND_LIMIT)
    }

    /// Kills the daemon, like a power loss.
    pub fn kill(&mut self) -> Result<()> {
        self.daemon.kill()
    }

    /// Starts the daemon again with its existing state.
    pub fn restart(&mut self) -> Result<()> {
        self.daemon = spawn(&self.launch)?;
        self.await_answer()
    }

    /// Returns the number of lines of the daemon's log.
    pub fn log_lines(&self) -> Result<usize> {
        Ok(fs::read_to_string(self.launch.folder.join("blockyard.log"))?.lines().count())
    }

    /// Returns the last lines of the daemon's log.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(self.launch.folder.join("blockyard.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(24)..].join("\n")
    }

    /// Returns the path of the daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.launch.folder.join("blockyard.sock")
    }

    fn await_answer(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(30);
        // The daemon opens its pools before it answers, which takes time after a kill.
        while !self.attempt(&["status"])?.well() {
            ensure!(self.daemon.is_alive(), "the daemon ended: {}", self.last_words());
            ensure!(Instant::now() < until, "the daemon does not answer: {}", self.last_words());
            std::thread::sleep(Duration::from_millis(30));
        }
        self.launch.portals.iter().try_for_each(|&portal| await_portal(portal, Duration::from_secs(10)))
    }
}

fn in_pool(backing: &Backing) -> bool {
    matches!(backing, Backing::Thin | Backing::Thick)
}

/// Returns the arguments of `host add` for CHAP credentials of the host, and of the array if given; the secrets are
/// written to `folder`.
pub fn proof(folder: &Path, host: &Chap, ours: Option<&Chap>) -> Result<Vec<String>> {
    let sides = [("chap", Some(host)), ("mutual", ours)];
    let mut arguments = Vec::new();
    for (side, chap) in sides.into_iter().filter_map(|(side, chap)| Some((side, chap?))) {
        let file = folder.join(format!("{side}.secret"));
        // Only the owner may read a secret.
        fs::write(&file, &chap.secret).and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)))?;
        let file = file.to_string_lossy().into_owned();
        arguments.extend([format!("--{side}-user"), chap.user.clone(), format!("--{side}-secret-file"), file]);
    }
    Ok(arguments)
}

fn spawn(launch: &Launch) -> Result<Background> {
    // The wrapper is the outermost command, so it also applies to `taskset`.
    let mut words: Vec<String> = launch.wrapper.clone();
    words.extend(pinned(&launch.cores));
    words.push(launch.build.to_string_lossy().into_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg("--socket").arg(launch.folder.join("blockyard.sock"));
    command.arg("serve").arg("--state-dir").arg(launch.folder.join("state")).args(["--node", "xtask"]);
    for portal in &launch.portals {
        command.args(["--portal", &portal.to_string()]);
    }
    command.args(&launch.arguments);
    Background::start(&mut command, &launch.folder.join("blockyard.log"))
}

/// Returns the process that serves: the confined daemon beside its helper, if there are two.
fn served_by(helper: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).unwrap_or_default();
    // The helper starts the daemon as a child, with `--under`.
    let is_daemon = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == b"--under")
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_daemon).unwrap_or(helper)
}

impl Target for Product {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn pid(&self) -> u32 {
        served_by(self.daemon.pid())
    }

    fn control_socket(&self) -> Option<PathBuf> {
        Some(self.socket())
    }
}

/// Creates sparse file disks `d0`… in `folder`, and a RAID-6 pool `tank` of them.
pub fn make_pool(product: &Product, folder: &Path, disks: usize, disk_size: &str) -> Result<()> {
    make_pool_of(product, folder, Level::Raid6, disks, disk_size)
}

fn make_pool_of(product: &Product, folder: &Path, level: Level, disks: usize, disk_size: &str) -> Result<()> {
    let mut names = Vec::new();
    for index in 0..disks {
        let name = format!("d{index}");
        add_disk(product, folder, &name, disk_size)?;
        names.push(name);
    }
    let mut create = vec!["pool", "create", "tank", "--level", level.as_str()];
    create.extend(names.iter().map(String::as_str));
    product.command(&create).context("no pool")?;
    Ok(())
}

/// Creates one sparse file disk in `folder`.
pub fn add_disk(product: &Product, folder: &Path, name: &str, size: &str) -> Result<()> {
    let file = folder.join(format!("{name}.img"));
    product.command(&["disk", "add", "--name", name, "--create", size, &file.to_string_lossy()])?;
    Ok(())
}
