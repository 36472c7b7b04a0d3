//! Writes that a member refuses for a moment are tried again before that costs the member, the array or what was answered.
//!
//! A full file system below a file-backed disk refuses only until somebody makes
//! room, and a member that had to be given up for that would have to be rebuilt. The tries end after some seconds, so that
//! every command ends: then the refusal counts, and while it lasts the next writes are not tried again.

use crate::members::Members;
use crate::members::op::{Op, Ops};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View, Written};
use shard::WANT_OF_SPACE_PAUSES;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Members<D> {
    /// Blocks of the member that are not of its data hold `data`.
    pub(crate) async fn write_beside_data(&self, member: u16, start: Lba, data: View) -> Result<Written, IoError> {
        let place = self.place(member);
        match place.write_beside_data(start, data.clone()).await {
            Err(error) if self.may_pass(member, error) => {
                Box::pin(self.insist(member, error, async || place.write_beside_data(start, data.clone()).await)).await
            }
            written => written,
        }
    }

    /// True for a refusal that may pass by itself, of a member that has not had its time already.
    pub(super) fn may_pass(&self, member: u16, error: IoError) -> bool {
        error.kind == IoErrorKind::NoSpace && !self.place(member).is_full.get()
    }

    /// What `attempt` gives once it gives something else than want of space, or after the last try.
    pub(super) async fn insist(
        &self,
        member: u16,
        refused: IoError,
        attempt: impl AsyncFn() -> Result<Written, IoError>,
    ) -> Result<Written, IoError> {
        let Some(pause) = self.shared.pause.clone() else { return Err(refused) };
        let may_pass = |error: &IoError| self.may_pass(member, *error);
        let again = async || {
            self.serving(refused.extent)?;
            attempt().await
        };
        let written = shard::insist(&pause, Err(refused), may_pass, again).await;
        if written.as_ref().is_err_and(may_pass) {
            self.place(member).is_full.set(true);
        }
        written
    }

    /// Those of the refused blocks that the members do not take either when they are asked again for some seconds.
    pub(crate) async fn write_again(
        self: &Rc<Self>,
        ops: &Ops,
        mut refused: Vec<(u16, Extent)>,
        extent: Extent,
    ) -> Vec<(u16, Extent)> {
        let Some(pause) = self.shared.pause.clone() else { return refused };
        for duration in WANT_OF_SPACE_PAUSES {
            if refused.is_empty() || self.stopped_by().is_some() {
                break;
            }
            pause(duration).await;
            let is_refused = |op: &&Op| refused.contains(&(op.member, op.extent()));
            let again: Ops = ops.iter().filter(is_refused).cloned().collect();
            let ended = self.perform(again).await;
            // A member that is gone by now has failed; a refusal is the caller's to judge.
            let _ = self.judge(&ended, extent);
            refused = self.refused_of(&ended);
        }
        refused
    }
}
