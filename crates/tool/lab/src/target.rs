//! The iSCSI target under test: ours, or Debian's `tgtd` or SPDK's `iscsi_tgt` to prove the harness and to compare with.

pub mod product;
pub mod spdk;
mod tgt;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use model::Level;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Which target to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The product of this repository
    Blockyard,
    /// Debian's tgtd
    Tgt,
}

/// What holds a logical unit's data.
#[derive(Clone, Debug)]
pub enum Backing {
    /// Nothing: writes vanish, reads give zeros or what memory holds.
    Null,
    /// Memory.
    Ram,
    /// A sparse file in the setup's folder.
    File,
    /// What UNMAP takes space from: a sparse file, or a thin volume of a pool of such files.
    Thin,
    /// A volume of a pool that has all of its space, or a file.
    Thick,
}

/// The pool below volumes.
#[derive(Clone, Debug)]
pub struct PoolShape {
    /// How its disks protect each other.
    pub level: Level,
    /// How many there are.
    pub disks: u32,
    /// Bytes of each.
    pub disk_bytes: u64,
    /// Where they lie, when not in the setup's folder.
    pub folder: Option<PathBuf>,
    /// Where the two disks of its log device lie, and the bytes of each; nothing where it has none.
    pub log: Option<(PathBuf, u64)>,
}

impl Default for PoolShape {
    fn default() -> Self {
        Self { level: Level::Raid6, disks: 4, disk_bytes: 1 << 30, folder: None, log: None }
    }
}

/// A CHAP name and secret.
#[derive(Clone, Debug)]
pub struct Chap {
    /// The name.
    pub user: String,
    /// The secret.
    pub secret: String,
}

/// What a target is to serve.
#[derive(Clone, Debug)]
pub struct Setup {
    /// A folder of its own, for its files and its log.
    pub folder: PathBuf,
    /// Where to listen.
    pub portal: SocketAddr,
    /// One logical unit for each, every one under its own target name where the product allows it.
    pub units: Vec<Backing>,
    /// What thin and thick volumes are of.
    pub pool: PoolShape,
    /// What is set of each volume: arguments of `volume set`.
    pub volume: Vec<String>,
    /// Bytes of each unit.
    pub unit_bytes: u64,
    /// Bytes of a logical block of each.
    pub block_bytes: u32,
    /// What initiators prove, and what the target proves to them.
    pub chap: Option<(Chap, Option<Chap>)>,
    /// The only cores that it may run on, each for one shard of the product; none: all, and as it chooses.
    pub cores: Vec<usize>,
    /// The product's program, where it is to serve; SPDK's, where that is.
    pub build: PathBuf,
    /// A program that runs the product's daemon, such as one that forbids it system calls.
    pub wrapper: Vec<String>,
    /// Further portals of the product.
    pub more_portals: Vec<SocketAddr>,
    /// Further arguments of `blockyard serve`, or of `tgtd`.
    pub arguments: Vec<String>,
}

impl Setup {
    /// `units` small units of `backing` on a free loopback port, without CHAP.
    pub fn new(folder: PathBuf, units: usize, backing: &Backing) -> Result<Self> {
        let portal = free_portal()?;
        Ok(Self {
            folder,
            portal,
            units: vec![backing.clone(); units],
            pool: PoolShape::default(),
            volume: Vec::new(),
            unit_bytes: 64 << 20,
            block_bytes: 512,
            chap: None,
            cores: Vec::new(),
            build: PathBuf::new(),
            wrapper: Vec::new(),
            more_portals: Vec::new(),
            arguments: Vec::new(),
        })
    }
}

/// Where one logical unit is.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The portal.
    pub portal: SocketAddr,
    /// The target's name.
    pub iqn: String,
    /// The unit's number there.
    pub lun: u16,
}

impl fmt::Display for Unit {
    /// The address in libiscsi's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}/{}/{}", self.portal, self.iqn, self.lun)
    }
}

/// A running target; it ends when this is dropped.
pub trait Target {
    /// Its units, in the order of the setup.
    fn units(&self) -> &[Unit];
    /// The process that serves.
    fn pid(&self) -> u32;
    /// The socket of its control plane, where it is one of ours.
    fn door(&self) -> Option<PathBuf> {
        None
    }
}

/// Starts a target of `kind`; its portal answers when this returns.
pub fn start(kind: Kind, setup: &Setup) -> Result<Box<dyn Target>> {
    match kind {
        Kind::Tgt => Ok(Box::new(tgt::Tgt::start(setup)?)),
        Kind::Blockyard => Ok(Box::new(product::Product::start(setup)?)),
    }
}

/// The words that keep a program on `cores`, before its own; none where it may run anywhere.
fn pinned(cores: &[usize]) -> Vec<String> {
    if cores.is_empty() {
        return Vec::new();
    }
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    vec!["taskset".to_owned(), "-c".to_owned(), cores.join(",")]
}

/// A loopback address whose port was free a moment ago.
pub fn free_portal() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?)
}

/// Returns when something listens on `portal`.
fn await_portal(portal: SocketAddr, limit: Duration) -> Result<()> {
    let until = Instant::now() + limit;
    while TcpStream::connect_timeout(&portal, Duration::from_millis(200)).is_err() {
        if Instant::now() > until {
            bail!("nothing listens on {portal} after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
