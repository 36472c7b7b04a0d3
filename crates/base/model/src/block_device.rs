//! Block devices of the machine that the array does not use.

use crate::{DiskIdentity, Label, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Block device of the machine that is not a disk of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockDeviceReport {
    /// Path to add the device by: a persistent path where there is one.
    pub path: String,
    /// Current kernel name, such as `/dev/sda`.
    pub device: String,
    /// Capacity.
    pub size: Size,
    /// Hardware identity and location.
    pub identity: DiskIdentity,
    /// Transport, if known.
    pub transport: Option<Transport>,
    /// Content of the device; absent if it could not be read.
    pub label: Option<Label>,
    /// Availability for the array.
    pub state: BlockDeviceState,
    /// Reason why the device is not available, and what to do; absent if it is available.
    pub reason: Option<String>,
}

/// Availability of a block device. Devices in any state other than `free` are added only by their explicit path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockDeviceState {
    /// Blank, as far as can be determined, and not in use.
    Free,
    /// Member of a pool that this array does not know: of an earlier installation or of another node.
    Member,
    /// Holds data: a file system, a partition table, or the label of another product.
    HasData,
    /// Mounted, used as swap, or held by another subsystem.
    InUse,
    /// Not usable as a disk: too small, read-only, a partition, or a volume of another product.
    Unsuitable,
    /// Could not be examined.
    Unknown,
}

/// Transport of a disk.
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
    /// Multipath device.
    Multipath,
    /// Loop device: a file that appears as a block device.
    Loop,
}

impl BlockDeviceState {
    /// Returns the state in one or two words, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Member => "pool member",
            Self::HasData => "holds data",
            Self::InUse => "in use",
            Self::Unsuitable => "unsuitable",
            Self::Unknown => "unknown",
        }
    }
}

impl Transport {
    /// Returns the name that tables show.
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
