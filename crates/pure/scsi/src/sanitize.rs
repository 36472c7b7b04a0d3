//! SANITIZE (SBC-4): makes all content of the unit unrecoverable, in the background and regardless of the fate of the
//! command.
//!
//! `order.rs` parses the order and defines its stored form; `erase.rs` does the work. While it runs, and after it has
//! failed, the unit serves almost no command. The owner of the unit decides whether it is permitted and runs the work
//! ([`Sanitizer`]).

mod erase;
mod order;

pub(crate) use order::check_list_length;
pub(crate) use order::{Method, SanitizeOperation};

use crate::command::Status;
use crate::failure::Failure;
use crate::medium::Medium;
use crate::operation::Operation;
use crate::persistence::{StoreError, store_failure};
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{EVERYTHING, TaskGuard};
use block::{BlockDevice, Blocks, IoError, Rope};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

const EXIT_FAILURE_MODE: u8 = 0x1F;

/// Future of a key replacement.
pub type ReplaceKeyFuture<'a> = Pin<Box<dyn Future<Output = Result<(), IoError>> + 'a>>;

/// Owner's side of SANITIZE: permission, encryption key, and the task that does the work.
pub trait Sanitizer {
    /// True when no data of the unit would remain readable elsewhere (snapshots, clones).
    fn admits(&self) -> bool;

    /// True when the unit is encrypted and its key can be replaced.
    fn has_key(&self) -> bool;

    /// Replaces the encryption key: data written so far becomes permanently unreadable. Reads return undefined data
    /// until blocks are discarded.
    ///
    /// *Durability*: durable when the future completes.
    fn replace_key(&self) -> ReplaceKeyFuture<'_>;

    /// Starts a task that runs [`LogicalUnit::carry_out_sanitize`](crate::LogicalUnit::carry_out_sanitize), independent
    /// of the command that ordered it.
    fn begin(&self);
}

/// SANITIZE state of a unit.
#[derive(Default)]
pub(crate) struct Sanitize {
    sanitizer: Option<Rc<dyn Sanitizer>>,
    state: RefCell<State>,
    /// False while the state is idle: every command reads this cell and nothing more then.
    restricts: Cell<bool>,
    /// True while the work runs, and true when it has been asked to stop.
    at_work: Cell<bool>,
    stopping: Cell<bool>,
    /// Wakers of futures that await the end.
    watchers: RefCell<Vec<Waker>>,
}

/// Guard that is alive while the work runs.
struct WorkGuard<'a>(&'a Sanitize);

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        // Also when the future of the work is dropped, so that `stop` does not wait for it forever.
        self.0.at_work.set(false);
        self.0.wake();
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Idle,
    Running(SanitizeOperation),
    /// Failed; `exits` is AUSE: EXIT FAILURE MODE may clear the failure.
    Failed {
        exits: bool,
    },
}

impl fmt::Debug for Sanitize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sanitize").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Sanitize {
    /// Creates the state of a unit with a sanitizer.
    pub(crate) fn by(sanitizer: Rc<dyn Sanitizer>) -> Self {
        Self { sanitizer: Some(sanitizer), ..Self::default() }
    }

    pub(crate) fn is_offered(&self) -> bool {
        self.sanitizer.is_some()
    }

    /// True when CRYPTOGRAPHIC ERASE is supported.
    pub(crate) fn has_key(&self) -> bool {
        self.sanitizer.as_ref().is_some_and(|sanitizer| sanitizer.has_key())
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Sets the state and wakes the commands that await the end.
    pub(crate) fn install(&self, state: State) {
        // Cached in a cell: this check is on the path of every command.
        self.restricts.set(state != State::Idle);
        self.state.replace(state);
        self.wake();
    }

    fn wake(&self) {
        // Taken out first, because a task that is woken may register again.
        self.watchers.take().into_iter().for_each(Waker::wake);
    }

    fn begin_work(&self) -> WorkGuard<'_> {
        self.at_work.set(true);
        // A stop of an earlier operation must not end this one.
        self.stopping.set(false);
        WorkGuard(self)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        poll_fn(|cx| {
            if !self.at_work.get() {
                return Poll::Ready(());
            }
            self.watchers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Publishes the progress of the running operation.
    fn advance(&self, order: &SanitizeOperation) {
        assert!(self.is_running(), "what runs runs until its work ends");
        // Not by `install`: nothing waits for progress, and the restriction of commands stays as it is.
        self.state.replace(State::Running(order.clone()));
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(*self.state.borrow(), State::Failed { .. })
    }

    /// Returns the sense of a unit of `blocks` blocks that is being sanitized or whose sanitize operation has failed.
    pub(crate) fn sense(&self, blocks: impl FnOnce() -> Blocks) -> Option<Sense> {
        // Common case, without a borrow of the state.
        if !self.restricts.get() {
            return None;
        }
        match &*self.state.borrow() {
            State::Idle => None,
            State::Running(running) => {
                let sense = Sense::new(SenseKey::NotReady, AdditionalSense::SANITIZE_IN_PROGRESS);
                Some(Sense { progress: Some(running.progress(blocks())), ..sense })
            }
            State::Failed { .. } => Some(failed()),
        }
    }

    /// Refuses operations that are not served while a sanitize operation is running or has failed.
    ///
    /// *Errors*: 2/04/1B with the progress; 3/31/03.
    #[inline]
    pub(crate) fn check(&self, operation: &Operation, blocks: impl FnOnce() -> Blocks) -> Result<(), Sense> {
        if self.restricts.get() { self.check_served(operation, blocks) } else { Ok(()) }
    }

    fn check_served(&self, operation: &Operation, blocks: impl FnOnce() -> Blocks) -> Result<(), Sense> {
        let Some(sense) = self.sense(blocks) else { return Ok(()) };
        // SBC-4: after a failure, another SANITIZE is accepted.
        let retries = operation.is_sanitize() && !self.is_running();
        if retries || operation.is_served_during_sanitize() { Ok(()) } else { Err(sense) }
    }

    /// Executes the SANITIZE command up to its status. `keep` persists the state of the unit.
    pub(crate) async fn order<D: BlockDevice>(
        &self,
        job: &Job,
        ticket: &TaskGuard<'_>,
        medium: &Medium<D>,
        keep: impl AsyncFnOnce() -> Result<(), StoreError>,
    ) -> Result<Rope, Failure> {
        let cdb = job.request.cdb;
        let (action, immediate, exits) = (cdb.u8_at(1) & 0x1F, cdb.bit(1, 7), cdb.bit(1, 5));
        let is_restricted = self.state() == State::Failed { exits: false };
        if action == EXIT_FAILURE_MODE {
            // SBC-4: a failure in restricted completion mode (AUSE zero) is cleared only by another SANITIZE that
            // succeeds.
            return if is_restricted { Err(Sense::cdb_bit(1, 4).into()) } else { self.exit_failure_mode(keep).await };
        }
        let method = Method::parse(action, &job.whole_data()?, job.geometry.block_bytes)?;
        // Nor may a SANITIZE with AUSE lift that restriction.
        if is_restricted && exits {
            return Err(Sense::cdb_bit(1, 5).into());
        }
        check_space_for(&method, medium)?;
        // Not reached without a sanitizer: SANITIZE is an unknown operation then.
        let sanitizer = self.sanitizer.as_ref().ok_or(Status::Busy)?;
        // Snapshots and clones would keep the content readable.
        if !sanitizer.admits() {
            return Err(Sense::illegal(AdditionalSense::COMMAND_SEQUENCE_ERROR).into());
        }
        // Tokens must not deliver content that is about to be erased.
        medium.tokens().cancel(EVERYTHING);
        assert!(!self.is_running(), "a second order is refused while one runs");
        self.install_and_store(State::Running(SanitizeOperation::new(method, exits)), keep).await?;
        // Other commands are refused at once with the progress, and do not wait for the end.
        ticket.release_claims();
        // Started after the state is durable, so that a restart resumes the operation.
        sanitizer.begin();
        if immediate {
            return Ok(Rope::new());
        }
        // An abort ends this wait, but not the operation.
        self.ended(ticket).await;
        if self.has_failed() { Err(failed().into()) } else { Ok(Rope::new()) }
    }

    /// EXIT FAILURE MODE: clears the failure, although the unit may still hold its old content.
    async fn exit_failure_mode(&self, keep: impl AsyncFnOnce() -> Result<(), StoreError>) -> Result<Rope, Failure> {
        if self.state() != State::Idle {
            self.install_and_store(State::Idle, keep).await?;
        }
        Ok(Rope::new())
    }

    /// Installs a state and persists it, or restores the previous one if that fails.
    async fn install_and_store(
        &self,
        state: State,
        keep: impl AsyncFnOnce() -> Result<(), StoreError>,
    ) -> Result<(), Failure> {
        let before = self.state();
        // Installed before it is durable, so that `keep` stores it together with the other state.
        self.install(state);
        let kept = keep().await;
        kept.map_err(|why| {
            self.install(before);
            store_failure(why)
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.state.borrow(), State::Running(_))
    }

    /// Waits until no operation is running, or the task of `ticket` is aborted.
    async fn ended(&self, ticket: &TaskGuard<'_>) {
        poll_fn(|cx| {
            if !self.is_running() {
                return Poll::Ready(());
            }
            // The waker of the abort is stored by the ticket.
            self.watchers.borrow_mut().push(cx.waker().clone());
            ticket.poll_aborted(cx)
        })
        .await;
    }
}

/// Refuses a pattern that would have to allocate more space than is available.
fn check_space_for<D: BlockDevice>(method: &Method, medium: &Medium<D>) -> Result<(), Sense> {
    let Some(space) = medium.space().filter(|_| !erase::keeps_holes(method, medium)) else { return Ok(()) };
    // A pattern cannot be discarded, so every block must be allocated.
    if space.mapped_bytes.saturating_add(space.free_bytes) < medium.geometry().bytes() {
        return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED));
    }
    Ok(())
}

fn failed() -> Sense {
    Sense::new(SenseKey::MediumError, AdditionalSense::SANITIZE_COMMAND_FAILED)
}

#[cfg(test)]
mod tests;
