//! In-memory state of the log ring: the gathering batch, batches whose writes in place have not ended, and free
//! space.

use crate::bounds::BLOCK_BYTES;
use crate::on_disk::batch;
use crate::on_disk::batch::{HEADER_BYTES, Header, Records};
use block::{IoError, View};
use shard::Signal;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Upper bound of blocks in one batch (2 MiB).
const BATCH_BLOCKS_MAX: u64 = 512;

/// Ring of one array's redo log.
pub(crate) struct Ring {
    pub(crate) blocks: u64,
    state: RefCell<State>,
    changed: Rc<Signal>,
}

/// Position in the log: a batch number, and a block address that counts on without wrapping at the end of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u64,
    pub(crate) at: u64,
}

struct State {
    epoch: u64,
    head: Head,
    /// Nothing before this position is needed any more.
    tail_at: u64,
    gathering: NextBatch,
    /// True while a command writes a batch, or is about to.
    is_led: bool,
    /// Every batch with a lower number is stable.
    stable: u64,
    /// Number of open changes of each sealed batch whose writes have not all ended, from `first_open` on.
    open: VecDeque<u32>,
    first_open: u64,
    /// True while a command waits for the gathering batch to be sealed because its records do not fit.
    has_waiters: bool,
}

#[derive(Default)]
struct NextBatch {
    table: Vec<u8>,
    images: Vec<View>,
    image_blocks: u64,
    records: u32,
    joined: u32,
    /// Blocks that the records describe, as start and count.
    blocks: Vec<(u64, u64)>,
}

/// Batch that is ready to be written.
pub(crate) struct Sealed {
    pub(crate) number: u64,
    /// Block of the ring where it starts.
    pub(crate) at: u64,
    pub(crate) bytes: View,
    /// Blocks of header and records.
    pub(crate) table_blocks: u64,
    /// Blocks that its records describe, as start and count, with repetitions.
    pub(crate) blocks: Vec<(u64, u64)>,
}

/// Result of waiting for a batch: the caller is to write it, or it is stable.
pub(crate) enum CommitState {
    Lead,
    Stable(Reservation),
}

/// Keeps a batch in the log; dropped when the writes in place that the batch describes have ended.
pub(crate) struct Reservation {
    ring: Rc<Ring>,
    number: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ring.release(self.number);
    }
}

impl Ring {
    pub(crate) fn new(blocks: u64, epoch: u64, head: Head, changed: Rc<Signal>) -> Rc<Self> {
        let state = State {
            epoch,
            head,
            tail_at: head.at,
            gathering: NextBatch::default(),
            is_led: false,
            stable: head.number,
            open: VecDeque::new(),
            first_open: head.number,
            has_waiters: false,
        };
        Rc::new(Self { blocks, state: RefCell::new(state), changed })
    }

    /// Restarts the empty log at `head` in `epoch`. Nothing may be gathering or open.
    pub(crate) fn restart(&self, epoch: u64, head: Head) {
        let mut state = self.state.borrow_mut();
        assert!(state.open.is_empty() && state.gathering.joined == 0, "nobody writes before the log is open");
        (state.epoch, state.head, state.tail_at) = (epoch, head, head.at);
        (state.stable, state.first_open) = (head.number, head.number);
    }

    /// Upper bound of blocks in one batch: a quarter of the ring, so that several fit.
    pub(crate) fn batch_blocks_max(&self) -> u64 {
        (self.blocks / 4).min(BATCH_BLOCKS_MAX)
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state.borrow().epoch
    }

    /// Wakes all commands that wait for the log.
    pub(crate) fn wake(&self) {
        self.changed.raise();
    }

    /// Wakes `cx` at the next change.
    pub(crate) fn watch(&self, cx: &Context<'_>) {
        self.changed.watch(cx);
    }

    /// Adds the records to the gathering batch and returns its number; pending while they do not fit into it.
    ///
    /// *Panics*: when they would not fit into an empty batch: callers keep within [`Ring::batch_blocks_max`].
    pub(crate) fn poll_join(&self, records: &mut Option<Records>, cx: &Context<'_>) -> Poll<u64> {
        let mut state = self.state.borrow_mut();
        let more = records.as_ref().expect("records join once");
        let (table, image_blocks) = (more.table.len(), more.image_blocks());
        let gathering = &mut state.gathering;
        let blocks =
            batch::blocks_of(HEADER_BYTES + gathering.table.len() + table, gathering.image_blocks + image_blocks);
        if blocks > self.batch_blocks_max() {
            assert!(gathering.joined > 0, "{blocks} blocks do not fit into a batch");
            // The batch cannot take these records; they wait until it has been sealed.
            state.has_waiters = true;
            self.watch(cx);
            return Poll::Pending;
        }
        let more = records.take().expect("it was there above");
        gathering.table.extend_from_slice(&more.table);
        // A reference to the image; it is copied once, when the batch is sealed.
        gathering.images.extend(more.images);
        gathering.blocks.extend(more.blocks);
        gathering.image_blocks += image_blocks;
        gathering.records += more.count;
        gathering.joined += 1;
        // Batches are sealed one after the other, so this one gets the next number.
        Poll::Ready(state.head.number)
    }

    /// Ready when batch `number` is stable, or when the caller is to write it.
    pub(crate) fn poll_commit(self: &Rc<Self>, number: u64, cx: &Context<'_>) -> Poll<CommitState> {
        let mut state = self.state.borrow_mut();
        assert!(number <= state.head.number, "nobody waits for a batch that nothing has joined");
        // The reservation is counted in the open batch already, by `joined`.
        if number < state.stable {
            return Poll::Ready(CommitState::Stable(Reservation { ring: self.clone(), number }));
        }
        // The first waiter that is polled leads; the others of the batch only wait.
        if !state.is_led && number == state.head.number {
            state.is_led = true;
            return Poll::Ready(CommitState::Lead);
        }
        self.watch(cx);
        Poll::Pending
    }

    /// Encodes the gathered batch, with a second table if `twice`; `None` while there is no room for it.
    pub(crate) fn seal(&self, id: [u8; 16], twice: bool) -> Option<Sealed> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        assert!(state.is_led, "only who leads seals the batch");
        let gathering = &mut state.gathering;
        assert!(gathering.joined > 0, "a batch has records");
        let table_bytes = HEADER_BYTES + gathering.table.len();
        let table_blocks = batch::blocks_of(table_bytes, 0);
        // Images shared by mirrors are stored once.
        let blocks = gathering.image_blocks + if twice { 2 * table_blocks } else { table_blocks };
        // Positions count on over all turns of the ring, so their difference is the space in use.
        let at = self.place(state.head.at, blocks);
        assert!(at % self.blocks + blocks <= self.blocks, "a batch does not wrap");
        // Log space is freed by a checkpoint only.
        if at + blocks - state.tail_at > self.blocks {
            return None;
        }
        let number = state.head.number;
        let header = Header {
            id,
            epoch: state.epoch,
            number,
            // Tells recovery which checksum-only writes may be unfinished.
            settled: state.first_open,
            blocks: u32::try_from(blocks).expect("a batch is small"),
            table_bytes: u32::try_from(table_bytes).expect("a batch is small"),
            records: gathering.records,
            twice,
            at: at % self.blocks,
        };
        let bytes = batch::emit(&header, &gathering.table, &gathering.images);
        assert_eq!(bytes.len() as u64, blocks * u64::from(BLOCK_BYTES), "a batch fills the room that it was given");
        // One reservation for each joined set of records; the batch closes when all have been dropped.
        state.open.push_back(gathering.joined);
        gathering.table.clear();
        gathering.images.clear();
        let spoken_of = std::mem::take(&mut gathering.blocks);
        (gathering.image_blocks, gathering.records, gathering.joined) = (0, 0, 0);
        // From here on records join the next batch, while this one is written.
        state.head = Head { number: number + 1, at: at + blocks };
        assert!(state.head.at - state.tail_at <= self.blocks, "a batch is not written over what is needed");
        assert_eq!(state.first_open + state.open.len() as u64, state.head.number, "every open batch is counted");
        if std::mem::take(&mut state.has_waiters) {
            self.wake();
        }
        Some(Sealed { number, at: at % self.blocks, bytes, table_blocks, blocks: spoken_of })
    }

    /// Returns the address of a batch of `blocks` blocks at or after `at`; it moves to block 0 of the ring rather
    /// than wrap.
    fn place(&self, at: u64, blocks: u64) -> u64 {
        let left = self.blocks - at % self.blocks;
        if blocks <= left { at } else { at + left }
    }

    /// Ends the write of a batch: it is stable, or the array has stopped and no batch follows.
    pub(crate) fn batch_written(&self, number: u64, written: Result<(), IoError>) {
        {
            let mut state = self.state.borrow_mut();
            // The next waiter may lead, even after a failure: it then finds that the array has stopped.
            state.is_led = false;
            assert_eq!(number + 1, state.head.number, "one batch is written at a time");
            assert!(state.stable <= number, "a batch becomes stable once");
            if written.is_ok() {
                state.stable = number + 1;
            }
        }
        self.wake();
    }

    fn release(&self, number: u64) {
        let mut state = self.state.borrow_mut();
        assert!(number >= state.first_open, "a batch stays open while one of its writes has not ended");
        let at = usize::try_from(number - state.first_open).expect("open batches are few");
        assert!(state.open[at] > 0, "who leaves a batch had joined it");
        state.open[at] -= 1;
        let before = state.first_open;
        // In order: the tail can only pass batches that have all ended.
        while state.first_open < state.stable && state.open.front() == Some(&0) {
            state.open.pop_front();
            state.first_open += 1;
        }
        if state.first_open > before {
            drop(state);
            self.wake();
        }
    }

    /// Position of the next batch.
    pub(crate) fn head(&self) -> Head {
        self.state.borrow().head
    }

    /// True when the writes in place of all batches before `number` have ended.
    pub(crate) fn is_settled(&self, number: u64) -> bool {
        self.state.borrow().first_open >= number
    }

    /// Frees log space before `head`.
    pub(crate) fn free(&self, head: Head) {
        {
            let mut state = self.state.borrow_mut();
            let freed = state.tail_at..=state.head.at;
            assert!(freed.contains(&head.at), "the tail moves forward, at most to the head");
            state.tail_at = head.at;
        }
        self.wake();
    }

    /// Blocks between tail and head.
    pub(crate) fn filled(&self) -> u64 {
        let state = self.state.borrow();
        assert!(state.tail_at <= state.head.at, "the tail of the ring is not ahead of its head");
        state.head.at - state.tail_at
    }
}

#[cfg(test)]
mod tests;
