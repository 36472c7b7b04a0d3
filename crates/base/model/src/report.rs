//! What the data plane answers.

use crate::{
    Activity, DiskReport, EngineReport, LatencyReport, PoolCheck, PoolMembership, PoolReport, PortalReport, Raised,
    Recordings, RefusedLogin, Secret, SessionDetail, SessionEnd, SessionReport, ShapeOfUnit, SnapshotReport,
    TaskReport, TraceReport, Traced, VolumeName, VolumeReport,
};

/// This is so, now. Which one answers which [`Order`](crate::Order) stands there.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It is done, and there is nothing more to say.
    Done,
    /// One disk.
    Disk(DiskReport),
    /// All disks.
    Disks(Vec<DiskReport>),
    /// One pool.
    Pool(PoolReport),
    /// All pools.
    Pools(Vec<PoolReport>),
    /// The key of a pool, and what it is called.
    PoolKey(String, Secret),
    /// One volume.
    Volume(VolumeReport),
    /// All volumes.
    Volumes(Vec<VolumeReport>),
    /// Names of volumes.
    VolumeNames(Vec<VolumeName>),
    /// What the units of open volumes are like.
    UnitShapes(Vec<ShapeOfUnit>),
    /// Snapshots.
    Snapshots(Vec<SnapshotReport>),
    /// What was found of a pool.
    Check(PoolCheck),
    /// Text for people.
    Text(String),
    /// One portal.
    Portal(PortalReport),
    /// All portals.
    Portals(Vec<PortalReport>),
    /// Who was not let in lately.
    Refused(Vec<RefusedLogin>),
    /// All sessions.
    Sessions(Vec<SessionReport>),
    /// One session.
    Session(Box<SessionDetail>),
    /// A recording has begun; its number.
    Recording(u64),
    /// What was recorded.
    Recorded(Recordings),
    /// How a session has ended.
    SessionEnd(SessionEnd),
    /// What hosts do.
    Activity(Activity),
    /// Commands under way.
    Tasks(Vec<TaskReport>),
    /// How long commands took.
    Latencies(Vec<LatencyReport>),
    /// How the trace of a volume is.
    Trace(TraceReport),
    /// What a trace holds.
    Traced(Box<Traced>),
    /// The data plane itself.
    Engine(EngineReport),
    /// What has happened, in order; at least one thing.
    Events(Vec<Raised>),
    /// Which members of pools are current.
    Memberships(Vec<PoolMembership>),
}
