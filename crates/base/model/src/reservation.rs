//! What hosts have reserved of a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who has reserved a volume, and who is registered to share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationReport {
    /// The type of the persistent reservation, if there is one.
    pub kind: Option<ReservationKind>,
    /// Who holds it, or has reserved the volume with RESERVE; nobody in particular where all registrants do.
    pub holder: Option<String>,
    /// True when it all survives power loss (APTPL).
    pub persists: bool,
    /// How many registrations there have been and changed (PRgeneration).
    pub generation: u32,
    /// How many are registered.
    pub registered: u32,
    /// The first of them.
    pub registrations: Vec<RegistrationReport>,
}

/// The type of a reservation (SPC-4), or a RESERVE of SPC-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReservationKind {
    /// RESERVE (6) or (10): only the session of the holder reads and writes.
    Reserve,
    /// Only the holder writes.
    WriteExclusive,
    /// Only the holder reads and writes.
    ExclusiveAccess,
    /// Only who is registered writes.
    WriteExclusiveRegistrantsOnly,
    /// Only who is registered reads and writes.
    ExclusiveAccessRegistrantsOnly,
    /// Only who is registered writes, and all who are hold it.
    WriteExclusiveAllRegistrants,
    /// Only who is registered reads and writes, and all who are hold it.
    ExclusiveAccessAllRegistrants,
}

/// One registration: an initiator port at a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegistrationReport {
    /// The initiator's name.
    pub initiator: String,
    /// Its part of the session identifier, in hexadecimal digits.
    pub isid: String,
    /// The target's name.
    pub target: String,
    /// The reservation key, in hexadecimal digits.
    pub key: String,
    /// True when it holds the reservation.
    pub holder: bool,
}

impl ReservationKind {
    /// The kind in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserve => "RESERVE",
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            Self::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
        }
    }
}
