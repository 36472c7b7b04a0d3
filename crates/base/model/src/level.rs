//! RAID levels.

use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// RAID level of a disk group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("enum" = ["raid0", "raid1", "raid5", "raid6", "raid10"]))]
pub enum Level {
    /// Striping without redundancy.
    Raid0,
    /// Mirroring: every disk holds all data.
    Raid1,
    /// Striping with single parity.
    Raid5,
    /// Striping with double parity.
    Raid6,
    /// Striping over mirrored pairs.
    Raid10,
}

impl Level {
    /// All levels.
    pub const ALL: [Self; 5] = [Self::Raid0, Self::Raid1, Self::Raid5, Self::Raid6, Self::Raid10];

    /// Returns the minimum number of members of a group.
    #[must_use]
    pub const fn members_min(self) -> usize {
        match self {
            Self::Raid0 => 1,
            Self::Raid1 => 2,
            // Parity of a single data chunk is its copy: RAID-5 of two disks would be RAID-1.
            Self::Raid5 => 3,
            // RAID-6 of three disks would hold three copies, and RAID-10 of two disks is RAID-1.
            Self::Raid6 | Self::Raid10 => 4,
        }
    }

    /// Returns the number of disks, in any combination, that a group of `members` disks can lose without data loss.
    #[must_use]
    pub const fn tolerated(self, members: usize) -> usize {
        match self {
            Self::Raid0 => 0,
            // Every member is a full copy, so the last one suffices.
            Self::Raid1 => members.saturating_sub(1),
            // RAID-10 survives two failures only if they hit different pairs.
            Self::Raid5 | Self::Raid10 => 1,
            Self::Raid6 => 2,
        }
    }

    /// Returns the capacity of a group of `members` disks, in disks.
    #[must_use]
    pub const fn data_members(self, members: usize) -> usize {
        match self {
            Self::Raid0 => members,
            Self::Raid1 => 1,
            Self::Raid5 => members.saturating_sub(1),
            Self::Raid6 => members.saturating_sub(2),
            Self::Raid10 => members / 2,
        }
    }

    /// Returns the name of the level, such as `raid6`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
            Self::Raid10 => "raid10",
        }
    }

    /// Checks the number of members of a group.
    ///
    /// *Errors*: `TOO_FEW_MEMBERS` if there are too few for the level, or an odd number for RAID-10.
    pub fn admit_members(self, members: usize) -> Result<(), Refusal> {
        if members < self.members_min() {
            return Err(Refusal::new(
                code::TOO_FEW_MEMBERS,
                format!("{self} of {members} disk{} is not possible", if members == 1 { "" } else { "s" }),
                format!("give at least {} disks or choose another level", self.members_min()),
            ));
        }
        // RAID-10 mirrors adjacent slots: the last disk of an odd number would have no mirror.
        if self == Self::Raid10 && members % 2 == 1 {
            return Err(Refusal::new(
                code::TOO_FEW_MEMBERS,
                format!("raid10 needs an even number of disks, not {members}"),
                "add or omit one disk",
            ));
        }
        Ok(())
    }
}

impl FromStr for Level {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let lower = text.trim().to_ascii_lowercase();
        // `raid6`, `raid-6` and `6` are all accepted.
        let digits = lower.strip_prefix("raid").unwrap_or(&lower).trim_start_matches('-');
        Self::ALL.into_iter().find(|level| level.as_str().strip_prefix("raid") == Some(digits)).ok_or_else(|| {
            Refusal::new(
                code::LEVEL_INVALID,
                format!("{} is not a RAID level", quoted(text)),
                "write raid0, raid1, raid5, raid6 or raid10",
            )
        })
    }
}

impl TryFrom<String> for Level {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Level> for String {
    fn from(level: Level) -> Self {
        level.as_str().to_owned()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_parses_with_and_without_its_prefix() {
        for (text, level) in
            [("raid6", Level::Raid6), ("6", Level::Raid6), ("RAID-10", Level::Raid10), ("0", Level::Raid0)]
        {
            assert_eq!(text.parse::<Level>().expect(text), level);
        }
        for text in ["", "raid", "raid7", "60", "mirror"] {
            assert_eq!(text.parse::<Level>().expect_err(text).code, code::LEVEL_INVALID);
        }
    }

    #[test]
    fn level_says_how_many_disks_it_needs() {
        let refusal = Level::Raid6.admit_members(3).expect_err("three are too few");
        assert_eq!(
            refusal.to_string(),
            "raid6 of 3 disks is not possible; give at least 4 disks or choose another level"
        );
        assert!(Level::Raid10.admit_members(5).is_err());
        assert!(Level::ALL.iter().all(|level| level.admit_members(level.members_min()).is_ok()));
    }
}
