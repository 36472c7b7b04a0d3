//! Single measurement with all of its settings.

use anyhow::{Context as _, Result, ensure};
use block::medium::Medium;
use model::{Level, Size, Span, WritePolicy};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Limit of sessions, beyond the ports and memory of one client.
const SESSIONS_MAX: u64 = 1 << 16;
/// Limit of the depth, beyond the tags of an iSCSI session.
const DEPTH_MAX: u32 = 1 << 16;

/// Settings of one point in a scenario. Every key has a default, so a scenario names only the keys that matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Point {
    /// Target.
    pub peer: Peer,
    /// Build of the product, if that is the target.
    pub build: Build,
    /// Back end of the units.
    pub backing: Backing,
    /// RAID level of a pool.
    pub level: Level,
    /// Number of disks of the pool.
    pub disks: u32,
    /// Model of the disks' timing.
    pub disk: DiskModel,
    /// Size of each unit.
    pub unit: Size,
    /// Cache reads and writes.
    pub cache: bool,
    /// Write policy of volumes of a pool.
    pub write: WritePolicy,
    /// Further arguments of the target's daemon.
    pub arguments: Vec<String>,
    /// Cores of the daemon, which is its number of shards.
    pub cores: u32,
    /// Daemons that share the units, for targets that use a single core.
    pub daemons: u32,

    /// Initiators, each with its own name.
    pub clients: u32,
    /// Sessions of each client.
    pub sessions: u32,
    /// Connections of each session; its commands are dealt over them in turn.
    pub connections: u32,
    /// Units that the sessions are dealt over.
    pub luns: u32,
    /// CRC32C digests of headers and data.
    pub digests: bool,

    /// Order of addresses.
    pub pattern: Pattern,
    /// Percentage of reads.
    pub reads: u8,
    /// Bytes of a command.
    pub block: Size,
    /// Sizes of commands by weight, in place of `block`.
    pub blocks: Vec<Weighted>,
    /// Queue depth of each session; with `rate`, its maximum.
    pub depth: u32,
    /// Commands in flight over all sessions, dealt evenly; zero uses `depth` for each session.
    pub workers: u32,
    /// Think time of a slot between two commands.
    pub think: Span,
    /// Commands per second of all sessions that are due independently of the target; zero sends as many as it
    /// completes.
    pub rate: u32,
    /// Stamp every written block, and verify every read.
    pub verify: bool,
    /// Poll for responses before sleeping, so that the client need not be woken. Its core is then always busy.
    pub client_polls: bool,
    /// Further load on the same target, which is not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<BackgroundLoad>,

    /// Duration of the load before the measurement.
    pub warm_up: Span,
    /// Duration of the measurement.
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

/// Load beside the measured one, from one further client. Its sessions are dealt over the units after the point's own:
/// with as many units as sessions in all, each has one to itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundLoad {
    /// Number of sessions.
    pub sessions: u32,
    /// Queue depth of each session.
    pub depth: u32,
    /// Order of addresses.
    pub pattern: Pattern,
    /// Percentage of reads.
    pub reads: u8,
    /// Bytes of a command.
    pub block: Size,
}

impl Default for BackgroundLoad {
    fn default() -> Self {
        Self { sessions: 1, depth: 512, pattern: Pattern::Random, reads: 100, block: Size::new(4096) }
    }
}

impl Point {
    /// Checks the settings of the load.
    ///
    /// *Errors*: the invalid setting.
    pub fn check(&self) -> Result<()> {
        // In 64 bits, since the product is judged before anything relies on its size.
        let sessions = u64::from(self.clients) * u64::from(self.sessions);
        let beside = self.beside.map_or(0, |beside| beside.sessions.into());
        ensure!(sessions > 0 && self.depth > 0, "clients, sessions and depth are one or more");
        ensure!(
            sessions + beside <= SESSIONS_MAX,
            "a load has {SESSIONS_MAX} sessions at most, those beside it included"
        );
        // The first session has the largest depth.
        let depth = self.depth_of(0);
        ensure!(depth <= DEPTH_MAX, "a session has a depth of {DEPTH_MAX} at most, and not of {depth}");
        ensure!(self.reads <= 100, "reads are out of a hundred, and not {} of them", self.reads);
        for size in self.sizes() {
            // Expected Data Transfer Length has 32 bits (RFC 7143 §11.3.4).
            ensure!(size > 0 && u32::try_from(size).is_ok(), "a command has 1 to {} bytes, and not {size}", u32::MAX);
        }
        // Their sum is drawn as a number of 32 bits.
        let weights: u64 = self.blocks.iter().map(|each| u64::from(each.weight)).sum();
        let weighs = self.blocks.is_empty() || weights > 0 && u32::try_from(weights).is_ok();
        ensure!(weighs, "the weights of blocks are 1 to {} together, and not {weights}", u32::MAX);
        self.neighbour().map_or(Ok(()), |neighbour| neighbour.check()).context("beside")
    }

    /// Returns the number of measured sessions.
    #[must_use]
    pub fn own_sessions(&self) -> u32 {
        self.clients * self.sessions
    }

    /// Returns the number of all sessions, including those of the load beside it, which are the last ones.
    #[must_use]
    pub fn all_sessions(&self) -> u32 {
        self.own_sessions() + self.beside.map_or(0, |beside| beside.sessions)
    }

    /// Returns the load beside it as a point of its own.
    #[must_use]
    pub fn neighbour(&self) -> Option<Self> {
        let BackgroundLoad { sessions, depth, pattern, reads, block } = self.beside?;
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

    /// Returns true if any command writes, including those of the load beside it.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.reads < 100 || self.beside.is_some_and(|beside| beside.reads < 100)
    }

    /// Returns the client of a session.
    #[must_use]
    pub fn client_of(&self, session: u32) -> u32 {
        // The sessions after the point's own belong to one further client, that of the load beside it.
        (session / self.sessions).min(self.clients)
    }

    /// Returns the queue depth that a session must support.
    #[must_use]
    pub fn room_of(&self, session: u32) -> u32 {
        match self.beside {
            Some(beside) if session >= self.own_sessions() => beside.depth,
            _ => self.depth_of(0).max(self.depth),
        }
    }

    /// Returns the depth of a measured session; zero if there are fewer workers than sessions.
    #[must_use]
    pub fn depth_of(&self, session: u32) -> u32 {
        let sessions = self.own_sessions();
        match self.workers {
            0 => self.depth,
            // The first sessions share the remainder.
            workers => workers / sessions + u32::from(session < workers % sessions),
        }
    }

    /// Returns the depths of all measured sessions.
    #[must_use]
    pub fn depths(&self) -> Vec<u32> {
        (0..self.own_sessions()).map(|session| self.depth_of(session)).collect()
    }

    /// Returns the size of the largest command in bytes.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.sizes().max().unwrap_or_default()
    }

    /// Returns the sizes of commands in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let one = self.blocks.is_empty().then_some(self.block);
        self.blocks.iter().map(|each| each.block).chain(one).map(Size::bytes)
    }
}

/// Target of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// This product.
    Blockyard,
    /// tgtd of Debian.
    Tgt,
    /// SPDK's `iscsi_tgt`, if its path is given.
    Spdk,
    /// Target named on the command line.
    Given,
    /// Local file or disk, without a target.
    Native,
    /// Raw TCP server that moves as many bytes as iSCSI would.
    Bare,
}

/// One of two builds that are measured alternately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Build {
    /// Running build, or the first one named.
    This,
    /// Build to compare with.
    Other,
}

/// Back end of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// Null device.
    Null,
    /// Memory.
    Ram,
    /// File.
    File,
    /// Volume in a pool.
    Pool,
}

/// Timing model of a pool's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskModel {
    /// No model: files in memory.
    None,
    /// SAS disk with 15,000 rpm.
    Sas15k,
    /// SATA disk with 7,200 rpm.
    Sata,
    /// SATA SSD.
    Ssd,
    /// NVMe SSD.
    Nvme,
}

impl DiskModel {
    /// Returns the modeled medium; none without a model.
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

/// Order of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each session reads its own part of the unit from start to end, repeatedly.
    Sequential,
    /// Uniformly distributed.
    Random,
    /// Zipf distribution: the slot of rank `r` has a probability proportional to `r^-0.99`; ranks are scattered over
    /// the unit.
    Zipf,
}

/// Command size with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// Bytes of a command.
    pub block: Size,
    /// Weight, relative to the sum of all weights.
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

// Display names as in scenarios.
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
        let beside = |beside: BackgroundLoad| Point { beside: Some(beside), ..point.clone() };
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
            (beside(BackgroundLoad { sessions: u32::MAX, ..BackgroundLoad::default() }), "65536 sessions"),
            (
                beside(BackgroundLoad { sessions: 0, ..BackgroundLoad::default() }),
                "beside: clients, sessions and depth",
            ),
            (Point { depth: 65537, ..point.clone() }, "not of 65537"),
            (Point { workers: u32::MAX, ..point.clone() }, "not of 2147483648"),
            (beside(BackgroundLoad { depth: u32::MAX, ..BackgroundLoad::default() }), "beside: a session has a depth"),
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
        let beside = BackgroundLoad { sessions: 3, depth: 64, ..BackgroundLoad::default() };
        let point = Point { clients: 2, sessions: 2, rate: 10, workers: 6, beside: Some(beside), ..Point::default() };
        assert_eq!((point.own_sessions(), point.all_sessions()), (4, 7));
        assert_eq!([0, 3, 4, 6].map(|session| point.client_of(session)), [0, 1, 2, 2]);
        assert_eq!([0, 3, 4, 6].map(|session| point.room_of(session)), [32, 32, 64, 64]);
        let neighbour = point.neighbour().expect("there is one");
        assert!(
            !point.writes() && Point { beside: Some(BackgroundLoad { reads: 99, ..beside }), ..point.clone() }.writes()
        );
        assert_eq!((neighbour.depths(), neighbour.rate, neighbour.neighbour()), (vec![64; 3], 0, None));
    }
}
