//! Interrupt affinity of the queues of network cards and of NVMe disks.

use super::cpus::{self, Cpus};
use super::root::trailing_number;
use super::tunables::IRQ_AFFINITY;
use super::{Advice, Array, Root, Setting, disks, interfaces};

/// Parts of the names of interrupts that belong to no queue.
const ASIDE: [&str; 8] = ["config", "async", "misc", "event", "cmd", "fdir", "pages", "ctrl"];

pub(super) fn look(root: &Root, array: &Array) -> Vec<Advice> {
    let cards = interfaces::with_those_below(root, &array.interfaces);
    let cards = cards.into_iter().filter(|name| interfaces::is_card(root, name));
    let mut all: Vec<Advice> =
        cards.filter_map(|name| of(root, &name, &format!("sys/class/net/{name}/device"), false)).collect();
    // SATA and SAS disks share the interrupts of their controller.
    let disks = disks::devices(root, &array.disks).into_iter().filter(|disk| disk.name.starts_with("nvme"));
    all.extend(disks.filter_map(|disk| of(root, &disk.name, &format!("sys/block/{}/device/device", disk.name), true)));
    all
}

/// Interrupt of one queue.
struct Interrupt {
    number: u64,
    queue: (Option<u64>, String),
    cpus: Cpus,
}

/// Returns the interrupts of the queues of the device at `path`, ordered by queue.
fn queues(root: &Root, path: &str) -> Vec<Interrupt> {
    let own = root.names(&format!("{path}/msi_irqs"));
    // A virtio device uses the interrupts of its parent PCI device.
    let numbers = if own.is_empty() { root.names(&format!("{path}/../msi_irqs")) } else { own };
    let interrupt = |number: String| {
        let folder = format!("proc/irq/{number}");
        // The kernel makes a folder for each handler, named as the driver has requested the interrupt.
        let action = root.names(&folder).into_iter().find(|name| root.path(format!("{folder}/{name}")).is_dir())?;
        if ASIDE.iter().any(|word| action.contains(word)) {
            return None;
        }
        let list = |file: &str| root.text(&format!("{folder}/{file}")).filter(|list| !list.is_empty());
        // The effective list has the processors in use; kernels without it report only the requested ones.
        let cpus = Cpus::of_list(&list("effective_affinity_list").or_else(|| list("smp_affinity_list"))?);
        Some(Interrupt { number: number.parse().ok()?, queue: (trailing_number(&action), action), cpus })
    };
    let mut all: Vec<Interrupt> = numbers.into_iter().filter_map(interrupt).collect();
    all.sort_by(|a, b| a.queue.cmp(&b.queue));
    all
}

/// Recommends a core of its own near the device for every queue, as far as there are cores.
fn of(root: &Root, name: &str, path: &str, is_managed: bool) -> Option<Advice> {
    let queues = queues(root, path);
    if queues.is_empty() {
        return None;
    }
    let near = Cpus::near(root, cpus::node(root, &format!("{path}/numa_node")));
    let mut served = Cpus::default();
    queues.iter().for_each(|queue| served.join(&queue.cpus));
    let advice = Advice::kept(&IRQ_AFFINITY, name, served.to_string());
    // Managed interrupts: the kernel spreads them at initialization and refuses changes.
    if is_managed {
        return Some(advice.saying("the kernel distributes them and does not allow changes"));
    }
    // Already spread as far as cores allow; which queue has which core does not matter.
    if near.contains_all(&served) && served.len() >= queues.len().min(near.len()) {
        return Some(advice);
    }
    let settings = queues.iter().enumerate().filter_map(|(n, queue)| {
        let path = format!("proc/irq/{}/smp_affinity_list", queue.number);
        Some(Setting::File { path, value: near.nth(n)?.to_string() })
    });
    let mut wanted = Cpus::default();
    (0..queues.len()).filter_map(|n| near.nth(n)).for_each(|cpu| wanted.join(&Cpus::of_list(&cpu.to_string())));
    let advice = Advice { wanted: format!("{wanted}, queue by queue"), ..advice.to("spread", settings) };
    Some(if is_balanced(root) {
        advice.asking(
            "irqbalance would override it: systemctl disable --now irqbalance, then blockyard tune \
             apply --only irq_affinity",
        )
    } else {
        advice
    })
}

/// Returns true if irqbalance is running.
fn is_balanced(root: &Root) -> bool {
    let processes = root.names("proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes.into_iter().any(|pid| root.text(&format!("proc/{pid}/comm")).as_deref() == Some("irqbalance"))
}
