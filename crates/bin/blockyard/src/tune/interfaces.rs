//! Settings of the network interfaces of the portals, and of the cards below them.

use super::cpus::{self, Cpus};
use super::tunables::{GRO, MTU, MTU_OF_VIRTUAL, QUEUES, RPS, RX_RING, TSO};
use super::{Advice, Root, Setting, Tunable};
use std::collections::BTreeSet;

const JUMBO: u64 = 9000;
/// Interfaces with a larger MTU, such as loopback, are not Ethernet.
const WIRE_BYTES_MAX: u64 = 65_000;

/// Returns the interfaces in `portals` and all below them (the cards of a bond, the parent of a VLAN), each once.
pub(super) fn with_those_below(root: &Root, portals: &[String]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<String> = portals.to_vec();
    while let Some(name) = next.pop() {
        let entries = root.names(&format!("sys/class/net/{name}"));
        // An interface is entered once, so links in a circle end here.
        if name != "lo" && !entries.is_empty() && found.insert(name.clone()) {
            next.extend(entries.iter().filter_map(|entry| Some(entry.strip_prefix("lower_")?.to_owned())));
        }
    }
    found.into_iter().collect()
}

/// Returns true for a card, including a virtual machine's.
pub(super) fn is_card(root: &Root, name: &str) -> bool {
    root.has(&format!("sys/class/net/{name}/device"))
}

/// Drivers of virtual cards.
const VIRTUAL: [&str; 4] = ["virtio_net", "vmxnet3", "hv_netvsc", "vif"];

/// Returns true for a virtual card.
fn is_virtual(root: &Root, name: &str) -> bool {
    let text = root.text(&format!("sys/class/net/{name}/device/uevent")).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("DRIVER=")).any(|driver| VIRTUAL.contains(&driver))
}

/// Returns the speed in Mbit/s, if the interface reports it.
pub(super) fn megabits(root: &Root, name: &str) -> Option<u64> {
    root.number(&format!("sys/class/net/{name}/speed"))
}

/// Returns the processors near a card.
pub(super) fn cpus(root: &Root, name: &str) -> Cpus {
    Cpus::near(root, cpus::node(root, &format!("sys/class/net/{name}/device/numa_node")))
}

pub(super) fn look(root: &Root, portals: &[String]) -> Vec<Advice> {
    let of = |name: String| {
        let mut all: Vec<Advice> = mtu(root, &name).into_iter().collect();
        if is_card(root, &name) {
            let more = [queues(root, &name), rps(root, &name), ring(root, &name)];
            all.extend(more.into_iter().flatten());
            all.extend(features(root, &name));
        }
        all
    };
    with_those_below(root, portals).into_iter().flat_map(of).collect()
}

fn mtu(root: &Root, name: &str) -> Option<Advice> {
    let path = format!("sys/class/net/{name}/mtu");
    let now = root.number(&path)?;
    if is_virtual(root, name) {
        return Some(Advice::kept(&MTU_OF_VIRTUAL, name, now.to_string()));
    }
    let advice = Advice::kept(&MTU, name, now.to_string());
    let has_wire =
        is_card(root, name) || root.names(&format!("sys/class/net/{name}")).iter().any(|it| it.starts_with("lower_"));
    // Bridges without a card have no wire whose switches would have to accept jumbo frames.
    if now >= JUMBO || now > WIRE_BYTES_MAX || !has_wire {
        return Some(advice);
    }
    let note = format!(
        "every switch and host on the path must support an MTU of {JUMBO}, or connections hang; then: blockyard \
         tune apply --only {name}/mtu"
    );
    Some(advice.file(&path, JUMBO.to_string()).asking(note))
}

fn rx_queues(root: &Root, name: &str) -> usize {
    root.names(&format!("sys/class/net/{name}/queues")).iter().filter(|queue| queue.starts_with("rx-")).count()
}

fn queues(root: &Root, name: &str) -> Option<Advice> {
    let near = cpus(root, name).len();
    let said = root.ethtool("-l", name);
    let Some((most, now)) =
        said.as_deref().and_then(|text| Some((last(text, "Combined", 0)?, last(text, "Combined", 1)?)))
    else {
        let now = rx_queues(root, name);
        let advice = Advice::kept(&QUEUES, name, now.to_string());
        return Some(match said {
            // A missing program fails for every option, so the card is not to blame.
            None if now < near && root.is_real() && root.ethtool("-i", name).is_none() => {
                advice.saying("install ethtool to read the maximum")
            }
            _ => advice.saying("the card does not support a change"),
        });
    };
    // More queues than processors near the card bring nothing.
    let wanted = most.min(u64::try_from(near).unwrap_or(1)).max(1);
    let setting = ethtool("-L", name, "combined", &wanted.to_string());
    Some(Advice::kept(&QUEUES, name, now.to_string()).to(wanted.to_string(), [setting]))
}

/// Returns the number after `label` in part 0 (maximum) or part 1 (present value) of ethtool's output.
fn last(text: &str, label: &str, part: usize) -> Option<u64> {
    let is = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key.trim() == label);
    text.lines().filter(is).nth(part)?.split_once(':')?.1.trim().parse().ok()
}

fn ethtool(option: &str, interface: &str, name: &str, value: &str) -> Setting {
    let own = str::to_owned;
    Setting::Ethtool { option: own(option), interface: own(interface), name: own(name), value: own(value) }
}

/// Shows RPS without a recommendation: it lost in our measurement, and no measurement shows a gain.
fn rps(root: &Root, name: &str) -> Option<Advice> {
    let now = Cpus::of_mask(&root.text(&format!("sys/class/net/{name}/queues/rx-0/rps_cpus"))?);
    let now = if now.len() == 0 { "none".to_owned() } else { now.to_string() };
    Some(Advice::kept(&RPS, name, now))
}

/// Recommends a larger ring only if packets were lost for lack of space in it.
fn ring(root: &Root, name: &str) -> Option<Advice> {
    let text = root.ethtool("-g", name)?;
    let (most, now) = (last(&text, "RX", 0)?, last(&text, "RX", 1)?);
    let counted = |file: &str| root.number(&format!("sys/class/net/{name}/statistics/{file}")).unwrap_or(0);
    let lost = counted("rx_missed_errors") + counted("rx_fifo_errors");
    let advice = Advice::kept(&RX_RING, name, now.to_string());
    if lost == 0 {
        return Some(advice);
    }
    let advice = advice.to(most.to_string(), [ethtool("-G", name, "rx", &most.to_string())]);
    Some(advice.saying(format!("{lost} packets dropped")))
}

fn features(root: &Root, name: &str) -> Vec<Advice> {
    let text = root.ethtool("-k", name).unwrap_or_default();
    let feature = |knob: &'static Tunable, label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label)?.strip_prefix(": "))?;
        // `[fixed]` marks a feature that the driver does not allow to be changed.
        let (now, is_fixed) = (line.split_whitespace().next()?, line.contains("[fixed]"));
        let advice = Advice::kept(knob, name, now).to("on", [ethtool("-K", name, knob.name, "on")]);
        Some(if is_fixed { advice.impossible("not supported by the card") } else { advice })
    };
    [feature(&TSO, "tcp-segmentation-offload"), feature(&GRO, "generic-receive-offload")]
        .into_iter()
        .flatten()
        .collect()
}
