//! How a volume is.

use crate::{
    CacheReport, CopyReport, Progress, ReservationReport, Size, SnapshotName, VolumeId, VolumeName, VolumePolicy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most volumes that an array serves.
pub const VOLUMES_MAX: usize = 16_384;
/// The most volumes that one pool holds, of which clones are some (docs/on-disk.md).
pub const POOL_VOLUMES_MAX: usize = 1024;

/// The smallest volume that is made. Smaller ones of earlier versions serve as before.
pub const VOLUME_SIZE_MIN: Size = Size::mib(1);

/// One volume as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeReport {
    /// Its name.
    pub name: VolumeName,
    /// Its identity, which hosts see.
    pub id: VolumeId,
    /// How much it holds.
    pub size: Size,
    /// Bytes of a logical block as hosts see it.
    pub block_bytes: u32,
    /// What holds its data.
    pub backend: Backend,
    /// How it is.
    pub state: VolumeState,
    /// Why it does not serve, where it does not and that is known.
    #[serde(default)]
    pub why: Option<String>,
    /// What hosts have done with it since it was opened.
    pub counters: VolumeCounters,
    /// What it takes of its pool, where it has a map of its own.
    #[serde(default)]
    pub space: Option<SpaceReport>,
    /// How it is cached and how fast it may be, where it lies in a pool.
    #[serde(default)]
    pub policy: Option<VolumePolicy>,
    /// What the cache does for it, where it lies in a pool.
    #[serde(default)]
    pub cache: Option<CacheReport>,
    /// What is being copied to it, and how far, until it is whole; nobody can use it before.
    #[serde(default)]
    pub copy: Option<Box<CopyReport>>,
    /// What hosts have reserved of it, where one has, or is registered to.
    #[serde(default)]
    pub reservation: Option<Box<ReservationReport>>,
    /// How a SANITIZE of a host fares: it serves nobody until that has ended.
    #[serde(default)]
    pub sanitize: Option<SanitizeReport>,
}

impl VolumeReport {
    /// One that does not serve: nothing more is known of it.
    #[must_use]
    pub fn away(
        name: VolumeName,
        id: VolumeId,
        size: Size,
        block_bytes: u32,
        backend: Backend,
        (state, why): (VolumeState, Option<String>),
    ) -> Self {
        let counters = VolumeCounters::default();
        let (space, policy, cache, copy, reservation, sanitize) = (None, None, None, None, None, None);
        Self {
            name,
            id,
            size,
            block_bytes,
            backend,
            state,
            why,
            counters,
            space,
            policy,
            cache,
            copy,
            reservation,
            sanitize,
        }
    }
}

/// How a SANITIZE fares that a host has ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SanitizeReport {
    /// It is under way, and so much is done.
    Running {
        /// Of a hundred.
        percent: u8,
    },
    /// It has failed, and nobody has asked again.
    Failed,
}

/// What a volume with a map takes of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceReport {
    /// Bytes that it shows as data, shared with snapshots or not.
    pub mapped: Size,
    /// Of these, bytes that a snapshot or an origin holds, too.
    pub shared: Size,
    /// Bytes that are kept for what it may still write.
    pub reserved: Size,
    /// Bytes that hosts gave back since its pool was opened: unmapped, or zeros where zeros take no space.
    pub reclaimed: Size,
    /// Bytes that only its snapshots hold; not known where clones share them.
    pub held_by_snapshots: Option<Size>,
    /// How many snapshots it has.
    pub snapshots: u32,
    /// The snapshot that it is a clone of.
    pub clone_of: Option<SnapshotName>,
    /// How far space is given back that nobody sees any more, while it is.
    pub cleaning: Option<Progress>,
}

/// How a volume of a pool takes its space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provision {
    /// Space for all of it is kept, and no write is ever refused for want of it.
    #[default]
    Thick,
    /// Space is taken as it is written.
    Thin,
    /// It lies in whole slabs without a map, and can have no snapshots.
    Segments,
}

/// What holds a volume's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Backend {
    /// The pool that its name begins with.
    Pool {
        /// Bytes in one disk group before the next group's turn, for a volume in segments; none leaves the choice
        /// to the pool.
        stripe_unit: Option<Size>,
        /// How it takes its space.
        #[serde(default)]
        provision: Provision,
        /// The unit in which space is given and shared; none for 64 KiB, and for a volume in segments.
        #[serde(default)]
        granule: Option<Size>,
        /// True when whole granules of zeros take no space.
        #[serde(default)]
        zero_detection: bool,
        /// True when what it holds is encrypted on the disks.
        #[serde(default)]
        encrypted: bool,
    },
    /// A file or a block device, as it is.
    File {
        /// Where.
        path: String,
    },
    /// Memory. Gone with the daemon.
    Ram,
    /// Nothing: writes are forgotten, reads are zeros. To measure everything else.
    Null,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// It serves.
    Online,
    /// It does not serve: its pool has failed, or its file does not answer.
    Failed,
    /// It is known, but what holds its data was not found.
    Missing,
    /// What it is to show is being copied to it, and nobody can use it before.
    Copying,
}

/// What hosts have done with a volume since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeCounters {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands that ended with a medium or hardware error.
    pub errors: u64,
    /// Commands that were refused because another host has reserved it.
    #[serde(default)]
    pub conflicts: u64,
}

impl Provision {
    /// The way in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Thick => "thick",
            Self::Thin => "thin",
            Self::Segments => "segments",
        }
    }
}

impl Backend {
    /// A thick volume of a pool, with nothing else chosen.
    #[must_use]
    pub const fn pool() -> Self {
        Self::Pool {
            stripe_unit: None,
            provision: Provision::Thick,
            granule: None,
            zero_detection: false,
            encrypted: false,
        }
    }

    /// The kind in one word; of a volume in a pool, how it takes its space.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pool { provision, .. } => provision.as_str(),
            Self::File { .. } => "file",
            Self::Ram => "ram",
            Self::Null => "null",
        }
    }
}

impl VolumeState {
    /// The state in one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Copying => "copying",
        }
    }
}
