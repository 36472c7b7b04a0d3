//! Execution of a stripe's member writes: all of them, to the end, with their errors judged.

use crate::members::{Ops, count};
use crate::stripes::Stripes;
use block::{BlockDevice, Extent, IoError};
use shard::RangeGuard;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Stripes<D> {
    /// Executes the writes on every usable member. They end under `guard` even when the caller is dropped: a stripe
    /// written in part has wrong parity.
    ///
    /// Failures may not be durable yet: call [`Members::failures_recorded`] before any acknowledgement. *Errors*: in
    /// the array's blocks `extent`, when data could not be written and has no other copy, or the array has stopped.
    pub(crate) async fn execute(self: &Rc<Self>, ops: Ops, guard: RangeGuard, extent: Extent) -> Result<(), IoError> {
        let own = self.clone();
        let work = async move {
            let ended = own.members.perform(ops).await;
            let judged = own.members.judge(&ended, extent);
            // Judged under the lock, so that no reader sees a failed member's old content as current.
            drop(guard);
            judged
        };
        self.background.finish(work).await
    }

    /// Executes writes that have nothing in common (RAID-0): they stop when the caller is dropped. The caller holds a
    /// shared lock, which only a copy of a member waits for.
    pub(crate) async fn execute_independent(self: &Rc<Self>, ops: Ops, extent: Extent) -> Result<(), IoError> {
        let ended = self.members.perform(ops).await;
        self.members.judge(&ended, extent)
    }

    /// Writes restored content back to the members that could not read it. The data is served already, so an error
    /// only costs the member, if the array can spare it.
    pub(crate) async fn heal(self: &Rc<Self>, ops: Ops, guard: RangeGuard) {
        let own = self.clone();
        let work = async move {
            // Chosen before the write: content that redundancy gave back may match no entry.
            let chosen = own.choose_entries(&ops).await;
            // An error here is not returned: the reader has its data.
            for ended in own.members.perform(ops).await {
                match ended.result {
                    Ok(()) => {
                        count(&own.members.place(ended.member).counts.heals);
                        own.tally.add(|counters| counters.heals += 1);
                    }
                    Err(error) if own.members.can_lose(ended.member) => {
                        own.members.mark_failed_in(ended.member, ended.incarnation, error)
                    }
                    // A needed member keeps its bad block, and the next read restores the content again.
                    Err(_) => {}
                }
            }
            if let Some(chosen) = chosen {
                own.log_entries(chosen).await;
            }
            drop(guard);
        };
        self.background.finish(work).await;
    }
}
