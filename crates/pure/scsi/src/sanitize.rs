//! SANITIZE (SBC-4): everything that the unit holds is made unreadable, behind the command and whatever becomes of it.
//!
//! `order.rs` reads what is asked, and is what survives power loss; `erase.rs` does it. While it is done the unit serves next to
//! nothing, and when it has failed neither. Who owns the unit says whether it may be, and runs the work ([`Sanitizer`]).

mod erase;
mod order;

pub(crate) use order::check_list_length;
pub(crate) use order::{Method, Sanitizing};

use crate::command::Status;
use crate::failure::Failure;
use crate::keeper::{NotKept, keeping_failure};
use crate::medium::Medium;
use crate::operation::Operation;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{EVERYTHING, Ticket};
use block::{BlockDevice, Blocks, IoError, Rope};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

const EXIT_FAILURE_MODE: u8 = 0x1F;

/// The key of a unit on its way out.
pub type Replacing<'a> = Pin<Box<dyn Future<Output = Result<(), IoError>> + 'a>>;

/// Who has a unit sanitized.
pub trait Sanitizer {
    /// True when nothing that the unit holds would stay readable elsewhere.
    fn admits(&self) -> bool;

    /// True when what is written to the unit is encrypted, and its key can be replaced.
    fn has_key(&self) -> bool;

    /// Nobody can read any more what was written to the unit so far, and what reads find is anything until it is discarded.
    ///
    /// *Durability*: when it is ready.
    fn replace_key(&self) -> Replacing<'_>;

    /// [`LogicalUnit::carry_out_sanitize`](crate::LogicalUnit::carry_out_sanitize) is run from now on, whatever becomes of who asked for it.
    fn begin(&self);
}

/// Whether a unit is being sanitized.
#[derive(Default)]
pub(crate) struct Sanitize {
    sanitizer: Option<Rc<dyn Sanitizer>>,
    state: RefCell<State>,
    /// False while nothing is to be said: a command looks at this and no further.
    restricts: Cell<bool>,
    /// True while the work is done, and true when that is to end.
    at_work: Cell<bool>,
    stopping: Cell<bool>,
    /// Those who wait for an end.
    watchers: RefCell<Vec<Waker>>,
}

/// Lives while the work is done.
struct AtWork<'a>(&'a Sanitize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.set(false);
        self.0.wake();
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Idle,
    Running(Sanitizing),
    /// `exits` is AUSE: EXIT FAILURE MODE ends it.
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
    /// A unit that `sanitizer` has sanitized.
    pub(crate) fn by(sanitizer: Rc<dyn Sanitizer>) -> Self {
        Self { sanitizer: Some(sanitizer), ..Self::default() }
    }

    pub(crate) fn is_offered(&self) -> bool {
        self.sanitizer.is_some()
    }

    /// True when CRYPTOGRAPHIC ERASE is known.
    pub(crate) fn has_key(&self) -> bool {
        self.sanitizer.as_ref().is_some_and(|sanitizer| sanitizer.has_key())
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The state is another; who waits for the end looks again.
    pub(crate) fn install(&self, state: State) {
        self.restricts.set(state != State::Idle);
        self.state.replace(state);
        self.wake();
    }

    fn wake(&self) {
        self.watchers.take().into_iter().for_each(Waker::wake);
    }

    fn begin_work(&self) -> AtWork<'_> {
        self.at_work.set(true);
        self.stopping.set(false);
        AtWork(self)
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

    /// What runs is so far.
    fn advance(&self, order: &Sanitizing) {
        assert!(self.is_running(), "what runs runs until its work ends");
        self.state.replace(State::Running(order.clone()));
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(*self.state.borrow(), State::Failed { .. })
    }

    /// Why a unit of so many `blocks` does not serve, if it is being sanitized or that has failed.
    pub(crate) fn sense(&self, blocks: impl FnOnce() -> Blocks) -> Option<Sense> {
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

    /// Refuses what is not served while the unit is being sanitized, or when that has failed.
    ///
    /// *Errors*: 2/04/1B with the progress; 3/31/03.
    #[inline]
    pub(crate) fn check(&self, operation: &Operation, blocks: impl FnOnce() -> Blocks) -> Result<(), Sense> {
        if self.restricts.get() { self.check_served(operation, blocks) } else { Ok(()) }
    }

    fn check_served(&self, operation: &Operation, blocks: impl FnOnce() -> Blocks) -> Result<(), Sense> {
        let Some(sense) = self.sense(blocks) else { return Ok(()) };
        let retries = operation.is_sanitize() && !self.is_running();
        if retries || operation.is_served_meanwhile() { Ok(()) } else { Err(sense) }
    }

    /// Carries out the command SANITIZE up to its status. `keep` has what is to survive power loss survive.
    pub(crate) async fn order<D: BlockDevice>(
        &self,
        job: &Job,
        ticket: &Ticket<'_>,
        medium: &Medium<D>,
        keep: impl AsyncFnOnce() -> Result<(), NotKept>,
    ) -> Result<Rope, Failure> {
        let cdb = job.request.cdb;
        let (action, immediate, exits) = (cdb.u8_at(1) & 0x1F, cdb.bit(1, 7), cdb.bit(1, 5));
        let is_restricted = self.state() == State::Failed { exits: false };
        if action == EXIT_FAILURE_MODE {
            // Only another one that succeeds ends what was begun in the restricted completion mode.
            return if is_restricted { Err(Sense::cdb_bit(1, 4).into()) } else { self.exit_failure_mode(keep).await };
        }
        let method = Method::parse(action, &job.whole_data()?, job.geometry.block_bytes)?;
        if is_restricted && exits {
            return Err(Sense::cdb_bit(1, 5).into());
        }
        check_space_for(&method, medium)?;
        let sanitizer = self.sanitizer.as_ref().ok_or(Status::Busy)?;
        if !sanitizer.admits() {
            return Err(Sense::illegal(AdditionalSense::COMMAND_SEQUENCE_ERROR).into());
        }
        medium.tokens().cancel(EVERYTHING);
        assert!(!self.is_running(), "a second order is refused while one runs");
        self.install_kept(State::Running(Sanitizing::new(method, exits)), keep).await?;
        // Others need not wait for the end to hear that there is something to wait for.
        ticket.stand_aside();
        sanitizer.begin();
        if immediate {
            return Ok(Rope::new());
        }
        self.ended(ticket).await;
        if self.has_failed() { Err(failed().into()) } else { Ok(Rope::new()) }
    }

    /// What has failed counts as done, though the unit may hold what it held.
    async fn exit_failure_mode(&self, keep: impl AsyncFnOnce() -> Result<(), NotKept>) -> Result<Rope, Failure> {
        if self.state() != State::Idle {
            self.install_kept(State::Idle, keep).await?;
        }
        Ok(Rope::new())
    }

    /// The state is another and survives power loss, or is the one before.
    async fn install_kept(&self, state: State, keep: impl AsyncFnOnce() -> Result<(), NotKept>) -> Result<(), Failure> {
        let before = self.state();
        self.install(state);
        let kept = keep().await;
        kept.map_err(|why| {
            self.install(before);
            keeping_failure(why)
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.state.borrow(), State::Running(_))
    }

    /// Is ready when nothing is under way, or the task of `ticket` was aborted.
    async fn ended(&self, ticket: &Ticket<'_>) {
        poll_fn(|cx| {
            if !self.is_running() {
                return Poll::Ready(());
            }
            self.watchers.borrow_mut().push(cx.waker().clone());
            ticket.poll_aborted(cx)
        })
        .await;
    }
}

/// Refuses a pattern that fills blocks which have no place and would get none.
fn check_space_for<D: BlockDevice>(method: &Method, medium: &Medium<D>) -> Result<(), Sense> {
    let Some(space) = medium.space().filter(|_| !erase::keeps_holes(method, medium)) else { return Ok(()) };
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
