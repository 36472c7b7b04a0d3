//! The audit: records of each call that changes something, or would have, and of each that reads data of hosts.
//!
//! An intent is on disk before such a call begins, and its result before the call is answered: a call whose intent cannot be written is
//! refused with nothing done. Records are lines of JSON in files below `audit` in the folder of the state. Each holds the hash of the one
//! before, so that none can be changed or taken out unnoticed; the head and the files of the state name the last one, so that none can be cut
//! off. The files are bounded: the oldest goes when there are too many, and the chain begins with the first that is left.
//!
//! An audit that cannot be used keeps volumes from nothing: every change is refused, and it is opened again every [`AGAIN`].

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

use crate::keeping::Changed;
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

/// Refused calls of strangers with a record each, in an hour. What strangers do must not push out what users have done.
const STRANGERS_MAX: u64 = 200;
const HOUR: u64 = 3600;
/// How often an audit that cannot be used is opened again.
const AGAIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// The audit of this node.
pub(crate) struct Audit {
    control: Arc<Control>,
    state: Mutex<State>,
}

/// How a call was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    status: u16,
    code: Option<Code>,
    changed: Value,
}

impl Answered {
    /// What nobody has asked for.
    fn nothing() -> Self {
        Self { status: 200, code: None, changed: Value::Null }
    }

    /// As the answer says.
    pub(crate) fn of(response: &Response) -> Self {
        let refusal = response.extensions().get::<Refusal>();
        let changed = response.extensions().get::<Changed>().map_or(Value::Null, |Changed(what)| what.clone());
        Self { status: response.status().as_u16(), code: refusal.map(|refusal| refusal.code), changed }
    }
}

struct State {
    chain: Result<Chain, Refusal>,
    /// What could not be written yet.
    waiting: VecDeque<AuditRecord>,
    strangers: Strangers,
    /// True from the first failure until everything is written again.
    fails: bool,
}

#[derive(Default)]
struct Strangers {
    since: Timestamp,
    recorded: u64,
    unrecorded: u64,
}

impl Audit {
    /// The audit as it was kept in the folder of the state. One that cannot be used refuses every change until it can.
    pub(crate) fn open(control: Arc<Control>) -> Self {
        let chain = Err(Refusal::new(code::AUDIT_UNUSABLE, "the audit was not opened", "try again"));
        let (waiting, strangers, fails) = Default::default();
        let audit = Self { control, state: Mutex::new(State { chain, waiting, strangers, fails }) };
        let opened = audit.write_with(|_| Ok(()));
        audit.tell(opened.err());
        audit
    }

    /// An audit that cannot be used is opened again, and what waits is written; without end.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(AGAIN).await;
            if self.state().fails
                && let Err(refusal) = self.ready().await
            {
                tracing::warn!(%refusal, "the audit cannot be used");
            }
        }
    }

    /// What is done next can be written down.
    ///
    /// *Errors*: what was done before could not be, and cannot be still: nothing is done that nobody would know of.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<(), Refusal> {
        self.write(|_| Ok(())).await
    }

    /// The call may begin: its intent is written down. *Durability*: it survives power loss.
    ///
    /// *Errors*: it cannot be written, and the call must not begin.
    pub(crate) async fn begin(self: &Arc<Self>, entry: Entry) -> Result<Entry, Refusal> {
        let record = entry.intent(now());
        let number = self.write(move |chain| chain.append(&record)).await?;
        Ok(entry.begun(number))
    }

    /// The call was answered so: it has its record. *Durability*: it survives power loss, where it can be written.
    pub(crate) async fn note(self: &Arc<Self>, entry: Entry, answered: Answered) {
        {
            let mut state = self.state();
            let State { waiting, strangers, .. } = &mut *state;
            if entry.is_of_a_stranger() && answered.code.is_some() && !strangers.admit(now()) {
                return;
            }
            let unrecorded = std::mem::take(&mut strangers.unrecorded);
            waiting.push_back(entry.record(now(), answered, unrecorded));
        }
        if let Err(refusal) = self.ready().await {
            tracing::error!(%refusal, "what was changed could not be written down yet");
        }
    }

    /// What waits is written, then what `act` writes.
    async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Chain) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let audit = self.clone();
        let written = blocking(move || audit.write_with(act)).await;
        self.tell(written.as_ref().err().cloned());
        written
    }

    fn write_with<T>(&self, act: impl FnOnce(&mut Chain) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut state = self.state();
        let State { chain, waiting, .. } = &mut *state;
        if chain.as_ref().is_err() {
            let folder: PathBuf = self.control.core.settings().state_dir.join("audit");
            let opened = Chain::open(&folder, &self.control.core.audit_head())?;
            for finding in opened.findings() {
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
            self.control.core.note_audit_head(open.last().clone());
            if let Err(refusal) = &written {
                // It is opened again, for its files may have been replaced.
                *chain = Err(refusal.clone());
            }
        }
        written
    }

    /// Whether it can be used is an event each time that it changes, and stands in the status all the while.
    fn tell(&self, refusal: Option<Refusal>) {
        let node = Subject::new(SubjectKind::Node, &self.control.core.settings().node);
        self.state().fails = refusal.is_some();
        let Some(refusal) = refusal else {
            let sentence = "the audit can be written again; changes are taken";
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

    /// Records before the number `before`, the latest first, that have the word `search`.
    ///
    /// *Errors*: they cannot be read.
    pub(crate) async fn page(
        self: &Arc<Self>,
        before: Option<u64>,
        limit: usize,
        search: Option<String>,
    ) -> Result<AuditPage, Refusal> {
        let reader = self.reader()?;
        blocking(move || reader.page(before.unwrap_or(u64::MAX), limit, search.as_deref())).await
    }

    /// Every record is as it was written, or the first that is not is named.
    ///
    /// *Errors*: they cannot be read.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<AuditCheck, Refusal> {
        let (reader, head) = (self.reader()?, self.control.core.audit_head());
        blocking(move || reader.check(&head)).await
    }

    /// All records as they are written, file by file; none while they cannot be read.
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

impl Strangers {
    /// True where a stranger's call has a record of its own.
    fn admit(&mut self, now: Timestamp) -> bool {
        if now.apart(self.since) >= HOUR {
            (self.since, self.recorded) = (now, 0);
        }
        let admitted = self.recorded < STRANGERS_MAX;
        if admitted {
            self.recorded += 1;
        } else {
            self.unrecorded += 1;
        }
        admitted
    }
}

/// Writes what waits, in its order.
fn write_all(chain: &mut Chain, waiting: &mut VecDeque<AuditRecord>) -> Result<(), Refusal> {
    while let Some(record) = waiting.front() {
        chain.append(record)?;
        waiting.pop_front();
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the audit broke off");
        Err(Refusal::new(code::INTERNAL, "the audit broke off", "report this with the daemon's log"))
    })
}
