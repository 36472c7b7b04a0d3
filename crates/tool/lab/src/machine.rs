//! Facts about the machine that affect figures.

use crate::child::run_within;
use crate::run::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Name of the fact about idle cores.
const IDLE: &str = "idle";
/// Timeout of a program that prints its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Kernel parameter for how long an idle virtual core polls before it is returned to the hypervisor.
const HALT_POLL: &str = "guest_halt_poll_ns";

impl Machine {
    /// Collects the facts of this machine; unknown ones are omitted.
    #[must_use]
    pub fn here() -> Self {
        let mut machine = Self::at(Path::new("/"));
        machine.add("blockyard", Some(env!("CARGO_PKG_VERSION").to_owned()));
        machine.add("tgt", version("tgtd", "--version"));
        machine
    }

    /// Collects the facts from `proc`, `sys` and `etc` below `root`.
    fn at(root: &Path) -> Self {
        let root = Root(root);
        let mut machine = Self::default();
        machine.add("cpu", root.field("proc/cpuinfo", "model name"));
        machine.add("cores", root.cores());
        machine.add("NUMA nodes", root.count("sys/devices/system/node", "node"));
        machine.add("memory", root.memory());
        machine.add("kernel", root.text("proc/sys/kernel/osrelease").map(|release| format!("Linux {release}")));
        machine.add("system", root.system());
        machine.add("hypervisor", root.hypervisor());
        machine.add("governor", root.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
        machine.add(IDLE, root.idle());
        machine.add("huge pages", root.text("sys/kernel/mm/transparent_hugepage/enabled"));
        machine.add("congestion control", root.text("proc/sys/net/ipv4/tcp_congestion_control"));
        machine.add("vulnerable to", root.vulnerabilities(|state| state.starts_with("Vulnerable")));
        machine.add("mitigations", root.vulnerabilities(|state| state.starts_with("Mitigation")));
        machine.add("load average", root.load());
        for (name, fact) in root.networks() {
            machine.add(&format!("network {name}"), Some(fact));
        }
        machine
    }

    /// Returns true if an idle core goes to the hypervisor immediately, and has to be woken by it.
    #[must_use]
    pub fn gives_idle_cores_back(&self) -> bool {
        self.facts.get(IDLE).is_some_and(|idle| idle.ends_with(&format!("{HALT_POLL} 0")))
    }

    fn add(&mut self, name: &str, fact: Option<String>) {
        self.facts.extend(fact.map(|fact| (name.to_owned(), fact)));
    }
}

/// Returns the first line of a program's version; none if it is not installed.
fn version(program: &str, argument: &str) -> Option<String> {
    let ask = |program: &str| run_within(Command::new(program).arg(argument), VERSION_LIMIT);
    // Daemons are often outside of a user's `PATH`.
    let ended = ask(program).or_else(|_| ask(&format!("/usr/sbin/{program}"))).ok()?;
    ended.said.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Root of `proc`, `sys` and `etc`.
struct Root<'a>(&'a Path);

impl Root<'_> {
    fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Returns the value of the first `name : value` or `name=value` in a file.
    fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|line| {
            let (key, value) = line.split_once([':', '='])?;
            // `os-release` quotes its values.
            (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
        });
        value.filter(|value| !value.is_empty())
    }

    /// Returns the names in a folder, sorted.
    fn names(&self, path: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Counts the names of a folder that are `prefix` and a number.
    fn count(&self, path: &str, prefix: &str) -> Option<String> {
        // The folders also contain files such as `possible` and `online`.
        let numbered = |name: &String| name.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
        let count = self.names(path).iter().filter(|name| numbered(name)).count();
        (count > 0).then(|| count.to_string())
    }

    /// Returns the number of logical processors and of cores.
    fn cores(&self) -> Option<String> {
        let text = self.text("proc/cpuinfo")?;
        let value = |line: &str, name: &str| {
            line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        };
        let logical = text.lines().filter(|line| value(line, "processor").is_some()).count();
        // Core numbers repeat in every package, so only both together identify a core.
        let (mut package, mut cores) = (String::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(id) = value(line, "physical id") {
                package = id;
            } else if let Some(core) = value(line, "core id") {
                cores.insert((package.clone(), core));
            }
        }
        match (logical, cores.len()) {
            (0, _) => None,
            // Some processors report no core numbers; then only logical ones are known.
            (logical, cores) if cores == 0 || cores == logical => Some(logical.to_string()),
            (logical, cores) => Some(format!("{logical} threads of {cores}")),
        }
    }

    fn memory(&self) -> Option<String> {
        // The kernel writes kB and means KiB (proc(5)).
        let kib: u64 = self.field("proc/meminfo", "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
        Some(model::Size::new(kib << 10).iec())
    }

    fn system(&self) -> Option<String> {
        self.field("etc/os-release", "PRETTY_NAME").or_else(|| self.field("usr/lib/os-release", "PRETTY_NAME"))
    }

    /// Returns the virtual hardware, if a processor flag shows a hypervisor.
    fn hypervisor(&self) -> Option<String> {
        // Only x86 processors report the flag; elsewhere the fact is unknown.
        let flags = self.field("proc/cpuinfo", "flags")?;
        if !flags.split(' ').any(|flag| flag == "hypervisor") {
            return None;
        }
        let parts = ["sys_vendor", "product_name"].map(|name| self.text(&format!("sys/class/dmi/id/{name}")));
        let named: Vec<String> = parts.into_iter().flatten().collect();
        Some(self.text("sys/hypervisor/type").unwrap_or_else(|| match named.join(" ") {
            named if named.is_empty() => "one that gives no name".to_owned(),
            named => named,
        }))
    }

    /// Returns the idle governor, and the polling time of a virtual core.
    fn idle(&self) -> Option<String> {
        let governor = self.text("sys/devices/system/cpu/cpuidle/current_governor")?;
        // Other governors ignore the parameter.
        let poll = self.text(&format!("sys/module/haltpoll/parameters/{HALT_POLL}")).filter(|_| governor == "haltpoll");
        Some(poll.map_or_else(|| governor.clone(), |ns| format!("{governor}, {HALT_POLL} {ns}")))
    }

    /// Returns the names of processor vulnerabilities in a state, sorted.
    fn vulnerabilities(&self, of: impl Fn(&str) -> bool) -> Option<String> {
        const FOLDER: &str = "sys/devices/system/cpu/vulnerabilities";
        let names = self.names(FOLDER);
        let names: Vec<&str> = names
            .iter()
            .filter(|name| self.text(&format!("{FOLDER}/{name}")).is_some_and(|state| of(&state)))
            .map(String::as_str)
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Returns the load averages over 1, 5 and 15 minutes: activity before the run.
    fn load(&self) -> Option<String> {
        let text = self.text("proc/loadavg")?;
        let figures: Vec<&str> = text.split(' ').take(3).collect();
        Some(figures.join(" "))
    }

    /// Returns each interface with its driver, speed and MTU.
    fn networks(&self) -> Vec<(String, String)> {
        const FOLDER: &str = "sys/class/net";
        let fact = |name: &str| {
            let read = |file: &str| self.text(&format!("{FOLDER}/{name}/{file}"));
            let driver = fs::read_link(self.0.join(FOLDER).join(name).join("device/driver")).ok();
            let driver =
                driver.as_deref().and_then(Path::file_name).map(|driver| driver.to_string_lossy().into_owned());
            // A link without a carrier reports -1, which is no number here.
            let speed = read("speed").and_then(|speed| speed.parse::<u32>().ok()).map(|speed| format!("{speed} Mb/s"));
            let parts = [driver, speed, read("mtu").map(|mtu| format!("MTU {mtu}"))];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
        };
        // Files such as `bonding_masters` are no interfaces.
        let folders = |name: &String| PathBuf::from(self.0).join(FOLDER).join(name).is_dir();
        self.names(FOLDER).into_iter().filter(folders).map(|name| (name.clone(), fact(&name))).collect()
    }
}

/// Returns the facts in the order of interest.
#[must_use]
pub fn ordered(facts: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    const FIRST: [&str; 7] = ["cpu", "cores", "memory", "hypervisor", "system", "kernel", "blockyard"];
    let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    let mut facts: Vec<(&str, &str)> = facts.iter().map(|(name, fact)| (name.as_str(), fact.as_str())).collect();
    facts.sort_by_key(|(name, _)| rank(name));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn facts_are_read_from_what_linux_tells() {
        let root = tempfile::tempdir().unwrap();
        let core = "processor : 0\nmodel name\t: Fast One\nphysical id : 0\ncore id : 1\nflags : fpu hypervisor\n\n";
        write(root.path(), "proc/cpuinfo", &format!("{core}{}", core.replace("processor : 0", "processor : 1")));
        write(root.path(), "proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
        write(root.path(), "proc/loadavg", "0.50 0.25 0.10 1/200 1234\n");
        write(root.path(), "etc/os-release", "NAME=\"X\"\nPRETTY_NAME=\"X Linux 12\"\n");
        write(root.path(), "sys/class/dmi/id/product_name", "KVM\n");
        write(root.path(), "sys/devices/system/cpu/cpuidle/current_governor", "haltpoll\n");
        write(root.path(), "sys/module/haltpoll/parameters/guest_halt_poll_ns", "0\n");
        write(root.path(), "sys/class/net/eth0/mtu", "9000\n");
        write(root.path(), "sys/class/net/eth0/speed", "10000\n");
        write(root.path(), "sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers\n");
        write(root.path(), "sys/devices/system/cpu/vulnerabilities/srso", "Vulnerable: no microcode\n");
        std::os::unix::fs::symlink("../drivers/virtio_net", {
            fs::create_dir_all(root.path().join("sys/class/net/eth0/device")).unwrap();
            root.path().join("sys/class/net/eth0/device/driver")
        })
        .unwrap();
        let machine = Machine::at(root.path());
        let facts = &machine.facts;
        let fact = |name: &str| facts.get(name).map(String::as_str);
        assert_eq!((fact("cpu"), fact("cores")), (Some("Fast One"), Some("2 threads of 1")));
        assert_eq!((fact("memory"), fact("system")), (Some("8 GiB"), Some("X Linux 12")));
        assert_eq!((fact("hypervisor"), fact("load average")), (Some("KVM"), Some("0.50 0.25 0.10")));
        assert_eq!(fact("network eth0"), Some("virtio_net, 10000 Mb/s, MTU 9000"));
        assert_eq!((fact("mitigations"), fact("vulnerable to")), (Some("mds"), Some("srso")));
        assert_eq!((fact("idle"), machine.gives_idle_cores_back()), (Some("haltpoll, guest_halt_poll_ns 0"), true));
        assert_eq!((fact("governor"), fact("kernel")), (None, None));
        assert_eq!(ordered(facts)[0], ("cpu", "Fast One"));
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let facts = Machine::here().facts;
        assert!(["cores", "memory", "kernel", "blockyard"].iter().all(|name| facts.contains_key(*name)), "{facts:?}");
    }
}
