//! Limits on the operations of one disk in a ring.
//!
//! The kernel hands operations that may block to a worker of the ring, and all rings of a thread share the workers:
//! flushes, discards and reservations always, reads and writes of files mostly, those of a block device once its queue
//! is full. Without a limit, one disk that hangs would occupy all workers and stall the healthy ones. So each open file
//! has a limited number of operations in the ring, and there are workers for many such files ([`WORKERS_MAX`]).

use crate::operation::{Operation, Token};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;

/// Limit on reads and writes of one file in the ring.
const TRANSFERS_MAX: usize = 128;
/// Limit on flushes, discards and reservations of one file in the ring.
const ORDERS_MAX: usize = 4;
/// Limit on workers of a ring, which the kernel starts on demand: enough for 30 disks that hang.
pub(crate) const WORKERS_MAX: u32 = 4096;

/// Operations of each open file.
#[derive(Default)]
pub(super) struct FileQueues {
    /// By descriptor number. An operation keeps its file open, so the number cannot be reused while one is in flight.
    files: Vec<File>,
}

#[derive(Default)]
struct File {
    transfers: ClassQueue,
    orders: ClassQueue,
}

/// Operations of one class.
#[derive(Default)]
struct ClassQueue {
    in_ring: usize,
    waiting: VecDeque<(Token, Operation)>,
}

impl FileQueues {
    /// Returns the operation when it may be submitted; otherwise queues it until one of its class has completed.
    pub(super) fn admit(&mut self, token: Token, operation: Operation) -> Option<Operation> {
        // Socket polls never block a worker and have no limit.
        let Some((lane, most)) = self.queue_of(&operation) else { return Some(operation) };
        // Queued until another operation of the same class and file completes.
        if lane.in_ring == most {
            lane.waiting.push_back((token, operation));
            return None;
        }
        lane.in_ring += 1;
        Some(operation)
    }

    /// Records a completion; returns the queued operation that takes the slot.
    pub(super) fn land(&mut self, landed: &Operation) -> Option<(Token, Operation)> {
        let (lane, _) = self.queue_of(landed)?;
        let next = lane.waiting.pop_front();
        // The slot passes to the next operation, so the count changes only when none is queued.
        lane.in_ring -= usize::from(next.is_none());
        next
    }

    fn queue_of(&mut self, operation: &Operation) -> Option<(&mut ClassQueue, usize)> {
        let at = usize::try_from(operation.file()?.as_raw_fd()).expect("an open descriptor is not negative");
        // Indexed by descriptor, so the size is bounded by the limit on open files.
        if self.files.len() <= at {
            self.files.resize_with(at + 1, File::default);
        }
        let file = &mut self.files[at];
        Some(match operation {
            Operation::Read { .. } | Operation::Write { .. } => (&mut file.transfers, TRANSFERS_MAX),
            // Each occupies a worker until it ends, so far fewer of them are admitted than transfers.
            _ => (&mut file.orders, ORDERS_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    #[test]
    fn file_has_so_many_operations_in_the_ring_and_the_others_follow_in_order() {
        let open = || Arc::new(OwnedFd::from(File::open("/dev/zero").expect("it is there")));
        let (one, other) = (open(), open());
        let flush = |file: &Arc<OwnedFd>| Operation::Flush { file: file.clone() };
        let mut lanes = FileQueues::default();
        let begun: Vec<Token> = (0..64).filter(|&token| lanes.admit(token, flush(&one)).is_some()).collect();
        assert_eq!(begun, [0, 1, 2, 3]);
        assert!(lanes.admit(64, flush(&other)).is_some(), "another file has its own");
        let read = Operation::Read { file: one.clone(), offset: 0, buf: block::Buf::zeroed(512), filled: 0 };
        assert!(lanes.admit(65, read).is_some(), "reads do not wait for flushes");
        let next: Vec<Token> = std::iter::from_fn(|| lanes.land(&flush(&one)).map(|(token, _)| token)).collect();
        assert_eq!(next, (4..64).collect::<Vec<_>>());
        (1..4).for_each(|_| assert!(lanes.land(&flush(&one)).is_none()));
        assert_eq!(lanes.files.iter().map(|file| file.orders.in_ring).sum::<usize>(), 1, "that of the other file");
    }
}
