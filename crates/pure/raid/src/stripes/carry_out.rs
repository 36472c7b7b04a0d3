//! The member writes of a stripe: all of them, to the end, and what their errors mean.

use crate::members::{Ops, count};
use crate::stripes::Stripes;
use block::{BlockDevice, Extent, IoError};
use shard::RangeGuard;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Stripes<D> {
    /// The operations are done, on every member that still counts. They end under `guard` even when the
    /// caller is dropped.
    ///
    /// Failures may not be durable yet: [`Members::failures_recorded`] comes before any acknowledgement.
    /// *Errors*: in the array's blocks `extent`, when data could not be written and has no other copy,
    /// or the array has stopped.
    pub(crate) async fn carry_out(self: &Rc<Self>, ops: Ops, guard: RangeGuard, extent: Extent) -> Result<(), IoError> {
        let own = self.clone();
        let work = async move {
            let ended = own.members.perform(ops).await;
            let judged = own.members.judge(&ended, extent);
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
        let own = self.clone();
        let work = async move {
            let remembered = own.remember(&ops).await;
            for ended in own.members.perform(ops).await {
                match ended.result {
                    Ok(()) => {
                        count(&own.members.place(ended.member).counts.heals);
                        own.tally.add(|counters| counters.heals += 1);
                    }
                    Err(error) if own.members.spares(ended.member) => {
                        own.members.lose_in(ended.member, ended.tenure, error)
                    }
                    Err(_) => {}
                }
            }
            if let Some(remembered) = remembered {
                own.make_known(remembered).await;
            }
            drop(guard);
        };
        self.background.finish(work).await;
    }
}
