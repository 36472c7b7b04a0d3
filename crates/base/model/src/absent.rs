//! Attributes of presented volumes that are reported to hosts while the volume is not open.
//!
//! The control plane gets the [`UnitAttributes`] of presented volumes with [`Order::UnitShapes`], stores them in its
//! state, and returns them to the data plane with the access table, so that a LUN answers although its pool cannot be
//! read.
//!
//! [`Order::UnitShapes`]: crate::Order::UnitShapes

use crate::{Backend, Size, VolumeId, VolumeName};
use serde::{Deserialize, Serialize};

/// Volume attributes for INQUIRY, READ CAPACITY and MODE SENSE, as of the last time the volume was open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitAttributes {
    /// Capacity of the volume.
    pub size: Size,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Physical block size in bytes.
    pub physical_block_bytes: u32,
    /// Optimal transfer length in bytes.
    pub optimal_bytes: u32,
    /// Maximum atomic transfer length in bytes; 0 if atomic writes are not supported.
    pub atomic_bytes: u32,
    /// Allocation granularity of a thin volume in bytes; `None` for other volumes.
    pub granule_bytes: Option<u32>,
    /// True if unmapped blocks read as zeros.
    pub discard_zeroes: bool,
    /// Storage that backs the volume.
    pub backend: Backend,
    /// True if hosts may eject the medium.
    pub removable: bool,
    /// True if an acknowledged write may be lost before a flush (WCE).
    pub volatile_cache: bool,
}

/// Reason why a presented volume has no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// Temporary: the volume returns without an operator. SCSI sense 02/04/01.
    Waits,
    /// Permanent until an operator intervenes. SCSI sense 02/04/03.
    NeedsOperator,
}

/// Presented volume as it appears to hosts while it is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentVolume {
    /// Name of the volume.
    pub name: VolumeName,
    /// Attributes that hosts are given.
    pub attributes: UnitAttributes,
    /// Reason to report while the volume is not open.
    pub absence: Absence,
}

impl AbsentVolume {
    /// Returns the entry of volume `name` with `shape`, whose absence is temporary.
    #[must_use]
    pub fn waiting(name: VolumeName, shape: UnitAttributes) -> Self {
        // Hosts retry while it waits; `ClosedPools::mark` sets the reason once the state of the pool is known.
        Self { name, attributes: shape, absence: Absence::Waits }
    }
}

/// Identity, name and attributes of an open volume.
pub type NamedUnitAttributes = (VolumeId, VolumeName, UnitAttributes);
