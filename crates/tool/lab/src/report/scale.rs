//! Scales of axes and their ticks.

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Linear scale.
    Linear {
        /// Start of the axis.
        low: f64,
        /// End of the axis.
        high: f64,
    },
    /// Logarithmic scale.
    Log {
        /// Start of the axis, above zero.
        low: f64,
        /// End of the axis.
        high: f64,
    },
}

/// Number of powers of ten that fit beside an axis.
const DECADES_MAX: f64 = 7.0;
/// Space above the greatest value, as a fraction of the range.
const ABOVE: f64 = 0.07;

impl Scale {
    /// Creates a linear scale from zero to a round number with space above every value.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        // An axis without a positive value needs a range as well.
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most, 4);
        Self::Linear { low: 0.0, high: (most * (1.0 + ABOVE) / step).ceil() * step }
    }

    /// Creates a logarithmic scale over the positive values, with space at both ends.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = ends(values.filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        // A single value also gets a range, because the start is below it.
        let low = least / 1.25;
        Self::Log { low, high: most * (most / low).powf(ABOVE).max(1.25) }
    }

    /// Creates a linear scale over the values, with space at both ends.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = ends(values).unwrap_or((0.0, 1.0));
        // A single value is in the middle.
        let room = if most > least { (most - least) * 0.04 } else { 1.0 };
        Self::Linear { low: least - room, high: most + room }
    }

    /// Returns the position of a value: 0 at the start, 1 at the end. On a logarithmic axis, values that are not
    /// positive are at the start.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } => ((value / low).ln() / (high / low).ln()).max(0.0),
        }
    }

    /// Returns round values between the ends, about `wanted` of them.
    pub(super) fn ticks(self, wanted: usize) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => {
                let step = step(high - low, wanted);
                // The tolerance keeps a tick that rounding puts just beyond the end.
                let (first, last) = ((low / step).ceil() as i64, (high / step * (1.0 + 1e-9)).floor() as i64);
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
            Self::Log { low, high } => {
                let decades = (high / low).log10();
                // Over few decades the powers of ten alone would be too few ticks.
                let of_a_decade: &[f64] = if decades < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = (decades / DECADES_MAX).ceil().max(1.0) as usize;
                let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                let ticks = (first..=last)
                    .step_by(every)
                    .flat_map(|power| of_a_decade.iter().map(move |n| n * 10_f64.powi(power)));
                ticks.filter(|tick| (low..=high).contains(tick)).collect()
            }
        }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends: Option<(f64, f64)>, value| {
        Some(ends.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
    })
}

/// Returns 1, 2 or 5 times a power of ten, so that about `wanted` steps make up `range`.
fn step(range: f64, wanted: usize) -> f64 {
    let raw = range / wanted.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    // The tolerance keeps a range that is a round number, but is computed slightly above it.
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| raw <= digit * power * (1.0 + 1e-9));
    digit.unwrap_or(10.0) * power
}

/// Formats a tick: `0`, `2.5`, `20k`, `1.2M`.
pub(super) fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{scaled:.3}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::from_zero([3.0, 87_000.0].into_iter()).ticks(4), [0.0, 50_000.0, 100_000.0]);
        assert_eq!(Scale::Linear { low: 0.0, high: 1.0 }.ticks(5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Scale::Log { low: 8.0, high: 300.0 }.ticks(4), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Scale::Log { low: 1.0, high: 1e10 }.ticks(4), [1.0, 100.0, 1e4, 1e6, 1e8, 1e10]);
        let written = [0.0, 0.25, 950.0, 20_000.0, 1.25e6, 2e9].map(short);
        assert_eq!(written, ["0", "0.25", "950", "20k", "1.25M", "2G"]);
    }

    proptest! {
        #[test]
        fn ticks_lie_on_the_axis_and_are_neither_few_nor_many(most in 1e-6..1e12) {
            let far = |times: f64| Scale::log([most / times, most].into_iter());
            for scale in [Scale::from_zero([most].into_iter()), far(8.0), far(900.0), far(1e6)] {
                let ticks = scale.ticks(4);
                prop_assert!((2..=12).contains(&ticks.len()), "{ticks:?}");
                prop_assert!(ticks.iter().all(|&tick| (-1e-9..=1.0 + 1e-9).contains(&scale.place(tick))), "{ticks:?}");
                prop_assert!(scale.place(most) <= 1.0 / (1.0 + ABOVE) + 1e-9, "no room to write the greatest value");
            }
        }
    }
}
