//! Text that is complete, as pairs.

use crate::Violation;

/// The most bytes of a key.
const KEY_BYTES_MAX: usize = 63;
/// The most pairs of one exchange: an answer is bounded because what it answers is.
pub const PAIRS_MAX: usize = 256;

/// The pairs of a text, in their order. Ends behind the first violation.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    seen: usize,
}

impl<'a> Pairs<'a> {
    /// The pairs of `text`, each judged when it is reached.
    ///
    /// NUL bytes between pairs and behind the last are skipped: some initiators pad with them.
    ///
    /// *Errors*, from the iterator: [`Violation::PairWithoutEnd`], [`Violation::PairWithoutEquals`],
    /// [`Violation::KeyMalformed`], [`Violation::ValueNotText`], [`Violation::TooManyKeys`].
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        Self { rest: text, seen: 0 }
    }

    fn parse_next(&mut self) -> Result<Option<(&'a str, &'a str)>, Violation> {
        let begin = self.rest.iter().position(|&byte| byte != 0).unwrap_or(self.rest.len());
        let (_, text) = self.rest.split_at_checked(begin).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        self.seen += 1;
        if self.seen > PAIRS_MAX {
            return Err(Violation::TooManyKeys);
        }
        let end = text.iter().position(|&byte| byte == 0).ok_or(Violation::PairWithoutEnd)?;
        let (pair, rest) = text.split_at_checked(end).ok_or(Violation::PairWithoutEnd)?;
        self.rest = rest;
        parse_pair(pair).map(Some)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a str, &'a str), Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.parse_next();
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
    if value.chars().any(char::is_control) {
        return Err(Violation::ValueNotText);
    }
    Ok((parse_key(key)?, value))
}

/// A capital letter, then letters, digits and a few marks ("X-" and "X#" keys have a domain in them).
fn parse_key(key: &[u8]) -> Result<&str, Violation> {
    let well_formed = key.first().is_some_and(u8::is_ascii_uppercase) || key.starts_with(b"iSCSI");
    let marks = b".-+@_#";
    let known = key.iter().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(byte));
    if !well_formed || !known || key.len() > KEY_BYTES_MAX {
        return Err(Violation::KeyMalformed);
    }
    std::str::from_utf8(key).map_err(|_| Violation::KeyMalformed)
}
