//! Group commit: one flush at a time, shared by all callers that wait for it.

use crate::Signal;
use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use std::cell::RefCell;

/// Device wrapper with shared flushes: callers that arrive while a flush is running wait for the next one, which serves
/// all of them.
#[derive(Debug)]
pub struct GroupCommit<D> {
    device: D,
    state: RefCell<State>,
    ended: Signal,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last flush that was started; a caller needs one that starts after its own arrival.
    begun: u64,
    ended: u64,
    running: bool,
    failed: Option<IoError>,
}

impl<D: BlockDevice> GroupCommit<D> {
    /// Wraps `device`.
    pub fn new(device: D) -> Self {
        Self { device, state: RefCell::default(), ended: Signal::default() }
    }

    /// The wrapped device.
    pub fn device(&self) -> &D {
        &self.device
    }
}

/// Next step of a waiting caller.
enum Role {
    Lead,
    Done(Result<(), IoError>),
}

/// Guard of the leader: when its flush has ended, or was dropped before, another caller can lead.
struct Leading<'a>(&'a RefCell<State>, &'a Signal);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().running = false;
        self.1.raise();
    }
}

impl<D: BlockDevice> BlockDevice for GroupCommit<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.device.read(extent).await
    }

    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        self.device.read_hedged(extent).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.device.write(start, data).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.device.write_unlogged(start, data).await
    }

    async fn flush(&self, mut after: Written) -> Result<Stable, IoError> {
        // A running flush may have passed the caller's blocks already, so only one that starts later covers them.
        let needed = self.state.borrow().begun + 1;
        loop {
            let turn = self.ended.wait(|| {
                let mut state = self.state.borrow_mut();
                // A failure is final: nothing written since the last good flush can be trusted, so the flush is never
                // retried.
                if let Some(error) = state.failed {
                    return Some(Role::Done(Err(error)));
                }
                // A flush that started after this call has succeeded.
                if state.ended >= needed {
                    return Some(Role::Done(Ok(())));
                }
                if state.running {
                    return None;
                }
                // Claimed inside of the closure: no other caller can lead between the check and the flush.
                state.running = true;
                state.begun += 1;
                Some(Role::Lead)
            });
            match turn.await {
                Role::Done(result) => return result.map(|()| Stable::attest()),
                Role::Lead => {
                    // `Leading` clears `running` on drop, so a leader that is cancelled does not block the others.
                    // Still the number of this flush, because no other caller leads while `running` is set.
                    let begun = self.state.borrow().begun;
                    let leading = Leading(&self.state, &self.ended);
                    match self.device.flush(after).await {
                        Ok(stable) => {
                            // The device's own proof is required; the one returned to the callers rests on it.
                            let _: Stable = stable;
                            self.state.borrow_mut().ended = begun;
                        }
                        Err(error) => self.state.borrow_mut().failed = Some(error),
                    }
                    // Only now: the callers that it wakes read the result.
                    drop(leading);
                    // The token went into the flush; the loop ends in its next turn, where it is not used.
                    after = Written::attest();
                }
            }
        }
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.device.discard(extent).await
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.device.reserve(extent).await
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        self.device.run(extent).await
    }

    fn space(&self) -> Option<Space> {
        self.device.space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Blocks, IoErrorKind};
    use futures_util::FutureExt;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::task::Poll;

    /// Device whose flush ends when the test permits it.
    struct Slow {
        flushes: Cell<u32>,
        permits: Cell<u32>,
        fails: Cell<bool>,
    }

    impl BlockDevice for Slow {
        fn geometry(&self) -> Geometry {
            let (block_bytes, blocks) = (4096, Blocks(1));
            Geometry {
                block_bytes,
                blocks,
                physical_block_bytes: 4096,
                optimal_bytes: 4096,
                volatile_cache: true,
                discard_zeroes: false,
                prefers_unlogged: false,
            }
        }
        async fn read(&self, _: Extent) -> Result<Rope, IoError> {
            Ok(Rope::new())
        }
        async fn write(&self, _: Lba, _: View) -> Result<Written, IoError> {
            Ok(Written::attest())
        }
        async fn flush(&self, _: Written) -> Result<Stable, IoError> {
            self.flushes.set(self.flushes.get() + 1);
            poll_fn(|_| if self.permits.get() == 0 { Poll::Pending } else { Poll::Ready(()) }).await;
            self.permits.set(self.permits.get() - 1);
            if self.fails.get() {
                return Err(IoError::new(IoErrorKind::Gone, Extent::default()));
            }
            Ok(Stable::attest())
        }
        async fn discard(&self, _: Extent) -> Result<Written, IoError> {
            Ok(Written::attest())
        }
    }

    #[test]
    fn flush_is_shared_by_all_who_wait_but_never_with_one_already_begun() {
        let slow = Slow { flushes: Cell::new(0), permits: Cell::new(0), fails: Cell::new(false) };
        let device = GroupCommit::new(slow);
        let mut first = Box::pin(device.flush(Written::attest()));
        assert!((&mut first).now_or_never().is_none());
        let mut others: Vec<_> = (0..8).map(|_| Box::pin(device.flush(Written::attest()))).collect();
        assert!(others.iter_mut().all(|other| other.now_or_never().is_none()));
        device.device().permits.set(1);
        assert!(first.now_or_never().expect("one permit").is_ok());
        assert!(others[0].as_mut().now_or_never().is_none(), "the begun flush does not cover later writes");
        device.device().permits.set(1);
        for other in others {
            assert!(other.now_or_never().expect("one flush serves all").is_ok());
        }
        assert_eq!(device.device().flushes.get(), 2);
    }

    #[test]
    fn flush_that_failed_is_never_tried_again_into_success() {
        let slow = Slow { flushes: Cell::new(0), permits: Cell::new(9), fails: Cell::new(true) };
        let device = GroupCommit::new(slow);
        assert!(device.flush(Written::attest()).now_or_never().expect("permits").is_err());
        device.device().fails.set(false);
        assert!(device.flush(Written::attest()).now_or_never().expect("permits").is_err());
        assert_eq!(device.device().flushes.get(), 1);
    }
}
