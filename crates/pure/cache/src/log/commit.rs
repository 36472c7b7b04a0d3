//! Group commit: what has been queued goes to the log device as one batch, one batch at a time.

use super::format::{self, BatchHeader, DATA_ALIGN, HEADER_UNITS_MAX, Record};
use super::{Content, Entry, Held, Hold, LiveBatch, LogFailed, Shared, State, UNIT_BYTES};
use crate::sabotage::{Sabotage, is_planted};
use block::{BlockDevice, Buf, IoError, Stable, View};
use std::rc::Rc;
use zerocopy::IntoBytes;

/// A batch that is ready to be written.
struct Batch {
    entries: Vec<Entry>,
    /// Where in the ring it begins and ends.
    start: u64,
    end: u64,
    data: View,
}

impl Shared {
    /// Writes batches until the log is closed or fails.
    pub(super) async fn commit(self: Rc<Self>, device: Rc<impl BlockDevice>) {
        loop {
            let batch = self.work.wait(|| self.next_batch().map(Some).or_else(|| self.is_idle().then_some(None))).await;
            let Some(batch) = batch else { break };
            if is_planted(Sabotage::AckBeforeStable) {
                let (start, data) = (batch.start, batch.data.clone());
                self.accepted(batch);
                let _ = self.put(&*device, start, data).await;
                continue;
            }
            match self.put(&*device, batch.start, batch.data.clone()).await {
                Ok(stable) => {
                    let _: Stable = stable;
                    self.accepted(batch);
                }
                Err(error) => {
                    self.fail(error, batch.entries).await;
                    break;
                }
            }
        }
        self.tasks.set(self.tasks.get() - 1);
        self.done.raise();
    }

    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        self.failed.get().is_some() || (self.closing.get() && state.queue.is_empty() && state.control.is_empty())
    }

    async fn put(&self, device: &impl BlockDevice, start: u64, data: View) -> Result<Stable, IoError> {
        let at = self.blocks(format::RING_START + start % self.ring_units);
        let written = device.write(at, data).await?;
        device.flush(written).await
    }

    /// Takes what is queued and fits. Nothing when nothing does.
    fn next_batch(&self) -> Option<Batch> {
        if self.failed.get().is_some() {
            return None;
        }
        let mut state = self.state.borrow_mut();
        let mut entries = Vec::new();
        let mut payload = 0;
        while entries.len() < format::records_max(HEADER_UNITS_MAX) {
            let control = !state.control.is_empty();
            let next = if control { state.control.front() } else { state.queue.front() };
            let Some(next) = next else { break };
            let more = payload + next.content.padded_bytes();
            if !state.fits(units_of(entries.len() + 1, more), control, self.ring_units) {
                break;
            }
            payload = more;
            let next = if control { state.control.pop_front() } else { state.queue.pop_front() };
            entries.extend(next);
        }
        if entries.is_empty() {
            return None;
        }
        let units = units_of(entries.len(), payload);
        let start = state.place(units, self.ring_units);
        let data = state.emit(&entries, units);
        state.head = start + units;
        Some(Batch { entries, start, end: start + units, data })
    }

    /// The batch is stable: its writes are their volumes' from now on.
    fn accepted(self: &Rc<Self>, batch: Batch) {
        let held = Rc::new(Held { log: Rc::downgrade(self) });
        let mut volumes: Vec<_> = batch.entries.iter().map(|entry| entry.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        {
            let mut state = self.state.borrow_mut();
            let number = state.next_batch;
            state.next_batch += 1;
            state.batches.push_back(LiveBatch { number, end: batch.end, held: Rc::downgrade(&held), volumes });
        }
        let mut counters = self.counters.get();
        counters.batches += 1;
        counters.records += batch.entries.len() as u64;
        for Entry { volume, content, ticket } in batch.entries {
            let hold = Hold(held.clone());
            let mut answer = None;
            match content {
                Content::Write { start, data } => {
                    counters.data_bytes += data.len() as u64;
                    if let Some(member) = self.member(volume) {
                        member.accept(start, data, hold);
                    }
                }
                Content::Discard { .. } => answer = Some(hold),
                Content::Release => {
                    let mut state = self.state.borrow_mut();
                    let number = state.next_batch - 1;
                    state.let_go.insert(volume, number);
                }
            }
            *ticket.0.borrow_mut() = Some(Ok(answer));
        }
        self.counters.set(counters);
        self.done.raise();
        self.released.raise();
    }

    /// The log device has failed: nothing more goes into it, and what it has goes below at once.
    async fn fail(&self, error: IoError, entries: Vec<Entry>) {
        self.failed.set(Some(error));
        let waiting = {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            entries.into_iter().chain(state.control.drain(..)).chain(state.queue.drain(..)).collect()
        };
        self.refuse(waiting);
        let members: Vec<_> = self.members.borrow().keys().copied().collect();
        let present = || members.iter().filter_map(|&volume| Some((volume, self.member(volume)?)));
        let holding = present().filter(|(_, member)| member.clone().log_failed()).map(|(volume, _)| volume).collect();
        let recorded = if is_planted(Sabotage::LogFailureNotRecorded) {
            Ok(())
        } else {
            self.owner.abandon(error, holding).await.map(drop)
        };
        self.recorded.set(Some(recorded));
        self.done.raise();
        for (_, member) in present() {
            if member.clone().settled().await.is_err() || member.flush_below().await.is_err() {
                return;
            }
        }
        self.owner.settled().await;
    }

    /// These will not be in the log.
    pub(super) fn refuse(&self, entries: Vec<Entry>) {
        for Entry { volume, content, ticket } in entries {
            if let (Content::Write { start, data }, Some(member)) = (content, self.member(volume)) {
                member.refuse(start, data.len());
            }
            *ticket.0.borrow_mut() = Some(Err(LogFailed));
        }
        self.done.raise();
    }
}

impl Content {
    fn padded_bytes(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len().next_multiple_of(DATA_ALIGN),
            Self::Discard { .. } | Self::Release => 0,
        }
    }
}

fn units_of(records: usize, payload: usize) -> u64 {
    (format::header_units(records) + payload.div_ceil(UNIT_BYTES)) as u64
}

impl State {
    /// Where a batch of `units` begins that is written next: it never passes the end of the ring.
    fn place(&self, units: u64, ring_units: u64) -> u64 {
        let left = ring_units - self.head % ring_units;
        if left < units { self.head + left } else { self.head }
    }

    fn fits(&self, units: u64, control: bool, ring_units: u64) -> bool {
        let reserve = if control { 0 } else { format::reserve_units(ring_units) };
        let end = self.place(units, ring_units) + units;
        units <= format::batch_units_max(ring_units) && end - self.tail + reserve <= ring_units
    }

    /// The bytes of a batch.
    fn emit(&mut self, entries: &[Entry], units: u64) -> View {
        let mut buf = Buf::recycled(units as usize * UNIT_BYTES);
        let mut at = format::header_units(entries.len()) * UNIT_BYTES;
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            let number = self.next_record;
            self.next_record += 1;
            records.push(match &entry.content {
                Content::Write { start, data } => {
                    let from = at;
                    buf[at..at + data.len()].copy_from_slice(data);
                    at += data.len().next_multiple_of(DATA_ALIGN);
                    Record::new(format::KIND_WRITE, entry.volume, start.0, 0, number).with_data(from, data)
                }
                Content::Discard { extent } => {
                    Record::new(format::KIND_DISCARD, entry.volume, extent.start.0, extent.len.0, number)
                }
                Content::Release => Record::new(format::KIND_RELEASE, entry.volume, 0, 0, number),
            });
        }
        buf[at..].fill(0);
        let header = BatchHeader::new(self.log_id, self.epoch, self.next_batch, units as u32, &records);
        let (head, entries) = (header.as_bytes(), records.as_bytes());
        let front = format::header_units(records.len()) * UNIT_BYTES;
        buf[..head.len()].copy_from_slice(head);
        buf[head.len()..head.len() + entries.len()].copy_from_slice(entries);
        buf[head.len() + entries.len()..front].fill(0);
        buf.freeze()
    }
}
