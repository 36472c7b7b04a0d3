//! Users with passwords, their login sessions, API tokens, and one-time links for a first password.

mod document;
mod links;
mod logins;
mod password;
mod registry;
mod tokens;
mod totp;

pub(crate) use logins::{IDLE_SECONDS, LASTS_SECONDS, Login};

use crate::request::{NewUser, Password, SetUser};
use control::{Control, now};
use links::Links;
use logins::Logins;
use model::{
    LoginReport, Name, Refusal, Role, SecondFactorReport, Secret, Subject, SubjectKind, Timestamp, UserReport, code,
    event,
};
use password::{PasswordHash, PasswordHasher};
use registry::{Registry, SecondFactor, User, UserStore};
use sha3::{Digest, Sha3_256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use throttle::{Attempt, LoginThrottle, Policy};
use tokens::Used;

/// Throttle policy for wrong passwords.
const LOGIN_BACKOFF: Policy = Policy {
    free_failures: 0,
    first_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(30),
    of_name_max: 4,
    of_address_max: 1,
    known_max: 1,
    expiry: Duration::from_secs(15 * 60),
    remembered_max: 4096,
};
/// Failures from which on each doubling raises an event.
const FAILURES_REPORTED_MIN: u32 = 5;

/// Users, tokens, logins and links of the array.
pub(crate) struct Users {
    control: Arc<Control>,
    store: UserStore,
    hasher: PasswordHasher,
    logins: Logins,
    links: Links,
    throttle: LoginThrottle<Name>,
    /// Instant from which the throttle counts time.
    since: Instant,
    used: Used,
    /// Last used time step of each user's second factor; a code is valid once.
    steps: Mutex<BTreeMap<Name, u64>>,
    /// Second factors that were offered and not confirmed yet.
    offered: Mutex<BTreeMap<Name, Secret>>,
}

/// A new login with its cookie, which is returned only once.
pub(crate) struct NewLogin {
    pub cookie: String,
    pub login: Login,
}

impl Users {
    /// Loads users and tokens from the state; nobody is logged in.
    ///
    /// *Errors*: they cannot be read.
    pub(crate) fn open(control: Arc<Control>) -> Result<Self, Refusal> {
        let book = UserStore::open(control.clone())?;
        let (mill, logins, links, used) = Default::default();
        let (throttle, since) = (LoginThrottle::new(LOGIN_BACKOFF), Instant::now());
        let (steps, offered) = Default::default();
        Ok(Self { control, store: book, hasher: mill, logins, links, throttle, since, used, steps, offered })
    }

    /// Starts a password check for `user` from `address`.
    ///
    /// *Errors*: `ASKED_TOO_OFTEN` while another failed login from there, or of this user, is being delayed.
    fn begin_attempt(&self, address: IpAddr, user: &Name) -> Result<Attempt<Name>, Refusal> {
        // By the monotonic clock, which nobody can set.
        self.throttle.begin(address, user, self.since.elapsed()).ok_or_else(|| {
            let hint = "wait for the response to the previous attempt";
            Refusal::new(code::ASKED_TOO_OFTEN, "too many failed logins", hint)
        })
    }

    /// Logs `name` in with a password, and a code if it has a second factor.
    ///
    /// *Errors*: the password or code is wrong, and the answer is delayed; or a code is required and was not sent.
    pub(crate) async fn log_in(
        &self,
        name: &Name,
        password: Password,
        number: Option<&str>,
        (address, agent): (IpAddr, &str),
    ) -> Result<NewLogin, Refusal> {
        // Before anything expensive: an attempt that is refused costs nothing.
        let attempt = self.begin_attempt(address, name)?;
        let registry = self.store.now();
        // From a snapshot, which stays as it is while the hash is computed.
        let user = registry.users.get(name);
        let kept = user.and_then(|user| user.password.as_ref());
        // For an unknown user the hash is computed as well, so that the duration does not reveal which users exist.
        let right = self.hasher.verify(kept, password.0).await?;
        // The password is judged first: the need for a code is revealed only to those who know the password.
        let wrong = match (right, user.and_then(|user| user.second_factor.as_ref()), number) {
            (true, None, _) => None,
            (true, Some(_), None) => {
                let hint = "send the one-time code of the authenticator app, too";
                return Err(Refusal::new(code::SECOND_FACTOR_WANTED, "a second factor is required", hint));
            }
            (true, Some(factor), Some(number)) if self.number_is_good(name, factor, number) => None,
            // The password was right, so this reveals nothing new.
            (true, ..) => Some("the one-time code is wrong"),
            (false, ..) => Some("wrong user name or password"),
        };
        let Some(wrong) = wrong else {
            // The user may have been changed while the hash was computed. Under the lock of the store: a later change
            // ends this session like any other.
            let opened = self.store.change(|registry| {
                admit_unchanged(user, registry.users.get(name))?;
                self.open_session(name, address, agent)
            })?;
            attempt.succeeded();
            return Ok(opened);
        };
        let penalty = attempt.failed(self.since.elapsed());
        tracing::warn!(user = %name, %address, failures = penalty.failures, "a console login failed");
        // At 5, 10, 20, 40 and so on: an attack must not fill the event list.
        if penalty.failures >= FAILURES_REPORTED_MIN
            && (penalty.failures / FAILURES_REPORTED_MIN).is_power_of_two()
            && penalty.failures % FAILURES_REPORTED_MIN == 0
        {
            let sentence = format!("console logins of {name}, or from {address}, failed {} times", penalty.failures);
            let node = Subject::new(SubjectKind::Node, &self.control.core.settings().node);
            self.control.core.raise(event::LOGINS_FAIL, node, sentence);
        }
        // The delay is the throttle; `attempt` keeps further attempts waiting meanwhile.
        tokio::time::sleep(penalty.delay).await;
        drop(attempt);
        Err(Refusal::new(code::LOGIN_FAILED, wrong, "try again, or ask root for blockyard web link"))
    }

    fn open_session(&self, name: &Name, address: IpAddr, agent: &str) -> Result<NewLogin, Refusal> {
        let (cookie, login) = self.logins.open(name, address, agent, now())?;
        tracing::info!(user = %name, %address, "logged in to the console");
        Ok(NewLogin { cookie, login })
    }

    /// Checks a code of the second factor and marks it as used.
    fn number_is_good(&self, name: &Name, factor: &SecondFactor, number: &str) -> bool {
        // Checked and marked under one lock, so that two logins cannot use one code.
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let step = totp::step_of(factor.secret.expose(), number, now().unix(), steps.get(name).copied());
        step.map(|step| steps.insert(name.clone(), step)).is_some()
    }

    /// Creates a one-time link; returns its secret and its expiry.
    ///
    /// *Errors*: the user does not exist.
    pub(crate) fn make_link(&self, user: Option<Name>, role: Option<Role>) -> Result<(String, Timestamp), Refusal> {
        if let Some(user) = &user {
            self.store.now().user(user)?;
        }
        self.links.make(user, role.unwrap_or(Role::Admin), now())
    }

    /// Uses a link: sets the password of its user, or creates the user `name`, and logs the user in.
    ///
    /// *Errors*: the link is invalid, the name is taken or missing, or the password is weak; the link then stays valid.
    pub(crate) async fn use_link(
        &self,
        secret: &str,
        name: Option<Name>,
        password: Password,
        (address, agent): (IpAddr, &str),
    ) -> Result<NewLogin, Refusal> {
        // Hashing is expensive, so the link is checked first.
        let known = self.links.look(secret, now())?;
        let name = match (known.user, name) {
            (Some(user), None) => user,
            (Some(user), Some(name)) if user == name => user,
            (None, Some(name)) => name,
            (Some(user), Some(_)) => {
                let message = format!("this link is for user {user}");
                return Err(Refusal::new(code::LINK_ENDED, message, "do not change the name"));
            }
            (None, None) => {
                return Err(Refusal::new(code::VALUE_MISSING, "the new user has no name", "choose a name"));
            }
        };
        password::admit(&password.0, name.as_str())?;
        let kept = self.hasher.hash(password.0).await?;
        // The link is used up only if the user was stored, under one lock.
        self.links.take(secret, now(), |link| {
            self.store.change(|registry| {
                if link.user.is_none() {
                    registry.add_user(&name, User::new(link.role, now()))?;
                }
                let user = registry.user_mut(&name)?;
                (user.password, user.password_set) = (Some(kept), Some(now()));
                Ok(())
            })
        })?;
        // A password that was set by a link ends sessions that somebody else may have opened.
        self.logins.end_others(&name, None);
        self.open_session(&name, address, agent)
    }

    /// Reports of all users.
    pub(crate) fn users(&self) -> Vec<UserReport> {
        let logins = self.logins.list(now());
        let report = |(name, user): (&Name, &User)| report(name, user, &logins);
        self.store.now().users.iter().map(report).collect()
    }

    /// Report of one user.
    ///
    /// *Errors*: there is no such user.
    pub(crate) fn user(&self, name: &Name) -> Result<UserReport, Refusal> {
        Ok(report(name, self.store.now().user(name)?, &self.logins.list(now())))
    }

    /// Adds a user, with a password or without one until a link is used.
    ///
    /// *Errors*: the name is taken, or the password is weak.
    pub(crate) async fn add_user(&self, request: NewUser) -> Result<UserReport, Refusal> {
        let NewUser { name, role, password } = request;
        let kept = match password {
            Some(password) => {
                password::admit(&password.0, name.as_str())?;
                Some(self.hasher.hash(password.0).await?)
            }
            None => None,
        };
        let password_set = kept.is_some().then(now);
        let user = User { password: kept, password_set, ..User::new(role, now()) };
        self.store.change(|registry| registry.add_user(&name, user))?;
        self.user(&name)
    }

    /// Changes a user. A new password or role ends its logins except `own`.
    ///
    /// *Errors*: there is no such user, the password is weak, or the last admin would be lost.
    pub(crate) async fn set_user(
        &self,
        name: &Name,
        request: SetUser,
        own: Option<&str>,
    ) -> Result<UserReport, Refusal> {
        self.set_proved(name, request, own, None).await
    }

    /// Changes a user as [`Self::set_user`] does. The change is refused if its credentials are no longer those of
    /// `proved`, against which the password was checked.
    async fn set_proved(
        &self,
        name: &Name,
        request: SetUser,
        own: Option<&str>,
        proved: Option<&Registry>,
    ) -> Result<UserReport, Refusal> {
        let SetUser { role, password, no_second_factor } = request;
        let kept = match password {
            Some(password) => {
                password::admit(&password.0, name.as_str())?;
                // Checked before the expensive hash.
                self.store.now().user(name)?;
                Some(self.hasher.hash(password.0).await?)
            }
            None => None,
        };
        // Before `kept` is moved into the registry.
        let ends = kept.is_some() || role.is_some();
        self.store.change(|registry| {
            if let Some(proved) = proved {
                admit_unchanged(proved.users.get(name), registry.users.get(name))?;
            }
            if let Some(role) = role {
                admit_fewer_admins(registry, name, role)?;
            }
            let user = registry.user_mut(name)?;
            user.role = role.unwrap_or(user.role);
            if let Some(kept) = kept {
                (user.password, user.password_set) = (Some(kept), Some(now()));
            }
            if no_second_factor {
                user.second_factor = None;
            }
            Ok(())
        })?;
        // A role or password that was changed must not be in use by an older session.
        if ends {
            self.logins.end_others(name, own);
            // An open link could replace the new password.
            self.links.forget(name);
        }
        self.user(name)
    }

    /// Removes a user with its logins, links and tokens.
    ///
    /// *Errors*: there is no such user, or the last admin would be lost.
    pub(crate) fn remove_user(&self, name: &Name) -> Result<(), Refusal> {
        self.store.change(|registry| {
            registry.user(name)?;
            // Removing counts as the least role, so the same rule protects the last admin.
            admit_fewer_admins(registry, name, Role::Viewer)?;
            registry.remove_user(name)
        })?;
        self.logins.end_others(name, None);
        self.links.forget(name);
        Ok(())
    }

    /// Changes the password of a logged-in user after checking the old one; its other logins end.
    ///
    /// *Errors*: the old password is wrong, and the answer is delayed; or the new one is weak.
    pub(crate) async fn change_own_password(
        &self,
        login: &Login,
        old: Password,
        new: Password,
    ) -> Result<UserReport, Refusal> {
        let proved = self.prove(login, old).await?;
        let request = SetUser { password: Some(new), ..SetUser::default() };
        self.set_proved(&login.user, request, Some(&login.id), Some(&proved)).await
    }

    /// Checks the password of a logged-in user again: an unattended session must not be enough for this operation.
    /// Returns the registry against which it was checked.
    async fn prove(&self, login: &Login, password: Password) -> Result<Arc<Registry>, Refusal> {
        // Guessing the password in an open session is throttled like a login.
        let attempt = self.begin_attempt(login.address, &login.user)?;
        let registry = self.store.now();
        if self.hasher.verify(registry.user(&login.user)?.password.as_ref(), password.0).await? {
            return Ok(registry);
        }
        tokio::time::sleep(attempt.failed(self.since.elapsed()).delay).await;
        Err(Refusal::new(code::PASSWORD_WRONG, "the current password is wrong", "try again"))
    }

    /// Offers a second factor, which takes effect when a code of it was confirmed.
    ///
    /// *Errors*: the password is wrong, or the system gives no random numbers.
    pub(crate) async fn offer_second_factor(
        &self,
        login: &Login,
        password: Password,
    ) -> Result<SecondFactorReport, Refusal> {
        self.prove(login, password).await?;
        let secret = control::random::<{ totp::SECRET_BYTES }>()?;
        // In memory only, until it is confirmed.
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        offered.insert(login.user.clone(), Secret::of(secret.to_vec()));
        let link = totp::link(&secret, login.user.as_str(), self.control.core.settings().node.as_str());
        Ok(SecondFactorReport { secret: totp::base32(&secret), link })
    }

    /// Confirms the offered second factor.
    ///
    /// *Errors*: none was offered, or the code is wrong.
    pub(crate) fn confirm_second_factor(&self, login: &Login, number: &str) -> Result<UserReport, Refusal> {
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        let secret = offered.get(&login.user).cloned();
        // No code of an offered factor was used before.
        let step = secret.as_ref().and_then(|secret| totp::step_of(secret.expose(), number, now().unix(), None));
        let (Some(secret), Some(step)) = (secret, step) else {
            let hint = "send the current code of the authenticator app; if it shows none, start the enrollment again";
            return Err(Refusal::new(code::PASSWORD_WRONG, "the one-time code is wrong", hint));
        };
        self.store.change(|registry| {
            let user = registry.user_mut(&login.user)?;
            user.second_factor = Some(SecondFactor { secret });
            Ok(())
        })?;
        offered.remove(&login.user);
        // The code that confirmed it must not be valid for a login.
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).insert(login.user.clone(), step);
        // Other sessions were opened without the second factor.
        self.logins.end_others(&login.user, Some(&login.id));
        self.user(&login.user)
    }

    /// Removes the second factor.
    ///
    /// *Errors*: the password is wrong.
    pub(crate) async fn drop_second_factor(&self, login: &Login, password: Password) -> Result<UserReport, Refusal> {
        let proved = self.prove(login, password).await?;
        let request = SetUser { no_second_factor: true, ..SetUser::default() };
        self.set_proved(&login.user, request, Some(&login.id), Some(&proved)).await
    }

    /// Login of a cookie with the present role of its user. `asked` extends the idle timeout.
    pub(crate) fn login_of(&self, cookie: &str, asked: bool) -> Option<(Login, Role)> {
        let login = self.logins.find(cookie, asked, now())?;
        // Looked up at each request, so a new role applies to open sessions at once.
        let role = self.store.now().users.get(&login.user)?.role;
        Some((login, role))
    }

    /// Open logins of `user`, or of all users.
    pub(crate) fn logins(&self, user: Option<&Name>, own: Option<&str>) -> Vec<LoginReport> {
        let all = self.logins.list(now());
        all.iter().filter(|login| user.is_none_or(|user| login.user == *user)).map(|login| login.report(own)).collect()
    }

    /// Ends a login; only one of `user` if that is given.
    ///
    /// *Errors*: there is no such login.
    pub(crate) fn end_login(&self, id: &str, user: Option<&Name>) -> Result<(), Refusal> {
        self.logins.end(id, user)
    }

    /// True while the login is valid.
    pub(crate) fn login_lives(&self, id: &str) -> bool {
        self.logins.lives(id, now())
    }
}

/// Admits the user `now` if its credentials are those of `checked`: a password that was replaced during its check
/// counts no more.
fn admit_unchanged(checked: Option<&User>, now: Option<&User>) -> Result<(), Refusal> {
    if checked.map(credentials) == now.map(credentials) {
        return Ok(());
    }
    Err(Refusal::new(code::LOGIN_FAILED, "the credentials of the user were changed at the same time", "log in again"))
}

fn credentials(user: &User) -> (Option<&PasswordHash>, Option<&SecondFactor>) {
    (user.password.as_ref(), user.second_factor.as_ref())
}

/// Admits a role for the user. An array that has an admin who can log in must keep one.
fn admit_fewer_admins(registry: &Registry, name: &Name, role: Role) -> Result<(), Refusal> {
    let others = registry.users.iter().any(|(other, user)| other != name && is_admin(user));
    if role == Role::Admin || others || !registry.users.get(name).is_some_and(is_admin) {
        return Ok(());
    }
    let message = format!("{name} is the last admin that can log in");
    Err(Refusal::new(code::LAST_ADMIN, message, "give another user the role admin first"))
}

/// True for an admin who can log in.
fn is_admin(user: &User) -> bool {
    user.role == Role::Admin && user.password.is_some()
}

fn report(name: &Name, user: &User, logins: &[Login]) -> UserReport {
    UserReport {
        name: name.clone(),
        role: user.role,
        second_factor: user.second_factor.is_some(),
        created: user.created,
        password_set: user.password_set,
        logins: logins.iter().filter(|login| login.user == *name).count(),
    }
}

/// Digest by which a secret is stored. A fast hash suffices, because these secrets have 256 random bits.
fn digest(secret: &str) -> [u8; 32] {
    Sha3_256::digest(secret.as_bytes()).into()
}

/// Code that an authenticator app with this secret shows now.
#[cfg(test)]
pub(crate) fn shown_number(base32: &str) -> String {
    totp::shown(&totp::from_base32(base32).expect("a secret"), now().unix())
}

#[cfg(test)]
mod tests;
