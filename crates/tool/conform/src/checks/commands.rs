//! Checks of commands that every unit supports: INQUIRY and its VPD pages, REPORT LUNS, unknown operation codes.

use super::blocks::{accepted, number};
use crate::session::Session;
use crate::{CheckResult, Finding, TestTarget, ensure};

/// Allocation length used for VPD pages, in bytes.
const PAGE_BYTES: u32 = 1024;

fn ready(aim: &TestTarget) -> CheckResult<Session> {
    let mut session = Session::login(aim, |_| {})?;
    session.ready()?;
    Ok(session)
}

/// Sends an operation code that no standard assigns.
pub(super) fn unknown(aim: &TestTarget) -> CheckResult {
    let done = ready(aim)?.read(&[0x1f, 0, 0, 0, 0, 0], 0)?;
    let told = done.sensed().filter(|_| done.status == 2).map(|sensed| sensed.triple());
    ensure(told == Some((5, 0x20, 0)), || {
        format!("sense 5/20/00 is due, and it ended with status {}, sense {:x?}", done.status, done.sense)
    })
}

/// Checks that ALLOCATION LENGTH truncates the data and changes nothing else.
pub(super) fn allocation_length(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    let whole = session.read(&[0x12, 0, 0, 0, 96, 0], 96)?;
    accepted("INQUIRY", &whole)?;
    // The expected transfer length is 96 again, so that only ALLOCATION LENGTH can cut the data.
    let cut = session.read(&[0x12, 0, 0, 0, 5, 0], 96)?;
    accepted("INQUIRY of 5 bytes", &cut)?;
    ensure(cut.data.len() == 5, || format!("5 bytes were asked for, and {} came", cut.data.len()))?;
    ensure(whole.data.get(..5) == Some(&cut.data[..]), || {
        format!("it begins with {:02x?} when it is cut, and with {:02x?} when it is not", cut.data, whole.data.get(..5))
    })
}

fn page(session: &mut Session, code: u8) -> CheckResult<Vec<u8>> {
    let [high, low] = (PAGE_BYTES as u16).to_be_bytes();
    let done = session.read(&[0x12, 1, code, high, low, 0], PAGE_BYTES)?;
    accepted(&format!("INQUIRY of page {code:02X}h"), &done)?;
    ensure(done.data.get(1) == Some(&code), || {
        format!("page {code:02X}h was asked for, and {:02X?} came", done.data.get(1))
    })?;
    // PAGE LENGTH counts the whole page, even if the data is cut (SPC-4).
    let length = 4 + number(&done.data, 2, 2);
    ensure(done.data.len() as u64 == length.min(PAGE_BYTES.into()), || {
        format!("PAGE LENGTH of page {code:02X}h says {length} bytes in all, and {} came", done.data.len())
    })?;
    Ok(done.data)
}

pub(super) fn pages(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    let all = page(&mut session, 0)?;
    let listed = all.get(4..).unwrap_or_default().to_vec();
    // Pages 00h and 83h are mandatory, and the list is in ascending order (SPC-4).
    ensure(listed.is_sorted() && listed.contains(&0) && listed.contains(&0x83), || {
        format!("page 00h lists {listed:02X?}: 00h and 83h are mandatory, and the order rises")
    })?;
    for &code in &listed {
        page(&mut session, code)?;
    }
    // Page codes 84h to AFh belong to SPC-4; a page that the target does not list must be refused.
    let Some(absent) = (0x84..0xb0).find(|code| !listed.contains(code)) else { return Ok(()) };
    let done = session.read(&[0x12, 1, absent, 4, 0, 0], PAGE_BYTES)?;
    let told = done.sensed().filter(|_| done.status == 2).map(|sensed| sensed.triple());
    ensure(told == Some((5, 0x24, 0)), || {
        format!("page {absent:02X}h is not listed, and it ended with status {}, sense {:x?}", done.status, done.sense)
    })
}

pub(super) fn report_luns(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    // ALLOCATION LENGTH is in bytes 6 to 9: 16 KiB.
    let done = session.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0], 16 << 10)?;
    accepted("REPORT LUNS", &done)?;
    let length = number(&done.data, 0, 4);
    if length > (16 << 10) - 8 {
        return Err(Finding::Untried("it has more units than are asked for".to_owned()));
    }
    ensure(length.is_multiple_of(8) && done.data.len() as u64 == 8 + length, || {
        format!("LUN LIST LENGTH is {length}, and {} bytes came", done.data.len())
    })?;
    let mut luns = done.data.get(8..).unwrap_or_default().chunks(8);
    ensure(luns.any(|lun| lun == session.lun.0.to_be_bytes()), || {
        format!("the unit that is read, {:016x}, is not listed", session.lun.0)
    })
}
