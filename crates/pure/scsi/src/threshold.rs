//! Logical block provisioning thresholds (SBC-4): hosts are notified of a filling pool before it is full.
//!
//! There are two kinds. The thresholds of the operator are evaluated by the owner of the space, which then calls
//! `LogicalUnit::soft_threshold_reached`. Those that a host sets with MODE SELECT (page 1Ch/02h) are evaluated here,
//! against the space that the device reports.

use block::Space;
use std::cell::Cell;

/// Threshold set size in bytes, the unit of thresholds and of log page 0Ch. Counts fit 32 bits for every possible
/// capacity.
const SET_BYTES: u64 = 1 << 20;

/// Offsets of the threshold descriptors in the logical block provisioning mode page (1Ch/02h), also used as INFORMATION
/// of the unit attention.
pub(crate) const AVAILABLE_DESCRIPTOR_AT: usize = 16;
pub(crate) const USED_DESCRIPTOR_AT: usize = 24;

/// THRESHOLD EXPONENT: blocks per threshold set, as a power of two.
pub(crate) fn threshold_exponent(block_bytes: u32) -> u8 {
    let blocks = SET_BYTES.checked_div(u64::from(block_bytes)).unwrap_or(1).max(1);
    blocks.ilog2() as u8
}

/// LBA mapping resources in threshold sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub available: u32,
    pub used: u32,
}

impl Resources {
    /// Converts the reported space: free space is rounded down, used space is rounded up.
    pub(crate) fn of(space: Space) -> Self {
        let count = |sets| u32::try_from(sets).unwrap_or(u32::MAX);
        Self { available: count(space.free_bytes / SET_BYTES), used: count(space.mapped_bytes.div_ceil(SET_BYTES)) }
    }
}

/// Threshold as MODE SELECT sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Threshold {
    pub enabled: bool,
    pub count: u32,
}

/// Thresholds that hosts may set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Armed decreasing: reached when at most this count is available.
    pub available: Threshold,
    /// Armed increasing: reached when at least this count is used.
    pub used: Threshold,
}

/// Thresholds that were reached and have not been re-armed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    pub available: bool,
    pub used: bool,
}

impl Thresholds {
    pub(crate) fn are_enabled(self) -> bool {
        self.available.enabled || self.used.enabled
    }

    /// Evaluates the thresholds with hysteresis: one that was reached stays so until the count has receded by a
    /// sixteenth, so that a pool at the border does not report again and again.
    fn judge(self, resources: Resources, before: Reached) -> Reached {
        let slack = |threshold: Threshold, was: bool| if was { threshold.count / 16 } else { 0 };
        let Self { available, used } = self;
        let low = available.count.saturating_add(slack(available, before.available));
        let high = used.count.saturating_sub(slack(used, before.used));
        Reached {
            available: available.enabled && resources.available <= low,
            used: used.enabled && resources.used >= high,
        }
    }
}

/// Result of the last evaluation of the host thresholds.
#[derive(Debug, Default)]
pub(crate) struct ThresholdWatch {
    reached: Cell<Reached>,
}

impl ThresholdWatch {
    /// Returns the thresholds that were crossed since the last check. `space` is called only while one of them is
    /// enabled.
    #[inline]
    pub(crate) fn check(&self, thresholds: Thresholds, space: impl FnOnce() -> Option<Space>) -> Reached {
        if !thresholds.are_enabled() {
            // A threshold that is enabled again is compared anew.
            self.reached.set(Reached::default());
            return Reached::default();
        }
        let Some(space) = space() else { return Reached::default() };
        let before = self.reached.get();
        let after = thresholds.judge(Resources::of(space), before);
        self.reached.set(after);
        Reached { available: after.available && !before.available, used: after.used && !before.used }
    }

    /// Re-arms each threshold that differs between `before` and `now`.
    pub(crate) fn rearm(&self, before: Thresholds, now: Thresholds) {
        let mut reached = self.reached.get();
        reached.available &= now.available == before.available;
        reached.used &= now.used == before.used;
        self.reached.set(reached);
    }
}

#[cfg(test)]
mod tests;
