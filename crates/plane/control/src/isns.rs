//! Registration of targets and portals with an iSNS server, by which hosts discover the array.
//!
//! The desired registration is compared in rounds: a change is a new registration that replaces the one before.
//! Between changes the server is queried as a keep-alive; a server that has lost the registration gets it
//! again. With each query it is also asked whether another array has registered one of our target names.

mod desired;
mod duplicates;
mod exchange;

pub use duplicates::RENAME_TARGET;

use crate::change::portals::Portals;
use crate::core::Core;
use crate::notices::Notices;
use crate::request::SetIsns;
use crate::system::stopped;
use desired::DesiredRegistration;
use isns::{Entity, Request, Status, Tag};
use model::{Finding, IsnsReport, IsnsServer, IsnsState, Refusal, Subject, SubjectKind, event};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Interval between comparisons of the desired with the current registration.
const ROUND: Duration = Duration::from_secs(5);
/// Back-off after a server that fails or refuses.
const RETRY: Duration = Duration::from_secs(30);
/// Registration period: a server that hears nothing for this long drops the registration.
const PERIOD: Duration = Duration::from_secs(180);
/// Minimum interval between two keep-alives.
const REFRESH_MIN: Duration = Duration::from_secs(10);

/// Reported state of the registration.
#[derive(Clone, Default)]
struct Shown {
    state: IsnsState,
    entity: Option<Entity>,
    /// Number of target names looked up for duplicates, or the reason why they were not.
    looked: Option<Result<usize, String>>,
}

/// Client that keeps the array registered with an iSNS server.
pub struct IsnsRegistration {
    core: Arc<Core>,
    notices: Arc<Notices>,
    portals: Arc<Portals>,
    shown: Mutex<Shown>,
    changed: Notify,
}

impl IsnsRegistration {
    pub(crate) fn new(core: Arc<Core>, notices: Arc<Notices>, portals: Arc<Portals>) -> Self {
        Self { core, notices, portals, shown: Mutex::default(), changed: Notify::default() }
    }

    /// Wakes the registrar to compare again.
    pub(crate) fn wake(&self) {
        // The permit is kept while the registrar is busy, so no change is missed.
        self.changed.notify_one();
    }

    /// Locks the reported state.
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the registration.
    #[must_use]
    pub fn report(&self) -> IsnsReport {
        let Shown { state, entity, .. } = self.shown().clone();
        let entity = entity.as_ref();
        IsnsReport {
            server: self.core.state().isns,
            entity: self.entity_identifier(),
            state,
            targets: entity.into_iter().flat_map(|it| &it.targets).map(|target| target.name.clone()).collect(),
            portals: entity.into_iter().flat_map(|it| &it.portals).map(|portal| portal.address).collect(),
        }
    }

    /// Returns the finding of the duplicate check: no other array has our target names, or the reason why that
    /// is unknown. Duplicates themselves are problems of the status.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let server = self.core.state().isns?;
        let subject = format!("iSNS server {server}");
        match self.shown().looked.clone()? {
            Ok(names) => Some(Finding::good(subject, format!("was queried for {names} target names of this array"))),
            Err(why) => {
                let sentence = format!("cannot be checked for duplicate target names: {why}");
                Some(Finding::warning(
                    subject,
                    sentence,
                    "repair that server, or turn registration off with blockyard isns off",
                ))
            }
        }
    }

    /// Sets the iSNS server, or none; the registration with the previous server is withdrawn.
    ///
    /// *Errors*: the state cannot be written. A server that does not answer is no error: it is retried, and
    /// [`IsnsRegistration::report`] shows its state.
    pub async fn set(&self, request: SetIsns) -> Result<IsnsReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.core.commit(&turn, |state| state.isns = request.server)?;
        // The new server has not been contacted yet.
        *self.shown() = Shown::default();
        self.changed.notify_one();
        Ok(self.report())
    }

    /// Keeps the registration current until the daemon stops, then withdraws it.
    pub async fn keep_registered(self: Arc<Self>) {
        let mut stopping = self.core.stopping.subscribe();
        let mut registrar =
            // Due immediately: a daemon that was restarted registers with its first round.
            RegistrationTask { isns: self.clone(), known: None, period: PERIOD, due: Instant::now(), wanted: None };
        while !*stopping.borrow() {
            registrar.reconcile().await;
            tokio::select! {
                () = sleep(ROUND) => {}
                () = self.changed.notified() => registrar.due = Instant::now(),
                () = stopped(&mut stopping) => {}
            }
        }
        // Withdrawn rather than left to expire, so that hosts do not try to log in to a stopped array.
        registrar.deregister().await;
    }
}

/// Registration task and its current registration.
struct RegistrationTask {
    isns: Arc<IsnsRegistration>,
    known: Option<(DesiredRegistration, Entity)>,
    /// Time after which the server drops a silent registration.
    period: Duration,
    /// Time of the next exchange with the server, even if nothing changes.
    due: Instant,
    /// Desired registration at the last exchange.
    wanted: Option<DesiredRegistration>,
}

impl RegistrationTask {
    async fn reconcile(&mut self) {
        let wanted = match self.isns.core.state().isns {
            // Switched off: a former registration is withdrawn, and nothing is known of duplicates any more.
            None => {
                self.deregister().await;
                self.isns.forget_duplicates();
                return self.show(IsnsState::Off);
            }
            Some(server) => match self.isns.desired(server).await {
                Ok(wanted) => wanted,
                // The data plane is gone, so the daemon ends as well.
                Err(_) => return,
            },
        };
        let is_new = self.wanted.as_ref() != Some(&wanted);
        if !is_new && Instant::now() < self.due {
            return;
        }
        // A registration never stays behind on a server that is no longer configured.
        if self.known.as_ref().is_some_and(|(known, _)| known.server != wanted.server) || wanted.is_empty() {
            self.deregister().await;
        }
        if wanted.is_empty() {
            self.due = Instant::now() + RETRY;
            self.show(IsnsState::Nothing);
        } else {
            let told = self.sync_registration(&wanted).await;
            self.conclude(wanted.server, told);
        }
        let server = wanted.server;
        // After `deregister`, which clears it.
        self.wanted = Some(wanted);
        self.check_duplicates(server).await;
    }

    /// Makes the server's registration equal to the desired one, and nothing more.
    async fn sync_registration(&mut self, wanted: &DesiredRegistration) -> Result<(), String> {
        // The same registration as before: a query shows whether the server still has it.
        if let Some((_, entity)) = self.known.as_ref().filter(|(known, _)| known == wanted) {
            let answer = exchange::connect(wanted.server.0).await?.ask(Request::Query(entity)).await?;
            let is_known = answer.has_attribute(Tag::ENTITY_IDENTIFIER).map_err(|violation| violation.to_string())?;
            // Success alone is not enough, because a query without a match succeeds as well.
            if answer.status == Status::SUCCESSFUL && is_known {
                return Ok(());
            }
        }
        self.register(wanted).await
    }

    async fn register(&mut self, wanted: &DesiredRegistration) -> Result<(), String> {
        // A new connection for each exchange, because minutes pass between them.
        let mut server = exchange::connect(wanted.server.0).await?;
        let entity = wanted.entity(server.local_address(), PERIOD);
        let answer = server.ask(Request::Register(&entity)).await?;
        if answer.status != Status::SUCCESSFUL {
            return Err(format!("it rejected the registration: {}", answer.status));
        }
        let period = answer.period().map_err(|violation| violation.to_string())?;
        self.known = Some((wanted.clone(), entity));
        // A server may grant a shorter period than requested; keep-alives follow it.
        self.period = period.filter(|period| !period.is_zero()).unwrap_or(PERIOD).min(PERIOD);
        Ok(())
    }

    fn conclude(&mut self, server: IsnsServer, told: Result<(), String>) {
        let was = self.isns.shown().state.clone();
        let subject = Subject::new(SubjectKind::Node, &self.isns.core.settings.node);
        match told {
            Ok(()) => {
                // Three keep-alives per period: two may get lost.
                self.due = Instant::now() + (self.period / 3).max(REFRESH_MIN);
                self.show(IsnsState::Registered { last_confirmed: crate::system::now() });
                // An event for the transition, not for each keep-alive.
                if !matches!(was, IsnsState::Registered { .. }) {
                    let sentence = format!("targets registered with iSNS server {server}");
                    self.isns.core.raise(event::ISNS_REGISTERED, subject, sentence);
                }
            }
            Err(why) => {
                self.due = Instant::now() + RETRY;
                self.show(IsnsState::Failing { reason: why.clone() });
                if !matches!(was, IsnsState::Failing { .. }) {
                    let sentence = format!("registration of targets with iSNS server {server} failed: {why}");
                    self.isns.core.raise(event::ISNS_FAILED, subject, sentence);
                }
            }
        }
    }

    /// Withdraws the registration. An unreachable server drops it when the period ends.
    async fn deregister(&mut self) {
        let Some((DesiredRegistration { server, .. }, entity)) = self.known.take() else { return };
        let told = async { exchange::connect(server.0).await?.ask(Request::Deregister(&entity)).await };
        match told.await {
            // No entry left to remove is as good as one removed.
            Ok(answer) if matches!(answer.status, Status::SUCCESSFUL | Status::NO_SUCH_ENTRY) => {
                tracing::info!(%server, "iSNS registration removed");
            }
            Ok(answer) => tracing::warn!(%server, status = %answer.status, "the server rejected the deregistration"),
            Err(why) => tracing::warn!(%server, why, "the registration will expire on the server"),
        }
        // So that the next round registers anew.
        self.wanted = None;
    }

    fn show(&self, state: IsnsState) {
        let mut shown = self.isns.shown();
        shown.state = state;
        shown.entity = self.known.as_ref().map(|(_, entity)| entity.clone());
    }
}

/// Replaces a wildcard address by the local address that the server is reached from.
fn resolved(portal: SocketAddr, local: SocketAddr) -> SocketAddr {
    if portal.ip().is_unspecified() { SocketAddr::new(local.ip(), portal.port()) } else { portal }
}
