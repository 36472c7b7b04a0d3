//! Parser of complete text into pairs.

use crate::Violation;

/// Maximum length of a key in bytes (RFC 7143 §6.1).
const KEY_BYTES_MAX: usize = 63;
/// Maximum number of pairs in one exchange, which also bounds the response.
pub const PAIRS_MAX: usize = 256;

/// Iterator over the pairs of a text in order. Ends after the first violation.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    seen: usize,
}

impl<'a> Pairs<'a> {
    /// Iterates over the pairs of `text`; each is validated when it is reached.
    ///
    /// NUL bytes between pairs and behind the last one are skipped, because some initiators pad with them.
    ///
    /// *Errors*, from the iterator: [`Violation::PairWithoutEnd`], [`Violation::PairWithoutEquals`],
    /// [`Violation::KeyMalformed`], [`Violation::ValueNotText`], [`Violation::TooManyKeys`].
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        Self { rest: text, seen: 0 }
    }

    fn parse_next(&mut self) -> Result<Option<(&'a str, &'a str)>, Violation> {
        // Several NUL bytes in a row are tolerated: some initiators pad their text.
        let begin = self.rest.iter().position(|&byte| byte != 0).unwrap_or(self.rest.len());
        let (_, text) = self.rest.split_at_checked(begin).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        self.seen += 1;
        // Bounded, because each pair causes an answer.
        if self.seen > PAIRS_MAX {
            return Err(Violation::TooManyKeys);
        }
        let end = text.iter().position(|&byte| byte == 0).ok_or(Violation::PairWithoutEnd)?;
        let (pair, rest) = text.split_at_checked(end).ok_or(Violation::PairWithoutEnd)?;
        // The rest begins with the NUL byte of this pair, which the next call skips.
        self.rest = rest;
        parse_pair(pair).map(Some)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a str, &'a str), Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.parse_next();
        // The iterator ends after an error; the rest cannot be interpreted.
        if next.is_err() {
            self.rest = &[];
        }
        next.transpose()
    }
}

fn parse_pair(pair: &[u8]) -> Result<(&str, &str), Violation> {
    let equals = pair.iter().position(|&byte| byte == b'=').ok_or(Violation::PairWithoutEquals)?;
    let (key, value) = pair.split_at_checked(equals).ok_or(Violation::PairWithoutEquals)?;
    let value = std::str::from_utf8(value.get(1..).unwrap_or_default()).map_err(|_| Violation::ValueNotText)?;
    // A value is text without control characters (RFC 7143 §6.1).
    if value.chars().any(char::is_control) {
        return Err(Violation::ValueNotText);
    }
    Ok((parse_key(key)?, value))
}

/// Parses a key: a capital letter, then letters, digits and a few punctuation characters (keys with "X-" and "X#"
/// contain a domain).
fn parse_key(key: &[u8]) -> Result<&str, Violation> {
    // iSCSIProtocolLevel is the only standard key that starts with a lower-case letter.
    let well_formed = key.first().is_some_and(u8::is_ascii_uppercase) || key.starts_with(b"iSCSI");
    let marks = b".-+@_#";
    let known = key.iter().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(byte));
    if !well_formed || !known || key.len() > KEY_BYTES_MAX {
        return Err(Violation::KeyMalformed);
    }
    std::str::from_utf8(key).map_err(|_| Violation::KeyMalformed)
}
