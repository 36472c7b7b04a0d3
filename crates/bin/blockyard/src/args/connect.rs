//! Arguments of `blockyard connect`.

use clap::{Args, ValueEnum};
use model::Name;

/// Options of `blockyard connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectOptions {
    /// Name of the host
    pub host: Name,
    /// Operating system of the host [default: print the commands of all]
    #[arg(long = "os", value_enum, value_name = "SYSTEM")]
    pub system: Option<System>,
}

/// Operating system or hypervisor of a host, by its initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// open-iscsi and dm-multipath.
    Linux,
    /// The initiator and MPIO of Windows, by PowerShell.
    Windows,
    /// The software adapter of ESXi, by esxcli.
    Esxi,
    /// Linux, and the storage of a Proxmox VE cluster on top.
    Proxmox,
    /// libiscsi within qemu.
    Qemu,
}

impl System {
    /// Heading above the commands of this system.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Linux => "Linux (open-iscsi)",
            Self::Windows => "Windows (PowerShell)",
            Self::Esxi => "ESXi (esxcli)",
            Self::Proxmox => "Proxmox VE",
            Self::Qemu => "qemu (libiscsi)",
        }
    }

    /// Word of this system on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Windows => "windows",
            Self::Esxi => "esxi",
            Self::Proxmox => "proxmox",
            Self::Qemu => "qemu",
        }
    }
}
