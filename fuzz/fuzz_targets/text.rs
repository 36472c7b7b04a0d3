//! Fuzz target: arbitrary text in pieces of any length: pairs, the formats of their values, and names.
#![no_main]

use iscsi::IscsiName;
use iscsi::text::{
    BINARY_BYTES_MAX, PAIRS_MAX, Pairs, TextCollector, TextWriter, base64, binary, boolean, hexadecimal, list, number,
    range,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&cut, text)) = input.split_first() else { return };
    let mut writer = TextWriter::default();
    let mut seen = 0;
    for pair in Pairs::parse(text) {
        seen += 1;
        let Ok((key, value)) = pair else { break };
        judge_value(value);
        writer.push(key, value);
    }
    assert!(seen <= PAIRS_MAX + 1);
    join(writer, usize::from(cut) + 1);
});

fn judge_value(value: &str) {
    let _ = (boolean(value), list(value).count());
    if let Some(number) = number(value) {
        assert_eq!(iscsi::text::number(&number.to_string()), Some(number));
    }
    if let Some((low, high)) = range(value) {
        assert!(low <= high);
    }
    if let Some(bytes) = binary(value) {
        assert!(bytes.len() <= BINARY_BYTES_MAX);
        assert_eq!(binary(&hexadecimal(&bytes)).as_ref(), (!bytes.is_empty()).then_some(&bytes));
        assert_eq!(binary(&base64(&bytes)).as_ref(), (!bytes.is_empty()).then_some(&bytes));
    }
    if let Ok(name) = IscsiName::parse(value) {
        assert_eq!(IscsiName::parse(name.as_str()).as_ref(), Ok(&name));
    }
}

/// Checks that text split into parts of any length is reassembled.
fn join(mut writer: TextWriter, part_bytes: usize) {
    let whole = writer.clone().take(usize::MAX).text;
    let mut collector = TextCollector::default();
    loop {
        let part = writer.take(part_bytes);
        match collector.handle_segment(&part.text, part.continues, part_bytes) {
            Ok(None) => {}
            Ok(Some(text)) => return assert_eq!(text, whole),
            Err(_) => return assert!(whole.len() > iscsi::text::TEXT_BYTES_MAX),
        }
    }
}
