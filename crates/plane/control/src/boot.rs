//! Start of the array from the stored state and the labels on the disks.
//!
//! [`Control::start`] defines the order of the steps; each step is a method of the part whose objects it opens.
//!
//! No failure here stops the rest: a missing disk degrades its pool, a missing pool is reported, and everything
//! else comes online.

use crate::access::Access;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::volumes::Volumes;
use crate::core::ChangeGuard;
use crate::state::{DEFAULT_TARGET, PoolRecord, State, TargetRecord, VolumeRecord};
use crate::{Control, Engine, Settings, Store, machine_id, search};
use model::{
    DiskName, Label, Name, Order, PoolReport, Refusal, Subject, SubjectKind, VolumeId, VolumeName, VolumeSpec, code,
    event,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Limit on waiting for disks in use. The kernel releases the disks of a killed daemon only when its I/O has
/// ended, and skipping a disk would cost its pool its redundancy.
const HANDOVER: Duration = Duration::from_secs(10);
/// Interval between attempts to open a disk in use.
const HANDOVER_STEP: Duration = Duration::from_millis(50);

impl Control {
    /// Starts the array as it was: opens its disks and pools, and admits its hosts.
    ///
    /// *Errors*: the state cannot be read or written, or the data plane is gone. Missing disks, pools, files
    /// and portals are no errors: they are logged and shown in the status.
    pub async fn start(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let control = Self::new(settings, store, engine)?;
        // A new state beside a pool of this machine means that the state folder was lost.
        if control.core.store.was_begun() {
            control.refuse_with_own_pools().await.inspect_err(|_| control.core.store.abandon())?;
        }
        {
            // Held for the whole start: no request may change an array that is half started.
            let turn = control.core.lock_changes().await;
            control.add_default_target(&turn)?;
            // Pending pools are wiped before pools are opened: a half-created pool must not be found by its
            // labels.
            control.disks.open_all(&turn).await?;
            control.pools.wipe_pending(&turn).await?;
            // Before pools are opened, because the engine refuses a pool whose disks are all outdated.
            control.memberships.restore().await?;
            control.pools.open_all(&turn).await?;
            control.volumes.open_all().await;
            // Volumes may have been deleted without this daemon, so their presentations are checked once
            // everything is open.
            control.access.drop_dangling(&turn).await?;
            control.refused_logins.remember().await?;
            // Portals come last: a host must not log in before its volumes and mappings exist.
            control.portals.open_all().await?;
        }
        let node = Subject::new(SubjectKind::Node, &control.core.settings.node);
        let sentence = format!("node {} started, version {}", control.core.settings.node, env!("CARGO_PKG_VERSION"));
        control.core.raise(event::NODE_STARTED, node.clone(), sentence);
        // The store was opened before there was an event log, so its findings are raised now.
        for (code, sentence) in control.core.store.take_findings() {
            control.core.raise(code, node.clone(), sentence);
        }
        if let Some(refusal) = control.core.hold() {
            control.core.raise(event::STATE_OLDER, node, refusal.message);
        }
        Ok(control)
    }

    /// Refuses to start with an empty state where a disk carries a pool last owned by a node of this machine:
    /// hosts would lose their volumes to a new array. Pools of other machines do not count.
    async fn refuse_with_own_pools(&self) -> Result<(), Refusal> {
        // Without a machine ID, as in some containers, no pool can be attributed to this machine.
        let Some(machine) = machine_id::read() else { return Ok(()) };
        let folders: BTreeSet<PathBuf> = self.core.settings.disk_search.iter().cloned().collect();
        let Some((path, pool, node)) = search::owned_by(&self.core.engine, &folders, machine).await else {
            return Ok(());
        };
        Err(Refusal::new(
            code::STATE_GONE,
            format!(
                "{} has no state, but disk {path} belongs to pool {pool}, last used by node {node} of this machine",
                self.core.settings.state_dir.display()
            ),
            "restore the folder state and node.key from a backup, or give their folder with --state-dir; to \
             create an empty array, start once with --new",
        ))
    }

    /// Adds the default target at the first start. It keeps its iSCSI name when the node is renamed, because
    /// hosts know it.
    fn add_default_target(&self, turn: &ChangeGuard<'_>) -> Result<(), Refusal> {
        // Any target will do: an operator may have removed the default one, and it must not return.
        if !self.core.state().targets.is_empty() {
            return Ok(());
        }
        let iqn = self.core.state().target_iqn(&self.core.settings, None)?;
        let name: Name = DEFAULT_TARGET.parse().expect("the default target's name is a name");
        self.core.commit(turn, |state| {
            state.targets.insert(name, TargetRecord { iqn });
        })
    }
}

impl Disks {
    /// Opens every disk that can be found and records its path.
    pub(crate) async fn open_all(&self, turn: &ChangeGuard<'_>) -> Result<(), Refusal> {
        // Some are open already when this runs after the start, as for an import.
        let open: BTreeSet<DiskName> =
            self.core.engine.disks(Order::Disks).await?.into_iter().filter_map(|disk| disk.name).collect();
        // A snapshot, because every disk that is opened commits a new state.
        let state = self.core.state();
        let mut lost = Vec::new();
        // One limit for all disks together, so that the start is not delayed by each of them.
        let until = Instant::now() + HANDOVER;
        for name in state.disks.keys().filter(|name| !open.contains(*name)) {
            if !self.open_at_last_path(turn, name, until).await? {
                lost.push(name.clone());
            }
        }
        // One search for all lost disks, because a search inspects every disk of the folders.
        if lost.is_empty() { Ok(()) } else { self.open_elsewhere(turn, &lost).await }
    }

    /// Opens the disk at its last path and returns whether it is there. A disk in use is waited for.
    async fn open_at_last_path(
        &self,
        turn: &ChangeGuard<'_>,
        name: &DiskName,
        until: Instant,
    ) -> Result<bool, Refusal> {
        let state = self.core.state();
        let record = state.disk(name)?;
        let report = loop {
            match self.core.engine.disk(record.order(name)).await {
                Ok(report) => break report,
                Err(refusal) if refusal.code == code::DISK_IN_USE && Instant::now() < until => {
                    sleep(HANDOVER_STEP).await;
                }
                Err(refusal) => {
                    tracing::warn!(disk = %name, "{refusal}");
                    return Ok(false);
                }
            }
        };
        // Device names move between boots: the label decides, or the hardware identity where there is no label.
        let relabelled = record.id.is_some() && report.label.disk() != record.id;
        if relabelled || record.identity.contradicts(&report.identity) {
            tracing::warn!(disk = %name, path = record.path, "another disk is in its place");
            // An open disk is locked exclusively, so the search for the right one could not open it under its own name.
            self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await?;
            return Ok(false);
        }
        self.core.commit(turn, |state| {
            if let Some(record) = state.disks.get_mut(name) {
                record.id = report.label.disk();
                record.identity = report.identity;
            }
        })?;
        Ok(true)
    }

    /// Searches for `lost` disks by label, or by serial number where they carry none, in every folder that any
    /// disk was ever in.
    async fn open_elsewhere(&self, turn: &ChangeGuard<'_>, lost: &[DiskName]) -> Result<(), Refusal> {
        let state = self.core.state();
        // A remote disk is found at its address only.
        let lost: Vec<&DiskName> = lost.iter().filter(|name| !state.is_remote(name)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let local = state.disks.values().filter(|record| record.remote.is_none());
        let was_in = local.filter_map(|record| Path::new(&record.path).parent()).map(Path::to_path_buf);
        let folders: BTreeSet<PathBuf> = was_in.chain(self.core.settings.disk_search.iter().cloned()).collect();
        let found = search::disks(&self.core.engine, &folders).await;
        for name in lost {
            let path = found.path_of(state.disk(name)?);
            let Some(path) = path else {
                tracing::warn!(disk = %name, "not found");
                continue;
            };
            match self.core.engine.disk(Order::OpenDisk { disk: name.clone(), path: path.clone(), remote: None }).await
            {
                Ok(report) => {
                    tracing::info!(disk = %name, path, "found under another name");
                    self.core.commit(turn, |state| {
                        if let Some(record) = state.disks.get_mut(name) {
                            record.path.clone_from(path);
                            record.identity = report.identity;
                        }
                    })?;
                }
                Err(refusal) => tracing::warn!(disk = %name, "{refusal}"),
            }
        }
        Ok(())
    }
}

impl Pools {
    /// Wipes the remains of pools that were being created or destroyed. A disk that cannot be reached keeps its
    /// pool pending, and is wiped when it returns.
    async fn wipe_pending(&self, turn: &ChangeGuard<'_>) -> Result<(), Refusal> {
        if self.core.store.serves_older() {
            // A later version of the state, now lost, may have recorded the pool as created, so its disks may
            // hold data.
            return Ok(());
        }
        let open: BTreeMap<DiskName, _> = self
            .core
            .engine
            .disks(Order::Disks)
            .await?
            .into_iter()
            .filter_map(|disk| disk.name.clone().map(|name| (name, disk)))
            .collect();
        for (id, pending) in &self.core.state().pending {
            let mut wiped = true;
            for disk in &pending.disks {
                let Some(report) = open.get(disk) else {
                    // A disk that was removed from the array no longer keeps the pool pending.
                    wiped &= !self.core.state().disks.contains_key(disk);
                    continue;
                };
                // A torn label cannot name its pool, but on a disk listed here it can only be the remains of
                // this one.
                let is_its = report.label.pool().is_some_and(|(pool, _)| pool == *id);
                if is_its || report.label == Label::Damaged {
                    match self.core.engine.done(Order::EraseDisk { disk: disk.clone(), pool: *id }).await {
                        Ok(()) => {}
                        // The disk belongs to another pool by now and is left alone.
                        Err(refusal) if refusal.code == code::POOL_OWNED => tracing::warn!(%disk, "{refusal}"),
                        // Any other refusal may pass, such as of an unresponsive disk; the next start tries again.
                        Err(_) => wiped = false,
                    }
                }
            }
            tracing::info!(pool = %pending.pool, wiped, "was being created or destroyed when the daemon stopped");
            if wiped {
                self.core.commit(turn, |state| {
                    // The labels are erased: with an identity on record a disk would look exchanged at the next start.
                    for disk in &pending.disks {
                        if let Some(record) = state.disks.get_mut(disk) {
                            record.id = None;
                        }
                    }
                    state.pending.remove(id);
                })?;
            }
        }
        Ok(())
    }

    /// Opens every pool of which enough disks were found.
    async fn open_all(&self, turn: &ChangeGuard<'_>) -> Result<(), Refusal> {
        for (name, record) in &self.core.state().pools {
            if let Some(pool) = self.open_at_start(name, record).await {
                self.settle(turn, &pool).await?;
            }
        }
        Ok(())
    }

    /// Opens the pool as recorded; an event reports the reason of a failure.
    pub(crate) async fn open_known(&self, name: &Name, record: &PoolRecord) -> Option<PoolReport> {
        let opened = self.core.engine.pool(record.order(false)).await;
        if let Err(refusal) = &opened {
            tracing::error!(pool = %name, "{refusal}");
            let sentence = format!("pool {name} could not be opened: {refusal}");
            self.core.raise(event::POOL_UNOPENED, Subject::pool(name), sentence);
        }
        opened.ok()
    }

    /// Records a pool that was just opened, and applies the policies of the pool and of its volumes.
    pub(crate) async fn settle(&self, turn: &ChangeGuard<'_>, pool: &PoolReport) -> Result<(), Refusal> {
        self.core.commit(turn, |state| state.learn(pool))?;
        // After the record exists, because the policy is read from it.
        self.apply_policy(&pool.name).await?;
        self.volumes.apply_policies(turn, &pool.name).await
    }
}

impl Volumes {
    /// Creates every volume without a pool again; RAM disks are empty.
    async fn open_all(&self) {
        for (name, record) in &self.core.state().volumes {
            if let Err(refusal) = self.core.engine.volume(Order::CreateVolume(record.spec(name))).await {
                // A file that is absent is tried again by the reconcile loop.
                tracing::error!(volume = %name, "{refusal}");
            }
        }
    }
}

impl Access {
    /// Removes presentations of volumes that no longer exist. A pool that is not open proves nothing about its
    /// volumes.
    pub(crate) async fn drop_dangling(&self, turn: &ChangeGuard<'_>) -> Result<(), Refusal> {
        // Pools before volumes: a pool that opens in between must not seem to have lost its volumes.
        let pools: BTreeSet<Name> =
            self.core.engine.pools(Order::Pools).await?.into_iter().map(|pool| pool.name).collect();
        let volumes: BTreeSet<(VolumeName, VolumeId)> = self
            .core
            .engine
            .volumes(Order::Volumes)
            .await?
            .into_iter()
            .map(|volume| (volume.name, volume.id))
            .collect();
        // Compared by identity: a volume that was deleted and recreated is another one.
        let gone = |state: &State, volume: &VolumeName, id: VolumeId| match volume.pool() {
            Some(pool) if pools.contains(pool) => !volumes.contains(&(volume.clone(), id)),
            Some(pool) => !state.pools.contains_key(pool),
            None => state.volumes.get(volume).is_none_or(|record| record.id != id),
        };
        self.core.commit(turn, |state| {
            // Moved out of the state, because the closure reads the rest of it.
            let mut presentations = std::mem::take(&mut state.presentations);
            presentations.retain(|presentation| {
                let gone = gone(state, &presentation.volume, presentation.volume_id);
                if gone {
                    tracing::warn!(volume = %presentation.volume, host = %presentation.host, "presented, but gone");
                }
                !gone
            });
            state.presentations = presentations;
        })
    }
}

impl VolumeRecord {
    /// Returns the specification that creates the volume again.
    pub(crate) fn spec(&self, name: &VolumeName) -> VolumeSpec {
        VolumeSpec {
            name: name.clone(),
            id: self.id,
            size: self.size,
            block_bytes: self.block_bytes,
            backend: self.backend.clone(),
        }
    }
}
