use super::*;
use crate::Violation;
use proptest::prelude::*;

fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, Violation> {
    Pairs::parse(text).collect()
}

#[test]
fn pairs_keep_their_order_and_values_keep_their_equals_signs() {
    let text = b"InitiatorName=iqn.2000-01.a:b\0CHAP_R=0bYQ==\0Empty=\0";
    let expected = vec![("InitiatorName", "iqn.2000-01.a:b"), ("CHAP_R", "0bYQ=="), ("Empty", "")];
    assert_eq!(pairs(text), Ok(expected));
    assert_eq!(pairs(b"\0\0A=b\0\0\0"), Ok(vec![("A", "b")]), "padding between pairs is nothing");
    assert_eq!(pairs(b""), Ok(vec![]));
}

#[test]
fn pairs_without_end_equals_or_key_are_refused() {
    for (text, broken) in [
        (&b"A=b"[..], Violation::PairWithoutEnd),
        (b"A=b\0C", Violation::PairWithoutEnd),
        (b"Ab\0", Violation::PairWithoutEquals),
        (b"=b\0", Violation::KeyMalformed),
        (b"a=b\0", Violation::KeyMalformed),
        (b"A b=c\0", Violation::KeyMalformed),
        (b"A\xff=c\0", Violation::KeyMalformed),
        (b"A=\xff\0", Violation::ValueNotText),
        (b"A=b\nc\0", Violation::ValueNotText),
    ] {
        assert_eq!(pairs(text), Err(broken), "{text:?}");
    }
}

#[test]
fn pairs_of_text_that_is_cut_short_anywhere_are_refused() {
    let text = b"InitiatorName=iqn.2000-01.a:b\0CHAP_R=0bYQ==\0Empty=\0";
    for end in 0..text.len() {
        let whole = end == 0 || text[end - 1] == 0;
        let expected = if whole {
            Ok(text[..end].iter().filter(|&&byte| byte == 0).count())
        } else {
            Err(Violation::PairWithoutEnd)
        };
        assert_eq!(pairs(&text[..end]).map(|pairs| pairs.len()), expected, "{end} bytes");
    }
}

#[test]
fn pairs_bound_keys_and_their_number() {
    let longest = format!("{}=v\0", "K".repeat(63));
    assert!(pairs(longest.as_bytes()).is_ok());
    let longer = format!("{}=v\0", "K".repeat(64));
    assert_eq!(pairs(longer.as_bytes()), Err(Violation::KeyMalformed));
    assert_eq!(pairs(&b"K=v\0".repeat(PAIRS_MAX)).map(|pairs| pairs.len()), Ok(PAIRS_MAX));
    assert_eq!(pairs(&b"K=v\0".repeat(PAIRS_MAX + 1)), Err(Violation::TooManyKeys));
    assert_eq!(pairs(b"iSCSIProtocolLevel=1\0"), Ok(vec![("iSCSIProtocolLevel", "1")]));
}

#[test]
fn pairs_end_behind_the_first_violation() {
    assert_eq!(Pairs::parse(b"A=b\0c=d\0E=f\0").count(), 2);
}

#[test]
fn numbers_are_decimal_or_hexadecimal_and_nothing_else() {
    for (text, value) in
        [("0", 0), ("08192", 8192), ("0x2000", 8192), ("0XfF", 255), ("18446744073709551615", u64::MAX)]
    {
        assert_eq!(number(text), Some(value), "{text}");
    }
    for text in ["", "-1", "+1", " 1", "1 ", "0x", "0x-1", "12a", "18446744073709551616", "1_000", "٣"] {
        assert_eq!(number(text), None, "{text:?}");
    }
    assert_eq!(range("2048~0x1000"), Some((2048, 4096)));
    assert_eq!((range("2~1"), range("1"), range("~"), range("1~2~3")), (None, None, None, None));
    assert_eq!((boolean("Yes"), boolean("No"), boolean("yes"), boolean("")), (Some(true), Some(false), None, None));
}

#[test]
fn binary_values_have_hexadecimal_and_base64_form() {
    assert_eq!(binary("0x00ffA5").unwrap(), [0, 0xff, 0xa5]);
    assert_eq!(binary("0xfff").unwrap(), [0x0f, 0xff]);
    // RFC 4648 §10.
    for (text, bytes) in [("0bZg==", &b"f"[..]), ("0BZm8=", b"fo"), ("0bZm9v", b"foo"), ("0bZm9vYmFy", b"foobar")] {
        assert_eq!(binary(text).unwrap(), bytes);
        assert_eq!(base64(bytes)[2..], text[2..]);
    }
    for text in
        ["", "0x", "0b", "ff", "0xzz", "0bZg=", "0bZg", "0bZh==", "0b====", "0bZ===", "0bZg==Zg==", "0bZ\u{e9}=="]
    {
        assert_eq!(binary(text), None, "{text:?}");
    }
    assert_eq!(hexadecimal(&[0, 0xab]), "0x00ab");
}

#[test]
fn binary_values_are_bounded_in_both_forms() {
    let most = vec![7; BINARY_BYTES_MAX];
    let more = vec![7; BINARY_BYTES_MAX + 1];
    assert_eq!(binary(&hexadecimal(&most)), Some(most.clone()));
    assert_eq!(binary(&base64(&most)), Some(most));
    assert_eq!(binary(&hexadecimal(&more)), None);
    assert_eq!(binary(&base64(&more)), None);
}

#[test]
fn collector_joins_what_a_chain_of_pdus_brings() {
    let mut collector = TextCollector::default();
    assert_eq!(collector.handle_segment(b"A=", true, 8192), Ok(None));
    assert!(collector.is_waiting());
    assert_eq!(collector.handle_segment(b"b\0", false, 8192), Ok(Some(b"A=b\0".to_vec())));
    assert!(!collector.is_waiting());
}

#[test]
fn collector_refuses_chains_without_end_and_without_text() {
    let mut collector = TextCollector::default();
    assert_eq!(collector.handle_segment(&[b'x'; 8193], false, 8192), Err(Violation::TextSegmentTooLong));
    assert_eq!(collector.handle_segment(b"", true, 8192), Err(Violation::ContinuesWithoutText));
    for _ in 0..8 {
        assert_eq!(collector.handle_segment(&[b'x'; 8192], true, 8192), Ok(None));
    }
    assert_eq!(collector.handle_segment(b"x", true, 8192), Err(Violation::TextTooLong));
}

#[test]
fn writer_cuts_text_to_what_the_peer_takes() {
    let mut writer = TextWriter::default();
    writer.push("MaxBurstLength", 262_144);
    writer.push("InitialR2T", "No");
    assert_eq!(writer.take(20), TextPart { text: b"MaxBurstLength=26214".to_vec(), continues: true });
    assert_eq!(writer.take(20), TextPart { text: b"4\0InitialR2T=No\0".to_vec(), continues: false });
    assert_eq!(writer.take(20), TextPart::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn pairs_of_any_bytes_never_panic_and_are_bounded(text in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(Pairs::parse(&text).count() <= PAIRS_MAX + 1);
    }

    #[test]
    fn pairs_that_are_written_in_parts_are_read_back(
        written in prop::collection::vec(("[A-Z][a-zA-Z0-9]{0,20}", "[ -~]{0,60}"), 0..20), part in 1usize..100,
    ) {
        let mut writer = TextWriter::default();
        for (key, value) in &written {
            writer.push(key, value);
        }
        let mut collector = TextCollector::default();
        let text = loop {
            let part = writer.take(part);
            if let Some(text) = collector.handle_segment(&part.text, part.continues, 8192).unwrap() {
                break text;
            }
        };
        let read: Vec<_> = pairs(&text).unwrap().into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn binary_comes_back_in_both_forms(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
        prop_assert_eq!(binary(&hexadecimal(&bytes)), Some(bytes.clone()));
        prop_assert_eq!(binary(&base64(&bytes)), Some(bytes.clone()));
    }

    #[test]
    fn values_of_any_text_never_panic(text in "\\PC{0,40}") {
        let _ = (number(&text), range(&text), boolean(&text), binary(&text));
        let _ = (binary(&format!("0x{text}")), binary(&format!("0b{text}")));
    }
}
