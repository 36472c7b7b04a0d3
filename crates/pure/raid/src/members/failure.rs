//! Failure of members; what it means is decided only here.
//!
//! A member fails at the first write or flush that it does not complete, or when it is gone. From then on the array
//! does not use it, and no write is acknowledged before the failure is durable: otherwise the member would return
//! after a restart with old data that looks current.
//!
//! When the array needs the member, no member is failed: the array stops. What it has acknowledged is on its members;
//! what it could not finish was not acknowledged.

use crate::geometry::MemberSet;
use crate::members::Members;
use crate::members::member::MemberState;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Stable};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// Durable record of failed members, kept by the owner of an array.
pub trait FailureLog {
    /// Records durably that `member` is not a current member of the array after any crash.
    ///
    /// Called once for each failure. *Errors*: when that cannot be promised; the array stops then. *Durability*: all
    /// of it, before the answer.
    fn record(&self, member: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>>;
}

/// Failures that affect the commands of one array.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Number of failures that are not durable yet.
    unrecorded: Cell<u32>,
    /// Error that stopped the array.
    stopped: Cell<Option<IoError>>,
}

impl Failures {
    /// Error that stopped the array, if it has.
    fn stopped_by(&self) -> Option<IoError> {
        self.stopped.get()
    }
}

impl<D: BlockDevice + 'static> Members<D> {
    /// Error that stopped the array, if it has; writes and flushes are refused then.
    pub(crate) fn stopped_by(&self) -> Option<IoError> {
        self.shared.failures.stopped_by()
    }

    /// Refuses commands that change data once the array has stopped.
    pub(crate) fn serving(&self, extent: Extent) -> Result<(), IoError> {
        match self.stopped_by() {
            // Only the member is taken from the first error: its extent belongs to another command.
            Some(error) => Err(IoError { kind: IoErrorKind::Gone, extent, member: error.member }),
            None => Ok(()),
        }
    }

    /// True when the array can serve without `member`, beside those that are out of service already.
    pub(crate) fn can_lose(&self, member: u16) -> bool {
        // The array does not depend on a joining member yet.
        // A stopped array spares no member: its next opening needs what they hold.
        member >= self.counted_len()
            || self.stopped_by().is_none() && self.layout.survives(self.not_in_service().with(member))
    }

    /// Redundancy left without `member`: 1 where any further member may fail, 0 where none may; `None` where the
    /// array cannot serve without it.
    pub(crate) fn redundancy_without(&self, member: u16) -> Option<u16> {
        if !self.can_lose(member) {
            return None;
        }
        let lost = self.not_in_service().with(member);
        // One further loss suffices: `deadlines::judge` distinguishes only some redundancy from none.
        let others = self.counted() - lost;
        Some(u16::from(others.iter().all(|other| self.layout.survives(lost.with(other)))))
    }

    /// Fails `member` and starts to record that; or stops the array, if it cannot serve without the member.
    pub(crate) fn mark_failed(self: &Rc<Self>, member: u16, error: IoError) {
        // Concurrent operations may report the same failure; it is recorded once.
        if matches!(self.place(member).state(), MemberState::Failed | MemberState::Missing) {
            return;
        }
        // A joining member is in no record yet, so its failure needs none.
        if member >= self.counted_len() {
            self.place(member).set_state(MemberState::Failed);
            return;
        }
        if !self.can_lose(member) {
            self.stop(error.of_member(member));
            return;
        }
        self.place(member).set_state(MemberState::Failed);
        assert!(self.layout.survives(self.not_in_service()), "no member fails that the array cannot do without");
        // Everything not yet covered by a checkpoint may have been in its cache only.
        if let Some(missed) = &self.shared.missed {
            missed.note_absence();
        }
        // Counted before the task starts: a command that ends now must wait for the record.
        self.shared.failures.unrecorded.set(self.shared.failures.unrecorded.get() + 1);
        let members = self.clone();
        // Detached: the command that noticed the failure may be dropped before it is recorded.
        self.shared.background.start(async move {
            if let Err(error) = members.shared.log.record(member, error).await {
                // Without the record the member could return as current, so nothing may be acknowledged any more.
                members.stop(error.of_member(member));
            }
            let unrecorded = &members.shared.failures.unrecorded;
            assert!(unrecorded.get() > 0, "a failure is recorded once");
            // Also after an error: the array has stopped then, and waiters see that.
            unrecorded.set(unrecorded.get() - 1);
        });
    }

    /// Fails `member` as [`Members::mark_failed`] unless its place has another device than at that incarnation.
    pub(crate) fn mark_failed_in(self: &Rc<Self>, member: u16, incarnation: u64, error: IoError) {
        if self.place(member).device_incarnation.get() == incarnation {
            self.mark_failed(member, error);
        }
    }

    /// Stops the array: nothing is acknowledged from now on. The first error is kept.
    pub(crate) fn stop(&self, error: IoError) {
        if self.stopped_by().is_none() {
            // The first error names the cause; later ones are consequences.
            self.shared.failures.stopped.set(Some(error));
            // Commands that wait for the log must see that it will not come.
            self.shared.changed.raise();
        }
    }

    /// Waits until every failure so far is durable, so that writes that failed members missed may be acknowledged.
    ///
    /// *Errors*: `Gone` when the array has stopped.
    pub(crate) async fn failures_recorded(&self, extent: Extent) -> Result<(), IoError> {
        if self.shared.failures.unrecorded.get() > 0 {
            // Evaluated again whenever an item of the background work ends, as the recording is one.
            let unrecorded = &self.shared.failures.unrecorded;
            self.shared.background.until(|_| if unrecorded.get() == 0 { Poll::Ready(()) } else { Poll::Pending }).await;
        }
        self.serving(extent)
    }

    /// Members that do not hold all of their data: failed, missing or being rebuilt.
    pub(crate) fn not_in_service(&self) -> MemberSet {
        let in_service = |member: &u16| self.place(*member).state() == MemberState::InService;
        self.counted().iter().filter(|member| !in_service(member)).collect()
    }
}
