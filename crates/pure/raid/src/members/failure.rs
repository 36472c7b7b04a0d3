//! What the failure of a member means. Decided here and nowhere else.
//!
//! A member fails at the first write or flush that it does not do, or when it is gone. From then on the
//! array does not use it, and no write is acknowledged before the failure is durable: else, after a
//! restart, the member would come back with old data that looks current.
//!
//! When the array cannot do without the member, nobody is failed: the array stops. What it has
//! acknowledged is on its members; what it could not finish was not acknowledged.

use crate::geometry::MemberSet;
use crate::members::Members;
use crate::members::member::MemberState;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Stable};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// Where the owner of an array keeps, durably, which members have failed.
pub trait FailureLog {
    /// After any crash, `member` is not taken for a current member of the array.
    ///
    /// Called once for each failure. *Errors*: when that cannot be promised; the array stops then.
    /// *Durability*: all of it, before the answer.
    fn record(&self, member: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>>;
}

/// The failures of one array that matter to its commands.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Failures that are not durable yet.
    unrecorded: Cell<u32>,
    /// Why the array does not serve any more.
    stopped: Cell<Option<IoError>>,
}

impl Failures {
    /// Why the array does not serve writes any more, if so.
    fn stopped_by(&self) -> Option<IoError> {
        self.stopped.get()
    }
}

impl<D: BlockDevice + 'static> Members<D> {
    /// Why the array does not serve writes any more, if so.
    pub(crate) fn stopped_by(&self) -> Option<IoError> {
        self.shared.failures.stopped_by()
    }

    /// Passes commands through that change data; refuses them once the array has stopped.
    pub(crate) fn serving(&self, extent: Extent) -> Result<(), IoError> {
        match self.stopped_by() {
            Some(error) => Err(IoError { kind: IoErrorKind::Gone, extent, member: error.member }),
            None => Ok(()),
        }
    }

    /// True when the array can do without `member`, beside those that it does without already.
    pub(crate) fn spares(&self, member: u16) -> bool {
        // Nobody has begun to rely on one that is joining.
        member >= self.width()
            || self.stopped_by().is_none() && self.layout.survives(self.not_in_service().with(member))
    }

    /// How many further members may be lost, whichever they are and at most one is counted, once `member` is; `None` where
    /// the array cannot do without it.
    pub(crate) fn spare_without(&self, member: u16) -> Option<u16> {
        if !self.spares(member) {
            return None;
        }
        let lost = self.not_in_service().with(member);
        let others = self.all() - lost;
        Some(u16::from(others.iter().all(|other| self.layout.survives(lost.with(other)))))
    }

    /// The array does not use `member` any more, and the failure is on its way to the log; or the array
    /// has stopped, where it cannot do without.
    pub(crate) fn lose(self: &Rc<Self>, member: u16, error: IoError) {
        if matches!(self.place(member).state(), MemberState::Failed | MemberState::Missing) {
            return;
        }
        if member >= self.width() {
            self.place(member).set_state(MemberState::Failed);
            return;
        }
        if !self.spares(member) {
            self.stop(error.of_member(member));
            return;
        }
        self.place(member).set_state(MemberState::Failed);
        assert!(self.layout.survives(self.not_in_service()), "no member fails that the array cannot do without");
        if let Some(missed) = &self.shared.missed {
            missed.note_absence();
        }
        self.shared.failures.unrecorded.set(self.shared.failures.unrecorded.get() + 1);
        let members = self.clone();
        self.shared.background.start(async move {
            if let Err(error) = members.shared.log.record(member, error).await {
                members.stop(error.of_member(member));
            }
            let unrecorded = &members.shared.failures.unrecorded;
            assert!(unrecorded.get() > 0, "a failure is recorded once");
            unrecorded.set(unrecorded.get() - 1);
        });
    }

    /// As [`Members::lose`], unless another device is in the place than in that tenure.
    pub(crate) fn lose_in(self: &Rc<Self>, member: u16, tenure: u64, error: IoError) {
        if self.place(member).tenure.get() == tenure {
            self.lose(member, error);
        }
    }

    /// Nothing is acknowledged any more. The first reason is kept.
    pub(crate) fn stop(&self, error: IoError) {
        if self.stopped_by().is_none() {
            self.shared.failures.stopped.set(Some(error));
            // Whoever waits for the log waits in vain.
            self.shared.changed.raise();
        }
    }

    /// Every failure so far is durable, so what the failed members have missed may be acknowledged.
    ///
    /// *Errors*: `Gone` when the array has stopped.
    pub(crate) async fn failures_recorded(&self, extent: Extent) -> Result<(), IoError> {
        if self.shared.failures.unrecorded.get() > 0 {
            let unrecorded = &self.shared.failures.unrecorded;
            self.shared.background.until(|_| if unrecorded.get() == 0 { Poll::Ready(()) } else { Poll::Pending }).await;
        }
        self.serving(extent)
    }

    /// The members that do not hold, or do not yet hold, all that they should.
    pub(crate) fn not_in_service(&self) -> MemberSet {
        let in_service = |member: &u16| self.place(*member).state() == MemberState::InService;
        self.all().iter().filter(|member| !in_service(member)).collect()
    }
}
