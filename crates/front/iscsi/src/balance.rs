//! Load balancing of sessions over the data portals: portal selection at login, and rebalancing when portals are added,
//! removed or lose their link.

use crate::nexus::NexusName;
use model::Balance;
use shard::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Time for which a redirected login counts as a session of its new portal, until it arrives there.
const REDIRECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound of pending redirections; beyond it, the oldest one is dropped.
const REDIRECTIONS_MAX: usize = 4096;
/// Shortest interval between two samples of the byte counters.
const WINDOW: Duration = Duration::from_secs(5);

/// Portal that is eligible for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Address of the portal.
    pub address: SocketAddr,
    /// Weight: share of the sessions relative to other portals.
    pub weight: u16,
    /// True when the initiator's address is in the network of the portal.
    pub is_near: bool,
}

/// Session, as counted for the load of its portal.
#[derive(Clone, Debug)]
pub(crate) struct Counted<'a> {
    /// Nexus of the session.
    pub nexus: &'a NexusName,
    /// Portal through which the session was established.
    pub portal: SocketAddr,
    /// Bytes transferred in both directions.
    pub bytes: u64,
}

/// Redirected login that has not arrived yet.
#[derive(Clone, Debug)]
struct PendingRedirection {
    nexus: NexusName,
    portal: SocketAddr,
    until: Time,
}

/// State that persists between portal selections.
#[derive(Default)]
pub(crate) struct Balancer {
    /// Pending redirections, oldest first.
    redirections: Vec<PendingRedirection>,
    /// Per portal: time of the latest sample, the byte total at that time, and the bytes transferred in the interval
    /// before it.
    bytes: BTreeMap<SocketAddr, (Time, u64, u64)>,
}

impl Balancer {
    /// Selects the portal for a session of `nexus` and counts the session there from now on. Call only for an
    /// authenticated initiator: an unknown one must not influence the load.
    pub(crate) fn choose(
        &mut self,
        nexus: &NexusName,
        candidates: &[Candidate],
        by: Balance,
        sessions: &[Counted<'_>],
        now: Time,
    ) -> Option<SocketAddr> {
        // A repeated login of the nexus replaces its earlier redirection; it must not count twice.
        self.redirections.retain(|promise| promise.until > now && promise.nexus != *nexus);
        let best = candidates.iter().min_by_key(|candidate| {
            let address = candidate.address;
            let there = |portal: SocketAddr| portal == address;
            // Sessions of one initiator to one target are paths of its multipath device. These are spread first.
            let is_kin = |other: &NexusName| other.initiator == nexus.initiator && other.target == nexus.target;
            let at = |kin: bool| {
                let of = |other: &NexusName| !kin || is_kin(other) && other != nexus;
                let here = sessions.iter().filter(|one| there(one.portal) && of(one.nexus)).count();
                here + self.redirections.iter().filter(|one| there(one.portal) && of(&one.nexus)).count()
            };
            // Fixed point with 20 fractional bits, so that small counts differ by weight.
            let weigh = |load: u64| load.saturating_mul(1 << 20) / u64::from(candidate.weight.max(1));
            let count = weigh(at(false) as u64);
            let load = match by {
                Balance::Sessions => count,
                Balance::Bytes => weigh(self.bytes.get(&address).map_or(0, |&(_, _, recent)| recent)),
            };
            // Order of the criteria: own paths, network proximity, load, number of sessions, weight; the address makes
            // the choice deterministic.
            (at(true), !candidate.is_near, load, count, Reverse(candidate.weight), address)
        });
        let address = best?.address;
        // A host without CHAP is not authenticated and may be an unknown machine, so the number of pending redirections
        // is bounded.
        if self.redirections.len() >= REDIRECTIONS_MAX {
            self.redirections.remove(0);
        }
        self.redirections.push(PendingRedirection {
            nexus: nexus.clone(),
            portal: address,
            until: now + REDIRECTION_TIMEOUT,
        });
        Some(address)
    }

    /// Handles the login of a nexus. Returns true when it had been redirected to this portal.
    pub(crate) fn arrived(&mut self, nexus: &NexusName, portal: SocketAddr) -> bool {
        // The redirection is consumed: from now on the session itself is counted.
        let at = self.redirections.iter().position(|promise| promise.nexus == *nexus);
        // The order is kept, because the oldest one is the first to be dropped at the bound.
        at.is_some_and(|at| self.redirections.remove(at).portal == portal)
    }

    /// Samples the bytes transferred through each portal, if the latest sample is old enough.
    pub(crate) fn look(&mut self, candidates: &[Candidate], sessions: &[Counted<'_>], now: Time) {
        for candidate in candidates {
            let of = |one: &&Counted<'_>| one.portal == candidate.address;
            let total: u64 = sessions.iter().filter(of).map(|one| one.bytes).sum();
            // The first sample has no predecessor, so no bytes count yet.
            let (since, before, recent) = self.bytes.entry(candidate.address).or_insert((now, total, 0));
            let passed = now.since(*since);
            if passed >= WINDOW {
                // Scaled to the length of one window, regardless of the time since the latest sample.
                // The total shrinks when a session of the portal ends.
                let moved = u128::from(total.saturating_sub(*before)) * WINDOW.as_millis() / passed.as_millis();
                (*since, *before, *recent) = (now, total, u64::try_from(moved).unwrap_or(u64::MAX));
            }
        }
    }
}

/// Selects sessions to be asked to log in again, so that the sessions of the portals approach their weights: at most
/// one per initiator, so that its other paths continue. Only sessions in `movable` are selected: they were redirected
/// before, whereas the others have selected their portal themselves.
#[must_use]
pub(crate) fn surplus(
    candidates: &[Candidate],
    sessions: &[Counted<'_>],
    movable: &BTreeSet<&NexusName>,
) -> Vec<NexusName> {
    let mut counts: BTreeMap<SocketAddr, u64> = candidates.iter().map(|one| (one.address, 0)).collect();
    for one in sessions {
        // Sessions on portals that are no candidates do not count.
        if let Some(count) = counts.get_mut(&one.portal) {
            *count += 1;
        }
    }
    let mut left: Vec<&Counted<'_>> =
        sessions.iter().filter(|one| movable.contains(one.nexus) && counts.contains_key(&one.portal)).collect();
    let (mut asked, mut busy) = (Vec::new(), BTreeSet::new());
    let weight = |address: SocketAddr| {
        candidates.iter().find(|one| one.address == address).map_or(1, |one| u64::from(one.weight.max(1)))
    };
    loop {
        // After the move, the source must not be less loaded relative to its weight than the destination.
        let fits = |from: SocketAddr, to: SocketAddr, counts: &BTreeMap<SocketAddr, u64>| {
            // No underflow: only sessions on a portal with a count above zero are tried.
            from != to && (counts[&from] - 1) * weight(to) >= (counts[&to] + 1) * weight(from)
        };
        // Fixed point, as in `choose`, so that small counts differ by weight.
        let target = counts.keys().copied().min_by_key(|&address| (counts[&address] << 20) / weight(address));
        // Each round moves one session to the least loaded portal, until no move improves the distribution.
        let Some(to) = target else { return asked };
        let next = left.iter().position(|one| {
            counts[&one.portal] > 0 && fits(one.portal, to, &counts) && !busy.contains(&one.nexus.initiator)
        });
        let Some(at) = next else { return asked };
        let one = left.swap_remove(at);
        // Both portals are keys of `counts`.
        *counts.get_mut(&one.portal).expect("it is a candidate") -= 1;
        *counts.get_mut(&to).expect("it is a candidate") += 1;
        // One session per initiator at a time, so that its other paths continue.
        busy.insert(one.nexus.initiator.clone());
        asked.push(one.nexus.clone());
    }
}

#[cfg(test)]
mod tests;
