//! Targets of a measurement: started for a point, with the transport to them.

use crate::child::{Background, output_of};
use crate::drive::{Login, Transport};
use crate::meter::Meter;
use crate::point::{Backing, Build, DiskModel, Peer, Point};
use crate::target::spdk::{self, Spdk};
use crate::target::{self, Kind, PoolShape, Setup, Target, Unit};
use ::iscsi::IscsiName;
use ::iscsi::login::InitiatorAuth;
use anyhow::{Context, Result, ensure};
use model::{Level, WritePolicy};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// First core of the target; the client has the core before it.
pub const SERVER_CORE: usize = 1;
/// Core of the client.
pub const CLIENT_CORE: usize = 0;

/// File system in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes of a pool disk beyond its data.
const POOL_SPARE_BYTES: u64 = 512 << 20;
/// Subfolder of a pool's disks. Those of its log device are beside it, and are as fast as memory.
const DISKS: &str = "disks";
/// Timeout of a program that prints its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of each disk of a pool's log device.
const LOG_BYTES: u64 = 1 << 30;

/// Programs, units and devices that are available for measurements.
#[derive(Clone, Debug, Default)]
pub struct TestResources {
    /// Running program, which also serves as raw TCP server.
    pub own: PathBuf,
    /// Program of the product, if it is not the running one.
    pub this: Option<PathBuf>,
    /// Program of the product to compare with.
    pub other: Option<PathBuf>,
    /// SPDK's `iscsi_tgt`, if available.
    pub spdk: Option<PathBuf>,
    /// Units of a target that is already running.
    pub given: Vec<Given>,
    /// Files or disks to measure in place of a created file.
    pub devices: Vec<String>,
    /// Permission to overwrite given units and devices.
    pub overwrite: bool,
}

/// Unit of a target that is already running.
#[derive(Clone, Debug)]
pub struct Given {
    /// Address of the unit.
    pub unit: Unit,
    /// Name of the initiator.
    pub initiator: IscsiName,
    /// Credentials.
    pub auth: InitiatorAuth,
}

/// Running target; ended on drop.
pub struct Serving {
    /// Transport to the target.
    pub way: Transport,
    /// Meter of its resource usage.
    pub meter: Meter,
    _held: Held,
}

/// Resources that are released at the end of a measurement.
enum Held {
    Targets { _targets: Vec<Box<dyn Target>>, _memory: TempDir },
    Program { _program: Background },
    File { _file: tempfile::NamedTempFile },
    Nothing,
}

impl TestResources {
    /// Returns the reason why the point cannot be measured here, if there is one.
    #[must_use]
    pub fn lacks(&self, point: &Point) -> Option<String> {
        // Settings that no machine could measure are named before anything that is missing here.
        if let Some(why) = unsound(point) {
            return Some(why);
        }
        match point.peer {
            Peer::Blockyard if point.build == Build::Other && self.other.is_none() => {
                Some("no other build was named (--against PROGRAM)".to_owned())
            }
            Peer::Spdk if self.spdk.is_none() => Some("no iscsi_tgt of SPDK was named (--spdk PATH)".to_owned()),
            Peer::Spdk if point.backing == Backing::Pool => Some("SPDK has no pools".to_owned()),
            Peer::Spdk if point.all_sessions() > spdk::SESSIONS_MAX => {
                Some(format!("SPDK takes {} sessions as it comes", spdk::SESSIONS_MAX))
            }
            Peer::Given if self.given.is_empty() => Some("no target was named".to_owned()),
            Peer::Tgt if point.backing == Backing::Pool => Some("tgtd has no pools".to_owned()),
            Peer::Tgt if point.connections > 1 => Some("tgtd allows one connection to a session".to_owned()),
            // SPDK closes a connection whose command arrives after a later one of another connection.
            Peer::Spdk if point.connections > 1 => {
                Some("SPDK does not order the commands of several connections".to_owned())
            }
            Peer::Spdk if point.daemons > 1 => {
                Some("SPDK's daemons do not share a core: one takes as many as it needs (cores)".to_owned())
            }
            Peer::Tgt if !has_program("tgtd") => Some("tgtd is not installed (Debian: tgt)".to_owned()),
            _ => None,
        }
    }

    /// Starts the target of `point`, with its files in the empty `folder`.
    ///
    /// *Errors*: the target does not start.
    pub fn start(&self, point: &Point, folder: &Path) -> Result<Serving> {
        match point.peer {
            Peer::Blockyard | Peer::Tgt | Peer::Spdk => self.targets(point, folder),
            Peer::Bare => self.bare(point, folder),
            Peer::Native => self.native(point, folder),
            Peer::Given => Ok(self.given(point)),
        }
    }

    /// Starts the daemons of the point, each with a portal and with units of its own: unit `i` belongs to daemon `i`
    /// modulo their number.
    fn targets(&self, point: &Point, folder: &Path) -> Result<Serving> {
        let memory = tempfile::tempdir_in(MEMORY)?;
        let (mut targets, mut meter) = (Vec::new(), Meter::default());
        for index in 0..point.daemons {
            let name = format!("daemon{index}");
            let (own, memory) = (folder.join(&name), memory.path().join(&name));
            fs::create_dir(&own)?;
            // Disks in memory, unless a model delays them: the medium must not be the bottleneck of the target.
            fs::create_dir_all(memory.join(DISKS))?;
            let setup = self.setup(point, index, &own, &memory)?;
            let target: Result<Box<dyn Target>> = match point.peer {
                Peer::Spdk => Spdk::start(&setup).map(|spdk| Box::new(spdk) as Box<dyn Target>),
                Peer::Tgt => target::start(Kind::Tgt, &setup),
                _ => target::start(Kind::Blockyard, &setup),
            };
            let target = target.context(name)?;
            meter.servers.push(target.pid());
            meter.ports.extend(target.units().iter().map(|unit| unit.portal.port()));
            meter.doors.extend(target.control_socket());
            targets.push(target);
        }
        let login = |index: u32| {
            let unit = index % point.luns;
            let target = &targets[(unit % point.daemons) as usize];
            let unit = &target.units()[(unit / point.daemons) as usize];
            // A name for each client: initiators are counted by name, not by session.
            let client = point.client_of(index);
            let initiator = IscsiName::parse(&format!("iqn.2026-11.io.blockyard:lab.client{client}"));
            Ok(Login {
                portal: unit.portal,
                target: IscsiName::parse(&unit.iqn).with_context(|| format!("\"{}\"", unit.iqn))?,
                lun: unit.lun,
                initiator: initiator.expect("a name"),
                // The qualifier of the ISID has 16 bits.
                session: u16::try_from(index % 0x1_0000)?,
                auth: InitiatorAuth::None,
                digests: point.digests,
                connections: point.connections,
                depth: point.room_of(index),
            })
        };
        let logins: Result<Vec<Login>> = (0..point.all_sessions()).map(login).collect();
        // Dropped in this order: the targets end before their files are removed.
        let held = Held::Targets { _targets: targets, _memory: memory };
        Ok(Serving { way: Transport::Iscsi(logins?), meter, _held: held })
    }

    /// Returns the configuration of daemon `index`: its files are in `folder`, the disks of its pool in `memory`.
    fn setup(&self, point: &Point, index: u32, folder: &Path, memory: &Path) -> Result<Setup> {
        let backing = match point.backing {
            Backing::Null => target::Backing::Null,
            Backing::Ram => target::Backing::Ram,
            Backing::File => target::Backing::File,
            Backing::Pool => target::Backing::Thick,
        };
        // Units of this daemon: every `daemons`-th, starting at its own number.
        let units = (index..point.luns).step_by(point.daemons as usize).count();
        let mut setup = Setup::new(folder.to_owned(), units, &backing)?;
        setup.build = match &self.spdk {
            Some(spdk) if point.peer == Peer::Spdk => spdk.clone(),
            _ => self.build(point.build).to_owned(),
        };
        setup.unit_bytes = point.unit.bytes();
        setup.cores = server_cores(point.cores as usize, machine_cores());
        setup.pool = pool_of(point, units as u64, memory);
        if point.backing == Backing::Pool && !point.cache {
            // Read-ahead is a cache as well, so both are off.
            setup.volume.extend(["--cache-share", "0", "--read-ahead", "off"].map(str::to_owned));
        }
        if point.write != WritePolicy::Through {
            setup.volume.extend(["--write-policy".to_owned(), point.write.as_str().to_owned()]);
        }
        setup.arguments = point.arguments.clone();
        if let (Some(medium), Some(disks)) = (point.disk.medium(), &setup.pool.folder) {
            // The used part counts as the full stroke of the arm, as on a full disk.
            let stroke = member_bytes(point, units as u64);
            setup.arguments.extend(["--disks-like".to_owned(), format!("{}={medium},{stroke}B", disks.display())]);
        }
        Ok(setup)
    }

    fn bare(&self, point: &Point, folder: &Path) -> Result<Serving> {
        let told = folder.join("address");
        let mut command = Command::new("taskset");
        // Pinned, so that server and client do not migrate to one core.
        command
            .args(["-c", &SERVER_CORE.to_string()])
            .arg(&self.own)
            .args(["lab", "serve-bare", "--tell"])
            .arg(&told)
            .args(&point.arguments);
        let program = Background::start(&mut command, &folder.join("bare.log"))?;
        // The server binds to a free port, and publishes it in a file.
        let until = Instant::now() + Duration::from_secs(10);
        let address: SocketAddr = loop {
            if let Ok(address) = fs::read_to_string(&told).unwrap_or_default().trim().parse() {
                break address;
            }
            let said = || fs::read_to_string(folder.join("bare.log")).unwrap_or_default();
            ensure!(Instant::now() < until, "the server of bare bytes does not start: {}", said());
            std::thread::sleep(Duration::from_millis(5));
        };
        let meter = Meter { servers: vec![program.pid()], ports: [address.port()].into(), ..Meter::default() };
        Ok(Serving {
            way: Transport::Bare(address, point.unit.bytes()),
            meter,
            _held: Held::Program { _program: program },
        })
    }

    /// Uses the given devices, or creates a file in the folder or in memory, without a target.
    fn native(&self, point: &Point, folder: &Path) -> Result<Serving> {
        if !self.devices.is_empty() {
            let way = Transport::Device(self.devices.clone());
            return Ok(Serving { way, meter: Meter::default(), _held: Held::Nothing });
        }
        // A file in memory stands for the medium of memory units.
        let place = if point.backing == Backing::Ram { Path::new(MEMORY) } else { folder };
        let file = tempfile::NamedTempFile::new_in(place)?;
        // Sparse: the fill writes the blocks, not this call.
        file.as_file().set_len(point.unit.bytes())?;
        let path = file.path().to_str().context("the folder's name is no text")?.to_owned();
        Ok(Serving { way: Transport::Device(vec![path]), meter: Meter::default(), _held: Held::File { _file: file } })
    }

    /// Returns the program of a build; the running one if none was named.
    fn build(&self, build: Build) -> &Path {
        let named = if build == Build::Other { &self.other } else { &self.this };
        named.as_ref().unwrap_or(&self.own)
    }

    /// Returns the named programs as facts of the run: `this build` and `other build` with path and version, and `SPDK`
    /// with its version.
    ///
    /// *Errors*: a named build is no program of this product.
    pub fn builds(&self) -> Result<Vec<(String, String)>> {
        let named = [("this build", &self.this), ("other build", &self.other)];
        let named = named.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)));
        let fact =
            |(name, path): (&str, &PathBuf)| Ok((name.to_owned(), format!("{} ({})", path.display(), version(path)?)));
        let mut facts: Vec<(String, String)> = named.map(fact).collect::<Result<_>>()?;
        if let Some(spdk) = &self.spdk {
            // Without a version the run is still valid, unlike one with a program that is not ours.
            let said = output_of(Command::new(spdk).arg("--version"), VERSION_LIMIT).unwrap_or_default();
            let version = said.lines().next().unwrap_or("it does not say its version").to_owned();
            facts.push(("SPDK".to_owned(), version));
        }
        Ok(facts)
    }

    /// Returns true if the point's data existed before the measurement.
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
                connections: point.connections,
                depth: point.room_of(index),
            }
        };
        let logins = (0..point.all_sessions()).map(login).collect();
        let ports = self.given.iter().map(|given| given.unit.portal.port()).collect();
        Serving { way: Transport::Iscsi(logins), meter: Meter { ports, ..Meter::default() }, _held: Held::Nothing }
    }
}

/// Returns the version of a build of this product.
///
/// *Errors*: the file is no such program.
fn version(program: &Path) -> Result<String> {
    let said = output_of(Command::new(program).arg("--version"), VERSION_LIMIT);
    let said = said.with_context(|| format!("{} is no program of Blockyard", program.display()))?;
    // Any program may accept the argument, so the answer must name this product.
    let version = said.trim().strip_prefix("blockyard ");
    let version = version.with_context(|| {
        format!(
            "{} is no program of Blockyard: it says \"{}\"",
            program.display(),
            said.lines().next().unwrap_or_default()
        )
    })?;
    Ok(version.to_owned())
}

/// Returns the shape of a pool in `folder` that holds `units` units of the point.
fn pool_of(point: &Point, units: u64, folder: &Path) -> PoolShape {
    let (level, disks) = (point.level, point.disks);
    let wanted = member_bytes(point, units);
    // A fifth more for maps and reserved space, and the log and tables of a member.
    let disk_bytes = (wanted + wanted / 5 + POOL_SPARE_BYTES).next_multiple_of(1 << 20);
    let log = (point.write == WritePolicy::Back).then(|| (folder.to_owned(), LOG_BYTES));
    PoolShape { level, disks, disk_bytes, folder: Some(folder.join(DISKS)), log }
}

/// Returns the bytes that `units` units of the point take on each disk of their pool.
fn member_bytes(point: &Point, units: u64) -> u64 {
    let disks = point.disks;
    let carry = match point.level {
        Level::Raid0 => disks,
        Level::Raid1 => 1,
        Level::Raid10 => disks / 2,
        Level::Raid5 => disks.saturating_sub(1),
        Level::Raid6 => disks.saturating_sub(2),
    };
    point.unit.bytes() * units / u64::from(carry.max(1))
}

/// Returns the reason why the point is invalid on any machine, or exceeds this one.
fn unsound(point: &Point) -> Option<String> {
    let (cores, daemons, here) = (point.cores as usize, point.daemons, machine_cores());
    let speaks = !matches!(point.peer, Peer::Native | Peer::Bare);
    let started = matches!(point.peer, Peer::Blockyard | Peer::Tgt | Peer::Spdk);
    // First, because units are distributed modulo the number of daemons.
    if cores == 0 || daemons == 0 {
        Some("cores and daemons are one or more".to_owned())
    } else if !started && (cores, daemons) != (1, 1) {
        Some(format!("cores and daemons are of a target that the lab starts, and not of the peer \"{}\"", point.peer))
    } else if point.build == Build::Other && point.peer != Peer::Blockyard {
        Some(format!("builds are of this product, and not of the peer \"{}\"", point.peer))
    } else if point.connections == 0 || point.connections > 1 && !speaks {
        Some(format!("connections are of iSCSI sessions, one or more, and not of the peer \"{}\"", point.peer))
    } else if cores > here {
        Some(format!("this machine has {here} cores, and the daemon is to have {cores}"))
    } else if daemons > point.luns {
        Some(format!("{daemons} daemons share {} units: each needs one (luns = {daemons})", point.luns))
    } else if point.write != WritePolicy::Through && (point.peer, point.backing) != (Peer::Blockyard, Backing::Pool) {
        Some("policies of writes are of volumes in a pool of this product".to_owned())
    } else if point.disk != DiskModel::None && (point.peer, point.backing) != (Peer::Blockyard, Backing::Pool) {
        Some("disks are modelled below a pool of this product".to_owned())
    } else {
        None
    }
}

/// Returns the cores of a daemon with `count` of `all` cores: those after the client's first, and the client's own
/// last.
fn server_cores(count: usize, all: usize) -> Vec<usize> {
    (0..count).map(|index| (SERVER_CORE + index) % all.max(SERVER_CORE + 1)).collect()
}

fn machine_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn has_program(name: &str) -> bool {
    // Daemons are often outside of a user's `PATH`.
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).chain([PathBuf::from("/usr/sbin")]).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_nobody_can_serve_say_why() {
        let (means, plain) = (TestResources::default(), Point::default());
        assert_eq!(means.lacks(&plain), None);
        let told = |point: Point, why: &str| means.lacks(&point).is_some_and(|said| said.contains(why));
        assert!(told(Point { write: WritePolicy::Back, ..plain.clone() }, "in a pool"));
        assert!(told(Point { disk: DiskModel::Sata, ..plain.clone() }, "below a pool"));
        assert!(told(Point { cores: 4096, ..plain.clone() }, "is to have 4096"));
        assert!(told(Point { build: Build::Other, ..plain.clone() }, "--against"));
        assert!(told(Point { build: Build::Other, peer: Peer::Native, ..plain.clone() }, "not of the peer \"native\""));
        assert!(told(Point { connections: 0, ..plain.clone() }, "one or more"));
        assert!(told(Point { connections: 2, peer: Peer::Bare, ..plain.clone() }, "not of the peer \"bare\""));
        assert!(told(Point { connections: 2, peer: Peer::Tgt, ..plain.clone() }, "one connection"));
        let spdk = Point { peer: Peer::Spdk, luns: 2, ..plain.clone() };
        assert!(told(spdk.clone(), "--spdk PATH"));
        let built = TestResources { spdk: Some(PathBuf::from("iscsi_tgt")), ..TestResources::default() };
        assert_eq!(built.lacks(&spdk), None);
        let refused = |point: Point, why: &str| built.lacks(&point).is_some_and(|said| said.contains(why));
        assert!(refused(Point { connections: 2, ..spdk.clone() }, "does not order"));
        assert!(refused(Point { daemons: 2, ..spdk }, "do not share a core"));
        assert!(told(Point { daemons: 4, ..plain.clone() }, "luns = 4"));
        assert!(told(Point { daemons: 0, ..plain.clone() }, "one or more"));
        let driven = Point { daemons: 2, luns: 4, backing: Backing::Pool, write: WritePolicy::Back, ..plain };
        assert_eq!(means.lacks(&driven), None);
        let native = Point { peer: Peer::Native, write: WritePolicy::Through, ..driven };
        assert!(told(native, "not of the peer \"native\""));
    }

    #[test]
    fn client_shares_its_core_last() {
        assert_eq!(server_cores(1, 2), [1]);
        assert_eq!(server_cores(2, 2), [1, 0]);
        assert_eq!(server_cores(3, 8), [1, 2, 3]);
    }
}
