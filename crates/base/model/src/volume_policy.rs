//! How a volume is cached, and how fast it may be: what an operator sets with `volume set`.

use crate::setting::{Settings, as_rate, as_yes_or_no, in_order, or_off, rate, shown, yes_or_no};
use crate::{Refusal, Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What an operator has set for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VolumePolicy {
    /// When a write is acknowledged.
    pub write: WritePolicy,
    /// Its part of the read cache, against those of other volumes; zero: none.
    pub cache_share: u32,
    /// What is read before anybody asks for it.
    pub read_ahead: ReadAhead,
    /// At most so many commands in a second.
    pub iops: Option<u64>,
    /// At most so many bytes in a second.
    pub bandwidth: Option<Size>,
    /// How long a volume that was idle may be as fast as it can.
    pub burst: Span,
    /// At least so many commands in a second, before others get more than their own guarantee.
    pub guarantee_iops: Option<u64>,
    /// Its part when volumes compete.
    pub priority: u32,
    /// True when hosts may eject and load its medium, as of a cartridge.
    pub removable: bool,
}

impl Default for VolumePolicy {
    fn default() -> Self {
        Self {
            write: WritePolicy::Through,
            cache_share: 100,
            read_ahead: ReadAhead::Adaptive,
            iops: None,
            bandwidth: None,
            burst: Span::from_millis(100),
            guarantee_iops: None,
            priority: 100,
            removable: false,
        }
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// When it is on the disks.
    #[default]
    Through,
    /// When it is stable in the log of the pool.
    Back,
    /// When it is in memory: a power cut loses what no flush has covered.
    BackVolatile,
}

/// What is read before anybody asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["off", "adaptive", "1MiB"]))]
pub enum ReadAhead {
    /// Nothing.
    Off,
    /// Behind a sequential reader always so much.
    Fixed(Size),
    /// As much as sequential readers turn out to use.
    #[default]
    Adaptive,
}

/// The settings of a volume by name, and what may be written there.
pub const VOLUME_SETTINGS: [(&str, &str); 9] = [
    ("write-policy", "through, back or back-volatile"),
    ("cache-share", "a number from 0 to 10000"),
    ("read-ahead", "off, adaptive, or a size from 4KiB to 64MiB"),
    ("iops", "a number above zero, or off"),
    ("bandwidth", "a rate such as 100MiB/s, or off"),
    ("burst", "a span of at most an hour such as 100ms"),
    ("guarantee-iops", "a number above zero, or off"),
    ("priority", "a number from 1 to 10000"),
    ("removable", "yes or no"),
];

const SETTINGS: Settings<9> = Settings { owner: "volume", names: VOLUME_SETTINGS };

impl VolumePolicy {
    /// The setting `key` is `value`.
    ///
    /// *Errors*: there is no such setting, the value is none for it, or it contradicts another one.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let wrong = SETTINGS.wrong(key, value)?;
        match key {
            "write-policy" => self.write = value.parse().map_err(|()| wrong())?,
            "cache-share" => self.cache_share = number(value, 0..=10_000).ok_or_else(wrong)?,
            "read-ahead" => self.read_ahead = value.parse().map_err(|()| wrong())?,
            "iops" => self.iops = or_off(value, positive).ok_or_else(wrong)?,
            "bandwidth" => self.bandwidth = or_off(value, rate).ok_or_else(wrong)?,
            "burst" => self.burst = span(value).ok_or_else(wrong)?,
            "guarantee-iops" => self.guarantee_iops = or_off(value, positive).ok_or_else(wrong)?,
            "priority" => self.priority = number(value, 1..=10_000).ok_or_else(wrong)?,
            _ => self.removable = yes_or_no(value).ok_or_else(wrong)?,
        }
        in_order(("guarantee-iops", self.guarantee_iops), ("iops", self.iops), u64::to_string)
    }

    /// Every setting with its value, as [`VolumePolicy::set`] takes them.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 9] {
        SETTINGS.with([
            self.write.as_str().to_owned(),
            self.cache_share.to_string(),
            self.read_ahead.to_string(),
            shown(self.iops),
            shown(self.bandwidth.as_ref().map(as_rate)),
            self.burst.to_string(),
            shown(self.guarantee_iops),
            self.priority.to_string(),
            as_yes_or_no(self.removable),
        ])
    }
}

fn number(text: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    text.parse().ok().filter(|number| range.contains(number))
}

fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&number| number > 0)
}

fn span(text: &str) -> Option<Span> {
    text.parse().ok().filter(|span: &Span| span.seconds() <= 3_600)
}

impl WritePolicy {
    const ALL: [Self; 3] = [Self::Through, Self::Back, Self::BackVolatile];

    /// The policy in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Back => "back",
            Self::BackVolatile => "back-volatile",
        }
    }
}

impl FromStr for WritePolicy {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text).ok_or(())
    }
}

impl FromStr for ReadAhead {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "off" => Ok(Self::Off),
            "adaptive" => Ok(Self::Adaptive),
            size => size.parse().map_err(|_: Refusal| ()).and_then(Self::fixed),
        }
    }
}

impl ReadAhead {
    fn fixed(size: Size) -> Result<Self, ()> {
        let possible = (4 << 10..=64 << 20).contains(&size.bytes());
        if possible { Ok(Self::Fixed(size)) } else { Err(()) }
    }
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Fixed(size) => f.pad(&size.exact()),
            Self::Adaptive => f.pad("adaptive"),
        }
    }
}

impl TryFrom<String> for ReadAhead {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        // A state that was written before sizes had units says `5000`.
        let stored = || text.parse().map_err(|_| ()).map(Size::new).and_then(Self::fixed);
        text.parse().or_else(|()| stored()).map_err(|()| "off, adaptive, or a size from 4KiB to 64MiB")
    }
}

impl From<ReadAhead> for String {
    fn from(read_ahead: ReadAhead) -> Self {
        read_ahead.to_string()
    }
}

/// What the cache does for a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheReport {
    /// Bytes that readers found in memory.
    pub hits: Size,
    /// Bytes that readers waited for.
    pub misses: Size,
    /// Bytes that were read ahead.
    pub ahead: Size,
    /// Of these, bytes that were thrown out before anybody asked for them.
    pub ahead_wasted: Size,
    /// Bytes of memory that the volume takes.
    pub used: Size,
    /// Acknowledged bytes that are not on the disks yet.
    pub dirty: Size,
    /// Pieces of these that the disks refuse, or whose content is lost.
    pub stuck: u64,
}

impl CacheReport {
    /// How many of a hundred bytes that were read came from memory; none while nothing was read.
    #[must_use]
    pub fn hit_percent(&self) -> Option<u64> {
        let (hits, misses) = (u128::from(self.hits.bytes()), u128::from(self.misses.bytes()));
        (hits * 100).checked_div(hits + misses).map(|percent| u64::try_from(percent).expect("at most a hundred"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;

    #[test]
    fn volume_settings_are_read_as_they_are_written() {
        let mut policy = VolumePolicy::default();
        for (key, value) in [
            ("write-policy", "back-volatile"),
            ("cache-share", "0"),
            ("read-ahead", "512KiB"),
            ("iops", "5000"),
            ("bandwidth", "100MiB/s"),
            ("burst", "2s"),
            ("guarantee-iops", "500"),
            ("priority", "1000"),
        ] {
            policy.set(key, value).expect(key);
            assert!(policy.settings().contains(&(key, value.to_owned())), "{key}={value}: {:?}", policy.settings());
        }
        let mut again = VolumePolicy::default();
        policy.settings().iter().for_each(|(key, value)| again.set(key, value).expect(key));
        assert_eq!(again, policy);
        let json = serde_json::to_string(&policy).expect("json");
        assert_eq!(serde_json::from_str::<VolumePolicy>(&json).expect("own json"), policy);
        VolumePolicy::default().settings().iter().for_each(|(key, value)| policy.set(key, value).expect(key));
        assert_eq!(policy, VolumePolicy::default());
    }

    #[test]
    fn volume_policy_refuses_what_is_no_setting_and_says_what_would_be_right() {
        let mut policy = VolumePolicy::default();
        for (key, value) in [
            ("writes", "through"),
            ("write-policy", "fast"),
            ("cache-share", "-1"),
            ("read-ahead", "1KiB"),
            ("read-ahead", "1GiB"),
            ("read-ahead", "65536"),
            ("iops", "0"),
            ("bandwidth", "0"),
            ("bandwidth", "559513/s"),
            ("burst", "2h"),
            ("priority", "0"),
        ] {
            let refusal = policy.set(key, value).expect_err(value);
            assert!(refusal.code == code::SETTING_INVALID && refusal.hint.starts_with("write "), "{refusal}");
        }
        assert_eq!(policy, VolumePolicy::default());
        policy.set("iops", "100").expect("a number");
        assert!(policy.set("guarantee-iops", "101").is_err());
    }

    #[test]
    fn volume_policy_takes_what_it_prints_of_odd_sizes() {
        let mut policy = VolumePolicy::default();
        for (key, value) in [("bandwidth", "559513B/s"), ("read-ahead", "5000B")] {
            policy.set(key, value).expect(key);
            assert!(policy.settings().contains(&(key, value.to_owned())), "{:?}", policy.settings());
        }
        let stored = serde_json::from_str::<ReadAhead>("\"5000\"");
        assert_eq!(stored.expect("a state of an earlier version"), ReadAhead::Fixed(Size::new(5000)));
    }

    #[test]
    fn hit_rate_is_of_what_was_read() {
        let report = CacheReport { hits: Size::mib(3), misses: Size::mib(1), ..CacheReport::default() };
        assert_eq!((report.hit_percent(), CacheReport::default().hit_percent()), (Some(75), None));
    }
}
