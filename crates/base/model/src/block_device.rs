//! Block devices of the machine that the array does not know.

use crate::{DiskIdentity, Label, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One block device that the machine has and the array does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockDeviceReport {
    /// The path to add it by: one that stays when other disks come and go, where there is one.
    pub path: String,
    /// What the kernel calls it now: `/dev/sda`.
    pub device: String,
    /// How much it holds.
    pub size: Size,
    /// Which piece of hardware it is, and where it sits.
    pub identity: DiskIdentity,
    /// How it is attached, where that is known.
    pub transport: Option<Transport>,
    /// What is on it; none when that could not be looked into.
    pub label: Option<Label>,
    /// What speaks for and against taking it.
    pub state: BlockDeviceState,
    /// Why it is not free to take, and what to do; none when it is free.
    pub reason: Option<String>,
}

/// Whether a block device is free to take. All but the first are taken only by who gives their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockDeviceState {
    /// Blank as far as anybody can tell, and nobody uses it.
    Free,
    /// A member of a pool that this array does not know: an old one's, or another node's.
    Member,
    /// Something is on it: a file system, a partition table, another product's label.
    Holding,
    /// Mounted, swap, or held by something else.
    InUse,
    /// It is no disk to build on: too small, read-only, a partition, a volume of something else.
    Unsuitable,
    /// It could not be looked into.
    Unknown,
}

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Serial ATA.
    Sata,
    /// Serial Attached SCSI.
    Sas,
    /// NVM Express.
    Nvme,
    /// USB.
    Usb,
    /// Virtio, of a virtual machine.
    Virtio,
    /// iSCSI.
    Iscsi,
    /// Fibre Channel.
    FibreChannel,
    /// MultiMediaCard or SD.
    Mmc,
    /// A device over several paths.
    Multipath,
    /// A file that looks like a device.
    Loop,
}

impl BlockDeviceState {
    /// The state in one or two words, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Member => "of a pool",
            Self::Holding => "holds data",
            Self::InUse => "in use",
            Self::Unsuitable => "unsuitable",
            Self::Unknown => "unknown",
        }
    }
}

impl Transport {
    /// As tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sata => "SATA",
            Self::Sas => "SAS",
            Self::Nvme => "NVMe",
            Self::Usb => "USB",
            Self::Virtio => "virtio",
            Self::Iscsi => "iSCSI",
            Self::FibreChannel => "FC",
            Self::Mmc => "MMC",
            Self::Multipath => "multipath",
            Self::Loop => "loop",
        }
    }
}
