//! What both roles of a login share: text that goes back and forth, within bounds.

use crate::Violation;
use crate::negotiation::{IRRELEVANT, Key, NOT_UNDERSTOOD, Named, REJECT, Role};
use crate::text::{LOGIN_SEGMENT_BYTES_MAX, TEXT_BYTES_MAX, TextCollector, TextPart, TextWriter};

/// The text of a login in both directions.
#[derive(Clone, Debug)]
pub(super) struct Dialogue {
    incoming: TextCollector,
    /// What waits to be sent.
    pub(super) outgoing: TextWriter,
    /// The PDUs that the stage may still have.
    pdus_left: u32,
    pdus_max: u32,
    /// The text that the login may still have.
    text_bytes_left: usize,
    /// We promised more text, and the peer has to ask for it with an empty PDU.
    promised: bool,
}

impl Dialogue {
    /// A dialogue of at most `pdus_max` PDUs from the peer in each stage.
    pub(super) fn new(pdus_max: u32) -> Self {
        Self {
            incoming: TextCollector::default(),
            outgoing: TextWriter::default(),
            pdus_left: pdus_max,
            pdus_max,
            text_bytes_left: TEXT_BYTES_MAX,
            promised: false,
        }
    }

    /// The peer's text when it is whole; `None` while more of it is promised, or while the peer asks for more of ours.
    ///
    /// *Errors*: the bound or the rule that it breaks.
    pub(super) fn handle_segment(&mut self, segment: &[u8], continues: bool) -> Result<Option<Vec<u8>>, Violation> {
        self.pdus_left = self.pdus_left.checked_sub(1).ok_or(Violation::LoginTooLong)?;
        self.text_bytes_left = self.text_bytes_left.checked_sub(segment.len()).ok_or(Violation::TextTooLong)?;
        if std::mem::take(&mut self.promised) {
            if continues || !segment.is_empty() {
                return Err(Violation::TextWhileContinuing);
            }
            return Ok(None);
        }
        self.incoming.handle_segment(segment, continues, LOGIN_SEGMENT_BYTES_MAX)
    }

    /// The next text to send: none while the peer's goes on.
    pub(super) fn take_part(&mut self) -> TextPart {
        if self.incoming.is_waiting() {
            return TextPart::default();
        }
        let part = self.outgoing.take(LOGIN_SEGMENT_BYTES_MAX);
        assert!(part.text.len() <= LOGIN_SEGMENT_BYTES_MAX, "a part fits into a PDU of a login");
        self.promised = part.continues;
        part
    }

    /// True while the peer has promised more text.
    pub(super) fn is_listening(&self) -> bool {
        self.incoming.is_waiting()
    }

    /// Another stage begins, with its own number of PDUs.
    pub(super) fn enter_stage(&mut self) {
        self.pdus_left = self.pdus_max;
    }
}

/// The answer to a key that is not negotiated where it stands waits in `answers`. No key goes without its
/// answer but declarations, which have none, and what is an answer itself.
///
/// *Source*: RFC 7143 §6.2, §13.25.
pub(super) fn answer_out_of_place((name, value): (&str, &str), speaker: Role, answers: &mut TextWriter) {
    if [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(&value) {
        return;
    }
    match Named::of(name) {
        Some(Named::Declaration(role)) if role == speaker => {}
        Some(Named::Declaration(_) | Named::Security | Named::FullFeature | Named::ObsoleteInterval) => {
            answers.push(name, REJECT);
        }
        Some(Named::ObsoleteMarker) => answers.push(name, "No"),
        None if Key::of(name).is_some() => answers.push(name, REJECT),
        None => answers.push(name, NOT_UNDERSTOOD),
    }
}
