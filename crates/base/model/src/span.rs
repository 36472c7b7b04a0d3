//! Time spans: parsing and display.

use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Time span in whole milliseconds. Written as `20ms`, `5s`, `90min` (or `90m`), `2h`, `7d`, `1w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^ *[0-9]{1,20} *(w|d|h|min|m|s|ms) *$", "examples" = ["20ms", "90min", "7d"]))]
pub struct Span(u64);

/// Units, longest first; of two names for one unit the first is used for display.
const UNITS: [(&str, u64); 7] = [
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("min", 60_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl Span {
    /// Returns a span of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the span in milliseconds.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Returns the span in whole seconds, rounded down.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the span as a [`Duration`].
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Zero is a multiple of every unit and is written in seconds.
        let (unit, millis) =
            UNITS.into_iter().find(|(_, millis)| self.0 > 0 && self.0.is_multiple_of(*millis)).unwrap_or(("s", 1_000));
        f.pad(&format!("{}{unit}", self.0 / millis))
    }
}

impl FromStr for Span {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let trimmed = text.trim();
        // A sign or a fraction ends up in the unit, where it is unknown.
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let millis = UNITS.into_iter().find(|(name, _)| *name == unit.trim()).map(|(_, millis)| millis);
        let span = number.parse::<u64>().ok().zip(millis).and_then(|(number, millis)| number.checked_mul(millis));
        span.map(Self).ok_or_else(|| {
            let hint = "write a number with a unit, such as 20ms, 5s, 90min, 2h or 7d";
            Refusal::new(code::TIME_INVALID, format!("{} is not a time span", quoted(text)), hint)
        })
    }
}

impl TryFrom<String> for Span {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn span_is_read_in_every_unit_and_written_in_the_largest_that_fits() {
        for (text, millis, written) in [
            ("20ms", 20, "20ms"),
            ("1000ms", 1_000, "1s"),
            ("90m", 5_400_000, "90min"),
            ("2 h", 7_200_000, "2h"),
            ("14d", 1_209_600_000, "2w"),
            ("0s", 0, "0s"),
        ] {
            let span: Span = text.parse().expect(text);
            assert_eq!((span.millis(), span.to_string().as_str()), (millis, written));
        }
        for text in ["", "2", "h", "-1h", "1.5h", "2 hours", "99999999999999999999s", "99999999999999999w"] {
            assert_eq!(text.parse::<Span>().expect_err(text).code, code::TIME_INVALID, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn span_text_round_trips(millis: u64) {
            prop_assert_eq!(Span(millis).to_string().parse(), Ok(Span(millis)));
        }
    }
}
