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
    /// The ISID of the session that does.
    #[serde(default)]
    pub holder_isid: Option<String>,
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

impl ReservationReport {
    /// What is reserved, by whom, under which key, and what that means for others, in a few words; nothing where nothing is.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let kind = self.kind?;
        let held = self.registrations.iter().find(|registration| registration.holder);
        let key =
            held.filter(|_| self.holder.is_some()).map_or(String::new(), |held| format!(" with key {}", held.key));
        let holder = self.holder.as_ref().map_or(String::new(), |holder| format!(", held by {holder}{key}"));
        Some(format!("{}{holder}: {}", kind.as_str(), kind.rule()))
    }

    /// What the reservation keeps from who is none of `initiators`; nothing from its holder, and from who is registered where
    /// that is enough. Of more registrations than are told, nobody is thought to be missing.
    #[must_use]
    pub fn kept_from(&self, initiators: &[String]) -> Option<Kept> {
        let kind = self.kind?;
        let is_own = |name: &String| initiators.iter().any(|own| own.eq_ignore_ascii_case(name));
        let is_registered = self.registrations.iter().any(|registration| is_own(&registration.initiator))
            || self.registrations.len() < self.registered as usize;
        let is_holder = self.holder.as_ref().is_some_and(is_own);
        let may = is_holder || (kind.is_shared_by_registrants() && is_registered);
        (!may).then(|| if kind.forbids_reads() { Kept::ReadsAndWrites } else { Kept::Writes })
    }
}

/// What a reservation keeps from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// They read.
    Writes,
    /// They do neither.
    ReadsAndWrites,
}

impl ReservationKind {
    /// Who may do what, in a few words.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Reserve => "only the session of the holder reads and writes",
            Self::WriteExclusive => "only the holder writes",
            Self::ExclusiveAccess => "only the holder reads and writes",
            Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants => "only who is registered writes",
            Self::ExclusiveAccessRegistrantsOnly | Self::ExclusiveAccessAllRegistrants => {
                "only who is registered reads and writes"
            }
        }
    }

    /// True where registering is enough to share it.
    #[must_use]
    pub const fn is_shared_by_registrants(self) -> bool {
        !matches!(self, Self::Reserve | Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// True where others do not even read.
    #[must_use]
    pub const fn forbids_reads(self) -> bool {
        use ReservationKind::{WriteExclusive, WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly};
        !matches!(self, WriteExclusive | WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants)
    }

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
        let told = report.told().expect("it is reserved");
        let words =
            "write exclusive, registrants only, held by iqn.a with key 00000000000000ab: only who is registered writes";
        assert_eq!(told, words);
        let kept = |report: &ReservationReport, who: &str| report.kept_from(&[who.to_owned()]);
        let each = |report: &ReservationReport| ["iqn.a", "IQN.B", "iqn.c"].map(|who| kept(report, who));
        assert_eq!(each(&report), [None, None, Some(Kept::Writes)]);
        report.kind = Some(ReservationKind::ExclusiveAccess);
        assert_eq!(each(&report), [None, Some(Kept::ReadsAndWrites), Some(Kept::ReadsAndWrites)]);
        (report.kind, report.registered) = (Some(ReservationKind::ExclusiveAccessAllRegistrants), 300);
        assert_eq!(kept(&report, "iqn.c"), None, "it may be one of those that are not told");
        report.kind = None;
        assert_eq!((report.told(), kept(&report, "iqn.c")), (None, None));
    }
}
