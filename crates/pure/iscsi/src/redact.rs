//! Redaction of CHAP responses in a copy of the traffic of a connection, for packet captures.

use crate::pdu::{BHS_BYTES, Bhs, Opcode, SegmentLengths};

/// Key to redact: with a response and its challenge, secrets can be guessed offline.
const SECRET_KEY: &[u8] = b"CHAP_R=";
/// C bit of a login PDU: the text continues in the next PDU.
const CONTINUE: u8 = 0x40;

/// Redactor of one direction of a connection, from its first byte on. Replaces the digits of each `CHAP_R` by zeros and
/// changes nothing else, not even a length. Behind the login all bytes pass: they hold no secrets but the data of
/// hosts.
///
/// *Source*: RFC 7143 §11.12, §11.13, §12.1.3.
#[derive(Clone, Debug)]
pub struct Redactor(Stage);

#[derive(Clone, Debug)]
enum Stage {
    Header {
        header: Bhs,
        have: usize,
        text: Text,
    },
    /// Missing bytes of additional header segments, text and padding.
    Segments {
        ahs: usize,
        data: usize,
        padding: usize,
        text: Text,
        goes_on: bool,
    },
    FullFeature,
}

/// Position within the key=value pairs.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// Number of bytes that match the secret key so far.
    Key(usize),
    /// Number of bytes into the value of the secret key.
    Secret(usize),
    /// In another key, or its value.
    Other,
}

impl Redactor {
    /// Creates the redactor for a direction without any bytes sent.
    #[must_use]
    pub fn new() -> Self {
        Self(Stage::Header { header: [0; BHS_BYTES], have: 0, text: Text::Key(0) })
    }

    /// True when the login phase is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.0, Stage::FullFeature)
    }

    /// Redacts `bytes`, the next ones of this direction, in place.
    pub fn redact(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            match &mut self.0 {
                Stage::FullFeature => return,
                Stage::Header { header, have, text } => {
                    // In bounds: a complete header has changed the stage with its last byte.
                    header[*have] = *byte;
                    *have += 1;
                    // The header is complete, so the lengths of the segments are known.
                    if *have == BHS_BYTES {
                        self.0 = after(header, *text);
                    }
                }
                Stage::Segments { ahs, data, padding, text, goes_on } => {
                    if *ahs > 0 {
                        // Not valid in a login. A peer that sends such segments must not shift the text.
                        *ahs -= 1;
                    } else if *data > 0 {
                        *data -= 1;
                        *byte = text.redact(*byte);
                    } else {
                        // No underflow: the stage is left with the last byte of the three.
                        *padding -= 1;
                    }
                    // A value may continue in the next PDU (C bit), so the position in the text is carried over.
                    if *ahs + *data + *padding == 0 {
                        self.0 = Stage::next(if *goes_on { *text } else { Text::Key(0) });
                    }
                }
            }
        }
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    fn next(text: Text) -> Self {
        Self::Header { header: [0; BHS_BYTES], have: 0, text }
    }
}

/// Returns the stage that follows a header.
fn after(header: &Bhs, text: Text) -> Stage {
    // The first other PDU ends the login phase of this direction.
    if !matches!(Opcode::of(header), Ok(Opcode::LoginRequest | Opcode::LoginResponse)) {
        return Stage::FullFeature;
    }
    let lengths = SegmentLengths::parse(header);
    let (ahs, data) = (lengths.ahs_bytes, lengths.data_bytes);
    if ahs + data == 0 {
        // A PDU without segments also ends a text that was continued.
        return Stage::next(Text::Key(0));
    }
    let padding = lengths.padded_data_bytes() - data;
    Stage::Segments { ahs, data, padding, text, goes_on: header[1] & CONTINUE != 0 }
}

impl Text {
    /// Returns the replacement of `byte`, the next one of the text.
    fn redact(&mut self, byte: u8) -> u8 {
        // A NUL byte ends every pair, and the next key starts.
        if byte == 0 {
            *self = Self::Key(0);
            return 0;
        }
        // `matched` stays within the key: a full match becomes `Secret` at once.
        match *self {
            // Keys are compared without case, so that a misspelled key cannot leak its value.
            Self::Key(matched) if byte.eq_ignore_ascii_case(&SECRET_KEY[matched]) => {
                let matched = matched + 1;
                *self = if matched == SECRET_KEY.len() { Self::Secret(0) } else { Self::Key(matched) };
                byte
            }
            Self::Key(_) | Self::Other => {
                *self = Self::Other;
                byte
            }
            Self::Secret(behind) => {
                *self = Self::Secret(behind + 1);
                // The base prefix (0x, 0b) is kept.
                if behind == 1 && matches!(byte, b'x' | b'X' | b'b' | b'B') { byte } else { b'0' }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Login PDU that carries `text`.
    fn login(opcode: Opcode, goes_on: bool, text: &[u8]) -> Vec<u8> {
        let mut pdu = vec![0; BHS_BYTES];
        pdu[0] = opcode as u8 | 0x40;
        pdu[1] = if goes_on { CONTINUE } else { 0x81 };
        pdu[5..8].copy_from_slice(&u32::try_from(text.len()).expect("short").to_be_bytes()[1..]);
        pdu.extend_from_slice(text);
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        pdu
    }

    fn redacted(bytes: &[u8]) -> Vec<u8> {
        let mut copy = bytes.to_vec();
        Redactor::new().redact(&mut copy);
        copy
    }

    #[test]
    fn redactor_blanks_responses_and_nothing_else() {
        let text = b"CHAP_N=web\0CHAP_R=0xdeadbeef\0CHAP_I=5\0CHAP_C=0bAAEC\0XCHAP_R=0x12\0";
        let want = b"CHAP_N=web\0CHAP_R=0x00000000\0CHAP_I=5\0CHAP_C=0bAAEC\0XCHAP_R=0x12\0";
        for opcode in [Opcode::LoginRequest, Opcode::LoginResponse] {
            assert_eq!(redacted(&login(opcode, false, text)), login(opcode, false, want));
        }
        let small = login(Opcode::LoginRequest, false, b"chap_r=0b//8=\0chap_r=deadbeef\0");
        assert_eq!(redacted(&small), login(Opcode::LoginRequest, false, b"chap_r=0b0000\0chap_r=00000000\0"));
    }

    #[test]
    fn redactor_follows_a_text_from_pdu_to_pdu() {
        let parts =
            [(true, &b"A=1\0CHA"[..]), (true, b"P_R=0x1"), (true, b"2"), (false, b"34\0B=2\0"), (false, b"5=5\0")];
        let want =
            [(true, &b"A=1\0CHA"[..]), (true, b"P_R=0x0"), (true, b"0"), (false, b"00\0B=2\0"), (false, b"5=5\0")];
        let stream = |parts: &[(bool, &[u8])]| -> Vec<u8> {
            parts.iter().flat_map(|(goes_on, text)| login(Opcode::LoginRequest, *goes_on, text)).collect()
        };
        assert_eq!(redacted(&stream(&parts)), stream(&want));
    }

    #[test]
    fn redactor_lets_everything_through_behind_the_login() {
        let mut stream = login(Opcode::LoginRequest, false, b"CHAP_R=0x1\0");
        let mut command = [0; BHS_BYTES];
        command[0] = Opcode::ScsiCommand as u8;
        stream.extend_from_slice(&command);
        let logged_in = stream.len();
        stream.extend(login(Opcode::LoginRequest, false, b"CHAP_R=0x1\0"));
        let mut redactor = Redactor::new();
        let mut copy = stream.clone();
        redactor.redact(&mut copy[..logged_in - 1]);
        assert!(!redactor.is_done());
        redactor.redact(&mut copy[logged_in - 1..]);
        assert!(redactor.is_done());
        assert_eq!(copy[logged_in..], stream[logged_in..]);
        assert_ne!(copy[..logged_in], stream[..logged_in]);
    }

    proptest! {
        #[test]
        fn redactor_is_the_same_however_the_stream_is_cut(
            texts in prop::collection::vec((any::<bool>(), "(CHAP_R=0x[0-9a-f]{0,9}\\PC{0,4})?[A-Z=\0]{0,9}"), 1..6),
            cuts in prop::collection::vec(1usize..40, 1..20),
        ) {
            let stream: Vec<u8> =
                texts.iter().flat_map(|(goes_on, text)| login(Opcode::LoginRequest, *goes_on, text.as_bytes())).collect();
            let (mut pieces, mut redactor) = (stream.clone(), Redactor::new());
            let mut rest = &mut pieces[..];
            for cut in cuts.into_iter().cycle() {
                let (piece, after) = rest.split_at_mut(cut.min(rest.len()));
                redactor.redact(piece);
                rest = after;
                if rest.is_empty() { break }
            }
            prop_assert_eq!(pieces, redacted(&stream));
        }
    }
}
