//! Memory limits of the machine, the control groups and the resource limits.
//!
//! *Source*: Linux, Documentation/admin-guide/cgroup-v2.rst ("Memory Interface Files"), cgroup-v1/memory.rst,
//! proc(5), getrlimit(2).

use std::path::{Path, PathBuf};

/// Read limit of files in `/proc` in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Assumed memory of a machine that does not report it, in bytes.
const UNKNOWN: u64 = 1 << 30;

/// Memory limits of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Memory of the machine in bytes; [`UNKNOWN`] where it is not reported.
    pub machine: u64,
    /// Limits below that in bytes, each with its source.
    limits: Vec<(String, u64)>,
    /// Control groups of the daemon that account for memory, its own first.
    pub(super) groups: Vec<PathBuf>,
    /// Root of `/proc` and `/sys`: `/`, or another directory in tests.
    pub(super) root: PathBuf,
}

impl MemoryLimits {
    /// Reads the limits of this process from `proc` and the control groups below `root`. A source that cannot
    /// be read sets no limit.
    #[must_use]
    pub fn detect(root: &Path) -> Self {
        let machine = read(&root.join("proc/meminfo"))
            .and_then(|text| text.lines().find_map(|line| kib(line.strip_prefix("MemTotal:")?)))
            .unwrap_or(UNKNOWN);
        let groups = groups(root);
        let of_groups = groups.iter().flat_map(|group| {
            // The first two are files of cgroup v2, the last one of v1.
            ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(|file| {
                let path = group.join(file);
                // `max` is no number, and means no limit.
                let bytes = read(&path)?.trim().parse().ok()?;
                let shown = path.strip_prefix(root).unwrap_or(&path);
                Some((format!("/{}", shown.display()), bytes))
            })
        });
        let limits = read(&root.join("proc/self/limits")).unwrap_or_default();
        // The soft limit is the one in force.
        let of_resources = [("Max address space", "RLIMIT_AS"), ("Max data size", "RLIMIT_DATA")];
        let of_resources = of_resources.into_iter().filter_map(|(begin, name)| {
            let soft = limits.lines().find_map(|line| line.strip_prefix(begin)?.split_whitespace().next())?;
            Some((name.to_owned(), soft.parse().ok()?))
        });
        // A control group of v1 without a limit reports a number near 2^63.
        let limits = of_groups.chain(of_resources).filter(|(_, bytes)| *bytes < machine).collect();
        Self { machine, limits, groups, root: root.to_owned() }
    }

    /// Returns the smallest limit and its source.
    #[must_use]
    pub fn smallest(&self) -> (&str, u64) {
        let smallest = self.limits.iter().min_by_key(|(_, bytes)| *bytes);
        smallest.map_or(("machine", self.machine), |(name, bytes)| (name, *bytes))
    }
}

/// Returns the control groups of this process with memory accounting, from its own up to the root of each
/// hierarchy.
fn groups(root: &Path) -> Vec<PathBuf> {
    let (own, mounts) = (read(&root.join("proc/self/cgroup")), read(&root.join("proc/self/mountinfo")));
    let mounts: Vec<Mount<'_>> = mounts.as_deref().unwrap_or_default().lines().filter_map(Mount::parse).collect();
    let mut groups = Vec::new();
    for line in own.as_deref().unwrap_or_default().lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        // cgroup v2: the controller list is empty (cgroups(7)).
        let is_second = controllers.is_empty();
        if !is_second && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let Some(mount) = mounts.iter().find(|mount| mount.is_second == is_second) else { continue };
        let top = root.join(mount.point.trim_start_matches('/'));
        // In a container the path may be that of the host, of which only the part below the mount's root is
        // visible.
        let inside = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("");
        let mut group = top.join(inside.trim_start_matches('/'));
        // Limits of all enclosing groups apply as well.
        while group.starts_with(&top) {
            groups.push(group.clone());
            // At the root there is no parent, and the loop would not end.
            if !group.pop() {
                break;
            }
        }
    }
    groups
}

/// A mounted control group hierarchy with memory accounting.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    is_second: bool,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_second = match kind.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        let options = kind.nth(1)?;
        if !is_second && !options.split(',').any(|option| option == "memory") {
            return None;
        }
        let mut place = place.split(' ').skip(3);
        Some(Self { root: place.next()?, point: place.next()?, is_second })
    }
}

pub(super) fn read(path: &Path) -> Option<String> {
    bounded::text_file(path, FILE_BYTES_MAX).ok()
}

fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
