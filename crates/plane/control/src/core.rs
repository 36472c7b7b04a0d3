//! What every part of the control plane works on: the desired state, the data plane that makes it so, the event log, and the
//! turn of the one change that is made at a time.
//!
//! Each part has its own reference to it. It knows none of them, and nothing here changes by itself.

use crate::event_log::EventLog;
use crate::privileged::{Confinement, Privileged};
use crate::system::now;
use crate::{AuditHead, Engine, Settings, State, StateReport, Store};
use model::{EventCode, MeasureReport, Raised, Refusal, Subject, SubjectKind, event};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use tokio::sync::{MutexGuard, watch};

/// The desired state, the data plane, and one change at a time.
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) engine: Engine,
    pub(crate) events: EventLog,
    /// True once the daemon stops: see [`stopped`](crate::system::stopped).
    pub(crate) stopping: watch::Sender<bool>,
    change: tokio::sync::Mutex<()>,
    /// Who does what the daemon has no privilege for; empty where the daemon is not confined.
    confinement: OnceLock<Confinement>,
}

/// Held by the change that is under way.
pub(crate) type Turn<'a> = MutexGuard<'a, ()>;

impl Core {
    pub(crate) fn new(settings: Settings, store: Store, engine: Engine) -> Result<Self, Refusal> {
        let events = EventLog::open(&store)?;
        let (change, stopping, confinement) = Default::default();
        Ok(Self { settings, store, engine, events, change, stopping, confinement })
    }

    /// The last record of the audit that the state tells of.
    #[must_use]
    pub fn audit_head(&self) -> AuditHead {
        self.store.audit_head()
    }

    /// The audit has this last record: what is written to the state next tells of it.
    pub fn note_audit_head(&self, head: AuditHead) {
        self.store.note_audit_head(head);
    }

    /// The desired state as it is now.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.store.state()
    }

    /// The facts that the daemon was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Answers that are long in coming end soon, and what was begun for others is taken back.
    pub fn announce_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until no other change is under way.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        self.change.lock().await
    }

    /// The turn, if no change is under way just now. What is done in rounds waits for no change: its next round comes.
    pub(crate) fn turn_now(&self) -> Option<Turn<'_>> {
        self.change.try_lock().ok()
    }

    /// The edited state is the state, durably, and remembers the LUN numbers that it takes away. Only with the turn.
    pub(crate) fn commit(&self, _turn: &Turn<'_>, edit: impl FnOnce(&mut State)) -> Result<(), Refusal> {
        let before = self.state();
        let mut next = State::clone(&before);
        edit(&mut next);
        next.remember_luns(&before)?;
        self.store.commit(next)
    }

    /// What the data plane answered. When it refused, the state is what it was `before`.
    pub(crate) fn or_restore(&self, _: &Turn<'_>, done: Result<(), Refusal>, before: &State) -> Result<(), Refusal> {
        if done.is_err() {
            // Nobody was shown what is taken back here, so there is nothing to remember of it.
            self.store.commit(before.clone())?;
        }
        done
    }

    /// What a door keeps under this name; none when it keeps nothing.
    ///
    /// *Errors*: its secrets are sealed with another key.
    pub fn document(&self, name: &str) -> Result<Option<Value>, Refusal> {
        self.store.document(name)
    }

    /// A door keeps this under the name, in no version of the state. Strings under the key `secret` are sealed.
    ///
    /// *Errors*: it could not be written, and is as it was. *Durability*: it survives power loss, except while the store is held.
    pub fn keep_document(&self, name: &str, document: Value) -> Result<(), Refusal> {
        self.store.keep_document(name, document)
    }

    /// Why no change is taken just now; none where changes are taken.
    #[must_use]
    pub fn hold(&self) -> Option<Refusal> {
        self.store.hold()
    }

    /// The state that is served.
    #[must_use]
    pub fn state_report(&self) -> StateReport {
        let held = self.hold().map(|refusal| refusal.message);
        StateReport { version: self.store.version(), kept: self.store.versions(), held }
    }

    /// The older version that is served is the state from now on.
    ///
    /// *Errors*: it could not be written, or the folder is not the one that was opened.
    pub async fn accept_state(&self) -> Result<StateReport, Refusal> {
        let turn = self.turn().await;
        let Some(refusal) = self.hold() else { return Ok(self.state_report()) };
        // What an older version says of pools that were being made or destroyed is not so any more: their disks stay as they are.
        self.commit(&turn, |state| state.pending.clear())?;
        self.store.accept()?;
        let node = Subject::new(SubjectKind::Node, &self.settings.node);
        self.raise(event::STATE_ACCEPTED, node, format!("an operator has accepted it: {}", refusal.message));
        Ok(self.state_report())
    }

    /// It has happened now, and is written down.
    pub fn raise(&self, code: EventCode, subject: Subject, sentence: impl Into<String>) {
        if let Err(refusal) = self.events.add(&self.store, vec![Raised::new(now(), code, subject, sentence)]) {
            tracing::error!(%refusal, "an event could not be written down");
        }
    }

    /// The daemon is confined so from now on.
    pub(crate) fn confine(&self, confinement: Confinement) {
        self.confinement.set(confinement).unwrap_or_else(|_| unreachable!("a daemon is confined once"));
    }

    /// How each measure of the confinement stands.
    pub(crate) fn measures(&self) -> Vec<MeasureReport> {
        self.confinement.get().map(|confinement| confinement.measures.clone()).unwrap_or_default()
    }

    /// Who does what this process has no privilege for; none where it has.
    #[must_use]
    pub fn privileged(&self) -> Option<Arc<dyn Privileged>> {
        self.confinement.get()?.privileged.clone()
    }
}
