//! Reservations of hosts: clearing by an operator, and the role of each session.

use crate::iscsi_shard::IscsiShard;
use crate::nexus::NexusName;
use crate::scsi_unit::{ScsiUnit, kind_of};
use engine::unit;
use model::{
    Refusal, ReservationKind, ReservationReport, ReservationRole, SessionReservation, Subject, SubjectKind, VolumeId,
    VolumeName, VolumeReport, code, event,
};
use scsi::ReservationStatus;
use shard::World;
use std::rc::Rc;

/// Clears all reservations and registrations of the volume. The registered hosts receive a unit attention.
///
/// *Durability*: when it returns.
pub(super) async fn clear_reservations<W: World>(
    shard: Rc<IscsiShard<W>>,
    id: VolumeId,
    name: VolumeName,
) -> Result<VolumeReport, Refusal> {
    let unit = shard.unit(id).ok_or_else(|| {
        let message = format!("volume {name} is offline");
        Refusal::new(code::VOLUME_HELD, message, "see blockyard event list")
    })?;
    // The event names the former holder, so the state is read before it is cleared.
    let before = unit.reservation_report();
    unit.logical_unit.clear_reservations().await.map_err(|_| {
        let message = format!("the reservations of volume {name} are unchanged: its pool accepts no changes");
        Refusal::new(code::POOL_FAILED, message, "see blockyard status, then try again")
    })?;
    if let Some(before) = before {
        let sentence = format!("reservations of volume {name} cleared by an operator: {}", of(&before));
        shard.engine.raise(event::RESERVATIONS_CLEARED, Subject::new(SubjectKind::Volume, &name), sentence);
    }
    unit::report(&shard.engine, id, &name).ok_or_else(|| {
        Refusal::new(code::VOLUME_UNKNOWN, format!("volume {name} does not exist"), "see blockyard volume list")
    })
}

/// Formats the reservation as a short phrase.
fn of(report: &ReservationReport) -> String {
    let kind = report.kind.map_or("no reservation", ReservationKind::as_str);
    let holder = report.holder.as_ref().map_or(String::new(), |holder| format!(", held by {holder}"));
    format!("{kind}{holder}, {} registered", report.registered)
}

/// Returns the role of each nexus in the reservations of the volumes whose home is this shard.
pub(super) fn roles<W: World>(shard: &IscsiShard<W>) -> Vec<(NexusName, SessionReservation)> {
    let of_unit = |unit: &Rc<ScsiUnit<W>>| {
        let ReservationStatus { kind, registrations, reserved_by, .. } = unit.logical_unit.reservations();
        let shared = kind.is_some_and(|kind| kind_of(kind).is_shared_by_registrants());
        let volume = unit.unit.name.clone();
        let registered = registrations.into_iter().map(move |one| {
            let role = match (one.is_holder, shared) {
                (true, _) => ReservationRole::Holder,
                (false, true) => ReservationRole::RegisteredWithAccess,
                (false, false) => ReservationRole::Registered,
            };
            let nexus = NexusName { initiator: one.initiator.name, isid: one.initiator.isid, target: one.target_name };
            (nexus, SessionReservation { volume: volume.clone(), role })
        });
        let volume = unit.unit.name.clone();
        let reserved = reserved_by.map(move |(initiator, target)| {
            let nexus = NexusName { initiator: initiator.name, isid: initiator.isid, target };
            (nexus, SessionReservation { volume, role: ReservationRole::Holder })
        });
        registered.chain(reserved).collect::<Vec<_>>()
    };
    shard.units.borrow().values().flat_map(of_unit).collect()
}
