//! Conflict tables of SPC-4 and SBC-3 as data: access to a unit under a reservation.

use crate::sense::Sense;

/// Type of a persistent reservation (SPC-4, persistent reservation TYPE field).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Write access for the holder only.
    WriteExclusive = 0x1,
    /// Read and write access for the holder only.
    ExclusiveAccess = 0x3,
    /// Write access for registrants only; one of them is the holder.
    WriteExclusiveRegistrantsOnly = 0x5,
    /// Read and write access for registrants only; one of them is the holder.
    ExclusiveAccessRegistrantsOnly = 0x6,
    /// Write access for registrants only; all of them are holders.
    WriteExclusiveAllRegistrants = 0x7,
    /// Read and write access for registrants only; all of them are holders.
    ExclusiveAccessAllRegistrants = 0x8,
}

use ReservationType::{
    ExclusiveAccess, ExclusiveAccessAllRegistrants, ExclusiveAccessRegistrantsOnly, WriteExclusive,
    WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly,
};

impl ReservationType {
    /// All types.
    pub const ALL: [Self; 6] = [
        WriteExclusive,
        ExclusiveAccess,
        WriteExclusiveRegistrantsOnly,
        ExclusiveAccessRegistrantsOnly,
        WriteExclusiveAllRegistrants,
        ExclusiveAccessAllRegistrants,
    ];

    /// Returns the type of a TYPE code, or `None` for an undefined code.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the TYPE code of CDBs and parameter data.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Parses SCOPE and TYPE of a CDB.
    ///
    /// *Errors*: 24/00 at the scope unless it is LU_SCOPE (0h), or at the type.
    pub(crate) fn of_cdb(byte: u8) -> Result<Self, Sense> {
        // LU_SCOPE is the only scope left: the other ones are obsolete (SPC-4).
        if byte >> 4 != 0 {
            return Err(Sense::cdb_bit(2, 7));
        }
        Self::of(byte & 0x0F).ok_or(Sense::cdb_bit(2, 3))
    }

    /// True when nexuses without access may not even read (exclusive access types).
    pub(crate) fn excludes_reads(self) -> bool {
        matches!(self, ExclusiveAccess | ExclusiveAccessRegistrantsOnly | ExclusiveAccessAllRegistrants)
    }

    /// True when every registrant has the access of the holder.
    pub(crate) fn is_for_registrants(self) -> bool {
        !matches!(self, WriteExclusive | ExclusiveAccess)
    }

    /// True when every registrant is a holder (all registrants types).
    #[must_use]
    pub fn is_held_by_all(self) -> bool {
        matches!(self, WriteExclusiveAllRegistrants | ExclusiveAccessAllRegistrants)
    }
}

/// Role of a nexus with regard to the persistent reservation of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReservationRole {
    /// Not registered.
    #[default]
    Unregistered,
    /// Registered, not the holder.
    Registrant,
    /// Holder of the reservation.
    Holder,
}

impl ReservationRole {
    /// True when a reservation of this type does not restrict the nexus.
    pub(crate) fn shares(self, kind: ReservationType) -> bool {
        match self {
            Self::Unregistered => false,
            Self::Registrant => kind.is_for_registrants(),
            Self::Holder => true,
        }
    }
}

/// Treatment of an operation from a nexus without access under a reservation.
///
/// *Source*: SPC-4, "commands that are allowed in the presence of various reservations"; SBC-3, the same table for
/// block commands; SPC-2 for the reservations of RESERVE (6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Allowed under every reservation.
    Always,
    /// Allowed under every persistent reservation, not under RESERVE.
    Persistent,
    /// Allowed under write exclusive types only.
    Reads,
    /// Allowed under no reservation.
    Writes,
    /// START STOP UNIT: [`Access::Persistent`] when it starts the unit, else [`Access::Writes`].
    Starts,
    /// PREVENT ALLOW MEDIUM REMOVAL: [`Access::Persistent`] when it allows removal, else [`Access::Writes`].
    Prevents,
    /// PERSISTENT RESERVE IN and OUT: allowed under every persistent reservation, subject to the checks of the service
    /// action; refused to every nexus under RESERVE.
    Keys,
    /// RESERVE and RELEASE, which check for conflicts themselves.
    Own,
}

impl Access {
    /// True when a nexus without access may execute the operation under a persistent reservation of this type.
    pub(crate) fn is_allowed_under(self, kind: ReservationType) -> bool {
        match self {
            Self::Always | Self::Persistent | Self::Keys | Self::Own => true,
            Self::Reads => !kind.excludes_reads(),
            // A start or a prevention that is allowed comes here as `Persistent`: `check_reserved` reads its bits.
            Self::Writes | Self::Starts | Self::Prevents => false,
        }
    }

    /// True when the operation is executed under RESERVE (6) or (10); `is_own` tells whether the asking nexus holds it.
    pub(crate) fn is_allowed_under_reserve(self, is_own: bool) -> bool {
        match self {
            Self::Always | Self::Own => true,
            // PERSISTENT RESERVE IN and OUT conflict with a RESERVE even for its holder (SPC-2).
            Self::Keys => false,
            // RESERVE keeps every other nexus out, readers as well (SPC-2).
            Self::Persistent | Self::Reads | Self::Writes | Self::Starts | Self::Prevents => is_own,
        }
    }
}
