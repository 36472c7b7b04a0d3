//! Which data portal a session is sent to, and which sessions should move when portals come and go.

use crate::nexus::NexusName;
use model::Balance;
use shard::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a session that was sent to a portal counts there before it has logged in.
const PROMISE: Duration = Duration::from_secs(10);
/// The most sessions that are waited for; of more, the oldest are not any longer.
const PROMISES_MAX: usize = 4096;
/// The shortest time over which bytes are counted.
const WINDOW: Duration = Duration::from_secs(5);

/// A portal that a session could be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where.
    pub address: SocketAddr,
    /// Its part of the sessions.
    pub weight: u16,
    /// True where the initiator's own address lies in the portal's network.
    pub is_near: bool,
}

/// A session as it counts for its portal.
#[derive(Clone, Debug)]
pub(crate) struct Counted<'a> {
    /// Which nexus it is.
    pub nexus: &'a NexusName,
    /// The portal that it came in through.
    pub portal: SocketAddr,
    /// Bytes that it has moved, both ways.
    pub bytes: u64,
}

/// A session that was sent to a portal and is not there yet.
#[derive(Clone, Debug)]
struct Promise {
    nexus: NexusName,
    portal: SocketAddr,
    until: Time,
}

/// What is remembered from one choice to the next.
#[derive(Default)]
pub(crate) struct Balancer {
    promises: Vec<Promise>,
    /// For each portal: when bytes were counted last, how many there were, and how many came in the window before.
    bytes: BTreeMap<SocketAddr, (Time, u64, u64)>,
}

impl Balancer {
    /// The portal for a session of `nexus`, which counts there from now on. Only for whoever is proven: strangers must not
    /// count anywhere.
    pub(crate) fn choose(
        &mut self,
        nexus: &NexusName,
        candidates: &[Candidate],
        by: Balance,
        sessions: &[Counted<'_>],
        now: Time,
    ) -> Option<SocketAddr> {
        self.promises.retain(|promise| promise.until > now && promise.nexus != *nexus);
        let best = candidates.iter().min_by_key(|candidate| {
            let address = candidate.address;
            let there = |portal: SocketAddr| portal == address;
            let is_kin = |other: &NexusName| other.initiator == nexus.initiator && other.target == nexus.target;
            let at = |kin: bool| {
                let of = |other: &NexusName| !kin || is_kin(other) && other != nexus;
                let here = sessions.iter().filter(|one| there(one.portal) && of(one.nexus)).count();
                here + self.promises.iter().filter(|one| there(one.portal) && of(&one.nexus)).count()
            };
            let weigh = |load: u64| load.saturating_mul(1 << 20) / u64::from(candidate.weight.max(1));
            let count = weigh(at(false) as u64);
            let load = match by {
                Balance::Sessions => count,
                Balance::Bytes => weigh(self.bytes.get(&address).map_or(0, |&(_, _, recent)| recent)),
            };
            (at(true), !candidate.is_near, load, count, Reverse(candidate.weight), address)
        });
        let address = best?.address;
        // A host that is believed without proof may still be a stranger: what it is promised has a bound.
        if self.promises.len() >= PROMISES_MAX {
            self.promises.remove(0);
        }
        self.promises.push(Promise { nexus: nexus.clone(), portal: address, until: now + PROMISE });
        Some(address)
    }

    /// The nexus has logged in: true when it had been sent to this portal.
    pub(crate) fn arrived(&mut self, nexus: &NexusName, portal: SocketAddr) -> bool {
        let at = self.promises.iter().position(|promise| promise.nexus == *nexus);
        at.is_some_and(|at| self.promises.swap_remove(at).portal == portal)
    }

    /// Takes in how much each portal has moved, when it was last done long enough ago.
    pub(crate) fn look(&mut self, candidates: &[Candidate], sessions: &[Counted<'_>], now: Time) {
        for candidate in candidates {
            let of = |one: &&Counted<'_>| one.portal == candidate.address;
            let total: u64 = sessions.iter().filter(of).map(|one| one.bytes).sum();
            let (since, before, recent) = self.bytes.entry(candidate.address).or_insert((now, total, 0));
            let passed = now.since(*since);
            if passed >= WINDOW {
                // As if the window had been of this length, however long nobody asked.
                let moved = u128::from(total.saturating_sub(*before)) * WINDOW.as_millis() / passed.as_millis();
                (*since, *before, *recent) = (now, total, u64::try_from(moved).unwrap_or(u64::MAX));
            }
        }
    }
}

/// Sessions to be asked to log in anew, so that the portals come nearer to their parts: at most one of each initiator,
/// so that its other paths carry on. `movable` were sent where they are; others have chosen their portal themselves.
#[must_use]
pub(crate) fn surplus(
    candidates: &[Candidate],
    sessions: &[Counted<'_>],
    movable: &BTreeSet<&NexusName>,
) -> Vec<NexusName> {
    let mut counts: BTreeMap<SocketAddr, u64> = candidates.iter().map(|one| (one.address, 0)).collect();
    for one in sessions {
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
        // A session that moves must leave the full one no emptier, for its weight, than the empty one becomes.
        let fits = |from: SocketAddr, to: SocketAddr, counts: &BTreeMap<SocketAddr, u64>| {
            from != to && (counts[&from] - 1) * weight(to) >= (counts[&to] + 1) * weight(from)
        };
        let target = counts.keys().copied().min_by_key(|&address| (counts[&address] << 20) / weight(address));
        let Some(to) = target else { return asked };
        let next = left.iter().position(|one| {
            counts[&one.portal] > 0 && fits(one.portal, to, &counts) && !busy.contains(&one.nexus.initiator)
        });
        let Some(at) = next else { return asked };
        let one = left.swap_remove(at);
        *counts.get_mut(&one.portal).expect("it is a candidate") -= 1;
        *counts.get_mut(&to).expect("it is a candidate") += 1;
        busy.insert(one.nexus.initiator.clone());
        asked.push(one.nexus.clone());
    }
}

#[cfg(test)]
mod tests;
