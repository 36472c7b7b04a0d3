//! Names of pools, disks, hosts, targets and volumes.

use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Name of a pool, a disk, a host or a target: 1 to 63 of `a-z 0-9 . _ -`, beginning with a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z0-9][a-z0-9._-]{0,62}$"))]
pub struct Name(String);

/// Name of a disk, with the rules of [`Name`].
pub type DiskName = Name;

impl Name {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // First characters are limited: `-x` would be read as an option, and `.` and `..` as paths.
        let ordinary = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let mut bytes = text.bytes();
        let good = text.len() <= NAME_BYTES_MAX
            && bytes.next().is_some_and(ordinary)
            && bytes.all(|c| ordinary(c) || matches!(c, b'.' | b'_' | b'-'));
        if good {
            return Ok(Self(text.to_owned()));
        }
        Err(Refusal::new(
            code::NAME_INVALID,
            format!("{} is not a name", quoted(text)),
            "use 1 to 63 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or a digit",
        ))
    }
}

impl TryFrom<String> for Name {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Name of a volume: `pool/volume`, or a bare name for a volume without a pool (RAM, null, file).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62})?$"))]
pub struct VolumeName {
    pool: Option<Name>,
    volume: Name,
}

impl VolumeName {
    /// Returns the name of the volume `volume` in `pool`.
    #[must_use]
    pub fn in_pool(pool: Name, volume: Name) -> Self {
        Self { pool: Some(pool), volume }
    }

    /// Returns the name of a volume without a pool.
    #[must_use]
    pub fn bare(volume: Name) -> Self {
        Self { pool: None, volume }
    }

    /// Returns the pool part, if there is one.
    #[must_use]
    pub fn pool(&self) -> Option<&Name> {
        self.pool.as_ref()
    }

    /// Returns the part without the pool.
    #[must_use]
    pub fn volume(&self) -> &Name {
        &self.volume
    }
}

impl FromStr for VolumeName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // A second slash ends up in the volume part, whose rules reject it.
        let parsed = match text.split_once('/') {
            Some((pool, volume)) => pool.parse().and_then(|pool| Ok(Self::in_pool(pool, volume.parse()?))),
            None => text.parse().map(Self::bare),
        };
        // The refusal of a part would name that part only, not the text that the operator wrote.
        parsed.map_err(|_| {
            Refusal::new(
                code::NAME_INVALID,
                format!("{} is not a volume name", quoted(text)),
                "write POOL/VOLUME, or one name for a volume without a pool, \
                 each 1 to 63 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or a digit",
            )
        })
    }
}

impl TryFrom<String> for VolumeName {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            // One text for `pad`: writing the parts one by one would pad each of them to the column width.
            Some(pool) => f.pad(&format!("{pool}/{}", self.volume)),
            None => f.pad(self.volume.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_refuses_what_a_path_or_a_shell_would_trip_over() {
        let long = "a".repeat(64);
        for text in ["", ".", "..", "-rf", "_x", "Tank", "a b", "a/b", "a\0", "ü", "a\n", long.as_str()] {
            assert_eq!(text.parse::<Name>().expect_err(text).code, code::NAME_INVALID, "{text:?}");
        }
        assert!("a".repeat(63).parse::<Name>().is_ok());
    }

    #[test]
    fn volume_name_has_at_most_one_pool() {
        for text in ["", "/", "tank/", "/vm", "a/b/c", "tank/../x"] {
            assert!(text.parse::<VolumeName>().is_err(), "{text:?}");
        }
        let name: VolumeName = "tank/vm1".parse().expect("a name");
        assert_eq!((name.pool().map(Name::as_str), name.volume().as_str()), (Some("tank"), "vm1"));
        assert_eq!("ram0".parse::<VolumeName>().expect("a name").pool(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn name_round_trips_through_text_and_json(text in "[a-z0-9][a-z0-9._-]{0,62}") {
            let name: Name = text.parse().expect("a name");
            prop_assert_eq!(name.as_str(), &text);
            let json = serde_json::to_string(&name).expect("json");
            prop_assert_eq!(serde_json::from_str::<Name>(&json).expect("own json"), name);
        }

        #[test]
        fn volume_name_round_trips(pool in proptest::option::of("[a-z0-9]{1,8}"), volume in "[a-z0-9][a-z._-]{0,8}") {
            let text = pool.map_or(volume.clone(), |pool| format!("{pool}/{volume}"));
            let name: VolumeName = text.parse().expect("a name");
            prop_assert_eq!(name.to_string(), text);
        }

        #[test]
        fn name_parser_accepts_only_its_alphabet(text in "\\PC{0,70}") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert!(name.as_str().bytes().all(|c| c.is_ascii_graphic() && c != b'/'));
            }
        }
    }
}
