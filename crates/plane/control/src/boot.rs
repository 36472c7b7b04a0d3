//! From what is kept and what the disks say to an array that serves.
//!
//! [`Control::start`] is the order of the steps; each step is a function of the part whose noun it opens.
//!
//! Nothing here blocks the rest: a disk that is missing degrades its pool, a pool that is missing is
//! reported, and everything else serves.

use crate::access::Access;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::volumes::Volumes;
use crate::core::Turn;
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

/// How long disks that are in use are waited for. The kernel gives back what a killed daemon held only
/// when its I/O has ended, and a disk that is passed over would cost its pool its redundancy.
const HANDOVER: Duration = Duration::from_secs(10);
/// How often a disk that is in use is asked for again.
const HANDOVER_STEP: Duration = Duration::from_millis(50);

impl Control {
    /// The array serves as it did before: its disks are found, its pools open, its hosts let in.
    ///
    /// *Errors*: the state cannot be read or written, or the data plane is gone. Missing disks, pools,
    /// files and portals are no errors: they are logged and stand in the status.
    pub async fn start(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let control = Self::new(settings, store, engine)?;
        if control.core.store.was_begun() {
            control.refuse_beside_own_pools().await.inspect_err(|_| control.core.store.abandon())?;
        }
        {
            let turn = control.core.turn().await;
            control.add_default_target(&turn)?;
            control.disks.open_all(&turn).await?;
            control.pools.wipe_pending(&turn).await?;
            control.memberships.restore().await?;
            control.pools.open_all(&turn).await?;
            control.volumes.open_all().await;
            control.access.drop_dangling(&turn).await?;
            control.refused_logins.remember().await?;
            control.portals.open_all().await?;
        }
        let node = Subject::new(SubjectKind::Node, &control.core.settings.node);
        let sentence =
            format!("node {} has started, version {}", control.core.settings.node, env!("CARGO_PKG_VERSION"));
        control.core.raise(event::NODE_STARTED, node.clone(), sentence);
        for (code, sentence) in control.core.store.take_findings() {
            control.core.raise(code, node.clone(), sentence);
        }
        if let Some(refusal) = control.core.hold() {
            control.core.raise(event::STATE_OLDER, node, refusal.message);
        }
        Ok(control)
    }

    /// Refuses an empty state where a disk has a pool that a node of this machine had last: hosts would lose
    /// their volumes to an array that begins anew. Labels of other machines stop nothing.
    async fn refuse_beside_own_pools(&self) -> Result<(), Refusal> {
        let Some(machine) = machine_id::read() else { return Ok(()) };
        let folders: BTreeSet<PathBuf> = self.core.settings.disk_search.iter().cloned().collect();
        let Some((path, pool, node)) = search::owned_by(&self.core.engine, &folders, machine).await else {
            return Ok(());
        };
        Err(Refusal::new(
            code::STATE_GONE,
            format!(
                "{} has no state, but disk {path} is of pool {pool}, which node {node} of this machine had last",
                self.core.settings.state_dir.display()
            ),
            "put back the folder state and node.key from a backup, or name their folder with --state-dir; to begin an empty array, start once with --new",
        ))
    }

    /// The target is made once and then stays, whatever the node is called later: hosts know it.
    fn add_default_target(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
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
    /// Every disk that can be found is open, and remembered where it was found.
    pub(crate) async fn open_all(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
        let open: BTreeSet<DiskName> =
            self.core.engine.disks(Order::Disks).await?.into_iter().filter_map(|disk| disk.name).collect();
        let state = self.core.state();
        let mut lost = Vec::new();
        let until = Instant::now() + HANDOVER;
        for name in state.disks.keys().filter(|name| !open.contains(*name)) {
            if !self.open_where_it_was(turn, name, until).await? {
                lost.push(name.clone());
            }
        }
        if lost.is_empty() { Ok(()) } else { self.open_elsewhere(turn, &lost).await }
    }

    /// True when the disk is open at the path where it was last. One that is in use is waited for.
    async fn open_where_it_was(&self, turn: &Turn<'_>, name: &DiskName, until: Instant) -> Result<bool, Refusal> {
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
        let relabelled = record.id.is_some() && report.label.disk() != record.id;
        if relabelled || record.identity.contradicts(&report.identity) {
            tracing::warn!(disk = %name, path = record.path, "another disk is where it was");
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

    /// Looks for `lost` disks by what their labels say, or by their serial numbers where they bear none, in every
    /// folder that a disk was ever in.
    async fn open_elsewhere(&self, turn: &Turn<'_>, lost: &[DiskName]) -> Result<(), Refusal> {
        let state = self.core.state();
        // A remote disk is where its address says, or nowhere.
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
    /// What is left of pools that were being made or destroyed is gone. A disk that cannot be reached
    /// keeps its pool pending, so that it is wiped when it comes back.
    async fn wipe_pending(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
        if self.core.store.serves_older() {
            // A later version may have said that the pool was made and holds data.
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
                    wiped &= !self.core.state().disks.contains_key(disk);
                    continue;
                };
                // A label may have been torn while it was written or erased.
                let is_its = report.label.pool().is_some_and(|(pool, _)| pool == *id);
                if is_its || report.label == Label::Damaged {
                    match self.core.engine.done(Order::EraseDisk { disk: disk.clone(), pool: *id }).await {
                        Ok(()) => {}
                        // Nothing of ours is left there.
                        Err(refusal) if refusal.code == code::POOL_OWNED => tracing::warn!(%disk, "{refusal}"),
                        Err(_) => wiped = false,
                    }
                }
            }
            tracing::info!(pool = %pending.pool, wiped, "was being made or destroyed when the daemon ended");
            if wiped {
                self.core.commit(turn, |state| {
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

    /// Every pool that enough disks were found of is open.
    async fn open_all(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
        for (name, record) in &self.core.state().pools {
            if let Some(pool) = self.open_at_start(name, record).await {
                self.settle(turn, &pool).await?;
            }
        }
        Ok(())
    }

    /// The pool is open as its record says; an event says why one could not be opened.
    pub(crate) async fn open_known(&self, name: &Name, record: &PoolRecord) -> Option<PoolReport> {
        let opened = self.core.engine.pool(record.order(false)).await;
        if let Err(refusal) = &opened {
            tracing::error!(pool = %name, "{refusal}");
            let sentence = format!("pool {name} could not be opened: {refusal}");
            self.core.raise(event::POOL_UNOPENED, Subject::pool(name), sentence);
        }
        opened.ok()
    }

    /// What was set for a pool that was just opened, and for its volumes, holds.
    pub(crate) async fn settle(&self, turn: &Turn<'_>, pool: &PoolReport) -> Result<(), Refusal> {
        self.core.commit(turn, |state| state.learn(pool))?;
        self.apply_policy(&pool.name).await?;
        self.volumes.apply_policies(turn, &pool.name).await
    }
}

impl Volumes {
    /// Every volume without a pool is there again; RAM disks are empty.
    async fn open_all(&self) {
        for (name, record) in &self.core.state().volumes {
            if let Err(refusal) = self.core.engine.volume(Order::CreateVolume(record.spec(name))).await {
                tracing::error!(volume = %name, "{refusal}");
            }
        }
    }
}

impl Access {
    /// Presentations of volumes that are certainly gone are gone. A pool that is not open proves nothing.
    pub(crate) async fn drop_dangling(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
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
        let gone = |state: &State, volume: &VolumeName, id: VolumeId| match volume.pool() {
            Some(pool) if pools.contains(pool) => !volumes.contains(&(volume.clone(), id)),
            Some(pool) => !state.pools.contains_key(pool),
            None => state.volumes.get(volume).is_none_or(|record| record.id != id),
        };
        self.core.commit(turn, |state| {
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
    /// The order that opens the volume.
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
