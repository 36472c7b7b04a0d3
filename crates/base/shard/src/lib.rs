//! Runtime of one core: the executor of its tasks, the timers, locks and mailboxes they use, and the [`World`] trait
//! that hides the operating system.
//!
//! Everything is single-threaded except [`mailbox`], and deterministic: the same inputs in the same order give the same
//! run. `sim` depends on that to reproduce a run from a seed. Nothing here makes a system call.

pub mod abandonable;
pub mod detached;
pub mod executor;
pub mod group;
pub mod mailbox;
pub mod range_lock;
pub mod retry;
pub mod signal;
pub mod single_flight;
pub mod slots;
pub mod spawn;
pub mod time;
pub mod world;

pub use abandonable::{AbandonableDevice, CLOCK_STEP, InFlightOperations, ResponseAge, RunClock};
pub use detached::{Detached, Finish};
pub use executor::Executor;
pub use group::GroupCommit;
pub use range_lock::{RangeGuard, RangeLocks};
pub use retry::{NO_SPACE_PAUSES, retry_on_error};
pub use signal::{Signal, yield_now};
pub use single_flight::SingleFlight;
pub use slots::Slots;
pub use spawn::{Pause, Spawn, Spawner, pause_on, spawn_on};
pub use time::Time;
pub use world::{DiskFacts, DiskOptions, Listener, PathFacts, Stream, StreamHandle, StreamOptions, World};
