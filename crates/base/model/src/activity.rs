//! What is being done, in figures that only grow while a volume, a disk or a session is open.

use crate::{CacheReport, DiskCounters, DiskName, Histogram, Name, VolumeCounters, VolumeId, VolumeName, VolumePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What was done up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// By hosts, with each open volume.
    pub volumes: Vec<VolumeActivity>,
    /// By each disk.
    pub disks: Vec<(DiskName, DiskCounters)>,
    /// In each session.
    pub sessions: Vec<SessionActivity>,
}

/// What hosts have done with a volume since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeActivity {
    /// Its name.
    pub name: VolumeName,
    /// Its identity.
    pub id: VolumeId,
    /// How much.
    pub counters: VolumeCounters,
    /// How it is cached and how fast it may be.
    pub policy: VolumePolicy,
    /// What the cache did, where it lies in a pool.
    pub cache: Option<CacheReport>,
    /// How long it took.
    pub took: Took,
}

/// What was done in a session since it was logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// Which session: its TSIH.
    pub id: u32,
    /// The host, by its name.
    pub host: Option<Name>,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// Where the initiator is.
    pub address: SocketAddr,
    /// The portal that it reached.
    pub portal: SocketAddr,
    /// SCSI commands done.
    pub commands: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub written_bytes: u64,
    /// How long commands took.
    pub took: Took,
}

/// How long commands took, by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Took {
    /// Those that read blocks.
    pub reads: Histogram,
    /// Those that write blocks.
    pub writes: Histogram,
    /// All others.
    pub others: Histogram,
}

impl Took {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Histogram {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all.add(&self.others);
        all
    }

    /// What was counted since it was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.since(&earlier.reads),
            writes: self.writes.since(&earlier.writes),
            others: self.others.since(&earlier.others),
        }
    }
}
