//! Volumes by name: their homes, and the orders about them.

use super::{Conductor, VolumeHome, engine_gone};
use crate::backends::BackEnd;
use crate::homes::home_of;
use crate::unit;
use model::{
    LatencyReport, NamedUnitAttributes, Refusal, Size, VolumeName, VolumePolicy, VolumeReport, VolumeSpec, code,
};
use shard::World;
use std::collections::BTreeSet;

impl<W: World> Conductor<W> {
    pub(super) async fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeReport, Refusal> {
        self.admit_name(&spec.name)?;
        self.admit(spec)?;
        let spec = spec.clone();
        let (name, id) = (spec.name.clone(), spec.id);
        let backend = BackEnd::of_spec(&spec)?;
        // A volume of a pool has the home of its pool.
        let home = match spec.name.pool() {
            Some(pool) if backend == BackEnd::Pool => self.pool_home(pool)?.home,
            // Volumes without a pool are spread over the shards.
            _ => self.choose_home(),
        };
        let report = self.at(home, move |shard| backend.create(shard, spec)).await?;
        let before = self.volumes.borrow_mut().insert(name, VolumeHome { id, home, serves: true });
        assert!(before.is_none(), "a volume has one home");
        // Published before the answer: a mapping that follows must find the volume.
        self.publish_volumes().await;
        Ok(report)
    }

    pub(super) async fn resize_volume(&self, name: &VolumeName, size: Size) -> Result<VolumeReport, Refusal> {
        let VolumeHome { id, home, .. } = self.volume_home(name)?;
        if size.bytes() > self.shard.limits.volume_bytes_max {
            return Err(self.too_large(size));
        }
        let (backend, name) = (BackEnd::of_name(name), name.clone());
        self.at(home, move |shard| backend.resize(shard, (id, name), size)).await
    }

    pub(super) async fn set_volume_policy(
        &self,
        name: &VolumeName,
        policy: VolumePolicy,
    ) -> Result<VolumeReport, Refusal> {
        let VolumeHome { home, .. } = self.volume_home(name)?;
        let (backend, name) = (BackEnd::of_name(name), name.clone());
        // Refused here, before another shard is asked.
        backend.admit_policy(&name)?;
        self.at(home, move |shard| backend.set_policy(shard, name, policy)).await
    }

    pub(super) async fn delete_volume(&self, name: &VolumeName) -> Result<(), Refusal> {
        let VolumeHome { id, home, .. } = self.volume_home(name)?;
        // Checked on this shard, where all mappings are known.
        if self.front.presents(id) {
            let message = format!("volume {name} is presented to a host");
            return Err(Refusal::new(
                code::VOLUME_IN_USE,
                message,
                "remove the mappings with `blockyard unpresent` first",
            ));
        }
        let (backend, volume) = (BackEnd::of_name(name), name.clone());
        self.at(home, move |shard| backend.remove(shard, (id, volume))).await?;
        // Only after the pool has deleted it: a refused deletion leaves the volume known and served.
        self.volumes.borrow_mut().remove(name);
        self.publish_volumes().await;
        Ok(())
    }

    pub(super) async fn volume_reports(&self) -> Vec<VolumeReport> {
        let mut reports = Vec::new();
        for home in 0..self.shard.limits.shards {
            reports
                .extend(self.shard.call(home, |shard| async move { unit::reports(&shard) }).await.unwrap_or_default());
        }
        let copies = self.copies.reports();
        // The pool lists a partial target as a volume; its copy replaces that entry.
        reports.retain(|report| copies.iter().all(|copy| copy.name != report.name));
        reports.extend(copies);
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    /// Properties, as hosts see them, of the volumes that serve.
    pub(super) async fn unit_shapes(&self) -> Vec<NamedUnitAttributes> {
        let mut shapes = Vec::new();
        for home in 0..self.shard.limits.shards {
            let here = self.shard.call(home, |shard| async move { unit::shapes(&shard) }).await;
            shapes.extend(here.unwrap_or_default());
        }
        shapes
    }

    /// Reports of the volumes of open pools that do not serve.
    pub(super) async fn blocked_volumes(&self) -> Vec<VolumeReport> {
        let mut held = Vec::new();
        for home in 0..self.shard.limits.shards {
            held.extend(
                self.shard.call(home, |shard| async move { unit::blocked_reports(&shard) }).await.unwrap_or_default(),
            );
        }
        held.sort_by(|a, b| a.name.cmp(&b.name));
        held
    }

    pub(super) fn volume_names(&self) -> Vec<VolumeName> {
        // Targets of running copies occupy their names as well.
        let copies = self.copies.reports().into_iter().map(|copy| copy.name);
        let names: BTreeSet<VolumeName> = self.volumes.borrow().keys().cloned().chain(copies).collect();
        names.into_iter().collect()
    }

    /// Report of one volume; `None` if it is unknown.
    pub(super) async fn volume_report(&self, name: &VolumeName) -> Option<VolumeReport> {
        if let Some(copy) = self.copies.reports().into_iter().find(|copy| copy.name == *name) {
            return Some(copy);
        }
        // Not `volume_home`, which refuses targets of copies: those were answered above.
        let VolumeHome { id, home, .. } = self.volumes.borrow().get(name).copied()?;
        let name = name.clone();
        self.shard.call(home, move |shard| async move { unit::report(&shard, id, &name) }).await.flatten()
    }

    /// Latencies of the commands of the volume.
    pub(super) async fn latencies(&self, name: &VolumeName) -> Result<Vec<LatencyReport>, Refusal> {
        let home = self.volume_home(name)?;
        let told = self.shard.call(home.home, move |shard| async move {
            shard.unit(home.id).map(|unit| unit.latencies()).unwrap_or_default()
        });
        told.await.ok_or_else(engine_gone)
    }

    pub(super) fn volume_home(&self, name: &VolumeName) -> Result<VolumeHome, Refusal> {
        self.copies.admit_whole(name)?;
        home_of(&self.volumes, name)
    }

    /// Admits the name of a volume to be created.
    pub(super) fn admit_name(&self, name: &VolumeName) -> Result<(), Refusal> {
        if self.volumes.borrow().contains_key(name) {
            let message = format!("volume {name} already exists");
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
        }
        self.copies.admit_whole(name)
    }

    fn admit(&self, spec: &VolumeSpec) -> Result<(), Refusal> {
        if !matches!(spec.block_bytes, 512 | 4096) {
            let message = format!("a logical block size of {} bytes is not supported", spec.block_bytes);
            return Err(Refusal::new(code::BLOCK_SIZE_INVALID, message, "choose 512 or 4096"));
        }
        if spec.size == Size::ZERO || !spec.size.bytes().is_multiple_of(4096) {
            let message = format!("a volume size of {} is not valid", spec.size.exact());
            return Err(Refusal::new(code::VOLUME_SIZE, message, "choose a positive multiple of 4 KiB"));
        }
        if spec.size.bytes() > self.shard.limits.volume_bytes_max {
            return Err(self.too_large(spec.size));
        }
        self.admit_one_more()
    }

    /// Admits one more volume under the limit.
    pub(super) fn admit_one_more(&self) -> Result<(), Refusal> {
        // A copy needs a unit when it is complete, so its target counts from the start.
        if self.volumes.borrow().len() + self.copies.reports().len() >= self.shard.limits.units_max {
            let message = format!("the limit of {} volumes is reached", self.shard.limits.units_max);
            return Err(Refusal::new(code::LIMIT_REACHED, message, "delete unused volumes"));
        }
        Ok(())
    }

    fn too_large(&self, size: Size) -> Refusal {
        let most = Size::new(self.shard.limits.volume_bytes_max);
        let message = format!("a volume of {} is too large", size.iec());
        Refusal::new(code::VOLUME_TOO_LARGE, message, format!("choose at most {}", most.iec()))
    }
}
