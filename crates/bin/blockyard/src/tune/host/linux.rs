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
        "# In /etc/iscsi/iscsid.conf, before targets are found; those that are known keep theirs: iscsiadm -m node -o update -n KEY -v VALUE",
    ]);
    lines.push(format!(
        "# The array takes {commands} commands of a session at once; the default gives it 32 of one disk."
    ));
    lines.extend([format!("node.session.cmds_max = {commands}"), format!("node.session.queue_depth = {commands}")]);
    lines.push(
        "# Small writes come with their command, larger ones begin without being asked: a round trip less.".to_owned(),
    );
    lines.extend(own(&["node.session.iscsi.ImmediateData = Yes", "node.session.iscsi.InitialR2T = No"]));
    lines.push("# What the array offers; more is not taken, less costs more PDUs.".to_owned());
    lines.push(format!("node.session.iscsi.FirstBurstLength = {first_burst_bytes}"));
    lines.push(format!("node.session.iscsi.MaxBurstLength = {burst_bytes}"));
    lines.push(format!("node.conn[0].iscsi.MaxRecvDataSegmentLength = {segment_bytes}"));
    let with = own(&[
        "# Another path goes on: give this one up soon.",
        "node.session.timeo.replacement_timeout = 10",
        "node.conn[0].timeo.noop_out_interval = 5",
        "node.conn[0].timeo.noop_out_timeout = 5",
    ]);
    let without = own(&[
        "# There is no other path: wait for the array to come back, rather than fail.",
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
            lines
                .extend(without.into_iter().map(|line| if line.starts_with('#') { line } else { format!("# {line}") }));
        }
    }
    lines.push("# A session is served by one core of the array; where one is not enough, 2 or more of them share the load under multipath.".to_owned());
    lines.push("node.session.nr_sessions = 1".to_owned());
    Step::new("Let sessions ask for what the array offers", lines)
}

fn disks(terms: Terms) -> Step {
    // A request larger than a burst would need several R2Ts; one beyond the transfer limit would be refused.
    let size_kb = (terms.burst_bytes >> 10).min(terms.transfer_bytes >> 10);
    let head = "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", ATTRS{vendor}==\"BLOCKYRD\", ATTRS{model}==\"Volume*\"";
    let rule = |attribute: &str, value: &str| format!("{head}, ATTR{{queue/{attribute}}}=\"{value}\"");
    let mut lines = own(&["cat > /etc/udev/rules.d/90-blockyard-host.rules <<'END'"]);
    lines.push("# The array puts requests in order itself.".to_owned());
    lines.push(rule("scheduler", "none"));
    lines.push(format!("# One request is one burst; the array takes up to {} KiB.", terms.transfer_bytes >> 10));
    lines.push(rule("max_sectors_kb", &size_kb.to_string()));
    lines.push("# File systems read ahead so far (S0: blockdev --setra 2048); for a multipath map: blockdev --setra 2048 /dev/mapper/MAP".to_owned());
    lines.push(rule("read_ahead_kb", &READ_AHEAD_KB.to_string()));
    lines.push("# Answers come to the core that asked, and stir no random numbers.".to_owned());
    lines.extend([rule("rq_affinity", "2"), rule("add_random", "0")]);
    lines.push(
        "# nr_requests: without a scheduler it is queue_depth above; S0's 1024 is for kernels before 5.0.".to_owned(),
    );
    lines.extend(own(&["END", "udevadm control --reload && udevadm trigger --subsystem-match=block --action=change"]));
    Step::new("Let disks of the array be asked without detours, now and at each start", lines)
}

/// Settings of TCP and of network cards.
pub(super) fn network(machine: Machine) -> Vec<Step> {
    let tcp = [
        "cat > /etc/sysctl.d/90-blockyard-host.conf <<'END'",
        "# The kernel's initiator has the system's default; bbr is for long ways that lose packets.",
        "net.ipv4.tcp_congestion_control = cubic",
        "# A burst after a pause begins at full speed.",
        "net.ipv4.tcp_slow_start_after_idle = 0",
        "# As much may be on its way as a fast card sends in a round trip of a few milliseconds.",
        "net.ipv4.tcp_rmem = 4096 131072 16777216",
        "net.ipv4.tcp_wmem = 4096 16384 16777216",
        "END",
        "sysctl --system",
    ];
    let mut cards = own(&[
        "# NIC stands for each port that carries iSCSI. Queues (RSS): each is a core that can take packets, +5 to 10 thousand IOPS below 20 parallel readers (S4).",
    ]);
    cards.push(format!("ethtool -L NIC combined {}", machine.queues));
    cards.push("# Large packets, only when every switch and the array take them: blockyard tune show there".to_owned());
    cards.push("ip link set dev NIC mtu 9000".to_owned());
    vec![
        Step::new("Let TCP carry bursts, now and at each start", own(&tcp)),
        Step::new("Let cards share their work among cores, until the next start", cards),
    ]
}
