//! What the machine, control groups and resource limits leave to the daemon.
//!
//! *Source*: Linux, Documentation/admin-guide/cgroup-v2.rst ("Memory Interface Files"), cgroup-v1/memory.rst, proc(5), getrlimit(2).

use std::path::{Path, PathBuf};

/// Longer than any file of `/proc` that is read here.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a machine is taken to have that does not tell.
const UNKNOWN: u64 = 1 << 30;

/// Where the daemon's memory is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The memory of the machine; [`UNKNOWN`] where it does not tell.
    pub machine: u64,
    /// Limits below that, each with what it is.
    limits: Vec<(String, u64)>,
    /// The control groups of the daemon that account for memory, its own first.
    pub(super) groups: Vec<PathBuf>,
    /// `/`, or a folder that stands for it.
    pub(super) root: PathBuf,
}

impl Found {
    /// What `proc` and the mounted control groups below `root` tell of this process. What they do not tell limits nothing.
    #[must_use]
    pub fn look(root: &Path) -> Self {
        let machine = read(&root.join("proc/meminfo"))
            .and_then(|text| text.lines().find_map(|line| kib(line.strip_prefix("MemTotal:")?)))
            .unwrap_or(UNKNOWN);
        let groups = groups(root);
        let of_groups = groups.iter().flat_map(|group| {
            ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(|file| {
                let path = group.join(file);
                let bytes = read(&path)?.trim().parse().ok()?;
                let shown = path.strip_prefix(root).unwrap_or(&path);
                Some((format!("/{}", shown.display()), bytes))
            })
        });
        let limits = read(&root.join("proc/self/limits")).unwrap_or_default();
        let of_resources = [("Max address space", "RLIMIT_AS"), ("Max data size", "RLIMIT_DATA")];
        let of_resources = of_resources.into_iter().filter_map(|(begin, name)| {
            let soft = limits.lines().find_map(|line| line.strip_prefix(begin)?.split_whitespace().next())?;
            Some((name.to_owned(), soft.parse().ok()?))
        });
        let limits = of_groups.chain(of_resources).filter(|(_, bytes)| *bytes < machine).collect();
        Self { machine, limits, groups, root: root.to_owned() }
    }

    /// The smallest limit, and what it is.
    #[must_use]
    pub fn smallest(&self) -> (&str, u64) {
        let smallest = self.limits.iter().min_by_key(|(_, bytes)| *bytes);
        smallest.map_or(("machine", self.machine), |(name, bytes)| (name, *bytes))
    }
}

/// The folders of the control groups of this process, from its own up to the root of each hierarchy that accounts for memory.
fn groups(root: &Path) -> Vec<PathBuf> {
    let (own, mounts) = (read(&root.join("proc/self/cgroup")), read(&root.join("proc/self/mountinfo")));
    let mounts: Vec<Mount<'_>> = mounts.as_deref().unwrap_or_default().lines().filter_map(Mount::parse).collect();
    let mut groups = Vec::new();
    for line in own.as_deref().unwrap_or_default().lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        // A line without controllers is of the second version.
        let is_second = controllers.is_empty();
        if !is_second && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let Some(mount) = mounts.iter().find(|mount| mount.is_second == is_second) else { continue };
        let top = root.join(mount.point.trim_start_matches('/'));
        // In a container the path may be of the world outside, of which only the part below the mount's root is there.
        let inside = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("");
        let mut group = top.join(inside.trim_start_matches('/'));
        while group.starts_with(&top) {
            groups.push(group.clone());
            if !group.pop() {
                break;
            }
        }
    }
    groups
}

/// A mounted hierarchy of control groups that accounts for memory.
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
