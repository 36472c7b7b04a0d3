//! Probe of the login, made once before the checks.

use crate::session::{LoginOutcome, Session};
use crate::{Finding, TestTarget};
use iscsi::LoginStatus;

/// Reason for which no check that needs a login can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    /// The portal is not reachable.
    #[error("{0}; look whether the target runs there, and whether something in between keeps us away from it")]
    Unreachable(String),
    /// The target refuses the login.
    #[error("{target} refuses the login of {initiator}: {status}; {advice}", advice = advice(*status))]
    Refused {
        /// Name of the target.
        target: String,
        /// Name of the initiator.
        initiator: String,
        /// Status in the Login Response.
        status: LoginStatus,
    },
}

/// Logs in once; protocol errors of the target are not reported here, because the checks find them.
///
/// *Errors*: a sentence for the operator.
pub fn probe_login(aim: &TestTarget) -> Result<(), LoginFailure> {
    match Session::enter(aim, |_| {}) {
        Ok(LoginOutcome::Refused(status)) => Err(LoginFailure::Refused {
            target: aim.target.as_str().to_owned(),
            initiator: aim.initiator.as_str().to_owned(),
            status,
        }),
        Err(Finding::Untried(why)) => Err(LoginFailure::Unreachable(why)),
        Ok(LoginOutcome::In(_) | LoginOutcome::Closed) | Err(Finding::Wrong(_)) => Ok(()),
    }
}

/// Returns the advice to the operator for a status.
fn advice(status: LoginStatus) -> &'static str {
    match status {
        LoginStatus::AuthenticationFailure => {
            "give the name and the secret that the target knows, with --chap-user and --chap-secret-file"
        }
        LoginStatus::AuthorizationFailure => {
            "let this initiator in at the target, or name one that it knows with --initiator"
        }
        LoginStatus::NotFound => "look at the target's name, and whether it shows this initiator anything",
        LoginStatus::TargetError | LoginStatus::ServiceUnavailable | LoginStatus::OutOfResources => {
            "look at the target, and try again"
        }
        _ => "look at what the target says of it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_that_is_refused_is_a_sentence_with_what_to_do() {
        let refused = |status| {
            let (target, initiator) = ("iqn.2026-11.x:a".to_owned(), "iqn.2026-11.x:me".to_owned());
            LoginFailure::Refused { target, initiator, status }.to_string()
        };
        assert_eq!(
            refused(LoginStatus::AuthenticationFailure),
            "iqn.2026-11.x:a refuses the login of iqn.2026-11.x:me: authentication failure (0201); give the name and \
             the secret that the target knows, with --chap-user and --chap-secret-file"
        );
        assert!(refused(LoginStatus::NotFound).contains("look at the target's name"));
    }

    #[test]
    fn portal_where_nobody_listens_is_said_to_be_out_of_reach() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let portal = listener.local_addr().expect("it has an address");
        drop(listener);
        let aim: TestTarget = format!("iscsi://{portal}/iqn.2026-11.x:a").parse().expect("an aim");
        let shut = probe_login(&aim).expect_err("nobody listens");
        assert!(matches!(shut, LoginFailure::Unreachable(_)), "{shut}");
        assert!(shut.to_string().contains("look whether the target runs there"), "{shut}");
    }
}
