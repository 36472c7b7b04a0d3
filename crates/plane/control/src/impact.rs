//! Impact analysis: the access that logged-in sessions lose by a change.
//!
//! [`Access::commit`](crate::access::Access::commit) calls it before every commit, so no change bypasses it.
//! Mappings follow from the state alone, so the difference of two states is what sessions lose. A session
//! without mappings has nothing to lose.

use crate::access::Access;
use crate::access::Confirmation;
use crate::core::ChangeGuard;
use crate::state::host_index::HostIndex;
use crate::state::lun_history::Replaced;
use crate::state::{PresentationRecord, State};
use model::{Name, Order, Refusal, SessionKind, SessionLoss, SessionReport, VolumeId, code, first_few, is_shown_in};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Limit on the sessions that a refusal lists.
const LISTED_MAX: usize = 256;
/// Limit on the sessions that its message names.
const NAMED_MAX: usize = 3;
/// Limit on the volumes named for one session.
const VOLUMES_MAX: usize = 4;

impl Access {
    /// Admits a change of access from one state to the next, and returns the LUNs that change their volume.
    ///
    /// *Errors*: a host would find another volume under a LUN that it knows, or sessions would lose access,
    /// without confirmation.
    pub(crate) async fn admit(
        &self,
        _turn: &ChangeGuard<'_>,
        before: &State,
        next: &mut State,
        consent: Confirmation,
    ) -> Result<Vec<Replaced>, Refusal> {
        // With consent the LUNs are remembered as the new volumes.
        let replaced = if consent.luns {
            next.replace_luns(before)
        } else {
            next.admit_luns(before)?;
            Vec::new()
        };
        // The sessions are only read where their loss has not been confirmed.
        if !consent.disruption {
            let losses = self.losses(before, next).await?;
            if !losses.is_empty() {
                return Err(disrupts(losses, consent.option));
            }
        }
        Ok(replaced)
    }

    /// Returns the losses of sessions between two states.
    pub(crate) async fn losses(&self, before: &State, next: &State) -> Result<Vec<SessionLoss>, Refusal> {
        // Spares asking the data plane for all sessions, which most changes do not need.
        if only_adds(before, next) {
            return Ok(Vec::new());
        }
        let sessions = self.core.engine.sessions(Order::Sessions).await?;
        Ok(losses(before, next, &sessions))
    }

    /// Extends the refusal to remove an object in use by the sessions that `removal` would affect.
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
        let hint = format!("{}, or override both with --force", refusal.hint);
        listed(Refusal::new(refusal.code, message, hint), losses)
    }
}

/// Refusal of a change by which these sessions lose access.
pub(crate) fn disrupts(losses: Vec<SessionLoss>, option: &str) -> Refusal {
    let many = if losses.len() == 1 { "session" } else { "sessions" };
    let message = format!("{} {many} would lose access: {}", losses.len(), named(&losses));
    let hint = format!("unmount the volumes on those hosts first, or repeat with {option}");
    // The name of the request field that confirms is that of the option without its dashes.
    let confirm = option.trim_start_matches('-').replace('-', "_");
    Refusal { confirm, ..listed(Refusal::new(code::SESSIONS_DISRUPTED, message, hint), losses) }
}

/// Attaches the sessions to a refusal that `force` overrides, up to [`LISTED_MAX`].
pub(crate) fn listed(refusal: Refusal, mut losses: Vec<SessionLoss>) -> Refusal {
    losses.truncate(LISTED_MAX);
    refusal.with_sessions(losses, "force")
}

/// Names the first of these sessions and counts the rest.
pub(crate) fn named(losses: &[SessionLoss]) -> String {
    let named: Vec<String> = losses.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match losses.len().saturating_sub(NAMED_MAX) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// Returns true when the change only adds, so that no session can lose anything.
fn only_adds(before: &State, next: &State) -> bool {
    // Groups may only gain hosts, and presentations may only be appended.
    let same_hosts = before.hosts == next.hosts
        && before.groups.iter().all(|(name, hosts)| next.groups.get(name).is_some_and(|now| hosts.is_subset(now)));
    let same_access = before.portals == next.portals && before.portal_groups == next.portal_groups;
    same_hosts
        && same_access
        && before.targets.iter().all(|(name, target)| next.targets.get(name) == Some(target))
        && (before.presentations == next.presentations || next.presentations.starts_with(&before.presentations))
}

/// Presentations that apply to one host in one target, by LUN and volume.
type Mappings<'a> = BTreeMap<(u16, VolumeId), &'a PresentationRecord>;

/// Key by which sessions lose the same: host before and after, target name, portal group tag before and after.
type SessionKey<'a> = ((Option<&'a Name>, Option<&'a Name>), &'a str, (u16, u16));

/// Returns the losses of the given sessions, ordered by session.
pub(crate) fn losses(before: &State, next: &State, sessions: &[SessionReport]) -> Vec<SessionLoss> {
    let (was, is) = (HostIndex::of(before), HostIndex::of(next));
    // Computed once per key: sessions of one host at one target lose the same.
    let mut known: BTreeMap<SessionKey<'_>, Option<String>> = BTreeMap::new();
    let mut losses = Vec::new();
    for session in sessions.iter().filter(|session| session.kind == SessionKind::Normal) {
        let Some(target) = session.target.as_deref() else { continue };
        let (from, to) = (was.host_of(session), is.host_of(session));
        // A portal may change its group, so the tags of both states count.
        let tags = (before.tag_at(session.portal), next.tag_at(session.portal));
        let place = ((from, to), target, tags);
        let loses = known.entry(place).or_insert_with(|| lost(before, next, place));
        let Some(loses) = loses.clone() else { continue };
        losses.push(SessionLoss {
            session: session.id,
            initiator: session.initiator.clone(),
            host: from.cloned(),
            address: session.address,
            effect: loses,
        });
    }
    losses.sort_by_key(|loss| loss.session);
    losses
}

fn lost(before: &State, next: &State, ((from, to), target, (tag, tag_after)): SessionKey<'_>) -> Option<String> {
    let seen = before.mappings_at(from?, target, tag);
    if seen.is_empty() {
        return None;
    }
    let is_served =
        |state: &State, tag: u16| state.portal_groups.get(&tag).copied().unwrap_or_default().access.serves_blocks();
    let is_there = next.targets.values().any(|other| other.iqn.as_str() == target);
    // The session ends when its initiator belongs to no host or its target is removed.
    let Some(to) = to.filter(|_| is_there) else {
        return Some(format!("ends, and loses {}", volumes(seen.values().copied())));
    };
    let after = next.mappings_at(to, target, tag_after);
    // Keyed by LUN and volume: a volume under another LUN is lost to a host that uses it.
    let gone: Vec<_> = seen.iter().filter(|(place, _)| !after.contains_key(place)).map(|(_, record)| *record).collect();
    // A writable presentation that becomes read-only.
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
                if tag == tag_after { "goes offline" } else { "is offline" }
            )
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// Formats as `volume tank/vm1 (LUN 0)`, with a count of the rest.
fn volumes<'a>(records: impl ExactSizeIterator<Item = &'a PresentationRecord>) -> String {
    let noun = if records.len() > 1 { "volumes" } else { "volume" };
    let names = records.map(|record| format!("{} (LUN {})", record.volume, record.lun));
    format!("{noun} {}", first_few(names, VOLUMES_MAX))
}

impl State {
    /// Returns the presentations of the host, or of `everyone`, in the target through portals of the group.
    fn mappings_at<'a>(&'a self, host: &'a Name, target: &str, tag: u16) -> Mappings<'a> {
        let is_target = |name: &Name| self.targets.get(name).is_some_and(|record| record.iqn.as_str() == target);
        let seen =
            self.mappings_of(host).filter(|record| is_target(&record.target) && is_shown_in(&record.groups, tag));
        seen.map(|record| ((record.lun, record.volume_id), record)).collect()
    }

    /// Returns the group of the portal at the address that a session reached; the portal may listen on a
    /// wildcard.
    pub(crate) fn tag_at(&self, reached: SocketAddr) -> u16 {
        // A session reports the concrete address, while the portal may be configured as a wildcard.
        let wild = |address: &&SocketAddr| address.ip().is_unspecified() && address.port() == reached.port();
        let address = match self.portals.contains_key(&reached) {
            true => reached,
            false => self.portals.keys().find(wild).copied().unwrap_or(reached),
        };
        self.portal_policy(address).tag
    }
}
