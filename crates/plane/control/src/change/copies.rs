//! Full copies of volumes: start and cancel.

use crate::change::pools::Pools;
use crate::change::snapshots::Snapshots;
use crate::change::volumes;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::request::NewCopy;
use crate::system::random;
use model::{CopySource, Order, Refusal, VolumeId, VolumeName, VolumeReport, VolumeState, code};
use std::sync::Arc;

/// Background copies of volumes.
pub struct Copies {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) snapshots: Arc<Snapshots>,
}

impl Copies {
    /// Starts a copy of the volume's current content, or of a snapshot, to a new volume, which stays `Copying`
    /// until it is complete.
    ///
    /// *Errors*: there is no such source or pool, one of them has no pool or no map, the name is taken, or
    /// there is not enough space. Nothing is changed then.
    pub async fn start(&self, request: NewCopy) -> Result<VolumeReport, Refusal> {
        let _turn = self.core.lock_changes().await;
        let NewCopy { source, name } = request;
        self.volumes.admit_mapped(source.volume()).await?;
        if let CopySource::Snapshot(snapshot) = &source {
            // Only its existence matters: the report of an unknown snapshot is an error.
            self.snapshots.report(snapshot).await?;
        }
        let pool = name.pool().ok_or_else(|| {
            let message = format!("volume {name} has no pool");
            Refusal::new(code::VOLUME_WITHOUT_POOL, message, "write POOL/VOLUME")
        })?;
        self.pools.admit_open(pool).await?;
        if self.volumes.opened(&name).await?.is_some() {
            let message = format!("volume {name} already exists");
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name with --name"));
        }
        let id = VolumeId::from_random(random()?);
        self.core.engine.volume(Order::CopyVolume { source, target: name, id }).await
    }

    /// Cancels the copy to this volume and deletes what was copied.
    ///
    /// *Errors*: no copy to it is running.
    pub async fn cancel(&self, name: &VolumeName) -> Result<(), Refusal> {
        // Without the change lock: its waiters need not wait for the last step of the copy.
        self.core.engine.done(Order::CancelCopy { target: name.clone() }).await
    }
}

/// Admits a volume that is not the target of a running copy.
pub(crate) fn admit_whole(volume: &VolumeReport) -> Result<(), Refusal> {
    match (&volume.state, &volume.copy) {
        (VolumeState::Copying, Some(copy)) => {
            let message = format!("volume {} is incomplete: {} is being copied to it", volume.name, copy.source);
            let hint = format!("wait until it has finished, or run blockyard volume cancel-copy {}", volume.name);
            Err(Refusal::new(code::VOLUME_COPYING, message, hint))
        }
        _ => Ok(()),
    }
}

impl Volumes {
    /// Admits a volume in a pool that is not the target of a running copy.
    pub(crate) async fn admit_mapped(&self, name: &VolumeName) -> Result<(), Refusal> {
        let volume = self.opened(name).await?.ok_or_else(|| volumes::unknown(name))?;
        if name.pool().is_none() {
            let message = format!("volume {} is not in a pool, so it cannot have snapshots", volume.name);
            return Err(Refusal::new(code::VOLUME_NO_MAP, message, "create a volume in a pool and copy the data"));
        }
        admit_whole(&volume)
    }
}
