//! Settings for Windows: network cards, initiator and MPIO, by PowerShell.

use super::{Machine, Terms};
use crate::connect::Step;

/// Finds the adapter settings of the initiator, whose instance number differs between machines.
const INITIATOR: [&str; 2] = [
    "$class = 'HKLM:\\SYSTEM\\CurrentControlSet\\Control\\Class\\{4D36E97B-E325-11CE-BFC1-08002BE10318}'",
    "$initiator = (Get-ChildItem $class -ErrorAction SilentlyContinue | ? { $_.GetValue('DriverDesc') -eq 'Microsoft iSCSI Initiator' }).PSPath + '\\Parameters'",
];

pub(super) fn steps(terms: Terms, machine: Machine) -> Vec<Step> {
    vec![cards(machine), sessions(terms, machine), tcp(), disks()]
}

/// Gives each port its own cores, all near its card.
fn cards(machine: Machine) -> Step {
    let mut lines = vec![
        "# PORT1 and so on stand for the ports that carry iSCSI: Get-NetAdapter; Get-NetAdapterRss shows the \
         processors near each."
            .to_owned(),
        "# ClosestStatic: queues stay on processors of the socket of the card. Each port has its own processors."
            .to_owned(),
    ];
    // With hyper-threads, RSS uses the first processor of each core.
    let step = if machine.threads { 2 } else { 1 };
    // Each value is at least one, because both counts are typed by an administrator.
    let each = (machine.cores / machine.ports.max(1)).max(1);
    for port in 0..machine.ports {
        // With more ports than cores, ports share cores.
        let first = port * each % machine.cores.max(1);
        let (base, last) = (first * step, (first + each - 1) * step);
        let queues = machine.queues.min(each);
        lines.push(format!(
            "Set-NetAdapterRss -Name PORT{n} -Enabled $true -Profile ClosestStatic -NumberOfReceiveQueues {queues} -MaxProcessors {queues} -BaseProcessorNumber {base} -MaxProcessorNumber {last}",
            n = port + 1
        ));
    }
    lines.push(
        "# Jumbo frames, only if every switch and the array support them: see blockyard tune show on the array"
            .to_owned(),
    );
    let port = |n: u16| {
        format!("Set-NetAdapterAdvancedProperty -Name PORT{n} -RegistryKeyword '*JumboPacket' -RegistryValue 9014")
    };
    lines.extend((1..=machine.ports).map(port));
    Step::new("Distribute receive processing among processors (RSS)", lines)
}

fn sessions(terms: Terms, machine: Machine) -> Step {
    let mut lines: Vec<String> = INITIATOR.map(str::to_owned).to_vec();
    let set = |name: &str, value: u32| format!("Set-ItemProperty $initiator -Name {name} -Value {value} -Type DWord");
    lines.push("# The limits of the array; smaller values need more PDUs and round trips.".to_owned());
    lines.push(set("FirstBurstLength", terms.first_burst_bytes));
    lines.push(set("MaxBurstLength", terms.burst_bytes));
    lines.push(set("MaxRecvDataSegmentLength", terms.segment_bytes));
    lines.extend([set("ImmediateData", 1), set("InitialR2T", 0)]);
    lines.push(format!("# The array accepts {} commands in flight per session.", terms.commands));
    lines.push(set("MaxPendingRequests", terms.commands));
    let with = ("With MPIO: another path takes over, so fail this one early.", "LinkDownTime", 10);
    let without =
        ("Without MPIO: wait until the array is available again instead of failing I/O.", "MaxRequestHoldTime", 120);
    let said = |(why, name, value): (&str, &str, u32)| [format!("# {why}"), set(name, value)];
    lines.extend(match machine.paths {
        Some(true) => said(with).to_vec(),
        Some(false) => said(without).to_vec(),
        None => [said(with), said(without)].concat(),
    });
    lines.push("# These take effect after a restart of Windows.".to_owned());
    Step::new("Set session parameters to the limits of the array", lines)
}

fn tcp() -> Step {
    let lines = [
        "# Delayed acknowledgements (200 ms) slow down writers while the array has nothing else to send.",
        "Get-NetAdapter -Name PORT* | % { Set-ItemProperty \"HKLM:\\SYSTEM\\CurrentControlSet\\Services\\Tcpip\\Parameters\\Interfaces\\$($_.InterfaceGuid)\" -Name TcpAckFrequency -Value 1 -Type DWord }",
    ];
    Step::new("Disable delayed acknowledgements", lines.map(str::to_owned))
}

fn disks() -> Step {
    let lines = [
        "# Longer than a path failover or a restart of the array.",
        "Set-ItemProperty HKLM:\\SYSTEM\\CurrentControlSet\\Services\\Disk -Name TimeOutValue -Value 60 -Type DWord",
        "# Processors in deep sleep states wake slowly.",
        "powercfg /setactive SCHEME_MIN",
    ];
    Step::new("Set the disk timeout and the power plan", lines.map(str::to_owned))
}
