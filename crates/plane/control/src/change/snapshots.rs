//! Snapshots: create, lock, clone, roll back, delete.

use crate::access::Access;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::impact;
use crate::request::{LockSnapshot, NewClone, NewSnapshots, RollBack, SnapshotsOf};
use crate::state::State;
use crate::system::random;
use model::{
    Order, Provision, Refusal, SnapshotId, SnapshotLock, SnapshotName, SnapshotReport, SnapshotState, VolumeId,
    VolumeReport, code,
};
use std::sync::Arc;

/// Snapshots of volumes, and clones of them.
pub struct Snapshots {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) volumes: Arc<Volumes>,
}

impl Snapshots {
    /// Creates a snapshot of this name of each volume, all at the same instant (consistency group).
    ///
    /// *Errors*: a volume does not exist, is named twice, has a snapshot of this name or cannot have snapshots;
    /// the volumes are not in one pool; the lock ends in the past. Nothing is changed then.
    pub async fn create(&self, request: NewSnapshots) -> Result<Vec<SnapshotReport>, Refusal> {
        let _turn = self.core.lock_changes().await;
        // Durations count by the clock of the array, which also ends the lock.
        let lock = request.lock.at(crate::system::now());
        admit_lock(lock)?;
        let mut snapshots = Vec::new();
        for (nth, volume) in request.volumes.iter().enumerate() {
            self.volumes.admit_mapped(volume).await?;
            if request.volumes[..nth].contains(volume) {
                let message = format!("volume {volume} is listed twice");
                return Err(Refusal::new(code::NAMED_TWICE, message, "list every volume once"));
            }
            let name = SnapshotName::of(volume.clone(), request.name.clone());
            snapshots.push((name, SnapshotId::from_random(random()?)));
        }
        // A snapshot that is being deleted has given up its name already.
        let taken = self.list().await?.into_iter().find(|known| {
            known.state == SnapshotState::Available && snapshots.iter().any(|(name, _)| *name == known.name)
        });
        if let Some(taken) = taken {
            let message = format!("snapshot {} already exists", taken.name);
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
        }
        // One order for all of them, so that they are of one instant.
        self.core.engine.snapshots(Order::CreateSnapshots { snapshots, lock }).await
    }

    /// Deletes the snapshot; its exclusive space is freed in the background.
    ///
    /// *Errors*: there is none of this name, it is locked, or a clone depends on it.
    pub async fn delete(&self, name: &SnapshotName) -> Result<(), Refusal> {
        let _turn = self.core.lock_changes().await;
        let snapshot = self.report(name).await?;
        let locked = match snapshot.lock {
            SnapshotLock::Unlocked => None,
            // A lock whose time has passed no longer counts.
            SnapshotLock::Until(time) => (time > crate::system::now()).then(|| format!("until {time}")),
            SnapshotLock::Permanent => Some("permanently".to_owned()),
        };
        if let Some(until) = locked {
            let message = format!("snapshot {name} is locked {until}");
            return Err(Refusal::new(code::SNAPSHOT_LOCKED, message, "it cannot be deleted before"));
        }
        if snapshot.cloned {
            // The name of the clone tells the operator what to delete first.
            let volumes = self.volumes.list().await?;
            let is_clone = |volume: &&VolumeReport| {
                volume.space.as_ref().is_some_and(|space| space.clone_of.as_ref() == Some(name))
            };
            let clone =
                volumes.iter().find(is_clone).map_or("a volume".to_owned(), |one| format!("volume {}", one.name));
            let message = format!("{clone} is a clone of snapshot {name}");
            return Err(Refusal::new(code::SNAPSHOT_IN_USE, message, "delete the clone first"));
        }
        self.core.engine.done(Order::DeleteSnapshot { snapshot: name.clone() }).await
    }

    /// Locks the snapshot against deletion until the given time.
    ///
    /// *Errors*: there is none of this name, or its present lock lasts longer.
    pub async fn lock(&self, name: &SnapshotName, request: LockSnapshot) -> Result<SnapshotReport, Refusal> {
        let _turn = self.core.lock_changes().await;
        self.report(name).await?;
        let lock = request.lock.at(crate::system::now());
        admit_lock(lock)?;
        let order = Order::LockSnapshot { snapshot: name.clone(), lock };
        self.core.engine.snapshots(order).await?;
        self.report(name).await
    }

    /// Creates a clone of the snapshot, which is not presented yet.
    ///
    /// *Errors*: there is no such snapshot, the name is taken or in another pool, or there is not enough space.
    pub async fn create_clone(&self, request: NewClone) -> Result<VolumeReport, Refusal> {
        let _turn = self.core.lock_changes().await;
        self.report(&request.snapshot).await?;
        let name = request.name;
        if self.volumes.opened(&name).await?.is_some() {
            let message = format!("volume {name} already exists");
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
        }
        self.core
            .engine
            .volume(Order::CloneSnapshot {
                snapshot: request.snapshot,
                volume: name,
                id: VolumeId::from_random(random()?),
                provision: if request.thick { Provision::Thick } else { Provision::Thin },
                zero_detection: request.zero_detection,
            })
            .await
    }

    /// Rolls the volume back to its snapshot; later writes are lost.
    ///
    /// *Errors*: there is no such snapshot; it was not confirmed; a session uses the volume, and `force` is not
    /// set.
    pub async fn roll_back(&self, request: RollBack) -> Result<VolumeReport, Refusal> {
        let _turn = self.core.lock_changes().await;
        let RollBack { snapshot, force, confirmed } = request;
        self.report(&snapshot).await?;
        if !confirmed {
            let message = format!("writes to volume {} since {} would be lost", snapshot.volume, snapshot.snapshot);
            return Err(Refusal::new(code::UNCONFIRMED, message, "repeat with --yes to confirm"));
        }
        if !force {
            self.admit_unused(&snapshot).await?;
        }
        self.core.engine.volume(Order::RollBack { snapshot, in_use: force }).await
    }

    /// Admits a roll-back of a volume that no session has mapped.
    async fn admit_unused(&self, snapshot: &SnapshotName) -> Result<(), Refusal> {
        let (before, volume) = (self.core.state(), &snapshot.volume);
        // Removing all of the volume's presentations shows by its losses which sessions have it mapped.
        let mut next = State::clone(&before);
        next.presentations.retain(|record| record.volume != *volume);
        let mut users = self.access.losses(&before, &next).await?;
        users.iter_mut().for_each(|user| "uses it".clone_into(&mut user.effect));
        if users.is_empty() {
            return Ok(());
        }
        let many = if users.len() == 1 { "session" } else { "sessions" };
        let message = format!("volume {volume} would change under {} {many}: {}", users.len(), impact::named(&users));
        let hint = "unmount it there first, or repeat with --force";
        Err(impact::listed(Refusal::new(code::VOLUME_BUSY, message, hint), users))
    }

    /// Lists all snapshots of open pools, the oldest of each volume first.
    pub async fn list(&self) -> Result<Vec<SnapshotReport>, Refusal> {
        self.core.engine.snapshots(Order::Snapshots).await
    }

    /// Lists the selected snapshots, the oldest of each volume first.
    ///
    /// *Errors*: there is no such volume.
    pub async fn list_of(&self, asked: SnapshotsOf) -> Result<Vec<SnapshotReport>, Refusal> {
        let Some(volume) = asked.volume else { return self.list().await };
        // An unknown volume is an error, not an empty list.
        self.volumes.report(&volume).await?;
        let mut snapshots = self.list().await?;
        snapshots.retain(|one| one.name.volume == volume);
        Ok(snapshots)
    }

    /// Returns one snapshot. *Errors*: there is none of this name.
    pub async fn report(&self, name: &SnapshotName) -> Result<SnapshotReport, Refusal> {
        self.volumes.admit_mapped(&name.volume).await?;
        let mut snapshots = self.list().await?.into_iter();
        snapshots.find(|one| one.name == *name && one.state == SnapshotState::Available).ok_or_else(|| unknown(name))
    }
}

/// Admits a lock that ends in the future.
fn admit_lock(lock: SnapshotLock) -> Result<(), Refusal> {
    match lock {
        SnapshotLock::Until(time) if time <= crate::system::now() => {
            let message = format!("the lock time {time} is in the past");
            Err(Refusal::new(code::TIME_INVALID, message, "give a future time"))
        }
        _ => Ok(()),
    }
}

fn unknown(name: &SnapshotName) -> Refusal {
    let hint = format!("see blockyard snapshot list {}", name.volume);
    Refusal::new(code::SNAPSHOT_UNKNOWN, format!("snapshot {name} does not exist"), hint)
}
