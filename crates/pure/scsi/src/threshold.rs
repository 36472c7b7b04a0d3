//! Logical block provisioning thresholds (SBC-4, logical block provisioning thresholds): hosts hear of
//! a pool that fills before it is full.
//!
//! There are two kinds. The operator's are judged by whoever keeps the space, which then says
//! `LogicalUnit::soft_threshold_reached`. Those that a host sets with MODE SELECT (page 1Ch/02h) are judged
//! here, against what the device says of its space.

use block::Space;
use std::cell::Cell;

/// Bytes of a threshold set, the unit in which thresholds and log page 0Ch count. No capacity counts
/// 2^32 of them.
const SET_BYTES: u64 = 1 << 20;

/// Where the threshold descriptors stand in the logical block provisioning mode page (1Ch/02h); INFORMATION of the unit
/// attention for a threshold is the same figure.
pub(crate) const AVAILABLE_DESCRIPTOR_AT: usize = 16;
pub(crate) const USED_DESCRIPTOR_AT: usize = 24;

/// THRESHOLD EXPONENT: how many blocks a threshold set has, as a power of two.
pub(crate) fn threshold_exponent(block_bytes: u32) -> u8 {
    let blocks = SET_BYTES.checked_div(u64::from(block_bytes)).unwrap_or(1).max(1);
    blocks.ilog2() as u8
}

/// LBA mapping resources, in threshold sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub available: u32,
    pub used: u32,
}

impl Resources {
    /// Whole sets that are free, and sets that are used if only in part.
    pub(crate) fn of(space: Space) -> Self {
        let count = |sets| u32::try_from(sets).unwrap_or(u32::MAX);
        Self { available: count(space.free_bytes / SET_BYTES), used: count(space.mapped_bytes.div_ceil(SET_BYTES)) }
    }
}

/// One threshold as MODE SELECT sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Threshold {
    pub enabled: bool,
    pub count: u32,
}

/// The thresholds that hosts may set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Armed decreasing: reached when no more than its count is available.
    pub available: Threshold,
    /// Armed increasing: reached when at least its count is used.
    pub used: Threshold,
}

/// Which thresholds were reached and have not been armed again since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    pub available: bool,
    pub used: bool,
}

impl Thresholds {
    pub(crate) fn are_enabled(self) -> bool {
        self.available.enabled || self.used.enabled
    }

    /// What is reached now, after `before`. What was reached stays so until the count is back by a
    /// sixteenth, so that a pool at the border is not told of again and again.
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

/// Which thresholds of hosts were reached at the last look.
#[derive(Debug, Default)]
pub(crate) struct ThresholdWatch {
    reached: Cell<Reached>,
}

impl ThresholdWatch {
    /// Which of `thresholds` were reached since the last look, in the space that `space` gives. It is asked for only while one
    /// of them is enabled.
    #[inline]
    pub(crate) fn check(&self, thresholds: Thresholds, space: impl FnOnce() -> Option<Space>) -> Reached {
        if !thresholds.are_enabled() {
            self.reached.set(Reached::default());
            return Reached::default();
        }
        let Some(space) = space() else { return Reached::default() };
        let before = self.reached.get();
        let after = thresholds.judge(Resources::of(space), before);
        self.reached.set(after);
        Reached { available: after.available && !before.available, used: after.used && !before.used }
    }

    /// A threshold that differs in `now` from what it was `before` counts as not reached.
    pub(crate) fn rearm(&self, before: Thresholds, now: Thresholds) {
        let mut reached = self.reached.get();
        reached.available &= now.available == before.available;
        reached.used &= now.used == before.used;
        self.reached.set(reached);
    }
}

#[cfg(test)]
mod tests;
