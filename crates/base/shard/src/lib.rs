//! One core's world: the executor that runs its tasks, the timers, locks and mailboxes they use, and
//! the [`World`] trait behind which the outside lives.
//!
//! Everything here is single-threaded but [`mailbox`], and deterministic: the same inputs in the same
//! order give the same run, which is what lets `sim` reproduce a run from a seed.

pub mod detached;
pub mod executor;
pub mod group;
pub mod insist;
pub mod interruptible;
pub mod mailbox;
pub mod range_lock;
pub mod signal;
pub mod single_flight;
pub mod slots;
pub mod spawn;
pub mod time;
pub mod world;

pub use detached::{Detached, Finish};
pub use executor::Executor;
pub use group::GroupCommit;
pub use insist::{WANT_OF_SPACE_PAUSES, insist};
pub use interruptible::{CLOCK_STEP, Interruptible, Landings, RunClock, Silence};
pub use range_lock::{RangeGuard, RangeLocks};
pub use signal::{Signal, yield_now};
pub use single_flight::SingleFlight;
pub use slots::Slots;
pub use spawn::{Pause, Spawn, Spawner, pause_on, spawn_on};
pub use time::Time;
pub use world::{DiskFacts, DiskOptions, Listener, PathFacts, Stream, StreamHandle, StreamOptions, World};
