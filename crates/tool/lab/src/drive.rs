//! Load generator: a task per session submits commands at the pace of the load, sends and receives in one call each,
//! and collects completions.
//!
//! Called by `measure` on a thread of its own. Generic over the world, so that the simulator runs the same code. It
//! must not measure anything but the load itself; CPU and memory are read by `meter`.

mod bare;
mod bundle;
mod device;
mod iscsi;
mod replay;
mod reservations;
mod wire;
mod workload;

pub use self::iscsi::Login;
pub use bare::{HEADER_BYTES, READ, WRITE};
pub use replay::{Replaying, replay};

use crate::load::{Ledger, Share, Source, Verification, Window};
use crate::meter::Meter;
use crate::point::{Pattern, Point};
use crate::run::Sample;
use anyhow::{Context, Result, ensure};
use model::{Size, Span};
use shard::{Signal, Time, World, mailbox};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use workload::Workloads;

/// Bytes of a command of a sequential fill or read-back.
const WALK_BYTES: u64 = 256 << 10;
/// Queue depth of a fill or read-back.
const WALK_DEPTH: u32 = 8;

type Judge = Rc<RefCell<Ledger>>;

/// Transport to the units.
#[derive(Clone, Debug)]
pub enum Transport {
    /// iSCSI sessions, one for each login, already dealt over the units.
    Iscsi(Vec<Login>),
    /// Raw TCP connections to a server, and the size in bytes of the unit that it stands for.
    Bare(SocketAddr, u64),
    /// Files or disks, each opened once; sessions are dealt over them.
    Device(Vec<String>),
}

/// Measures `point` once: fills the units if they are `fresh`, logs in, warms up, measures, drains, and reads
/// everything back if it is verified.
///
/// *Errors*: an invalid load, a broken session, or a command that does not fit the unit.
pub async fn run<W: World>(
    world: &W,
    point: &Point,
    way: &Transport,
    meter: &Meter,
    fresh: bool,
    seed: u64,
) -> Result<Sample> {
    point.check()?;
    let workloads = Workloads::of(point);
    ensure!(
        !point.verify || !matches!(way, Transport::Bare(..)),
        "a server of bare bytes keeps nothing that could be verified"
    );
    let ends = OpenTransport::of(world, way).await?;
    let distinct = ends.units(point);
    let mut judges = Judges::new(world, point, fresh, seed);
    if fresh {
        walk(world, point, &ends, 0, &mut judges).await.context("cannot fill the units")?;
    }
    // Logged in only after the fill, which can take longer than a target's timeout for a silent session.
    let units = ends.open(world, point.all_sessions(), false).await?;
    // Ledgers are created in the order of units, before sessions share them.
    units.iter().take(distinct as usize).enumerate().for_each(|(index, unit)| drop(judges.of_unit(index, unit)));
    // Commands of the warm-up are like the others, but are not counted.
    let from = world.now() + point.warm_up.duration();
    let window = Window { from, to: from + point.span.duration() };
    let (mut running, metered, broken) = (Vec::new(), Rc::<Metered>::default(), Rc::<FirstError>::default());
    for (index, unit) in (0..).zip(units) {
        let (load, share) = workloads.share(index, distinct).context("a session has no load")?;
        unit.takes(&load.point)?;
        let source = Source::new(&load.point, unit.bytes(), share, seed, world.now(), window, load.tallies.clone());
        // The units are dealt over sessions, so several sessions may share a ledger.
        let source = match judges.of_unit((index % distinct) as usize, &unit) {
            Some(judge) => source.judged_by(judge),
            None => source,
        };
        let (tell, told) = mailbox::channel();
        let (inside, metered, broken) = (world.clone(), metered.clone(), broken.clone());
        world.spawn(async move {
            match unit.drive(&inside, source, Some(&metered)).await {
                // The receiver is gone if another session has failed.
                Ok(ended) => drop(tell.send(ended)),
                Err(error) => broken.raise(error),
            }
        });
        running.push(told);
    }
    // The meters are read at the limits of the window, while the load is running.
    broken.unless(world.sleep_until(window.from)).await?;
    let before = meter.read()?;
    broken.unless(world.sleep_until(window.to)).await?;
    let after = meter.read()?;
    // From here on sessions may log out: the meters need their sockets no longer.
    metered.raise();
    let mut sessions = Vec::new();
    for session in running {
        sessions.push(broken.unless(session.receive()).await?.context("a session's task is gone")?);
    }
    // `since` joins the threads of the meters, which may wait for a daemon: only after the load has ended.
    let mut sample = workloads.sample(window, after.since(before), sessions);
    if point.verify {
        walk(world, point, &ends, 100, &mut judges).await.context("cannot read the units back")?;
        let mut proof = Verification::default();
        judges.ledgers.iter().for_each(|judge| proof.add(judge.borrow().proof()));
        sample.proof = Some(proof);
    }
    Ok(sample)
}

/// Returns the reason why the units should not be written to: registered keys, a reservation, or data in the first or
/// last MiB.
///
/// *Errors*: as [`run`].
pub async fn in_use<W: World>(world: &W, point: &Point, way: &Transport) -> Result<Option<String>> {
    let ends = OpenTransport::of(world, way).await?;
    for (index, unit) in ends.open(world, ends.units(point), true).await?.iter_mut().enumerate() {
        if let Some(why) = unit.in_use(world).await? {
            return Ok(Some(format!("unit {index} {why}")));
        }
    }
    Ok(None)
}

/// Ledgers of the units, each created when its unit is first used.
struct Judges {
    /// Seed of the stamps; none without verification.
    of: Option<u64>,
    ledgers: Vec<Judge>,
}

impl Judges {
    /// Prepares ledgers for a run whose units are `fresh`, or hold other data.
    fn new<W: World>(world: &W, point: &Point, fresh: bool, seed: u64) -> Self {
        // On a unit that is not filled, stamps of earlier runs must not count as this run's.
        let mut unique = [0; 8];
        if !fresh {
            world.random(&mut unique);
        }
        Self { of: point.verify.then_some(seed ^ u64::from_be_bytes(unique)), ledgers: Vec::new() }
    }

    /// Returns the ledger of unit `index`. Units must be used in their order.
    fn of_unit<W: World>(&mut self, index: usize, unit: &Unit<W>) -> Option<Judge> {
        let seed = self.of?;
        if self.ledgers.len() == index {
            self.ledgers.push(Rc::new(RefCell::new(Ledger::new(unit.bytes(), seed))));
        }
        self.ledgers.get(index).cloned()
    }
}

/// Writes or reads every unit sequentially once, with one session per unit.
async fn walk<W: World>(
    world: &W,
    point: &Point,
    ends: &OpenTransport<'_, W>,
    reads: u8,
    judges: &mut Judges,
) -> Result<()> {
    // Neither think time nor rate: a fill takes only as long as the target needs.
    let once = Point {
        pattern: Pattern::Sequential,
        reads,
        block: Size::new(WALK_BYTES.min(point.unit.bytes())),
        blocks: Vec::new(),
        depth: WALK_DEPTH,
        think: Span::from_millis(0),
        rate: 0,
        ..point.clone()
    };
    let units = ends.units(point);
    // No end: the source ends after one pass.
    let window = Window { from: world.now(), to: Time(u64::MAX) };
    // One unit after the other, so that every target accepts the load of a fill.
    for index in 0..units {
        let unit = ends.open_one(world, index, true).await?;
        let share = Share { index: 0, of: 1, of_unit: (0, 1), depth: once.depth };
        let mut source = Source::new(&once, unit.bytes(), share, 0, world.now(), window, Rc::default());
        if let Some(judge) = judges.of_unit(index as usize, &unit) {
            source = source.judged_by(judge);
        }
        source.only_once();
        let wanted = unit.bytes() / once.block.bytes();
        let ended = unit.drive(world, source, None).await?;
        // After a failed command a part of the unit would be without stamps, or not verified.
        ensure!(ended == wanted, "of {wanted} commands over the whole unit, {ended} ended well");
    }
    Ok(())
}

/// Session, ready for its load.
enum Unit<W: World> {
    Iscsi(Box<iscsi::Session<W>>),
    Bare(bare::Session<W>),
    Device(Rc<W::Disk>),
}

/// Transport to the units, with the resources that are opened once.
enum OpenTransport<'a, W: World> {
    Iscsi(&'a [Login]),
    Bare(SocketAddr, u64),
    Device(Vec<Rc<W::Disk>>),
}

impl<'a, W: World> OpenTransport<'a, W> {
    async fn of(world: &W, way: &'a Transport) -> Result<Self> {
        Ok(match way {
            Transport::Iscsi(logins) => Self::Iscsi(logins),
            Transport::Bare(address, bytes) => Self::Bare(*address, *bytes),
            Transport::Device(paths) => Self::Device(device::open(world, paths).await?),
        })
    }

    /// Opens `sessions` sessions, dealt over the units; those of a fill have other identities than those of the load.
    async fn open(&self, world: &W, sessions: u32, walk: bool) -> Result<Vec<Unit<W>>> {
        let mut units = Vec::new();
        for index in 0..sessions {
            units.push(self.open_one(world, index, walk).await?);
        }
        Ok(units)
    }

    /// Opens session `index`.
    async fn open_one(&self, world: &W, index: u32, walk: bool) -> Result<Unit<W>> {
        Ok(match self {
            Self::Iscsi(logins) => {
                let login = logins.get(index as usize).context("there are more sessions than logins")?;
                // Another ISID, so that the session of the load does not reinstate that of the fill (RFC 7143 §6.3.5).
                let session = if walk { login.session ^ 0x8000 } else { login.session };
                Unit::Iscsi(Box::new(iscsi::Session::log_in(world, &Login { session, ..login.clone() }).await?))
            }
            Self::Bare(address, bytes) => Unit::Bare(bare::Session::connect(world, *address, *bytes).await?),
            Self::Device(disks) => Unit::Device(disks[index as usize % disks.len()].clone()),
        })
    }

    /// Returns the number of units that the sessions of `point` are dealt over.
    fn units(&self, point: &Point) -> u32 {
        let there = match self {
            Self::Iscsi(_) => point.luns.max(1),
            Self::Bare(..) => 1,
            Self::Device(disks) => u32::try_from(disks.len()).unwrap_or(u32::MAX),
        };
        // A unit without a session is neither filled nor verified.
        there.min(point.all_sessions())
    }
}

impl<W: World> Unit<W> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Iscsi(session) => session.bytes(),
            Self::Bare(session) => session.bytes(),
            Self::Device(disk) => device::bytes(&**disk),
        }
    }

    /// *Errors*: the unit is shorter than a command, or a command is no number of its blocks.
    fn takes(&self, load: &Point) -> Result<()> {
        let block: u64 = match self {
            Self::Iscsi(session) => session.block_bytes().into(),
            Self::Bare(_) => 1,
            Self::Device(_) => device::BLOCK_BYTES.into(),
        };
        for size in load.sizes() {
            ensure!(size <= self.bytes(), "a command of {size} bytes does not fit the unit");
            ensure!(size.is_multiple_of(block), "a command of {size} bytes is no number of blocks of {block} bytes");
        }
        Ok(())
    }

    /// Returns the reason why the unit should not be written to.
    async fn in_use(&mut self, world: &W) -> Result<Option<String>> {
        const LOOK_BYTES: u64 = 1 << 20;
        if let Some(why) = self.owners(world).await.context("cannot ask who uses it")? {
            return Ok(Some(why));
        }
        let bytes = self.bytes();
        let look = LOOK_BYTES.min(bytes);
        // File systems and RAID keep metadata at one end or the other.
        for from in [0, bytes - look] {
            let data = self.read(world, from, look).await.context("cannot look what is there")?;
            if let Some(at) = data.iter().position(|&byte| byte != 0) {
                return Ok(Some(format!("holds data, at byte {}", from + at as u64)));
            }
        }
        Ok(None)
    }

    /// Returns the reservation or registration of another host, if the transport can report one.
    async fn owners(&mut self, world: &W) -> Result<Option<String>> {
        match self {
            Self::Iscsi(session) => reservations::owners(session, world).await,
            Self::Bare(_) | Self::Device(_) => Ok(None),
        }
    }

    /// Reads `len` bytes from `from` on.
    async fn read(&mut self, world: &W, from: u64, len: u64) -> Result<Vec<u8>> {
        match self {
            Self::Iscsi(session) => session.read(world, from, len).await,
            // A raw server keeps nothing that could be overwritten.
            Self::Bare(_) => Ok(Vec::new()),
            Self::Device(disk) => device::read(&**disk, from, len).await,
        }
    }

    /// Runs the source to its end and returns the number of counted commands; waits for the last reading of the meters
    /// before the session ends.
    async fn drive(self, world: &W, mut source: Source, metered: Option<&Metered>) -> Result<u64> {
        match self {
            Self::Iscsi(mut session) => {
                let ended = session.drive(world, &mut source).await?;
                // The kernel's counters of a socket disappear with it, so the connection stays until they were read.
                Metered::wait(metered.filter(|_| ended > 0)).await;
                session.log_out(world).await?;
                Ok(ended)
            }
            Self::Bare(session) => {
                let ended = session.drive(world, &mut source).await?;
                Metered::wait(metered.filter(|_| ended > 0)).await;
                Ok(ended)
            }
            Self::Device(disk) => device::drive(world, disk, source).await,
        }
    }
}

/// First error of any session. A load that has lost a session is not the one to be measured.
#[derive(Default)]
struct FirstError {
    error: RefCell<Option<anyhow::Error>>,
    news: Signal,
}

impl FirstError {
    fn raise(&self, error: anyhow::Error) {
        // Later errors are mostly consequences of the first one.
        self.error.borrow_mut().get_or_insert(error);
        self.news.raise();
    }

    /// Returns the result of `awaited`.
    ///
    /// *Errors*: a session has failed, before or meanwhile.
    async fn unless<T>(&self, awaited: impl Future<Output = T>) -> Result<T> {
        let mut failure = pin!(self.news.until(|| self.error.borrow().is_some()));
        let mut awaited = pin!(awaited);
        // The failure first: a lost session ends the wait even if the other result is ready.
        poll_fn(|cx| match failure.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(self.error.take().expect("it was just seen"))),
            Poll::Pending => awaited.as_mut().poll(cx).map(Ok),
        })
        .await
    }
}

/// Flag that the meters have been read for the last time; connections stay open until then.
#[derive(Default)]
struct Metered {
    done: Cell<bool>,
    news: Signal,
}

impl Metered {
    fn raise(&self) {
        self.done.set(true);
        self.news.raise();
    }

    async fn wait(metered: Option<&Self>) {
        if let Some(metered) = metered {
            metered.news.until(|| metered.done.get()).await;
        }
    }
}
