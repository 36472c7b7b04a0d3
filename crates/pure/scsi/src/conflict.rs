//! Who may do what under a reservation: the conflict tables of SPC-4 and SBC-3 as data.

use crate::sense::Sense;

/// The type of a persistent reservation (SPC-4, persistent reservation TYPE field).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 0x1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 0x3,
    /// Only who is registered writes; one of them is the holder.
    WriteExclusiveRegistrantsOnly = 0x5,
    /// Only who is registered reads and writes; one of them is the holder.
    ExclusiveAccessRegistrantsOnly = 0x6,
    /// Only who is registered writes; all of them are holders.
    WriteExclusiveAllRegistrants = 0x7,
    /// Only who is registered reads and writes; all of them are holders.
    ExclusiveAccessAllRegistrants = 0x8,
}

use ReservationType::{
    ExclusiveAccess, ExclusiveAccessAllRegistrants, ExclusiveAccessRegistrantsOnly, WriteExclusive,
    WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly,
};

impl ReservationType {
    /// Every type.
    pub const ALL: [Self; 6] = [
        WriteExclusive,
        ExclusiveAccess,
        WriteExclusiveRegistrantsOnly,
        ExclusiveAccessRegistrantsOnly,
        WriteExclusiveAllRegistrants,
        ExclusiveAccessAllRegistrants,
    ];

    /// The type with this code.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The code that stands in CDBs and answers.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The type that SCOPE and TYPE of a CDB name.
    ///
    /// *Errors*: 24/00 at the scope, of which there is only that of the logical unit, or at the type.
    pub(crate) fn of_cdb(byte: u8) -> Result<Self, Sense> {
        if byte >> 4 != 0 {
            return Err(Sense::cdb_bit(2, 7));
        }
        Self::of(byte & 0x0F).ok_or(Sense::cdb_bit(2, 3))
    }

    /// True when others than those who share it may not even read.
    pub(crate) fn excludes_reads(self) -> bool {
        matches!(self, ExclusiveAccess | ExclusiveAccessRegistrantsOnly | ExclusiveAccessAllRegistrants)
    }

    /// True when everybody who is registered has the access that the holder has.
    pub(crate) fn is_for_registrants(self) -> bool {
        !matches!(self, WriteExclusive | ExclusiveAccess)
    }

    /// True when everybody who is registered is a holder.
    #[must_use]
    pub fn is_held_by_all(self) -> bool {
        matches!(self, WriteExclusiveAllRegistrants | ExclusiveAccessAllRegistrants)
    }
}

/// What a nexus is to a logical unit's persistent reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has no key.
    #[default]
    Stranger,
    /// It has a key, and does not hold the reservation.
    Registrant,
    /// It holds the reservation.
    Holder,
}

impl Standing {
    /// True when a reservation of this type keeps the nexus from nothing.
    pub(crate) fn shares(self, kind: ReservationType) -> bool {
        match self {
            Self::Stranger => false,
            Self::Registrant => kind.is_for_registrants(),
            Self::Holder => true,
        }
    }
}

/// How an operation fares that is asked by a nexus which a reservation keeps out.
///
/// *Source*: SPC-4, "commands that are allowed in the presence of various reservations"; SBC-3, the same table for
/// block commands; SPC-2 for the reservations of RESERVE (6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Allowed under every reservation.
    Always,
    /// Allowed under every persistent reservation, not under RESERVE.
    Persistent,
    /// Allowed under write exclusive types alone.
    Reads,
    /// Allowed under none.
    Writes,
    /// START STOP UNIT: [`Access::Persistent`] when it starts the unit, else [`Access::Writes`].
    Starts,
    /// PREVENT ALLOW MEDIUM REMOVAL: [`Access::Persistent`] when it allows it, else [`Access::Writes`].
    Prevents,
    /// PERSISTENT RESERVE IN and OUT: allowed under every persistent reservation, as far as the service action itself
    /// allows it, and to nobody under RESERVE.
    Keys,
    /// RESERVE and RELEASE: they look for themselves.
    Own,
}

impl Access {
    /// True when the operation is done under a persistent reservation of this type that keeps the nexus out.
    pub(crate) fn is_allowed_under(self, kind: ReservationType) -> bool {
        match self {
            Self::Always | Self::Persistent | Self::Keys | Self::Own => true,
            Self::Reads => !kind.excludes_reads(),
            Self::Writes | Self::Starts | Self::Prevents => false,
        }
    }

    /// True when the operation is done under RESERVE (6) or (10), of the asking nexus or of another.
    pub(crate) fn is_allowed_under_reserve(self, is_own: bool) -> bool {
        match self {
            Self::Always | Self::Own => true,
            Self::Keys => false,
            Self::Persistent | Self::Reads | Self::Writes | Self::Starts | Self::Prevents => is_own,
        }
    }
}
