//! Space of a pool: thresholds and their notifications, and the space that each volume takes.

use super::map_work::MapWork;
use super::{OpenPool, find};
use crate::shard_context::ShardContext;
use crate::unit::Unit;
use model::{
    Name, PoolReport, Progress, Refusal, Size, SnapshotName, SpacePolicy, SpaceReport, SpaceState, Subject,
    SubjectKind, VolumeId, VolumeName, VolumeReport, event,
};
use shard::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use volume::{FamilyStatus, PoolSpace, SpaceEvent, ThinStatus, Thresholds, Uuid};

/// Space monitoring of one pool.
#[derive(Default)]
pub(super) struct Space {
    /// Deferred work on the maps of its families.
    pub chores: Rc<MapWork>,
    policy: Cell<SpacePolicy>,
    /// True after a write was refused for lack of space, until space is available again.
    refused: Cell<bool>,
    /// Deleted snapshots by volume, until their space is free.
    pub deleted: RefCell<BTreeMap<Uuid, Vec<model::SnapshotReport>>>,
}

/// Sets the space thresholds of the pool.
pub(crate) async fn set_space<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    policy: SpacePolicy,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.maintenance.space.policy.set(policy);
    pool.watch_space();
    Ok(pool.report())
}

impl<W: World> OpenPool<W> {
    /// Notifies operators and hosts of crossed thresholds, now and from now on. Called again after a change of the
    /// thresholds.
    pub(super) fn watch_space(self: &Rc<Self>) {
        let policy = self.maintenance.space.policy.get();
        // The policy is in percent, `volume` counts per mille.
        let thresholds = Thresholds { soft: u16::from(policy.soft) * 10, hard: u16::from(policy.hard) * 10 };
        let weak: Weak<Self> = Rc::downgrade(self);
        self.pool.on_space(thresholds, move |event| {
            if let Some(pool) = weak.upgrade() {
                pool.tell_of_space(event);
            }
        });
    }

    fn tell_of_space(&self, told: SpaceEvent) {
        let name = &self.name;
        let percent = |used: u64, all: u64| used.saturating_mul(100).checked_div(all).unwrap_or(100);
        let of = |used: u64, all: u64| format!("{} % of {} used", percent(used, all), Size::new(all).iec());
        match told {
            SpaceEvent::Soft { used_bytes, bytes } => {
                let sentence = format!("pool {name} exceeds its soft limit: {}", of(used_bytes, bytes));
                self.shard.raise(event::POOL_FILLING, Subject::pool(name), sentence);
                // SBC-4: a thin unit reports THIN PROVISIONING SOFT THRESHOLD REACHED.
                self.thin_units().iter().for_each(|unit| unit.soft_threshold_reached());
            }
            SpaceEvent::Hard { used_bytes, bytes } => {
                let meaning = "writes that need space will be refused soon";
                let sentence = format!("pool {name} is nearly full: {}; {meaning}", of(used_bytes, bytes));
                self.shard.raise(event::POOL_FULL, Subject::pool(name), sentence);
                // A step that crosses both thresholds raises this event alone, so hosts are notified here as well.
                self.thin_units().iter().for_each(|unit| unit.soft_threshold_reached());
            }
            SpaceEvent::Relieved { used_bytes, bytes } => {
                // The next refusal is reported again.
                self.maintenance.space.refused.set(false);
                let sentence = format!("pool {name} has free space again: {}", of(used_bytes, bytes));
                self.shard.raise(event::POOL_RELIEVED, Subject::pool(name), sentence);
            }
            SpaceEvent::Exhausted { volume } => {
                // Reported once until space is available again, not for each refused write.
                if !self.maintenance.space.refused.replace(true) {
                    let id = VolumeId::from_bytes(volume.into_bytes());
                    let what = self.shard.unit(id).map_or_else(|| id.to_string(), |unit| unit.name.to_string());
                    let sentence = format!("a write to volume {what} was refused: pool {name} has no space left");
                    self.shard.raise(event::WRITE_REFUSED, Subject::new(SubjectKind::Volume, &what), sentence);
                }
            }
        }
    }

    /// Checks the thresholds that hosts have set themselves, after space was taken or freed.
    pub(super) fn look_at_hosts_thresholds(&self) {
        self.thin_units().iter().for_each(|unit| unit.check_thresholds());
    }

    /// Space state of the pool, as far as thin volumes depend on it.
    pub(super) fn space_state(&self, space: PoolSpace) -> SpaceState {
        let SpacePolicy { soft, hard } = self.maintenance.space.policy.get();
        assert!(space.free_bytes <= space.bytes, "what is free is a part of the pool");
        let used = u128::from(space.bytes - space.free_bytes) * 100;
        let is_above = |percent: u8| percent > 0 && used >= u128::from(space.bytes) * u128::from(percent);
        // Without thin volumes all space is reserved, and a full pool is no problem.
        if !space.allocates_on_write {
            return SpaceState::Enough;
        }
        match (is_above(soft), is_above(hard)) {
            // Full only while a write was refused and space is still short.
            (_, at_end) if self.maintenance.space.refused.get() && (at_end || hard == 0) => SpaceState::Full,
            (_, true) => SpaceState::NearlyFull,
            (true, false) => SpaceState::Low,
            (false, false) => SpaceState::Enough,
        }
    }

    fn thin_units(&self) -> Vec<Rc<Unit<W>>> {
        let units = self.shard.units();
        units.values().filter(|unit| unit.name.pool() == Some(&self.name) && unit.is_thin()).cloned().collect()
    }

    /// Enters the space of each volume into the reports of the pool's volumes.
    pub fn describe_space(&self, reports: &mut [VolumeReport]) {
        let status = self.pool.status();
        // Clean-ups that still free space, by volume.
        let cleanings: BTreeMap<Uuid, Progress> =
            self.pool.gc_progress().into_iter().map(|one| (one.volume, progress(one))).collect();
        let known: BTreeMap<VolumeId, (&FamilyStatus, &ThinStatus)> = status
            .families
            .iter()
            .flat_map(|family| family.volumes.iter().map(move |volume| (family, volume)))
            .map(|(family, volume)| (VolumeId::from_bytes(volume.id.into_bytes()), (family, volume)))
            .collect();
        for report in reports {
            report.space = known.get(&report.id).map(|(family, volume)| SpaceReport {
                mapped: Size::new(volume.mapped_bytes.unwrap_or(0)),
                shared: Size::new(volume.shared_bytes.unwrap_or(0)),
                reserved: Size::new(volume.reserved_bytes),
                reclaimed: Size::new(volume.reclaimed_bytes),
                held_by_snapshots: held_by_snapshots(family, volume),
                snapshots: u32::try_from(named_snapshots(volume)).unwrap_or(u32::MAX),
                clone_of: volume.clone_of.and_then(|origin| self.snapshot_name(family, origin)),
                cleaning: cleanings.get(&volume.id).copied(),
            });
        }
    }

    fn snapshot_name(&self, family: &FamilyStatus, id: Uuid) -> Option<SnapshotName> {
        let (volume, snapshot) = family.volumes.iter().find_map(|volume| {
            let found = volume.snapshots.iter().find(|snapshot| snapshot.id == id)?;
            Some((volume, found))
        })?;
        let own = VolumeName::in_pool(self.name.clone(), volume.name.parse().ok()?);
        Some(SnapshotName::of(own, snapshot.name.parse().ok()?))
    }
}

/// Number of snapshots named by operators, without those that were taken for copies.
fn named_snapshots(volume: &ThinStatus) -> usize {
    volume.snapshots.iter().filter(|snapshot| !super::volume_copy::is_for_copy(&snapshot.name)).count()
}

fn progress(cleaning: volume::GcProgress) -> Progress {
    // In granules instead of bytes; only the ratio is used.
    Progress { done_bytes: cleaning.done, total_bytes: cleaning.total, bytes_per_second: 0, seconds_left: None }
}

/// Space that only snapshots use; `None` for a family of several volumes, where it belongs to no single one.
fn held_by_snapshots(family: &FamilyStatus, volume: &ThinStatus) -> Option<Size> {
    let alone = family.volumes.len() == 1;
    let (allocated, mapped) = (family.allocated_bytes?, volume.mapped_bytes?);
    alone.then(|| Size::new(allocated.saturating_sub(mapped)))
}
