//! Assembly of the control plane: its parts, and the parts that each of them calls.
//!
//! A part is one noun of the array or one monitor. It owns its state, and its fields name the parts that it
//! calls. [`Control::new`] creates them bottom-up, so no two can call each other; none knows [`Control`]. Front
//! ends call `control.pools.create(…)`.

use crate::access::Access;
use crate::change::auth::Authentication;
use crate::change::copies::Copies;
use crate::change::disks::Disks;
use crate::change::host_groups::HostGroups;
use crate::change::hosts::Hosts;
use crate::change::pool_recovery::PoolRecovery;
use crate::change::pools::Pools;
use crate::change::portal_groups::PortalGroups;
use crate::change::portals::Portals;
use crate::change::presentations::Presentations;
use crate::change::remote::RemoteDisks;
use crate::change::scrubs::Scrubs;
use crate::change::snapshots::Snapshots;
use crate::change::spares::Spares;
use crate::change::targets::Targets;
use crate::change::volumes::Volumes;
use crate::config::Configuration;
use crate::core::Core;
use crate::descriptors::Descriptors;
use crate::devices::Devices;
use crate::file_space::FileSpaceMonitor;
use crate::health::Health;
use crate::isns::IsnsRegistration;
use crate::live::Live;
use crate::memberships::Memberships;
use crate::memory::Memory;
use crate::notices::Notices;
use crate::operations::Operations;
use crate::privileged::Confinement;
use crate::reconciler::Reconciler;
use crate::refused::RefusedLogins;
use crate::sessions::Sessions;
use crate::status::Status;
use crate::trace::Traces;
use crate::{Engine, Settings, Store};
use model::{Order, Refusal};
use std::sync::Arc;

/// The control plane of an array.
pub struct Control {
    /// The desired state, the data plane, and the lock that serializes changes.
    pub core: Arc<Core>,
    /// Access control, and the portals that it applies to.
    pub(crate) access: Arc<Access>,
    /// Problems reported by parts of the daemon outside the data plane.
    pub notices: Arc<Notices>,
    /// SMART health of the disks.
    pub health: Arc<Health>,
    /// Memory of the daemon: its limit and its use.
    pub memory: Arc<Memory>,
    /// Free space of the file systems below disks and volumes that are files.
    pub file_space: Arc<FileSpaceMonitor>,
    /// Use of the open-file limit.
    pub descriptors: Arc<Descriptors>,
    /// Rates of the last second, shared by all clients that watch them.
    pub live: Arc<Live>,
    /// Denied logins.
    pub refused_logins: Arc<RefusedLogins>,
    /// Sessions of hosts and their commands in flight.
    pub sessions: Arc<Sessions>,
    /// I/O traces of volumes.
    pub traces: Arc<Traces>,
    /// Block devices of the machine that are not disks of the array.
    pub devices: Arc<Devices>,
    /// The disks of the array.
    pub disks: Arc<Disks>,
    /// Volumes, with or without a pool.
    pub volumes: Arc<Volumes>,
    /// Pools, their groups and members.
    pub pools: Arc<Pools>,
    /// Snapshots of volumes, and clones of them.
    pub snapshots: Arc<Snapshots>,
    /// Background copies of volumes.
    pub copies: Arc<Copies>,
    /// Hot spares.
    pub spares: Arc<Spares>,
    /// Scrubs of pools, started by operators or by the schedule.
    pub scrubs: Arc<Scrubs>,
    /// Membership records: which members of pools are current.
    pub memberships: Arc<Memberships>,
    /// Portals that hosts log in through.
    pub portals: Arc<Portals>,
    /// Portal groups, and the ALUA state of volumes through each.
    pub portal_groups: Arc<PortalGroups>,
    /// Hosts.
    pub hosts: Arc<Hosts>,
    /// Host groups: hosts with the same mappings.
    pub host_groups: Arc<HostGroups>,
    /// iSCSI targets.
    pub targets: Arc<Targets>,
    /// Presentations: which volumes are mapped to which hosts, and the LUNs.
    pub presentations: Arc<Presentations>,
    /// Authentication of all hosts and of discovery.
    pub auth: Arc<Authentication>,
    /// The registration with an iSNS server.
    pub isns: Arc<IsnsRegistration>,
    /// The status of the array: problems, conditions, findings.
    pub status: Arc<Status>,
    /// Reconcile loop: periodic work that no request starts.
    pub reconciler: Arc<Reconciler>,
    /// Long-running operations: rebuilds, scrubs, copies.
    pub operations: Arc<Operations>,
    /// Configuration document: plan, apply, export, restore.
    pub config: Arc<Configuration>,
}

/// Constructs a part from clones of the parts that it calls; its own state starts empty.
macro_rules! part {
    ($part:ident over $($below:ident),* $(; owns $($own:ident),*)?) => {
        Arc::new($part { $($below: Arc::clone(&$below),)* $($($own: Default::default(),)*)? })
    };
}

/// Records the confinement of the daemon in its control plane.
#[must_use]
pub fn confined(control: Control, confinement: Confinement) -> Control {
    control.core.confine(confinement);
    control
}

impl Control {
    /// Creates all parts over the store and the data plane; no disk and no pool is open yet.
    pub(crate) fn new(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let core = Arc::new(Core::new(settings, store, engine)?);
        let access = Arc::new(Access::new(core.clone()));
        let notices = Arc::new(Notices::new(core.clone()));
        let health = Arc::new(Health::new(core.clone()));
        let memory = Arc::new(Memory::new(core.clone(), notices.clone()));
        let refused_logins = Arc::new(RefusedLogins::new(core.clone()));
        let sessions = part!(Sessions over core);
        let devices = Arc::new(Devices::new(core.clone()));
        let disks = part!(Disks over core, health, devices);
        let volumes = part!(Volumes over core, access, memory);
        let pools = part!(Pools over core, access, disks, volumes; owns opening, pending_replacements);
        let snapshots = part!(Snapshots over core, access, volumes);
        let copies = part!(Copies over core, pools, volumes, snapshots);
        let spares = part!(Spares over core, disks, pools);
        let scrubs = part!(Scrubs over core, pools);
        let remote_disks = part!(RemoteDisks over core, disks, pools);
        let pool_recovery = part!(PoolRecovery over core, access, disks, pools, volumes);
        let portals = part!(Portals over core, access, sessions);
        let presentations = part!(Presentations over core, access, volumes, portals, sessions, refused_logins);
        let isns = Arc::new(IsnsRegistration::new(core.clone(), notices.clone(), portals.clone()));
        let reconciler =
            // Bottom-up: a part only receives parts that exist already, so calls cannot form a cycle.
            part!(Reconciler over core, disks, pools, spares, scrubs, remote_disks, pool_recovery, refused_logins; owns last_round);
        Ok(Self {
            file_space: part!(FileSpaceMonitor over core, notices),
            descriptors: part!(Descriptors over core, notices),
            live: Arc::new(Live::new(core.clone())),
            memberships: part!(Memberships over core),
            traces: part!(Traces over core),
            portal_groups: part!(PortalGroups over core, access, portals),
            hosts: part!(Hosts over core, access),
            host_groups: part!(HostGroups over core, access),
            targets: part!(Targets over core, access),
            auth: part!(Authentication over core, access),
            status: part!(Status over core, access, notices, disks, pools, volumes, portals, sessions, refused_logins, memory, isns),
            operations: part!(Operations over pools, scrubs, volumes, snapshots, copies, reconciler),
            config: part!(Configuration over core, access, disks, spares, pools, volumes, portals, presentations, sessions, isns; owns applying),
            core,
            access,
            notices,
            health,
            memory,
            refused_logins,
            sessions,
            devices,
            disks,
            volumes,
            pools,
            snapshots,
            copies,
            spares,
            scrubs,
            portals,
            presentations,
            isns,
            reconciler,
        })
    }

    /// Waits for the change in progress, then stops the data plane cleanly and admits no further change.
    ///
    /// *Errors*: the error of the data plane, which has stopped as far as it could.
    pub async fn stop(&self) -> Result<(), Refusal> {
        // A lost record of denied logins is no reason to stay up: log it and stop anyway.
        if let Err(refusal) = self.refused_logins.store_now().await {
            tracing::warn!(%refusal, "the list of denied logins could not be saved");
        }
        // With the change lock, so that no change is cut off halfway.
        let turn = self.core.lock_changes().await;
        let stopped = self.core.engine.done(Order::Stop).await;
        // Leaking the guard keeps the lock locked, so a change that still waits for it never runs.
        std::mem::forget(turn);
        stopped
    }
}
