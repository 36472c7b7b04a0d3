//! Policies of a volume: caching, QoS limits and removable media, as set with `volume set`.

use crate::number::unsigned;
use crate::setting::{Settings, as_rate, as_yes_or_no, in_order, or_off, rate, shown, yes_or_no};
use crate::{Refusal, Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Policies of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VolumePolicy {
    /// Write policy: the time of acknowledgment.
    pub write: WritePolicy,
    /// Share of the read cache relative to other volumes; 0 disables it. Default 100.
    pub cache_share: u32,
    /// Read-ahead for sequential readers.
    pub read_ahead: ReadAhead,
    /// Limit of commands per second.
    pub iops: Option<u64>,
    /// Limit of bytes per second.
    pub bandwidth: Option<Size>,
    /// Time for which a volume may exceed its limits after an idle period. Default 100 ms.
    pub burst: Span,
    /// Guaranteed commands per second, served before other volumes exceed their own guarantees.
    pub guarantee_iops: Option<u64>,
    /// Weight when volumes compete. Default 100.
    pub priority: u32,
    /// True if hosts may eject and load the medium, as with a cartridge.
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

/// Write policy: the time at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// Write-through: when it is on the disks.
    #[default]
    Through,
    /// Write-back: when it is stable in the log device of the pool.
    Back,
    /// Volatile write-back: when it is in memory. A power failure loses all writes since the last flush.
    BackVolatile,
}

/// Read-ahead for sequential readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["off", "adaptive", "1MiB"]))]
pub enum ReadAhead {
    /// No read-ahead.
    Off,
    /// Fixed amount ahead of a sequential reader.
    Fixed(Size),
    /// Adapted to the amount that sequential readers turn out to use.
    #[default]
    Adaptive,
}

/// Settings of a volume: names and permitted values.
pub const VOLUME_SETTINGS: [(&str, &str); 9] = [
    ("write-policy", "through, back or back-volatile"),
    ("cache-share", "a number from 0 to 10000"),
    ("read-ahead", "off, adaptive, or a size from 4KiB to 64MiB"),
    ("iops", "a number above zero, or off"),
    ("bandwidth", "a rate such as 100MiB/s, or off"),
    ("burst", "a time span of at most 1h, such as 100ms"),
    ("guarantee-iops", "a number above zero, or off"),
    ("priority", "a number from 1 to 10000"),
    ("removable", "yes or no"),
];

const SETTINGS: Settings<9> = Settings { owner: "volume", names: VOLUME_SETTINGS };

impl VolumePolicy {
    /// Sets `key` to `value`.
    ///
    /// *Errors*: unknown setting, invalid value, or contradiction to another setting.
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
            // `SETTINGS.wrong` has rejected all unknown keys, so this is `removable`.
            _ => self.removable = yes_or_no(value).ok_or_else(wrong)?,
        }
        // A guarantee above the limit could not be met.
        in_order(("guarantee-iops", self.guarantee_iops), ("iops", self.iops), u64::to_string)
    }

    /// Returns all settings with their values, in the form that [`VolumePolicy::set`] accepts.
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
    unsigned(text).filter(|number| range.contains(number))
}

fn positive(text: &str) -> Option<u64> {
    // A limit of zero would stop the volume; `off` removes the limit.
    unsigned(text).filter(|&number| number > 0)
}

fn span(text: &str) -> Option<Span> {
    // Zero is permitted: it disables bursts.
    text.parse().ok().filter(|span: &Span| span.millis() <= 3_600_000)
}

impl WritePolicy {
    const ALL: [Self; 3] = [Self::Through, Self::Back, Self::BackVolatile];

    /// Returns the policy as one word.
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
        // States of earlier versions contain sizes without a unit, such as `5000`.
        let stored = || unsigned(&text).map(Size::new).ok_or(()).and_then(Self::fixed);
        text.parse().or_else(|()| stored()).map_err(|()| "off, adaptive, or a size from 4KiB to 64MiB")
    }
}

impl From<ReadAhead> for String {
    fn from(read_ahead: ReadAhead) -> Self {
        read_ahead.to_string()
    }
}

/// Cache counters of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheReport {
    /// Bytes read from the cache.
    pub hits: Size,
    /// Bytes for which readers had to wait.
    pub misses: Size,
    /// Bytes read ahead.
    pub ahead: Size,
    /// Part of these that was evicted before it was used.
    pub ahead_wasted: Size,
    /// Memory occupied by the volume, in bytes.
    pub used: Size,
    /// Acknowledged bytes that are not on the disks yet.
    pub dirty: Size,
    /// Number of dirty pieces that the disks reject, or whose content is lost.
    pub stuck: u64,
}

impl CacheReport {
    /// Returns the percentage of read bytes that came from the cache; `None` while nothing was read.
    #[must_use]
    pub fn hit_percent(&self) -> Option<u64> {
        // The product needs 128 bits, because the counters only increase.
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
            ("iops", "+5"),
            ("bandwidth", "0"),
            ("bandwidth", "559513/s"),
            ("burst", "2h"),
            ("burst", "3600001ms"),
            ("priority", "0"),
            ("priority", "+5"),
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
