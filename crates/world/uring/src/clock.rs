//! Monotonic clock with one origin for all shards, so that their times are comparable.

use shard::Time;
use std::sync::OnceLock;
use std::time::Instant;

static BEGINNING: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the first call in this process.
pub(crate) fn now() -> Time {
    let since = BEGINNING.get_or_init(Instant::now).elapsed();
    Time(u64::try_from(since.as_nanos()).expect("a process lives less than 584 years"))
}
