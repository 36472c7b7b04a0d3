//! Third-party copy: units between which a session may copy, and access to them on their home shards.

use crate::iscsi_shard::IscsiShard;
use crate::nexus::SessionId;
use crate::scsi_unit::{ScsiUnit, identity};
use block::{BlockDevice, Extent, Geometry, Lba, Rope, Run, View};
use model::VolumeId;
use scsi::{CopyEnvironment, CopyFuture, CopyPrincipal, CopyUnit, MappedUnit, Sense};
use shard::World;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Access of copy commands to the other units that a session can see.
pub(super) struct ShardCopyEnvironment<W: World>(Weak<IscsiShard<W>>);

impl<W: World> ShardCopyEnvironment<W> {
    /// Creates the view for the units whose home is `shard`.
    pub(super) fn new(shard: &Rc<IscsiShard<W>>) -> Self {
        Self(Rc::downgrade(shard))
    }

    /// Returns the units that the issuing session can see; `None` when the session, its host or its target no longer
    /// exists.
    fn find_mapped_units(&self, asker: &CopyPrincipal) -> Option<Vec<MappedUnit>> {
        let shard = self.0.upgrade()?;
        let view = shard.access.borrow().clone();
        let name = shard.registry.host_of(SessionId(asker.nexus.0))?;
        let host = view.host(&name)?;
        let target = view.target_of(&asker.port.target_name)?;
        // A volume mapped under several LUNs is one unit; it is writable if at least one mapping is writable.
        let mut units: BTreeMap<VolumeId, (usize, bool)> = BTreeMap::new();
        // A copy is subject to the same mapping as a direct command: unmapped volumes are neither readable nor
        // writable.
        for entry in view.luns(target, host, asker.port.portal_group_tag).into_values() {
            units.entry(entry.unit).or_insert((entry.home, true)).1 &= entry.read_only;
        }
        let neighbour = |(id, (home, read_only))| {
            let unit: Rc<dyn CopyUnit> = Rc::new(RemoteUnit { shard: shard.clone(), id, home });
            MappedUnit { identity: identity(id), read_only, unit }
        };
        Some(units.into_iter().map(neighbour).collect())
    }
}

impl<W: World> CopyEnvironment for ShardCopyEnvironment<W> {
    fn mapped_units(&self, asker: &CopyPrincipal) -> Vec<MappedUnit> {
        self.find_mapped_units(asker).unwrap_or_default()
    }

    fn now(&self) -> Duration {
        self.0.upgrade().map_or(Duration::ZERO, |shard| Duration::from_nanos(shard.world.now().0))
    }

    fn random(&self, out: &mut [u8]) {
        if let Some(shard) = self.0.upgrade() {
            shard.world.random(out);
        }
    }
}

/// Unit as seen from another shard; all operations run on its home shard.
struct RemoteUnit<W: World> {
    shard: Rc<IscsiShard<W>>,
    id: VolumeId,
    home: usize,
}

impl<W: World> RemoteUnit<W> {
    /// Runs `work` with the unit on its home shard. `None` when the unit is not there.
    async fn run_on_home<R, F>(&self, work: impl FnOnce(Rc<ScsiUnit<W>>) -> F + Send + 'static) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let id = self.id;
        // The unit is looked up on its home shard, because it may have been closed while the message was in flight.
        let asked = self.shard.call(self.home, move |shard| async move {
            match shard.unit(id) {
                Some(unit) => Some(work(unit).await),
                None => None,
            }
        });
        asked.await.flatten()
    }
}

impl<W: World> CopyUnit for RemoteUnit<W> {
    fn geometry(&self) -> CopyFuture<'_, Option<Geometry>> {
        Box::pin(self.run_on_home(|unit| async move { unit.unit.store().geometry() }))
    }

    fn read(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<Rope, Sense>> {
        let asked = self.run_on_home(move |unit| async move { unit.logical_unit.copy_read(&asker, extent).await });
        Box::pin(async move { asked.await.unwrap_or(Err(MappedUnit::NOT_REACHABLE)) })
    }

    fn run(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<Run, Sense>> {
        let asked = self.run_on_home(move |unit| async move { unit.logical_unit.copy_run(&asker, extent).await });
        Box::pin(async move { asked.await.unwrap_or(Err(MappedUnit::NOT_REACHABLE)) })
    }

    fn discard(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<(), Sense>> {
        let asked = self.run_on_home(move |unit| async move { unit.logical_unit.copy_discard(&asker, extent).await });
        Box::pin(async move { asked.await.unwrap_or(Err(MappedUnit::NOT_REACHABLE)) })
    }

    fn token(
        &self,
        _: CopyPrincipal,
        token: Box<[u8; 512]>,
        deletes: bool,
    ) -> CopyFuture<'_, Result<Vec<Extent>, Sense>> {
        let asked = self.run_on_home(move |unit| async move { unit.logical_unit.copy_token(&token, deletes) });
        Box::pin(async move { asked.await.unwrap_or(Err(MappedUnit::NOT_REACHABLE)) })
    }

    fn write(&self, asker: CopyPrincipal, start: Lba, data: View) -> CopyFuture<'_, Result<(), Sense>> {
        let asked =
            self.run_on_home(move |unit| async move { unit.logical_unit.copy_write(&asker, start, data).await });
        Box::pin(async move { asked.await.unwrap_or(Err(MappedUnit::NOT_REACHABLE)) })
    }
}
