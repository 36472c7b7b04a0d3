//! Reassembly of text that spans several PDUs.

use super::TEXT_BYTES_MAX;
use crate::Violation;

/// Joins the text of PDUs until one arrives without the C bit. Memory is bounded by the text received.
#[derive(Clone, Debug, Default)]
pub struct TextCollector {
    text: Vec<u8>,
}

impl TextCollector {
    /// Adds the text of a PDU. Returns the complete text, or `None` when more was announced.
    ///
    /// *Shape*: `continues` is the C bit; `segment_bytes_max` is the maximum length of one segment.
    ///
    /// *Errors*: [`Violation::TextSegmentTooLong`], [`Violation::TextTooLong`], [`Violation::ContinuesWithoutText`].
    ///
    /// *Source*: RFC 7143 §6.2.
    pub fn handle_segment(
        &mut self,
        segment: &[u8],
        continues: bool,
        segment_bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, Violation> {
        if segment.len() > segment_bytes_max {
            return Err(Violation::TextSegmentTooLong);
        }
        // Checked before the copy, so that memory stays bounded.
        if self.text.len() + segment.len() > TEXT_BYTES_MAX {
            return Err(Violation::TextTooLong);
        }
        // Otherwise a peer could keep an exchange open without ever sending text.
        if continues && segment.is_empty() {
            return Err(Violation::ContinuesWithoutText);
        }
        self.text.extend_from_slice(segment);
        assert!(self.text.len() <= TEXT_BYTES_MAX, "text is bounded, whoever sends it");
        Ok((!continues).then(|| std::mem::take(&mut self.text)))
    }

    /// True while the peer has announced more text.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        // A PDU that announces more is never empty, so text is kept exactly until the last one has arrived.
        !self.text.is_empty()
    }
}
