//! What control asks of the data plane.

use crate::{
    Access, Backend, CopySource, DiskId, DiskName, Level, MemberSize, Name, PoolId, PoolMembership, Provision,
    Recordable, RefusedLogin, RemoteLogin, RepairPolicy, Secret, Size, SnapshotId, SnapshotLock, SnapshotName,
    SpacePolicy, VolumeId, VolumeName, VolumePolicy,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Do this, then say how it is. Every order is done wholly or refused with nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Look at what is at `path` without keeping it open → `Report::Disk`.
    InspectDisk {
        /// A block device, a regular file, or the address of a remote disk.
        path: String,
        /// How to log in to a remote disk; absent for others.
        remote: Option<Box<RemoteLogin>>,
    },
    /// Open the disk and know it as `disk` → `Report::Disk`, with the label it bears.
    OpenDisk {
        /// The name it has from now on.
        disk: DiskName,
        /// A block device, a regular file, or the address of a remote disk.
        path: String,
        /// How to log in to a remote disk; absent for others.
        remote: Option<Box<RemoteLogin>>,
    },
    /// Close a disk that no open pool uses → `Report::Done`.
    CloseDisk {
        /// Which.
        disk: DiskName,
    },
    /// Remove our label from an open disk that no open pool uses; without a label of ours nothing is
    /// written → `Report::Done`, durable. Refused with `POOL_OWNED` when another node has the pool by now, or uses the disk for another.
    EraseDisk {
        /// Which.
        disk: DiskName,
        /// The pool that was being made of it or destroyed.
        pool: PoolId,
    },
    /// The light of the disk's slot is on, or off → `Report::Done`. Refused with `DISK_NO_LIGHT` where none is known.
    LocateDisk {
        /// Which.
        disk: DiskName,
        /// True for on.
        on: bool,
    },
    /// Begin to read the disk in a rhythm, which changes nothing and lets its own light blink → `Report::Done`.
    BlinkDisk {
        /// Which.
        disk: DiskName,
        /// For how long, at most ten minutes.
        seconds: u64,
    },
    /// Make a pool of open disks and open it → `Report::Pool`, durable. Members get their `DiskId` here.
    CreatePool {
        /// Its name, also on the labels.
        pool: Name,
        /// Its identity, chosen by control so that a torn creation can be found and undone.
        id: PoolId,
        /// Its disk groups, at least one.
        groups: Vec<GroupSpec>,
        /// True when foreign content of the disks may be overwritten.
        force: bool,
    },
    /// Make one more group of open disks, and let the pool's volumes lie on it → `Report::Pool`, durable.
    AddGroup {
        /// Which pool.
        pool: Name,
        /// The group.
        group: GroupSpec,
        /// True when foreign content of the disks may be overwritten.
        force: bool,
    },
    /// Make an open disk one more member of a group, and begin to lay the group out over all of them → `Report::Pool`,
    /// durable. There is more space when that has ended. Refused with `GROUP_FIXED` for levels that cannot.
    AddMember {
        /// Which pool.
        pool: Name,
        /// Which group of it; the only one when absent.
        group: Option<u16>,
        /// The disk.
        disk: DiskName,
        /// True when foreign content of the disk may be overwritten.
        force: bool,
    },
    /// Let a group use all of its disks, which were replaced by larger ones → `Report::Pool`, durable. Refused with
    /// `GROUP_FULL_SIZE` where they have no more room.
    GrowPool {
        /// Which pool.
        pool: Name,
        /// Which group of it; every one that can grow when absent.
        group: Option<u16>,
        /// How much of each disk it uses then.
        member_size: MemberSize,
    },
    /// Make a log device of open disks, a mirror of more than one, and let the pool's volumes be acknowledged from it →
    /// `Report::Pool`, durable.
    AddLog {
        /// Which pool.
        pool: Name,
        /// Its disks.
        disks: Vec<DiskName>,
        /// True when foreign content of the disks may be overwritten.
        force: bool,
    },
    /// Take the log device of a pool away; its disks are blank → `Report::Pool`, durable. Refused with `LOG_IN_USE` while
    /// a volume is written back.
    RemoveLog {
        /// Which pool.
        pool: Name,
        /// True to give up what volumes have in a log that cannot be read: they serve again, without what they
        /// acknowledged last. Refused with `LOG_NOT_LOST` when it can be read.
        lost: bool,
    },
    /// Find the pool on the disks that are open, in any order, and open it with its volumes →
    /// `Report::Pool` (degraded when members are missing). Refused with `POOL_INCOMPLETE` when too many are, with
    /// `POOL_OWNED` while another node has it, and with `POOL_NOT_RELEASED` when one may have it. Takes seconds when only
    /// watching its disks can tell.
    OpenPool {
        /// Which, by its labels.
        id: PoolId,
        /// True when the operator says that the node that had it last is down.
        force: bool,
        /// True when the operator accepts that blocks are older than what was acknowledged, where batches of a group's redo log
        /// cannot be read. Refused with `REDO_LOG_DAMAGED` otherwise.
        accept_log_loss: bool,
        /// True when nothing is to be written to its disks: hosts read its volumes as its disks and logs have them. A pool whose disks
        /// refuse all writes is opened so in any case, and the report says why.
        read_only: bool,
        /// The pool key of another node that the keys of its encrypted volumes are wrapped with: they are wrapped with this node's from
        /// then on. Refused with `POOL_KEY_WRONG` when none is.
        key: Option<Secret>,
        /// True to refuse with `POOL_WAITING` while a member is absent that the newest catalog counts on.
        whole: bool,
        /// The disk whose part is kept of a pool that was written in parts; refused with `POOL_SPLIT` without one.
        keep: Option<DiskName>,
        /// True when the operator has heard what may be lost: the other parts, or what absent members of a pool have that this node never
        /// had. Refused with `UNCONFIRMED` otherwise.
        confirmed: bool,
    },
    /// Every member of every open pool keeps this copy of the state, in the place of an older one → `Report::Done`, durable on the
    /// members that answer.
    KeepState {
        /// Which version it is.
        version: u64,
        /// The state as control wrote it.
        bytes: Arc<[u8]>,
    },
    /// What wraps the keys of the pool's encrypted volumes → `Report::PoolKey`.
    PoolKey {
        /// Which.
        pool: Name,
    },
    /// Close a pool cleanly, with its volumes; its disks keep it → `Report::Done`, durable. Hosts see its volumes
    /// no more before the answer.
    ClosePool {
        /// Which.
        pool: Name,
    },
    /// Remove the labels of a pool that has no volumes, and close it → `Report::Done`, durable.
    DestroyPool {
        /// Which.
        pool: Name,
    },
    /// Take a member out of its pool, as if it had died → `Report::Pool`, durable. One that the pool cannot
    /// serve its data without is refused with `POOL_WOULD_FAIL`.
    FailDisk {
        /// Which.
        disk: DiskName,
    },
    /// Put a member back that was absent when its pool was opened, and write to it what it has missed → `Report::Pool`. Refused with
    /// `DISK_NOT_MEMBER` where it has another label, and with `DISK_HEALTHY` where nobody waits for it.
    ReturnDisk {
        /// The disk, which is open.
        disk: DiskName,
        /// Which member it is.
        member: DiskId,
    },
    /// Put `replacement` into the place of `failed` and begin to rebuild → `Report::Pool`, durable.
    ReplaceDisk {
        /// The member to replace: failed, missing, or healthy with `force`. The name of a disk, open or not.
        failed: DiskName,
        /// Which disk that is, where control knows: finds a member that is not open.
        member: Option<DiskId>,
        /// An open disk that no pool uses.
        replacement: DiskName,
        /// True when a healthy member, or foreign content of the replacement, may be given up.
        force: bool,
    },
    /// Begin to copy `disk`, a member in service, to `replacement`, which takes its place at the end → `Report::Pool`. An event
    /// says how it ended; until then, and after a crash before that, `disk` is the member and `replacement` is free.
    CopyMember {
        /// The member.
        disk: DiskName,
        /// An open disk that no pool uses.
        replacement: DiskName,
        /// True when foreign content of the replacement may be given up.
        force: bool,
    },
    /// From now on the pool is repaired so, also what is being repaired already → `Report::Pool`. Control
    /// remembers it, and says it again when the pool was opened.
    SetRepair {
        /// Which.
        pool: Name,
        /// How fast, and what hosts may notice.
        policy: RepairPolicy,
    },
    /// From now on operators and hosts hear so of how full the pool is → `Report::Pool`. Control remembers it, and
    /// says it again when the pool was opened.
    SetSpace {
        /// Which.
        pool: Name,
        /// How full it may be before.
        policy: SpacePolicy,
    },
    /// Read and compare everything that the pool's volumes hold → `Report::Pool`, when that has begun.
    StartScrub {
        /// Which.
        pool: Name,
        /// True when parity and mirrors that disagree with the data are put right.
        repairs: bool,
    },
    /// End the scrub that runs → `Report::Pool`.
    StopScrub {
        /// Which.
        pool: Name,
    },
    /// Let scrubs of the pool wait, or go on → `Report::Pool`.
    HoldScrub {
        /// Which.
        pool: Name,
        /// True to wait.
        held: bool,
    },
    /// Make a volume → `Report::Volume`; durable in the pool's own catalogue when it has a pool.
    CreateVolume(VolumeSpec),
    /// Grow a volume, online; initiators are told → `Report::Volume`.
    ResizeVolume {
        /// Which.
        volume: VolumeName,
        /// Its new size, not below the present one.
        size: Size,
    },
    /// From now on the volume of a pool is cached so, and so fast; hosts hear when their writes may be lost before a
    /// flush, or not any more → `Report::Volume`. Control remembers it, and says it again when the pool was opened.
    /// Refused with `POLICY_IMPOSSIBLE` where writes cannot be acknowledged so; everything else holds all the same.
    SetVolumePolicy {
        /// Which.
        volume: VolumeName,
        /// How.
        policy: VolumePolicy,
    },
    /// Begin to copy what a volume shows now, or a snapshot, to a new volume of any pool → `Report::Volume`, which is
    /// `Copying`. It is whole, and can be used, when the event says so. After a crash it continues.
    CopyVolume {
        /// What.
        source: CopySource,
        /// The name of the new volume, in a pool.
        target: VolumeName,
        /// Its identity.
        id: VolumeId,
    },
    /// End a copy that runs; what it has made is gone → `Report::Done`. Refused with `COPY_UNKNOWN` when none does.
    CancelCopy {
        /// The volume that is copied to.
        target: VolumeName,
    },
    /// Take back every reservation and registration that hosts have made of a volume; they are told → `Report::Volume`,
    /// durable.
    ClearReservations {
        /// Which.
        volume: VolumeName,
    },
    /// Delete a volume that nobody sees → `Report::Done`.
    DeleteVolume {
        /// Which.
        volume: VolumeName,
    },
    /// Make snapshots of volumes of one pool, all of one instant between question and answer → `Report::Snapshots`,
    /// durable; all of them or none.
    CreateSnapshots {
        /// What each is called, which says of which volume it is, and its identity.
        snapshots: Vec<(SnapshotName, SnapshotId)>,
        /// Until when they cannot be deleted.
        lock: SnapshotLock,
    },
    /// Delete a snapshot → `Report::Done`, durable. What only it held is given back in the background.
    DeleteSnapshot {
        /// Which.
        snapshot: SnapshotName,
    },
    /// The snapshot cannot be deleted before this; locks only become longer → `Report::Snapshots`, durable.
    LockSnapshot {
        /// Which.
        snapshot: SnapshotName,
        /// Until when.
        lock: SnapshotLock,
    },
    /// Make a volume that shows what a snapshot shows, and shares what it does not change → `Report::Volume`, durable.
    CloneSnapshot {
        /// Of which snapshot.
        snapshot: SnapshotName,
        /// Its name, in the same pool.
        volume: VolumeName,
        /// Its identity.
        id: VolumeId,
        /// How it takes its space: thick or thin.
        provision: Provision,
        /// True when whole granules of zeros take no space.
        zero_detection: bool,
    },
    /// The volume of the snapshot shows what that shows, and what was written since is gone → `Report::Volume`, durable.
    /// Refused with `VOLUME_BUSY` while a session uses the volume, unless `in_use` says that it may.
    RollBack {
        /// Back to which snapshot.
        snapshot: SnapshotName,
        /// True when sessions may use the volume meanwhile; they are told that its content is another.
        in_use: bool,
    },
    /// From now on exactly this is who may see what → `Report::Done`. Sessions that lose a volume, or
    /// their host, lose it before the answer. Presentations of volumes that are not open are kept for
    /// when they are.
    SetAccess(Access),
    /// Listen here → `Report::Portal`.
    OpenPortal {
        /// Where. Port 0 is a free port, which the report tells.
        address: SocketAddr,
    },
    /// Listen here no more; its sessions end → `Report::Done`.
    ClosePortal {
        /// Where.
        address: SocketAddr,
    },
    /// Look at everything that the pool says of its volumes, while it serves → `Report::Check`. Writes to a volume wait
    /// while its map is looked at.
    CheckPool {
        /// Which.
        pool: Name,
        /// True to put right what can be; the report says what was found before.
        repair: bool,
        /// With `repair`: true to go on with what is left of damaged maps, though blocks may be older then.
        accept_loss: bool,
    },
    /// The catalog of the pool and the maps of its volumes, as text for people → `Report::Text`.
    DumpPool {
        /// Which.
        pool: Name,
    },
    /// How the data plane itself is → `Report::Engine`.
    Status,
    /// All open disks → `Report::Disks`.
    Disks,
    /// All open pools → `Report::Pools`.
    Pools,
    /// All open volumes → `Report::Volumes`.
    Volumes,
    /// What all open volumes are called, also those that are not whole yet → `Report::VolumeNames`, sorted.
    VolumeNames,
    /// The volumes of open pools that do not serve → `Report::Volumes`.
    HeldVolumes,
    /// What hosts are told of the open volumes that serve → `Report::UnitShapes`.
    UnitShapes,
    /// One open volume → `Report::Volumes`, of one or none.
    Volume {
        /// Which.
        volume: VolumeName,
    },
    /// All snapshots of open pools, and those that are being deleted → `Report::Snapshots`.
    Snapshots,
    /// Who is logged in → `Report::Sessions`.
    Sessions,
    /// One session in all detail → `Report::Session`.
    Session {
        /// Which: its TSIH.
        id: u32,
    },
    /// Record what goes over the wire from now on → `Report::Recording`.
    Record {
        /// Whose.
        what: Recordable,
        /// For how long.
        time: Duration,
    },
    /// What was recorded since this was asked last, as soon as there is something → `Report::Recorded`.
    NextRecorded {
        /// Of which recording.
        recording: u64,
    },
    /// Record no more → `Report::Recorded`, with what was not taken.
    StopRecording {
        /// Which; one that does not run is stopped already.
        recording: u64,
    },
    /// End a session: its initiator is asked to log out, and cut off when it does not in five seconds → `Report::SessionEnd`. It may
    /// log in again.
    EndSession {
        /// Which: its TSIH.
        id: u32,
        /// True to cut it off at once.
        now: bool,
    },
    /// Cut off one connection of a session → `Report::Done`. The others carry on; what it had under way is as the session's
    /// ErrorRecoveryLevel says.
    EndConnection {
        /// Of which session: its TSIH.
        id: u32,
        /// Which: its CID.
        cid: u16,
    },
    /// What hosts do, in figures that only grow → `Report::Activity`.
    Activity,
    /// Commands that have no answer yet → `Report::Tasks`. A session that does not answer within a second is left out.
    Tasks,
    /// How long commands of a volume took since it was opened → `Report::Latencies`.
    Latencies {
        /// Which.
        volume: VolumeName,
    },
    /// How the trace of a volume is → `Report::Trace`.
    Trace {
        /// Which.
        volume: VolumeName,
    },
    /// Keep which commands a volume gets, and when, from now on → `Report::Trace`. Refused with `TRACED_ALREADY`, and with
    /// `LIMIT_REACHED` when all traces together would keep too much.
    StartTrace {
        /// Which.
        volume: VolumeName,
        /// The last so many; at least one.
        commands: u32,
    },
    /// What the trace of a volume holds; it goes on → `Report::Traced`. Refused with `TRACE_UNKNOWN` when there is none.
    TakeTrace {
        /// Which.
        volume: VolumeName,
    },
    /// The volume is not traced any more, and what its trace holds is gone → `Report::Trace`, how it was before. Refused with
    /// `TRACE_UNKNOWN` when there is none.
    StopTrace {
        /// Which.
        volume: VolumeName,
    },
    /// Who was not let in lately → `Report::Refused`.
    RefusedLogins,
    /// These were not let in before this start, the last one first → `Report::Done`.
    RememberRefused(Vec<RefusedLogin>),
    /// The read caches of all shards together take at most so much from now on → `Report::Done`. What is beyond is dropped.
    SetReadCache {
        /// Bytes, maps of volumes included.
        bytes: u64,
    },
    /// Where we listen → `Report::Portals`.
    Portals,
    /// What has happened since this was asked last, as soon as something has → `Report::Events`. Each event
    /// is told once; it may be long in coming.
    NextEvents,
    /// The node remembers these members of pools from before its start → `Report::Done`.
    KnowMemberships {
        /// One for each pool.
        known: Vec<PoolMembership>,
    },
    /// The members of all pools, as soon as they have changed since this was asked last → `Report::Memberships`.
    NextMemberships,
    /// The node's state has kept the members of these pools → `Report::Done`.
    MembershipsKept {
        /// The generation of each pool.
        generations: Vec<(PoolId, u64)>,
    },
    /// Stop listening, finish what is under way, flush, mark the pools clean, close everything →
    /// `Report::Done`. No order follows.
    Stop,
}

impl Order {
    /// True for an order that is answered at once, beside whatever changes: it changes nothing that an order in the queue
    /// changes, or must not wait for one.
    #[must_use]
    pub fn is_question(&self) -> bool {
        use Order::{
            Activity, CheckPool, Disks, DumpPool, EndConnection, EndSession, HeldVolumes, InspectDisk, KeepState,
            KnowMemberships, Latencies, MembershipsKept, NextEvents, NextMemberships, NextRecorded, Pools, Portals,
            Record, RefusedLogins, Session, Sessions, SetReadCache, Snapshots, StartTrace, Status, StopRecording,
            StopTrace, TakeTrace, Tasks, Trace, UnitShapes, Volume, VolumeNames, Volumes,
        };
        // A session may take its time to end; nothing else waits for that.
        let of_sessions = matches!(self, Session { .. } | EndSession { .. } | EndConnection { .. } | Latencies { .. });
        // Nor does anything wait for the target of a remote disk.
        let looks = matches!(self, CheckPool { .. } | DumpPool { .. } | InspectDisk { remote: Some(_), .. });
        let of_volumes = matches!(self, Volume { .. } | Volumes | VolumeNames | HeldVolumes | Snapshots | UnitShapes);
        let lists = of_volumes || matches!(self, Disks | Pools | Sessions | Portals | RefusedLogins);
        let records = matches!(self, Record { .. } | NextRecorded { .. } | StopRecording { .. });
        // A trace changes nothing of its volume.
        let traces = matches!(self, Trace { .. } | StartTrace { .. } | TakeTrace { .. } | StopTrace { .. });
        // Memory that is short does not wait for a change that takes long.
        let memory = matches!(self, SetReadCache { .. });
        // Nor do the events and alerts, which wait for copies of the state.
        let copies = matches!(self, KeepState { .. });
        let members = matches!(self, KnowMemberships { .. } | MembershipsKept { .. } | NextMemberships);
        let now = memory || copies || members || matches!(self, Status | Activity | Tasks | NextEvents);
        looks || lists || of_sessions || records || traces || now
    }

    /// The volume of an order to the front ends that is about one.
    #[must_use]
    pub fn volume_for_front_ends(&self) -> Option<&VolumeName> {
        match self {
            Self::Trace { volume }
            | Self::StartTrace { volume, .. }
            | Self::TakeTrace { volume }
            | Self::StopTrace { volume }
            | Self::ClearReservations { volume } => Some(volume),
            _ => None,
        }
    }

    /// True for an order to the front ends: who may see what, where they listen, who is logged in, and what hosts do with
    /// a volume. Every other order is the engine's.
    #[must_use]
    pub fn is_for_front_ends(&self) -> bool {
        use Order::{
            ClearReservations, ClosePortal, EndConnection, EndSession, NextRecorded, OpenPortal, Portals, Record,
            RefusedLogins, RememberRefused, Session, Sessions, SetAccess, StartTrace, StopRecording, StopTrace,
            TakeTrace, Tasks, Trace,
        };
        let portals = matches!(self, SetAccess(_) | OpenPortal { .. } | ClosePortal { .. } | Portals);
        let logins = matches!(self, RefusedLogins | RememberRefused(_));
        let sessions = matches!(self, Sessions | Session { .. } | EndSession { .. } | EndConnection { .. } | Tasks);
        let records = matches!(self, Record { .. } | NextRecorded { .. } | StopRecording { .. });
        let traces = matches!(self, Trace { .. } | StartTrace { .. } | TakeTrace { .. } | StopTrace { .. });
        portals || logins || sessions || records || traces || matches!(self, ClearReservations { .. })
    }
}

/// One disk group of a pool to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// How it protects.
    pub level: Level,
    /// Bytes on one member before the next member's turn.
    pub chunk: Size,
    /// True to keep a checksum of every block, and a log that makes writes whole after a crash.
    pub integrity: bool,
    /// How much of each disk it uses.
    pub member_size: MemberSize,
    /// Its disks, in the order of their slots.
    pub disks: Vec<DiskName>,
}

/// A volume to be made, or to be opened again when it has no pool to remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its name.
    pub name: VolumeName,
    /// Its identity, chosen by control.
    pub id: VolumeId,
    /// Its size.
    pub size: Size,
    /// Bytes of a logical block as hosts see it: 512 or 4096.
    pub block_bytes: u32,
    /// What holds its data.
    pub backend: Backend,
}
