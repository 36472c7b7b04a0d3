//! iSCSI targets under test: this product, or `tgtd` and `iscsi_tgt` (SPDK) to validate the harness and for comparison.

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

/// Target program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// This product
    Blockyard,
    /// tgtd of Debian
    Tgt,
}

/// Back end of a logical unit.
#[derive(Clone, Debug)]
pub enum Backing {
    /// Null device: writes are discarded, reads return zeros or stale memory.
    Null,
    /// Memory.
    Ram,
    /// Sparse file in the setup's folder.
    File,
    /// Thin provisioned: a sparse file, or a thin volume of a pool on such files.
    Thin,
    /// Fully provisioned: a volume of a pool, or a file.
    Thick,
}

/// Shape of the pool below volumes.
#[derive(Clone, Debug)]
pub struct PoolShape {
    /// RAID level.
    pub level: Level,
    /// Number of disks.
    pub disks: u32,
    /// Bytes of each disk.
    pub disk_bytes: u64,
    /// Folder of the disks, if not the setup's.
    pub folder: Option<PathBuf>,
    /// Folder of the log device's two disks, and the bytes of each; none without a log device.
    pub log: Option<(PathBuf, u64)>,
}

impl Default for PoolShape {
    fn default() -> Self {
        Self { level: Level::Raid6, disks: 4, disk_bytes: 1 << 30, folder: None, log: None }
    }
}

/// CHAP name and secret.
#[derive(Clone, Debug)]
pub struct Chap {
    /// CHAP name.
    pub user: String,
    /// CHAP secret.
    pub secret: String,
}

/// Configuration of a target.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Folder of its own, for its files and its log.
    pub folder: PathBuf,
    /// Portal address.
    pub portal: SocketAddr,
    /// Back ends of the logical units, each under its own target name if the product supports that.
    pub units: Vec<Backing>,
    /// Pool of thin and thick volumes.
    pub pool: PoolShape,
    /// Settings of each volume: arguments of `volume set`.
    pub volume: Vec<String>,
    /// Bytes of each unit.
    pub unit_bytes: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// CHAP credentials of initiators, and of the target.
    pub chap: Option<(Chap, Option<Chap>)>,
    /// Cores to pin to, one for each shard of the product; empty for no restriction.
    pub cores: Vec<usize>,
    /// Program of the product or of SPDK.
    pub build: PathBuf,
    /// Command that wraps the product's daemon, such as one that forbids system calls.
    pub wrapper: Vec<String>,
    /// Further portals of the product.
    pub more_portals: Vec<SocketAddr>,
    /// Further arguments of `blockyard serve`, or of `tgtd`.
    pub arguments: Vec<String>,
}

impl Setup {
    /// Configures `units` small units of `backing` on a free loopback port, without CHAP.
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

/// Address of a logical unit.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Portal.
    pub portal: SocketAddr,
    /// Name of the target.
    pub iqn: String,
    /// LUN in the target.
    pub lun: u16,
}

impl fmt::Display for Unit {
    /// Formats the address as a libiscsi URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}/{}/{}", self.portal, self.iqn, self.lun)
    }
}

/// Running target; ended on drop.
pub trait Target {
    /// Returns the units, in the order of the setup.
    fn units(&self) -> &[Unit];
    /// Returns the process ID of the server.
    fn pid(&self) -> u32;
    /// Returns the socket of the control plane, for this product.
    fn control_socket(&self) -> Option<PathBuf> {
        None
    }
}

/// Starts a target of `kind`, and returns once its portal answers.
pub fn start(kind: Kind, setup: &Setup) -> Result<Box<dyn Target>> {
    match kind {
        Kind::Tgt => Ok(Box::new(tgt::Tgt::start(setup)?)),
        Kind::Blockyard => Ok(Box::new(product::Product::start(setup)?)),
    }
}

/// Returns the command prefix that pins a program to `cores`; empty without a restriction.
fn pinned(cores: &[usize]) -> Vec<String> {
    if cores.is_empty() {
        return Vec::new();
    }
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    vec!["taskset".to_owned(), "-c".to_owned(), cores.join(",")]
}

/// Returns a loopback address with a port that was free a moment ago.
pub fn free_portal() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    // The listener is closed on return; another process may still take the port before the target binds it.
    Ok(listener.local_addr()?)
}

/// Waits until `portal` accepts connections.
fn await_portal(portal: SocketAddr, limit: Duration) -> Result<()> {
    let until = Instant::now() + limit;
    while TcpStream::connect_timeout(&portal, Duration::from_millis(200)).is_err() {
        if Instant::now() > until {
            bail!("nothing listens on {portal} after {limit:?}");
        }
        // A refused connection returns at once, without using its timeout.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
