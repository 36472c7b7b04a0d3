use crate::rig::*;
use block::IoErrorKind;

fn log(page: u8, subpage: u8, pointer: u16) -> [u8; 10] {
    let [high, low] = pointer.to_be_bytes();
    [0x4D, 0, 0x40 | page, subpage, 0, high, low, 2, 0, 0]
}

#[test]
fn log_list_is_ascending_and_every_page_in_it_is_there() {
    let unit = unit();
    let list = ask(&unit, &log(0, 0, 0));
    assert_eq!(list, [0x00, 0, 0, 6, 0x00, 0x02, 0x03, 0x15, 0x19, 0x2F]);
    for &page in &list[5..] {
        let data = ask(&unit, &log(page, 0, 0));
        assert_eq!(data[..2], [page, 0]);
        assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4);
    }
    let subpages = ask(&unit, &log(0, 0xFF, 0));
    assert_eq!(subpages[..8], [0x40, 0xFF, 0, 14, 0, 0, 0, 0xFF]);
}

#[test]
fn log_counters_count_what_was_done() {
    let unit = unit();
    for _ in 0..3 {
        tell(&unit, &cdb10(0x2A, 0, 0, 2), &[1; 2 * BLOCK]);
    }
    assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 5)).len(), 5 * BLOCK);
    unit.device().failure.set(Some(IoErrorKind::Medium));
    refused(&unit, &cdb10(0x28, 0, 0, 1), &[]);
    refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    unit.device().failure.set(None);
    let expected = |bytes: u64, errors: u64| {
        [vec![0, 5, 0, 8], bytes.to_be_bytes().to_vec(), vec![0, 6, 0, 8], errors.to_be_bytes().to_vec()].concat()
    };
    assert_eq!(ask(&unit, &log(0x02, 0, 0))[4..], expected(6 * BLOCK as u64, 2));
    assert_eq!(ask(&unit, &log(0x03, 0, 0))[4..], expected(5 * BLOCK as u64, 1));
    let own = unit.statistics();
    assert_eq!((own.reads, own.writes, own.read_bytes, own.written_bytes, own.errors), (1, 3, 2560, 3072, 3));
    let statistics = ask(&unit, &log(0x19, 0, 0));
    assert_eq!(statistics[4..8], [0, 1, 3, 64]);
    let counters: Vec<u64> =
        statistics[8..].chunks(8).map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight"))).collect();
    assert_eq!(counters, [1, 3, 6, 5, 0, 0, 0, 0]);
}

#[test]
fn log_pages_without_news_say_so() {
    let unit = unit();
    assert_eq!(ask(&unit, &log(0x15, 0, 0))[4..], [0, 0, 3, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask(&unit, &log(0x2F, 0, 0))[4..], [0, 0, 3, 4, 0, 0, 0xFF, 0]);
}

#[test]
fn log_parameter_pointer_skips_and_is_refused_behind_the_last() {
    let unit = unit();
    assert_eq!(ask(&unit, &log(0x02, 0, 6))[4..6], [0, 6]);
    assert_eq!(pointed(&unit, &log(0x02, 0, 7), &[]), (5, None));
}

#[test]
fn log_page_or_value_that_is_not_kept_is_refused() {
    let unit = unit();
    assert_eq!(pointed(&unit, &log(0x0D, 0, 0), &[]), (2, Some(5)));
    assert_eq!(pointed(&unit, &log(0x02, 1, 0), &[]), (3, None));
    for control in [0x00, 0x80, 0xC0] {
        let mut cdb = log(0x02, 0, 0);
        cdb[2] = control | 2;
        assert_eq!(pointed(&unit, &cdb, &[]), (2, Some(7)));
    }
    assert_eq!(pointed(&unit, &[0x4D, 1, 0x40, 0, 0, 0, 0, 0, 64, 0], &[]), (1, Some(0)));
}
