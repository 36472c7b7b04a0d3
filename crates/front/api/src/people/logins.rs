//! Open login sessions. They are kept in memory only: after a restart everybody logs in again.

use super::digest;
use model::{LoginReport, Name, Refusal, Timestamp, code};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle timeout in seconds.
pub(crate) const IDLE_SECONDS: u64 = 15 * 60;
/// Longest duration of a login in seconds.
pub(crate) const LASTS_SECONDS: u64 = 12 * 60 * 60;

/// Limits on logins, in total and for one user; the one that was idle longest makes room.
const ALL_MAX: usize = 1024;
const ONE_MAX: usize = 16;

/// Characters of the user agent that are kept.
const AGENT_CHARS_MAX: usize = 120;

/// Logins by the digest of their cookies.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<BTreeMap<[u8; 32], Login>>);

/// An open login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    pub id: String,
    pub user: Name,
    pub csrf: String,
    pub address: IpAddr,
    pub agent: String,
    pub begun: Timestamp,
    pub seen: Timestamp,
}

impl Login {
    /// Time at which it ends whatever its activity.
    pub(crate) fn until(&self) -> Timestamp {
        self.begun.plus(LASTS_SECONDS)
    }

    fn lives(&self, now: Timestamp) -> bool {
        now < self.until() && now.since(self.seen) < IDLE_SECONDS
    }

    /// Report of the login; `own` is the login of the caller.
    pub(crate) fn report(&self, own: Option<&str>) -> LoginReport {
        LoginReport {
            id: self.id.clone(),
            user: self.user.clone(),
            address: self.address,
            agent: self.agent.clone(),
            started: self.begun,
            last_seen: self.seen,
            until: self.until(),
            own: own == Some(&self.id),
        }
    }
}

impl Logins {
    /// Opens a login for `user`; returns the cookie, which is not stored, and the login.
    ///
    /// *Errors*: the system gives no random numbers.
    pub(crate) fn open(
        &self,
        user: &Name,
        address: IpAddr,
        agent: &str,
        now: Timestamp,
    ) -> Result<(String, Login), Refusal> {
        // Only the digest of the cookie is stored: reading the memory does not reveal valid cookies.
        let cookie = control::to_hex(&control::random::<32>()?);
        let login = Login {
            id: control::to_hex(&control::random::<8>()?),
            user: user.clone(),
            csrf: control::to_hex(&control::random::<32>()?),
            address,
            // The user agent is text of the client and is shown to admins, so control characters are removed.
            agent: agent.chars().filter(|c| !c.is_control()).take(AGENT_CHARS_MAX).collect(),
            begun: now,
            seen: now,
        };
        let mut logins = self.all();
        // Expired logins are removed here; no timer does it.
        logins.retain(|_, login| login.lives(now));
        let make_room = |logins: &mut BTreeMap<[u8; 32], Login>, of: Option<&Name>, most: usize| {
            // Those of the user, or all, with the one that was idle longest first.
            let mut such: Vec<_> = logins.iter().filter(|(_, login)| of.is_none_or(|of| login.user == *of)).collect();
            such.sort_by_key(|(_, login)| login.seen);
            // Plus the login that is about to be added.
            let surplus = (such.len() + 1).saturating_sub(most);
            let gone: Vec<[u8; 32]> = such.into_iter().take(surplus).map(|(key, _)| *key).collect();
            gone.iter().for_each(|key| drop(logins.remove(key)));
        };
        // The limit of one user comes first, so that a user cannot displace others.
        make_room(&mut logins, Some(user), ONE_MAX);
        make_room(&mut logins, None, ALL_MAX);
        logins.insert(digest(&cookie), login.clone());
        Ok((cookie, login))
    }

    /// Login of a cookie while it is valid. `asked` extends the idle timeout.
    pub(crate) fn find(&self, cookie: &str, asked: bool, now: Timestamp) -> Option<Login> {
        let mut logins = self.all();
        let key = digest(cookie);
        let login = logins.get_mut(&key)?;
        if !login.lives(now) {
            logins.remove(&key);
            return None;
        }
        if asked {
            // The clock may be set back; the time of the last activity does not follow it.
            login.seen = login.seen.max(now);
        }
        Some(login.clone())
    }

    /// True while the login is valid.
    pub(crate) fn lives(&self, id: &str, now: Timestamp) -> bool {
        self.all().values().any(|login| login.id == id && login.lives(now))
    }

    /// Valid logins, the oldest first.
    pub(crate) fn list(&self, now: Timestamp) -> Vec<Login> {
        let mut logins: Vec<Login> = self.all().values().filter(|login| login.lives(now)).cloned().collect();
        logins.sort_by(|a, b| (a.begun, &a.id).cmp(&(b.begun, &b.id)));
        logins
    }

    /// Ends a login; only one of `user` if that is given.
    ///
    /// *Errors*: there is no such login.
    pub(crate) fn end(&self, id: &str, user: Option<&Name>) -> Result<(), Refusal> {
        let mut logins = self.all();
        let before = logins.len();
        // A login of another user counts as unknown.
        logins.retain(|_, login| login.id != id || user.is_some_and(|user| login.user != *user));
        if logins.len() < before {
            return Ok(());
        }
        let message = format!("login {} does not exist", id.escape_debug());
        Err(Refusal::new(code::LOGIN_UNKNOWN, message, "see blockyard user logins"))
    }

    /// Ends all logins of the user except one.
    pub(crate) fn end_others(&self, user: &Name, but: Option<&str>) {
        self.all().retain(|_, login| login.user != *user || but == Some(&login.id));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Login>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_795_000_000);

    fn open(logins: &Logins, user: &str, now: Timestamp) -> (String, Login) {
        let user = user.parse().expect("a name");
        logins.open(&user, IpAddr::from([10, 0, 0, 1]), "a browser\r\n", now).expect("random numbers")
    }

    #[test]
    fn login_ends_when_it_is_idle_and_after_twelve_hours_whatever_it_does() {
        let logins = Logins::default();
        let (cookie, login) = open(&logins, "alice", NOW);
        assert_eq!((cookie.len(), login.csrf.len(), login.agent.as_str()), (64, 64, "a browser"));
        assert!(logins.find(&cookie, true, NOW.plus(IDLE_SECONDS - 1)).is_some());
        assert!(logins.find(&cookie, false, NOW.plus(2 * IDLE_SECONDS - 2)).is_some(), "it was alive meanwhile");
        assert!(
            logins.find(&cookie, false, NOW.plus(2 * IDLE_SECONDS - 1)).is_none(),
            "what asks by itself keeps nothing alive"
        );
        let (cookie, _) = open(&logins, "alice", NOW);
        let mut now = NOW;
        while now < NOW.plus(LASTS_SECONDS) {
            assert!(logins.find(&cookie, true, now).is_some());
            now = now.plus(600);
        }
        assert!(logins.find(&cookie, true, now).is_none());
        assert!(logins.list(now).is_empty());
    }

    #[test]
    fn logins_are_ended_one_by_one_or_all_but_one_and_only_by_whose_they_are() {
        let logins = Logins::default();
        let (alice, bob) = ("alice".parse().expect("a name"), "bob".parse().expect("a name"));
        let (kept, own) = open(&logins, "alice", NOW);
        let (other, another) = open(&logins, "alice", NOW);
        let (bobs, of_bob) = open(&logins, "bob", NOW);
        logins.end(&of_bob.id, Some(&alice)).expect_err("not hers");
        logins.end_others(&alice, Some(&own.id));
        assert!(logins.find(&kept, true, NOW).is_some() && logins.find(&other, true, NOW).is_none());
        assert!(logins.find(&bobs, true, NOW).is_some() && !logins.lives(&another.id, NOW));
        logins.end(&of_bob.id, Some(&bob)).expect("his own");
        assert!(logins.find(&bobs, true, NOW).is_none());
    }

    #[test]
    fn logins_are_bounded_and_the_most_silent_makes_room() {
        let logins = Logins::default();
        let first = open(&logins, "alice", NOW).0;
        let second = open(&logins, "alice", NOW.plus(1)).0;
        logins.find(&first, true, NOW.plus(2));
        for _ in 2..=ONE_MAX {
            open(&logins, "alice", NOW.plus(3));
        }
        assert!(logins.find(&first, true, NOW.plus(3)).is_some() && logins.find(&second, true, NOW.plus(3)).is_none());
        for n in 0..ALL_MAX {
            open(&logins, &format!("u{n}"), NOW.plus(4));
        }
        assert_eq!(logins.list(NOW.plus(4)).len(), ALL_MAX);
    }
}
