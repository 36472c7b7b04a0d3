//! Second factor: time-based one-time codes (TOTP).
//!
//! *Source*: RFC 6238 with SHA-1, six digits and steps of 30 s, which every authenticator app supports; RFC 4226 §5.3;
//! RFC 4648 §6.

use subtle::ConstantTimeEq;
use totp_rs::{Builder, Secret, Totp};

/// Bytes of a secret. RFC 4226 §4 recommends 160 bits.
pub(crate) const SECRET_BYTES: usize = 20;
const STEP_SECONDS: u64 = 30;
const DIGITS: u8 = 6;
/// Steps by which the clock of the app may be off.
const STEPS_OFF: u64 = 1;

/// Time step whose code is `typed`, near `unix`; `None` if there is none, or none after `last`, which was used already.
pub(crate) fn step_of(secret: &[u8], typed: &str, unix: u64, last: Option<u64>) -> Option<u64> {
    // Apps show codes in two groups, which users type with a space.
    let typed: String = typed.chars().filter(|c| !c.is_whitespace()).collect();
    let (now, totp) = (unix / STEP_SECONDS, totp(secret, DIGITS));
    let near = now.saturating_sub(STEPS_OFF)..=now + STEPS_OFF;
    // A code is accepted once (RFC 6238 §5.2), so steps up to the last used one are left out.
    // Compared in constant time.
    near.filter(|step| last.is_none_or(|last| *step > last))
        .find(|step| number(&totp, step * STEP_SECONDS).as_bytes().ct_eq(typed.as_bytes()).into())
}

fn totp(secret: &[u8], digits: u8) -> Totp {
    Builder::new()
        .with_secret(secret.to_vec())
        .with_digits(digits)
        .with_step_duration(STEP_SECONDS)
        .build_noncompliant()
}

fn number(totp: &Totp, unix: u64) -> String {
    totp.generate(unix).to_string()
}

/// Code that an app shows at this time.
#[cfg(test)]
pub(crate) fn shown(secret: &[u8], unix: u64) -> String {
    number(&totp(secret, DIGITS), unix)
}

/// Bytes of a secret from its base32 form.
#[cfg(test)]
pub(crate) fn from_base32(text: &str) -> Option<Vec<u8>> {
    Secret::try_from_base32(text).ok().map(|secret| secret.as_ref().to_vec())
}

/// `otpauth` link that an app reads from a QR code or takes by hand.
pub(crate) fn link(secret: &[u8], user: &str, node: &str) -> String {
    let text = base32(secret);
    format!(
        "otpauth://totp/Blockyard%20{node}:{user}?secret={text}&issuer=Blockyard%20{node}&algorithm=SHA1&digits=6&period=30"
    )
}

/// Base32 without padding.
pub(crate) fn base32(bytes: &[u8]) -> String {
    Secret::from(bytes.to_vec()).to_base32()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn numbers_are_those_of_rfc_6238() {
        for (unix, expected) in [
            (59, "94287082"),
            (1_111_111_109, "07081804"),
            (1_111_111_111, "14050471"),
            (1_234_567_890, "89005924"),
            (2_000_000_000, "69279037"),
            (20_000_000_000, "65353130"),
        ] {
            assert_eq!(number(&totp(SECRET, 8), unix), expected);
            assert_eq!(shown(SECRET, unix), expected[2..]);
        }
    }

    #[test]
    fn numbers_are_those_of_rfc_4226() {
        let expected =
            ["755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"];
        for (step, expected) in expected.iter().enumerate() {
            assert_eq!(shown(SECRET, step as u64 * STEP_SECONDS), *expected);
        }
    }

    #[test]
    fn number_is_good_once_and_only_near_its_time() {
        let unix = 1_234_567_890;
        let typed = shown(SECRET, unix);
        let step = step_of(SECRET, &typed, unix, None).expect("it is now");
        assert_eq!(step_of(SECRET, &format!("{} {}", &typed[..3], &typed[3..]), unix, None), Some(step));
        for (later, good) in [(30, true), (75, false), (3600, false)] {
            assert_eq!(step_of(SECRET, &typed, unix + later, None).is_some(), good, "{later} s later");
        }
        assert_eq!(step_of(SECRET, &typed, unix, Some(step)), None, "it was used");
        for wrong in ["", "000000", "12345", "1234567", "abcdef"] {
            assert_eq!(step_of(SECRET, wrong, unix, None), None);
        }
    }

    #[test]
    fn base32_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
    }
}
