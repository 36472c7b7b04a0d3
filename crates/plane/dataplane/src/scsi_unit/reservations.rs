//! What hosts have reserved of a volume: kept with the volume, and shown to the operator.

use super::ScsiUnit;
use crate::iscsi_shard::IscsiShard;
use crate::nexus::NexusName;
use crate::unit::{self, Unit};
use model::{
    Refusal, RegistrationReport, ReservationKind, ReservationReport, ReservationRole, SessionReservation, Subject,
    SubjectKind, VolumeId, VolumeName, VolumeReport, code, event,
};
use scsi::{
    Cdb, InitiatorPort, Keeper, Keeping, NexusId, NotKept, RegistrationStatus, ReservationStatus, ReservationType,
    TargetPort,
};
use shard::World;
use std::rc::{Rc, Weak};

/// How many registrations a report has.
const REGISTRATIONS_SHOWN: usize = 256;

/// Keeps the reservations of one unit with its volume; of one without a pool nothing is kept.
pub struct ReservationKeeper<W: World> {
    shard: Weak<IscsiShard<W>>,
    unit: Rc<Unit<W>>,
}

impl<W: World> ReservationKeeper<W> {
    /// Keeps for the volume of `unit`.
    pub fn new(shard: &Rc<IscsiShard<W>>, unit: &Rc<Unit<W>>) -> Self {
        Self { shard: Rc::downgrade(shard), unit: unit.clone() }
    }
}

impl<W: World> Keeper for ReservationKeeper<W> {
    fn is_able(&self) -> bool {
        self.unit.keeps_host_state()
    }

    fn keep(&self, kept: Vec<u8>) -> Keeping<'_> {
        Box::pin(async move {
            self.unit.keep_host_state(kept).await.map_err(|why| match why {
                unit::NotKept::Full => NotKept::Full,
                unit::NotKept::Gone => NotKept::Gone,
            })
        })
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        let shard = self.shard.upgrade();
        shard.map_or_else(Vec::new, |shard| shard.access.borrow().ports_of(self.unit.id))
    }
}

/// Nobody has reserved the volume or is registered any more, and those that were are told.
///
/// *Durability*: when it returns.
pub async fn clear_reservations<W: World>(
    shard: Rc<IscsiShard<W>>,
    id: VolumeId,
    name: VolumeName,
) -> Result<VolumeReport, Refusal> {
    let unit = shard.unit(id).ok_or_else(|| {
        let message = format!("volume {name} does not serve");
        Refusal::new(code::VOLUME_HELD, message, "look at blockyard event list")
    })?;
    let before = unit.reservation_report();
    unit.logical_unit.clear_reservations().await.map_err(|_| {
        let message = format!("what hosts have reserved of volume {name} stays: its pool takes no change");
        Refusal::new(code::POOL_FAILED, message, "look at blockyard status, and try again")
    })?;
    if let Some(before) = before {
        let sentence = format!("an operator has taken back what hosts had reserved of volume {name}: {}", of(&before));
        shard.engine.raise(event::RESERVATIONS_CLEARED, Subject::new(SubjectKind::Volume, &name), sentence);
    }
    unit::report(&shard.engine, id, &name).ok_or_else(|| {
        Refusal::new(code::VOLUME_UNKNOWN, format!("volume {name} is gone"), "see blockyard volume list")
    })
}

/// The reservation in a few words.
fn of(report: &ReservationReport) -> String {
    let kind = report.kind.map_or("no reservation", ReservationKind::as_str);
    let holder = report.holder.as_ref().map_or(String::new(), |holder| format!(", held by {holder}"));
    format!("{kind}{holder}, {} registered", report.registered)
}

impl<W: World> ScsiUnit<W> {
    /// A command of `nexus` was refused because others have reserved the unit, as they have it now.
    ///
    /// Whom it names is who was in the way: a refusal ends its command at once, so the reservations that refused it are read
    /// here before anybody else on this shard runs, and nobody else changes them.
    pub(super) fn tell_of_conflict(&self, nexus: NexusId, cdb: Cdb) {
        let port = self.logical_unit.initiator(nexus);
        let who = port.map_or("a session that is gone".to_owned(), |port| port.name);
        self.conflicts.happened(&who, || {
            let (name, operation) = (&self.unit.name, cdb.operation_name());
            let report = self.reservation_report();
            let kind = report.as_ref().and_then(|report| report.kind);
            let registers = kind.is_none_or(ReservationKind::is_shared_by_registrants);
            let held = report.and_then(|report| report.told());
            let held = held.unwrap_or_else(|| "others are registered to share it".to_owned());
            // That one is refused whoever has reserved the unit: SPC-4 §5.12.5 and on.
            let (why, there) = match operation.starts_with("PERSISTENT RESERVE OUT") {
                true => {
                    ("it names another key than it is registered with, or is not registered".to_owned(), "register")
                }
                false => (held, if registers { "register a key there" } else { "let the holder release it" }),
            };
            let clear = format!("blockyard volume reservations {name} --clear --yes");
            let how = format!("{operation}, {why}; {there}, or when nobody is left who could: {clear}");
            let what = format!("{who} was refused commands on volume {name} (RESERVATION CONFLICT)");
            (Subject::new(SubjectKind::Volume, name), what, how)
        });
    }

    /// What hosts have reserved, where one has, or is registered to.
    pub(super) fn reservation_report(&self) -> Option<Box<ReservationReport>> {
        let ReservationStatus { generation, persists, kind, registrations, reserved_by } =
            self.logical_unit.reservations();
        if registrations.is_empty() && reserved_by.is_none() {
            return None;
        }
        let holder = registrations.iter().find(|registration| registration.is_holder);
        let holder = holder.filter(|_| !kind.is_some_and(ReservationType::is_held_by_all));
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

/// What each nexus is to the reservations of the volumes that are at home here.
pub fn roles<W: World>(shard: &IscsiShard<W>) -> Vec<(NexusName, SessionReservation)> {
    let of_unit = |unit: &Rc<ScsiUnit<W>>| {
        let ReservationStatus { kind, registrations, reserved_by, .. } = unit.logical_unit.reservations();
        let shared = kind.is_some_and(|kind| kind_of(kind).is_shared_by_registrants());
        let volume = unit.unit.name.clone();
        let registered = registrations.into_iter().map(move |one| {
            let role = match (one.is_holder, shared) {
                (true, _) => ReservationRole::Holder,
                (false, true) => ReservationRole::Shares,
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

fn kind_of(kind: ReservationType) -> ReservationKind {
    match kind {
        ReservationType::WriteExclusive => ReservationKind::WriteExclusive,
        ReservationType::ExclusiveAccess => ReservationKind::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly => ReservationKind::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly => ReservationKind::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants => ReservationKind::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants => ReservationKind::ExclusiveAccessAllRegistrants,
    }
}
