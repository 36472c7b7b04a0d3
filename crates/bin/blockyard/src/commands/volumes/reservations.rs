//! Command `blockyard volume reservations`.

use super::super::CommandContext;
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use model::{Refusal, RegistrationReport, ReservationKind, ReservationReport, VolumeName, VolumeReport, code};

/// Explanation why a host can be locked out by its own reservation.
const BOUND_TO_THE_ISID: &str = "
Reservations and registrations belong to an initiator name, an ISID and a target. A session with another ISID is another
initiator port to SCSI: it holds nothing. open-iscsi may log in with another ISID after a restart or when sessions are added,
and then finds its own disk reserved. Compare with the ISIDs of blockyard session list; register the new session, or clear
stale ones with --clear.";

/// Prints the reservation as a line, and the registrations as a table.
pub(super) fn show(desk: &CommandContext, name: &VolumeName) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/volumes/{name}"), "volume")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let volume: VolumeReport = answer.decode()?;
    let Some(reservation) = volume.reservation else {
        return put(&format!("volume {name}: no reservation, no registrations\n"));
    };
    put(&format!("volume {name}: {}\n", sentence(&reservation)))?;
    let row = |one: &RegistrationReport| {
        let holder = if one.holder { "holder" } else { "-" };
        let (initiator, isid, key, target) = (&one.initiator, &one.isid, &one.key, &one.target);
        vec![key.clone(), holder.to_owned(), initiator.clone(), isid.clone(), target.clone()]
    };
    let header = &["KEY", "HOLDER", "INITIATOR", "ISID", "TARGET"];
    desk.out.rows(&answer, &Rows { header, rows: reservation.registrations.iter().map(row).collect() })?;
    let shown = reservation.registrations.len();
    // The daemon limits the registrations in a report.
    // Never fewer than are shown, so the subtraction is safe.
    if let more @ 1.. = usize::try_from(reservation.registered).unwrap_or(usize::MAX) - shown {
        desk.out.said(&format!("and {more} more"))?;
    }
    desk.out.said(BOUND_TO_THE_ISID)
}

/// Clears all reservations and registrations on the volume.
pub(super) fn clear(desk: &CommandContext, name: &VolumeName, yes: bool) -> Result<(), Failure> {
    if !yes {
        // An unknown volume is refused before the question.
        desk.client.read_version(&format!("/volumes/{name}"), "volume")?;
        let message = format!("hosts that share volume {name} would no longer be fenced from each other");
        let hint = "make sure that the holders are down, then repeat with --yes";
        confirm::repetition(name, Refusal::new(code::UNCONFIRMED, message, hint))?;
    }
    desk.client.delete(&format!("/reservations/{name}"))?;
    desk.out.said(&format!("volume {name}: no reservation, no registrations"))
}

/// Describes the reservation in a few words.
pub(super) fn sentence(reservation: &ReservationReport) -> String {
    let kind = reservation.kind.map_or("not reserved", ReservationKind::as_str);
    let isid = reservation.holder_isid.as_ref().map_or(String::new(), |isid| format!(" (ISID {isid})"));
    let holder = reservation.holder.as_ref().map_or(String::new(), |holder| format!(", held by {holder}{isid}"));
    let persists = if reservation.persists { ", survives power loss" } else { "" };
    format!("{kind}{holder}; {} registered{persists}", reservation.registered)
}
