//! Whether memory is short: tasks wait for it, or a control group is nearly full of what cannot be dropped.
//!
//! *Source*: Linux, Documentation/accounting/psi.rst, admin-guide/cgroup-v2.rst (`memory.current`, `memory.stat`).

use super::found::{Found, read};
use std::fmt;
use std::path::Path;

/// Memory is short while tasks wait for it for so much of the time, and enough again below the second figure; in percent.
const WAITING_PERCENT: (u32, u32) = (10, 1);
/// The same for how full a control group is.
const FULL_PERCENT: (u32, u32) = (90, 75);

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strain {
    /// The share of the last 10 seconds in which some task waited for memory.
    pub(super) waiting_percent: Option<u32>,
    /// How much of the fullest control group with a limit cannot be dropped.
    pub(super) full_percent: Option<u32>,
}

impl Strain {
    pub(super) fn look(found: &Found) -> Self {
        // The daemon's own group knows better than the machine whether it waits.
        let of_group = found.groups.iter().find_map(|group| waiting_percent(&group.join("memory.pressure")));
        let waiting_percent = of_group.or_else(|| waiting_percent(&found.root.join("proc/pressure/memory")));
        Self { waiting_percent, full_percent: found.groups.iter().filter_map(|group| full_percent(group)).max() }
    }

    /// True while something must be given back.
    pub(super) fn is_short(self) -> bool {
        let over = |percent: Option<u32>, (from, _): (u32, u32)| percent.is_some_and(|percent| percent >= from);
        over(self.waiting_percent, WAITING_PERCENT) || over(self.full_percent, FULL_PERCENT)
    }

    /// True when there is enough, with a distance to being short.
    pub(super) fn is_gone(self) -> bool {
        let below = |percent: Option<u32>, (_, to): (u32, u32)| percent.is_none_or(|percent| percent < to);
        below(self.waiting_percent, WAITING_PERCENT) && below(self.full_percent, FULL_PERCENT)
    }
}

impl fmt::Display for Strain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting_percent.unwrap_or(0);
        write!(f, "tasks waited for memory {waiting} % of the last 10 seconds")?;
        self.full_percent.map_or(Ok(()), |full| write!(f, ", and the control group is {full} % full"))
    }
}

/// `avg10` of the line `some`.
fn waiting_percent(path: &Path) -> Option<u32> {
    let text = read(path)?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    average.split('.').next()?.parse().ok()
}

/// What a group uses of its limit, without the pages of files that the kernel drops by itself.
fn full_percent(group: &Path) -> Option<u32> {
    let number = |file: &str| read(&group.join(file))?.trim().parse::<u64>().ok();
    // Above memory.high the kernel holds up every task of the group, long before memory.max.
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|file| number(file)).min()?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let of_stat = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<u64>().ok())
    };
    // The first version counts a group alone, and with those below it under these names.
    let files = ["active_file", "inactive_file"]
        .iter()
        .filter_map(|name| of_stat(&format!("total_{name}")).or_else(|| of_stat(name)))
        .fold(0, u64::saturating_add);
    let percent = u128::from(used.saturating_sub(files)) * 100 / u128::from(limit.max(1));
    u32::try_from(percent).ok()
}
