//! Whoever fails to prove itself again and again is answered ever later, and judged one at a time.
//!
//! A right proof is never held back. It is judged at once, also while somebody guesses, when it comes from where this initiator has proven itself
//! before; so nobody can be locked out by another's guesses.

use shard::Time;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Failures that cost nothing: somebody mistypes.
const FREE: u32 = 3;
/// How long the answer to the first failure behind those is held back; each further one twice as long.
const FIRST_HOLD: Duration = Duration::from_millis(250);
/// How long an answer is held back at most.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// Failures that are so long ago are forgotten.
const MEMORY: Duration = Duration::from_secs(15 * 60);
/// Proofs of one name, and from one address, that are judged at a time once too many have failed.
const TURNS_OF_NAME: u32 = 1;
const TURNS_OF_ADDRESS: u32 = 4;
/// Names and addresses of which failures are remembered, each.
const ENTRIES_MAX: usize = 1024;
/// Initiators with the addresses where they have proven themselves.
const PROVEN_MAX: usize = 4096;

/// Who has failed to prove itself, by name and by address.
#[derive(Default)]
pub struct Guesses {
    names: BTreeMap<String, Failures>,
    addresses: BTreeMap<IpAddr, Failures>,
    proven: BTreeMap<(String, IpAddr), Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    last: Time,
    /// Proofs that are judged, or whose answer is held back.
    turns: u32,
}

/// What a failure costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// How often this name, or this address, has failed.
    pub failures: u32,
    /// How long the answer is held back.
    pub hold: Duration,
}

impl Guesses {
    /// A proof of `initiator` from `address` may be judged; false when it has to wait for its turn. Each that may is ended.
    pub fn begin(&mut self, initiator: &str, address: IpAddr, now: Time) -> bool {
        let of_name = self.names.get(initiator).filter(|failures| failures.count_at(now) > FREE);
        let of_address = self.addresses.get(&address).filter(|failures| failures.count_at(now) > FREE);
        let has_turn = of_name.is_none_or(|failures| failures.turns < TURNS_OF_NAME)
            && of_address.is_none_or(|failures| failures.turns < TURNS_OF_ADDRESS);
        let goes = has_turn || self.proven.contains_key(&(initiator.to_owned(), address));
        if goes {
            room_for(&mut self.names, initiator.to_owned(), now).turns += 1;
            room_for(&mut self.addresses, address, now).turns += 1;
        }
        goes
    }

    /// The proof was wrong.
    pub fn failed(&mut self, initiator: &str, address: IpAddr, now: Time) -> Penalty {
        let of_name = room_for(&mut self.names, initiator.to_owned(), now).fail(now);
        let of_address = room_for(&mut self.addresses, address, now).fail(now);
        let failures = of_name.max(of_address);
        let doublings = failures.saturating_sub(FREE + 1).min(16);
        let hold = if failures > FREE { (FIRST_HOLD * (1 << doublings)).min(HOLD_MAX) } else { Duration::ZERO };
        Penalty { failures, hold }
    }

    /// The proof was right.
    pub fn succeeded(&mut self, initiator: &str, address: IpAddr, now: Time) {
        if self.proven.len() >= PROVEN_MAX
            && let Some(oldest) = self.proven.iter().min_by_key(|&(_, &at)| at).map(|(who, _)| who.clone())
        {
            self.proven.remove(&oldest);
        }
        self.proven.insert((initiator.to_owned(), address), now);
    }

    /// A proof that began is over, and so is what it cost.
    pub fn end(&mut self, initiator: &str, address: IpAddr) {
        give_back(&mut self.names, initiator);
        give_back(&mut self.addresses, &address);
    }
}

impl Failures {
    fn count_at(&self, now: Time) -> u32 {
        if now.since(self.last) < MEMORY { self.count } else { 0 }
    }

    fn fail(&mut self, now: Time) -> u32 {
        (self.count, self.last) = (self.count_at(now).saturating_add(1), now);
        self.count
    }
}

/// The entry; where there are too many, the one with the fewest failures makes room, and of those the oldest.
fn room_for<K: Ord + Clone>(table: &mut BTreeMap<K, Failures>, key: K, now: Time) -> &mut Failures {
    if table.len() >= ENTRIES_MAX && !table.contains_key(&key) {
        let least = table.iter().min_by_key(|(_, failures)| (failures.count_at(now), failures.last));
        if let Some(key) = least.map(|(key, _)| key.clone()) {
            table.remove(&key);
        }
    }
    table.entry(key).or_default()
}

fn give_back<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(table: &mut BTreeMap<K, Failures>, key: &Q) {
    let Some(failures) = table.get_mut(key) else { return };
    failures.turns = failures.turns.saturating_sub(1);
    if failures.turns == 0 && failures.count == 0 {
        table.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn answers_are_held_back_ever_longer_until_it_is_forgotten() {
        let mut guesses = Guesses::default();
        let mut hold = |now| guesses.failed("web", address(1), now).hold.as_millis();
        let holds: Vec<u128> = (0..12).map(|_| hold(at(0))).collect();
        assert_eq!(holds, [0, 0, 0, 250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
        assert_eq!(hold(at(16 * 60)), 0);
    }

    #[test]
    fn name_is_guessed_one_at_a_time_from_wherever_but_not_against_who_was_proven() {
        let mut guesses = Guesses::default();
        guesses.succeeded("web", address(100), at(0));
        for n in 0..=FREE {
            guesses.failed("web", address(n), at(1));
        }
        assert!(guesses.begin("web", address(50), at(1)));
        assert!(!guesses.begin("web", address(51), at(1)), "one is judged already");
        assert!(guesses.begin("web", address(100), at(1)), "it was proven there");
        assert!(guesses.begin("db", address(51), at(1)), "another name is not concerned");
        guesses.end("web", address(50));
        guesses.end("web", address(100));
        assert!(guesses.begin("web", address(51), at(1)));
    }

    #[test]
    fn address_that_guesses_many_names_has_few_turns() {
        let mut guesses = Guesses::default();
        for n in 0..10 {
            guesses.failed(&format!("host{n}"), address(1), at(0));
        }
        let turns = (10..30).filter(|n| guesses.begin(&format!("host{n}"), address(1), at(0))).count();
        assert_eq!(turns, 4);
        assert!(guesses.begin("host10", address(2), at(0)), "elsewhere it is as ever");
    }

    #[test]
    fn tables_are_bounded_and_keep_who_fails_most() {
        let mut guesses = Guesses::default();
        for _ in 0..5 {
            guesses.failed("web", address(0), at(0));
        }
        for n in 1..5000 {
            guesses.failed(&format!("host{n}"), address(n), at(1));
            guesses.succeeded(&format!("host{n}"), address(n), at(1));
        }
        assert_eq!((guesses.names.len(), guesses.addresses.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(guesses.proven.len(), PROVEN_MAX);
        assert_eq!(guesses.failed("web", address(0), at(1)).failures, 6);
        let mut idle = Guesses::default();
        assert!(idle.begin("web", address(1), at(0)));
        idle.end("web", address(1));
        assert!(idle.names.is_empty() && idle.addresses.is_empty(), "who fails nothing is not remembered");
    }
}
