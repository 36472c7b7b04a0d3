//! SCSI units of the engine's volumes: construction, and the services that each one needs from its shard.

mod copies;
mod reservation_store;
mod sanitize;
pub(crate) mod stand_ins;

use crate::coalesced_events::CoalescedEvents;
use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::{ScsiUnit, identity};
use copies::ShardCopyEnvironment;
use engine::FrontShard;
use engine::front::FrontUnit;
use engine::unit::Unit;
use model::{Backend, VolumeId, event};
use reservation_store::ReservationStore;
use sanitize::UnitSanitizer;
use scsi::{LogicalUnit, PersistentState};
use shard::World;
use std::rc::{Rc, Weak};

/// Factory of the SCSI units of one shard, called by the engine.
pub(crate) struct UnitFactory<W: World>(Weak<IscsiShard<W>>);

impl<W: World> UnitFactory<W> {
    /// Creates the factory of `shard`.
    pub(crate) fn new(shard: &Rc<IscsiShard<W>>) -> Self {
        Self(Rc::downgrade(shard))
    }
}

impl<W: World> FrontShard<W> for UnitFactory<W> {
    fn understands(&self, host_state: &[u8]) -> bool {
        PersistentState::parse(host_state).is_ok()
    }

    fn serve(&self, unit: &Rc<Unit<W>>) -> Rc<dyn FrontUnit> {
        let shard = self.0.upgrade().expect("the front end lives as long as its shard");
        // A unit can return after it was withdrawn, for example when its deletion fails. If sessions still hold its
        // SCSI unit, that one is reused, because its task set and reservations must not exist twice.
        let before = shard.withdrawn.borrow_mut().remove(&unit.id).and_then(|before| before.upgrade());
        let before = before.filter(|before| Rc::ptr_eq(&before.unit, unit));
        let served = before.unwrap_or_else(|| Rc::new(create_unit(&shard, unit.clone())));
        shard.serve(served.clone());
        // A SANITIZE that a restart has interrupted resumes here.
        sanitize::go_on(&shard, &served);
        served
    }

    fn withdraw(&self, unit: VolumeId) -> Option<Rc<dyn FrontUnit>> {
        let shard = self.0.upgrade()?;
        let unit = shard.units.borrow_mut().remove(&unit)?;
        let id = unit.unit.id;
        // Only a presented volume keeps its reservations in memory: hosts expect them after the pool is reopened.
        if shard.access.borrow().access.absent.contains_key(&id) {
            shard.handed_over.borrow_mut().insert(id, unit.logical_unit.state_for_handover());
        }
        // Weak references: entries without a holder are dropped here, so that the map stays small.
        let mut withdrawn = shard.withdrawn.borrow_mut();
        withdrawn.retain(|_, unit| unit.strong_count() > 0);
        withdrawn.insert(unit.unit.id, Rc::downgrade(&unit));
        Some(unit)
    }
}

/// Creates the SCSI unit of `unit`, without any attached nexus.
fn create_unit<W: World>(shard: &Rc<IscsiShard<W>>, unit: Rc<Unit<W>>) -> ScsiUnit<W> {
    let found = unit.host_state();
    // Another node may have imported the pool in the meantime and changed the stored state, so the copy in memory is
    // used only if both are equal.
    let handed_over = shard.handed_over.borrow_mut().remove(&unit.id).filter(|kept| kept.is_stored_as(&found));
    let parse = || PersistentState::parse(&found).expect("the engine has asked whether it is understood");
    let kept = handed_over.unwrap_or_else(parse);
    let unit = logical(shard, unit);
    // Before any nexus is attached, as `restore` requires.
    unit.logical_unit.restore(kept);
    unit
}

/// Creates the SCSI unit of `unit` without its persistent state.
fn logical<W: World>(shard: &Rc<IscsiShard<W>>, unit: Rc<Unit<W>>) -> ScsiUnit<W> {
    // Memory-backed volumes report thin provisioning; pool volumes report their space themselves.
    let options = scsi::Options {
        provisioning: match unit.backend {
            Backend::Ram | Backend::Null => scsi::Provisioning::Thin,
            Backend::Pool { .. } | Backend::File { .. } => scsi::Provisioning::Full,
        },
        transfer_bytes_max: shard.limits.transfer_bytes_max,
        read_only: unit.is_read_only(),
        ..scsi::Options::default()
    };
    let logical_unit = LogicalUnit::new(unit.store().clone(), identity(unit.id), options)
        .with_state_store(Rc::new(ReservationStore::new(shard, &unit)))
        .with_copy_environment(Rc::new(ShardCopyEnvironment::new(shard)));
    let logical_unit = match unit.backend {
        // A SANITIZE must resume after a restart. A file has no metadata in which its state could be stored. The
        // content of memory is lost at a restart anyway.
        Backend::File { .. } => logical_unit,
        Backend::Ram | Backend::Null | Backend::Pool { .. } => {
            logical_unit.with_sanitizer(Rc::new(UnitSanitizer::new(shard, &unit)))
        }
    };
    let conflicts = CoalescedEvents::new(shard.world.clone(), shard.engine.events.clone(), event::RESERVED);
    ScsiUnit::new(shard.world.clone(), unit, logical_unit, conflicts)
}
