//! Group commit of the log: one batch is written at a time, and everything that waits goes into the next.

use crate::bounds::BLOCK_BYTES;
use crate::geometry::MemberSet;
use crate::on_disk::batch::Records;
use crate::redo::RedoLog;
use crate::redo::ring::{Sealed, Ticket, Turn};
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::future::join_all;
use shard::yield_now;
use std::rc::Rc;
use std::task::Poll;

impl<D: BlockDevice + 'static> RedoLog<D> {
    /// The records are on as many members as survive any loss that the array survives.
    ///
    /// The ticket keeps them in the log: it is dropped when what they speak of is in place. For work that ends
    /// even when its command is dropped: who waits for the same batch relies on it. *Errors*: `Gone` when
    /// the array has stopped.
    pub(crate) async fn commit(self: &Rc<Self>, mut records: Records) -> Result<Ticket, IoError> {
        let ring = &self.state.ring;
        self.members.note_missed(&records.blocks);
        if sabotage::is(Bug::WindowBeforeBatch) {
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
            let turn = self.background.until(|cx| match self.members.serving(Extent::default()) {
                Ok(()) => ring.poll_turn(number, cx).map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            });
            match turn.await? {
                Turn::Stable(ticket) => return Ok(ticket),
                Turn::Lead => self.lead().await?,
            }
        }
    }

    /// Writes the batch that gathers.
    async fn lead(self: &Rc<Self>) -> Result<(), IoError> {
        // Commands that become ready in the same turn share the batch.
        yield_now().await;
        let sealed = loop {
            let twice = self.takes_all_copies_alone();
            if let Some(sealed) = self.state.ring.seal(self.state.id, twice) {
                break sealed;
            }
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
        self.state.missed.note_recent(&sealed.blocks);
        self.members.note_missed(&sealed.blocks);
        let number = sealed.number;
        if sabotage::is(Bug::AcknowledgeBeforeLog) {
            self.state.ring.led(number, Ok(()));
            let _ = self.write_batch(&sealed).await;
            return Ok(());
        }
        let written = self.write_batch(&sealed).await;
        self.state.ring.led(number, written);
        if self.wants_checkpoint() {
            self.start_checkpoint();
        }
        written
    }

    /// True when the ring is half full, or the pages that wait to be written are half of what may be held.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let cache = self.checksums.pages.cache.borrow();
        self.state.ring.filled() > self.state.ring.blocks / 2 || cache.dirty() > cache.dirty_max()
    }

    async fn write_batch(self: &Rc<Self>, sealed: &Sealed) -> Result<(), IoError> {
        let start = Lba(self.state.area.ring.start.0 + sealed.at);
        let batch = self.write_lanes(sealed.number, start, &sealed.bytes);
        let table = self.write_second_table(sealed, start);
        futures_util::future::join(batch, table).await.0
    }

    /// True where one member alone is left to take the log: a second table can only be behind the first.
    fn takes_all_copies_alone(&self) -> bool {
        self.members.in_use().len() == 1
    }

    /// A batch that goes to one member alone has its header and records on another one, too: what they say of other blocks
    /// would be lost with them, and nobody could say which these are.
    async fn write_second_table(self: &Rc<Self>, sealed: &Sealed, start: Lba) {
        let lanes = self.lanes(sealed.number, self.members.not_in_use(), MemberSet::NONE);
        let Some(member) = self.second_lane(lanes) else { return };
        let table = sealed.bytes.slice(..crate::geometry::bytes(sealed.table_blocks));
        let tenure = self.members.place(member).tenure.get();
        match self.write_lane(member, start, &table).await {
            // The batch itself is on its lane; a member that refuses this block alone is not given up for it.
            Err(error) if error.kind == IoErrorKind::Gone || self.members.spares(member) => {
                self.members.lose_in(member, tenure, error)
            }
            _ => {}
        }
    }

    /// The member that the table of a batch goes to beside `lanes`, where that is one member alone.
    pub(crate) fn second_lane(&self, lanes: MemberSet) -> Option<u16> {
        let first = lanes.iter().next().filter(|_| lanes.len() == 1)?;
        let lost = self.members.not_in_use();
        (1..self.members.width())
            .map(|step| (first + step) % self.members.width())
            .find(|&member| !lost.contains(member))
    }

    /// Writes the bytes to the same place of several members, until what is lost, and what could yet be, leaves one.
    ///
    /// *Durability*: all of it.
    pub(crate) async fn write_lanes(self: &Rc<Self>, turn: u64, start: Lba, bytes: &View) -> Result<(), IoError> {
        let (area, extent) = (&self.state.area, Extent::new(start.0, bytes.len() as u64 / u64::from(BLOCK_BYTES)));
        let is_in_log = area.ring.contains(extent) || area.spare.contains(extent);
        assert!(is_in_log, "batches lie within the ring, spared pages within the spare area");
        let (mut written, mut refused) = (MemberSet::NONE, MemberSet::NONE);
        loop {
            self.members.serving(Extent::default())?;
            let lost = self.members.not_in_use();
            written = written - lost;
            let more = self.lanes(turn, lost | refused, written);
            if more.is_empty() {
                let suffices = !written.is_empty() && !self.members.layout.survives(lost | refused | written);
                if !suffices && !sabotage::is(Bug::OneLane) {
                    self.members.stop(IoError::new(IoErrorKind::Gone, Extent::default()));
                }
                return self.members.serving(Extent::default());
            }
            let lanes = more.iter().map(|member| async move {
                let tenure = self.members.place(member).tenure.get();
                (member, tenure, self.write_lane(member, start, bytes).await)
            });
            for (member, tenure, result) in join_all(lanes).await {
                match result {
                    // Another device has the place, and does not have the batch.
                    _ if tenure != self.members.place(member).tenure.get() => {}
                    Ok(()) => written = written.with(member),
                    Err(_) if sabotage::is(Bug::LaneErrorIgnored) => written = written.with(member),
                    Err(error) if error.kind == IoErrorKind::Medium && !self.members.spares(member) => {
                        refused = refused.with(member);
                    }
                    Err(error) => self.members.lose(member, error),
                }
            }
        }
    }

    async fn write_lane(self: &Rc<Self>, member: u16, start: Lba, bytes: &View) -> Result<(), IoError> {
        let place = self.members.place(member);
        let _written = self.members.write_beside_data(member, start, bytes.clone()).await?;
        if place.is_volatile() && !sabotage::is(Bug::NoLaneFlush) {
            let _stable = place.flush().await?;
        }
        Ok(())
    }

    /// Members to which the batch has to go beside those that have it: with them, the array could not lose
    /// all who have it and still serve. They go round with `turn`.
    pub(crate) fn lanes(&self, turn: u64, lost: MemberSet, written: MemberSet) -> MemberSet {
        let (members, copies) = (self.members.width(), self.members.layout.copies());
        // Mirrors of one pair are together as good as lanes of all pairs, so a turn begins at a pair.
        let groups = u64::from(members / copies);
        let first = u16::try_from(turn % groups).expect("there are at most 64 members") * copies;
        let mut lanes = MemberSet::NONE;
        for step in 0..members {
            if sabotage::is(Bug::OneLane) && !(written | lanes).is_empty() {
                break;
            }
            if !self.members.layout.survives(lost | written | lanes) && !(written | lanes).is_empty() {
                break;
            }
            let member = (first + step) % members;
            if !(lost | written).contains(member) {
                lanes = lanes.with(member);
            }
        }
        lanes
    }
}
