//! Portal groups, which are the target port groups of SCSI: through which of them hosts should come.

use crate::setting::{Settings, as_yes_or_no, yes_or_no};
use crate::{Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::str::FromStr;

/// The target portal group tag, as an operator writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(extend("minimum" = 1))]
pub struct PortalGroupTag(pub u16);

/// What an operator has set for a portal group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PortalGroupPolicy {
    /// How volumes are served through its portals.
    pub access: GroupAccess,
    /// True when hosts should choose it before others with the same access.
    pub preferred: bool,
}

/// How volumes are served through a portal group (SPC-4, target port group access states).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GroupAccess {
    /// As well as anywhere.
    #[default]
    Optimized,
    /// Wholly, but hosts should come through an optimized group as long as there is one.
    NonOptimized,
    /// Hosts see the volumes, and neither read nor write them.
    Standby,
    /// Hosts hear that the volumes are elsewhere.
    Unavailable,
    /// The ports are out of service.
    Offline,
}

/// The settings of a portal group by name, and what may be written there.
pub const PORTAL_GROUP_SETTINGS: [(&str, &str); 2] =
    [("access", "optimized, non-optimized, standby, unavailable or offline"), ("preferred", "yes or no")];

const SETTINGS: Settings<2> = Settings { owner: "portal group", names: PORTAL_GROUP_SETTINGS };

/// One portal group as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortalGroupReport {
    /// Its target portal group tag.
    pub tag: u16,
    /// What is set for it. A host may have set something else for a volume (SET TARGET PORT GROUPS).
    #[serde(flatten)]
    pub policy: PortalGroupPolicy,
    /// Its portals.
    pub portals: Vec<SocketAddr>,
    /// How many sessions came in through them.
    pub sessions: u32,
}

impl PortalGroupPolicy {
    /// The setting `key` is `value`.
    ///
    /// *Errors*: there is no such setting, or the value is none for it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let wrong = SETTINGS.wrong(key, value)?;
        match key {
            "access" => self.access = GroupAccess::of(value).ok_or_else(wrong)?,
            _ => self.preferred = yes_or_no(value).ok_or_else(wrong)?,
        }
        Ok(())
    }

    /// Every setting with its value, as [`PortalGroupPolicy::set`] takes them.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 2] {
        SETTINGS.with([self.access.to_string(), as_yes_or_no(self.preferred)])
    }
}

impl GroupAccess {
    const ALL: [Self; 5] = [Self::Optimized, Self::NonOptimized, Self::Standby, Self::Unavailable, Self::Offline];

    /// The access in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::Offline => "offline",
        }
    }

    /// True when volumes are read and written through the group.
    #[must_use]
    pub const fn serves_blocks(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.as_str() == text)
    }
}

impl fmt::Display for GroupAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PortalGroupTag {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.parse().map(|tag: NonZeroU16| Self(tag.get())).map_err(|_| {
            let message = format!("{} is not the tag of a portal group", quoted(text));
            Refusal::new(code::SETTING_INVALID, message, "write a number from 1 to 65535")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portal_group_settings_are_read_as_they_are_written() {
        for access in GroupAccess::ALL {
            let mut policy = PortalGroupPolicy::default();
            policy.set("access", access.as_str()).expect("a setting");
            policy.set("preferred", "yes").expect("a setting");
            assert_eq!(policy, PortalGroupPolicy { access, preferred: true });
            let mut again = PortalGroupPolicy::default();
            policy.settings().into_iter().for_each(|(key, value)| again.set(key, &value).expect("as it was written"));
            assert_eq!(again, policy);
        }
        let mut policy = PortalGroupPolicy::default();
        for (key, value) in [("access", "transitioning"), ("preferred", "true"), ("weight", "1")] {
            assert!(policy.set(key, value).is_err(), "{key}={value}");
        }
        assert_eq!(policy, PortalGroupPolicy::default());
    }

    #[test]
    fn tag_of_a_portal_group_is_a_number_above_zero() {
        assert_eq!("7".parse(), Ok(PortalGroupTag(7)));
        for text in ["0", "65536", "-1", "two", ""] {
            assert!(text.parse::<PortalGroupTag>().is_err(), "{text}");
        }
    }
}
