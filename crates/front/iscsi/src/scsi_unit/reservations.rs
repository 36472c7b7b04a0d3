//! Reservation reports of a unit for the operator.

use super::ScsiUnit;
use model::{RegistrationReport, ReservationKind, ReservationReport, Subject, SubjectKind};
use scsi::{Cdb, InitiatorPort, NexusId, RegistrationStatus, ReservationStatus, ReservationType};
use shard::World;

/// Upper bound of registrations in a report.
const REGISTRATIONS_SHOWN: usize = 256;

impl<W: World> ScsiUnit<W> {
    /// Raises a coalesced event for a RESERVATION CONFLICT.
    ///
    /// The event names the holder that caused the conflict: a conflict ends its command at once, so the reservations
    /// are read here before any other task of this shard runs, and only tasks of this shard change them.
    pub(super) fn tell_of_conflict(&self, nexus: NexusId, cdb: Cdb) {
        // The nexus may have been detached while its command was in progress.
        let port = self.logical_unit.initiator(nexus);
        let who = port.map_or("a closed session".to_owned(), |port| port.name);
        self.conflicts.record(&who, || {
            let (name, operation) = (&self.unit.name, cdb.operation_name());
            let report = self.reservation_report();
            let kind = report.as_ref().and_then(|report| report.kind);
            let registers = kind.is_none_or(ReservationKind::is_shared_by_registrants);
            let held = report.and_then(|report| report.description());
            let held = held.unwrap_or_else(|| "other hosts are registered".to_owned());
            // PERSISTENT RESERVE OUT conflicts on the key, independent of the holder: SPC-4 §5.12.5 and following.
            let (why, there) = match operation.starts_with("PERSISTENT RESERVE OUT") {
                true => ("its reservation key is wrong or not registered".to_owned(), "register"),
                false => (held, if registers { "register a key there" } else { "release it on the holder" }),
            };
            let clear = format!("blockyard volume reservations {name} --clear --yes");
            let how = format!("{operation}, {why}; {there}, or if the holder is gone: {clear}");
            let what = format!("commands of {who} on volume {name} refused (RESERVATION CONFLICT)");
            (Subject::new(SubjectKind::Volume, name), what, how)
        });
    }

    /// Returns the reservation and registrations of the unit. `None` when there are none.
    pub(crate) fn reservation_report(&self) -> Option<Box<ReservationReport>> {
        let ReservationStatus { generation, persists, kind, registrations, reserved_by } =
            self.logical_unit.reservations();
        if registrations.is_empty() && reserved_by.is_none() {
            return None;
        }
        let holder = registrations.iter().find(|registration| registration.is_holder);
        // With an all-registrants type every registrant is a holder, so none is named.
        let holder = holder.filter(|_| !kind.is_some_and(ReservationType::is_held_by_all));
        // Several sessions of one host differ only in their ISID.
        let holder_isid = holder.map(|registration| isid_of(&registration.initiator));
        let holder_isid = holder_isid.or(reserved_by.as_ref().map(|(initiator, _)| isid_of(initiator)));
        let holder =
            holder.map(|registration| &registration.initiator).or(reserved_by.as_ref().map(|(initiator, _)| initiator));
        Some(Box::new(ReservationReport {
            kind: kind.map(kind_of).or(reserved_by.as_ref().map(|_| ReservationKind::Reserve)),
            holder: holder.map(|initiator| initiator.name.clone()),
            holder_isid,
            persists,
            generation,
            registered: u32::try_from(registrations.len()).unwrap_or(u32::MAX),
            registrations: registrations.into_iter().take(REGISTRATIONS_SHOWN).map(registration_report).collect(),
        }))
    }
}

fn registration_report(registration: RegistrationStatus) -> RegistrationReport {
    let RegistrationStatus { initiator, target_name, key, is_holder } = registration;
    RegistrationReport {
        isid: isid_of(&initiator),
        initiator: initiator.name,
        target: target_name,
        key: format!("{key:016x}"),
        holder: is_holder,
    }
}

fn isid_of(initiator: &InitiatorPort) -> String {
    crate::nexus::isid_text(initiator.isid)
}

pub(crate) fn kind_of(kind: ReservationType) -> ReservationKind {
    match kind {
        ReservationType::WriteExclusive => ReservationKind::WriteExclusive,
        ReservationType::ExclusiveAccess => ReservationKind::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly => ReservationKind::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly => ReservationKind::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants => ReservationKind::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants => ReservationKind::ExclusiveAccessAllRegistrants,
    }
}
