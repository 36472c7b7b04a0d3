//! Identity and configuration of a logical unit, as its owner sets them.

/// Identity of a logical unit, the same on every path and after every restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 vendor identification, at most 8 ASCII characters; longer text is truncated.
    pub vendor: String,
    /// Product identification, at most 16 ASCII characters.
    pub product: String,
    /// Product revision level, at most 4 ASCII characters.
    pub revision: String,
    /// Unit serial number, at most 64 ASCII characters.
    pub serial: String,
    /// World-wide name: an NAA designator of format 6 (the first four bits are 6h).
    pub naa: [u8; 16],
    /// UUID of the same unit.
    pub uuid: [u8; 16],
}

/// Target port of a nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// iSCSI name of the target, "iqn.…".
    pub target_name: String,
    /// Target portal group tag.
    pub portal_group_tag: u16,
    /// Relative target port identifier, from 1.
    pub relative_port: u16,
}

/// Logical block provisioning of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Fully provisioned: every block has space, and UNMAP is not offered (LBPME = 0).
    #[default]
    Full,
    /// Resource provisioned: every block has space, and UNMAP is a hint (LBPME = 1, type 1).
    Resource,
    /// Thin provisioned: space is allocated when blocks are written, and UNMAP frees it (LBPME = 1, type 2). Implied by
    /// a device that reports its space.
    Thin,
}

/// Configuration of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// True for a read-only unit (27/00, WP = 1).
    pub read_only: bool,
    /// True for a rotating medium: no rotation rate is reported then, else "non-rotating".
    pub rotational: bool,
    /// True when the medium can be ejected, until [`LogicalUnit::set_removable`](crate::LogicalUnit::set_removable)
    /// changes it.
    pub removable: bool,
    /// Logical block provisioning, unless the device reports its space.
    pub provisioning: Provisioning,
    /// Maximum transfer length of one command in bytes, reported in VPD page B0h. Default: 4 MiB.
    pub transfer_bytes_max: u32,
    /// Capacity of the task set; a further task is answered with TASK SET FULL. Default: 4,096.
    pub tasks_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            rotational: false,
            removable: false,
            provisioning: Provisioning::Full,
            transfer_bytes_max: 4 << 20,
            tasks_max: 4096,
        }
    }
}
