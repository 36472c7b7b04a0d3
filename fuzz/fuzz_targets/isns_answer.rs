//! Fuzz target: arbitrary bytes from an iSNS server, in pieces of any length. The result is answers or a violation, and
//! memory use is bounded by the bytes received.
#![no_main]

use isns::{ResponseParser, Tag};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let mut answers = ResponseParser::default();
    for piece in bytes.chunks(usize::from(cut) + 1) {
        answers.handle(piece);
        loop {
            match answers.poll() {
                Ok(None) => break,
                Ok(Some(answer)) => {
                    let whole = answer.attributes().all(|attribute| attribute.is_ok());
                    assert!(answer.has_attribute(Tag::ENTITY_IDENTIFIER).is_ok() || !whole);
                    assert!(answer.period().is_ok() || !whole);
                    assert!(answer.entity().is_ok() || !whole);
                    let named = answer.attributes().flatten().filter(|(tag, _)| *tag == Tag::PG_ISCSI_NAME).count();
                    let located = answer.reachable_targets();
                    assert!(located.is_ok_and(|located| located.len() <= named) || !whole);
                }
                Err(_) => return,
            }
        }
    }
});
