//! Policies of a pool: repair, scrub, space thresholds and error limits, as set with `pool set`.

use crate::number::unsigned;
use crate::setting::{Settings, as_rate, in_order, or_off, rate, shown};
use crate::{ParseRefusal, Refusal, Size, Span, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Policies of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoolPolicy {
    /// Repair policy: rates of rebuild, resync and scrub, and error limits of members.
    pub repair: RepairPolicy,
    /// Schedule of automatic scrubs.
    pub scrub: ScrubPolicy,
    /// Thresholds of the fill level.
    pub space: SpacePolicy,
    /// Time to wait for missing disks before the pool is opened degraded, from the arrival of the latest disk. Default
    /// 30 s.
    pub wait: Option<Span>,
}

/// Thresholds of the fill level of a pool, in percent, for alerts and for hosts. 0 disables a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SpacePolicy {
    /// Soft threshold: more disks should be planned. Default 80.
    pub soft: u8,
    /// Hard threshold: the pool will be full soon and reject writes. Default 95.
    pub hard: u8,
}

impl Default for SpacePolicy {
    fn default() -> Self {
        Self { soft: 80, hard: 95 }
    }
}

/// Repair policy of a pool: rates, and permitted effect on host I/O. Rates count the bytes of the pool, as `pool show`
/// does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RepairPolicy {
    /// Priority of repairs relative to host I/O.
    pub mode: RepairMode,
    /// Minimum rate in bytes per second, regardless of host I/O.
    pub min: Option<Size>,
    /// Maximum rate in bytes per second.
    pub max: Option<Size>,
    /// Time after which a rebuild must be complete, regardless of the effect on host I/O.
    pub done_by: Option<Span>,
    /// Upper limit of the mean latency of host commands during repairs.
    pub latency: Option<Span>,
    /// True while repairs are paused.
    pub paused: bool,
    /// Time without a response after which a member is removed from service if no redundancy remains without it.
    /// Default 8 s.
    pub deadline: Option<Span>,
    /// Limits of errors and latency beyond which a member is copied to a spare.
    pub errors: ErrorPolicy,
}

/// Limits of errors and latency of a member. Beyond them, the member is copied to a spare and then removed from the
/// pool. An absent limit is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ErrorPolicy {
    /// Number of failed or wrong reads within 24 hours. Default 100.
    pub count: Option<u32>,
    /// Percentage of failed or wrong reads in the last minute. Default 30. Without a spare, the member is removed from
    /// service if its group can serve without it.
    pub rate: Option<u8>,
    /// Time for which the member is many times slower than the other members. Default 30 min.
    pub slow: Option<Span>,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        Self { count: Some(100), rate: Some(30), slow: Some(Span::from_millis(30 * 60_000)) }
    }
}

/// Priority of repairs relative to host I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairMode {
    /// Only while hosts are idle, apart from a small minimum rate.
    Idle,
    /// A third of the time while hosts are active, and all of it while they are idle.
    #[default]
    Balanced,
    /// As fast as the disks permit.
    Fast,
}

/// Schedule of automatic scrubs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScrubPolicy {
    /// Interval.
    pub every: ScrubEvery,
    /// Permitted hours; absent means any time.
    pub window: Option<Window>,
}

/// Interval of automatic scrubs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubEvery {
    /// No automatic scrubs.
    #[default]
    Off,
    /// Every seven days.
    Weekly,
    /// Every thirty days.
    Monthly,
}

/// Hours of each day in UTC, written as `22:00-06:00`; the window may extend past midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"))]
pub struct Window {
    from_minute: u16,
    until_minute: u16,
}

/// Settings of a pool: names and permitted values.
pub const POOL_SETTINGS: [(&str, &str); 14] = [
    ("rebuild", "idle, balanced or fast"),
    ("rebuild.min", "a rate such as 10MiB/s, or off"),
    ("rebuild.max", "a rate such as 200MiB/s, or off"),
    ("rebuild.done-by", "a time span such as 2h, or off"),
    ("rebuild.latency", "a time span such as 20ms, or off"),
    ("disk.deadline", "a time span from 2s to 25s, 8s by default"),
    ("disk.wait", "a time span from 0s to 1h, 30s by default"),
    ("disk.errors", "a count from 1 to 1000000 in 24 hours, or off"),
    ("disk.error-rate", "a percentage of reads such as 30%, or off"),
    ("disk.slow", "a time span such as 30m, or off"),
    ("scrub", "weekly, monthly or off"),
    ("scrub.window", "hours in UTC such as 22:00-06:00, or off"),
    ("space.soft", "a percentage such as 80%, or off"),
    ("space.hard", "a percentage such as 95%, or off"),
];

/// Default of `disk.deadline`: time without a response after which a member is removed from service if no redundancy
/// remains without it.
pub const DISK_DEADLINE: Span = Span::from_millis(8_000);
/// Default of `disk.wait`: time from the arrival of the latest disk after which a pool is opened degraded.
pub const DISK_WAIT: Span = Span::from_millis(30_000);

const SETTINGS: Settings<14> = Settings { owner: "pool", names: POOL_SETTINGS };

impl PoolPolicy {
    /// Sets `key` to `value`.
    ///
    /// *Errors*: unknown setting, invalid value, or contradiction to another setting.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let wrong = SETTINGS.wrong(key, value)?;
        let repair = &mut self.repair;
        match key {
            "rebuild" => repair.mode = value.parse().map_err(|()| wrong())?,
            "rebuild.min" => repair.min = or_off(value, rate).ok_or_else(wrong)?,
            "rebuild.max" => repair.max = or_off(value, rate).ok_or_else(wrong)?,
            "rebuild.done-by" => repair.done_by = or_off(value, span).ok_or_else(wrong)?,
            "rebuild.latency" => repair.latency = or_off(value, span).ok_or_else(wrong)?,
            // A default value is stored as `None`, so that it does not differ from one that was never set.
            "disk.deadline" => {
                repair.deadline = Some(deadline(value).ok_or_else(wrong)?).filter(|&set| set != DISK_DEADLINE)
            }
            "disk.wait" => self.wait = Some(wait(value).ok_or_else(wrong)?).filter(|&set| set != DISK_WAIT),
            "disk.errors" => repair.errors.count = or_off(value, count).ok_or_else(wrong)?,
            "disk.error-rate" => repair.errors.rate = or_off(value, percent).ok_or_else(wrong)?,
            "disk.slow" => repair.errors.slow = or_off(value, span).ok_or_else(wrong)?,
            "scrub" => self.scrub.every = value.parse().map_err(|()| wrong())?,
            "scrub.window" => self.scrub.window = or_off(value, |text| text.parse().ok()).ok_or_else(wrong)?,
            "space.soft" => self.space.soft = or_off(value, percent).ok_or_else(wrong)?.unwrap_or(0),
            // `SETTINGS.wrong` has rejected all unknown keys, so this is `space.hard`.
            _ => self.space.hard = or_off(value, percent).ok_or_else(wrong)?.unwrap_or(0),
        }
        // Zero disables a threshold: a disabled hard threshold is no bound for the soft one.
        let hard = Some(self.space.hard).filter(|&hard| hard > 0);
        // Checked after the change: callers work on a copy, which they drop on an error.
        in_order(("space.soft", Some(self.space.soft)), ("space.hard", hard), |percent| format!("{percent}%"))?;
        // A minimum above the maximum could not be met.
        in_order(("rebuild.min", self.repair.min), ("rebuild.max", self.repair.max), as_rate)
    }

    /// Returns all settings with their values, in the form that [`PoolPolicy::set`] accepts.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 14] {
        // Zero is the stored form of `off`.
        let threshold = |percent: u8| shown((percent > 0).then(|| format!("{percent}%")));
        let repair = &self.repair;
        SETTINGS.with([
            repair.mode.as_str().to_owned(),
            shown(repair.min.as_ref().map(as_rate)),
            shown(repair.max.as_ref().map(as_rate)),
            shown(repair.done_by),
            shown(repair.latency),
            // `None` means the default for these two. They cannot be disabled, so `off` would not parse.
            repair.deadline.unwrap_or(DISK_DEADLINE).to_string(),
            self.wait.unwrap_or(DISK_WAIT).to_string(),
            shown(repair.errors.count),
            shown(repair.errors.rate.map(|rate| format!("{rate}%"))),
            shown(repair.errors.slow),
            self.scrub.every.as_str().to_owned(),
            shown(self.scrub.window),
            threshold(self.space.soft),
            threshold(self.space.hard),
        ])
    }
}

/// Parses a percentage from 1 to 100.
fn percent(text: &str) -> Option<u8> {
    // Zero is reserved for `off`.
    unsigned(text.strip_suffix('%').unwrap_or(text)).filter(|percent| (1..=100).contains(percent))
}

/// Parses a count from 1 to one million.
fn count(text: &str) -> Option<u32> {
    unsigned(text).filter(|count| (1..=1_000_000).contains(count))
}

/// Parses a nonzero time span.
fn span(text: &str) -> Option<Span> {
    // Zero would be exceeded at once; `off` disables the setting.
    text.parse().ok().filter(|span: &Span| span.millis() > 0)
}

/// Parses a deadline from 2 s to 25 s. Initiators abort a command after 30 s at the earliest.
fn deadline(text: &str) -> Option<Span> {
    span(text).filter(|span| (2_000..=25_000).contains(&span.millis()))
}

/// Parses a time span of at most one hour.
fn wait(text: &str) -> Option<Span> {
    // Zero is permitted: the pool is then opened degraded without a wait.
    text.parse().ok().filter(|span: &Span| span.millis() <= 3_600_000)
}

impl RepairMode {
    const ALL: [Self; 3] = [Self::Idle, Self::Balanced, Self::Fast];

    /// Returns the mode as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Balanced => "balanced",
            Self::Fast => "fast",
        }
    }
}

impl FromStr for RepairMode {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or(())
    }
}

impl ScrubEvery {
    const ALL: [Self; 3] = [Self::Off, Self::Weekly, Self::Monthly];

    /// Returns the interval as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }

    /// Returns the interval in seconds; `None` without automatic scrubs.
    #[must_use]
    pub const fn seconds(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Weekly => Some(7 * 86_400),
            Self::Monthly => Some(30 * 86_400),
        }
    }
}

impl FromStr for ScrubEvery {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|every| every.as_str() == text).ok_or(())
    }
}

impl Window {
    /// Returns true if the second of the day is within the window.
    #[must_use]
    pub fn holds(self, second_of_day: u64) -> bool {
        let minute = second_of_day / 60;
        let (from, until) = (u64::from(self.from_minute), u64::from(self.until_minute));
        // Otherwise the window extends past midnight and consists of the two ends of the day.
        if from < until { (from..until).contains(&minute) } else { minute >= from || minute < until }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.from_minute, self.until_minute);
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

impl FromStr for Window {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let minute = |text: &str| -> Option<u16> {
            let (hour, minute) = text.split_once(':')?;
            let number =
                |text: &str, bound: u16| unsigned::<u16>(text).filter(|number| text.len() == 2 && *number < bound);
            Some(number(hour, 24)? * 60 + number(minute, 60)?)
        };
        let ends = text.split_once('-').and_then(|(from, until)| Some((minute(from)?, minute(until)?)));
        // Equal ends are ambiguous: no time at all, or the whole day.
        ends.filter(|(from, until)| from != until)
            .map(|(from_minute, until_minute)| Self { from_minute, until_minute })
            .ok_or_else(|| {
                let message = format!("{} is not a time window", quoted(text));
                Refusal::new(code::TIME_INVALID, message, "write the hours in UTC, such as 22:00-06:00")
            })
    }
}

impl TryFrom<String> for Window {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        window.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_settings_are_read_as_they_are_written() {
        let mut policy = PoolPolicy::default();
        for (key, value) in [
            ("rebuild", "fast"),
            ("rebuild.min", "10MiB/s"),
            ("rebuild.max", "200MiB/s"),
            ("rebuild.done-by", "2h"),
            ("rebuild.latency", "20ms"),
            ("disk.deadline", "12s"),
            ("disk.wait", "2min"),
            ("disk.errors", "250"),
            ("disk.error-rate", "5%"),
            ("disk.slow", "10min"),
            ("scrub", "weekly"),
            ("scrub.window", "22:30-06:00"),
            ("space.hard", "90%"),
            ("space.soft", "70%"),
        ] {
            policy.set(key, value).expect(key);
            assert!(policy.settings().contains(&(key, value.to_owned())), "{key}={value}: {:?}", policy.settings());
        }
        let mut again = PoolPolicy::default();
        policy.settings().iter().for_each(|(key, value)| again.set(key, value).expect(key));
        assert_eq!(again, policy);
        let never_off = ["rebuild", "disk.deadline", "disk.wait"];
        for (key, _) in POOL_SETTINGS.iter().filter(|(key, _)| !never_off.contains(key)) {
            policy.set(key, "off").expect(key);
        }
        policy.set("disk.deadline", "8s").expect("the default");
        policy.set("disk.wait", "30s").expect("the default");
        assert_eq!(policy.space, SpacePolicy { soft: 0, hard: 0 });
        policy.set("rebuild", "balanced").expect("the default");
        assert_eq!(policy.repair.errors, ErrorPolicy { count: None, rate: None, slow: None });
        (policy.space, policy.repair.errors) = Default::default();
        assert_eq!(policy, PoolPolicy::default());
    }

    #[test]
    fn policy_refuses_what_is_no_setting_and_says_what_would_be_right() {
        let mut policy = PoolPolicy::default();
        for (key, value) in [
            ("rebuilt", "fast"),
            ("rebuild", "faster"),
            ("rebuild.min", "0"),
            ("rebuild.max", "1000000"),
            ("rebuild.done-by", "0s"),
            ("rebuild.latency", "20"),
            ("disk.deadline", "off"),
            ("disk.deadline", "26s"),
            ("disk.wait", "off"),
            ("disk.wait", "2h"),
            ("disk.errors", "0"),
            ("disk.errors", "+5"),
            ("disk.error-rate", "0%"),
            ("disk.slow", "0s"),
            ("scrub", "daily"),
            ("scrub.window", "22:00-22:00"),
            ("scrub.window", "22-6"),
            ("scrub.window", "24:00-06:00"),
            ("space.soft", "0%"),
            ("space.hard", "101%"),
            ("space.hard", "+90%"),
        ] {
            let refusal = policy.set(key, value).expect_err(value);
            assert!(refusal.code == code::SETTING_INVALID && refusal.hint.starts_with("write "), "{refusal}");
        }
        assert_eq!(policy, PoolPolicy::default());
        policy.set("rebuild.max", "10MiB/s").expect("a rate");
        assert!(policy.set("rebuild.min", "11MiB/s").is_err());
        assert!(policy.set("space.soft", "96%").is_err(), "above the hard one");
    }

    #[test]
    fn window_may_pass_midnight() {
        let night: Window = "22:00-06:00".parse().expect("hours");
        let hours = |window: Window| (0..24).filter(|hour| window.holds(hour * 3600)).collect::<Vec<u64>>();
        assert_eq!(hours(night), [0, 1, 2, 3, 4, 5, 22, 23]);
        assert_eq!(hours("01:00-03:30".parse().expect("hours")), [1, 2, 3]);
    }
}
