//! Memory limit of the daemon, and a read cache that shrinks under memory pressure.
//!
//! The kernel kills the daemon when its control group runs out of memory, and then no volume is served. So
//! defaults are fractions of the smallest limit, and the read cache, which can be dropped without loss, shrinks
//! before that happens and grows again afterwards.

mod limits;
mod pressure;

pub use limits::MemoryLimits;

use crate::core::Core;
use crate::notices::Notices;
use model::{MemoryReport, Order, Problem, Refusal, Severity, Size, Subject, SubjectKind, code, event};
use pressure::MemoryPressure;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Interval between two checks.
const ROUND: Duration = Duration::from_secs(2);
/// Divisor of the maximum that gives the minimum size of the read cache.
const SMALLEST_PART: u64 = 16;

/// Monitor of the daemon's memory.
pub struct Memory {
    core: Arc<Core>,
    notices: Arc<Notices>,
    /// Latest report; `None` before the first check.
    known: Mutex<Option<MemoryReport>>,
}

impl Memory {
    pub(crate) fn new(core: Arc<Core>, notices: Arc<Notices>) -> Self {
        Self { core, notices, known: Mutex::default() }
    }

    /// Returns the latest report.
    #[must_use]
    pub fn report(&self) -> Option<MemoryReport> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adjusts the read cache between its minimum and `cache_bytes` to the memory pressure, until the data
    /// plane is gone.
    pub async fn watch(self: Arc<Self>, found: MemoryLimits, cache_bytes: u64) {
        let mut now = cache_bytes;
        loop {
            match self.check(&found, cache_bytes, now).await {
                Ok(next) => now = next,
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => tracing::warn!(%refusal, "the read cache could not be set to another size"),
            }
            sleep(ROUND).await;
        }
    }

    /// Runs one check and returns the new size of the read cache, which was `now` of at most `most` bytes.
    pub(crate) async fn check(&self, found: &MemoryLimits, most: u64, now: u64) -> Result<u64, Refusal> {
        let strain = MemoryPressure::measure(found);
        let next = next_bytes(most, now, &strain);
        // Before the report, which never shows a size that the data plane has refused.
        if next != now {
            self.core.engine.done(Order::SetReadCache { bytes: next }).await?;
        }
        let (limited_by, limit) = found.smallest();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(MemoryReport {
            machine: Size::new(found.machine),
            limit: Size::new(limit),
            limited_by: limited_by.to_owned(),
            cache_max: Size::new(most),
            cache_now: Size::new(next),
            pressure_percent: strain.waiting_percent,
        });
        let node = Subject::new(SubjectKind::Node, &self.core.settings.node);
        // Short until the cache is back at its maximum, so that the alert does not flap.
        if next < most {
            self.notices.add(event::MEMORY_SHORT, node, short(&strain, next, most, (limited_by, limit)));
        } else {
            let sentence = format!("memory is no longer low; the read cache is {} again", Size::new(most).iec());
            self.notices.settle(event::MEMORY_SHORT, node, event::MEMORY_ENOUGH, &sentence);
        }
        Ok(next)
    }
}

/// Halves the cache while memory is short, and grows it by a sixteenth of its maximum per round once there is
/// enough.
fn next_bytes(most: u64, now: u64, strain: &MemoryPressure) -> u64 {
    let part = most / SMALLEST_PART;
    match (strain.is_short(), strain.is_gone()) {
        (true, _) => (now / 2).max(part).min(most),
        (false, true) => now.saturating_add(part.max(1)).min(most),
        // Between the two thresholds the size stays, so the cache does not oscillate.
        (false, false) => now,
    }
}

fn short(strain: &MemoryPressure, next: u64, most: u64, (limited_by, limit): (&str, u64)) -> Problem {
    let (next, most) = (Size::new(next), Size::new(most));
    Problem {
        severity: Severity::Warning,
        subject: "memory".to_owned(),
        state: "short".to_owned(),
        meaning: format!("{strain}; the read cache is reduced to {} of {}", next.iec(), most.iec()),
        action: format!(
            "raise the limit of {} ({limited_by}), set a smaller cache in the configuration, or stop other programs",
            Size::new(limit).iec()
        ),
    }
}

#[cfg(test)]
mod tests;
