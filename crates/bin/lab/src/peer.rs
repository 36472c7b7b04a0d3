//! Who is measured: started for a point, and the way to it.

use crate::child::Background;
use crate::drive::{Login, Way};
use crate::meter::Meter;
use crate::point::{Backing, DiskModel, Peer, Point};
use crate::target::{self, Kind, PoolShape, Setup, Target, Unit};
use ::iscsi::IscsiName;
use ::iscsi::login::InitiatorAuth;
use anyhow::{Context, Result, bail, ensure};
use model::{Level, WritePolicy};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The core that serves; the client has the other.
pub const SERVER_CORE: usize = 1;
/// The core of the client.
pub const CLIENT_CORE: usize = 0;

/// Where files are memory.
const MEMORY: &str = "/dev/shm";
/// What a disk of a pool has beside data.
const POOL_SPARE_BYTES: u64 = 512 << 20;

/// What is at hand on this machine.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// The product's program.
    pub build: PathBuf,
    /// SPDK's `iscsi_tgt`, where there is one.
    pub spdk: Option<PathBuf>,
    /// Units of a target that runs already.
    pub given: Vec<Given>,
    /// Files or disks to measure in the place of one that is made.
    pub devices: Vec<String>,
    /// What is on given units and devices may be lost.
    pub overwrite: bool,
}

/// A unit of a target that runs already.
#[derive(Clone, Debug)]
pub struct Given {
    /// Where it is.
    pub unit: Unit,
    /// As whom, and what is proven.
    pub initiator: IscsiName,
    /// What is proven.
    pub auth: InitiatorAuth,
}

/// Somebody who serves, until this is dropped.
pub struct Serving {
    /// The way there.
    pub way: Way,
    /// Counts what it takes.
    pub meter: Meter,
    _held: Held,
}

/// What ends with the measurement.
enum Held {
    Target { _target: Box<dyn Target>, _memory: TempDir },
    Program { _program: Background },
    File { _file: tempfile::NamedTempFile },
    Nothing,
}

impl Means {
    /// Why nobody here can serve the point, where nobody can.
    #[must_use]
    pub fn lacks(&self, point: &Point) -> Option<String> {
        match point.peer {
            Peer::Spdk if self.spdk.is_none() => Some("no iscsi_tgt of SPDK was named (--spdk PATH)".to_owned()),
            Peer::Given if self.given.is_empty() => Some("no target was named".to_owned()),
            Peer::Tgt if point.backing == Backing::Pool => Some("tgtd has no pools".to_owned()),
            _ if point.disk != DiskModel::None => Some("disks are not modelled yet".to_owned()),
            _ if point.write != WritePolicy::Through => Some("the policies of writes are not driven yet".to_owned()),
            _ if (point.cores, point.daemons) != (1, 1) => {
                Some("several cores and daemons are not driven yet".to_owned())
            }
            Peer::Tgt if !has_program("tgtd") => Some("tgtd is not installed (Debian: tgt)".to_owned()),
            _ => None,
        }
    }

    /// Who serves `point`, with its files in `folder`, which is empty.
    ///
    /// *Errors*: it does not start.
    pub fn start(&self, point: &Point, folder: &Path) -> Result<Serving> {
        match point.peer {
            Peer::Blockyard => self.target(Kind::Blockyard, point, folder),
            Peer::Tgt => self.target(Kind::Tgt, point, folder),
            Peer::Bare => self.bare(point, folder),
            Peer::Native => self.native(point, folder),
            Peer::Given => Ok(self.given(point)),
            Peer::Spdk => bail!("SPDK is not driven yet"),
        }
    }

    fn target(&self, kind: Kind, point: &Point, folder: &Path) -> Result<Serving> {
        let backing = match point.backing {
            Backing::Null => target::Backing::Null,
            Backing::Ram => target::Backing::Ram,
            Backing::File => target::Backing::File,
            Backing::Pool => target::Backing::Thick,
        };
        let mut setup = Setup::new(folder.to_owned(), point.luns as usize, &backing)?;
        setup.build = self.build.clone();
        setup.unit_bytes = point.unit.bytes();
        setup.core = Some(SERVER_CORE);
        let memory = tempfile::tempdir_in(MEMORY)?;
        setup.pool = pool_of(point, memory.path());
        if point.backing == Backing::Pool && !point.cache {
            setup.volume = ["--cache-share", "0", "--read-ahead", "off"].map(str::to_owned).into();
        }
        setup.arguments = point.arguments.clone();
        let target = target::start(kind, &setup)?;
        let login = |index: u32| {
            let unit = &target.units()[(index % point.luns) as usize];
            let client = index / point.sessions;
            let initiator = IscsiName::parse(&format!("iqn.2026-11.io.blockyard:lab.client{client}"));
            Ok(Login {
                portal: unit.portal,
                target: IscsiName::parse(&unit.iqn).with_context(|| format!("\"{}\"", unit.iqn))?,
                lun: unit.lun,
                initiator: initiator.expect("a name"),
                session: u16::try_from(index % 0x1_0000)?,
                auth: InitiatorAuth::None,
                digests: point.digests,
                depth: point.depths()[0].max(point.depth),
            })
        };
        let logins: Result<Vec<Login>> = (0..point.clients * point.sessions).map(login).collect();
        let meter = Meter { servers: vec![target.pid()] };
        Ok(Serving { way: Way::Iscsi(logins?), meter, _held: Held::Target { _target: target, _memory: memory } })
    }

    fn bare(&self, point: &Point, folder: &Path) -> Result<Serving> {
        let told = folder.join("address");
        let mut command = Command::new("taskset");
        command
            .args(["-c", &SERVER_CORE.to_string()])
            .arg(&self.build)
            .args(["lab", "serve-bare", "--tell"])
            .arg(&told);
        let program = Background::start(&mut command, &folder.join("bare.log"))?;
        let until = Instant::now() + Duration::from_secs(10);
        let address = loop {
            if let Ok(address) = fs::read_to_string(&told).unwrap_or_default().trim().parse() {
                break address;
            }
            let said = || fs::read_to_string(folder.join("bare.log")).unwrap_or_default();
            ensure!(Instant::now() < until, "the server of bare bytes does not start: {}", said());
            std::thread::sleep(Duration::from_millis(5));
        };
        let meter = Meter { servers: vec![program.pid()] };
        Ok(Serving { way: Way::Bare(address, point.unit.bytes()), meter, _held: Held::Program { _program: program } })
    }

    /// A file in the folder, or in memory, without a target; or what was given.
    fn native(&self, point: &Point, folder: &Path) -> Result<Serving> {
        if !self.devices.is_empty() {
            let way = Way::Device(self.devices.clone());
            return Ok(Serving { way, meter: Meter::default(), _held: Held::Nothing });
        }
        let place = if point.backing == Backing::Ram { Path::new(MEMORY) } else { folder };
        let file = tempfile::NamedTempFile::new_in(place)?;
        file.as_file().set_len(point.unit.bytes())?;
        let path = file.path().to_str().context("the folder's name is no text")?.to_owned();
        Ok(Serving { way: Way::Device(vec![path]), meter: Meter::default(), _held: Held::File { _file: file } })
    }

    /// True when the point is about what was there before us.
    #[must_use]
    pub fn is_foreign(&self, point: &Point) -> bool {
        point.peer == Peer::Given || point.peer == Peer::Native && !self.devices.is_empty()
    }

    fn given(&self, point: &Point) -> Serving {
        let login = |index: u32| {
            let given = &self.given[(index % point.luns) as usize % self.given.len()];
            let parsed = IscsiName::parse(&given.unit.iqn).expect("it was read as one");
            Login {
                portal: given.unit.portal,
                target: parsed,
                lun: given.unit.lun,
                initiator: given.initiator.clone(),
                session: (index % 0x1_0000) as u16,
                auth: given.auth.clone(),
                digests: point.digests,
                depth: point.depths()[0].max(point.depth),
            }
        };
        let logins = (0..point.clients * point.sessions).map(login).collect();
        Serving { way: Way::Iscsi(logins), meter: Meter::default(), _held: Held::Nothing }
    }
}

/// A pool in `folder` that holds the units of the point.
fn pool_of(point: &Point, folder: &Path) -> PoolShape {
    let (level, disks) = (point.level, point.disks);
    let carry = match level {
        Level::Raid0 => disks,
        Level::Raid1 => 1,
        Level::Raid10 => disks / 2,
        Level::Raid5 => disks.saturating_sub(1),
        Level::Raid6 => disks.saturating_sub(2),
    };
    let wanted = point.unit.bytes() * u64::from(point.luns) / u64::from(carry.max(1));
    // A fifth more, and a log, tables and what is kept free.
    let disk_bytes = (wanted + wanted / 5 + POOL_SPARE_BYTES).next_multiple_of(1 << 20);
    PoolShape { level, disks, disk_bytes, folder: Some(folder.to_owned()) }
}

fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).chain([PathBuf::from("/usr/sbin")]).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_nothing_drives_are_not_measured_as_if_they_were() {
        let (means, plain) = (Means::default(), Point::default());
        assert_eq!(means.lacks(&plain), None);
        let told = |point: Point| means.lacks(&point).is_some_and(|why| why.contains("not driven yet"));
        assert!(told(Point { write: WritePolicy::Back, ..plain.clone() }));
        assert!(told(Point { cores: 2, ..plain.clone() }) && told(Point { daemons: 4, ..plain }));
    }
}
