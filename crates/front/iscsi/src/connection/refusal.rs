//! Denied logins: reasons and remedies, reported to the operator.

use super::Connection;
use crate::scsi_unit::{Completed, PendingCommand, ScsiUnit};
use iscsi::{AuthFailure, CloseReason, IscsiName, LoginStatus, SessionType};
use model::{ProofLack, RefusedLogin, RefusedWhy, Subject, SubjectKind, Timestamp, event};
use shard::{Time, World};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Number of failed attempts after which an event about password guessing is raised; raised again at each doubling.
const GUESSING_FROM: u32 = 5;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    /// Reports a denied login, which may have a cause that an operator can correct.
    pub(super) fn report_denied_login(&mut self, reason: CloseReason) {
        // A redirection is not a failure: the initiator logs in at the other portal.
        let failed = self.machine.failed_login().filter(|failed| failed.status != LoginStatus::TargetMovedTemporarily);
        let Some(failed) = failed.cloned() else { return };
        // The reason found by admission is more specific than the status of the protocol.
        let why = match (self.why.take(), reason, failed.rule) {
            (Some(why), _, _) => why,
            (None, CloseReason::AuthenticationFailed(why), _) => self.auth_failure_reason(why),
            (None, _, Some(rule)) => RefusedWhy::Protocol { key: failed.key.map(str::to_owned), rule },
            (None, _, None) => RefusedWhy::Other,
        };
        let held_back = match reason {
            // Only a wrong response can be a guess of the secret; all other failures are configuration errors.
            CloseReason::AuthenticationFailed(AuthFailure::WrongCredentials) => self.record_failure(),
            _ => Duration::ZERO,
        };
        let text = |name: IscsiName| name.as_str().to_owned();
        let login = RefusedLogin {
            initiator: failed.initiator_name.map(text),
            address: self.ends.peer.ip().to_canonical(),
            target: failed.target_name.map(text),
            reason: why,
            status: failed.status.to_string(),
            delay_ms: u64::try_from(held_back.as_millis()).unwrap_or(u64::MAX),
            count: 1,
            last: Timestamp::from_unix(self.shard.world.unix_seconds()),
        };
        self.note_refusal(login);
    }

    /// Reports a denied login in the list of denied logins, as an event and in the log; all three are bounded.
    fn note_refusal(&self, login: RefusedLogin) {
        let address = login.address;
        let asker = login.initiator.clone().unwrap_or_else(|| address.to_string());
        let (status, reason) = (&login.status, login.reason());
        let why = if login.reason == RefusedWhy::Other { String::new() } else { format!("{reason}; ") };
        let remedy = login.remedy();
        let sentence = format!("login of initiator {asker} at {address} denied: {why}{status}; {remedy}");
        let (initiator, target) = (login.initiator.as_deref().unwrap_or("-"), login.target.as_deref().unwrap_or("-"));
        // The log is rate-limited for each call site: messages caused by unknown initiators must not suppress those
        // about known hosts.
        match login.reason {
            RefusedWhy::Protocol { .. } => {
                tracing::warn!(%address, initiator, target, status, reason, "login denied: protocol error");
            }
            RefusedWhy::UnknownInitiator => {
                tracing::warn!(%address, initiator, target, status, reason, "login denied: unknown initiator");
            }
            _ => tracing::warn!(%address, initiator, target, status, reason, "login denied"),
        }
        self.shard.registry.refuse(login);
        self.shard.engine.raise(event::LOGIN_REFUSED, Subject::new(SubjectKind::Host, &asker), sentence);
    }

    /// Records a wrong CHAP response as a possible guess. Returns the delay of the answer.
    fn record_failure(&mut self) -> Duration {
        let now = self.shard.world.now();
        // Without an attempt there was no CHAP, so nothing was guessed.
        let (Some(attempt), Some(asker)) = (&self.attempt, &self.login_identity) else { return Duration::ZERO };
        let penalty = attempt.failed(now.since(Time::default()));
        let (initiator, address) = (asker.initiator_name.as_str(), self.ends.peer.ip().to_canonical());
        // At 5, 10, 20 and so on, so that a long attack does not flood the event log.
        if penalty.failures >= GUESSING_FROM
            && (penalty.failures / GUESSING_FROM).is_power_of_two()
            && penalty.failures % GUESSING_FROM == 0
        {
            let sentence = format!(
                "authentication of initiator {initiator}, or of others at {address}, failed {} times; responses \
                 are delayed",
                penalty.failures
            );
            self.shard.engine.raise(event::GUESSING, Subject::new(SubjectKind::Host, &initiator), sentence);
        }
        if !penalty.delay.is_zero() {
            self.answer_delay = Some(Box::pin(self.shard.world.sleep_until(now + penalty.delay)));
            // A held slot cannot be evicted by an ordinary login: reconnecting must not shorten the delay.
            if let Some(place) = &self.login_slot {
                place.hold();
            }
        }
        penalty.delay
    }

    /// Reason for a failed authentication.
    fn auth_failure_reason(&self, why: AuthFailure) -> RefusedWhy {
        let view = self.shard.access.borrow();
        let (how, lack) = (why.to_string(), lack_of(why));
        let Some(asker) = &self.login_identity else { return RefusedWhy::Other };
        if asker.session_type == SessionType::Discovery && view.access.auth.discovery.is_some() {
            return RefusedWhy::DiscoveryAuthenticationFailed { error: how, cause: lack };
        }
        match view.host_of(asker.initiator_name.as_str(), self.ends.peer.ip()) {
            Some(host) => RefusedWhy::AuthenticationFailed { host: host.name.clone(), error: how, cause: lack },
            None => RefusedWhy::Other,
        }
    }

    /// Reason why an authenticated login gets no session.
    pub(super) fn why_without_session(&self, status: LoginStatus) -> Option<RefusedWhy> {
        match status {
            LoginStatus::SessionDoesNotExist => Some(RefusedWhy::NoSession),
            LoginStatus::CannotIncludeInSession => Some(RefusedWhy::OtherGroup),
            LoginStatus::ServiceUnavailable => Some(RefusedWhy::NoPortal { portal: self.ends.portal }),
            LoginStatus::OutOfResources => Some(RefusedWhy::Full),
            _ => None,
        }
    }
}

/// Item that the operator must correct.
fn lack_of(why: AuthFailure) -> ProofLack {
    match why {
        AuthFailure::NoMethod => ProofLack::Method,
        AuthFailure::NoAlgorithm => ProofLack::Hash,
        AuthFailure::WrongCredentials => ProofLack::Secret,
        AuthFailure::NotMutual => ProofLack::Mutual,
        AuthFailure::MutualUnknown => ProofLack::MutualSecret,
        AuthFailure::Reflected | AuthFailure::KeysMalformed => ProofLack::Initiator,
    }
}
