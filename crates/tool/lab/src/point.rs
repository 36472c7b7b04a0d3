//! One thing to measure, whole.

use anyhow::{Context as _, Result, ensure};
use block::medium::Medium;
use model::{Level, Size, Span, WritePolicy};
use serde::{Deserialize, Serialize};
use std::fmt;

/// More sessions than one client has ports for, or memory.
const SESSIONS_MAX: u64 = 1 << 16;
/// More commands under way than a session of iSCSI has tags for.
const DEPTH_MAX: u32 = 1 << 16;

/// What is measured at one place of a scenario's matrix. Every key has a default, so a scenario names only what it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Point {
    /// Who serves.
    pub peer: Peer,
    /// Which of two builds, where the peer is this product.
    pub build: Build,
    /// What holds the data.
    pub backing: Backing,
    /// The RAID level where the backing is a pool.
    pub level: Level,
    /// Disks of that pool.
    pub disks: u32,
    /// What those disks behave like.
    pub disk: DiskModel,
    /// Bytes of each unit.
    pub unit: Size,
    /// False: neither reads nor writes are cached.
    pub cache: bool,
    /// When a volume of a pool acknowledges a write.
    pub write: WritePolicy,
    /// Further arguments of the peer's daemon.
    pub arguments: Vec<String>,
    /// Cores of the daemon, and so its shards.
    pub cores: u32,
    /// Daemons that share the units, where the peer is one that knows no more than one core.
    pub daemons: u32,

    /// Initiators, each with a name of its own.
    pub clients: u32,
    /// Sessions of each client.
    pub sessions: u32,
    /// Connections of each session; its commands are dealt over them in turn.
    pub connections: u32,
    /// Units that the sessions are dealt over.
    pub luns: u32,
    /// CRC32C of headers and data.
    pub digests: bool,

    /// How addresses follow each other.
    pub pattern: Pattern,
    /// Commands out of a hundred that read.
    pub reads: u8,
    /// Bytes of a command.
    pub block: Size,
    /// Bytes of a command by weight, where they are not all alike; `block` does not count then.
    pub blocks: Vec<Weighted>,
    /// Commands of each session under way at once; with `rate`, at most.
    pub depth: u32,
    /// Commands of all sessions together under way at once, dealt evenly; zero: as many as `depth` gives each.
    pub workers: u32,
    /// What a slot waits between one command and the next.
    pub think: Span,
    /// Commands per second of all sessions together that are due whatever the target does; zero: as many as it answers.
    pub rate: u32,
    /// Every block is stamped and every read judged.
    pub verify: bool,
    /// The client looks for answers before it sleeps, so that it need not be woken. Its core is full then, whatever the load.
    pub client_polls: bool,
    /// Another load on the same target, whose commands are not what is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,

    /// How long the load runs before it is measured.
    pub warm_up: Span,
    /// How long it is measured.
    pub span: Span,
}

impl Default for Point {
    fn default() -> Self {
        Self {
            peer: Peer::Blockyard,
            build: Build::This,
            backing: Backing::Ram,
            level: Level::Raid6,
            disks: 6,
            disk: DiskModel::None,
            unit: Size::mib(256),
            cache: true,
            write: WritePolicy::Through,
            arguments: Vec::new(),
            cores: 1,
            daemons: 1,
            clients: 1,
            sessions: 1,
            connections: 1,
            luns: 1,
            digests: false,
            pattern: Pattern::Random,
            reads: 100,
            block: Size::new(4096),
            blocks: Vec::new(),
            depth: 32,
            workers: 0,
            think: Span::from_millis(0),
            rate: 0,
            verify: false,
            client_polls: false,
            beside: None,
            warm_up: Span::from_millis(300),
            span: Span::from_millis(2000),
        }
    }
}

/// A load beside the one that is measured, from one client more. Its sessions are dealt over the units behind the point's own:
/// with as many units as sessions in all, each has one to itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Beside {
    /// Sessions.
    pub sessions: u32,
    /// Commands of each under way at once.
    pub depth: u32,
    /// How addresses follow each other.
    pub pattern: Pattern,
    /// Commands out of a hundred that read.
    pub reads: u8,
    /// Bytes of a command.
    pub block: Size,
}

impl Default for Beside {
    fn default() -> Self {
        Self { sessions: 1, depth: 512, pattern: Pattern::Random, reads: 100, block: Size::new(4096) }
    }
}

impl Point {
    /// *Errors*: what it says of its load is none.
    pub fn check(&self) -> Result<()> {
        let sessions = u64::from(self.clients) * u64::from(self.sessions);
        let beside = self.beside.map_or(0, |beside| beside.sessions.into());
        ensure!(sessions > 0 && self.depth > 0, "clients, sessions and depth are one or more");
        ensure!(
            sessions + beside <= SESSIONS_MAX,
            "a load has {SESSIONS_MAX} sessions at most, those beside it included"
        );
        // No other session has more.
        let depth = self.depth_of(0);
        ensure!(depth <= DEPTH_MAX, "a session has a depth of {DEPTH_MAX} at most, and not of {depth}");
        ensure!(self.reads <= 100, "reads are out of a hundred, and not {} of them", self.reads);
        for size in self.sizes() {
            ensure!(size > 0 && u32::try_from(size).is_ok(), "a command has 1 to {} bytes, and not {size}", u32::MAX);
        }
        let weights: u64 = self.blocks.iter().map(|each| u64::from(each.weight)).sum();
        let weighs = self.blocks.is_empty() || weights > 0 && u32::try_from(weights).is_ok();
        ensure!(weighs, "the weights of blocks are 1 to {} together, and not {weights}", u32::MAX);
        self.neighbour().map_or(Ok(()), |neighbour| neighbour.check()).context("beside")
    }

    /// Sessions whose commands are measured.
    #[must_use]
    pub fn own_sessions(&self) -> u32 {
        self.clients * self.sessions
    }

    /// Those, and behind them the ones of the load beside it.
    #[must_use]
    pub fn all_sessions(&self) -> u32 {
        self.own_sessions() + self.beside.map_or(0, |beside| beside.sessions)
    }

    /// The load beside it, as a point of its own.
    #[must_use]
    pub fn neighbour(&self) -> Option<Self> {
        let Beside { sessions, depth, pattern, reads, block } = self.beside?;
        Some(Self {
            clients: 1,
            sessions,
            pattern,
            reads,
            block,
            blocks: Vec::new(),
            depth,
            workers: 0,
            think: Span::from_millis(0),
            rate: 0,
            beside: None,
            ..self.clone()
        })
    }

    /// True when some command of it writes, or of the load beside it.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.reads < 100 || self.beside.is_some_and(|beside| beside.reads < 100)
    }

    /// The client of a session.
    #[must_use]
    pub fn client_of(&self, session: u32) -> u32 {
        (session / self.sessions).min(self.clients)
    }

    /// Commands that a session is to have room for.
    #[must_use]
    pub fn room_of(&self, session: u32) -> u32 {
        match self.beside {
            Some(beside) if session >= self.own_sessions() => beside.depth,
            _ => self.depth_of(0).max(self.depth),
        }
    }

    /// The commands that one of its own sessions has under way at once. One that the workers do not reach has none.
    #[must_use]
    pub fn depth_of(&self, session: u32) -> u32 {
        let sessions = self.own_sessions();
        match self.workers {
            0 => self.depth,
            workers => workers / sessions + u32::from(session < workers % sessions),
        }
    }

    /// Those of all of them, session by session.
    #[must_use]
    pub fn depths(&self) -> Vec<u32> {
        (0..self.own_sessions()).map(|session| self.depth_of(session)).collect()
    }

    /// Bytes of the longest command.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.sizes().max().unwrap_or_default()
    }

    /// Bytes of its commands, whose sizes may be several.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let one = self.blocks.is_empty().then_some(self.block);
        self.blocks.iter().map(|each| each.block).chain(one).map(Size::bytes)
    }
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// This product.
    Blockyard,
    /// Debian's tgtd.
    Tgt,
    /// SPDK's `iscsi_tgt`, where its path is given.
    Spdk,
    /// The target that was named on the command line.
    Given,
    /// The file or disk itself, without a target.
    Native,
    /// A socket that moves as many bytes as iSCSI would.
    Bare,
}

/// One of two builds of this product that are measured in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Build {
    /// The one that measures, or the first that was named.
    This,
    /// The one that it is compared with.
    Other,
}

/// What holds a unit's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// Nothing.
    Null,
    /// Memory.
    Ram,
    /// A file.
    File,
    /// A volume of a pool of disks.
    Pool,
}

/// What the disks of a pool behave like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskModel {
    /// What they are: files in memory.
    None,
    /// A SAS disk at 15,000 turns a minute.
    Sas15k,
    /// A SATA disk at 7,200.
    Sata,
    /// A SATA SSD.
    Ssd,
    /// An NVMe SSD.
    Nvme,
}

impl DiskModel {
    /// The medium that takes the time; nothing where the files do.
    #[must_use]
    pub fn medium(self) -> Option<Medium> {
        match self {
            Self::None => None,
            Self::Sas15k => Some(Medium::Sas15k),
            Self::Sata => Some(Medium::Sata),
            Self::Ssd => Some(Medium::Ssd),
            Self::Nvme => Some(Medium::Nvme),
        }
    }
}

/// How addresses follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each session walks its own part of the unit from the beginning to the end, and again.
    Sequential,
    /// Every place is as likely as every other.
    Random,
    /// The place of rank `r` is as likely as `r^-0.99`; ranks are scattered over the unit.
    Zipf,
}

/// Commands of a size, out of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// Bytes of a command.
    pub block: Size,
    /// Out of the sum of all weights.
    pub weight: u32,
}

macro_rules! by_serde {
    ($($name:ty),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}

// The names that scenarios use.
by_serde!(Peer, Build, Backing, DiskModel, Pattern);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_dealt_over_the_sessions() {
        let point = Point { clients: 2, sessions: 2, depth: 8, ..Point::default() };
        assert_eq!(point.depths(), [8, 8, 8, 8]);
        assert_eq!(Point { workers: 3, ..point.clone() }.depths(), [1, 1, 1, 0]);
        assert_eq!(Point { workers: 1500, ..point }.depths(), [375; 4]);
    }

    #[test]
    fn load_that_is_none_is_refused() {
        let point = Point { sessions: 2, ..Point::default() };
        let beside = |beside: Beside| Point { beside: Some(beside), ..point.clone() };
        let size = |bytes| Point { block: Size::new(bytes), ..point.clone() };
        let weights = |weights: [u32; 2]| {
            let blocks = weights.map(|weight| Weighted { block: Size::new(4096), weight });
            Point { blocks: blocks.to_vec(), ..point.clone() }
        };
        let sound = [point.clone(), size(1), weights([0, 1]), Point { workers: 1, ..point.clone() }];
        sound.iter().for_each(|point| point.check().expect("a load"));
        let wrong = [
            (Point { clients: 0, ..point.clone() }, "one or more"),
            (Point { sessions: 0, ..point.clone() }, "one or more"),
            (Point { depth: 0, ..point.clone() }, "one or more"),
            (Point { clients: u32::MAX, sessions: u32::MAX, ..point.clone() }, "65536 sessions"),
            (beside(Beside { sessions: u32::MAX, ..Beside::default() }), "65536 sessions"),
            (beside(Beside { sessions: 0, ..Beside::default() }), "beside: clients, sessions and depth"),
            (Point { depth: 65537, ..point.clone() }, "not of 65537"),
            (Point { workers: u32::MAX, ..point.clone() }, "not of 2147483648"),
            (beside(Beside { depth: u32::MAX, ..Beside::default() }), "beside: a session has a depth"),
            (Point { reads: 101, ..point.clone() }, "not 101"),
            (size(0), "bytes, and not 0"),
            (size(1 << 32), "bytes, and not 4294967296"),
            (weights([0, 0]), "weights"),
            (weights([u32::MAX, 1]), "weights"),
        ];
        for (point, why) in wrong {
            let said = format!("{:#}", point.check().expect_err(why));
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn load_beside_it_is_one_client_more() {
        let beside = Beside { sessions: 3, depth: 64, ..Beside::default() };
        let point = Point { clients: 2, sessions: 2, rate: 10, workers: 6, beside: Some(beside), ..Point::default() };
        assert_eq!((point.own_sessions(), point.all_sessions()), (4, 7));
        assert_eq!([0, 3, 4, 6].map(|session| point.client_of(session)), [0, 1, 2, 2]);
        assert_eq!([0, 3, 4, 6].map(|session| point.room_of(session)), [32, 32, 64, 64]);
        let neighbour = point.neighbour().expect("there is one");
        assert!(!point.writes() && Point { beside: Some(Beside { reads: 99, ..beside }), ..point.clone() }.writes());
        assert_eq!((neighbour.depths(), neighbour.rate, neighbour.neighbour()), (vec![64; 3], 0, None));
    }
}
