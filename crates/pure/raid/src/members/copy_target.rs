//! Second device of a member while it is copied: it gets every change of the member until it takes the place.
//!
//! An error of the second device ends the copy only, as long as the copy is not relied on. From
//! [`Member::require_copy`] on a change fails that either device has failed.

use crate::members::member::{Member, MemberState};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Stable, View, Written};
use futures_util::future::join;
use std::cell::Cell;
use std::rc::Rc;

/// Second device of a member.
pub(crate) struct CopyTarget<D> {
    device: Rc<D>,
    failed: Cell<Option<IoError>>,
    is_relied_on: Cell<bool>,
    /// Blocks of the member's data in stripes below this one are copied.
    front_stripe: Cell<u64>,
}

impl<D> CopyTarget<D> {
    /// First error of the device, if it has failed.
    pub(crate) fn failed(&self) -> Option<IoError> {
        self.failed.get()
    }

    /// First stripe that is not copied yet.
    pub(crate) fn front_stripe(&self) -> u64 {
        self.front_stripe.get()
    }

    /// Advances the front: stripes before it are copied.
    ///
    /// *Panics*: when the front would go back.
    pub(crate) fn advance(&self, front_stripe: u64) {
        assert!(self.front_stripe.get() <= front_stripe, "the front of a copy moves forward");
        self.front_stripe.set(front_stripe);
    }
}

impl<D: BlockDevice> Member<D> {
    /// The second device, while there is one.
    pub(crate) fn copy_target(&self) -> Option<Rc<CopyTarget<D>>> {
        self.copy_target.borrow().clone()
    }

    /// Adds `device` as the second device; it gets every change from now on.
    ///
    /// *Panics*: when there is one already, or the member is not in service.
    pub(crate) fn begin_copy(&self, device: D) -> Rc<CopyTarget<D>> {
        assert_eq!(self.state(), MemberState::InService, "a member is copied while it serves");
        let (failed, is_relied_on, front_stripe) = Default::default();
        let copy_target = Rc::new(CopyTarget { device: Rc::new(device), failed, is_relied_on, front_stripe });
        let before = self.copy_target.replace(Some(copy_target.clone()));
        assert!(before.is_none(), "a member is copied to one device at a time");
        copy_target
    }

    /// Drops the second device. No effect once it has taken the place.
    pub(crate) fn end_copy(&self) {
        self.copy_target.take();
    }

    /// Makes every change that the second device does not complete fail.
    pub(crate) fn require_copy(&self, copy_target: &CopyTarget<D>) {
        copy_target.is_relied_on.set(true);
    }

    /// Makes the second device the member's device.
    pub(crate) fn promote(&self, copy_target: &Rc<CopyTarget<D>>) {
        assert!(copy_target.is_relied_on.get(), "what takes the place has done every change");
        assert!(
            self.copy_target.take().is_some_and(|own| Rc::ptr_eq(&own, copy_target)),
            "it is the second device of this member"
        );
        // From here on the results of operations in flight on the new device count alone; see `combine`.
        self.take_device(copy_target.device.clone());
    }

    /// Writes data of the member to the second device.
    pub(crate) async fn write_copy_target(
        &self,
        copy_target: &CopyTarget<D>,
        extent: Extent,
        data: View,
    ) -> Result<(), IoError> {
        // Counted as a change of the member, so that its next flush reaches the second device, too.
        let _changing = self.changing();
        for (part, at) in self.changed_runs(extent) {
            let from = crate::geometry::bytes(part.start.0 - extent.start.0);
            let data = data.slice(from..from + crate::geometry::bytes(part.len.0));
            let _: Written = copy_target.device.write(at, data).await?;
        }
        Ok(())
    }

    /// Awaits `own`, and writes the same runs to the second device.
    pub(super) async fn write_both(
        &self,
        copy_target: &Rc<CopyTarget<D>>,
        own: impl Future<Output = Result<Written, IoError>>,
        runs: Vec<(Lba, View)>,
    ) -> Result<Written, IoError> {
        let other = async {
            // Ends at the first error, which ends the copy as well.
            for (at, data) in runs {
                let _: Written = copy_target.device.write(at, data).await?;
            }
            Ok(Written::attest())
        };
        // Both end before the result counts: no write may be in flight once the stripe is unlocked.
        let (own, other) = join(own, other).await;
        self.combine(copy_target, own, other)
    }

    /// Awaits `own`, and discards the same runs on the second device.
    pub(super) async fn discard_both(
        &self,
        copy_target: &Rc<CopyTarget<D>>,
        own: impl Future<Output = Result<Written, IoError>>,
        runs: Vec<Extent>,
    ) -> Result<Written, IoError> {
        let other = async {
            for run in runs {
                let _: Written = copy_target.device.discard(run).await?;
            }
            Ok(Written::attest())
        };
        let (own, other) = join(own, other).await;
        self.combine(copy_target, own, other)
    }

    /// Awaits `own`, and flushes the second device.
    pub(super) async fn flush_both(
        &self,
        copy_target: &Rc<CopyTarget<D>>,
        own: impl Future<Output = Result<Stable, IoError>>,
    ) -> Result<Stable, IoError> {
        let (own, other) = join(own, copy_target.device.flush(Written::attest())).await;
        self.combine(copy_target, own, other)
    }

    /// Combines both results: the member's counts, until the copy is relied on; the new device's alone once it has
    /// the place.
    fn combine<T>(
        &self,
        copy_target: &Rc<CopyTarget<D>>,
        own: Result<T, IoError>,
        other: Result<T, IoError>,
    ) -> Result<T, IoError> {
        // The exchange came during this operation.
        if self.is_device(&copy_target.device) {
            return other;
        }
        if let Err(error) = &other {
            // The copy notices this at its next step and ends.
            copy_target.failed.set(Some(*error));
            if copy_target.is_relied_on.get() {
                return other;
            }
        }
        own
    }

    /// Error of a read of a device that may have left the place: `Gone` then means the device and not the member.
    pub(super) fn of_own_device(&self, device: &Rc<D>, error: IoError) -> IoError {
        // A medium error, so that the blocks are read elsewhere and no member is failed.
        let is_other = error.kind == IoErrorKind::Gone && !self.is_device(device);
        if is_other { IoError { kind: IoErrorKind::Medium, ..error } } else { error }
    }
}
