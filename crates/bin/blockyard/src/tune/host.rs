//! Recommended settings of a host for this array: commands, each with its reason.
//!
//! Login and multipath rules of a host are printed by [`crate::connect`].

mod esxi;
mod linux;
mod windows;

use crate::args::System;
use crate::connect::Step;
use engine::{Budget, Limits};

/// Limits that the array offers at login, and for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub commands: u32,
    pub segment_bytes: u32,
    pub first_burst_bytes: u32,
    pub burst_bytes: u32,
    pub transfer_bytes: u32,
}

/// Facts about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// True if it has several paths to a volume; none if the host is not known.
    pub paths: Option<bool>,
    /// Ports of its network cards that carry iSCSI.
    pub ports: u16,
    /// Cores, without counting hyper-threads.
    pub cores: u16,
    /// True if each core counts as two processors.
    pub threads: bool,
    /// Queues of each port.
    pub queues: u16,
}

impl Terms {
    /// Returns the limits of this version.
    pub(crate) fn ours() -> Self {
        // The offered limits do not depend on the budget, so any valid one serves.
        let limits = Limits::of(Budget { shards: 1, buffer_bytes: 1 << 20, cache_bytes: 0 });
        let offer = iscsi_target::target_config(&limits).login.offer;
        Self {
            commands: limits.commands_per_session,
            segment_bytes: offer.data_segment_bytes_max,
            first_burst_bytes: offer.first_burst_bytes_max,
            burst_bytes: offer.burst_bytes_max,
            transfer_bytes: limits.transfer_bytes_max,
        }
    }
}

/// Returns the steps for this operating system, in order.
pub(crate) fn steps(system: System, terms: Terms, machine: Machine) -> Vec<Step> {
    match system {
        System::Linux => linux::steps(terms, machine),
        System::Windows => windows::steps(terms, machine),
        System::Esxi => esxi::steps(terms, machine),
        System::Proxmox => {
            let mut steps = linux::steps(terms, machine);
            steps.iter_mut().for_each(|step| step.description += ", on each node");
            steps
        }
        System::Qemu => {
            let lines = [
                "# This initiator has no queue or burst settings; an I/O thread separates the disk from the other \
                 work of the guest.",
                "-object iothread,id=disk0 -device virtio-blk-pci,drive=DRIVE,iothread=disk0",
            ];
            // qemu runs its initiator in the host, which is a Linux machine.
            let network = linux::network(machine).into_iter();
            network
                .chain([Step::new(
                    "Give the disk its own I/O thread in the guest configuration",
                    lines.map(str::to_owned),
                )])
                .collect()
        }
    }
}

#[cfg(test)]
mod tests;
