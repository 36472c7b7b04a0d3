//! Devices without a disk: a RAM disk that keeps what is written, and a null device that does not.
//!
//! Both are ready at the first poll, so that what is measured above them is the path and not a medium.

mod null;
mod ram;

pub use null::Null;
pub use ram::Ram;

use crate::{Blocks, Geometry};

/// What a device in memory looks like: blocks of `block_bytes`, no cache to lose, zeros after a discard.
fn geometry(block_bytes: u32, blocks: Blocks) -> Geometry {
    assert!(block_bytes == 512 || block_bytes == 4096, "a block has 512 or 4096 bytes, not {block_bytes}");
    Geometry {
        block_bytes,
        blocks,
        physical_block_bytes: 4096,
        optimal_bytes: 4096,
        volatile_cache: false,
        discard_zeroes: true,
        prefers_fresh: false,
    }
}

/// The same device with more blocks.
fn grown(geometry: Geometry, blocks: Blocks) -> Geometry {
    assert!(blocks >= geometry.blocks, "a device does not shrink");
    Geometry { blocks, ..geometry }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// What `future` gives at its first poll.
    pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("a device in memory is ready at once"),
        }
    }
}
