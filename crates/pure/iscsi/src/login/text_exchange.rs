//! Text exchange of a login, shared by both roles, with its limits.

use crate::Violation;
use crate::negotiation::{IRRELEVANT, Key, NOT_UNDERSTOOD, Named, REJECT, Role};
use crate::text::{LOGIN_SEGMENT_BYTES_MAX, TEXT_BYTES_MAX, TextCollector, TextPart, TextWriter};

/// Text of a login in both directions.
#[derive(Clone, Debug)]
pub(super) struct LoginTextExchange {
    incoming: TextCollector,
    /// Text that is queued for sending.
    pub(super) outgoing: TextWriter,
    /// Remaining PDUs of the current stage.
    pdus_left: u32,
    pdus_max: u32,
    /// Remaining text of the login in bytes.
    text_bytes_left: usize,
    /// True when we announced more text, which the peer requests with an empty PDU.
    more_announced: bool,
}

impl LoginTextExchange {
    /// Creates an exchange with at most `pdus_max` PDUs from the peer in each stage.
    pub(super) fn new(pdus_max: u32) -> Self {
        Self {
            incoming: TextCollector::default(),
            outgoing: TextWriter::default(),
            pdus_left: pdus_max,
            pdus_max,
            text_bytes_left: TEXT_BYTES_MAX,
            more_announced: false,
        }
    }

    /// Adds a segment of the peer. Returns its text when it is complete; `None` while more of it is announced, or when
    /// the peer requests more of our text.
    ///
    /// *Errors*: the violated limit or rule.
    pub(super) fn handle_segment(&mut self, segment: &[u8], continues: bool) -> Result<Option<Vec<u8>>, Violation> {
        // Both limits apply to every segment, so that an unauthenticated peer cannot occupy a connection or memory.
        self.pdus_left = self.pdus_left.checked_sub(1).ok_or(Violation::LoginTooLong)?;
        self.text_bytes_left = self.text_bytes_left.checked_sub(segment.len()).ok_or(Violation::TextTooLong)?;
        // While our text continues, the peer answers with empty PDUs (RFC 7143 §6.2).
        if std::mem::take(&mut self.more_announced) {
            if continues || !segment.is_empty() {
                return Err(Violation::TextWhileContinuing);
            }
            return Ok(None);
        }
        self.incoming.handle_segment(segment, continues, LOGIN_SEGMENT_BYTES_MAX)
    }

    /// Takes the next text to send; empty while the peer's text continues.
    pub(super) fn take_part(&mut self) -> TextPart {
        // The peer's text comes first; ours follows once it is complete.
        if self.incoming.is_waiting() {
            return TextPart::default();
        }
        let part = self.outgoing.take(LOGIN_SEGMENT_BYTES_MAX);
        assert!(part.text.len() <= LOGIN_SEGMENT_BYTES_MAX, "a part fits into a PDU of a login");
        self.more_announced = part.continues;
        part
    }

    /// True while the peer has announced more text.
    pub(super) fn is_listening(&self) -> bool {
        self.incoming.is_waiting()
    }

    /// Enters the next stage, which has its own limit on PDUs.
    pub(super) fn enter_stage(&mut self) {
        // The limit on text is not renewed: it applies to the login as a whole.
        self.pdus_left = self.pdus_max;
    }
}

/// Answers a key that is not negotiated in the current stage. Every key is answered except declarations, which have no
/// answer, and keys that are answers themselves.
///
/// *Source*: RFC 7143 §6.2, §13.25.
pub(super) fn answer_unexpected_key((name, value): (&str, &str), speaker: Role, answers: &mut TextWriter) {
    // An answer is never answered, otherwise two sides could exchange refusals forever.
    if [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(&value) {
        return;
    }
    match Named::of(name) {
        Some(Named::Declaration(role)) if role == speaker => {}
        Some(Named::Declaration(_) | Named::Security | Named::FullFeature | Named::ObsoleteInterval) => {
            answers.push(name, REJECT);
        }
        Some(Named::ObsoleteMarker) => answers.push(name, "No"),
        // A known key outside its stage.
        None if Key::of(name).is_some() => answers.push(name, REJECT),
        None => answers.push(name, NOT_UNDERSTOOD),
    }
}
