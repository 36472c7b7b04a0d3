//! Brute-force protection for logins: exponential back-off and a limit on concurrent attempts after failures.
//!
//! Used for CHAP logins of hosts and for logins to the console, each with a [`Policy`] of its own. A correct secret is
//! never delayed; the answer to a wrong one is delayed, longer each time. Once too many attempts have failed, those for
//! a name and those from an address are limited to a few at a time. A name that has authenticated from an address
//! before has a limit of its own there, so nobody can be locked out by the guesses of others.
//!
//! Time is an argument, as a duration since an instant that the caller chooses once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Delays and limits.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Failures without a delay, for typing errors.
    pub free_failures: u32,
    /// Delay of the answer to the first failure after those; doubled with each further one.
    pub first_delay: Duration,
    /// Longest delay of an answer.
    pub max_delay: Duration,
    /// Limit on concurrent attempts for one name from addresses where it has not authenticated, once too many have
    /// failed.
    pub of_name_max: usize,
    /// Limit on concurrent attempts from one address, once too many have failed.
    pub of_address_max: usize,
    /// Limit on concurrent attempts for a name from an address where it has authenticated, once too many have failed.
    pub known_max: usize,
    /// Time after which failures are forgotten.
    pub expiry: Duration,
    /// Limit on entries with failures, and on pairs of name and address that have authenticated.
    pub remembered_max: usize,
}

/// Failures of all names and addresses. Cheap to clone; clones share the state.
#[derive(Debug)]
pub struct LoginThrottle<N: Ord>(Arc<Shared<N>>);

impl<N: Ord> Clone for LoginThrottle<N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Shared<N: Ord> {
    policy: Policy,
    table: Mutex<Table<N>>,
}

#[derive(Debug)]
struct Table<N: Ord> {
    failures: BTreeMap<Key<N>, Failures>,
    /// Addresses from which names have authenticated.
    known: BTreeSet<(IpAddr, N)>,
}

/// Key of a failure count: attempts with the same key share a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<N> {
    Address(IpAddr),
    Name(N),
    /// Name at an address where it has authenticated.
    Known(IpAddr, N),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Duration,
    /// Attempts in progress, including those whose answer is delayed.
    in_progress: usize,
}

/// Attempt to authenticate, in progress until it is dropped, after its answer was sent.
#[derive(Debug)]
pub struct Attempt<N: Ord> {
    shared: Arc<Shared<N>>,
    keys: Vec<Key<N>>,
    address: IpAddr,
    name: N,
}

/// Consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consequence {
    /// Number of failures of this name or this address, whichever is higher.
    pub failures: u32,
    /// Delay of the answer.
    pub delay: Duration,
}

impl<N: Ord + Clone> LoginThrottle<N> {
    /// Returns a throttle without failures.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let table = Mutex::new(Table { failures: BTreeMap::new(), known: BTreeSet::new() });
        Self(Arc::new(Shared { policy, table }))
    }

    /// Starts an attempt of `name` from `address`. `None` when the limit on concurrent attempts is reached, so that the
    /// caller has to retry later.
    #[must_use]
    pub fn begin(&self, address: IpAddr, name: &N, now: Duration) -> Option<Attempt<N>> {
        let (policy, address) = (&self.0.policy, network_of(address));
        let mut table = self.0.lock();
        // A name that is known at this address depends on its own failures there only: guesses of others do not count.
        let lanes = if table.known.contains(&(address, name.clone())) {
            vec![Key::Known(address, name.clone())]
        } else {
            vec![Key::Address(address), Key::Name(name.clone())]
        };
        // The first `free_failures` have no effect; from then on the concurrent attempts are limited.
        let is_full = |lane: &Key<N>| {
            let failures = table.failures.get(lane);
            failures.is_some_and(|of| {
                of.count_at(now, policy) > policy.free_failures && of.in_progress >= policy.limit_of(lane)
            })
        };
        if lanes.iter().any(is_full) {
            return None;
        }
        // Only once no key is full: an attempt that is refused must not count as in progress.
        for lane in &lanes {
            table.make_room(lane, now, policy);
            let empty = Failures { count: 0, last: now, in_progress: 0 };
            table.failures.entry(lane.clone()).or_insert(empty).in_progress += 1;
        }
        Some(Attempt { shared: self.0.clone(), keys: lanes, address, name: name.clone() })
    }
}

impl<N: Ord + Clone> Attempt<N> {
    /// Records that the secret was wrong, and returns the delay of the answer. The attempt stays in progress until it
    /// is dropped.
    #[must_use]
    pub fn failed(&self, now: Duration) -> Consequence {
        let policy = &self.shared.policy;
        let mut table = self.shared.lock();
        let mut failures = 0;
        for lane in &self.keys {
            if let Some(of) = table.failures.get_mut(lane) {
                // Failures that have expired do not count: a new series starts at one.
                (of.count, of.last) = (of.count_at(now, policy).saturating_add(1), now);
                failures = failures.max(of.count);
            }
        }
        let Some(doublings) = failures.checked_sub(policy.free_failures + 1) else {
            return Consequence { failures, delay: Duration::ZERO };
        };
        // 2^16 times the first delay exceeds any limit; more doublings would overflow the shift.
        Consequence { failures, delay: policy.first_delay.saturating_mul(1 << doublings.min(16)).min(policy.max_delay) }
    }

    /// Records that the secret was correct: resets the failures of this name here, and remembers it for this address.
    pub fn succeeded(&self) {
        let mut table = self.shared.lock();
        for lane in &self.keys {
            if let Some(of) = table.failures.get_mut(lane) {
                // The entry stays while this attempt is in progress; its drop removes it.
                of.count = 0;
            }
        }
        let pair = (self.address, self.name.clone());
        if table.known.len() >= self.shared.policy.remembered_max && !table.known.contains(&pair) {
            // Bounded: an attacker with many valid names must not grow the table.
            table.known.pop_first();
        }
        table.known.insert(pair);
    }
}

impl<N: Ord> Drop for Attempt<N> {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        for lane in &self.keys {
            if let Some(of) = table.failures.get_mut(lane) {
                // Each attempt has counted itself once in `begin`.
                of.in_progress = of.in_progress.saturating_sub(1);
                // Entries without failures are dropped immediately, so that correct logins take no memory here.
                if of.in_progress == 0 && of.count == 0 {
                    table.failures.remove(lane);
                }
            }
        }
    }
}

impl<N: Ord> Shared<N> {
    fn lock(&self) -> MutexGuard<'_, Table<N>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Ord + Clone> Table<N> {
    /// Makes room for `lane` in a full table: evicts the entry with the fewest failures, and the oldest of those.
    fn make_room(&mut self, lane: &Key<N>, now: Duration, policy: &Policy) {
        if self.failures.len() < policy.remembered_max || self.failures.contains_key(lane) {
            return;
        }
        // Entries of attempts in progress are kept: their counts would be wrong afterwards.
        let idle = self.failures.iter().filter(|(_, of)| of.in_progress == 0);
        let least = idle.min_by_key(|(_, of)| (of.count_at(now, policy), of.last)).map(|(lane, _)| lane.clone());
        // Without an idle entry the table exceeds its limit by the attempts in progress.
        if let Some(least) = least {
            self.failures.remove(&least);
        }
    }
}

impl Policy {
    fn limit_of<N>(&self, lane: &Key<N>) -> usize {
        match lane {
            Key::Address(_) => self.of_address_max,
            Key::Name(_) => self.of_name_max,
            Key::Known(..) => self.known_max,
        }
    }
}

impl Failures {
    fn count_at(&self, now: Duration, policy: &Policy) -> u32 {
        // Failures expire `expiry` after the last one.
        if now.saturating_sub(self.last) < policy.expiry { self.count } else { 0 }
    }
}

/// Returns the address itself, or the /64 network of an IPv6 address, as one client owns the whole network.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            // Per /64: a host may use every address of its network.
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        free_failures: 2,
        first_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(10),
        of_name_max: 1,
        of_address_max: 4,
        known_max: 2,
        expiry: Duration::from_secs(900),
        remembered_max: 64,
    };
    const NOW: Duration = Duration::ZERO;

    fn throttle() -> LoginThrottle<String> {
        LoginThrottle::new(POLICY)
    }

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn begin(throttle: &LoginThrottle<String>, name: &str, from: u32) -> Option<Attempt<String>> {
        throttle.begin(address(from), &name.to_owned(), NOW)
    }

    /// Makes an attempt that fails and has been answered.
    fn fail(throttle: &LoginThrottle<String>, name: &str, from: u32, now: Duration) -> Consequence {
        let attempt = throttle.begin(address(from), &name.to_owned(), now);
        attempt.expect("nobody is judged").failed(now)
    }

    #[test]
    fn answers_are_held_back_ever_longer_until_failures_are_forgotten_or_one_succeeds() {
        let throttle = throttle();
        let holds: Vec<u64> = (0..8).map(|_| fail(&throttle, "web", 1, NOW).delay.as_secs()).collect();
        assert_eq!(holds, [0, 0, 1, 2, 4, 8, 10, 10]);
        assert_eq!(fail(&throttle, "web", 1, POLICY.expiry).failures, 1);
        for _ in 0..8 {
            let _ = fail(&throttle, "web", 1, POLICY.expiry);
        }
        begin(&throttle, "web", 1).expect("nobody is judged").succeeded();
        assert_eq!(fail(&throttle, "web", 1, POLICY.expiry).failures, 1);
    }

    #[test]
    fn name_is_guessed_a_few_at_a_time_from_wherever_but_not_against_who_was_known() {
        let throttle = throttle();
        begin(&throttle, "web", 100).expect("nobody is judged").succeeded();
        for from in 0..=POLICY.free_failures {
            let _ = fail(&throttle, "web", from, NOW);
        }
        let held = begin(&throttle, "web", 50).expect("the first");
        assert!(begin(&throttle, "web", 51).is_none(), "one is judged already");
        let known = begin(&throttle, "web", 100).expect("it has authenticated there");
        begin(&throttle, "db", 51).expect("another name is not concerned");
        drop((held, known));
        begin(&throttle, "web", 51).expect("the one before has had its answer");
    }

    #[test]
    fn known_name_that_fails_where_it_is_known_is_slowed_down_there_alone() {
        let throttle = throttle();
        begin(&throttle, "web", 1).expect("nobody is judged").succeeded();
        for _ in 0..3 {
            let _ = fail(&throttle, "web", 1, NOW);
        }
        let held: Vec<_> = (0..POLICY.known_max).map(|_| begin(&throttle, "web", 1).expect("few")).collect();
        assert!(begin(&throttle, "web", 1).is_none());
        assert_eq!(fail(&throttle, "web", 2, NOW).failures, 1, "elsewhere nothing is held against it");
        drop(held);
    }

    #[test]
    fn address_that_guesses_many_names_has_few_attempts_at_a_time() {
        let throttle = throttle();
        for n in 0..10 {
            let _ = fail(&throttle, &format!("host{n}"), 1, NOW);
        }
        let held: Vec<_> = (10..30).filter_map(|n| begin(&throttle, &format!("host{n}"), 1)).collect();
        assert_eq!(held.len(), POLICY.of_address_max);
        begin(&throttle, "host10", 2).expect("elsewhere it is as ever");
    }

    #[test]
    fn table_is_bounded_keeps_who_fails_most_and_forgets_who_fails_nothing() {
        let throttle = throttle();
        for _ in 0..5 {
            let _ = fail(&throttle, "web", 0, NOW);
        }
        for n in 1..500 {
            let _ = fail(&throttle, &format!("host{n}"), n, Duration::from_secs(1));
            begin(&throttle, &format!("host{n}"), 1000 + n).expect("nobody is judged").succeeded();
        }
        let len = || throttle.0.lock().failures.len();
        assert!(len() <= POLICY.remembered_max + 1, "{}", len());
        assert_eq!(throttle.0.lock().known.len(), POLICY.remembered_max);
        assert_eq!(fail(&throttle, "web", 0, Duration::from_secs(1)).failures, 6);
        let idle = LoginThrottle::new(POLICY);
        drop(idle.begin(address(1), &1_u8, NOW).expect("nobody is judged"));
        assert!(idle.0.lock().failures.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
