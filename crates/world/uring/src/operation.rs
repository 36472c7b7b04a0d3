//! Requests to the kernel, with the memory that the kernel uses for them.

use block::{Buf, View};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Number of an operation in flight; a backend reports its completion exactly once.
pub(crate) type Token = u32;

/// One request to the kernel. It owns its memory and keeps its file open until it has landed.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Waits until `socket` is ready for `interest`, or has an error.
    Poll { socket: Arc<OwnedFd>, interest: Interest },
    /// Reads from `offset + filled` into `buf[filled..]`.
    Read { file: Arc<OwnedFd>, offset: u64, buf: Buf, filled: usize },
    /// Writes `data[written..]` at `offset + written`.
    Write { file: Arc<OwnedFd>, offset: u64, data: View, written: usize },
    /// Makes written data durable.
    Flush { file: Arc<OwnedFd> },
    /// Punches a hole, which reads as zeros.
    Punch { file: Arc<OwnedFd>, offset: u64, len: u64 },
    /// Allocates the space of a range of a file and keeps its content.
    Allocate { file: Arc<OwnedFd>, offset: u64, len: u64 },
}

/// Readiness that a socket is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
}

/// Completed operation.
#[derive(Debug)]
pub(crate) struct Landed {
    pub operation: Operation,
    /// Bytes transferred, where applicable.
    pub result: Result<usize, Errno>,
}

/// Completed operation with its token.
#[derive(Debug)]
pub(crate) struct Done {
    pub token: Token,
    pub landed: Landed,
}

/// Limit on one transfer in bytes; longer ones are continued.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

impl Operation {
    /// True when the kernel may access our memory or a disk, so that it must not be discarded before it has landed.
    pub fn is_disk(&self) -> bool {
        !matches!(self, Self::Poll { .. })
    }

    /// File of the disk that the operation addresses; `None` for a socket.
    pub fn file(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Self::Poll { .. } => None,
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Flush { file }
            | Self::Punch { file, .. }
            | Self::Allocate { file, .. } => Some(file),
        }
    }

    /// Performs the operation synchronously on this thread.
    pub fn perform(mut self) -> Landed {
        let result = loop {
            match self.attempt() {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        Landed { operation: self, result }
    }

    fn attempt(&mut self) -> Result<usize, Errno> {
        match self {
            Self::Poll { .. } => unreachable!("readiness is waited for in the backend, never on a worker"),
            Self::Read { file, offset, buf, filled } => {
                let end = buf.len().min(*filled + TRANSFER_BYTES_MAX);
                rustix::io::pread(file, &mut buf[*filled..end], *offset + *filled as u64)
            }
            Self::Write { file, offset, data, written } => {
                let end = data.len().min(*written + TRANSFER_BYTES_MAX);
                rustix::io::pwrite(file, &data[*written..end], *offset + *written as u64)
            }
            // Not fsync(2): it would also write time stamps, which no reader needs.
            Self::Flush { file } => rustix::fs::fdatasync(file).map(|()| 0),
            Self::Punch { file, offset, len } => rustix::fs::fallocate(file, PUNCH_FLAGS, *offset, *len).map(|()| 0),
            Self::Allocate { file, offset, len } => {
                rustix::fs::fallocate(file, ALLOCATE_FLAGS, *offset, *len).map(|()| 0)
            }
        }
    }
}

/// Allocation never extends the file.
pub(crate) const ALLOCATE_FLAGS: rustix::fs::FallocateFlags = rustix::fs::FallocateFlags::KEEP_SIZE;

/// Works on files and, since Linux 4.9, on block devices, where it writes zeros by unmapping if the disk supports that.
pub(crate) const PUNCH_FLAGS: rustix::fs::FallocateFlags =
    rustix::fs::FallocateFlags::PUNCH_HOLE.union(rustix::fs::FallocateFlags::KEEP_SIZE);

/// Limit on the sleep of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}
