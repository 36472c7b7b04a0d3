//! Audit log: a record of each call that changes something or attempts to, and of each that reads data of hosts.
//!
//! An intent is durable before such a call starts, and its result before the call is answered: a call whose intent
//! cannot be written is refused with nothing done. Records are lines of JSON in files below `audit` in the state
//! folder. Each contains the hash of the one before, so that none can be changed or removed unnoticed; the head file
//! and the state name the last one, so that none can be cut off. The size is bounded: the oldest file is deleted when
//! there are too many, and the chain then starts with the first record that is left.
//!
//! An audit log that cannot be used does not affect volumes: every change is refused, and the log is reopened every
//! [`AGAIN`].

mod chain;
mod entry;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod head;
mod lines;
mod reader;
mod record;

pub(crate) use entry::Entry;
pub(crate) use forward::Forward;
pub(crate) use record::Phase;
pub use record::{AuditBroken, AuditCheck, AuditPage, AuditRecord};

use crate::conditional::Changed;
use axum::response::Response;
use chain::Chain;
use control::{Control, now};
use model::{Code, EventCode, Problem, Refusal, Severity, Subject, SubjectKind, Timestamp, code, event};
use reader::Reader;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Refused calls of unauthenticated clients that get a record each, per hour. They must not displace the records of
/// users.
const UNAUTHENTICATED_MAX: u64 = 200;
const HOUR: u64 = 3600;
/// Interval at which an unusable audit log is reopened.
const AGAIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Audit log of this node.
pub(crate) struct Audit {
    control: Arc<Control>,
    state: Mutex<State>,
}

/// Outcome of a call.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    status: u16,
    code: Option<Code>,
    changed: Value,
}

impl Answered {
    /// Outcome of a record that belongs to no call.
    fn nothing() -> Self {
        Self { status: 200, code: None, changed: Value::Null }
    }

    /// Outcome as given by the response.
    pub(crate) fn of(response: &Response) -> Self {
        let refusal = response.extensions().get::<Refusal>();
        let changed = response.extensions().get::<Changed>().map_or(Value::Null, |Changed(what)| what.clone());
        Self { status: response.status().as_u16(), code: refusal.map(|refusal| refusal.code), changed }
    }
}

struct State {
    chain: Result<Chain, Refusal>,
    /// Records that could not be written yet.
    waiting: VecDeque<AuditRecord>,
    unauthenticated: UnauthenticatedQuota,
    /// True from the first failure until everything is written.
    fails: bool,
}

#[derive(Default)]
struct UnauthenticatedQuota {
    since: Timestamp,
    recorded: u64,
    unrecorded: u64,
}

impl Audit {
    /// Opens the audit log in the state folder. If it cannot be used, every change is refused until it can.
    pub(crate) fn open(control: Arc<Control>) -> Self {
        let chain = Err(Refusal::new(code::AUDIT_UNUSABLE, "the audit log is not open", "try again"));
        let (waiting, strangers, fails) = Default::default();
        let audit = Self { control, state: Mutex::new(State { chain, waiting, unauthenticated: strangers, fails }) };
        // Opens the chain and writes its findings.
        let opened = audit.write_with(|_| Ok(()));
        audit.report_usability(opened.err());
        audit
    }

    /// Reopens an unusable audit log and writes the waiting records, in an endless loop.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(AGAIN).await;
            // Only after a failure: otherwise each call writes its own record.
            if self.state().fails
                && let Err(refusal) = self.ready().await
            {
                tracing::warn!(%refusal, "the audit log cannot be used");
            }
        }
    }

    /// Checks that the next operation can be recorded.
    ///
    /// *Errors*: earlier records cannot be written. Nothing may be done then, because nobody would know of it.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<(), Refusal> {
        self.write(|_| Ok(())).await
    }

    /// Records the intent of a call, which may start then. *Durability*: the record survives a power loss when this
    /// returns.
    ///
    /// *Errors*: it could not be written, and the call must not start.
    pub(crate) async fn begin(self: &Arc<Self>, entry: Entry) -> Result<Entry, Refusal> {
        let record = entry.intent(now());
        // After the waiting records, so that the chain keeps the order of the calls.
        let number = self.write(move |chain| chain.append(&record)).await?;
        Ok(entry.begun(number))
    }

    /// Records the result of a call. *Durability*: it survives a power loss when this returns, unless it cannot be
    /// written yet.
    pub(crate) async fn note(self: &Arc<Self>, entry: Entry, answered: Answered) {
        // The lock is released before the write, which takes it on another thread.
        {
            let mut state = self.state();
            let State { waiting, unauthenticated: strangers, .. } = &mut *state;
            // Beyond the limit such calls are only counted; the next record has their number.
            if entry.is_unauthenticated() && answered.code.is_some() && !strangers.admit(now()) {
                return;
            }
            // The count goes into this record and starts anew.
            let unrecorded = std::mem::take(&mut strangers.unrecorded);
            // Queued first: if it cannot be written now, it is written before anything else later.
            waiting.push_back(entry.record(now(), answered, unrecorded));
        }
        if let Err(refusal) = self.ready().await {
            tracing::error!(%refusal, "the audit record of a change could not be written yet");
        }
    }

    /// Writes the waiting records, then runs `act`.
    async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Chain) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        // File operations block, so they run on a blocking thread.
        let audit = self.clone();
        let written = blocking(move || audit.write_with(act)).await;
        self.report_usability(written.as_ref().err().cloned());
        written
    }

    fn write_with<T>(&self, act: impl FnOnce(&mut Chain) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut state = self.state();
        let State { chain, waiting, .. } = &mut *state;
        if chain.as_ref().is_err() {
            let folder: PathBuf = self.control.core.settings().state_dir.join("audit");
            // The state knows how far the log had come: records cut off from the files are noticed.
            // An error leaves the chain unusable, and the next call opens it again.
            let opened = Chain::open(&folder, &self.control.core.audit_head())?;
            for finding in opened.findings() {
                // Findings are records as well, so that a later reader of the log sees them.
                self.raise(event::AUDIT_DAMAGED, &format!("{finding}; see blockyard audit verify"));
                waiting.push_back(Entry::finding(finding).record(now(), Answered::nothing(), 0));
            }
            *chain = Ok(opened);
        }
        let written = match chain {
            Ok(open) => write_all(open, waiting).and_then(|()| act(open)),
            Err(refusal) => Err(refusal.clone()),
        };
        if let Ok(open) = chain {
            // Also after a failure: records before it may have been written.
            self.control.core.note_audit_head(open.last().clone());
            if let Err(refusal) = &written {
                // Reopened at the next attempt, because its files may have been replaced.
                *chain = Err(refusal.clone());
            }
        }
        written
    }

    /// Raises an event at each change of its usability, and shows an unusable log in the status.
    fn report_usability(&self, refusal: Option<Refusal>) {
        let node = Subject::new(SubjectKind::Node, &self.control.core.settings().node);
        // Also after a success, after which `watch` has nothing to do.
        self.state().fails = refusal.is_some();
        let Some(refusal) = refusal else {
            let sentence = "the audit log is writable again; changes are accepted";
            self.control.notices.settle(event::AUDIT_UNWRITABLE, node, event::AUDIT_READABLE, sentence);
            return;
        };
        let problem = Problem {
            severity: Severity::Critical,
            subject: "audit".to_owned(),
            state: "unusable".to_owned(),
            meaning: refusal.message,
            action: refusal.hint,
        };
        self.control.notices.add(event::AUDIT_UNWRITABLE, node, problem);
    }

    fn raise(&self, code: EventCode, sentence: &str) {
        let node = Subject::new(SubjectKind::Node, &self.control.core.settings().node);
        self.control.core.raise(code, node, sentence);
    }

    /// Returns records before the number `before` that contain the word `search`, the latest first.
    ///
    /// *Errors*: the files cannot be read.
    pub(crate) async fn page(
        self: &Arc<Self>,
        before: Option<u64>,
        limit: usize,
        search: Option<String>,
    ) -> Result<AuditPage, Refusal> {
        let reader = self.reader()?;
        blocking(move || reader.page(before.unwrap_or(u64::MAX), limit, search.as_deref())).await
    }

    /// Verifies the chain of records, and names the first one that is wrong.
    ///
    /// *Errors*: the files cannot be read.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<AuditCheck, Refusal> {
        let (reader, head) = (self.reader()?, self.control.core.audit_head());
        blocking(move || reader.check(&head)).await
    }

    /// Paths of the audit files; empty while the log cannot be read.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.reader().map_or_else(|_| Vec::new(), |reader| reader.files())
    }

    fn reader(&self) -> Result<Reader, Refusal> {
        self.state().chain.as_ref().map(Chain::reader).map_err(Clone::clone)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnauthenticatedQuota {
    /// True if a call of an unauthenticated client gets a record of its own.
    fn admit(&mut self, now: Timestamp) -> bool {
        // The clock may have been set back as well as forward.
        if now.apart(self.since) >= HOUR {
            (self.since, self.recorded) = (now, 0);
        }
        let admitted = self.recorded < UNAUTHENTICATED_MAX;
        if admitted {
            self.recorded += 1;
        } else {
            self.unrecorded += 1;
        }
        admitted
    }
}

/// Writes the waiting records in their order.
fn write_all(chain: &mut Chain, waiting: &mut VecDeque<AuditRecord>) -> Result<(), Refusal> {
    while let Some(record) = waiting.front() {
        // Removed only after it was written: a failure loses nothing.
        chain.append(record)?;
        waiting.pop_front();
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the audit log failed unexpectedly");
        Err(Refusal::new(
            code::INTERNAL,
            "the audit log failed unexpectedly",
            "report this as a bug, with the daemon log",
        ))
    })
}
