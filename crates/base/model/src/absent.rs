//! Volumes that are presented to hosts and have no device just now: what hosts are told of them meanwhile.
//!
//! Control keeps the [`UnitShape`] of each presented volume in its state. The data plane tells it ([`Order::UnitShapes`]) and is
//! given it back with the access table, so that a LUN answers although nothing of its pool can be read.
//!
//! [`Order::UnitShapes`]: crate::Order::UnitShapes

use crate::{Backend, Size, VolumeId, VolumeName};
use serde::{Deserialize, Serialize};

/// What INQUIRY, READ CAPACITY and MODE SENSE tell of a volume, as its unit was when it was open last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitShape {
    /// Its capacity.
    pub size: Size,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Bytes of a physical block.
    pub physical_block_bytes: u32,
    /// Bytes of the transfer that costs least.
    pub optimal_bytes: u32,
    /// Bytes of the longest atomic write; 0 where there is none.
    pub atomic_bytes: u32,
    /// Bytes that are mapped and freed as one, of a thin volume.
    pub granule_bytes: Option<u32>,
    /// True when unmapped blocks read as zeros.
    pub discard_zeroes: bool,
    /// What holds its data.
    pub backend: Backend,
    /// True when hosts may eject its medium.
    pub removable: bool,
    /// True when an acknowledged write may be lost before a flush (WCE).
    pub volatile_cache: bool,
}

/// Why a presented volume has no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// It is waited for, and serves again without an operator: 02/04/01.
    Waits,
    /// Nothing changes without an operator: 02/04/03.
    NeedsOperator,
}

/// A presented volume, for the time in which it is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentVolume {
    /// Its name.
    pub name: VolumeName,
    /// What hosts are told of it.
    pub shape: UnitShape,
    /// Why it is absent, when it is.
    pub absence: Absence,
}

impl AbsentVolume {
    /// The volume `name` of this shape, which is waited for when it is not open.
    #[must_use]
    pub fn waiting(name: VolumeName, shape: UnitShape) -> Self {
        Self { name, shape, absence: Absence::Waits }
    }
}

/// What the unit of an open volume is like.
pub type ShapeOfUnit = (VolumeId, VolumeName, UnitShape);
