//! Common base of all parts: the desired state, the data plane that carries it out, the event log, and the lock
//! that serializes changes.
//!
//! Each part holds a reference to it. It knows none of the parts and starts no change by itself.

use crate::event_log::EventLog;
use crate::privileged::{Confinement, Privileged};
use crate::system::now;
use crate::{AuditHead, Engine, Settings, State, StateReport, Store};
use model::{EventCode, MeasureReport, Raised, Refusal, Subject, SubjectKind, event};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use tokio::sync::{MutexGuard, watch};

/// The desired state, the data plane, and the lock that serializes changes.
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) engine: Engine,
    pub(crate) events: EventLog,
    /// True once the daemon is shutting down: see [`stopped`](crate::system::stopped).
    pub(crate) stopping: watch::Sender<bool>,
    change: tokio::sync::Mutex<()>,
    /// Measures of the confinement and the privileged helper; empty where the daemon is not confined.
    confinement: OnceLock<Confinement>,
}

/// Guard of the change lock, held for the whole of a change.
pub(crate) type ChangeGuard<'a> = MutexGuard<'a, ()>;

impl Core {
    pub(crate) fn new(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let events = EventLog::open(&store)?;
        let (change, stopping, confinement) = Default::default();
        Ok(Self { settings, store, engine, events, change, stopping, confinement })
    }

    /// Returns the last audit record that the files of the state name.
    #[must_use]
    pub fn audit_head(&self) -> AuditHead {
        self.store.audit_head()
    }

    /// Records the last audit record; every file that is written from now on names it.
    pub fn note_audit_head(&self, head: AuditHead) {
        self.store.note_audit_head(head);
    }

    /// Returns the current desired state.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.store.state()
    }

    /// Returns the settings that the daemon was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Announces the shutdown: long-running answers end soon, and work started on behalf of clients is rolled
    /// back.
    pub fn announce_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Takes the change lock; waits until no other change is in progress.
    pub(crate) async fn lock_changes(&self) -> ChangeGuard<'_> {
        self.change.lock().await
    }

    /// Takes the change lock if it is free. Periodic work uses it: rather than wait for a change, it skips to
    /// its next round.
    pub(crate) fn try_lock_changes(&self) -> Option<ChangeGuard<'_>> {
        self.change.try_lock().ok()
    }

    /// Commits the edited state durably and remembers the LUN numbers that the edit removes. The guard proves
    /// that the caller holds the change lock.
    pub(crate) fn commit(&self, _turn: &ChangeGuard<'_>, edit: impl FnOnce(&mut State)) -> Result<(), Refusal> {
        let before = self.state();
        let mut next = State::clone(&before);
        edit(&mut next);
        // Here rather than in the parts, so that no change can bypass it.
        next.remember_luns(&before)?;
        self.store.commit(next)
    }

    /// Returns the answer of the data plane. After a refusal the state is restored to `before`.
    pub(crate) fn or_restore(
        &self,
        _: &ChangeGuard<'_>,
        done: Result<(), Refusal>,
        before: &State,
    ) -> Result<(), Refusal> {
        if done.is_err() {
            // The rolled-back mappings were never visible to a host, so `remember_luns` is bypassed.
            // If this fails as well, its error is the one to report: state and data plane then differ.
            self.store.commit(before.clone())?;
        }
        done
    }

    /// Returns the document that a front end keeps under this name; `None` when there is none.
    ///
    /// *Errors*: its secrets are sealed with another key.
    pub fn document(&self, name: &str) -> Result<Option<Value>, Refusal> {
        self.store.document(name)
    }

    /// Stores a document of a front end under the name, outside the versions of the state. Strings under the
    /// key `secret` are sealed.
    ///
    /// *Errors*: it could not be written, and the previous document stays. *Durability*: it survives power
    /// loss, except while the store is held.
    pub fn keep_document(&self, name: &str, document: Value) -> Result<(), Refusal> {
        self.store.keep_document(name, document)
    }

    /// Returns the reason why changes are refused; `None` while changes are accepted.
    #[must_use]
    pub fn hold(&self) -> Option<Refusal> {
        self.store.hold()
    }

    /// Returns the version of the state that is served, and whether changes are held.
    #[must_use]
    pub fn state_report(&self) -> StateReport {
        let held = self.hold().map(|refusal| refusal.message);
        StateReport { version: self.store.version(), kept: self.store.versions(), changes_refused: held }
    }

    /// Accepts the older version that is served as the current state; changes are allowed again.
    ///
    /// *Errors*: it could not be written, or the folder is not the one that was opened.
    pub async fn accept_state(&self) -> Result<StateReport, Refusal> {
        let turn = self.lock_changes().await;
        let Some(refusal) = self.hold() else { return Ok(self.state_report()) };
        // The pending records of an older version are stale: a pool that was being created then may hold data
        // now, so nothing may be wiped because of them.
        // Under the hold this changes the state in memory only; `accept` writes it.
        self.commit(&turn, |state| state.pending.clear())?;
        self.store.accept()?;
        let node = Subject::new(SubjectKind::Node, &self.settings.node);
        self.raise(event::STATE_ACCEPTED, node, format!("accepted by an operator: {}", refusal.message));
        Ok(self.state_report())
    }

    /// Appends an event with the current time to the event log. A write error is logged only.
    pub fn raise(&self, code: EventCode, subject: Subject, sentence: impl Into<String>) {
        if let Err(refusal) = self.events.add(&self.store, vec![Raised::new(now(), code, subject, sentence)]) {
            tracing::error!(%refusal, "an event could not be recorded");
        }
    }

    /// Sets the confinement of the daemon. *Panics*: it was set before.
    pub(crate) fn confine(&self, confinement: Confinement) {
        self.confinement.set(confinement).unwrap_or_else(|_| unreachable!("a daemon is confined once"));
    }

    /// Returns the state of each confinement measure.
    pub(crate) fn measures(&self) -> Vec<MeasureReport> {
        self.confinement.get().map(|confinement| confinement.measures.clone()).unwrap_or_default()
    }

    /// Returns the privileged helper; `None` where this process has the privileges itself.
    #[must_use]
    pub fn privileged(&self) -> Option<Arc<dyn Privileged>> {
        self.confinement.get()?.privileged.clone()
    }
}
