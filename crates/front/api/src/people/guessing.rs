//! Who guesses passwords waits ever longer, and keeps nobody else out.
//!
//! A right password is never held back: it is the answer to a wrong one that comes later. While such an answer is waited for, its
//! address is judged no further, and a user who is guessed at from many addresses is judged a few at a time; whoever has
//! logged in from where it is before has a turn of its own.

use model::{Name, Refusal, code};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the first wrong password costs; each further one twice as much, up to the most.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(30);
/// What is so long ago is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);
/// So many at a time for a user that is guessed at, from places where it was never.
const OF_USER_MAX: usize = 4;
/// So many users, addresses and known places are remembered.
const REMEMBERED_MAX: usize = 4096;

/// Who has failed.
#[derive(Clone, Debug, Default)]
pub struct Guessing(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    failed: BTreeMap<Lane, Failed>,
    /// Where users have logged in.
    known: BTreeSet<(IpAddr, Name)>,
}

/// What is judged in turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Address(IpAddr),
    User(Name),
    /// A user at a place that it has logged in from.
    Known(IpAddr, Name),
}

#[derive(Debug)]
struct Failed {
    times: u32,
    last: Instant,
    judging: usize,
}

/// The turn of one login, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    seen: Arc<Mutex<Seen>>,
    lanes: Vec<Lane>,
    address: IpAddr,
    user: Name,
}

/// How a login that failed is to be answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Penalty {
    /// So much later.
    pub delay: Duration,
    /// How often it has failed of late, of this user or from this address.
    pub times: u32,
}

impl Guessing {
    /// A turn to be judged.
    ///
    /// *Errors*: another login from there, or of this user, has failed and is not answered yet.
    pub fn enter(&self, address: IpAddr, user: &Name, now: Instant) -> Result<Turn, Refusal> {
        let address = place(address);
        let mut seen = self.seen();
        seen.failed.retain(|_, failed| failed.judging > 0 || now.duration_since(failed.last) < FORGOTTEN);
        let lanes = if seen.known.contains(&(address, user.clone())) {
            vec![Lane::Known(address, user.clone())]
        } else {
            vec![Lane::Address(address), Lane::User(user.clone())]
        };
        for lane in &lanes {
            let most = if matches!(lane, Lane::User(_)) { OF_USER_MAX } else { 1 };
            if seen.failed.get(lane).is_some_and(|failed| failed.times > 0 && failed.judging >= most) {
                let hint = "wait until the wrong password before has had its answer";
                return Err(Refusal::new(code::ASKED_TOO_OFTEN, "too many logins fail", hint));
            }
        }
        while seen.failed.len() + lanes.len() > REMEMBERED_MAX {
            let oldest = seen.failed.iter().filter(|(_, failed)| failed.judging == 0);
            let Some(oldest) = oldest.min_by_key(|(_, failed)| failed.last).map(|(lane, _)| lane.clone()) else {
                break;
            };
            seen.failed.remove(&oldest);
        }
        for lane in &lanes {
            seen.failed.entry(lane.clone()).or_insert(Failed { times: 0, last: now, judging: 0 }).judging += 1;
        }
        Ok(Turn { seen: self.0.clone(), lanes, address, user: user.clone() })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// It was wrong: what that costs. The turn is kept meanwhile.
    pub fn failed(&self, now: Instant) -> Penalty {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = 0;
        for lane in &self.lanes {
            if let Some(failed) = seen.failed.get_mut(lane) {
                (failed.times, failed.last) = (failed.times.saturating_add(1), now);
                times = times.max(failed.times);
            }
        }
        let delay = FIRST.saturating_mul(1 << (times.saturating_sub(1)).min(16)).min(MOST);
        Penalty { delay, times }
    }

    /// It was right: nothing is held against this user here, and it is known here.
    pub fn succeeded(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in &self.lanes {
            if let Some(failed) = seen.failed.get_mut(lane) {
                failed.times = 0;
            }
        }
        if seen.known.len() >= REMEMBERED_MAX {
            seen.known.pop_first();
        }
        seen.known.insert((self.address, self.user.clone()));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in &self.lanes {
            if let Some(failed) = seen.failed.get_mut(lane) {
                failed.judging = failed.judging.saturating_sub(1);
                if failed.times == 0 && failed.judging == 0 {
                    seen.failed.remove(lane);
                }
            }
        }
    }
}

/// One who has a network of IPv6 has all of its addresses.
fn place(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(
            || {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            },
            IpAddr::V4,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn each_wrong_password_costs_twice_as_much_up_to_half_a_minute_and_a_right_one_nothing() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..8 {
            let turn = guessing.enter(address(1), &name("alice"), now).expect("a turn");
            delays.push(turn.failed(now).delay.as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30]);
        guessing.enter(address(1), &name("alice"), now).expect("a turn").succeeded();
        let turn = guessing.enter(address(1), &name("alice"), now).expect("a turn");
        assert_eq!(turn.failed(now).delay, FIRST);
    }

    #[test]
    fn guesser_has_one_turn_at_a_time_and_nobody_else_waits_for_it() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        guessing.enter(address(9), &name("alice"), now).expect("a turn").succeeded();
        let held: Vec<Turn> = (1..=4)
            .map(|n| {
                let turn = guessing.enter(address(n), &name("alice"), now).expect("a turn");
                turn.failed(now);
                turn
            })
            .collect();
        assert_eq!(
            guessing.enter(address(1), &name("bob"), now).expect_err("one at a time").code,
            code::ASKED_TOO_OFTEN
        );
        guessing.enter(address(5), &name("alice"), now).expect_err("she is guessed at from everywhere");
        guessing.enter(address(9), &name("alice"), now).expect("where she was before she has a turn of her own");
        guessing.enter(address(5), &name("bob"), now).expect("others are not touched");
        drop(held);
        guessing.enter(address(5), &name("alice"), now).expect("a turn");
    }

    #[test]
    fn what_was_long_ago_is_forgotten_and_what_is_remembered_is_bounded() {
        let (guessing, now) = (Guessing::default(), Instant::now());
        guessing.enter(address(1), &name("alice"), now).expect("a turn").failed(now);
        let later = now + FORGOTTEN;
        let turn = guessing.enter(address(1), &name("alice"), later).expect("a turn");
        assert_eq!(turn.failed(later).times, 1);
        drop(turn);
        for n in 0..REMEMBERED_MAX {
            let turn = guessing.enter(
                IpAddr::V4((0x0a00_0000_u32 + u32::try_from(n).expect("few")).into()),
                &name(&format!("u{n}")),
                later,
            );
            turn.expect("a turn").failed(later);
        }
        assert!(guessing.seen().failed.len() <= REMEMBERED_MAX, "{}", guessing.seen().failed.len());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one() {
        assert_eq!(place("2001:db8::1".parse().expect("v6")), place("2001:db8::ffff".parse().expect("v6")));
        assert_ne!(place("2001:db8::1".parse().expect("v6")), place("2001:db8:0:1::1".parse().expect("v6")));
        assert_eq!(place("::ffff:10.0.0.1".parse().expect("mapped")), address(1));
    }
}
