//! Settings of cores, sockets and memory.

use super::cpus::{self, Cpus};
use super::network::sysctl;
use super::tunables::{GOVERNOR, HALT_POLL, HUGE_PAGES, IO_URING, ISOLATED, MEMLOCK, SHARD_CPUS, SWAPPINESS};
use super::{Advice, Array, Root, Setting, Verdict, disks, interfaces};
use std::collections::{BTreeMap, BTreeSet};

const CPUS: &str = "sys/devices/system/cpu";
/// First kernel that charges rings to the memory control group instead of the locked-memory limit.
const RINGS_ARE_FREE: (u32, u32) = (5, 12);
/// Enough locked memory for the rings of all shards, in bytes.
const LOCKED_BYTES: u64 = 64 << 20;
/// Default of Linux.
const HALT_POLL_NS: &str = "200000";

pub(super) fn look(root: &Root, array: &Array) -> Vec<Advice> {
    let all = [
        governor(root),
        halt_poll(root),
        shard_cpus(root, array),
        isolated(root),
        io_uring(root),
        huge_pages(root),
        swappiness(root),
        locked(root, array),
    ];
    all.into_iter().flatten().collect()
}

/// Recommends the frequency governor; none without frequency scaling, as in most virtual machines.
fn governor(root: &Root) -> Option<Advice> {
    let file = |cpu: u32| format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor");
    let online = Cpus::online(root);
    let cpus: Vec<u32> = (0..online.len()).filter_map(|n| online.nth(n)).collect();
    let now: BTreeSet<String> = cpus.iter().filter_map(|cpu| root.text(&file(*cpu))).collect();
    if now.is_empty() {
        return None;
    }
    let advice = Advice::kept(&GOVERNOR, "", now.into_iter().collect::<Vec<_>>().join(" "));
    // Each core has a governor of its own.
    let settings = cpus.iter().map(|cpu| Setting::File { path: file(*cpu), value: "performance".to_owned() });
    let advice = advice.to("performance", settings);
    // Without the list, only the attempt to set the value tells whether the kernel has it.
    let can = root.text(&format!("{CPUS}/cpu0/cpufreq/scaling_available_governors"));
    let has = can.is_none_or(|all| all.split_whitespace().any(|one| one == "performance"));
    Some(if has { advice } else { advice.impossible("not supported by this kernel") })
}

/// Recommends halt polling in virtual machines whose kernel supports it.
fn halt_poll(root: &Root) -> Option<Advice> {
    const PATH: &str = "sys/module/haltpoll/parameters/guest_halt_poll_ns";
    // Other governors ignore the parameter.
    root.text(&format!("{CPUS}/cpuidle/current_governor")).filter(|governor| governor == "haltpoll")?;
    let now = root.number(PATH)?;
    let advice = Advice::kept(&HALT_POLL, "", now.to_string());
    // Any other value was set by an administrator and is kept.
    let advice = if now == 0 { advice.file(PATH, HALT_POLL_NS) } else { advice };
    let note = "disabled on this machine by its administrator; it uses CPU time of the hypervisor. To enable it: \
         blockyard tune apply --only";
    Some(advice.asking(format!("{note} {}", HALT_POLL.name)))
}

/// Recommends cores near cards and disks, on machines with several NUMA nodes.
fn shard_cpus(root: &Root, array: &Array) -> Option<Advice> {
    let nodes: Vec<String> =
        root.names("sys/devices/system/node").into_iter().filter(|name| name.starts_with("node")).collect();
    let now = allowed(root, array.pid?)?;
    if nodes.len() < 2 {
        return None;
    }
    let mut by_node: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let mut add = |name: String, path: String| {
        if let Some(node) = cpus::node(root, &path) {
            by_node.entry(node).or_default().insert(name);
        }
    };
    for name in interfaces::with_those_below(root, &array.interfaces) {
        let path = format!("sys/class/net/{name}/device/numa_node");
        add(name, path);
    }
    for disk in disks::devices(root, &array.disks) {
        let below = format!("sys/block/{}/device", disk.name);
        // The device of an NVMe namespace is its controller; the PCI device is one level further.
        let at = ["numa_node", "device/numa_node"].map(|file| format!("{below}/{file}"));
        let path = at.iter().find(|path| root.has(path)).cloned();
        add(disk.name, path.unwrap_or_default());
    }
    let advice = Advice::kept(&SHARD_CPUS, "", now.to_string());
    let told = |(node, names): (&u32, &BTreeSet<String>)| {
        format!("{} on node {node}", names.iter().cloned().collect::<Vec<_>>().join(", "))
    };
    match by_node.len() {
        0 => Some(advice.saying("no card or disk reports its NUMA node")),
        1 => {
            let near = Cpus::near(root, by_node.keys().next().copied());
            if near.contains_all(&now) {
                return Some(advice);
            }
            let note = format!(
                "set cpus = \"{near}\" in /etc/blockyard.toml and restart the daemon, if that node has enough cores"
            );
            Some(advice.to(near.to_string(), []).asking(note))
        }
        // Devices on several nodes: no choice of cores is near all of them.
        _ => {
            let all = by_node.iter().map(told).collect::<Vec<_>>().join("; ");
            let note = format!("{all}: put cards and disks on one node to avoid traffic between nodes");
            Some(Advice { verdict: Verdict::Cannot, note, ..advice })
        }
    }
}

/// Returns the processors that shards may run on; those of the process if it has no shards.
fn allowed(root: &Root, pid: u32) -> Option<Cpus> {
    let list = |path: String| {
        let status = root.text(&path)?;
        Some(Cpus::of_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?))
    };
    let tasks = format!("proc/{pid}/task");
    // Shards may be pinned while the first thread of the process is not, so their own masks count.
    let is_shard =
        |task: &String| root.text(&format!("{tasks}/{task}/comm")).is_some_and(|name| name.starts_with("shard-"));
    let mut all = Cpus::default();
    for task in root.names(&tasks).into_iter().filter(is_shard) {
        all.join(&list(format!("{tasks}/{task}/status"))?);
    }
    if all.len() == 0 { list(format!("proc/{pid}/status")) } else { Some(all) }
}

fn isolated(root: &Root) -> Option<Advice> {
    // Shown only: isolation is a parameter of the kernel's command line.
    let now = root.text(&format!("{CPUS}/isolated")).filter(|list| !list.is_empty())?;
    Some(Advice::kept(&ISOLATED, "", now))
}

fn io_uring(root: &Root) -> Option<Advice> {
    let path = sysctl(IO_URING.name);
    let advice = Advice::kept(&IO_URING, "", root.text(&path)?).file(&path, "0");
    Some(advice.asking(
        "disabled on this machine by its administrator. To enable it: blockyard tune apply --only \
         kernel.io_uring_disabled",
    ))
}

fn huge_pages(root: &Root) -> Option<Advice> {
    let text = root.text("sys/kernel/mm/transparent_hugepage/enabled")?;
    // The file lists all modes, with the present one in brackets.
    let (_, rest) = text.split_once('[')?;
    Some(Advice::kept(&HUGE_PAGES, "", rest.split(']').next()?))
}

/// Recommends a low swappiness, on machines with swap.
fn swappiness(root: &Root) -> Option<Advice> {
    let path = sysctl(SWAPPINESS.name);
    let now = root.number(&path)?;
    let advice = Advice::kept(&SWAPPINESS, "", now.to_string());
    // The first line is the header.
    let swaps = root.text("proc/swaps").is_some_and(|text| text.lines().count() > 1);
    Some(if swaps && now > 10 { advice.file(&path, "10") } else { advice })
}

/// Recommends locked memory, on kernels that charge rings to it.
fn locked(root: &Root, array: &Array) -> Option<Advice> {
    let release = root.text("proc/sys/kernel/osrelease")?;
    // A release such as 6.1.0-18-amd64: only the first two numbers count.
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?);
    let limits = root.text(&format!("proc/{}/limits", array.pid?))?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let now = line.split_whitespace().next()?;
    let advice = Advice::kept(&MEMLOCK, "", now);
    if version >= RINGS_ARE_FREE || now.parse().is_ok_and(|bytes: u64| bytes >= LOCKED_BYTES) || now == "unlimited" {
        return Some(advice);
    }
    Some(
        advice.to("unlimited", []).asking("systemctl edit blockyard: [Service] LimitMEMLOCK=infinity, then restart it"),
    )
}
