//! iSCSI names: validation and normalization.
//!
//! *Source*: RFC 7143 §4.2.7; RFC 3722.

use std::fmt;

/// Maximum length of a name in bytes (RFC 7143 §4.2.7.1).
pub const NAME_BYTES_MAX: usize = 223;

/// Valid name in lower case, so that equal names have equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(Box<str>);

/// Reason for refusing a name, as a sentence for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// §4.2.7.1: at most 223 bytes.
    #[error("an iSCSI name has 1 to 223 bytes")]
    Length,
    /// §4.2.7.3: one of the three formats.
    #[error("an iSCSI name begins with \"iqn.\", \"eui.\" or \"naa.\"")]
    Format,
    /// §4.2.7.2: letters, digits, ".", "-" and ":". "_" is accepted as well, because names in use contain it.
    #[error("an iSCSI name has letters, digits, \".\", \"-\", \":\" and \"_\" only")]
    Character,
    /// §4.2.7.4: the date and the domain of the authority.
    #[error("an iqn name begins like iqn.2026-01.com.example, with the month in which its owner had the domain")]
    Authority,
    /// §4.2.7.5, §4.2.7.6: an identifier in hexadecimal.
    #[error("an eui name has 16 hexadecimal digits behind \"eui.\", an naa name 16 or 32 behind \"naa.\"")]
    Identifier,
}

impl IscsiName {
    /// Parses and normalizes a name.
    ///
    /// *Errors*: the violated rule.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(NameError::Length);
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte)) {
            return Err(NameError::Character);
        }
        // RFC 3722 folds case; behind the check of the characters only ASCII letters are affected.
        let name = text.to_ascii_lowercase();
        match name.split_once('.') {
            Some(("iqn", rest)) => check_authority(rest)?,
            Some(("eui", digits)) => check_identifier(digits, &[16])?,
            Some(("naa", digits)) => check_identifier(digits, &[16, 32])?,
            _ => return Err(NameError::Format),
        }
        Ok(Self(name.into()))
    }

    /// Returns the name in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks `yyyy-mm.` and a domain, optionally followed by `:` and any text.
fn check_authority(rest: &str) -> Result<(), NameError> {
    let (date, rest) = rest.split_once('.').ok_or(NameError::Authority)?;
    let (year, month) = date.split_once('-').ok_or(NameError::Authority)?;
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    let month_exists = digits(month, 2) && matches!(month.parse(), Ok(1u8..=12));
    // The text behind the colon has no form: the owner of the domain assigns it (RFC 7143 §4.2.7.4).
    let domain = rest.split(':').next().unwrap_or_default();
    if digits(year, 4) && month_exists && !domain.is_empty() { Ok(()) } else { Err(NameError::Authority) }
}

fn check_identifier(digits: &str, lengths: &[usize]) -> Result<(), NameError> {
    let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hexadecimal && lengths.contains(&digits.len()) { Ok(()) } else { Err(NameError::Identifier) }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Examples of RFC 7143 §4.2.7.4 to §4.2.7.6.
    #[test]
    fn name_examples_of_the_standard_are_names() {
        for name in [
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "iqn.2001-04.com.example",
            "iqn.2001-04.com.example:storage.tape1.sys1.xyz",
            "eui.02004567A425678D",
            "naa.52004567BA64678D",
            "naa.62004567BA64678D0123456789ABCDEF",
        ] {
            assert_eq!(IscsiName::parse(name).unwrap().as_str(), name.to_ascii_lowercase());
        }
    }

    #[test]
    fn name_case_makes_no_difference() {
        let (a, b) = (IscsiName::parse("IQN.2001-04.com.Example:A"), IscsiName::parse("iqn.2001-04.com.example:a"));
        assert_eq!(a.unwrap(), b.unwrap());
    }

    #[test]
    fn name_that_breaks_a_rule_is_told_which() {
        for (name, broken) in [
            ("", NameError::Length),
            ("disk", NameError::Format),
            ("urn.2001-04.com.example", NameError::Format),
            ("iqn.2001-04.com.example:a b", NameError::Character),
            ("iqn.2001-04.com.example:é", NameError::Character),
            ("iqn.2001-13.com.example", NameError::Authority),
            ("iqn.2001-4.com.example", NameError::Authority),
            ("iqn.2001-04.", NameError::Authority),
            ("iqn.2001-04.:x", NameError::Authority),
            ("iqn.com.example", NameError::Authority),
            ("eui.02004567A425678", NameError::Identifier),
            ("naa.5200456", NameError::Identifier),
            ("naa.52004567BA64678G", NameError::Identifier),
        ] {
            assert_eq!(IscsiName::parse(name), Err(broken), "{name}");
        }
        let longest = format!("iqn.2001-04.com.example:{}", "x".repeat(NAME_BYTES_MAX - 24));
        assert!(IscsiName::parse(&longest).is_ok());
        assert_eq!(IscsiName::parse(&format!("{longest}x")), Err(NameError::Length));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn name_of_any_text_never_panics_and_is_its_own_normal_form(text in "(iqn|eui|naa)?\\PC{0,40}") {
            if let Ok(name) = IscsiName::parse(&text) {
                prop_assert_eq!(IscsiName::parse(name.as_str()), Ok(name));
            }
        }
    }
}
