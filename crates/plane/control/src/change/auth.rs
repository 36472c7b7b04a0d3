//! CHAP authentication of hosts and of discovery sessions.

use crate::access::{Access, Confirmation};
use crate::core::Core;
use crate::request::{NewChap, SetAuth, SetDiscovery};
use crate::state::{ChapRecord, CredentialsRecord, State};
use crate::view::AuthReport;
use model::{Refusal, code};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requested change of CHAP credentials.
#[derive(Default)]
pub(crate) struct CredentialsChange {
    pub chap: Option<NewChap>,
    pub mutual_chap: Option<NewChap>,
    /// Removes the credentials of both directions, except those given.
    pub no_chap: bool,
    /// Removes mutual CHAP, except what is given.
    pub no_mutual_chap: bool,
}

/// Authentication policy of all hosts and of discovery.
pub struct Authentication {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
}

impl Authentication {
    /// Reports the authentication policy.
    #[must_use]
    pub fn report(&self) -> AuthReport {
        AuthReport::of(&self.core.state().auth)
    }

    /// Changes the authentication policy from the next login on; existing sessions stay.
    ///
    /// *Errors*: the CHAP settings are inconsistent.
    pub async fn set(&self, request: SetAuth) -> Result<AuthReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let mut next = State::clone(&self.core.state());
        let auth = &mut next.auth;
        auth.weakest = request.min_algorithm.unwrap_or(auth.weakest);
        match request.discovery {
            None => {}
            Some(SetDiscovery::Host {}) => auth.discovery = None,
            Some(SetDiscovery::Open {}) => auth.discovery = Some(CredentialsRecord::default()),
            Some(SetDiscovery::Own { chap, mutual_chap, no_mutual_chap }) => {
                let change = CredentialsChange { chap, mutual_chap, no_mutual_chap, no_chap: false };
                let before = auth.discovery.take().unwrap_or_default();
                let node = self.core.settings.node.as_str();
                let after = before.changed(change, "discovery", node)?;
                // Discovery with credentials of its own, but without a secret, would be open by mistake.
                if after.chap.is_none() {
                    return Err(Refusal::new(
                        code::CHAP_INVALID,
                        "no credentials were given for discovery",
                        "give its CHAP secret, or --open or --as-host",
                    ));
                }
                auth.discovery = Some(after);
            }
        }
        // On a copy of the whole state, because the secrets of discovery are compared with those of all hosts.
        admit_credentials(&next)?;
        let auth = next.auth;
        let report = AuthReport::of(&auth);
        self.access.commit(&turn, Confirmation::forced(false), |state| state.auth = auth).await?;
        Ok(report)
    }
}

impl CredentialsRecord {
    /// Applies the change; `own` and `ours` are the default CHAP names.
    ///
    /// *Errors*: a CHAP name or secret is invalid, or the secret is missing.
    pub(crate) fn changed(self, change: CredentialsChange, own: &str, ours: &str) -> Result<Self, Refusal> {
        let chap = if change.no_chap { None } else { self.chap };
        // Mutual CHAP depends on CHAP: a target authenticates itself only to an initiator that does so, too.
        let mutual_chap = if change.no_chap || change.no_mutual_chap { None } else { self.mutual_chap };
        Ok(Self {
            chap: renewed(chap, change.chap, own)?,
            mutual_chap: renewed(mutual_chap, change.mutual_chap, ours)?,
        })
    }
}

/// Updates one direction of CHAP; omitted parts stay as they were.
fn renewed(before: Option<ChapRecord>, given: Option<NewChap>, user: &str) -> Result<Option<ChapRecord>, Refusal> {
    let Some(given) = given else { return Ok(before) };
    let secret = given.secret.map(crate::request::SecretText::secret).transpose()?;
    let (known_user, known_secret, known_demand) = match before {
        Some(before) => (Some(before.user), Some(before.secret), before.demand),
        None => (None, None, None),
    };
    // Omitted parts keep their values, so that a new secret does not need the name again.
    let user = given.user.or(known_user).unwrap_or_else(|| user.to_owned());
    admit_user(&user)?;
    let secret = secret.or(known_secret).ok_or_else(|| {
        Refusal::new(
            code::CHAP_INVALID,
            format!("CHAP as {user} has no secret"),
            "give a file that contains only the secret with --chap-secret-file or --mutual-secret-file",
        )
    })?;
    Ok(Some(ChapRecord { user, secret, demand: given.demand.or(known_demand) }))
}

/// Admits the credentials of both directions, of all hosts and of discovery. A secret of this array must not be
/// the secret of any initiator: that initiator could answer our challenge by sending it back to us. *Source*:
/// RFC 7143 §9.2.1.
pub(crate) fn admit_credentials(state: &State) -> Result<(), Refusal> {
    let hosts = state.hosts.iter().map(|(name, record)| (format!("host {name}"), &record.proof));
    let discovery = state.auth.discovery.iter().map(|proof| ("discovery".to_owned(), proof));
    let proofs: Vec<(String, &CredentialsRecord)> = hosts.chain(discovery).collect();
    let mut proven: BTreeMap<&[u8], &str> = BTreeMap::new();
    // Reversed, so that among equal secrets the first host is the one named in the refusal.
    for (who, proof) in proofs.iter().rev() {
        proven.extend(proof.chap.iter().map(|own| (own.secret.expose(), who.as_str())));
    }
    for (who, proof) in &proofs {
        let Some(ours) = &proof.mutual_chap else { continue };
        if proof.chap.is_none() {
            return Err(Refusal::new(
                code::CHAP_INVALID,
                format!("{who} has a mutual CHAP secret but no CHAP secret"),
                "give both secrets",
            ));
        }
        if let Some(&other) = proven.get(ours.secret.expose()) {
            let message = match who == other {
                true => format!("{who} has the same CHAP secret in both directions"),
                false => format!("the mutual CHAP secret of {who} is the CHAP secret of {other}"),
            };
            let hint = "use different secrets, or a reflected challenge would authenticate an attacker";
            return Err(Refusal::new(code::SECRETS_EQUAL, message, hint));
        }
    }
    Ok(())
}

/// Admits a CHAP name: 1 to 255 bytes of text without control characters, which is what one login key can
/// carry.
fn admit_user(user: &str) -> Result<(), Refusal> {
    if (1..=255).contains(&user.len()) && !user.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("a CHAP name of {} bytes is not valid", user.len());
    Err(Refusal::new(code::CHAP_INVALID, message, "use 1 to 255 bytes of text without control characters"))
}
