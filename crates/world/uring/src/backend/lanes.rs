//! How much of one disk may be in a ring at once.
//!
//! What the kernel cannot do without waiting it gives to a worker of the ring, and every ring of a thread shares them: flushes,
//! discards and reservations always, reads and writes of files mostly, those of a block device once its queue is full. Without
//! a bound a disk that does not answer holds all workers, and disks that are well wait for it. So of each open file only so
//! many operations are in the ring, and there are workers for many such files ([`WORKERS_MAX`]).

use crate::operation::{Operation, Token};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;

/// Reads and writes of one file in the ring.
const TRANSFERS_MAX: usize = 128;
/// Flushes, discards and reservations of one file in the ring.
const ORDERS_MAX: usize = 4;
/// Workers of a ring, which the kernel starts when it needs them: enough for 30 disks that do not answer.
pub(crate) const WORKERS_MAX: u32 = 4096;

/// The operations of each open file.
#[derive(Default)]
pub(super) struct Lanes {
    /// By number of the descriptor, which stays that of one file as long as an operation holds it.
    files: Vec<File>,
}

#[derive(Default)]
struct File {
    transfers: Lane,
    orders: Lane,
}

/// Operations of one kind.
#[derive(Default)]
struct Lane {
    in_ring: usize,
    waiting: VecDeque<(Token, Operation)>,
}

impl Lanes {
    /// Gives the operation back where it may begin; else it waits for one of its lane to land.
    pub(super) fn admit(&mut self, token: Token, operation: Operation) -> Option<Operation> {
        let Some((lane, most)) = self.lane_of(&operation) else { return Some(operation) };
        if lane.in_ring == most {
            lane.waiting.push_back((token, operation));
            return None;
        }
        lane.in_ring += 1;
        Some(operation)
    }

    /// The operation has landed; gives the one that begins in its place.
    pub(super) fn land(&mut self, landed: &Operation) -> Option<(Token, Operation)> {
        let (lane, _) = self.lane_of(landed)?;
        let next = lane.waiting.pop_front();
        lane.in_ring -= usize::from(next.is_none());
        next
    }

    fn lane_of(&mut self, operation: &Operation) -> Option<(&mut Lane, usize)> {
        let at = usize::try_from(operation.file()?.as_raw_fd()).expect("an open descriptor is not negative");
        if self.files.len() <= at {
            self.files.resize_with(at + 1, File::default);
        }
        let file = &mut self.files[at];
        Some(match operation {
            Operation::Read { .. } | Operation::Write { .. } => (&mut file.transfers, TRANSFERS_MAX),
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
        let mut lanes = Lanes::default();
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
