//! The audit: one record for each call that changes something, or would have.
//!
//! Records are lines of JSON in files below `audit` in the folder of the state. Each holds the hash of the one before, so that none can be
//! changed or taken out unnoticed. The files are bounded: the oldest goes when there are too many, and the chain begins with the
//! first that is left. A record is on disk before the call is answered.

mod chain;
mod entry;
mod forward;
mod record;

pub use entry::Entry;
pub use forward::Forward;
pub use record::{AuditBroken, AuditCheck, AuditPage, AuditRecord};

use crate::keeping::Changed;
use axum::response::Response;
use chain::Chain;
use control::{Control, now};
use model::{Code, Refusal, Subject, SubjectKind, Timestamp, code, event};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Refused calls of strangers with a record each, in an hour. What strangers do must not push out what users have done.
const STRANGERS_MAX: u64 = 200;
const HOUR: u64 = 3600;

/// The audit of this node.
pub struct Audit {
    control: Arc<Control>,
    state: Mutex<State>,
}

/// How a call was answered.
#[derive(Clone, Debug)]
pub struct Answered {
    status: u16,
    code: Option<Code>,
    changed: Value,
}

impl Answered {
    /// As the answer says.
    pub fn of(response: &Response) -> Self {
        let refusal = response.extensions().get::<Refusal>();
        let changed = response.extensions().get::<Changed>().map_or(Value::Null, |Changed(what)| what.clone());
        Self { status: response.status().as_u16(), code: refusal.map(|refusal| refusal.code), changed }
    }
}

struct State {
    chain: Chain,
    /// What could not be written yet.
    waiting: VecDeque<AuditRecord>,
    strangers: Strangers,
}

#[derive(Default)]
struct Strangers {
    since: Timestamp,
    recorded: u64,
    unrecorded: u64,
}

impl Audit {
    /// The audit as it was kept in the folder of the state.
    ///
    /// *Errors*: it cannot be read or written.
    pub fn open(control: Arc<Control>) -> Result<Self, Refusal> {
        let folder: PathBuf = control.settings().state_dir.join("audit");
        let chain = Chain::open(&folder)?;
        let state = State { chain, waiting: VecDeque::new(), strangers: Strangers::default() };
        Ok(Self { control, state: Mutex::new(state) })
    }

    /// What is done next can be written down.
    ///
    /// *Errors*: what was done before could not be, and cannot be still: nothing is done that nobody would know of.
    pub async fn ready(self: &Arc<Self>) -> Result<(), Refusal> {
        if self.state().waiting.is_empty() {
            return Ok(());
        }
        self.write().await
    }

    /// The call was answered so: it has its record. *Durability*: it survives power loss, where it can be written.
    pub async fn note(self: &Arc<Self>, entry: Entry, answered: Answered) {
        {
            let mut state = self.state();
            let State { waiting, strangers, .. } = &mut *state;
            if entry.is_of_a_stranger() && answered.code.is_some() && !strangers.admit(now()) {
                return;
            }
            let unrecorded = std::mem::take(&mut strangers.unrecorded);
            waiting.push_back(entry.record(now(), answered, unrecorded));
        }
        if let Err(refusal) = self.write().await {
            tracing::error!(%refusal, "what was changed could not be written down yet");
            let node = Subject::new(SubjectKind::Node, &self.control.settings().node);
            self.control.tell(event::AUDIT_UNWRITABLE, node, refusal.to_string());
        }
    }

    async fn write(self: &Arc<Self>) -> Result<(), Refusal> {
        let audit = self.clone();
        blocking(move || {
            let mut state = audit.state();
            let State { chain, waiting, .. } = &mut *state;
            while let Some(record) = waiting.front() {
                chain.append(record)?;
                waiting.pop_front();
            }
            Ok(())
        })
        .await
    }

    /// Records before the number `before`, the latest first, that have the word `search`.
    ///
    /// *Errors*: they cannot be read.
    pub async fn page(
        self: &Arc<Self>,
        before: Option<u64>,
        limit: usize,
        search: Option<String>,
    ) -> Result<AuditPage, Refusal> {
        let reader = self.state().chain.reader();
        blocking(move || reader.page(before.unwrap_or(u64::MAX), limit, search.as_deref())).await
    }

    /// Every record is as it was written, or the first that is not is named.
    ///
    /// *Errors*: they cannot be read.
    pub async fn check(self: &Arc<Self>) -> Result<AuditCheck, Refusal> {
        let reader = self.state().chain.reader();
        blocking(move || reader.check()).await
    }

    /// All records as they are written, file by file.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state().chain.reader().files()
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

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the audit broke off");
        Err(Refusal::new(code::INTERNAL, "the audit broke off", "report this with the daemon's log"))
    })
}
