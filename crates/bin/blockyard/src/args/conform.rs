//! Arguments of `blockyard conform` and `blockyard ready`, and the options to log in to a target that the lab shares.

use clap::{Args, ValueEnum};
use conform::ready::Purpose;
use iscsi::chap::Algorithm;
use std::path::PathBuf;

/// Unit of a target, and the initiator identity to log in with.
#[derive(Debug, Args)]
pub(crate) struct TargetOptions {
    /// URL of the unit: iscsi://HOST[:PORT]/TARGET[/LUN]
    #[arg(value_name = "URL")]
    pub url: String,
    #[command(flatten)]
    pub who: WhoOptions,
}

/// Initiator identity and CHAP credentials for a login to a target.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhoOptions {
    /// Set the initiator name [default: iqn.2026-11.io.blockyard:conform]
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// Set the CHAP name of the initiator
    #[arg(long, value_name = "NAME")]
    pub chap_user: Option<String>,
    /// File with the CHAP secret of the initiator, or - for standard input [default: $BLOCKYARD_CHAP_SECRET]
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// Set the CHAP name that the target must authenticate with (mutual CHAP)
    #[arg(long, value_name = "NAME", requires = "chap_user")]
    pub mutual_user: Option<String>,
    /// File with the CHAP secret of the target, or - for standard input [default: $BLOCKYARD_MUTUAL_SECRET]
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    pub mutual_secret_file: Option<PathBuf>,
    /// Set the weakest CHAP hash function that is offered [default: md5]
    #[arg(long, value_enum, value_name = "HASH", requires = "chap_user")]
    pub chap_algorithm: Option<Hash>,
}

/// Hash function of CHAP, from the weakest to the strongest.
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

// A type of its own, because `iscsi` does not depend on clap.
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

/// Options of `blockyard conform`.
#[derive(Debug, Args)]
pub(crate) struct ConformOptions {
    #[command(flatten)]
    pub aim: TargetOptions,
    /// Also run checks that write to the unit, reset it or reserve it: its data is lost
    #[arg(long)]
    pub destructive: bool,
    /// Run only checks whose name begins with PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub only: String,
    /// Listen this many seconds for asynchronous messages in each check about them [default: 0]
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    pub listen: u32,
}

/// Options of `blockyard ready`.
#[derive(Debug, Args)]
pub(crate) struct ReadyOptions {
    #[command(flatten)]
    pub aim: TargetOptions,
    /// Set the intended use of the unit
    #[arg(long = "for", value_enum, value_name = "USE")]
    pub purpose: Use,
    /// Block that may be rewritten with its own content, to test COMPARE AND WRITE and WRITE SAME [default: not tested]
    #[arg(long, value_name = "BLOCK")]
    pub scratch: Option<u64>,
}

/// Intended use of a unit.
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

// A type of its own, because `conform` does not depend on clap.
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
