//! Settings for Linux: open-iscsi, disk queues, TCP and network cards.

use super::{Machine, Terms};
use crate::connect::Step;

/// Value in S0 (`blockdev --setra 2048`).
const READ_AHEAD_KB: u32 = 1024;

pub(super) fn steps(terms: Terms, machine: Machine) -> Vec<Step> {
    let mut steps = vec![sessions(terms, machine), disks(terms)];
    steps.extend(network(machine));
    steps
}

fn own(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Settings of iscsid, for targets that are discovered afterwards.
fn sessions(terms: Terms, machine: Machine) -> Step {
    let Terms { commands, segment_bytes, first_burst_bytes, burst_bytes, .. } = terms;
    let mut lines = own(&[
        "# In /etc/iscsi/iscsid.conf, before discovery; for known targets use: iscsiadm -m node -o update -n KEY \
         -v VALUE",
    ]);
    lines.push(format!(
        "# The array accepts {commands} commands in flight per session; the default queue depth of a disk is 32."
    ));
    lines.extend([format!("node.session.cmds_max = {commands}"), format!("node.session.queue_depth = {commands}")]);
    lines.push("# Immediate and unsolicited data save one round trip for each write.".to_owned());
    lines.extend(own(&["node.session.iscsi.ImmediateData = Yes", "node.session.iscsi.InitialR2T = No"]));
    lines.push("# The limits of the array; smaller values need more PDUs.".to_owned());
    lines.push(format!("node.session.iscsi.FirstBurstLength = {first_burst_bytes}"));
    lines.push(format!("node.session.iscsi.MaxBurstLength = {burst_bytes}"));
    lines.push(format!("node.conn[0].iscsi.MaxRecvDataSegmentLength = {segment_bytes}"));
    let with = own(&[
        "# Another path takes over: fail this one early.",
        "node.session.timeo.replacement_timeout = 10",
        "node.conn[0].timeo.noop_out_interval = 5",
        "node.conn[0].timeo.noop_out_timeout = 5",
    ]);
    let without = own(&[
        "# There is no other path: wait until the array is available again instead of failing I/O.",
        "node.session.timeo.replacement_timeout = 120",
        "node.conn[0].timeo.noop_out_interval = 10",
        "node.conn[0].timeo.noop_out_timeout = 15",
    ]);
    // Without a host name it is not known whether there are several paths; the second variant is commented out.
    match machine.paths {
        Some(true) => lines.extend(with),
        Some(false) => lines.extend(without),
        None => {
            lines.push("# With multipath:".to_owned());
            lines.extend(with);
            lines.push("# Without it, instead:".to_owned());
            // Comments stay comments; only the settings of the second variant are disabled.
            lines
                .extend(without.into_iter().map(|line| if line.starts_with('#') { line } else { format!("# {line}") }));
        }
    }
    lines.push(
        "# One core of the array serves a session; if that is not enough, 2 or more sessions share the \
         load under multipath."
            .to_owned(),
    );
    lines.push("node.session.nr_sessions = 1".to_owned());
    Step::new("Set session parameters to the limits of the array", lines)
}

fn disks(terms: Terms) -> Step {
    // A request larger than a burst would need several R2Ts; one beyond the transfer limit would be refused.
    let size_kb = (terms.burst_bytes >> 10).min(terms.transfer_bytes >> 10);
    let head = "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", ATTRS{vendor}==\"BLOCKYRD\", ATTRS{model}==\"Volume*\"";
    let rule = |attribute: &str, value: &str| format!("{head}, ATTR{{queue/{attribute}}}=\"{value}\"");
    let mut lines = own(&["cat > /etc/udev/rules.d/90-blockyard-host.rules <<'END'"]);
    lines.push("# The array schedules requests itself.".to_owned());
    lines.push(rule("scheduler", "none"));
    lines.push(format!("# One request is one burst of up to {} KiB.", terms.transfer_bytes >> 10));
    lines.push(rule("max_sectors_kb", &size_kb.to_string()));
    lines.push(
        "# Read-ahead of file systems (S0: blockdev --setra 2048); for a multipath map: blockdev --setra \
         2048 /dev/mapper/MAP"
            .to_owned(),
    );
    lines.push(rule("read_ahead_kb", &READ_AHEAD_KB.to_string()));
    lines.push("# Completions run on the core of the request and do not feed the entropy pool.".to_owned());
    lines.extend([rule("rq_affinity", "2"), rule("add_random", "0")]);
    lines.push(
        "# nr_requests: without a scheduler it is queue_depth above; S0's 1024 is for kernels before 5.0.".to_owned(),
    );
    lines.extend(own(&["END", "udevadm control --reload && udevadm trigger --subsystem-match=block --action=change"]));
    Step::new("Set the block queue of disks of the array, now and at each boot", lines)
}

/// Settings of TCP and of network cards.
pub(super) fn network(machine: Machine) -> Vec<Step> {
    let tcp = [
        "cat > /etc/sysctl.d/90-blockyard-host.conf <<'END'",
        "# The kernel initiator uses the system default; bbr is for long links that lose packets.",
        "net.ipv4.tcp_congestion_control = cubic",
        "# A burst after a pause starts at full speed.",
        "net.ipv4.tcp_slow_start_after_idle = 0",
        "# Socket buffers for a fast card at a round-trip time of a few milliseconds.",
        "net.ipv4.tcp_rmem = 4096 131072 16777216",
        "net.ipv4.tcp_wmem = 4096 16384 16777216",
        "END",
        "sysctl --system",
    ];
    let mut cards = own(&[
        "# NIC stands for each port that carries iSCSI. Each receive queue (RSS) uses one core: +5,000 to 10,000 \
         IOPS below 20 parallel readers (S4).",
    ]);
    cards.push(format!("ethtool -L NIC combined {}", machine.queues));
    cards.push(
        "# Jumbo frames, only if every switch and the array support them: see blockyard tune show on the array"
            .to_owned(),
    );
    cards.push("ip link set dev NIC mtu 9000".to_owned());
    vec![
        Step::new("Set TCP for bursts, now and at each boot", own(&tcp)),
        Step::new("Distribute receive processing among cores, until the next boot", cards),
    ]
}
