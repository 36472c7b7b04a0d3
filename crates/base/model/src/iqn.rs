//! iSCSI names.

use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of an iSCSI name in bytes (RFC 7143 §4.2.7.1).
const ISCSI_NAME_BYTES_MAX: usize = 223;

/// iSCSI name of an initiator or a target in lower case: `iqn.…`, `eui.…` or `naa.…`.
///
/// *Source*: RFC 7143 §4.2.7. Names outside of ASCII are rejected; `_` is accepted because initiators use it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("maxLength" = 223, "pattern" = "^([Ii][Qq][Nn]\\.[0-9]{4}-(0[1-9]|1[0-2])\\.[A-Za-z0-9][A-Za-z0-9.:_-]*|[Ee][Uu][Ii]\\.[0-9A-Fa-f]{16}|[Nn][Aa][Aa]\\.([0-9A-Fa-f]{16}|[0-9A-Fa-f]{32}))$"))]
pub struct Iqn(String);

impl Iqn {
    /// Returns the name as text, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Iqn {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // iSCSI names are compared without regard to case; one spelling makes equality a comparison of bytes.
        let name = text.to_ascii_lowercase();
        let hex = |digits: &str, lengths: &[usize]| {
            lengths.contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_hexdigit())
        };
        let good = name.len() <= ISCSI_NAME_BYTES_MAX
            && match name.split_once('.') {
                Some(("iqn", rest)) => is_qualified(rest),
                // Hexadecimal identifiers of fixed lengths: 64 bits, or for naa also 128 (RFC 7143 §4.2.7.5).
                Some(("eui", digits)) => hex(digits, &[16]),
                Some(("naa", digits)) => hex(digits, &[16, 32]),
                // RFC 7143 §4.2.7.3 defines these three types only.
                _ => false,
            };
        if good {
            return Ok(Self(name));
        }
        Err(Refusal::new(
            code::IQN_INVALID,
            format!("{} is not an iSCSI name", quoted(text)),
            "write it as the initiator shows it, such as iqn.1993-08.org.debian:01:abc123, eui.0123456789abcdef or naa.…",
        ))
    }
}

/// Returns true for `yyyy-mm.` and a reversed domain name, optionally followed by `:` and a suffix.
fn is_qualified(rest: &str) -> bool {
    let Some((date, authority)) = rest.split_once('.') else { return false };
    // Month in which the naming authority owned the domain (RFC 7143 §4.2.7.4).
    let Some((year, month)) = date.split_once('-') else { return false };
    let number = |digits: &str, len: usize| digits.len() == len && digits.bytes().all(|c| c.is_ascii_digit());
    let month_in_year = month.parse::<u8>().is_ok_and(|month| (1..=12).contains(&month));
    // The caller has folded the name to lower case.
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.' | b':' | b'_');
    // A domain label begins with a letter or a digit (RFC 1123 §2.1).
    let begins_well = authority.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    number(year, 4) && number(month, 2) && month_in_year && begins_well && authority.bytes().all(allowed)
}

impl TryFrom<String> for Iqn {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Iqn> for String {
    fn from(iqn: Iqn) -> Self {
        iqn.0
    }
}

impl fmt::Display for Iqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn iqn_is_lower_cased_and_compared_so() {
        let shouted: Iqn = "IQN.1991-05.com.Microsoft:HOST".parse().expect("a name");
        assert_eq!(shouted, "iqn.1991-05.com.microsoft:host".parse().expect("a name"));
    }

    #[test]
    fn iqn_takes_all_three_types_of_name() {
        for text in
            ["iqn.2001-04.com.example", "eui.02004567a425678d", "naa.52004567ba64678d", "iqn.1994-05.com.redhat:a_b"]
        {
            assert!(text.parse::<Iqn>().is_ok(), "{text}");
        }
        assert!(format!("naa.{}", "0".repeat(32)).parse::<Iqn>().is_ok());
    }

    #[test]
    fn iqn_refuses_what_no_initiator_sends() {
        let long = format!("iqn.2001-04.com.example:{}", "a".repeat(223));
        for text in [
            "",
            "iqn",
            "iqn.",
            "iqn.2001-04",
            "iqn.2001-04.",
            "iqn.2001-13.com.x",
            "iqn.2001-00.com.x",
            "iqn.1-04.com.x",
            "iqn.2001-04.com.x y",
            "iqn.2001-04.com.x\0",
            "eui.123",
            "eui.02004567a425678g",
            "naa.1234",
            "host",
            long.as_str(),
        ] {
            assert_eq!(text.parse::<Iqn>().expect_err(text).code, code::IQN_INVALID, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn iqn_round_trips(tail in "[a-z0-9][a-z0-9.:-]{0,100}") {
            let text = format!("iqn.2026-11.{tail}");
            let iqn: Iqn = text.parse().expect("a name");
            prop_assert_eq!(iqn.as_str(), text);
        }

        #[test]
        fn iqn_parser_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Iqn>();
        }
    }
}
