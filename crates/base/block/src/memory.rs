//! Devices in memory: a RAM disk, and a null device that discards writes.
//!
//! Both are ready at the first poll, so that a measurement above them shows the software path and no medium.

mod null;
mod ram;

pub use null::Null;
pub use ram::Ram;

use crate::{Blocks, Geometry};

/// Returns the geometry of a device in memory: no volatile cache, discarded blocks read as zeros.
fn geometry(block_bytes: u32, blocks: Blocks) -> Geometry {
    assert!(block_bytes == 512 || block_bytes == 4096, "a block has 512 or 4096 bytes, not {block_bytes}");
    Geometry {
        block_bytes,
        blocks,
        physical_block_bytes: 4096,
        optimal_bytes: 4096,
        volatile_cache: false,
        discard_zeroes: true,
        prefers_unlogged: false,
    }
}

/// Returns the same geometry with more blocks.
fn grown(geometry: Geometry, blocks: Blocks) -> Geometry {
    assert!(blocks >= geometry.blocks, "a device does not shrink");
    Geometry { blocks, ..geometry }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Returns the output of `future` at its first poll.
    pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("a device in memory is ready at once"),
        }
    }
}
