use super::*;
use crate::Status;

fn sense(outcome: &Outcome) -> (u8, u8, u8) {
    assert_eq!(outcome.status, Status::CheckCondition);
    let sense = outcome.sense.as_deref().expect("CHECK CONDITION comes with sense");
    (sense.key as u8, sense.code.0, sense.code.1)
}

fn luns(report: u8, allocation: u32) -> Cdb {
    let mut cdb = [0; 12];
    (cdb[0], cdb[2]) = (0xA0, report);
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    Cdb::new(&cdb)
}

fn data(outcome: Outcome) -> Vec<u8> {
    assert_eq!(outcome.status, Status::Good);
    outcome.data_in.into_view().to_vec()
}

#[test]
fn absent_unit_answers_inquiry_with_no_unit() {
    let answer = data(execute(Cdb::new(&[0x12, 0, 0, 0, 96, 0]), &[]));
    assert_eq!((answer.len(), &answer[..5]), (36, &[0x7F, 0, 6, 0x12, 31][..]));
    assert_eq!(data(execute(Cdb::new(&[0x12, 1, 0, 0, 96, 0]), &[])), [0x7F, 0, 0, 1, 0]);
    assert_eq!(sense(&execute(Cdb::new(&[0x12, 1, 0x83, 0, 96, 0]), &[])), (5, 0x24, 0));
}

#[test]
fn absent_unit_says_25_00_to_request_sense_and_everything_else() {
    let answer = data(execute(Cdb::new(&[0x03, 0, 0, 0, 18, 0]), &[]));
    assert_eq!((answer[0], answer[2], answer[12], answer[13]), (0x70, 5, 0x25, 0));
    assert_eq!(data(execute(Cdb::new(&[0x03, 1, 0, 0, 18, 0]), &[]))[..4], [0x72, 5, 0x25, 0]);
    for code in (0..=255).filter(|code| ![0x03, 0x12, 0xA0].contains(code)) {
        assert_eq!(sense(&execute(Cdb::new(&[code]), &[])), (5, 0x25, 0), "{code:#x}");
    }
}

#[test]
fn report_luns_lists_the_units_in_their_forms_and_is_cut() {
    let units = [Lun::of(0), Lun::of(7), Lun::of(1000)];
    let mut expected = vec![0, 0, 0, 24, 0, 0, 0, 0];
    for lun in units {
        expected.extend(lun.0.to_be_bytes());
    }
    for report in [0, 2] {
        assert_eq!(data(report_luns(luns(report, 256), &units)), expected);
        assert_eq!(data(execute(luns(report, 256), &units)), expected);
    }
    assert_eq!(data(report_luns(luns(1, 256), &units)), [0; 8], "no unit is well known");
    assert_eq!(data(report_luns(luns(0, 20), &units)), expected[..20]);
}

#[test]
fn report_luns_refuses_unknown_reports_and_short_allocations() {
    let point = |outcome: Outcome| outcome.sense.as_deref().and_then(|sense| sense.field).map(|field| field.byte);
    assert_eq!(point(report_luns(luns(3, 256), &[])), Some(2));
    assert_eq!(point(report_luns(luns(0x11, 256), &[])), Some(2));
    assert_eq!(point(report_luns(luns(0, 15), &[])), Some(6));
}
