//! Activity counters, which only increase while a volume, a disk or a session is open.

use crate::{CacheReport, DiskCounters, DiskName, Histogram, Name, VolumeCounters, VolumeId, VolumeName, VolumePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Snapshot of all activity counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Host I/O per open volume.
    pub volumes: Vec<VolumeActivity>,
    /// I/O per disk.
    pub disks: Vec<(DiskName, DiskCounters)>,
    /// Commands and transfers per session.
    pub sessions: Vec<SessionActivity>,
}

/// Host I/O of a volume since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeActivity {
    /// Name of the volume.
    pub name: VolumeName,
    /// Identity of the volume.
    pub id: VolumeId,
    /// Operations and bytes.
    pub counters: VolumeCounters,
    /// Caching policy and QoS limits of the volume.
    pub policy: VolumePolicy,
    /// Cache counters; `None` for volumes that do not belong to a pool.
    pub cache: Option<CacheReport>,
    /// Command latencies.
    pub took: Took,
}

/// Activity of a session since its login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// TSIH of the session.
    pub id: u32,
    /// Name of the host, if the initiator belongs to one.
    pub host: Option<Name>,
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// Address of the initiator.
    pub address: SocketAddr,
    /// Portal that the session was established at.
    pub portal: SocketAddr,
    /// Completed SCSI commands.
    pub commands: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub written_bytes: u64,
    /// Command latencies.
    pub took: Took,
}

/// Command latency histograms by command class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Took {
    /// Commands that read blocks.
    pub reads: Histogram,
    /// Commands that write blocks.
    pub writes: Histogram,
    /// All other commands.
    pub others: Histogram,
}

impl Took {
    /// Returns the histogram over all commands.
    #[must_use]
    pub fn all(&self) -> Histogram {
        // Equal bucket bounds in all histograms make the sum exact.
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all.add(&self.others);
        all
    }

    /// Returns the difference to the earlier state `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.since(&earlier.reads),
            writes: self.writes.since(&earlier.writes),
            others: self.others.since(&earlier.others),
        }
    }
}
