//! `blockyard connect`

use clap::{Args, ValueEnum};
use model::Name;

/// Whom to tell, and what runs there.
#[derive(Debug, Args)]
pub struct ConnectOptions {
    /// Which host
    pub host: Name,
    /// What runs on it
    #[arg(long = "os", value_enum, value_name = "SYSTEM")]
    pub system: System,
}

/// What runs on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
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
    /// As the command line has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Windows => "windows",
            Self::Esxi => "esxi",
            Self::Proxmox => "proxmox",
            Self::Qemu => "qemu",
        }
    }
}
