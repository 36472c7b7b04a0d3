//! Memory pressure: stall time (PSI), and the share of a control group's limit that cannot be reclaimed.
//!
//! *Source*: Linux, Documentation/accounting/psi.rst, admin-guide/cgroup-v2.rst (`memory.current`,
//! `memory.stat`).

use super::limits::{MemoryLimits, read};
use std::fmt;
use std::path::Path;

/// Stall time in percent from which memory is short, and below which there is enough again.
const WAITING_PERCENT: (u32, u32) = (10, 1);
/// Use of a control group in percent from which memory is short, and below which there is enough again.
const FULL_PERCENT: (u32, u32) = (90, 75);

/// Memory pressure at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryPressure {
    /// Share of the last 10 seconds in which some task stalled on memory, in percent.
    pub(super) waiting_percent: Option<u32>,
    /// Unreclaimable share of the fullest limited control group, in percent.
    pub(super) full_percent: Option<u32>,
}

impl MemoryPressure {
    pub(super) fn measure(found: &MemoryLimits) -> Self {
        // Pressure of the daemon's own group is more specific than that of the machine.
        let of_group = found.groups.iter().find_map(|group| waiting_percent(&group.join("memory.pressure")));
        let waiting_percent = of_group.or_else(|| waiting_percent(&found.root.join("proc/pressure/memory")));
        Self { waiting_percent, full_percent: found.groups.iter().filter_map(|group| full_percent(group)).max() }
    }

    /// Returns true while memory must be released.
    pub(super) fn is_short(self) -> bool {
        let over = |percent: Option<u32>, (from, _): (u32, u32)| percent.is_some_and(|percent| percent >= from);
        over(self.waiting_percent, WAITING_PERCENT) || over(self.full_percent, FULL_PERCENT)
    }

    /// Returns true when there is enough memory, with a margin to the shortage (hysteresis).
    pub(super) fn is_gone(self) -> bool {
        let below = |percent: Option<u32>, (_, to): (u32, u32)| percent.is_none_or(|percent| percent < to);
        below(self.waiting_percent, WAITING_PERCENT) && below(self.full_percent, FULL_PERCENT)
    }
}

impl fmt::Display for MemoryPressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting_percent.unwrap_or(0);
        write!(f, "tasks waited for memory {waiting} % of the last 10 seconds")?;
        self.full_percent.map_or(Ok(()), |full| write!(f, ", and the control group is {full} % full"))
    }
}

/// Reads `avg10` of the line `some` (PSI).
fn waiting_percent(path: &Path) -> Option<u32> {
    let text = read(path)?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    average.split('.').next()?.parse().ok()
}

/// Returns the share of a group's limit in use, without the page cache that the kernel can reclaim.
fn full_percent(group: &Path) -> Option<u32> {
    let number = |file: &str| read(&group.join(file))?.trim().parse::<u64>().ok();
    // Above `memory.high` the kernel throttles every task of the group, long before `memory.max` is reached.
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|file| number(file)).min()?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let of_stat = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<u64>().ok())
    };
    // cgroup v1: the plain names exclude child groups, and the `total_` names include them.
    let files = ["active_file", "inactive_file"]
        .iter()
        .filter_map(|name| of_stat(&format!("total_{name}")).or_else(|| of_stat(name)))
        .fold(0, u64::saturating_add);
    let percent = u128::from(used.saturating_sub(files)) * 100 / u128::from(limit.max(1));
    u32::try_from(percent).ok()
}
