//! Amounts of bytes: parsing and display.

use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::generate::Contract;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Number of bytes.
///
/// Accepts `100GiB`, `100G` (the same), `1.5TiB`, `100GB` (decimal) and `512B`. Text without a unit is rejected, except
/// for `0`, because some readers would take it for bytes and others for GiB. Displayed in both units,
/// `100 GiB (107.4 GB)`. Serialized as an integer number of bytes; deserialized from an integer or from text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

/// Binary units, largest first, with the letter that may be used alone.
const BINARY: [(char, &str, u64); 6] = [
    ('E', "EiB", 1 << 60),
    ('P', "PiB", 1 << 50),
    ('T', "TiB", 1 << 40),
    ('G', "GiB", 1 << 30),
    ('M', "MiB", 1 << 20),
    ('K', "KiB", 1 << 10),
];

/// Decimal units, largest first.
const DECIMAL: [(&str, u64); 6] = [
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

impl Size {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Returns a size of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns `n` MiB (2^20 bytes).
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Returns `n` GiB (2^30 bytes).
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the size rounded up to a multiple of `unit`; unchanged if that would overflow.
    #[must_use]
    pub const fn up_to_whole(self, unit: u64) -> Self {
        match self.0.checked_next_multiple_of(unit) {
            Some(bytes) => Self(bytes),
            None => self,
        }
    }

    /// Formats the size in binary units with at most two decimals: `1.5 TiB`, `512 B`.
    #[must_use]
    pub fn iec(self) -> String {
        match BINARY.iter().find(|(_, _, unit)| self.0 >= *unit) {
            Some((_, name, unit)) => format!("{} {name}", scaled(self.0, *unit, 2)),
            None => format!("{} B", self.0),
        }
    }

    /// Formats like [`Size::iec`], but rounds down for available space and `up` for required space, so that an
    /// insufficient amount does not appear sufficient.
    #[must_use]
    pub fn iec_rounded(self, up: bool) -> String {
        let Some((_, _, unit)) = BINARY.iter().find(|(_, _, unit)| self.0 >= *unit) else { return self.iec() };
        // Rounded down to hundredths of the unit.
        let hundredths = u128::from(self.0) * 100 / u128::from(*unit);
        let exact = hundredths * u128::from(*unit) == u128::from(self.0) * 100;
        let hundredths = if up && !exact { hundredths + 1 } else { hundredths };
        // Rounded up to whole bytes, so that `iec` does not drop to the preceding hundredth.
        let bytes = (hundredths * u128::from(*unit)).div_ceil(100);
        Self(u64::try_from(bytes).unwrap_or(u64::MAX)).iec()
    }

    /// Formats the size in decimal units with at most one decimal, as disk vendors do: `107.4 GB`.
    #[must_use]
    pub fn decimal(self) -> String {
        match DECIMAL.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) => format!("{} {name}", scaled(self.0, *unit, 1)),
            None => format!("{} B", self.0),
        }
    }

    /// Returns the shortest text that parses to exactly this size: `64KiB`, `1000B`, `0`.
    #[must_use]
    pub fn exact(self) -> String {
        match BINARY.iter().find(|(_, _, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((_, name, unit)) => format!("{}{name}", self.0 / unit),
            None if self.0 == 0 => "0".to_owned(),
            None => format!("{}B", self.0),
        }
    }
}

/// Formats `bytes / unit`, rounded to `decimals` places, without trailing zeros.
fn scaled(bytes: u64, unit: u64, decimals: u32) -> String {
    // 128 bits: the scaled number of bytes can exceed 64 bits.
    let scale = 10_u128.pow(decimals);
    let hundredths = (u128::from(bytes) * scale + u128::from(unit) / 2) / u128::from(unit);
    let (whole, part) = (hundredths / scale, hundredths % scale);
    let digits = format!("{part:0width$}", width = decimals as usize);
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
}

impl FromStr for Size {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let refused = |message| {
            let hint = "write a number with a unit, such as 1GiB, 1.5TiB, 100GB or 512B";
            Refusal::new(code::SIZE_INVALID, message, hint)
        };
        // Zero is unambiguous without a unit.
        let unit = if number == "0" && unit.is_empty() { "B" } else { unit.trim() };
        // A number without a unit gets a message of its own.
        if unit.is_empty() && number.parse::<f64>().is_ok() {
            return Err(refused(format!("size {} has no unit", quoted(trimmed))));
        }
        let size = unit_bytes(unit).and_then(|unit| multiply(number, unit)).map(Self);
        size.ok_or_else(|| refused(format!("{} is not a size", quoted(text))))
    }
}

fn unit_bytes(unit: &str) -> Option<u64> {
    // Case has no meaning: there are no units of bits here.
    if unit.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let binary = BINARY.iter().find(|(letter, name, _)| {
        unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(letter.encode_utf8(&mut [0; 4]))
    });
    let decimal = DECIMAL.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
    // A single letter is binary, as in the output of `lsblk` and `df -h`.
    binary.map(|(_, _, bytes)| *bytes).or(decimal.map(|(_, bytes)| *bytes))
}

/// Returns `number` times `unit` if it is a whole number of bytes that fits into 64 bits.
fn multiply(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    // At most 18 decimals, so that their digits fit into 64 bits.
    if whole.is_empty() || part.len() > 18 || (part.is_empty() && number.contains('.')) {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(part.len()).ok()?);
    let whole = u128::from(whole.parse::<u64>().ok()?);
    let part = if part.is_empty() { 0 } else { u128::from(part.parse::<u64>().ok()?) };
    // The first product fits into 128 bits: 64 bits times at most 10^18. The second one may not.
    let scaled = (whole * scale).checked_add(part)?.checked_mul(u128::from(unit))?;
    // Fractions of a byte are rejected instead of rounded.
    if scaled.is_multiple_of(scale) { u64::try_from(scaled / scale).ok() } else { None }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Below 1000 bytes both forms are equal.
        if self.0 < 1000 { write!(f, "{} B", self.0) } else { write!(f, "{} ({})", self.iec(), self.decimal()) }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Requires a self-describing format. States and requests are JSON or TOML.
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut bytes = json_schema!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
        // Responses contain integers only; text is accepted in requests.
        if *generator.contract() == Contract::Serialize {
            bytes.insert("description".to_owned(), "Bytes.".into());
            return bytes;
        }
        let text = r"^ *(0|[0-9]{1,20}(\.[0-9]{1,18})? *([KkMmGgTtPpEe]([Ii]?[Bb])?|[Bb])) *$";
        json_schema!({
            "description": "Bytes, as a number, or as text with a unit: `100GiB`, `1.5TiB`, `100GB`, `512B`. Text without a unit is refused.",
            "anyOf": [bytes, { "type": "string", "pattern": text, "examples": ["100GiB", "1.5TiB"] }],
        })
    }
}

struct Visitor;

impl serde::de::Visitor<'_> for Visitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size, such as 1073741824 or \"1GiB\"")
    }

    fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
        // Formats with signed integers only, such as TOML, pass all numbers here.
        u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size must not be negative"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(|refusal: Refusal| E::custom(ParseRefusal::from(refusal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn size_that_is_too_small_does_not_look_enough() {
        let said = |bytes, up| Size::new(bytes).iec_rounded(up);
        assert_eq!((said((64 << 20) - 1, false), said(64 << 20, true)), ("63.99 MiB".to_owned(), "64 MiB".to_owned()));
        assert_eq!((said((64 << 20) + 1, true), said(512, true)), ("64.01 MiB".to_owned(), "512 B".to_owned()));
    }

    #[test]
    fn size_parses_binary_and_decimal_units() {
        for (text, bytes) in [
            ("100GiB", 100 << 30),
            ("100G", 100 << 30),
            ("100 gib", 100 << 30),
            ("1.5TiB", 3 << 39),
            ("100GB", 100_000_000_000),
            ("64k", 65_536),
            ("512B", 512),
            ("512 b", 512),
            ("0", 0),
            ("0B", 0),
            ("16EiB", u64::MAX),
        ] {
            let parsed = text.parse::<Size>();
            if text == "16EiB" {
                assert!(parsed.is_err(), "2^64 does not fit");
            } else {
                assert_eq!(parsed.expect(text).bytes(), bytes, "{text}");
            }
        }
    }

    #[test]
    fn size_refuses_what_is_no_amount() {
        for text in
            ["", "GiB", "ten", "1.5", "-1", "1e9", "1..5G", "1.G", ".5G", "10 bananas", "1.0000000001KiB", "1 0G"]
        {
            let refusal = text.parse::<Size>().expect_err(text);
            assert_eq!(refusal.code, code::SIZE_INVALID, "{text}");
        }
    }

    #[test]
    fn size_without_a_unit_is_refused_and_told_what_to_write() {
        for text in ["1", "512", "1073741824", "1.5", " 7 ", "00"] {
            let refusal = text.parse::<Size>().expect_err(text);
            assert_eq!(refusal.code, code::SIZE_INVALID, "{text}");
            let sentence = format!(
                "size \"{}\" has no unit; write a number with a unit, such as 1GiB, 1.5TiB, 100GB or 512B",
                text.trim()
            );
            assert_eq!(refusal.to_string(), sentence);
        }
        assert!(serde_json::from_str::<Size>("\"4096\"").is_err(), "text in JSON wants a unit");
        assert_eq!(serde_json::from_str::<Size>("4096").expect("bytes"), Size::new(4096), "a number in JSON is bytes");
    }

    #[test]
    fn size_displays_both_ways() {
        assert_eq!(Size::gib(100).to_string(), "100 GiB (107.4 GB)");
        assert_eq!(Size::new(3 << 39).iec(), "1.5 TiB");
        assert_eq!(Size::new(12_000_138_625_024).to_string(), "10.91 TiB (12 TB)");
        assert_eq!(Size::new(512).to_string(), "512 B");
    }

    #[test]
    fn size_is_an_integer_in_json_and_read_from_text_too() {
        assert_eq!(serde_json::to_string(&Size::mib(1)).expect("json"), "1048576");
        assert_eq!(serde_json::from_str::<Size>("\"1MiB\"").expect("text"), Size::mib(1));
        assert!(serde_json::from_str::<Size>("-1").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn size_exact_text_round_trips(bytes: u64) {
            prop_assert_eq!(Size::new(bytes).exact().parse::<Size>().expect("own text").bytes(), bytes);
        }

        #[test]
        fn size_parser_never_panics(text in "[0-9.kmgtbieKMGTBIE -]{0,24}") {
            let _ = text.parse::<Size>();
        }
    }
}
