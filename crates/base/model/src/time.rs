//! Calendar time: conversion, parsing and display.

use crate::number::unsigned;
use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Time in whole seconds, in UTC. Written according to RFC 3339: `2026-11-21T10:19:59Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("format" = "date-time", "pattern" = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}[Zz]$"))]
pub struct Timestamp(u64);

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Last second of the year 9999: later times have no four-digit year.
const LAST: u64 = 253_402_300_799;

impl Timestamp {
    /// Returns the time `seconds` after 1970-01-01T00:00:00Z, capped at the end of the year 9999.
    #[must_use]
    pub const fn from_unix(seconds: u64) -> Self {
        Self(if seconds > LAST { LAST } else { seconds })
    }

    /// Returns the seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn unix(self) -> u64 {
        self.0
    }

    /// Returns the time `seconds` later.
    #[must_use]
    pub const fn plus(self, seconds: u64) -> Self {
        Self::from_unix(self.0.saturating_add(seconds))
    }

    /// Returns the time `seconds` earlier, not before 1970.
    #[must_use]
    pub const fn minus(self, seconds: u64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }

    /// Returns the seconds since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the absolute difference in seconds.
    #[must_use]
    pub const fn apart(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Returns the seconds since midnight UTC.
    #[must_use]
    pub const fn second_of_day(self) -> u64 {
        self.0 % DAY
    }

    /// Returns year, month from 1, and day from 1.
    ///
    /// *Source*: proleptic Gregorian calendar, in eras of 400 years that begin on 1 March.
    fn date(self) -> (u64, u64, u64) {
        // Days since 1 March of the year 0, which is 719468 days before 1970-01-01.
        let days = self.0 / DAY + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        // Leap days of the era: the first day after 4, 100 and 400 years would otherwise count for the next year.
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months from March, whose lengths repeat every 153 days (five months).
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        // January and February belong to the year before in this count.
        (era * 400 + year_of_era + u64::from(month <= 2), month, day)
    }

    /// Returns the start of the day; `None` for an invalid date.
    fn of_date(year: u64, month: u64, day: u64) -> Option<Self> {
        // The arithmetic below would underflow on earlier years and on day zero.
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 {
            return None;
        }
        let shifted_year = if month <= 2 { year - 1 } else { year };
        let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
        let shifted_month = if month > 2 { month - 3 } else { month + 9 };
        let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        // No underflow: 1970-01-01 is day 719468 of this count, and earlier dates were rejected.
        let time = Self((era * 146_097 + day_of_era - 719_468) * DAY);
        // An excess day, such as 31 April, has become a day of the next month.
        (time.date() == (year, month, day)).then_some(time)
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |range: std::ops::Range<usize>| unsigned::<u64>(text.get(range)?);
        let is = |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|c| wanted.contains(c));
        // Fixed width: no fractions of a second, and no offset other than `Z`.
        let shaped = text.len() == 20 && is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
        if !shaped || !is(19, b"Zz") {
            return None;
        }
        let date = Self::of_date(number(0..4)?, number(5..7)?, number(8..10)?)?;
        let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
        // No second 60: Unix time has no leap seconds.
        (hour < 24 && minute < 60 && second < 60).then(|| date.plus(hour * HOUR + minute * MINUTE + second))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((year, month, day), second) = (self.date(), self.second_of_day());
        let (hour, minute, second) = (second / HOUR, second / MINUTE % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl FromStr for Timestamp {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::parse(text).ok_or_else(|| {
            let hint = "write it in UTC, such as 2026-11-21T10:19:59Z";
            Refusal::new(code::TIME_INVALID, format!("{} is not a time", quoted(text)), hint)
        })
    }
}

impl TryFrom<String> for Timestamp {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamp_is_written_as_the_calendar_has_it() {
        for (unix, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_893_456_000, "2030-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_unix(unix).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp::from_unix(unix)));
        }
        assert_eq!(Timestamp::from_unix(u64::MAX), Timestamp::from_unix(LAST));
    }

    #[test]
    fn timestamp_refuses_what_is_no_time() {
        for text in [
            "",
            "yesterday",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+01:00",
            "2026-01-01T00:+0:00Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(text.parse::<Timestamp>().expect_err(text).code, code::TIME_INVALID);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn timestamp_text_round_trips(unix in 0..=LAST) {
            let time = Timestamp::from_unix(unix);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
