//! Group commit of the write log: queued records go to the log device in batches, several of which are in flight.

use super::format::{self, BatchHeader, DATA_ALIGN, HEADER_UNITS_MAX, Record};
use super::{BatchRef, Content, Entry, LiveBatch, LogFailed, RecordRef, Shared, State, UNIT_BYTES};
use crate::bug_injection::{InjectedBug, is_injected};
use block::{BlockDevice, Buf, IoError, Stable, View};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesOrdered;
use std::pin::pin;
use std::rc::Rc;

/// Smallest amount that is worth another batch while others are in flight.
const WORTH_RECORDS: usize = 8;
const WORTH_BYTES: usize = 32 << 10;

/// Batch that is ready to be written.
struct Batch {
    entries: Vec<Entry>,
    number: u64,
    /// Start and end in the ring, in units.
    start: u64,
    end: u64,
    data: View,
}

impl Shared {
    /// Writes batches until the log is closed or fails. Several are in flight at a time; they count in their order.
    pub(super) async fn commit(self: Rc<Self>, device: Rc<impl BlockDevice>) {
        let mut under_way = FuturesOrdered::new();
        loop {
            while under_way.len() < format::BATCHES_MAX
                && let Some(batch) = self.next_batch(format::BATCHES_MAX - under_way.len())
            {
                under_way.push_back(self.put(&*device, batch));
            }
            // Also after a failure: the loop ends once nothing is in flight any more.
            if under_way.is_empty() && self.is_idle() {
                break;
            }
            let more = || {
                let room = under_way.len() < format::BATCHES_MAX;
                ((room && self.has_batch(under_way.is_empty())) || (under_way.is_empty() && self.is_idle()))
                    .then_some(())
            };
            if under_way.is_empty() {
                self.work.wait(more).await;
                continue;
            }
            // Computed here, because the closure must not borrow what `next` borrows below.
            let room = under_way.len() < format::BATCHES_MAX;
            let more = pin!(self.work.wait(|| (room && self.has_batch(false)).then_some(())));
            // In order of submission: a batch is acknowledged only when all earlier ones are stable.
            match select(under_way.next(), more).await {
                Either::Left((Some((batch, Ok(stable))), _)) => {
                    let _: Stable = stable;
                    if !is_injected(InjectedBug::AckBeforeStable) {
                        self.accepted(batch);
                    }
                }
                Either::Left((Some((batch, Err(error))), _)) => {
                    // Batches behind the failed one do not count without it, even if they are stable.
                    let mut entries = batch.entries;
                    // Before the wait for the others, so that nothing more is queued.
                    self.failed.set(Some(error));
                    while let Some((batch, _)) = under_way.next().await {
                        entries.extend(batch.entries);
                    }
                    self.fail(error, entries).await;
                    break;
                }
                Either::Left((None, _)) | Either::Right(_) => {}
            }
        }
        assert!(self.tasks.get() > 0, "each task of a log ends once");
        self.tasks.set(self.tasks.get() - 1);
        self.done.raise();
    }

    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        self.failed.get().is_some() || (self.closing.get() && state.queue.is_empty() && state.control.is_empty())
    }

    /// Writes a batch and flushes the device.
    async fn put(&self, device: &impl BlockDevice, mut batch: Batch) -> (Batch, Result<Stable, IoError>) {
        if is_injected(InjectedBug::AckBeforeStable) {
            let entries = std::mem::take(&mut batch.entries);
            self.accepted(Batch { entries, data: View::default(), ..batch });
        }
        let units = batch.end - batch.start;
        assert_eq!(batch.data.len() as u64, units * UNIT_BYTES as u64, "a batch fills the place that it was given");
        let at = self.blocks(format::RING_START + batch.start % self.ring_units);
        let stable = match device.write(at, std::mem::take(&mut batch.data)).await {
            // Concurrent batches share a flush where the device groups commits.
            Ok(written) => device.flush(written).await,
            Err(error) => Err(error),
        };
        (batch, stable)
    }

    /// True when a queued record fits into the ring, and enough is queued for a batch. Without others in flight any
    /// amount is enough.
    fn has_batch(&self, alone: bool) -> bool {
        let state = self.state.borrow();
        let control = !state.control.is_empty();
        let Some(first) = (if control { state.control.front() } else { state.queue.front() }) else { return false };
        let waiting = || state.queue.iter().take(WORTH_RECORDS).map(|entry| entry.content.padded_bytes());
        // A batch with few records costs a header and a flush like a full one.
        let worth = alone || control || waiting().count() == WORTH_RECORDS || waiting().sum::<usize>() >= WORTH_BYTES;
        let fits = state.fits(units_of(1, first.content.padded_bytes()), control, self.ring_units);
        self.failed.get().is_none() && worth && fits
    }

    /// Takes queued records that fit, leaving a fair part for each of the other free `places`, so that the device
    /// stays busy. `None` when a batch is not worthwhile.
    fn next_batch(&self, places: usize) -> Option<Batch> {
        // With all places free nothing is in flight, so any amount is worth a batch.
        if !self.has_batch(places == format::BATCHES_MAX) {
            return None;
        }
        let mut state = self.state.borrow_mut();
        let queued: usize = state.queue.iter().map(|entry| entry.content.padded_bytes()).sum();
        // An equal part for each batch that can be in flight.
        let part = (queued / places).max(WORTH_BYTES);
        let mut entries = Vec::new();
        let mut payload = 0;
        while entries.len() < format::records_max(HEADER_UNITS_MAX) {
            let control = !state.control.is_empty();
            let next = if control { state.control.front() } else { state.queue.front() };
            let Some(next) = next else { break };
            let more = payload + next.content.padded_bytes();
            if payload >= part || !state.fits(units_of(entries.len() + 1, more), control, self.ring_units) {
                break;
            }
            payload = more;
            // Records without data first: queued writes may wait for the space that they free.
            let next = if control { state.control.pop_front() } else { state.queue.pop_front() };
            entries.extend(next);
        }
        assert!(!entries.is_empty(), "a batch has records");
        let units = units_of(entries.len(), payload);
        let start = state.place(units, self.ring_units);
        assert!(start % self.ring_units + units <= self.ring_units, "a batch does not wrap");
        assert!(start + units - state.tail <= self.ring_units, "a batch is not written over what is needed");
        let data = state.emit(&entries, units);
        let number = state.next_batch;
        state.next_batch += 1;
        state.head = start + units;
        Some(Batch { entries, number, start, end: start + units, data })
    }

    /// Hands the writes of a stable batch to their volumes, and answers their callers.
    fn accepted(&self, batch: Batch) {
        // Shared by all records of the batch: it can be freed when the last of them is dropped.
        let batch_ref = Rc::new(BatchRef { log: self.own.clone() });
        let mut volumes: Vec<_> = batch.entries.iter().map(|entry| entry.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        {
            let mut state = self.state.borrow_mut();
            assert_eq!(batch.number, state.stable + 1, "batches count in their order");
            let follows = state.batches.back().is_none_or(|last| last.end <= batch.start);
            assert!(follows, "a batch lies behind those before it");
            // From here on later batches name this one as stable.
            state.stable = batch.number;
            state.batches.push_back(LiveBatch {
                number: batch.number,
                end: batch.end,
                batch_ref: Rc::downgrade(&batch_ref),
                volumes,
            });
        }
        let mut counters = self.counters.get();
        counters.batches += 1;
        counters.records += batch.entries.len() as u64;
        for Entry { volume, content, completion } in batch.entries {
            let record_ref = RecordRef(batch_ref.clone());
            let mut answer = None;
            match content {
                Content::Write { start, data } => {
                    counters.data_bytes += data.len() as u64;
                    // A volume that was dropped meanwhile gets the write by replay.
                    if let Some(member) = self.member(volume) {
                        member.accept(start, data, record_ref);
                    }
                }
                // The reference is the answer: it keeps the record until the discard has been done below.
                Content::Discard { .. } => answer = Some(record_ref),
                Content::Release => {
                    let mut state = self.state.borrow_mut();
                    // Earlier batches are no longer pinned by this volume.
                    state.released_up_to.insert(volume, batch.number);
                }
            }
            *completion.0.borrow_mut() = Some(Ok(answer));
        }
        self.counters.set(counters);
        // After the volumes have the data, because a caller may read as soon as it is answered.
        self.done.raise();
        self.released.raise();
    }

    /// Handles a failure of the log device: nothing more goes into it, and dirty data is destaged at once.
    async fn fail(&self, error: IoError, entries: Vec<Entry>) {
        self.failed.set(Some(error));
        let waiting = {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            entries.into_iter().chain(state.control.drain(..)).chain(state.queue.drain(..)).collect()
        };
        // Callers write past the log, once the failure is recorded.
        self.refuse(waiting);
        let members: Vec<_> = self.members.borrow().keys().copied().collect();
        let present = || members.iter().filter_map(|&volume| Some((volume, self.member(volume)?)));
        // Before the owner is asked: destaging need not wait for the record.
        present().for_each(|(_, member)| member.log_failed());
        // Also volumes without dirty data: a batch that is still listed was not flushed below yet.
        let mut holding: Vec<_> = self.state.borrow().batches.iter().flat_map(|batch| batch.volumes.clone()).collect();
        holding.sort_unstable();
        holding.dedup();
        let recorded = if is_injected(InjectedBug::LogFailureNotRecorded) {
            Ok(())
        } else {
            // Stable before writes continue without the log: otherwise a replay after a crash would bring back old
            // data.
            self.owner.abandon(error, holding).await.map(drop)
        };
        self.recorded.set(Some(recorded));
        self.done.raise();
        // Callers continue from here on; only the owner waits for the destaging.
        for (_, member) in present() {
            // Not settled: the owner keeps the names of the volumes.
            if member.clone().destage_all().await.is_err() || member.flush_below().await.is_err() {
                return;
            }
        }
        self.owner.all_destaged().await;
    }

    /// Refuses entries that will not be in the log.
    pub(super) fn refuse(&self, entries: Vec<Entry>) {
        for Entry { volume, content, completion } in entries {
            if let (Content::Write { start, data }, Some(member)) = (content, self.member(volume)) {
                member.refuse(start, data.len());
            }
            *completion.0.borrow_mut() = Some(Err(LogFailed));
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
    /// Position of the next batch of `units` units; it never crosses the end of the ring.
    fn place(&self, units: u64, ring_units: u64) -> u64 {
        let left = ring_units - self.head % ring_units;
        if left < units { self.head + left } else { self.head }
    }

    fn fits(&self, units: u64, control: bool, ring_units: u64) -> bool {
        // Writes leave a reserve, so that discards and releases never wait for ring space.
        let reserve = if control { 0 } else { format::reserve_units(ring_units) };
        let end = self.place(units, ring_units) + units;
        units <= format::batch_units_max(ring_units) && end - self.tail + reserve <= ring_units
    }

    /// Encodes a batch.
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
        assert_eq!(at.div_ceil(UNIT_BYTES) as u64, units, "a batch takes the units that it was placed with");
        // The buffer is recycled and may hold old data.
        buf[at..].fill(0);
        let header = BatchHeader::new(self.log_id, self.epoch, [self.next_batch, self.stable], units as u32);
        let front = header.emit(&records, &mut buf);
        buf[front..format::header_units(records.len()) * UNIT_BYTES].fill(0);
        buf.freeze()
    }
}
