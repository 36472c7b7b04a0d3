//! Findings about the machine of the daemon, if it is this one.

use crate::serve::OPEN_FILES_WANTED;
use model::Finding;
use std::fs;
use std::path::Path;

/// Checks the limits of the daemon's process, and settings of the system.
pub(super) fn look(pid: Option<u32>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(pid) = pid {
        // A file that cannot be read gives no finding.
        let of_process = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        findings.extend(open_files(&of_process("limits")));
        findings.extend(killing(&of_process("oom_score_adj")));
    }
    findings.extend(clock(Path::new("/run/systemd/timesync/synchronized"), Path::new("/run/chrony")));
    findings.extend(listen_queue(&fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default()));
    findings
}

fn open_files(limits: &str) -> Option<Finding> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_whitespace().next()?;
    let allowed = if soft == "unlimited" { u64::MAX } else { soft.parse().ok()? };
    // The same limit at which the daemon warns in its log.
    if allowed >= OPEN_FILES_WANTED {
        return Some(Finding::good("open files", format!("limit {soft}")));
    }
    let sentence = format!("limit {allowed} is too low: each connection and disk needs one");
    Some(Finding::warning(
        "open files",
        sentence,
        format!("set LimitNOFILE={OPEN_FILES_WANTED} or more in the systemd unit"),
    ))
}

fn killing(adjustment: &str) -> Option<Finding> {
    let adjustment: i32 = adjustment.trim().parse().ok()?;
    // Range of the adjustment: -1000 (never) to 1000 (first), proc(5).
    if adjustment <= -500 {
        return Some(Finding::good("memory", "the OOM killer prefers other processes"));
    }
    let sentence = "the OOM killer may kill the daemon when memory is low";
    Some(Finding::warning("memory", sentence, "set OOMScoreAdjust=-900 in the systemd unit, as the package does"))
}

/// Checks for a time service: snapshot locks and scrub windows follow the clock.
fn clock(timesyncd: &Path, chrony: &Path) -> Option<Finding> {
    // systemd-timesyncd creates its file at the first synchronization. chrony has no such file, so its folder must do.
    if timesyncd.exists() || chrony.exists() {
        return Some(Finding::good("clock", "is synchronized"));
    }
    let fix = "install chrony or start systemd-timesyncd: snapshot locks depend on the clock";
    Some(Finding::warning("clock", "is not synchronized: no time service found", fix))
}

fn listen_queue(somaxconn: &str) -> Option<Finding> {
    let most: u32 = somaxconn.trim().parse().ok()?;
    if most >= 1024 {
        return None;
    }
    let fix = "set the sysctl net.core.somaxconn to 4096";
    Some(Finding::warning("network", format!("the listen backlog is limited to {most} connections"), fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Grade;

    #[test]
    fn machine_is_judged_by_what_the_kernel_says() {
        let limits = |soft: &str| {
            format!("Limit  Soft Limit  Hard Limit  Units\nMax open files            {soft}  20000  files\n")
        };
        let grade = |finding: Option<Finding>| finding.map(|finding| finding.grade);
        assert_eq!(grade(open_files(&limits("1024"))), Some(Grade::Warning));
        assert_eq!(grade(open_files(&limits("20000"))), Some(Grade::Good));
        assert_eq!(grade(open_files(&limits("unlimited"))), Some(Grade::Good));
        assert_eq!(open_files(""), None, "of a process of somebody else nothing is known");
        assert_eq!(grade(killing("0\n")), Some(Grade::Warning));
        assert_eq!(grade(killing("-900\n")), Some(Grade::Good));
        let nowhere = Path::new("/nowhere");
        assert_eq!(grade(clock(nowhere, nowhere)), Some(Grade::Warning));
        assert_eq!(grade(clock(nowhere, Path::new("/"))), Some(Grade::Good));
        assert_eq!(grade(listen_queue("128\n")), Some(Grade::Warning));
        assert_eq!(grade(listen_queue("4096\n")), None);
    }
}
