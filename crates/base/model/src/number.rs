//! Decimal numbers in texts of operators, files and other arrays.

use std::str::FromStr;

/// Parses a decimal number of digits alone; `None` for anything else, and for a number that the type does not hold.
pub(crate) fn unsigned<T: FromStr>(text: &str) -> Option<T> {
    // `parse` of an integer accepts a leading `+`. The patterns of the API do not, and no number is shown with one.
    if text.bytes().all(|c| c.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_digits_only() {
        assert_eq!((unsigned("7"), unsigned("007"), unsigned("255")), (Some(7_u8), Some(7_u8), Some(255_u8)));
        for text in ["", "+7", "-7", "256", "7 ", "0x7"] {
            assert_eq!(unsigned::<u8>(text), None, "{text}");
        }
    }
}
