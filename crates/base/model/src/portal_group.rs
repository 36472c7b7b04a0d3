//! Portal groups, which are target port groups in SCSI, and their asymmetric access states.

use crate::number::unsigned;
use crate::setting::{Settings, as_yes_or_no, yes_or_no};
use crate::{Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::str::FromStr;

/// Target portal group tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(extend("minimum" = 1))]
pub struct PortalGroupTag(pub u16);

/// Settings of a portal group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PortalGroupPolicy {
    /// Asymmetric access state of the volumes through the portals of the group.
    pub access: GroupAccess,
    /// True if hosts should prefer it to other groups with the same access state.
    pub preferred: bool,
}

/// Access state of the volumes through a portal group (SPC-4, target port group access states).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GroupAccess {
    /// Active/optimized.
    #[default]
    Optimized,
    /// Active/non-optimized: full access, but hosts should use an optimized group as long as there is one.
    NonOptimized,
    /// Standby: the volumes are visible, but reads and writes are rejected.
    Standby,
    /// Unavailable: the volumes are reported as accessible elsewhere.
    Unavailable,
    /// Offline: the ports are out of service.
    Offline,
}

/// Settings of a portal group: names and permitted values.
pub const PORTAL_GROUP_SETTINGS: [(&str, &str); 2] =
    [("access", "optimized, non-optimized, standby, unavailable or offline"), ("preferred", "yes or no")];

const SETTINGS: Settings<2> = Settings { owner: "portal group", names: PORTAL_GROUP_SETTINGS };

/// State of a portal group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortalGroupReport {
    /// Target portal group tag.
    pub tag: u16,
    /// Settings of the group. A host may have set another state for a volume (SET TARGET PORT GROUPS).
    #[serde(flatten)]
    pub policy: PortalGroupPolicy,
    /// Addresses of its portals.
    pub portals: Vec<SocketAddr>,
    /// Number of sessions established through them.
    pub sessions: u32,
}

impl PortalGroupPolicy {
    /// Sets `key` to `value`.
    ///
    /// *Errors*: unknown setting, or invalid value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let wrong = SETTINGS.wrong(key, value)?;
        match key {
            "access" => self.access = GroupAccess::of(value).ok_or_else(wrong)?,
            // `SETTINGS.wrong` has rejected all unknown keys, so this is `preferred`.
            _ => self.preferred = yes_or_no(value).ok_or_else(wrong)?,
        }
        Ok(())
    }

    /// Returns all settings with their values, in the form that [`PortalGroupPolicy::set`] accepts.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 2] {
        SETTINGS.with([self.access.to_string(), as_yes_or_no(self.preferred)])
    }
}

impl GroupAccess {
    const ALL: [Self; 5] = [Self::Optimized, Self::NonOptimized, Self::Standby, Self::Unavailable, Self::Offline];

    /// Returns the access state as one word.
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

    /// Returns true if volumes can be read and written through the group.
    #[must_use]
    pub const fn serves_blocks(self) -> bool {
        // All other states reject reads and writes; hosts then use a path through another group.
        matches!(self, Self::Optimized | Self::NonOptimized)
    }

    fn of(text: &str) -> Option<Self> {
        // `transitioning` (SPC-4) is no setting: it is the result of a change.
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
        // No group has the tag 0; the type rejects it with all other invalid numbers.
        unsigned(text).map(|tag: NonZeroU16| Self(tag.get())).ok_or_else(|| {
            let message = format!("{} is not a portal group tag", quoted(text));
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
        for text in ["0", "65536", "-1", "+7", "two", ""] {
            assert!(text.parse::<PortalGroupTag>().is_err(), "{text}");
        }
    }
}
