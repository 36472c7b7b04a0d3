//! Settings of the request queues of the array's own disks.

use super::cpus::Cpus;
use super::tunables::{
    ADD_RANDOM, MAX_SECTORS, MAX_SECTORS_OF_HEADS, NOMERGES, NOMERGES_OF_HEADS, NR_REQUESTS, QUEUE_DEPTH, READ_AHEAD,
    RQ_AFFINITY, SCHEDULER, SCHEDULER_OF_HEADS, WBT, WRITE_CACHE,
};
use super::{Advice, Root, Tunable, Verdict};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Size in KiB of the array's largest request; also the value in S0.
const REQUEST_KB: u64 = 1024;
/// Value in S0.
const SORTED_REQUESTS: u64 = 1024;
/// Maximum of NCQ.
const NCQ_DEPTH: &str = "31";

/// Block device with a request queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Name in `/sys/block`.
    pub name: String,
    /// True if the array uses only a partition of it.
    pub is_shared: bool,
}

/// Returns the whole device of `path`, which may be a partition; none for a file.
pub(super) fn device(root: &Root, path: &Path) -> Option<Device> {
    let real = fs::canonicalize(root.path(path)).ok()?;
    // Both sides are resolved, since the root of a test may itself be reached through links.
    let devices = fs::canonicalize(root.path("dev")).ok()?;
    let name = real.strip_prefix(&devices).ok()?.file_name()?.to_str()?.to_owned();
    let entry = format!("sys/class/block/{name}");
    if !root.has(&format!("{entry}/partition")) {
        return root.has(&entry).then_some(Device { name, is_shared: false });
    }
    // Sysfs lists a partition as a folder below its disk.
    let whole = fs::canonicalize(root.path(&entry)).ok()?;
    let name = whole.parent()?.file_name()?.to_str()?.to_owned();
    Some(Device { name, is_shared: true })
}

/// Returns the devices below `paths` with request queues of their own: those below a device mapper, not the mapper
/// itself.
pub(super) fn devices(root: &Root, paths: &[impl AsRef<Path>]) -> Vec<Device> {
    let mut found: BTreeMap<String, Device> = BTreeMap::new();
    let mut next: Vec<Device> = paths.iter().filter_map(|path| device(root, path.as_ref())).collect();
    while let Some(device) = next.pop() {
        let below = root.names(&format!("sys/class/block/{}/slaves", device.name));
        if below.is_empty() {
            found.entry(device.name.clone()).and_modify(|known| known.is_shared |= device.is_shared).or_insert(device);
            continue;
        }
        // A device that names itself would never end.
        let below = below.into_iter().filter(|name| *name != device.name);
        next.extend(below.filter_map(|name| self::device(root, &Path::new("/dev").join(name))));
    }
    // A device reached by two paths is listed once.
    found.into_values().collect()
}

pub(super) fn look(root: &Root, paths: &[impl AsRef<Path>]) -> Vec<Advice> {
    devices(root, paths).iter().flat_map(|device| of(root, device)).collect()
}

/// Returns the settings of one device.
fn of(root: &Root, device: &Device) -> Vec<Advice> {
    let queue = Queue { root, name: &device.name };
    let all = [
        queue.scheduler(),
        queue.requests(),
        queue.request_size(),
        queue.least(&READ_AHEAD),
        queue.affinity(),
        queue.merges(),
        queue.randomness(),
        queue.cache(),
        queue.least(&WBT),
        queue.depth(),
    ];
    let shared = |advice: Advice| {
        if !device.is_shared {
            return advice;
        }
        let note = format!("the array uses only a part of {}; other users share the same queue", device.name);
        // A partition has no queue of its own, so a change reaches the other users of the disk.
        if advice.verdict == Verdict::Change { advice.asking(note) } else { advice }
    };
    all.into_iter().flatten().map(shared).collect()
}

/// Request queue of a device.
struct Queue<'a> {
    root: &'a Root,
    name: &'a str,
}

impl Queue<'_> {
    fn path(&self, file: &str) -> String {
        format!("sys/block/{}/queue/{file}", self.name)
    }

    fn text(&self, file: &str) -> Option<String> {
        self.root.text(&self.path(file))
    }

    /// Shows a setting without a recommendation.
    fn least(&self, knob: &'static Tunable) -> Option<Advice> {
        Some(Advice::kept(knob, self.name, self.text(knob.name)?))
    }

    /// Returns true for a rotational disk. Virtual disks claim to be rotational as well, without knowing.
    fn turns(&self) -> bool {
        // Prefixes of the disks of virtio and Xen.
        let is_virtual = ["vd", "xvd"].iter().any(|prefix| self.name.starts_with(prefix));
        self.text("rotational").as_deref() == Some("1") && !is_virtual
    }

    /// Returns the recommended scheduler with its reason: rotational and solid-state disks need opposite ones.
    fn wanted_scheduler(&self) -> (&'static Tunable, &'static str) {
        if self.turns() { (&SCHEDULER_OF_HEADS, "mq-deadline") } else { (&SCHEDULER, "none") }
    }

    fn scheduler(&self) -> Option<Advice> {
        let text = self.text("scheduler")?;
        // The file lists all schedulers, with the present one in brackets.
        let now = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text.as_str(), |(now, _)| now);
        let (knob, wanted) = self.wanted_scheduler();
        let advice = Advice::kept(knob, self.name, now).file(&self.path("scheduler"), wanted);
        let is_there = text.split_whitespace().any(|word| word.trim_matches(['[', ']']) == wanted);
        Some(if is_there { advice } else { advice.impossible(format!("this kernel does not support {wanted} for it")) })
    }

    fn requests(&self) -> Option<Advice> {
        let now: u64 = self.text("nr_requests")?.parse().ok()?;
        let advice = Advice::kept(&NR_REQUESTS, self.name, now.to_string());
        if !self.turns() || now >= SORTED_REQUESTS {
            // Without a scheduler the number of requests is that of the hardware queue.
            return Some(advice);
        }
        // Judged by the choices of the kernel: the scheduler is set in the same run, before the number.
        let sorts = self.text("scheduler").is_some_and(|text| text.contains("mq-deadline"));
        if !sorts {
            return Some(advice);
        }
        // Set after the scheduler: a change of the scheduler resets the number.
        Some(advice.file(&self.path("nr_requests"), SORTED_REQUESTS.to_string()))
    }

    fn request_size(&self) -> Option<Advice> {
        let now: u64 = self.text("max_sectors_kb")?.parse().ok()?;
        let most: u64 = self.text("max_hw_sectors_kb")?.parse().ok()?;
        let knob = if self.turns() { &MAX_SECTORS_OF_HEADS } else { &MAX_SECTORS };
        let advice = Advice::kept(knob, self.name, now.to_string());
        if !self.turns() {
            // Larger requests have shown no gain on these disks.
            return Some(advice);
        }
        if now >= REQUEST_KB || now >= most {
            let note = (now < REQUEST_KB).then(|| format!("the hardware limit is {most}"));
            return Some(advice.saying(note.unwrap_or_default()));
        }
        Some(advice.file(&self.path("max_sectors_kb"), most.min(REQUEST_KB).to_string()))
    }

    fn affinity(&self) -> Option<Advice> {
        let advice = Advice::kept(&RQ_AFFINITY, self.name, self.text("rq_affinity")?);
        // A single processor completes every request anyway.
        let alone = Cpus::online(self.root).len() < 2;
        Some(if alone || self.turns() { advice } else { advice.file(&self.path("rq_affinity"), "2") })
    }

    fn merges(&self) -> Option<Advice> {
        let knob = if self.turns() { &NOMERGES_OF_HEADS } else { &NOMERGES };
        let advice = Advice::kept(knob, self.name, self.text("nomerges")?);
        Some(if self.turns() { advice.file(&self.path("nomerges"), "0") } else { advice })
    }

    fn randomness(&self) -> Option<Advice> {
        Some(Advice::kept(&ADD_RANDOM, self.name, self.text("add_random")?).file(&self.path("add_random"), "0"))
    }

    fn cache(&self) -> Option<Advice> {
        self.least(&WRITE_CACHE)
    }

    /// Recommends the depth for SATA disks without NCQ only.
    fn depth(&self) -> Option<Advice> {
        let path = format!("sys/block/{}/device/queue_depth", self.name);
        let is_sata = self.root.text(&format!("sys/block/{}/device/vendor", self.name))? == "ATA";
        let now = self.root.text(&path)?;
        let advice = Advice::kept(&QUEUE_DEPTH, self.name, now.clone());
        // A depth of 1 means that NCQ is off.
        Some(if is_sata && now == "1" { advice.file(&path, NCQ_DEPTH) } else { advice })
    }
}
