//! Minimal DER parser for certificates: validity and public key.
//!
//! *Source*: RFC 5280 §4.1, X.690 §8.1.

use model::Timestamp;

/// Fields of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub struct CertificateInfo<'a> {
    /// Start of validity.
    pub from: Timestamp,
    /// End of validity.
    pub until: Timestamp,
    /// `SubjectPublicKeyInfo`, with tag and length.
    pub public_key: &'a [u8],
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// Parses a certificate; `None` when it is not one.
#[must_use]
pub fn parse(certificate: &[u8]) -> Option<CertificateInfo<'_>> {
    let (outer, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(outer.content, SEQUENCE)?;
    let mut rest = signed.content;
    // The version is optional: it defaults to v1 (RFC 5280 §4.1.2.1).
    if rest.first() == Some(&VERSION) {
        rest = any(rest)?.1;
    }
    // Skips serial number, signature algorithm and issuer.
    for _ in 0..3 {
        rest = any(rest)?.1;
    }
    let (validity, rest) = element(rest, SEQUENCE)?;
    let (begins, ends) = any(validity.content)?;
    // Skips the subject.
    let (_, rest) = element(rest, SEQUENCE)?;
    let (public_key, _) = element(rest, SEQUENCE)?;
    Some(CertificateInfo { from: time(begins)?, until: time(any(ends)?.0)?, public_key: public_key.whole })
}

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// Parses the next element; returns it and the bytes after it.
fn any(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Long form: up to three length bytes, which is 16 MiB, more than any certificate needs.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    // `rest` is the end of `bytes`, so the difference is the length of the element.
    let whole = bytes.get(..bytes.len() - rest.len())?;
    Some((Element { tag, content, whole }, rest))
}

fn element(bytes: &[u8], tag: u8) -> Option<(Element<'_>, &[u8])> {
    any(bytes).filter(|(element, _)| element.tag == tag)
}

/// Parses a time. RFC 5280 §4.1.2.5: both forms end with Z, and a two-digit year is in 1950 to 2049.
fn time(element: Element<'_>) -> Option<Timestamp> {
    let digits = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    let digits = match element.tag {
        UTC_TIME if digits.len() == 12 => {
            // Two-digit years below 50 are in this century (RFC 5280 §4.1.2.5.1).
            let century = if digits.get(..2)? < "50" { "20" } else { "19" };
            format!("{century}{digits}")
        }
        GENERALIZED_TIME if digits.len() == 14 => digits.to_owned(),
        _ => return None,
    };
    let part = |range: std::ops::Range<usize>| digits.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    // The parser of `Timestamp` refuses dates that do not exist.
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_those_that_the_certificate_was_made_with() {
        for (year, until) in [(2031, "2031-02-03T00:00:00Z"), (2071, "2071-02-03T00:00:00Z")] {
            let key = rcgen::KeyPair::generate().expect("a key");
            let mut wanted = rcgen::CertificateParams::new(vec!["array1".to_owned()]).expect("a name");
            wanted.not_before = rcgen::date_time_ymd(1970, 1, 1);
            wanted.not_after = rcgen::date_time_ymd(year, 2, 3);
            let made = wanted.self_signed(&key).expect("a certificate");
            let facts = parse(made.der()).expect("it is one");
            assert_eq!(
                (facts.from.to_string(), facts.until.to_string()),
                ("1970-01-01T00:00:00Z".into(), until.into())
            );
            assert!(facts.public_key.ends_with(rcgen::PublicKeyData::der_bytes(&key)));
        }
    }

    #[test]
    fn facts_of_what_is_cut_short_or_changed_are_none_or_others_and_never_a_panic() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = rcgen::CertificateParams::new(vec!["array1".to_owned()]).expect("a name").self_signed(&key);
        let made = made.expect("a certificate").der().to_vec();
        for end in 0..made.len() {
            assert_eq!(parse(&made[..end]), None, "{end} bytes");
        }
        for at in 0..made.len() {
            for bit in 0..8 {
                let mut changed = made.clone();
                changed[at] ^= 1 << bit;
                let _ = parse(&changed);
            }
        }
    }
}
