//! Keeps a load up: every session is a task that submits what its pace allows, sends it in one call, receives in one, and
//! takes what has ended. Generic over the world, so that a simulated one drives the same code.

mod bare;
mod device;
mod iscsi;
mod wire;

pub use self::iscsi::Login;
pub use bare::{HEADER_BYTES, READ, WRITE};

use crate::load::{Share, Source, Tallies, Window};
use crate::meter::Meter;
use crate::point::{Pattern, Point};
use crate::run::Sample;
use anyhow::{Context, Result, ensure};
use model::{Size, Span};
use shard::{Time, World, mailbox};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Bytes of a command that fills a unit.
const FILL_BYTES: u64 = 64 << 10;

/// The way to the units.
#[derive(Clone, Debug)]
pub enum Way {
    /// Sessions, one for each login; they are dealt over the units before.
    Iscsi(Vec<Login>),
    /// Sockets to a server of bare bytes, and the bytes of the unit that it stands for.
    Bare(SocketAddr, u64),
    /// Files or disks, each opened once; the sessions are dealt over them.
    Device(Vec<String>),
}

/// Measures `point` on `way` once: logs in, warms up, measures, and waits until the last command has ended.
///
/// *Errors*: no session, one that broke, a command that does not fit the unit.
pub async fn run<W: World>(world: &W, point: &Point, way: &Way, meter: &Meter, seed: u64) -> Result<Sample> {
    let sessions = point.clients * point.sessions;
    ensure!(sessions > 0 && point.depth > 0, "a load has a session and a depth");
    let units = units_of(world, point, way, sessions).await?;
    let from = world.now() + point.warm_up.duration();
    let window = Window { from, to: from + point.span.duration() };
    let tallies: Rc<RefCell<Tallies>> = Rc::default();
    let mut running = Vec::new();
    let of = u32::try_from(units.len())?;
    for (index, unit) in (0..).zip(units) {
        let luns = point.luns.min(of);
        let share = Share { index, of, of_unit: (index / luns, of.div_ceil(luns)) };
        ensure!(point.largest() <= unit.bytes(), "a command of {} bytes does not fit the unit", point.largest());
        let source = Source::new(point, unit.bytes(), share, seed, world.now(), window, tallies.clone());
        let (tell, told) = mailbox::channel();
        let inside = world.clone();
        world.spawn(async move {
            // Nobody waits any more where another session has failed.
            let _ = tell.send(unit.drive(&inside, source).await);
        });
        running.push(told);
    }
    world.sleep_until(window.from).await;
    let before = meter.read()?;
    world.sleep_until(window.to).await;
    let after = meter.read()?;
    let mut sample = Sample { seconds: window.to.since(window.from).as_secs_f64(), ..after.since(&before) };
    for session in running {
        sample.sessions.push(session.receive().await.context("a session's task is gone")??);
    }
    (sample.reads, sample.writes) = tallies.borrow().finish();
    Ok(sample)
}

/// Writes the units from end to end once, one session for each, so that reads find data and writes find memory.
///
/// *Errors*: as [`run`].
pub async fn fill<W: World>(world: &W, point: &Point, way: &Way) -> Result<()> {
    let once = Point {
        clients: point.luns,
        sessions: 1,
        pattern: Pattern::Sequential,
        reads: 0,
        block: Size::new(FILL_BYTES.min(point.unit.bytes())),
        blocks: Vec::new(),
        depth: 8,
        think: Span::from_millis(0),
        rate: 0,
        ..point.clone()
    };
    let way = match way {
        Way::Iscsi(logins) => Way::Iscsi(logins.iter().take(point.luns as usize).cloned().collect()),
        other => other.clone(),
    };
    let window = Window { from: world.now(), to: Time(u64::MAX) };
    for unit in units_of(world, &once, &way, once.clients).await? {
        let share = Share { index: 0, of: 1, of_unit: (0, 1) };
        let mut source = Source::new(&once, unit.bytes(), share, 0, world.now(), window, Rc::default());
        source.only_once();
        let wanted = unit.bytes() / once.block.bytes();
        let written = unit.drive(world, source).await?;
        ensure!(written == wanted, "of {wanted} writes that fill the unit, {written} succeeded");
    }
    Ok(())
}

/// A session, ready for its load.
enum Unit<W: World> {
    Iscsi(iscsi::Session<W>),
    Bare(bare::Session<W>),
    Device(Rc<W::Disk>),
}

async fn units_of<W: World>(world: &W, point: &Point, way: &Way, sessions: u32) -> Result<Vec<Unit<W>>> {
    let mut units = Vec::new();
    match way {
        Way::Iscsi(logins) => {
            for login in logins {
                units.push(Unit::Iscsi(iscsi::Session::log_in(world, login).await?));
            }
        }
        Way::Bare(address, bytes) => {
            for _ in 0..sessions {
                units.push(Unit::Bare(bare::Session::connect(world, *address, *bytes).await?));
            }
        }
        Way::Device(paths) => {
            let disks = device::open(world, paths, point)?;
            units.extend((0..sessions as usize).map(|index| Unit::Device(disks[index % disks.len()].clone())));
        }
    }
    Ok(units)
}

impl<W: World> Unit<W> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Iscsi(session) => session.bytes(),
            Self::Bare(session) => session.bytes(),
            Self::Device(disk) => device::bytes(&**disk),
        }
    }

    /// Its commands, when the source is over.
    async fn drive(self, world: &W, source: Source) -> Result<u64> {
        match self {
            Self::Iscsi(session) => session.drive(world, source).await,
            Self::Bare(session) => session.drive(world, source).await,
            Self::Device(disk) => device::drive(world, disk, source).await,
        }
    }
}
