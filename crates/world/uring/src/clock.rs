//! The monotonic clock: one beginning for all shards, so that their times compare.

use shard::Time;
use std::sync::OnceLock;
use std::time::Instant;

static BEGINNING: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since this process first asked.
pub(crate) fn now() -> Time {
    let since = BEGINNING.get_or_init(Instant::now).elapsed();
    Time(u64::try_from(since.as_nanos()).expect("a process lives less than 584 years"))
}
