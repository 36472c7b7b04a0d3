//! RAID levels and their properties.

use std::fmt;
use std::str::FromStr;

/// RAID level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Striping without redundancy.
    Raid0,
    /// Mirroring: every member holds everything.
    Raid1,
    /// Striping with one rotating parity (P).
    Raid5,
    /// Striping with two rotating parities (P and Q).
    Raid6,
    /// Striping over mirrored pairs (md's near layout with two copies).
    Raid10,
}

impl Level {
    /// All levels.
    pub const ALL: [Self; 5] = [Self::Raid0, Self::Raid1, Self::Raid5, Self::Raid6, Self::Raid10];

    /// Smallest number of members of this level.
    #[must_use]
    pub fn members_min(self) -> u16 {
        match self {
            Self::Raid0 => 1,
            Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid6 | Self::Raid10 => 4,
        }
    }

    /// Number of members that may fail in any combination. RAID-10 may survive more, one of each pair.
    #[must_use]
    pub fn tolerates(self, members: u16) -> u16 {
        match self {
            Self::Raid0 => 0,
            Self::Raid1 => members.saturating_sub(1),
            Self::Raid5 | Self::Raid10 => 1,
            Self::Raid6 => 2,
        }
    }

    /// Parity chunks of a stripe.
    pub(crate) fn parities(self) -> u16 {
        match self {
            Self::Raid0 | Self::Raid1 | Self::Raid10 => 0,
            Self::Raid5 => 1,
            Self::Raid6 => 2,
        }
    }

    /// Members that hold each data chunk.
    pub(crate) fn copies(self, members: u16) -> u16 {
        match self {
            Self::Raid0 | Self::Raid5 | Self::Raid6 => 1,
            Self::Raid1 => members,
            Self::Raid10 => 2,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raid0 => "RAID-0",
            Self::Raid1 => "RAID-1",
            Self::Raid5 => "RAID-5",
            Self::Raid6 => "RAID-6",
            Self::Raid10 => "RAID-10",
        })
    }
}

/// Error of parsing a RAID level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no RAID level; the levels are 0, 1, 5, 6 and 10")]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    /// Parses `6`, `raid6` and `RAID-6`.
    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let lower = text.to_ascii_lowercase();
        let number = lower.strip_prefix("raid").map_or(&*lower, |rest| rest.strip_prefix('-').unwrap_or(rest));
        match number {
            "0" => Ok(Self::Raid0),
            "1" => Ok(Self::Raid1),
            "5" => Ok(Self::Raid5),
            "6" => Ok(Self::Raid6),
            "10" => Ok(Self::Raid10),
            _ => Err(UnknownLevel(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_parses_its_display_form_and_common_spellings() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("raid10".parse(), Ok(Level::Raid10));
        assert_eq!("6".parse(), Ok(Level::Raid6));
        assert_eq!(
            "4".parse::<Level>().map_err(|e| e.to_string()),
            Err("\"4\" is no RAID level; the levels are 0, 1, 5, 6 and 10".into())
        );
    }
}
