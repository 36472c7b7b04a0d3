//! Reservations and registrations of volumes by hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reservation of a volume, and its registrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationReport {
    /// Type of the persistent reservation, if there is one.
    pub kind: Option<ReservationKind>,
    /// Holder of the reservation, or of a RESERVE; absent if all registrants are holders.
    pub holder: Option<String>,
    /// ISID of the session of the holder.
    #[serde(default)]
    pub holder_isid: Option<String>,
    /// True if reservation and registrations persist through power loss (APTPL).
    pub persists: bool,
    /// Generation counter of the registrations (PRGENERATION).
    pub generation: u32,
    /// Number of registrations.
    pub registered: u32,
    /// First registrations; may be fewer than `registered`.
    pub registrations: Vec<RegistrationReport>,
}

/// Type of a reservation (SPC-4), or a RESERVE of SPC-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReservationKind {
    /// RESERVE (6) or (10): reads and writes only by the session of the holder.
    Reserve,
    /// Writes only by the holder.
    WriteExclusive,
    /// Reads and writes only by the holder.
    ExclusiveAccess,
    /// Writes only by registrants.
    WriteExclusiveRegistrantsOnly,
    /// Reads and writes only by registrants.
    ExclusiveAccessRegistrantsOnly,
    /// Writes only by registrants, all of which are holders.
    WriteExclusiveAllRegistrants,
    /// Reads and writes only by registrants, all of which are holders.
    ExclusiveAccessAllRegistrants,
}

/// Registration: an initiator port at a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegistrationReport {
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// ISID of the initiator port, in hexadecimal digits.
    pub isid: String,
    /// iSCSI name of the target.
    pub target: String,
    /// Reservation key in hexadecimal digits.
    pub key: String,
    /// True if it holds the reservation.
    pub holder: bool,
}

impl ReservationReport {
    /// Returns a description of the reservation: type, holder, key, and the effect on others. `None` without a
    /// reservation.
    #[must_use]
    pub fn description(&self) -> Option<String> {
        let kind = self.kind?;
        let held = self.registrations.iter().find(|registration| registration.holder);
        // If all registrants are holders, there is no single key.
        let key =
            held.filter(|_| self.holder.is_some()).map_or(String::new(), |held| format!(" with key {}", held.key));
        let holder = self.holder.as_ref().map_or(String::new(), |holder| format!(", held by {holder}{key}"));
        Some(format!("{}{holder}: {}", kind.as_str(), kind.rule()))
    }

    /// Returns the access that the reservation denies to a host with these `initiators`; `None` for its holder, and for
    /// registrants where registration suffices. If the report does not list all registrations, the host counts as
    /// registered.
    #[must_use]
    pub fn denied_access(&self, initiators: &[String]) -> Option<DeniedAccess> {
        // Registrations without a reservation deny nothing.
        let kind = self.kind?;
        // iSCSI names are compared without regard to case (RFC 7143 §4.2.7.2).
        let is_own = |name: &String| initiators.iter().any(|own| own.eq_ignore_ascii_case(name));
        // An unlisted registration may be the one of this host.
        let is_registered = self.registrations.iter().any(|registration| is_own(&registration.initiator))
            || self.registrations.len() < self.registered as usize;
        // By initiator: another session of the same initiator may still get a reservation conflict.
        let is_holder = self.holder.as_ref().is_some_and(is_own);
        let may = is_holder || (kind.is_shared_by_registrants() && is_registered);
        (!may).then(|| if kind.forbids_reads() { DeniedAccess::ReadsAndWrites } else { DeniedAccess::Writes })
    }
}

/// Access that a reservation denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedAccess {
    /// Writes are denied, reads are permitted.
    Writes,
    /// Reads and writes are denied.
    ReadsAndWrites,
}

impl ReservationKind {
    /// Returns the permitted access in a few words.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Reserve => "only the session of the holder may read and write",
            Self::WriteExclusive => "only the holder may write",
            Self::ExclusiveAccess => "only the holder may read and write",
            Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants => "only registrants may write",
            Self::ExclusiveAccessRegistrantsOnly | Self::ExclusiveAccessAllRegistrants => {
                "only registrants may read and write"
            }
        }
    }

    /// Returns true if registration suffices for access.
    #[must_use]
    pub const fn is_shared_by_registrants(self) -> bool {
        // With these three types a registration without the reservation gives no additional access.
        !matches!(self, Self::Reserve | Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Returns true if reads of others are denied as well.
    #[must_use]
    pub const fn forbids_reads(self) -> bool {
        use ReservationKind::{WriteExclusive, WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly};
        !matches!(self, WriteExclusive | WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants)
    }

    /// Returns the type in words.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservation_says_who_holds_it_by_which_key_and_whom_it_keeps_out() {
        let registration = |initiator: &str, key: &str, holder| RegistrationReport {
            initiator: initiator.to_owned(),
            isid: "800000000000".to_owned(),
            target: "iqn.2026-11.io.blockyard:node1".to_owned(),
            key: key.to_owned(),
            holder,
        };
        let mut report = ReservationReport {
            kind: Some(ReservationKind::WriteExclusiveRegistrantsOnly),
            holder: Some("iqn.a".to_owned()),
            registered: 2,
            registrations: vec![registration("iqn.a", "00000000000000ab", true), registration("iqn.b", "02", false)],
            ..ReservationReport::default()
        };
        let told = report.description().expect("it is reserved");
        let words =
            "write exclusive, registrants only, held by iqn.a with key 00000000000000ab: only registrants may write";
        assert_eq!(told, words);
        let kept = |report: &ReservationReport, who: &str| report.denied_access(&[who.to_owned()]);
        let each = |report: &ReservationReport| ["iqn.a", "IQN.B", "iqn.c"].map(|who| kept(report, who));
        assert_eq!(each(&report), [None, None, Some(DeniedAccess::Writes)]);
        report.kind = Some(ReservationKind::ExclusiveAccess);
        assert_eq!(each(&report), [None, Some(DeniedAccess::ReadsAndWrites), Some(DeniedAccess::ReadsAndWrites)]);
        (report.kind, report.registered) = (Some(ReservationKind::ExclusiveAccessAllRegistrants), 300);
        assert_eq!(kept(&report, "iqn.c"), None, "it may be one of those that are not told");
        report.kind = None;
        assert_eq!((report.description(), kept(&report, "iqn.c")), (None, None));
    }
}
