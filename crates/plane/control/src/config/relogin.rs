//! Check after a change: whether given initiators are logged in again, with all volumes that they had mapped
//! before.

use crate::config::Configuration;
use crate::state::State;
use model::{Iqn, Refusal, SessionKind, SessionReport, Span, VolumeId, VolumeName, code};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Default time limit for the initiators to log in again.
const WITHIN: Duration = Duration::from_secs(60);

/// An initiator that must be logged in, and the volumes that it must have mapped.
pub(super) struct ExpectedInitiator {
    initiator: Iqn,
    saw: BTreeMap<VolumeId, VolumeName>,
}

impl Configuration {
    /// Records the volumes that these initiators have mapped now.
    pub(super) async fn expected_initiators(&self, initiators: &[Iqn]) -> Result<Vec<ExpectedInitiator>, Refusal> {
        if initiators.is_empty() {
            return Ok(Vec::new());
        }
        let (state, sessions) = (self.core.state(), self.sessions.list().await?);
        let seen = |initiator: &Iqn| ExpectedInitiator {
            initiator: initiator.clone(),
            saw: mapped_volumes(initiator, &state, &sessions),
        };
        Ok(initiators.iter().map(seen).collect())
    }

    /// Waits until each initiator is logged in with at least its recorded volumes, up to the time limit.
    ///
    /// *Errors*: an initiator is missing; immediately where the change has taken a volume from it, which no
    /// login brings back.
    pub(super) async fn wait_for_relogin(
        &self,
        awaited: &[ExpectedInitiator],
        within: Option<Span>,
    ) -> Result<(), Refusal> {
        let until = Instant::now() + within.map_or(WITHIN, |span| Duration::from_millis(span.millis()));
        loop {
            let (state, sessions) = (self.core.state(), self.sessions.list().await?);
            let lacks = awaited.iter().find_map(|one| Some((one, one.missing_access(&state, &sessions)?)));
            let Some((one, lack)) = lacks else { return Ok(()) };
            if lack.permanent || Instant::now() >= until {
                let message = format!("initiator {} {}", one.initiator, lack.what);
                let hint = "all changes were rolled back; see blockyard host explain and the log of the host";
                // Distinct codes: a later attempt may succeed with a late initiator, but not with one that lost
                // its mapping.
                let code = if lack.permanent { code::INITIATOR_AWAY } else { code::INITIATOR_LATE };
                return Err(Refusal::new(code, message, hint));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

struct MissingAccess {
    what: String,
    /// True when waiting cannot help.
    permanent: bool,
}

impl ExpectedInitiator {
    fn missing_access(&self, state: &State, sessions: &[SessionReport]) -> Option<MissingAccess> {
        // An initiator that no host names belongs to the host for any initiator.
        let presented: BTreeSet<VolumeId> = state
            .hosts
            .iter()
            .find(|(_, host)| host.initiators.contains(&self.initiator))
            .or_else(|| state.hosts.iter().find(|(_, host)| host.any))
            .map(|(name, _)| state.mappings_of(name).map(|record| record.volume_id).collect())
            .unwrap_or_default();
        // Decided by the state alone, without waiting for a login.
        let lost = self.saw.iter().find(|(id, _)| !presented.contains(id));
        if let Some((_, volume)) = lost {
            return Some(MissingAccess { what: format!("would lose volume {volume}"), permanent: true });
        }
        if !of(&self.initiator, sessions).any(|_| true) {
            return Some(MissingAccess { what: "has not logged in again".to_owned(), permanent: false });
        }
        let sees = mapped_volumes(&self.initiator, state, sessions);
        let unseen = self.saw.iter().find(|(id, _)| !sees.contains_key(id));
        unseen.map(|(_, volume)| MissingAccess {
            what: format!("has no access to volume {volume} yet"),
            permanent: false,
        })
    }
}

fn of<'a>(initiator: &'a Iqn, sessions: &'a [SessionReport]) -> impl Iterator<Item = &'a SessionReport> {
    // A discovery session has no LUNs.
    let is_it =
        |session: &&SessionReport| session.kind == SessionKind::Normal && session.initiator == initiator.as_str();
    sessions.iter().filter(is_it)
}

/// Returns the volumes that the initiator has mapped in all of its sessions together.
fn mapped_volumes(initiator: &Iqn, state: &State, sessions: &[SessionReport]) -> BTreeMap<VolumeId, VolumeName> {
    let mut seen = BTreeMap::new();
    for session in of(initiator, sessions) {
        let Some(host) = &session.host else { continue };
        // The LUNs of the session as the data plane reports them count, not only those that the state maps.
        let shown = state.mappings_of(host).filter(|record| {
            let target = state.targets.get(&record.target).map(|target| target.iqn.as_str());
            session.target.as_deref() == target && session.luns.contains(&record.lun)
        });
        seen.extend(shown.map(|record| (record.volume_id, record.volume.clone())));
    }
    seen
}
