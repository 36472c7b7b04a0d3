//! Memory budget: the sizes of the buffers and of the read cache. Called once, by [`crate::serve`].
//!
//! The configured sizes may exceed the memory: a module has failed, a control group has become smaller, or a figure is
//! wrong. A daemon that refuses to start serves no volume, and one that allocates anyway is killed by the kernel. So
//! sizes that do not fit are reduced, and the status reports it until it is corrected.

use crate::config::{BUFFERS, BUFFERS_MIN, Config};
use control::Control;
use control::memory::MemoryLimits;
use model::{Problem, Severity, Size, Subject, SubjectKind, event};

/// Limit of all pools that are open read-only together, unless an eighth of the memory limit is less.
const READ_ONLY: Size = Size::mib(512);

/// Memory that the daemon may use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget {
    /// Bytes for data in flight.
    pub buffer_bytes: u64,
    /// Bytes for the read cache and for maps.
    pub cache_bytes: u64,
    /// Bytes for the contents of the logs of pools that are open read-only.
    pub read_only_bytes: u64,
}

/// Setting that was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduced {
    setting: &'static str,
    chosen: Size,
    used: Size,
}

impl MemoryBudget {
    /// Returns the configured sizes, reduced to fit the smallest memory limit, and the reduced settings. Without a
    /// setting the cache gets a quarter of the limit, and the buffers at most another quarter.
    pub(crate) fn of(config: &Config, found: &MemoryLimits) -> (Self, Vec<Reduced>) {
        Self::within(found.smallest().1, config.buffers, config.cache)
    }

    /// Divides `limit`: a quarter is reserved for everything else, the buffers get at most half, and the cache gets the
    /// rest.
    fn within(limit: u64, buffers: Option<Size>, cache: Option<Size>) -> (Self, Vec<Reduced>) {
        let mut reduced = Vec::new();
        let mut fit = |setting, chosen: Size, most: u64| {
            let used = Size::new(chosen.bytes().min(most));
            if used < chosen {
                reduced.push(Reduced { setting, chosen, used });
            }
            used.bytes()
        };
        let buffers_min = BUFFERS_MIN.bytes();
        let buffer_bytes = match buffers {
            // The minimum applies even on a tiny machine: without it the data plane cannot start.
            Some(chosen) => fit("buffers", chosen, (limit / 2).max(buffers_min)),
            // Not reported as reduced: it is the default, which nobody chose.
            None => BUFFERS.bytes().min(limit / 4).max(buffers_min),
        };
        let cache_bytes = match cache {
            // On a tiny machine the minimum of the buffers may exceed the limit.
            Some(chosen) => fit("cache", chosen, (limit - limit / 4).saturating_sub(buffer_bytes)),
            None => limit / 4,
        };
        // Half of the quarter that is reserved for everything else.
        let read_only_bytes = READ_ONLY.bytes().min(limit / 8);
        (Self { buffer_bytes, cache_bytes, read_only_bytes }, reduced)
    }
}

/// Reports reduced settings as a problem of the status while the daemon runs.
pub(crate) fn notice(control: &Control, reduced: &[Reduced], (limited_by, limit): (&str, u64)) {
    if let Some(problem) = problem(reduced, limited_by, Size::new(limit)) {
        let node = Subject::new(SubjectKind::Node, &control.core.settings().node);
        // Part of the status and not only of the log, so that it is seen until the settings are corrected.
        control.notices.add(event::MEMORY_REDUCED, node, problem);
    }
}

fn problem(reduced: &[Reduced], limited_by: &str, limit: Size) -> Option<Problem> {
    let each = |say: fn(&Reduced) -> String| reduced.iter().map(say).collect::<Vec<_>>().join(", ");
    let chosen = each(|one| format!("{} of {}", one.setting, one.chosen.iec()));
    let used = each(|one| format!("{} for {}", one.used.iec(), one.setting));
    // Rounded down to MiB, so that the suggested value fits.
    let fits = each(|one| format!("{} = \"{}MiB\"", one.setting, one.used.bytes() >> 20));
    let verb = if reduced.len() == 1 { "does" } else { "do" };
    (!reduced.is_empty()).then(|| Problem {
        severity: Severity::Warning,
        subject: "memory".to_owned(),
        state: "less than configured".to_owned(),
        meaning: format!(
            "{chosen} {verb} not fit into the limit of {} ({limited_by}); the daemon uses {used}",
            limit.iec()
        ),
        action: format!("set {fits} or less where the daemon is configured, or raise the limit; then restart it"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn within(limit_mib: u64, buffers_mib: Option<u64>, cache_mib: Option<u64>) -> (u64, u64, Vec<&'static str>) {
        let size = |mib: u64| Size::new(mib * MIB);
        let (budget, reduced) = MemoryBudget::within(limit_mib * MIB, buffers_mib.map(size), cache_mib.map(size));
        (budget.buffer_bytes / MIB, budget.cache_bytes / MIB, reduced.iter().map(|one| one.setting).collect())
    }

    #[test]
    fn defaults_are_parts_of_the_limit() {
        assert_eq!(within(16 << 10, None, None), (256, 4 << 10, vec![]));
        assert_eq!(within(512, None, None), (128, 128, vec![]));
        assert_eq!(within(32, None, None), (16, 8, vec![]));
    }

    #[test]
    fn pools_that_are_read_only_have_an_eighth_of_a_small_limit() {
        let of = |limit_mib: u64| MemoryBudget::within(limit_mib * MIB, None, None).0.read_only_bytes / MIB;
        assert_eq!((of(16 << 10), of(4096), of(512)), (512, 512, 64));
    }

    #[test]
    fn what_was_chosen_is_used_as_far_as_it_fits() {
        assert_eq!(within(16 << 10, Some(4 << 10), Some(8 << 10)), (4 << 10, 8 << 10, vec![]), "all of it");
        assert_eq!(within(512, None, Some(256)), (128, 256, vec![]), "just so");
        assert_eq!(within(512, None, Some(4 << 10)), (128, 256, vec!["cache"]));
        assert_eq!(within(512, Some(1 << 10), None), (256, 128, vec!["buffers"]));
        assert_eq!(within(512, Some(1 << 10), Some(1 << 10)), (256, 128, vec!["buffers", "cache"]));
        assert_eq!(within(16, Some(64), Some(64)), (16, 0, vec!["buffers", "cache"]), "buffers are never too few");
        let most = MemoryBudget::within(u64::MAX, Some(Size::new(u64::MAX)), Some(Size::new(u64::MAX)));
        assert!(most.0.buffer_bytes.checked_add(most.0.cache_bytes).is_some());
    }

    #[test]
    fn problem_names_setting_limit_and_what_fits() {
        let (_, reduced) = MemoryBudget::within(512 * MIB, None, Some(Size::new(4 << 30)));
        let told = problem(&reduced, "/sys/fs/cgroup/memory.max", Size::mib(512)).expect("it does not fit");
        let meaning = "cache of 4 GiB does not fit into the limit of 512 MiB (/sys/fs/cgroup/memory.max); the daemon uses 256 MiB for cache";
        assert_eq!(told.meaning, meaning);
        assert!(told.action.starts_with("set cache = \"256MiB\" or less"), "{}", told.action);
        assert_eq!(problem(&[], "machine", Size::mib(512)), None);
    }
}
