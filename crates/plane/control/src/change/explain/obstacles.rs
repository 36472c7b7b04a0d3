//! Obstacles for a host with a mapping: portal group states, reservations, and recent denied logins.

use super::{AccessPath, Point};
use crate::state::{HostRecord, State};
use model::{
    DeniedAccess, GroupAccess, Name, PortalGroupPolicy, RefusedLogin, RefusedWhy, ReservationReport, SessionReport,
    VolumeName,
};
use std::collections::BTreeSet;

/// Limit on reported denied logins.
const DENIED_MAX: usize = 3;

/// Reports portal groups that map the volume but do not serve reads and writes. They block access only when
/// there is no other group.
pub(super) fn of_groups(state: &State, ways: &[AccessPath<'_>]) -> Vec<Point> {
    let tags: BTreeSet<u16> = ways.iter().flat_map(AccessPath::open).map(|portal| portal.policy.tag).collect();
    let of = |tag: &u16| state.portal_groups.get(tag).copied().unwrap_or_default();
    let is_served = tags.iter().any(|tag| of(tag).access.serves_blocks());
    let stops = |tag: u16| {
        let PortalGroupPolicy { access, .. } = of(&tag);
        let what = match access {
            GroupAccess::Optimized | GroupAccess::NonOptimized => return None,
            GroupAccess::Standby => "volumes are visible through it, but reads and writes are refused (02/04/0B)",
            GroupAccess::Unavailable => "volumes are not accessible through it (02/04/0C)",
            GroupAccess::Offline => "its ports are out of service (02/04/12)",
        };
        let sentence = format!("portal group {tag} is {access}: {what}");
        let remedy = format!("blockyard portal group {tag} access=optimized");
        Some(Point { passed: is_served, ..Point::bad(sentence, remedy) })
    };
    tags.into_iter().filter_map(stops).collect()
}

/// Returns the iSCSI names of the host's initiators, as far as they are known.
pub(super) fn names_of(host: &Name, record: &HostRecord, sessions: &[SessionReport]) -> Vec<String> {
    // A host for any initiator lists no names; its sessions tell them.
    let here = sessions.iter().filter(|session| session.host.as_ref() == Some(host));
    let told = here.map(|session| session.initiator.clone());
    record.initiators.iter().map(ToString::to_string).chain(told).collect()
}

/// Reports a reservation of other hosts that excludes this host.
pub(super) fn of_reservation(
    volume: &VolumeName,
    report: Option<&ReservationReport>,
    host: &Name,
    names: &[String],
) -> Option<Point> {
    let report = report?;
    let held = report.description()?;
    let Some(kept) = report.denied_access(names) else {
        return Some(Point::good(format!("it is reserved, and host {host} has access: {held}")));
    };
    let is = match kept {
        DeniedAccess::Writes => "writes are",
        DeniedAccess::ReadsAndWrites => "reads and writes are",
    };
    let sentence =
        format!("it is reserved by others, {held}; for host {host} {is} refused (RESERVATION CONFLICT, 18h)");
    Some(Point::bad(sentence, reservation_remedy(report, volume)))
}

/// Returns the action that ends the exclusion by a reservation.
fn reservation_remedy(report: &ReservationReport, volume: &VolumeName) -> String {
    let registers = report.kind.is_some_and(model::ReservationKind::is_shared_by_registrants);
    let there = if registers { "register a key there (PERSISTENT RESERVE OUT)" } else { "release it on the holder" };
    format!("{there}; if the holder is gone: blockyard volume reservations {volume} --clear --yes")
}

/// Reports recent denied logins of the host, the latest first; not those from before the initiator belonged to
/// a host.
pub(super) fn of_refused(refused: &[RefusedLogin], names: &[String]) -> Vec<Point> {
    // Initiator names are case-insensitive: the stringprep profile of iSCSI folds case (RFC 3722).
    let is_own = |login: &&RefusedLogin| {
        login.initiator.as_ref().is_some_and(|who| names.iter().any(|name| name.eq_ignore_ascii_case(who)))
    };
    let point = |login: &RefusedLogin| {
        let RefusedLogin { address, last, .. } = login;
        let who = login.initiator.as_deref().unwrap_or("-");
        let sentence = format!("{who}: login from {address} denied, last {last}: {}", login.reason());
        Point::note(sentence, login.remedy())
    };
    let is_known = |login: &&RefusedLogin| login.reason != RefusedWhy::UnknownInitiator;
    refused.iter().filter(is_own).filter(is_known).take(DENIED_MAX).map(point).collect()
}
