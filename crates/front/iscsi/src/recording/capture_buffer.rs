//! Buffer of a packet capture between the shards and the reader.

use super::Scope;
use model::{Recorded, Recordings, Wire, WireEnds};
use shard::{Time, World};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Memory charged for a record in addition to its bytes.
const PIECE_BYTES: usize = 128;

/// Bounded buffer that accepts records of connections on all shards and never blocks them: records that do not fit are
/// lost. Cheap to clone; clones share the buffer.
#[derive(Clone)]
pub struct CaptureBuffer(Arc<Shared>);

struct Shared {
    scope: Scope,
    /// One instant on the monotonic clock and on the wall clock, to convert between them.
    since: (Time, Duration),
    /// Time at which the capture ends by itself.
    until: Time,
    bytes_max: usize,
    state: Mutex<BufferState>,
}

#[derive(Default)]
/// Contents of the buffer.
struct BufferState {
    waiting: Vec<Recorded>,
    waiting_bytes: usize,
    lost: u64,
    is_over: bool,
    asking: Option<Waker>,
}

impl CaptureBuffer {
    /// Creates an empty buffer of at most `bytes_max` bytes for a capture of the duration `time`.
    pub fn new<W: World>(scope: Scope, bytes_max: usize, time: Duration, world: &W) -> Self {
        Self::at(scope, bytes_max, time, (world.now(), world.unix_time()))
    }

    /// Creates the buffer with a given instant on both clocks.
    pub(super) fn at(scope: Scope, bytes_max: usize, time: Duration, since: (Time, Duration)) -> Self {
        let until = since.0 + time;
        Self(Arc::new(Shared { scope, since, until, bytes_max, state: Mutex::default() }))
    }

    /// Time at which the capture ends.
    pub fn until(&self) -> Time {
        self.0.until
    }

    /// True when both are the same buffer.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Filter of the capture.
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Ends the capture.
    pub fn end(&self) {
        let mut reel = self.lock();
        reel.is_over = true;
        reel.wake();
    }

    /// True when the capture has ended.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Appends a record. Returns false when it was dropped because the buffer is full.
    pub fn put(&self, now: Time, ends: WireEnds, what: Wire) -> bool {
        let bytes = PIECE_BYTES + if let Wire::Moved { bytes, .. } = &what { bytes.len() } else { 0 };
        let mut reel = self.lock();
        // Not a loss: records after the end are not wanted.
        if reel.is_over {
            return true;
        }
        if reel.waiting_bytes + bytes > self.0.bytes_max {
            // Only data is counted as lost; open and close records carry no traffic.
            reel.lost += u64::from(matches!(what, Wire::Moved { .. }));
            return false;
        }
        reel.waiting_bytes += bytes;
        reel.waiting.push(Recorded { at_ns: self.unix_ns(now), ends, what });
        reel.wake();
        true
    }

    /// Counts a receive or send that was not recorded.
    pub fn lose(&self) {
        self.lock().lost += 1;
    }

    /// Returns the records since the previous call, as soon as any exist or the capture has ended.
    pub async fn next(&self) -> Recordings {
        poll_fn(|cx| {
            let mut reel = self.lock();
            if reel.waiting.is_empty() && !reel.is_over {
                reel.asking = Some(cx.waker().clone());
                return Poll::Pending;
            }
            // The reader takes everything at once, which frees the whole buffer.
            reel.waiting_bytes = 0;
            let pieces = std::mem::take(&mut reel.waiting);
            Poll::Ready(Recordings { pieces, lost: reel.lost, is_over: reel.is_over })
        })
        .await
    }

    fn unix_ns(&self, now: Time) -> u64 {
        let (since, unix) = self.0.since;
        u64::try_from((unix + now.since(since)).as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BufferState> {
        // No operation leaves the state inconsistent, so a panic of another thread does not invalidate it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferState {
    fn wake(&mut self) {
        if let Some(waker) = self.asking.take() {
            waker.wake();
        }
    }
}
