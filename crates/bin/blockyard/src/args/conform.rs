//! Trying a target, and asking a unit whether it is ready.

use clap::{Args, ValueEnum};
use conform::ready::Purpose;
use iscsi::chap::Algorithm;
use std::path::PathBuf;

/// Which unit of which target, and as whom.
#[derive(Debug, Args)]
pub(crate) struct AimOptions {
    /// The unit: iscsi://HOST[:PORT]/TARGET[/LUN]
    #[arg(value_name = "URL")]
    pub url: String,
    #[command(flatten)]
    pub who: WhoOptions,
}

/// As whom a target is spoken to.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhoOptions {
    /// The initiator's name [default: iqn.2026-11.io.blockyard:conform]
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// The name that we prove with CHAP
    #[arg(long, value_name = "NAME")]
    pub chap_user: Option<String>,
    /// The file with the CHAP secret, or - [default: $BLOCKYARD_CHAP_SECRET]
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// The name that the target must prove with CHAP
    #[arg(long, value_name = "NAME", requires = "chap_user")]
    pub mutual_user: Option<String>,
    /// The file with the secret that the target must prove, or - [default: $BLOCKYARD_MUTUAL_SECRET]
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    pub mutual_secret_file: Option<PathBuf>,
    /// The weakest hash function that is offered for CHAP [default: md5]
    #[arg(long, value_enum, value_name = "HASH", requires = "chap_user")]
    pub chap_algorithm: Option<Hash>,
}

/// A hash function of CHAP, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hash {
    /// MD5
    Md5,
    /// SHA-1
    Sha1,
    /// SHA-256
    Sha256,
    /// SHA3-256
    #[value(name = "sha3-256")]
    Sha3,
}

impl From<Hash> for Algorithm {
    fn from(chosen: Hash) -> Self {
        match chosen {
            Hash::Md5 => Self::Md5,
            Hash::Sha1 => Self::Sha1,
            Hash::Sha256 => Self::Sha256,
            Hash::Sha3 => Self::Sha3_256,
        }
    }
}

/// Which target is tried.
#[derive(Debug, Args)]
pub(crate) struct ConformOptions {
    #[command(flatten)]
    pub aim: AimOptions,
    /// Also do what writes to the unit, resets it or reserves it: what is there is lost
    #[arg(long)]
    pub destructive: bool,
    /// Only checks whose name begins so
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub only: String,
    /// Listen so many seconds for what the target says unasked, in each check that is about that
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    pub listen: u32,
}

/// Which unit is asked, and for whom.
#[derive(Debug, Args)]
pub(crate) struct ReadyOptions {
    #[command(flatten)]
    pub aim: AimOptions,
    /// Who is to use the unit
    #[arg(long = "for", value_enum, value_name = "USE")]
    pub purpose: Use,
    /// Block that may be overwritten with what it holds: COMPARE AND WRITE and WRITE SAME are tried there [default: not tried]
    #[arg(long, value_name = "BLOCK")]
    pub scratch: Option<u64>,
}

/// Who is to use a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Use {
    /// Windows Server Failover Clustering
    WindowsCluster,
    /// VMware ESXi with VMFS
    Vmware,
    /// Oracle RAC on ASM
    OracleRac,
    /// Proxmox VE with LVM on a shared unit
    Proxmox,
    /// Pacemaker with fence_scsi or sbd
    LinuxHa,
}

impl From<Use> for Purpose {
    fn from(chosen: Use) -> Self {
        match chosen {
            Use::WindowsCluster => Self::WindowsCluster,
            Use::Vmware => Self::Vmware,
            Use::OracleRac => Self::OracleRac,
            Use::Proxmox => Self::Proxmox,
            Use::LinuxHa => Self::LinuxHa,
        }
    }
}
