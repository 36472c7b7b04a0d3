//! What a change takes away from those who are logged in: one place that works it out for every change of access.
//!
//! [`Access::commit`](crate::access::Access::commit) asks here before it commits, so that no command can pass by: who sees what follows from
//! the state alone, and the difference of two states is what sessions lose. A session that sees nothing has nothing to lose.

use crate::access::Access;
use crate::access::Consent;
use crate::core::Turn;
use crate::state::lun_memory::Replaced;
use crate::state::owners::Owners;
use crate::state::{PresentationRecord, State};
use model::{Name, Order, Refusal, SessionKind, SessionLoss, SessionReport, VolumeId, code, first_few, is_shown_in};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The most sessions that a refusal lists.
const LISTED_MAX: usize = 256;
/// The most sessions that its sentence names.
const NAMED_MAX: usize = 3;
/// The most volumes that are named for one session.
const VOLUMES_MAX: usize = 4;

impl Access {
    /// Admits the change of access from one state to the next; the numbers that become other volumes.
    ///
    /// *Errors*: somebody would find another volume under a number that it knows, or sessions would lose something, and that was not
    /// confirmed.
    pub(crate) async fn admit(
        &self,
        _turn: &Turn<'_>,
        before: &State,
        next: &mut State,
        consent: Consent,
    ) -> Result<Vec<Replaced>, Refusal> {
        let replaced = if consent.luns {
            next.replace_luns(before)
        } else {
            next.admit_luns(before)?;
            Vec::new()
        };
        if !consent.disruption {
            let losses = self.losses(before, next).await?;
            if !losses.is_empty() {
                return Err(disrupts(losses, consent.option));
            }
        }
        Ok(replaced)
    }

    /// What sessions lose when the next state comes after this one.
    pub(crate) async fn losses(&self, before: &State, next: &State) -> Result<Vec<SessionLoss>, Refusal> {
        if only_adds(before, next) {
            return Ok(Vec::new());
        }
        let sessions = self.core.engine.sessions(Order::Sessions).await?;
        Ok(losses(before, next, &sessions))
    }

    /// The refusal to remove what is in use, with the sessions that `removal` would take something from.
    pub(crate) async fn in_use(&self, refusal: Refusal, removal: impl FnOnce(&mut State)) -> Refusal {
        let before = self.core.state();
        let mut next = State::clone(&before);
        removal(&mut next);
        let losses = match self.losses(&before, &next).await {
            Ok(losses) => losses,
            Err(failed) => return failed,
        };
        let message = match losses.len() {
            0 => refusal.message,
            1 => format!("{}, and 1 session would lose access: {}", refusal.message, named(&losses)),
            many => format!("{}, and {many} sessions would lose access: {}", refusal.message, named(&losses)),
        };
        let hint = format!("{}, or do both with --force", refusal.hint);
        listed(Refusal::new(refusal.code, message, hint), losses)
    }
}

/// The refusal of a change that takes something away from these sessions.
pub(crate) fn disrupts(losses: Vec<SessionLoss>, option: &str) -> Refusal {
    let many = if losses.len() == 1 { "session" } else { "sessions" };
    let message = format!("{} {many} would lose access: {}", losses.len(), named(&losses));
    let hint = format!("unmount what is in use there first, or repeat with {option}");
    let confirm = option.trim_start_matches('-').replace('-', "_");
    Refusal { confirm, ..listed(Refusal::new(code::SESSIONS_DISRUPTED, message, hint), losses) }
}

/// The refusal until it is forced, with these sessions as far as they are listed.
pub(crate) fn listed(refusal: Refusal, mut losses: Vec<SessionLoss>) -> Refusal {
    losses.truncate(LISTED_MAX);
    refusal.with_sessions(losses, "force")
}

/// The first of these sessions, and how many there are besides.
pub(crate) fn named(losses: &[SessionLoss]) -> String {
    let named: Vec<String> = losses.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match losses.len().saturating_sub(NAMED_MAX) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// True when nobody can lose anything: everything is as before, and at most something is new.
fn only_adds(before: &State, next: &State) -> bool {
    let same_hosts = before.hosts == next.hosts
        && before.groups.iter().all(|(name, hosts)| next.groups.get(name).is_some_and(|now| hosts.is_subset(now)));
    let same_access = before.portals == next.portals && before.portal_groups == next.portal_groups;
    same_hosts
        && same_access
        && before.targets.iter().all(|(name, target)| next.targets.get(name) == Some(target))
        && (before.presentations == next.presentations || next.presentations.starts_with(&before.presentations))
}

/// What one sees: by number and volume.
type Seen<'a> = BTreeMap<(u16, VolumeId), &'a PresentationRecord>;

/// What sessions that lose the same have in common: the host before and after, the target's name, the portal group's tag before and after.
type Place<'a> = ((Option<&'a Name>, Option<&'a Name>), &'a str, (u16, u16));

/// What each of these sessions loses, in the order of their numbers.
pub(crate) fn losses(before: &State, next: &State, sessions: &[SessionReport]) -> Vec<SessionLoss> {
    let (was, is) = (Owners::of(before), Owners::of(next));
    // Sessions of one host at one target lose the same.
    let mut known: BTreeMap<Place<'_>, Option<String>> = BTreeMap::new();
    let mut losses = Vec::new();
    for session in sessions.iter().filter(|session| session.kind == SessionKind::Normal) {
        let Some(target) = session.target.as_deref() else { continue };
        let (from, to) = (was.host_of(session), is.host_of(session));
        let tags = (before.tag_at(session.portal), next.tag_at(session.portal));
        let place = ((from, to), target, tags);
        let loses = known.entry(place).or_insert_with(|| lost(before, next, place));
        let Some(loses) = loses.clone() else { continue };
        losses.push(SessionLoss {
            session: session.id,
            initiator: session.initiator.clone(),
            host: from.cloned(),
            address: session.address,
            loses,
        });
    }
    losses.sort_by_key(|loss| loss.session);
    losses
}

fn lost(before: &State, next: &State, ((from, to), target, (tag, tag_after)): Place<'_>) -> Option<String> {
    let seen = before.seen_at(from?, target, tag);
    if seen.is_empty() {
        return None;
    }
    let is_served =
        |state: &State, tag: u16| state.portal_groups.get(&tag).copied().unwrap_or_default().access.serves_blocks();
    let is_there = next.targets.values().any(|other| other.iqn.as_str() == target);
    let Some(to) = to.filter(|_| is_there) else {
        return Some(format!("ends, and loses {}", volumes(seen.values().copied())));
    };
    let after = next.seen_at(to, target, tag_after);
    let gone: Vec<_> = seen.iter().filter(|(place, _)| !after.contains_key(place)).map(|(_, record)| *record).collect();
    let shut = |(place, record): (&(u16, VolumeId), &&PresentationRecord)| {
        !record.read_only && after.get(place).is_some_and(|now| now.read_only)
    };
    let shut: Vec<_> =
        seen.iter().filter(|&(place, record)| shut((place, record))).map(|(_, record)| *record).collect();
    let parts = [
        (!gone.is_empty()).then(|| format!("loses {}", volumes(gone.into_iter()))),
        (!shut.is_empty()).then(|| format!("may no longer write to {}", volumes(shut.into_iter()))),
        (is_served(before, tag) && !is_served(next, tag_after)).then(|| {
            format!(
                "can no longer read or write: portal group {tag_after} {}",
                if tag == tag_after { "stops serving" } else { "does not serve" }
            )
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// `volume tank/vm1 (LUN 0)`, and how many there are besides.
fn volumes<'a>(records: impl ExactSizeIterator<Item = &'a PresentationRecord>) -> String {
    let noun = if records.len() > 1 { "volumes" } else { "volume" };
    let names = records.map(|record| format!("{} (LUN {})", record.volume, record.lun));
    format!("{noun} {}", first_few(names, VOLUMES_MAX))
}

impl State {
    /// What the host, or `everyone`, sees in the target through portals of the group.
    fn seen_at<'a>(&'a self, host: &'a Name, target: &str, tag: u16) -> Seen<'a> {
        let is_target = |name: &Name| self.targets.get(name).is_some_and(|record| record.iqn.as_str() == target);
        let seen = self.seen_by(host).filter(|record| is_target(&record.target) && is_shown_in(&record.groups, tag));
        seen.map(|record| ((record.lun, record.volume_id), record)).collect()
    }

    /// The group of the portal that was reached at this address, perhaps a wildcard.
    pub(crate) fn tag_at(&self, reached: SocketAddr) -> u16 {
        let wild = |address: &&SocketAddr| address.ip().is_unspecified() && address.port() == reached.port();
        let address = match self.portals.contains_key(&reached) {
            true => reached,
            false => self.portals.keys().find(wild).copied().unwrap_or(reached),
        };
        self.portal_policy(address).tag
    }
}
