//! `blockyard connect`

use clap::{Args, ValueEnum};
use model::Name;

/// The host, and its operating system.
#[derive(Debug, Args)]
pub(crate) struct ConnectOptions {
    /// The host
    pub host: Name,
    /// Operating system of the host [default: the lines of all]
    #[arg(long = "os", value_enum, value_name = "SYSTEM")]
    pub system: Option<System>,
}

/// What runs on a host.
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
    /// What its lines are for, as a heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Linux => "Linux (open-iscsi)",
            Self::Windows => "Windows (PowerShell)",
            Self::Esxi => "ESXi (esxcli)",
            Self::Proxmox => "Proxmox VE",
            Self::Qemu => "qemu (libiscsi)",
        }
    }

    /// As the command line has it.
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
