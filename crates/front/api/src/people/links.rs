//! One-time links that let a user choose a password.

use super::digest;
use model::{Name, Refusal, Role, Timestamp, code};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Validity of a link in seconds.
const LASTS_SECONDS: u64 = 30 * 60;
/// Limit on open links; the oldest is dropped first.
const MAX: usize = 256;

/// Unused links by the digest of their secrets.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<BTreeMap<[u8; 32], Link>>);

/// Purpose of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// User whose password it sets; `None` if a new user chooses a name.
    pub user: Option<Name>,
    /// Role of a new user.
    pub role: Role,
    /// Expiry.
    pub until: Timestamp,
}

impl Links {
    /// Creates a link; returns its secret and its expiry.
    ///
    /// *Errors*: the system gives no random numbers.
    pub(crate) fn make(&self, user: Option<Name>, role: Role, now: Timestamp) -> Result<(String, Timestamp), Refusal> {
        let secret = control::to_hex(&control::random::<32>()?);
        let until = now.plus(LASTS_SECONDS);
        let mut links = self.all();
        // A new link replaces an older one for the same user.
        // Expired links are removed here; no timer does it.
        links.retain(|_, link| now < link.until && (user.is_none() || link.user != user));
        while links.len() >= MAX {
            let oldest = links.iter().min_by_key(|(_, link)| link.until).map(|(key, _)| *key);
            oldest.map(|key| links.remove(&key));
        }
        links.insert(digest(&secret), Link { user, role, until });
        Ok((secret, until))
    }

    /// Uses a link: it is removed if `used` succeeds.
    ///
    /// *Errors*: the link is unknown, used or expired; or those of `used`, and the link stays valid.
    pub(crate) fn take<T>(
        &self,
        secret: &str,
        now: Timestamp,
        used: impl FnOnce(&Link) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut links = self.all();
        // By its digest, so the duration of the look-up tells nothing about valid secrets.
        let key = digest(secret);
        let Some(link) = links.get(&key).filter(|link| now < link.until) else {
            return Err(ended());
        };
        // Under the lock, so that two requests cannot use the same link.
        let done = used(link)?;
        links.remove(&key);
        Ok(done)
    }

    /// Returns a valid link without using it.
    ///
    /// *Errors*: the link is unknown, used or expired.
    pub(crate) fn look(&self, secret: &str, now: Timestamp) -> Result<Link, Refusal> {
        self.all().get(&digest(secret)).filter(|link| now < link.until).cloned().ok_or_else(ended)
    }

    /// Removes the links of a user.
    pub(crate) fn forget(&self, user: &Name) {
        self.all().retain(|_, link| link.user.as_ref() != Some(user));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Refusal {
    let hint = "print a new one with blockyard web link";
    Refusal::new(code::LINK_ENDED, "this link was already used or has expired", hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_795_000_000);

    #[test]
    fn link_is_good_once_and_for_half_an_hour() {
        let links = Links::default();
        let (secret, until) = links.make(None, Role::Admin, NOW).expect("made");
        assert_eq!(until.since(NOW), 1800);
        let take = |secret: &str, now| links.take(secret, now, |link| Ok(link.role));
        assert_eq!(take(&"0".repeat(64), NOW).expect_err("a guess").code, code::LINK_ENDED);
        let weak = links.take::<()>(&secret, NOW, |_| Err(Refusal::new(code::PASSWORD_WEAK, "weak", "")));
        assert_eq!(weak.expect_err("a weak password").code, code::PASSWORD_WEAK);
        assert_eq!(take(&secret, NOW), Ok(Role::Admin), "what went wrong uses nothing up");
        take(&secret, NOW).expect_err("it was used");
        let (secret, until) = links.make(None, Role::Viewer, NOW).expect("made");
        take(&secret, until).expect_err("it has ended");
    }

    #[test]
    fn link_for_a_user_is_the_latest_alone_and_links_are_bounded() {
        let links = Links::default();
        let alice: Name = "alice".parse().expect("a name");
        let (first, _) = links.make(Some(alice.clone()), Role::Viewer, NOW).expect("made");
        let (second, _) = links.make(Some(alice.clone()), Role::Viewer, NOW).expect("made");
        links.take(&first, NOW, |_| Ok(())).expect_err("another was made since");
        links.forget(&alice);
        links.take(&second, NOW, |_| Ok(())).expect_err("she is gone");
        for _ in 0..2 * MAX {
            links.make(None, Role::Admin, NOW).expect("made");
        }
        assert_eq!(links.all().len(), MAX);
    }
}
