//! The member writes of a stripe: all of them, to the end, and what their errors mean.

use crate::array::Core;
use crate::members::{Ops, count};
use block::{BlockDevice, Extent, IoError};
use shard::RangeGuard;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Core<D> {
    /// The operations are done, on every member that still counts. They end under `guard` even when the
    /// caller is dropped.
    ///
    /// Failures may not be durable yet: [`Members::failures_recorded`] comes before any acknowledgement.
    /// *Errors*: in the array's blocks `extent`, when data could not be written and has no other copy,
    /// or the array has stopped.
    pub(crate) async fn carry_out(self: &Rc<Self>, ops: Ops, guard: RangeGuard, extent: Extent) -> Result<(), IoError> {
        let core = self.clone();
        let work = async move {
            let ended = core.members.perform(ops).await;
            let judged = core.members.judge(&ended, extent);
            drop(guard);
            judged
        };
        self.background.finish(work).await
    }

    /// The operations are done on members that have nothing in common: no lock, and no end once dropped.
    pub(crate) async fn carry_out_bare(self: &Rc<Self>, ops: Ops, extent: Extent) -> Result<(), IoError> {
        let ended = self.members.perform(ops).await;
        self.members.judge(&ended, extent)
    }

    /// Writes back what had been unreadable. The data was served already, so an error only costs the
    /// member, if the array can do without.
    pub(crate) async fn heal(self: &Rc<Self>, ops: Ops, guard: RangeGuard) {
        let core = self.clone();
        let work = async move {
            let remembered = core.remember(&ops).await;
            for ended in core.members.perform(ops).await {
                match ended.result {
                    Ok(()) => {
                        count(&core.members.place(ended.member).counts.heals);
                        core.tally.add(|counters| counters.heals += 1);
                    }
                    Err(error) if core.members.spares(ended.member) => {
                        core.members.lose_in(ended.member, ended.tenure, error)
                    }
                    Err(_) => {}
                }
            }
            if let Some(remembered) = remembered {
                core.make_known(remembered).await;
            }
            drop(guard);
        };
        self.background.finish(work).await;
    }
}
