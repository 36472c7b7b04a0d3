//! Targets and portals, registered with an iSNS server, so that hosts which ask there find us.
//!
//! What should be registered is looked at in rounds: a change is a new registration that replaces the one before. Between changes the
//! server is asked whether it still knows us, which is a sign of life as well; one that has forgotten us is told again. Each time it is
//! asked, too, whether another array has registered one of our names.

mod duplicates;
mod exchange;
mod wanted;

pub use duplicates::RENAME_TARGET;

use crate::change::portals::Portals;
use crate::core::Core;
use crate::notices::Notices;
use crate::request::SetIsns;
use crate::system::stopped;
use isns::{Entity, Request, Status, Tag};
use model::{Finding, IsnsReport, IsnsServer, IsnsState, Refusal, Subject, SubjectKind, event};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use wanted::Wanted;

/// How often we look whether something else should be registered.
const ROUND: Duration = Duration::from_secs(5);
/// How long a server that does not do as it is asked is left alone.
const RETRY: Duration = Duration::from_secs(30);
/// A server that hears nothing for so long forgets us.
const PERIOD: Duration = Duration::from_secs(180);
/// The shortest time between two signs of life.
const REFRESH_MIN: Duration = Duration::from_secs(10);

/// What is told of it.
#[derive(Clone, Default)]
struct Shown {
    state: IsnsState,
    entity: Option<Entity>,
    /// How many names the server was asked for that another array may have, too, or why it was not.
    looked: Option<Result<usize, String>>,
}

/// The registration with an iSNS server.
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

    /// Whoever registers looks at what is wanted.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// What is told of it now.
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the registration is.
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

    /// What the iSNS server says of other arrays with our target names: that there is none, or why it is not known. Names that another array
    /// has are problems of the status.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let server = self.core.state().isns?;
        let subject = format!("iSNS server {server}");
        match self.shown().looked.clone()? {
            Ok(names) => Some(Finding::good(subject, format!("was asked for {names} target names of this array"))),
            Err(why) => {
                let sentence = format!("does not say whether another array has a target name of this one: {why}");
                Some(Finding::warning(subject, sentence, "see to that server, or end it with blockyard isns off"))
            }
        }
    }

    /// Targets are registered with this server from now on, and with none before it any more; or with none.
    ///
    /// *Errors*: the state cannot be written. A server that does not answer is no error: it is tried again, and [`IsnsRegistration::report`]
    /// says how it is.
    pub async fn set(&self, request: SetIsns) -> Result<IsnsReport, Refusal> {
        let turn = self.core.turn().await;
        self.core.commit(&turn, |state| state.isns = request.server)?;
        *self.shown() = Shown::default();
        self.changed.notify_one();
        Ok(self.report())
    }

    /// Sees to the registration until the daemon stops, and takes it back then.
    pub async fn keep_registered(self: Arc<Self>) {
        let mut stopping = self.core.stopping.subscribe();
        let mut registrar =
            Registrar { isns: self.clone(), known: None, period: PERIOD, due: Instant::now(), wanted: None };
        while !*stopping.borrow() {
            registrar.see_to_it().await;
            tokio::select! {
                () = sleep(ROUND) => {}
                () = self.changed.notified() => registrar.due = Instant::now(),
                () = stopped(&mut stopping) => {}
            }
        }
        registrar.take_back().await;
    }
}

/// What is registered where.
struct Registrar {
    isns: Arc<IsnsRegistration>,
    known: Option<(Wanted, Entity)>,
    /// How long the server remembers us.
    period: Duration,
    /// When the server is to be spoken to again, whatever changes.
    due: Instant,
    /// What was to be registered when it was spoken to last.
    wanted: Option<Wanted>,
}

impl Registrar {
    async fn see_to_it(&mut self) {
        let wanted = match self.isns.core.state().isns {
            None => {
                self.take_back().await;
                self.isns.forget_duplicates();
                return self.show(IsnsState::Off);
            }
            Some(server) => match self.isns.wanted(server).await {
                Ok(wanted) => wanted,
                // The data plane is gone, and we are soon.
                Err(_) => return,
            },
        };
        let is_new = self.wanted.as_ref() != Some(&wanted);
        if !is_new && Instant::now() < self.due {
            return;
        }
        if self.known.as_ref().is_some_and(|(known, _)| known.server != wanted.server) || wanted.is_empty() {
            self.take_back().await;
        }
        if wanted.is_empty() {
            self.due = Instant::now() + RETRY;
            self.show(IsnsState::Nothing);
        } else {
            let told = self.tell(&wanted).await;
            self.conclude(wanted.server, told);
        }
        let server = wanted.server;
        self.wanted = Some(wanted);
        self.look_for_duplicates(server).await;
    }

    /// The server knows this of us, and nothing else.
    async fn tell(&mut self, wanted: &Wanted) -> Result<(), String> {
        if let Some((_, entity)) = self.known.as_ref().filter(|(known, _)| known == wanted) {
            let answer = exchange::connect(wanted.server.0).await?.ask(Request::Query(entity)).await?;
            let is_known = answer.tells(Tag::ENTITY_IDENTIFIER).map_err(|violation| violation.to_string())?;
            if answer.status == Status::SUCCESSFUL && is_known {
                return Ok(());
            }
        }
        self.register(wanted).await
    }

    async fn register(&mut self, wanted: &Wanted) -> Result<(), String> {
        let mut server = exchange::connect(wanted.server.0).await?;
        let entity = wanted.entity(server.local_address(), PERIOD);
        let answer = server.ask(Request::Register(&entity)).await?;
        if answer.status != Status::SUCCESSFUL {
            return Err(format!("it refuses the registration: {}", answer.status));
        }
        let period = answer.period().map_err(|violation| violation.to_string())?;
        self.known = Some((wanted.clone(), entity));
        self.period = period.filter(|period| !period.is_zero()).unwrap_or(PERIOD).min(PERIOD);
        Ok(())
    }

    fn conclude(&mut self, server: IsnsServer, told: Result<(), String>) {
        let was = self.isns.shown().state.clone();
        let subject = Subject::new(SubjectKind::Node, &self.isns.core.settings.node);
        match told {
            Ok(()) => {
                self.due = Instant::now() + (self.period / 3).max(REFRESH_MIN);
                self.show(IsnsState::Registered { heard: crate::system::now() });
                if !matches!(was, IsnsState::Registered { .. }) {
                    let sentence = format!("targets are registered with iSNS server {server}");
                    self.isns.core.raise(event::ISNS_REGISTERED, subject, sentence);
                }
            }
            Err(why) => {
                self.due = Instant::now() + RETRY;
                self.show(IsnsState::Failing { why: why.clone() });
                if !matches!(was, IsnsState::Failing { .. }) {
                    let sentence = format!("targets cannot be registered with iSNS server {server}: {why}");
                    self.isns.core.raise(event::ISNS_FAILED, subject, sentence);
                }
            }
        }
    }

    /// Nothing of us is registered any more, as far as the server can be reached: it forgets us else.
    async fn take_back(&mut self) {
        let Some((Wanted { server, .. }, entity)) = self.known.take() else { return };
        let told = async { exchange::connect(server.0).await?.ask(Request::Deregister(&entity)).await };
        match told.await {
            Ok(answer) if matches!(answer.status, Status::SUCCESSFUL | Status::NO_SUCH_ENTRY) => {
                tracing::info!(%server, "targets are not registered any more");
            }
            Ok(answer) => tracing::warn!(%server, status = %answer.status, "the server refuses to forget us"),
            Err(why) => tracing::warn!(%server, why, "the server forgets us by itself"),
        }
        self.wanted = None;
    }

    fn show(&self, state: IsnsState) {
        let mut shown = self.isns.shown();
        shown.state = state;
        shown.entity = self.known.as_ref().map(|(_, entity)| entity.clone());
    }
}

/// The address that stands for a wildcard: the one that the server is reached from.
fn resolved(portal: SocketAddr, local: SocketAddr) -> SocketAddr {
    if portal.ip().is_unspecified() { SocketAddr::new(local.ip(), portal.port()) } else { portal }
}
