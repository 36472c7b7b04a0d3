//! Responses of the data plane.

use crate::{
    Activity, DiskReport, EngineReport, LatencyReport, NamedUnitAttributes, PoolCheck, PoolMembership, PoolReport,
    PortalReport, Raised, Recordings, RefusedLogin, Secret, SessionDetail, SessionEnd, SessionReport, SnapshotReport,
    TaskReport, TraceReport, Traced, VolumeName, VolumeReport,
};

/// Response of the data plane. [`Order`](crate::Order) states the response of each order.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Completed without a result.
    Done,
    /// State of one disk.
    Disk(DiskReport),
    /// State of all disks.
    Disks(Vec<DiskReport>),
    /// State of one pool.
    Pool(PoolReport),
    /// State of all pools.
    Pools(Vec<PoolReport>),
    /// Key of a pool, with its name.
    PoolKey(String, Secret),
    /// State of one volume.
    Volume(VolumeReport),
    /// State of volumes.
    Volumes(Vec<VolumeReport>),
    /// Names of volumes.
    VolumeNames(Vec<VolumeName>),
    /// Attributes of open volumes, as reported to hosts.
    UnitShapes(Vec<NamedUnitAttributes>),
    /// State of snapshots.
    Snapshots(Vec<SnapshotReport>),
    /// Result of a consistency check of a pool.
    Check(PoolCheck),
    /// Readable text.
    Text(String),
    /// State of one portal.
    Portal(PortalReport),
    /// State of all portals.
    Portals(Vec<PortalReport>),
    /// Recently rejected logins.
    Refused(Vec<RefusedLogin>),
    /// State of all sessions.
    Sessions(Vec<SessionReport>),
    /// Details of one session.
    Session(Box<SessionDetail>),
    /// Number of a recording that has started.
    Recording(u64),
    /// Recorded traffic.
    Recorded(Recordings),
    /// Result of ending a session.
    SessionEnd(SessionEnd),
    /// Activity counters.
    Activity(Activity),
    /// Commands in flight.
    Tasks(Vec<TaskReport>),
    /// Command latencies.
    Latencies(Vec<LatencyReport>),
    /// State of the trace of a volume.
    Trace(TraceReport),
    /// Content of a trace.
    Traced(Box<Traced>),
    /// State of the data plane.
    Engine(EngineReport),
    /// Events in order; at least one.
    Events(Vec<Raised>),
    /// Memberships of pools.
    Memberships(Vec<PoolMembership>),
}
