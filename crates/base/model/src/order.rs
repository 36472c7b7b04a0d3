//! Orders of the control plane to the data plane.

use crate::{
    Access, Backend, CopySource, DiskId, DiskName, Level, MemberSize, Name, PoolId, PoolMembership, Provision,
    Recordable, RefusedLogin, RemoteLogin, RepairPolicy, Secret, Size, SnapshotId, SnapshotLock, SnapshotName,
    SpacePolicy, VolumeId, VolumeName, VolumePolicy,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Order to the data plane. Every order is executed completely, or refused without any change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Inspect the disk at `path` without keeping it open → `Report::Disk`.
    InspectDisk {
        /// Block device, regular file, or address of a remote disk.
        path: String,
        /// Login parameters of a remote disk; absent for others.
        remote: Option<Box<RemoteLogin>>,
    },
    /// Open a disk and register it as `disk` → `Report::Disk`, including its label.
    OpenDisk {
        /// Name that the disk gets.
        disk: DiskName,
        /// Block device, regular file, or address of a remote disk.
        path: String,
        /// Login parameters of a remote disk; absent for others.
        remote: Option<Box<RemoteLogin>>,
    },
    /// Close a disk that no open pool uses → `Report::Done`.
    CloseDisk {
        /// Name of the disk.
        disk: DiskName,
    },
    /// Remove the Blockyard label from an open disk that no open pool uses → `Report::Done`, durable. Without such a
    /// label nothing is written. Refused with `POOL_OWNED` if another node has the pool by now, or uses the disk for
    /// another pool.
    EraseDisk {
        /// Name of the disk.
        disk: DiskName,
        /// Pool whose creation or destruction left the label.
        pool: PoolId,
    },
    /// Switch the locate LED of the slot on or off → `Report::Done`. Refused with `DISK_NO_LIGHT` where none is known.
    LocateDisk {
        /// Name of the disk.
        disk: DiskName,
        /// True for on.
        on: bool,
    },
    /// Start to read the disk in a rhythm, so that its activity LED blinks → `Report::Done`. Reads only.
    BlinkDisk {
        /// Name of the disk.
        disk: DiskName,
        /// Duration in seconds, at most ten minutes.
        seconds: u64,
    },
    /// Create a pool from open disks and open it → `Report::Pool`, durable. Assigns the `DiskId` of each member.
    CreatePool {
        /// Name of the pool, also written to the labels.
        pool: Name,
        /// Identity, chosen by the control plane so that an interrupted creation can be found and undone.
        id: PoolId,
        /// Disk groups, at least one.
        groups: Vec<GroupSpec>,
        /// True to overwrite foreign content of the disks.
        force: bool,
    },
    /// Add a group of open disks to a pool, available to all volumes of the pool → `Report::Pool`, durable.
    AddGroup {
        /// Name of the pool.
        pool: Name,
        /// Layout and disks of the group.
        group: GroupSpec,
        /// True to overwrite foreign content of the disks.
        force: bool,
    },
    /// Add an open disk to a group and start the reshape over all of its members → `Report::Pool`, durable. The
    /// additional space is available after the reshape. Refused with `GROUP_FIXED` for levels that do not support it.
    AddMember {
        /// Name of the pool.
        pool: Name,
        /// Number of the group; may be absent if the pool has only one.
        group: Option<u16>,
        /// Disk to add.
        disk: DiskName,
        /// True to overwrite foreign content of the disk.
        force: bool,
    },
    /// Extend a group to the full size of its disks, after they were replaced by larger ones → `Report::Pool`, durable.
    /// Refused with `GROUP_FULL_SIZE` if the disks have no unused space.
    GrowPool {
        /// Name of the pool.
        pool: Name,
        /// Number of the group; absent for every group that can grow.
        group: Option<u16>,
        /// Used size of each disk after the extension.
        member_size: MemberSize,
    },
    /// Create a log device from open disks, mirrored if more than one, for low-latency acknowledgment of writes →
    /// `Report::Pool`, durable.
    AddLog {
        /// Name of the pool.
        pool: Name,
        /// Disks of the log device.
        disks: Vec<DiskName>,
        /// True to overwrite foreign content of the disks.
        force: bool,
    },
    /// Remove the log device of a pool and blank its disks → `Report::Pool`, durable. Refused with `LOG_IN_USE` while a
    /// volume uses write-back.
    RemoveLog {
        /// Name of the pool.
        pool: Name,
        /// True to discard the data of a log that cannot be read: its volumes serve again, without their last
        /// acknowledged writes. Refused with `LOG_NOT_LOST` if it can be read.
        lost: bool,
    },
    /// Assemble a pool from the open disks and open it with its volumes → `Report::Pool` (degraded if members are
    /// missing). Refused with `POOL_INCOMPLETE` if too many are missing, with `POOL_OWNED` while another node has it,
    /// and with `POOL_NOT_RELEASED` if another node may have it. Takes seconds if that can be determined only by
    /// watching its disks.
    OpenPool {
        /// Identity of the pool, from its labels.
        id: PoolId,
        /// True if the operator confirms that the last owner is down.
        force: bool,
        /// True to accept blocks older than acknowledged writes, where batches of the redo log of a group cannot be
        /// read. Refused with `REDO_LOG_DAMAGED` otherwise.
        accept_log_loss: bool,
        /// True to open without writing to the disks: hosts can read the volumes in the state of disks and logs. A pool
        /// whose disks reject all writes is always opened in this way, and the report states the reason.
        read_only: bool,
        /// Pool key of another node that wraps the keys of its encrypted volumes; they are wrapped with the key of this
        /// node from then on. Refused with `POOL_KEY_WRONG` if it does not fit any of them.
        key: Option<Secret>,
        /// True to refuse with `POOL_WAITING` while a member is absent that is current according to the newest catalog.
        whole: bool,
        /// Disk that identifies the part to keep of a split pool. Refused with `POOL_SPLIT` if it is needed and absent.
        keep: Option<DiskName>,
        /// True if the operator has confirmed the possible loss: the other parts of a split pool, or data of absent
        /// members that this node never had. Refused with `UNCONFIRMED` otherwise.
        confirmed: bool,
    },
    /// Store a copy of the control state on every member of every open pool, replacing an older copy → `Report::Done`,
    /// durable on the members that respond.
    KeepState {
        /// Version of the state.
        version: u64,
        /// State as serialized by the control plane.
        bytes: Arc<[u8]>,
    },
    /// Get the key that wraps the keys of encrypted volumes of a pool → `Report::PoolKey`.
    PoolKey {
        /// Name of the pool.
        pool: Name,
    },
    /// Close a pool cleanly, with its volumes → `Report::Done`, durable. Hosts lose access to the volumes before the
    /// response.
    ClosePool {
        /// Name of the pool.
        pool: Name,
    },
    /// Close a pool without volumes and remove its labels → `Report::Done`, durable.
    DestroyPool {
        /// Name of the pool.
        pool: Name,
    },
    /// Remove a member from service as if it had failed → `Report::Pool`, durable. Refused with `POOL_WOULD_FAIL` if
    /// the pool cannot serve its data without it.
    FailDisk {
        /// Name of the disk.
        disk: DiskName,
    },
    /// Return a member that was absent when its pool was opened, and resync the writes that it missed → `Report::Pool`.
    /// Refused with `DISK_NOT_MEMBER` if it has another label, and with `DISK_HEALTHY` if it is not missing.
    ReturnDisk {
        /// Open disk.
        disk: DiskName,
        /// Identity of the member.
        member: DiskId,
    },
    /// Replace the member `failed` with `replacement` and start the rebuild → `Report::Pool`, durable.
    ReplaceDisk {
        /// Name of the member to replace, open or not: failed, missing, or with `force` healthy.
        failed: DiskName,
        /// Identity of that member, if the control plane knows it. Required for a member that is not open.
        member: Option<DiskId>,
        /// Open disk that no pool uses.
        replacement: DiskName,
        /// True to replace a healthy member, and to overwrite foreign content of the replacement.
        force: bool,
    },
    /// Start to copy the active member `disk` to `replacement`, which replaces it at the end → `Report::Pool`. An event
    /// reports the result. Until then, and after a crash before that, `disk` is the member and `replacement` is free.
    CopyMember {
        /// Member to copy.
        disk: DiskName,
        /// Open disk that no pool uses.
        replacement: DiskName,
        /// True to overwrite foreign content of the replacement.
        force: bool,
    },
    /// Set the repair policy of a pool, also for running repairs → `Report::Pool`. Not stored by the data plane: the
    /// control plane sends it again after the pool was opened.
    SetRepair {
        /// Name of the pool.
        pool: Name,
        /// Rate of repairs, and permitted effect on host I/O.
        policy: RepairPolicy,
    },
    /// Set the space thresholds of a pool, for alerts and for hosts → `Report::Pool`. Not stored by the data plane: the
    /// control plane sends it again after the pool was opened.
    SetSpace {
        /// Name of the pool.
        pool: Name,
        /// Thresholds.
        policy: SpacePolicy,
    },
    /// Start a scrub of all data of the volumes of a pool → `Report::Pool`, after the start.
    StartScrub {
        /// Name of the pool.
        pool: Name,
        /// True to repair parity and mirrors that differ from the data.
        repairs: bool,
    },
    /// Stop the running scrub → `Report::Pool`.
    StopScrub {
        /// Name of the pool.
        pool: Name,
    },
    /// Pause or resume scrubs of a pool → `Report::Pool`.
    HoldScrub {
        /// Name of the pool.
        pool: Name,
        /// True to pause.
        held: bool,
    },
    /// Create a volume → `Report::Volume`; durable in the catalog of the pool, if it has one.
    CreateVolume(VolumeSpec),
    /// Grow a volume online and notify initiators → `Report::Volume`.
    ResizeVolume {
        /// Name of the volume.
        volume: VolumeName,
        /// New size, not below the present one.
        size: Size,
    },
    /// Set caching and QoS limits of a volume in a pool, and notify hosts if the volatility of acknowledged writes
    /// changes → `Report::Volume`. Not stored by the data plane: the control plane sends it again after the pool was
    /// opened. Refused with `POLICY_IMPOSSIBLE` if the write policy is not possible; the other settings take effect all
    /// the same.
    SetVolumePolicy {
        /// Name of the volume.
        volume: VolumeName,
        /// Policy to apply.
        policy: VolumePolicy,
    },
    /// Start to copy the present content of a volume, or a snapshot, to a new volume in any pool → `Report::Volume`, in
    /// the state `Copying`. An event reports the completion; the volume can be used from then on. Resumed after a
    /// crash.
    CopyVolume {
        /// Source of the copy.
        source: CopySource,
        /// Name of the new volume, in a pool.
        target: VolumeName,
        /// Identity of the new volume.
        id: VolumeId,
    },
    /// Cancel a running copy and delete its target → `Report::Done`. Refused with `COPY_UNKNOWN` if none runs.
    CancelCopy {
        /// Target volume of the copy.
        target: VolumeName,
    },
    /// Clear all persistent reservations and registrations of a volume, and notify hosts → `Report::Volume`, durable.
    ClearReservations {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// Delete a volume that is not presented → `Report::Done`.
    DeleteVolume {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// Create snapshots of volumes in one pool, all at one point in time between order and response →
    /// `Report::Snapshots`, durable. All of them or none.
    CreateSnapshots {
        /// Names, which include the volume, and identities of the snapshots.
        snapshots: Vec<(SnapshotName, SnapshotId)>,
        /// Lock of the new snapshots: the time before which they cannot be deleted.
        lock: SnapshotLock,
    },
    /// Delete a snapshot → `Report::Done`, durable. Its exclusive space is reclaimed in the background.
    DeleteSnapshot {
        /// Name of the snapshot.
        snapshot: SnapshotName,
    },
    /// Lock a snapshot against deletion; a lock can only be extended → `Report::Snapshots`, durable.
    LockSnapshot {
        /// Name of the snapshot.
        snapshot: SnapshotName,
        /// Time before which it cannot be deleted.
        lock: SnapshotLock,
    },
    /// Create a volume from a snapshot that shares all unmodified data with it → `Report::Volume`, durable.
    CloneSnapshot {
        /// Name of the snapshot.
        snapshot: SnapshotName,
        /// Name of the clone, in the same pool.
        volume: VolumeName,
        /// Identity of the clone.
        id: VolumeId,
        /// Space allocation: thick or thin.
        provision: Provision,
        /// True if whole granules of zeros do not occupy space.
        zero_detection: bool,
    },
    /// Roll a volume back to a snapshot and discard all writes since then → `Report::Volume`, durable. Refused with
    /// `VOLUME_BUSY` while a session uses the volume, unless `in_use` is set.
    RollBack {
        /// Snapshot to return to.
        snapshot: SnapshotName,
        /// True to permit the rollback while sessions use the volume; they are notified of the changed content.
        in_use: bool,
    },
    /// Replace the complete access table → `Report::Done`. Sessions that lose a volume or their host lose it before the
    /// response. Presentations of volumes that are not open are kept until the volumes are.
    SetAccess(Access),
    /// Open a portal and listen on it → `Report::Portal`.
    OpenPortal {
        /// Address to listen on. Port 0 selects a free port, which the report contains.
        address: SocketAddr,
    },
    /// Close a portal and end its sessions → `Report::Done`.
    ClosePortal {
        /// Address of the portal.
        address: SocketAddr,
    },
    /// Check the consistency of the pool catalog and all volume maps online → `Report::Check`. Writes to a volume are
    /// held back while its map is checked.
    CheckPool {
        /// Name of the pool.
        pool: Name,
        /// True to repair; the report lists the state before the repair.
        repair: bool,
        /// With `repair`: true to continue with the intact part of damaged maps, although blocks may be older then.
        accept_loss: bool,
    },
    /// Dump the catalog of the pool and the maps of its volumes as readable text → `Report::Text`.
    DumpPool {
        /// Name of the pool.
        pool: Name,
    },
    /// Get state and counters of the data plane → `Report::Engine`.
    Status,
    /// List all open disks → `Report::Disks`.
    Disks,
    /// List all open pools → `Report::Pools`.
    Pools,
    /// List all open volumes → `Report::Volumes`.
    Volumes,
    /// List the names of all open volumes, including incomplete copies → `Report::VolumeNames`, sorted.
    VolumeNames,
    /// List the volumes of open pools that are offline → `Report::Volumes`.
    HeldVolumes,
    /// Get the attributes, as reported to hosts, of the open volumes that are online → `Report::UnitShapes`.
    UnitShapes,
    /// Get one open volume → `Report::Volumes`, with one entry or none.
    Volume {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// List all snapshots of open pools, including those that are being deleted → `Report::Snapshots`.
    Snapshots,
    /// List all sessions → `Report::Sessions`.
    Sessions,
    /// Get the details of one session → `Report::Session`.
    Session {
        /// TSIH of the session.
        id: u32,
    },
    /// Start to record iSCSI traffic → `Report::Recording`.
    Record {
        /// Sessions to record.
        what: Recordable,
        /// Duration of the recording.
        time: Duration,
    },
    /// Get the traffic recorded since the last such order; waits until there is some → `Report::Recorded`.
    NextRecorded {
        /// Number of the recording.
        recording: u64,
    },
    /// Stop a recording → `Report::Recorded`, with the traffic not fetched yet.
    StopRecording {
        /// Number of the recording; one that has ended counts as stopped.
        recording: u64,
    },
    /// End a session: request a logout, and drop its connections after five seconds without one → `Report::SessionEnd`.
    /// The initiator may log in again.
    EndSession {
        /// TSIH of the session.
        id: u32,
        /// True to drop the connections immediately.
        now: bool,
    },
    /// Drop one connection of a session → `Report::Done`. The other connections continue; commands in flight on it are
    /// handled according to the `ErrorRecoveryLevel` of the session.
    EndConnection {
        /// TSIH of the session.
        id: u32,
        /// CID of the connection.
        cid: u16,
    },
    /// Get the activity counters, which only increase → `Report::Activity`.
    Activity,
    /// List commands in flight → `Report::Tasks`. Sessions that do not respond within a second are omitted.
    Tasks,
    /// Get the command latencies of a volume since it was opened → `Report::Latencies`.
    Latencies {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// Get the state of the trace of a volume → `Report::Trace`.
    Trace {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// Start to trace the commands of a volume → `Report::Trace`. Refused with `TRACED_ALREADY`, and with
    /// `LIMIT_REACHED` if all traces together would exceed the limit.
    StartTrace {
        /// Name of the volume.
        volume: VolumeName,
        /// Size of the ring buffer in commands, at least one; older commands are overwritten.
        commands: u32,
    },
    /// Get the content of the trace of a volume, which continues → `Report::Traced`. Refused with `TRACE_UNKNOWN` if
    /// there is none.
    TakeTrace {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// Stop the trace of a volume and discard its content → `Report::Trace`, with its last state. Refused with
    /// `TRACE_UNKNOWN` if there is none.
    StopTrace {
        /// Name of the volume.
        volume: VolumeName,
    },
    /// List recently rejected logins → `Report::Refused`.
    RefusedLogins,
    /// Restore the list of logins that were rejected before this start, latest first → `Report::Done`.
    RememberRefused(Vec<RefusedLogin>),
    /// Set the limit of the read caches of all shards together → `Report::Done`. Excess content is evicted.
    SetReadCache {
        /// Limit in bytes, including volume maps.
        bytes: u64,
    },
    /// List the open portals → `Report::Portals`.
    Portals,
    /// Get the events since the last such order; waits until there is one → `Report::Events`. Each event is delivered
    /// once.
    NextEvents,
    /// Restore the pool memberships that the node recorded before this start → `Report::Done`.
    KnowMemberships {
        /// One membership per pool.
        known: Vec<PoolMembership>,
    },
    /// Get the memberships of all pools; waits until they have changed since the last such order →
    /// `Report::Memberships`.
    NextMemberships,
    /// Confirm that the node state has stored the memberships of these pools → `Report::Done`.
    MembershipsKept {
        /// Stored generation of each pool.
        generations: Vec<(PoolId, u64)>,
    },
    /// Shut down: stop listening, finish operations in flight, flush, mark the pools clean, and close everything →
    /// `Report::Done`. No order follows.
    Stop,
}

impl Order {
    /// Returns true if the order is executed concurrently, without waiting for the queue of orders: it does not change
    /// anything that a queued order changes, or it must not wait for one.
    #[must_use]
    pub fn runs_concurrently(&self) -> bool {
        use Order::{
            Activity, CheckPool, Disks, DumpPool, EndConnection, EndSession, HeldVolumes, InspectDisk, KeepState,
            KnowMemberships, Latencies, MembershipsKept, NextEvents, NextMemberships, NextRecorded, Pools, Portals,
            Record, RefusedLogins, Session, Sessions, SetReadCache, Snapshots, StartTrace, Status, StopRecording,
            StopTrace, TakeTrace, Tasks, Trace, UnitShapes, Volume, VolumeNames, Volumes,
        };
        // Ending a session may take a while; other orders do not wait for it.
        let of_sessions = matches!(self, Session { .. } | EndSession { .. } | EndConnection { .. } | Latencies { .. });
        // Other orders do not wait for the target of a remote disk either.
        let looks = matches!(self, CheckPool { .. } | DumpPool { .. } | InspectDisk { remote: Some(_), .. });
        let of_volumes = matches!(self, Volume { .. } | Volumes | VolumeNames | HeldVolumes | Snapshots | UnitShapes);
        let lists = of_volumes || matches!(self, Disks | Pools | Sessions | Portals | RefusedLogins);
        // `NextRecorded` waits for traffic, which may never come.
        let records = matches!(self, Record { .. } | NextRecorded { .. } | StopRecording { .. });
        // A trace does not change anything of its volume.
        let traces = matches!(self, Trace { .. } | StartTrace { .. } | TakeTrace { .. } | StopTrace { .. });
        // Under memory pressure the cache must shrink now, not after a long-running change.
        let memory = matches!(self, SetReadCache { .. });
        // Events and alerts wait for copies of the state and must not wait for a long-running change.
        let copies = matches!(self, KeepState { .. });
        // A queued order may wait for `MembershipsKept`, which therefore must not wait in the queue.
        let members = matches!(self, KnowMemberships { .. } | MembershipsKept { .. } | NextMemberships);
        let now = memory || copies || members || matches!(self, Status | Activity | Tasks | NextEvents);
        looks || lists || of_sessions || records || traces || now
    }

    /// Returns the volume of an order to the front ends that concerns one volume.
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

    /// Returns true for an order to the front ends: access table, portals, sessions, and host activity on volumes. All
    /// other orders are executed by the engine.
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

/// Disk group to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// RAID level.
    pub level: Level,
    /// Chunk size: contiguous bytes on one member.
    pub chunk: Size,
    /// True to store a checksum per block, with a redo log that makes writes atomic in a crash.
    pub integrity: bool,
    /// Used size of each disk.
    pub member_size: MemberSize,
    /// Disks in slot order.
    pub disks: Vec<DiskName>,
}

/// Volume to create, or to reopen if it has no pool that stores its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Name of the volume.
    pub name: VolumeName,
    /// Identity, chosen by the control plane.
    pub id: VolumeId,
    /// Capacity.
    pub size: Size,
    /// Logical block size in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Storage that holds the data.
    pub backend: Backend,
}
