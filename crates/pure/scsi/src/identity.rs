//! Who a logical unit is, and how it is to behave.

/// Who a logical unit is, on every path and after every restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 vendor identification, at most 8 ASCII characters; what is longer is cut.
    pub vendor: String,
    /// Product identification, at most 16 ASCII characters.
    pub product: String,
    /// Product revision level, at most 4 ASCII characters.
    pub revision: String,
    /// Unit serial number, at most 64 ASCII characters.
    pub serial: String,
    /// The world-wide name: an NAA designator of format 6 (the first four bits are 6h).
    pub naa: [u8; 16],
    /// The same unit's UUID.
    pub uuid: [u8; 16],
}

/// The target port through which a nexus reaches a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// The iSCSI name of the target, "iqn.…".
    pub target_name: String,
    /// The target portal group tag.
    pub portal_group_tag: u16,
    /// The relative target port identifier; 1 is the first.
    pub relative_port: u16,
}

/// Who keeps the space behind a logical unit's blocks, and what may be done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Every block always has its space; UNMAP is not offered (LBPME = 0).
    #[default]
    Full,
    /// Every block always has its space, and UNMAP is offered as a hint (LBPME = 1, type 1).
    Resource,
    /// Blocks have space once written, and UNMAP gives it back (LBPME = 1, type 2). Goes without saying for
    /// a device that tells its space.
    Thin,
}

/// How a logical unit is to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// True when nothing may write (27/00, WP = 1).
    pub read_only: bool,
    /// True when the medium spins: no rate is reported then, else "non-rotating".
    pub rotational: bool,
    /// True when the medium can be ejected, until [`LogicalUnit::set_removable`](crate::LogicalUnit::set_removable) says otherwise.
    pub removable: bool,
    /// Whether UNMAP is offered.
    pub provisioning: Provisioning,
    /// The longest transfer of one command, in bytes; announced in VPD page B0.
    pub transfer_bytes_max: u32,
    /// How many tasks the task set holds; one more is answered TASK SET FULL.
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
