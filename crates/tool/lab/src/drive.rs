//! Keeps a load up: every session is a task that submits what its pace allows, sends it in one call, receives in one, and
//! takes what has ended. Generic over the world, so that a simulated one drives the same code.

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

use crate::load::{Ledger, Proof, Share, Source, Window};
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

/// Bytes of a command that fills a unit, or reads it back.
const WALK_BYTES: u64 = 256 << 10;
/// How many of those are under way.
const WALK_DEPTH: u32 = 8;

type Judge = Rc<RefCell<Ledger>>;

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

/// Measures `point` on `way` once: fills the units where they are to be `fresh`, logs in, warms up, measures, waits until the last
/// command has ended, and reads everything back where it is to be proved.
///
/// *Errors*: no load, a session that broke, a command that does not fit the unit.
pub async fn run<W: World>(
    world: &W,
    point: &Point,
    way: &Way,
    meter: &Meter,
    fresh: bool,
    seed: u64,
) -> Result<Sample> {
    point.check()?;
    let workloads = Workloads::of(point);
    ensure!(
        !point.verify || !matches!(way, Way::Bare(..)),
        "a server of bare bytes keeps nothing that could be verified"
    );
    let ends = Ends::of(world, way).await?;
    let distinct = ends.units(point);
    let mut judges = Judges::new(world, point, fresh, seed);
    if fresh {
        walk(world, point, &ends, 0, &mut judges).await.context("cannot fill the units")?;
    }
    // Not before: to fill slow units takes longer than a target waits for a session that says nothing.
    let units = ends.open(world, point.all_sessions(), false).await?;
    units.iter().take(distinct as usize).enumerate().for_each(|(index, unit)| drop(judges.of_unit(index, unit)));
    let from = world.now() + point.warm_up.duration();
    let window = Window { from, to: from + point.span.duration() };
    let (mut running, metered, broken) = (Vec::new(), Rc::<Metered>::default(), Rc::<Broken>::default());
    for (index, unit) in (0..).zip(units) {
        let (load, share) = workloads.share(index, distinct).context("a session has no load")?;
        unit.takes(&load.point)?;
        let source = Source::new(&load.point, unit.bytes(), share, seed, world.now(), window, load.tallies.clone());
        let source = match judges.of_unit((index % distinct) as usize, &unit) {
            Some(judge) => source.judged_by(judge),
            None => source,
        };
        let (tell, told) = mailbox::channel();
        let (inside, metered, broken) = (world.clone(), metered.clone(), broken.clone());
        world.spawn(async move {
            match unit.drive(&inside, source, Some(&metered)).await {
                // Nobody waits any more where another session has failed.
                Ok(ended) => drop(tell.send(ended)),
                Err(error) => broken.raise(error),
            }
        });
        running.push(told);
    }
    broken.unless(world.sleep_until(window.from)).await?;
    let before = meter.read()?;
    broken.unless(world.sleep_until(window.to)).await?;
    let after = meter.read()?;
    metered.raise();
    let mut sessions = Vec::new();
    for session in running {
        sessions.push(broken.unless(session.receive()).await?.context("a session's task is gone")?);
    }
    // The meters may be waited for now that nobody else waits.
    let mut sample = workloads.sample(window, after.since(before), sessions);
    if point.verify {
        walk(world, point, &ends, 100, &mut judges).await.context("cannot read the units back")?;
        let mut proof = Proof::default();
        judges.ledgers.iter().for_each(|judge| proof.add(judge.borrow().proof()));
        sample.proof = Some(proof);
    }
    Ok(sample)
}

/// Why the units had better not be written to: hosts have registered keys with one of them or reserved it, or it holds data, in its
/// first MiB or its last.
///
/// *Errors*: as [`run`].
pub async fn in_use<W: World>(world: &W, point: &Point, way: &Way) -> Result<Option<String>> {
    let ends = Ends::of(world, way).await?;
    for (index, unit) in ends.open(world, ends.units(point), true).await?.iter_mut().enumerate() {
        if let Some(why) = unit.in_use(world).await? {
            return Ok(Some(format!("unit {index} {why}")));
        }
    }
    Ok(None)
}

/// The ledgers of the units, each made when its unit is first seen.
struct Judges {
    /// The seed of the stamps; nothing where nobody is judged.
    of: Option<u64>,
    ledgers: Vec<Judge>,
}

impl Judges {
    /// Those of a run, whose units are `fresh` or hold what somebody has left there.
    fn new<W: World>(world: &W, point: &Point, fresh: bool, seed: u64) -> Self {
        // What an earlier run has left on a unit that is not filled is nobody's of this one.
        let mut unique = [0; 8];
        if !fresh {
            world.random(&mut unique);
        }
        Self { of: point.verify.then_some(seed ^ u64::from_be_bytes(unique)), ledgers: Vec::new() }
    }

    /// The ledger of unit `index`. Units are seen in their order.
    fn of_unit<W: World>(&mut self, index: usize, unit: &Unit<W>) -> Option<Judge> {
        let seed = self.of?;
        if self.ledgers.len() == index {
            self.ledgers.push(Rc::new(RefCell::new(Ledger::new(unit.bytes(), seed))));
        }
        self.ledgers.get(index).cloned()
    }
}

/// Writes or reads every unit from end to end once, one session for each.
async fn walk<W: World>(world: &W, point: &Point, ends: &Ends<'_, W>, reads: u8, judges: &mut Judges) -> Result<()> {
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
    let window = Window { from: world.now(), to: Time(u64::MAX) };
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
        ensure!(ended == wanted, "of {wanted} commands over the whole unit, {ended} ended well");
    }
    Ok(())
}

/// A session, ready for its load.
enum Unit<W: World> {
    Iscsi(Box<iscsi::Session<W>>),
    Bare(bare::Session<W>),
    Device(Rc<W::Disk>),
}

/// The way to the units, with what is opened once and held.
enum Ends<'a, W: World> {
    Iscsi(&'a [Login]),
    Bare(SocketAddr, u64),
    Device(Vec<Rc<W::Disk>>),
}

impl<'a, W: World> Ends<'a, W> {
    async fn of(world: &W, way: &'a Way) -> Result<Self> {
        Ok(match way {
            Way::Iscsi(logins) => Self::Iscsi(logins),
            Way::Bare(address, bytes) => Self::Bare(*address, *bytes),
            Way::Device(paths) => Self::Device(device::open(world, paths).await?),
        })
    }

    /// The first `sessions` sessions, dealt over the units; those that walk are others than those that load.
    async fn open(&self, world: &W, sessions: u32, walk: bool) -> Result<Vec<Unit<W>>> {
        let mut units = Vec::new();
        for index in 0..sessions {
            units.push(self.open_one(world, index, walk).await?);
        }
        Ok(units)
    }

    /// Session `index` of those.
    async fn open_one(&self, world: &W, index: u32, walk: bool) -> Result<Unit<W>> {
        Ok(match self {
            Self::Iscsi(logins) => {
                let login = logins.get(index as usize).context("there are more sessions than logins")?;
                let session = if walk { login.session ^ 0x8000 } else { login.session };
                Unit::Iscsi(Box::new(iscsi::Session::log_in(world, &Login { session, ..login.clone() }).await?))
            }
            Self::Bare(address, bytes) => Unit::Bare(bare::Session::connect(world, *address, *bytes).await?),
            Self::Device(disks) => Unit::Device(disks[index as usize % disks.len()].clone()),
        })
    }

    /// How many units the sessions of `point` are dealt over.
    fn units(&self, point: &Point) -> u32 {
        let there = match self {
            Self::Iscsi(_) => point.luns.max(1),
            Self::Bare(..) => 1,
            Self::Device(disks) => u32::try_from(disks.len()).unwrap_or(u32::MAX),
        };
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

    /// Why it had better not be written to.
    async fn in_use(&mut self, world: &W) -> Result<Option<String>> {
        const LOOK_BYTES: u64 = 1 << 20;
        if let Some(why) = self.owners(world).await.context("cannot ask who uses it")? {
            return Ok(Some(why));
        }
        let bytes = self.bytes();
        let look = LOOK_BYTES.min(bytes);
        for from in [0, bytes - look] {
            let data = self.read(world, from, look).await.context("cannot look what is there")?;
            if let Some(at) = data.iter().position(|&byte| byte != 0) {
                return Ok(Some(format!("holds data, at byte {}", from + at as u64)));
            }
        }
        Ok(None)
    }

    /// Why it is somebody else's, as far as it can be asked.
    async fn owners(&mut self, world: &W) -> Result<Option<String>> {
        match self {
            Self::Iscsi(session) => reservations::owners(session, world).await,
            Self::Bare(_) | Self::Device(_) => Ok(None),
        }
    }

    /// The `len` bytes from `from` on.
    async fn read(&mut self, world: &W, from: u64, len: u64) -> Result<Vec<u8>> {
        match self {
            Self::Iscsi(session) => session.read(world, from, len).await,
            Self::Bare(_) => Ok(Vec::new()),
            Self::Device(disk) => device::read(&**disk, from, len).await,
        }
    }

    /// Its commands, when the source is over and, where that is waited for, the meters have been read.
    async fn drive(self, world: &W, mut source: Source, metered: Option<&Metered>) -> Result<u64> {
        match self {
            Self::Iscsi(mut session) => {
                let ended = session.drive(world, &mut source).await?;
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

/// What the first session that failed has said. A load that has lost one is not what was to be measured.
#[derive(Default)]
struct Broken {
    error: RefCell<Option<anyhow::Error>>,
    news: Signal,
}

impl Broken {
    fn raise(&self, error: anyhow::Error) {
        self.error.borrow_mut().get_or_insert(error);
        self.news.raise();
    }

    /// What `awaited` gives.
    ///
    /// *Errors*: a session has failed, before or meanwhile.
    async fn unless<T>(&self, awaited: impl Future<Output = T>) -> Result<T> {
        let mut failure = pin!(self.news.until(|| self.error.borrow().is_some()));
        let mut awaited = pin!(awaited);
        poll_fn(|cx| match failure.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(self.error.take().expect("it was just seen"))),
            Poll::Pending => awaited.as_mut().poll(cx).map(Ok),
        })
        .await
    }
}

/// Whether the meters have been read for the last time: connections are there until then.
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
