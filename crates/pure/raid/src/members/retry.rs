//! Retries of writes that a member refuses for want of space, before the refusal fails the member or the array.
//!
//! A full file system below a file-backed disk refuses writes only until space is freed, and a member failed for that
//! would have to be rebuilt. Retries end after some seconds, so that every command ends: then the refusal counts, and
//! while it lasts further writes are not retried.

use crate::members::Members;
use crate::members::op::{Op, Ops};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View, Written};
use shard::NO_SPACE_PAUSES;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Members<D> {
    /// Writes blocks outside of the data area, with retries.
    pub(crate) async fn write_metadata(&self, member: u16, start: Lba, data: View) -> Result<Written, IoError> {
        let place = self.place(member);
        match place.write_metadata(start, data.clone()).await {
            Err(error) if self.is_temporary(member, error) => {
                Box::pin(self.retry_no_space(member, error, async || place.write_metadata(start, data.clone()).await))
                    .await
            }
            written => written,
        }
    }

    /// True for a refusal that may be temporary, of a member whose retries are not used up.
    pub(super) fn is_temporary(&self, member: u16, error: IoError) -> bool {
        error.kind == IoErrorKind::NoSpace && !self.place(member).is_full.get()
    }

    /// Retries `attempt` until it returns anything but want of space, or the last retry has failed.
    pub(super) async fn retry_no_space(
        &self,
        member: u16,
        refused: IoError,
        attempt: impl AsyncFn() -> Result<Written, IoError>,
    ) -> Result<Written, IoError> {
        // Without a timer from the owner the refusal counts at once.
        let Some(pause) = self.shared.pause.clone() else { return Err(refused) };
        let is_temporary = |error: &IoError| self.is_temporary(member, *error);
        let again = async || {
            // The array may have stopped during the pause.
            self.serving(refused.extent)?;
            attempt().await
        };
        let written = shard::retry_on_error(&pause, Err(refused), is_temporary, again).await;
        if written.as_ref().is_err_and(is_temporary) {
            // Cleared by the next successful write.
            self.place(member).is_full.set(true);
        }
        written
    }

    /// Retries the refused writes for some seconds; returns the blocks that are still refused.
    pub(crate) async fn write_again(
        self: &Rc<Self>,
        ops: &Ops,
        mut refused: Vec<(u16, Extent)>,
        extent: Extent,
    ) -> Vec<(u16, Extent)> {
        let Some(pause) = self.shared.pause.clone() else { return refused };
        // Bounded by the pauses, because the refused change keeps its locks and its log space until then.
        for duration in NO_SPACE_PAUSES {
            if refused.is_empty() || self.stopped_by().is_some() {
                break;
            }
            pause(duration).await;
            let is_refused = |op: &&Op| refused.contains(&(op.member, op.extent()));
            let again: Ops = ops.iter().filter(is_refused).cloned().collect();
            let ended = self.perform(again).await;
            // A member that is gone has failed here; what a refusal means is up to the caller.
            let _ = self.judge(&ended, extent);
            refused = self.refused_of(&ended);
        }
        refused
    }
}
