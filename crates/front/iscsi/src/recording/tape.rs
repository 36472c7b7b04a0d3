//! What is recorded, on its way from the shards to whoever writes it down.

use super::Scope;
use model::{Recorded, Recordings, Wire, WireEnds};
use shard::{Time, World};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What a piece counts beside its bytes.
const PIECE_BYTES: usize = 128;

/// Takes in what connections on all shards say, and never lets them wait. Cheap to clone, the same everywhere.
#[derive(Clone)]
pub struct Tape(Arc<Shared>);

struct Shared {
    scope: Scope,
    /// One moment by both clocks.
    since: (Time, Duration),
    until: Time,
    bytes_max: usize,
    reel: Mutex<Reel>,
}

#[derive(Default)]
struct Reel {
    waiting: Vec<Recorded>,
    waiting_bytes: usize,
    lost: u64,
    is_over: bool,
    asking: Option<Waker>,
}

impl Tape {
    /// Nothing is on it, of which at most `bytes_max` bytes may wait, and something may come for so long.
    pub fn new<W: World>(scope: Scope, bytes_max: usize, time: Duration, world: &W) -> Self {
        Self::at(scope, bytes_max, time, (world.now(), world.unix_time()))
    }

    /// The same at one moment by both clocks.
    pub(super) fn at(scope: Scope, bytes_max: usize, time: Duration, since: (Time, Duration)) -> Self {
        let until = since.0 + time;
        Self(Arc::new(Shared { scope, since, until, bytes_max, reel: Mutex::default() }))
    }

    /// When it should end.
    pub fn until(&self) -> Time {
        self.0.until
    }

    /// True for the same tape.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whose connections it is for.
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Nothing more is recorded.
    pub fn end(&self) {
        let mut reel = self.reel();
        reel.is_over = true;
        reel.wake();
    }

    /// True when nothing more is recorded.
    pub fn is_over(&self) -> bool {
        self.reel().is_over
    }

    /// It is recorded, or lost when too much waits; false when it is lost.
    pub fn put(&self, now: Time, ends: WireEnds, what: Wire) -> bool {
        let bytes = PIECE_BYTES + if let Wire::Moved { bytes, .. } = &what { bytes.len() } else { 0 };
        let mut reel = self.reel();
        if reel.is_over {
            return true;
        }
        if reel.waiting_bytes + bytes > self.0.bytes_max {
            reel.lost += u64::from(matches!(what, Wire::Moved { .. }));
            return false;
        }
        reel.waiting_bytes += bytes;
        reel.waiting.push(Recorded { at_ns: self.unix_ns(now), ends, what });
        reel.wake();
        true
    }

    /// One receive or send could not be recorded.
    pub fn lose(&self) {
        self.reel().lost += 1;
    }

    /// What was recorded since this was asked last, as soon as there is something, or nothing follows.
    pub async fn next(&self) -> Recordings {
        poll_fn(|cx| {
            let mut reel = self.reel();
            if reel.waiting.is_empty() && !reel.is_over {
                reel.asking = Some(cx.waker().clone());
                return Poll::Pending;
            }
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

    fn reel(&self) -> MutexGuard<'_, Reel> {
        self.0.reel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reel {
    fn wake(&mut self) {
        if let Some(waker) = self.asking.take() {
            waker.wake();
        }
    }
}
