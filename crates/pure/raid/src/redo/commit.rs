//! Group commit of the redo log: one batch is written at a time, and all records that wait go into the next.

use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::geometry::MemberSet;
use crate::on_disk::batch::Records;
use crate::redo::RedoLog;
use crate::redo::ring::{CommitState, Reservation, Sealed};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::future::join_all;
use shard::yield_now;
use std::rc::Rc;
use std::task::Poll;

impl<D: BlockDevice + 'static> RedoLog<D> {
    /// Makes the records durable on as many members as survive any loss that the array survives.
    ///
    /// The reservation keeps them in the log; drop it when the change they describe is in place. Call it only from work
    /// that runs to its end even when its command is dropped: commands that wait for the same batch rely on it.
    /// *Errors*: `Gone` when the array has stopped.
    pub(crate) async fn commit(self: &Rc<Self>, mut records: Records) -> Result<Reservation, IoError> {
        let ring = &self.state.ring;
        // Before the batch is written: an anchor written meanwhile must name these regions as missed.
        self.members.note_missed(&records.blocks);
        if bug_injection::is_injected(InjectedBug::WindowBeforeBatch) {
            // Planted bug: a checkpoint that is already running would cover these regions too early.
            self.state.missed.note_recent(&std::mem::take(&mut records.blocks));
        }
        let mut records = Some(records);
        let number = self.background.until(|cx| {
            let stopped = self.members.serving(Extent::default());
            if stopped.is_err() {
                return Poll::Ready(stopped.map(|()| 0));
            }
            ring.poll_join(&mut records, cx).map(Ok)
        });
        let number = number.await?;
        loop {
            let state = self.background.until(|cx| match self.members.serving(Extent::default()) {
                Ok(()) => ring.poll_commit(number, cx).map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            });
            match state.await? {
                CommitState::Stable(reservation) => return Ok(reservation),
                CommitState::Lead => self.lead().await?,
            }
        }
    }

    /// Seals and writes the batch that is gathering, waiting for log space if there is none.
    async fn lead(self: &Rc<Self>) -> Result<(), IoError> {
        // Lets commands that become ready in the same executor turn share the batch.
        yield_now().await;
        let sealed = loop {
            let twice = self.takes_all_copies_alone();
            if let Some(sealed) = self.state.ring.seal(self.state.id, twice) {
                break sealed;
            }
            // The ring is full. A checkpoint needs no log space, so this cannot deadlock.
            self.start_checkpoint();
            let begun = self.state.checkpoints.get();
            let freed = self.background.until(|cx| match self.members.serving(Extent::default()) {
                Ok(()) if self.state.checkpoints.get() == begun => {
                    self.state.ring.watch(cx);
                    Poll::Pending
                }
                served => Poll::Ready(served),
            });
            freed.await?;
        };
        // After sealing, so that the checkpoint that covers these regions is one that starts after the batch has its
        // place.
        self.state.missed.note_recent(&sealed.blocks);
        // Once more: a member may have failed since the records were handed over.
        self.members.note_missed(&sealed.blocks);
        let number = sealed.number;
        if bug_injection::is_injected(InjectedBug::AcknowledgeBeforeLog) {
            self.state.ring.batch_written(number, Ok(()));
            let _ = self.write_batch(&sealed).await;
            return Ok(());
        }
        let written = self.write_batch(&sealed).await;
        self.state.ring.batch_written(number, written);
        if self.wants_checkpoint() {
            self.start_checkpoint();
        }
        written
    }

    /// True when the ring is more than half full, or dirty pages exceed half of the page budget.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let cache = self.checksums.pages.cache.borrow();
        self.state.ring.filled() > self.state.ring.blocks / 2 || cache.dirty() > cache.dirty_max()
    }

    async fn write_batch(self: &Rc<Self>, sealed: &Sealed) -> Result<(), IoError> {
        let start = Lba(self.state.area.ring.start.0 + sealed.at);
        let batch = self.write_log_mirrors(sealed.number, start, &sealed.bytes);
        let table = self.write_second_table(sealed, start);
        // The second table only helps to read a decayed batch, so its result does not decide about the commit.
        futures_util::future::join(batch, table).await.0
    }

    /// True where a single member is left, so that the second table can only go behind the first.
    fn takes_all_copies_alone(&self) -> bool {
        // A member that is being added takes pages, but no batch before it counts: an opening may leave it out.
        (self.members.in_use() & self.members.counted()).len() == 1
    }

    /// Writes header and records of a batch that goes to one member alone to another member, too: if they were lost,
    /// it would not be known which blocks the batch had changed.
    async fn write_second_table(self: &Rc<Self>, sealed: &Sealed, start: Lba) {
        // The same function as for the batch itself, so recovery can compute both places.
        let mirrors = self.log_mirrors(sealed.number, self.members.not_in_use(), MemberSet::NONE);
        let Some(member) = self.table_mirror(mirrors) else { return };
        let table = sealed.bytes.slice(..crate::geometry::bytes(sealed.table_blocks));
        let incarnation = self.members.place(member).device_incarnation.get();
        match self.write_log_mirror(member, start, &table).await {
            // The batch itself is on its log mirror, so a needed member is not failed for refusing this block.
            Err(error) if error.kind == IoErrorKind::Gone || self.members.can_lose(member) => {
                self.members.mark_failed_in(member, incarnation, error)
            }
            _ => {}
        }
    }

    /// Returns the member that takes the second table of a batch that goes to one log mirror only.
    pub(crate) fn table_mirror(&self, mirrors: MemberSet) -> Option<u16> {
        let first = mirrors.iter().next().filter(|_| mirrors.len() == 1)?;
        let lost = self.members.not_in_use();
        (1..self.members.counted_len())
            .map(|step| (first + step) % self.members.counted_len())
            .find(|&member| !lost.contains(member))
    }

    /// Writes the bytes to the same address of several members, until no survivable combination of losses includes
    /// all that have them.
    ///
    /// *Durability*: all of it.
    pub(crate) async fn write_log_mirrors(self: &Rc<Self>, turn: u64, start: Lba, bytes: &View) -> Result<(), IoError> {
        let (area, extent) = (&self.state.area, Extent::new(start.0, bytes.len() as u64 / u64::from(BLOCK_BYTES)));
        let is_in_log = area.ring.contains(extent) || area.doublewrite.contains(extent);
        assert!(is_in_log, "batches lie within the ring, spared pages within the spare area");
        let (mut written, mut refused) = (MemberSet::NONE, MemberSet::NONE);
        loop {
            self.members.serving(Extent::default())?;
            let lost = self.members.not_in_use();
            // A member that failed while the others wrote does not count, so another log mirror is added in the next
            // round.
            written = written - lost;
            let more = self.log_mirrors(turn, lost | refused, written);
            if more.is_empty() {
                // With `refused` members unable to take it, those that have it must include one that outlives any
                // further loss.
                let suffices = !written.is_empty() && !self.members.layout.survives(lost | refused | written);
                if !suffices && !bug_injection::is_injected(InjectedBug::OneLane) {
                    self.members.stop(IoError::new(IoErrorKind::Gone, Extent::default()));
                }
                return self.members.serving(Extent::default());
            }
            let mirrors = more.iter().map(|member| async move {
                let incarnation = self.members.place(member).device_incarnation.get();
                (member, incarnation, self.write_log_mirror(member, start, bytes).await)
            });
            for (member, incarnation, result) in join_all(mirrors).await {
                match result {
                    // Another device has taken the place and lacks the batch.
                    _ if incarnation != self.members.place(member).device_incarnation.get() => {}
                    Ok(()) => written = written.with(member),
                    Err(_) if bug_injection::is_injected(InjectedBug::LaneErrorIgnored) => {
                        written = written.with(member)
                    }
                    Err(error) if error.kind == IoErrorKind::Medium && !self.members.can_lose(member) => {
                        refused = refused.with(member);
                    }
                    Err(error) => self.members.mark_failed(member, error),
                }
            }
        }
    }

    /// Writes the bytes to one member, and flushes it where its cache is volatile.
    async fn write_log_mirror(self: &Rc<Self>, member: u16, start: Lba, bytes: &View) -> Result<(), IoError> {
        let place = self.members.place(member);
        let _written = self.members.write_metadata(member, start, bytes.clone()).await?;
        if place.is_volatile() && !bug_injection::is_injected(InjectedBug::NoLaneFlush) {
            // Each log mirror flushes for itself: a batch counts only when it survives a power cut on all of them.
            let _stable = place.flush().await?;
        }
        Ok(())
    }

    /// Chooses the members that a batch goes to beside those that have it: together no survivable loss includes all
    /// of them. The first log mirror rotates with `turn`.
    pub(crate) fn log_mirrors(&self, turn: u64, lost: MemberSet, written: MemberSet) -> MemberSet {
        let (members, copies) = (self.members.counted_len(), self.members.layout.copies());
        // Both mirrors of a pair suffice (RAID-10), so they start at a pair.
        let groups = u64::from(members / copies);
        let first = u16::try_from(turn % groups).expect("there are at most 64 members") * copies;
        let mut mirrors = MemberSet::NONE;
        for step in 0..members {
            if bug_injection::is_injected(InjectedBug::OneLane) && !(written | mirrors).is_empty() {
                break;
            }
            if !self.members.layout.survives(lost | written | mirrors) && !(written | mirrors).is_empty() {
                break;
            }
            let member = (first + step) % members;
            // A failed member takes no batch, but its loss counts in what the array survives.
            if !(lost | written).contains(member) {
                mirrors = mirrors.with(member);
            }
        }
        mirrors
    }
}
