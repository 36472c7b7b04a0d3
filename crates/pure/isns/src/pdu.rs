//! PDU header, and fragmentation of messages into PDUs.
//!
//! *Source*: RFC 4171 §5.1.

use crate::Violation;

/// Length of a PDU header in bytes.
pub const HEADER_BYTES: usize = 12;
/// Maximum length of an accepted message in bytes: far more than one entity needs.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

const VERSION: u16 = 1;
/// Maximum payload of one PDU: whole words with a 16-bit length.
const PAYLOAD_BYTES_MAX: usize = 0xfffc;

const CLIENT: u16 = 0x8000;
pub(crate) const REPLACE: u16 = 0x1000;
const LAST: u16 = 0x0800;
const FIRST: u16 = 0x0400;

/// Function of a message. The function of an answer has its highest bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u16);

#[allow(missing_docs, reason = "the names are the standard's")]
impl Function {
    pub const DEV_ATTR_REG: Self = Self(0x0001);
    pub const DEV_ATTR_QRY: Self = Self(0x0002);
    pub const DEV_DEREG: Self = Self(0x0004);

    /// Function of the answer to this one.
    #[must_use]
    pub const fn response(self) -> Self {
        Self(self.0 | 0x8000)
    }
}

/// Encodes a request with this payload, which is whole words, as PDUs.
pub(crate) fn emit(function: Function, flags: u16, transaction: u16, payload: &[u8]) -> Vec<u8> {
    // A message without payload is still one PDU.
    let pdus = payload.len().div_ceil(PAYLOAD_BYTES_MAX).max(1);
    let mut bytes = Vec::with_capacity(payload.len() + pdus * HEADER_BYTES);
    let mut rest = payload;
    for sequence in 0..pdus {
        let (part, after) = rest.split_at(rest.len().min(PAYLOAD_BYTES_MAX));
        rest = after;
        // A message in a single PDU is both first and last.
        let place = if sequence == 0 { FIRST } else { 0 } | if sequence + 1 == pdus { LAST } else { 0 };
        let len = u16::try_from(part.len()).expect("it was cut to size");
        let sequence = u16::try_from(sequence).expect("messages have a bound");
        for word in [VERSION, function.0, len, CLIENT | flags | place, transaction, sequence] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(part);
    }
    assert_eq!(bytes.len(), payload.len() + pdus * HEADER_BYTES, "every byte of a message is in one of its PDUs");
    bytes
}

/// Received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) function: Function,
    pub(crate) transaction: u16,
    pub(crate) payload: Vec<u8>,
}

/// Reassembly of messages from pieces of any length.
#[derive(Debug, Default)]
pub(crate) struct Reassembler {
    bytes: Vec<u8>,
    /// Message in progress and the number of its PDUs received.
    partial: Option<(Message, u16)>,
}

impl Reassembler {
    pub(crate) fn handle(&mut self, bytes: &[u8]) {
        // Callers poll until `None` before they add more, so no more than one incomplete PDU is kept.
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next message once it is complete.
    ///
    /// *Errors*: [`Violation::Version`], [`Violation::Order`], [`Violation::TooLong`].
    pub(crate) fn poll(&mut self) -> Result<Option<Message>, Violation> {
        loop {
            let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            // Whole words are not required here: the parser of the attributes finds a length that is wrong.
            let (version, function, len) = (word(0), Function(word(2)), usize::from(word(4)));
            // The flags that tell client and server apart are not checked: the function tells responses from requests.
            let (flags, transaction, sequence) = (word(6), word(8), word(10));
            // Checked before the length is used: another version may have another header.
            if version != VERSION {
                return Err(Violation::Version);
            }
            // The rest of the PDU has not arrived yet.
            let Some(part) = rest.get(..len) else { return Ok(None) };
            let fresh = Message { function, transaction, payload: Vec::new() };
            // Not before the PDU is complete: until then the message in progress stays in its place.
            let (mut message, pdus) = match self.partial.take() {
                None if flags & FIRST != 0 && sequence == 0 => (fresh, 0),
                // Function and transaction are those of the first PDU: another one is a part of another message.
                Some((message, pdus))
                    if flags & FIRST == 0
                        && sequence == pdus
                        && (message.function, message.transaction) == (function, transaction) =>
                {
                    (message, pdus)
                }
                _ => return Err(Violation::Order),
            };
            // The bound keeps a server from filling memory with a message that never ends.
            if message.payload.len() + len > MESSAGE_BYTES_MAX {
                return Err(Violation::TooLong);
            }
            message.payload.extend_from_slice(part);
            // Consumed only once the whole PDU has been accepted.
            self.bytes.drain(..HEADER_BYTES + len);
            if flags & LAST != 0 {
                return Ok(Some(message));
            }
            // Empty PDUs do not lengthen the message, so the 16-bit sequence number bounds them.
            self.partial = Some((message, pdus.checked_add(1).ok_or(Violation::Order)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(bytes: &[u8], cut: usize) -> Result<Vec<Message>, Violation> {
        let (mut joiner, mut all) = (Reassembler::default(), Vec::new());
        for piece in bytes.chunks(cut) {
            joiner.handle(piece);
            while let Some(message) = joiner.poll()? {
                all.push(message);
            }
        }
        Ok(all)
    }

    #[test]
    fn header_is_as_the_standard_has_it() {
        let bytes = emit(Function::DEV_ATTR_REG, REPLACE, 7, &[1, 2, 3, 4]);
        assert_eq!(bytes, [0, 1, 0, 1, 0, 4, 0x9c, 0, 0, 7, 0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let whole = emit(Function::DEV_DEREG, 0, 1, &[0; 0xfffc + 8]);
        let (first, second) = whole.split_at(HEADER_BYTES + 0xfffc);
        assert_eq!(joined(second, 99), Err(Violation::Order));
        assert_eq!(joined(&[first, first].concat(), 9999), Err(Violation::Order));
        assert_eq!(joined(&[0; 12], 12), Err(Violation::Version));
    }

    #[test]
    fn part_of_another_message_is_refused() {
        let cut = HEADER_BYTES + 0xfffc;
        let emitted = |function, transaction| emit(function, 0, transaction, &[0; 0xfffc + 8]);
        let whole = emitted(Function::DEV_DEREG, 1);
        for other in [emitted(Function::DEV_DEREG, 2), emitted(Function::DEV_ATTR_REG, 1)] {
            assert_eq!(joined(&[&whole[..cut], &other[cut..]].concat(), 9999), Err(Violation::Order));
        }
        assert_eq!(joined(&whole, 9999).map(|messages| messages.len()), Ok(1));
    }

    proptest! {
        #[test]
        fn message_is_joined_however_it_comes(words in 0usize..50_000, cut in 1usize..70_000, transaction: u16) {
            let payload: Vec<u8> = (0..words * 4).map(|at| at as u8).collect();
            let bytes = emit(Function::DEV_ATTR_QRY, 0, transaction, &payload);
            let message = Message { function: Function::DEV_ATTR_QRY, transaction, payload };
            prop_assert_eq!(joined(&[bytes.clone(), bytes].concat(), cut), Ok(vec![message.clone(), message]));
        }
    }
}
