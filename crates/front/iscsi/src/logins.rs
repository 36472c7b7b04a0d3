//! Admission of concurrent logins: bounds, and the choice of the login that is evicted at a bound.
//!
//! The login of a well-behaved host takes milliseconds. Therefore the oldest login without a request is evicted first,
//! then the oldest one that has exceeded its time: a flood of silent connections evicts itself. At the global bound,
//! logins from the address with the most logins are evicted first. Slots that are held as a penalty for a wrong CHAP
//! secret are limited to half of all slots.

use shard::Time;
use shard::mailbox::{self, Receiver, Sender};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Age at which a login that has sent a request may be evicted.
const EVICTION_AGE: Duration = Duration::from_secs(2);

/// Bounds of [`Logins`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Upper bound of logins from all addresses.
    pub all: usize,
    /// Upper bound of logins from one address.
    pub per_address: usize,
}

/// All logins in progress, in the order of their start.
pub(crate) struct Logins {
    bounds: Bounds,
    /// Logins by number, which is the order of their start, so a search finds the oldest first.
    under_way: BTreeMap<u64, Login>,
    counts: BTreeMap<IpAddr, usize>,
    next: u64,
}

struct Login {
    address: IpAddr,
    since: Time,
    has_asked: bool,
    /// True when the slot is held as a penalty, although no login is in progress.
    is_held: bool,
    /// Dropped to end the login.
    _end: Sender<()>,
}

impl Logins {
    /// Creates an empty table.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, under_way: BTreeMap::new(), counts: BTreeMap::new(), next: 0 }
    }

    /// Reserves a slot for a login from `address`. The channel of the returned receiver closes when the login is
    /// evicted. `None` when the bounds are reached and no login may be evicted.
    pub(crate) fn begin(&mut self, address: IpAddr, now: Time) -> Option<(u64, Receiver<()>)> {
        let here = self.counts.get(&address).copied().unwrap_or(0);
        // At the bound of one address, only logins of that address are evicted.
        if here >= self.bounds.per_address {
            self.make_room(|login| login.address == address, now)?;
        } else if self.under_way.len() >= self.bounds.all {
            // Eviction from the busiest address first: logins of other hosts survive a flood from one address.
            let busiest = self.counts.iter().max_by_key(|&(_, &count)| count).map(|(&address, _)| address)?;
            self.make_room(|login| login.address == busiest, now)
                .or_else(|| self.make_room(|_| true, now))
                .or_else(|| self.release_delay_slot())?;
        }
        let id = self.next;
        self.next += 1;
        let (end, ends) = mailbox::channel();
        let login = Login { address, since: now, has_asked: false, is_held: false, _end: end };
        self.under_way.insert(id, login);
        *self.counts.entry(address).or_default() += 1;
        Some((id, ends))
    }

    /// Marks the login as having sent a request.
    pub(crate) fn asked(&mut self, id: u64) {
        // Missing when the login was evicted meanwhile.
        if let Some(login) = self.under_way.get_mut(&id) {
            login.has_asked = true;
        }
    }

    /// Holds the slot of the login until it ends; it cannot be evicted in favor of an ordinary login, except as an
    /// excess penalty slot.
    pub(crate) fn hold(&mut self, id: u64) {
        if let Some(login) = self.under_way.get_mut(&id) {
            login.is_held = true;
        }
    }

    /// Ends the login. Has no effect when it was evicted before.
    pub(crate) fn end(&mut self, id: u64) {
        let Some(login) = self.under_way.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&login.address) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&login.address);
            }
        }
    }

    /// Evicts the oldest login that matches `may`: one without a request first, then one older than [`EVICTION_AGE`].
    /// `None` when no login may be evicted.
    fn make_room(&mut self, may: impl Fn(&Login) -> bool, now: Time) -> Option<()> {
        let here = || self.under_way.iter().filter(|(_, login)| may(login) && !login.is_held);
        let silent = here().find(|(_, login)| !login.has_asked);
        let victim = silent.or_else(|| here().find(|(_, login)| now.since(login.since) >= EVICTION_AGE));
        let id = victim.map(|(&id, _)| id)?;
        self.end(id);
        Some(())
    }

    /// Releases the oldest penalty slot, if penalty slots occupy more than half of all slots.
    fn release_delay_slot(&mut self) -> Option<()> {
        let held = || self.under_way.iter().filter(|(_, login)| login.is_held).map(|(&id, _)| id);
        let oldest = held().next().filter(|_| held().count() > self.bounds.all / 2)?;
        self.end(oldest);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const BOUNDS: Bounds = Bounds { all: 6, per_address: 3 };

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn has_ended(ends: &Receiver<()>) -> bool {
        ends.receive().now_or_never().is_some()
    }

    #[test]
    fn oldest_silent_login_of_an_address_makes_room() {
        let mut logins = Logins::new(BOUNDS);
        let places: Vec<_> = (0..3).map(|_| logins.begin(address(1), at(0)).expect("room")).collect();
        logins.asked(places[0].0);
        assert!(logins.begin(address(1), at(0)).is_some());
        assert_eq!(places.iter().map(|(_, ends)| has_ended(ends)).collect::<Vec<_>>(), [false, true, false]);
        logins.end(places[1].0);
        assert_eq!(logins.counts[&address(1)], 3, "what made room is not counted twice");
    }

    #[test]
    fn login_that_has_asked_makes_room_only_when_it_takes_long() {
        let mut logins = Logins::new(BOUNDS);
        for _ in 0..3 {
            let (id, _) = logins.begin(address(1), at(0)).expect("room");
            logins.asked(id);
        }
        assert!(logins.begin(address(1), at(1)).is_none());
        assert!(logins.begin(address(1), at(2)).is_some());
    }

    #[test]
    fn busiest_address_makes_room_for_others_and_what_is_held_never_does() {
        let mut logins = Logins::new(BOUNDS);
        let few: Vec<_> = (0..2).map(|_| logins.begin(address(1), at(0)).expect("room")).collect();
        let many: Vec<_> = (0..3).map(|_| logins.begin(address(2), at(0)).expect("room")).collect();
        let other = logins.begin(address(3), at(0)).expect("room");
        logins.hold(many[0].0);
        assert!(logins.begin(address(4), at(0)).is_some());
        assert!(!has_ended(&many[0].1) && has_ended(&many[1].1));
        assert!(!few.iter().chain([&other]).any(|(_, ends)| has_ended(ends)));
        assert_eq!(logins.under_way.len(), 6);
        let mut held = Logins::new(Bounds { all: 2, per_address: 1 });
        let places: Vec<_> = (1..3).map(|last| held.begin(address(last), at(0)).expect("room")).collect();
        held.hold(places[0].0);
        assert!(held.begin(address(1), at(9)).is_none(), "an address does not get around what it is held for");
    }

    #[test]
    fn flood_from_many_addresses_leaves_room_for_who_comes_next() {
        let mut logins = Logins::new(BOUNDS);
        let mut flood: Vec<_> = (1..6).map(|last| logins.begin(address(last), at(0)).expect("room")).collect();
        flood.push(logins.begin(address(200), at(0)).expect("room"));
        logins.asked(flood[5].0);
        logins.hold(flood[5].0);
        assert!(logins.begin(address(6), at(0)).is_some(), "also where the address that has most has nothing to give");
        assert!(has_ended(&flood[0].1));
    }

    #[test]
    fn guesses_from_many_addresses_hold_half_of_the_places_at_most() {
        let mut logins = Logins::new(BOUNDS);
        let guesses: Vec<_> = (1..7).map(|last| logins.begin(address(last), at(0)).expect("room")).collect();
        guesses.iter().for_each(|(id, _)| {
            logins.asked(*id);
            logins.hold(*id);
        });
        for last in 7..10 {
            let (id, _) = logins.begin(address(last), at(0)).expect("room");
            logins.asked(id);
        }
        assert_eq!(guesses.iter().filter(|(_, ends)| has_ended(ends)).count(), 3);
        assert!(logins.begin(address(10), at(1)).is_none(), "everybody else has asked just now");
    }
}
