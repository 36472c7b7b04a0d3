//! Checks of persistent reservations: access of each nexus by reservation type.

use super::data::block_bytes;
use super::resets::{pair, port, told};
use super::writes::send_whole;
use crate::session::{CommandResult, Session};
use crate::{CheckResult, Finding, TestTarget, ensure};

const GOOD: u8 = 0;
const CONFLICT: u8 = 0x18;
const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_ACCESS_REGISTRANTS: u8 = 6;
const WRITE_EXCLUSIVE_ALL: u8 = 7;
const EXCLUSIVE_ACCESS_ALL: u8 = 8;

/// Reservation keys of the holder and of the other registrant; the bytes spell "hold" and "besi".
const HOLDER: u64 = 0x686f_6c64;
const BESIDE: u64 = 0x6265_7369;

/// Access that a nexus has to the unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct AllowedAccess {
    read: bool,
    write: bool,
}

const ALL: AllowedAccess = AllowedAccess { read: true, write: true };
const READ: AllowedAccess = AllowedAccess { read: true, write: false };
const NOTHING: AllowedAccess = AllowedAccess { read: false, write: false };

/// Sends PERSISTENT RESERVE OUT with the service action, the type and both keys.
fn reserve_out(session: &mut Session, action: u8, kind: u8, key: u64, action_key: u64) -> CheckResult<CommandResult> {
    let mut parameters = [0; 24];
    // RESERVATION KEY and SERVICE ACTION RESERVATION KEY begin the parameter list (SPC-4).
    parameters[..8].copy_from_slice(&key.to_be_bytes());
    parameters[8..16].copy_from_slice(&action_key.to_be_bytes());
    send_whole(session, &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &parameters)
}

fn expect(what: &str, done: &CommandResult, status: u8) -> CheckResult {
    ensure(done.status == status, || format!("{what} ended with status {}, sense {:x?}", done.status, done.sense))
}

/// Removes the reservation and all registrations.
fn clear(session: &mut Session) -> CheckResult {
    // An earlier run may have left a registration with any key.
    let done = reserve_out(session, REGISTER_AND_IGNORE, 0, 0, HOLDER)?;
    if done.status == 2 && done.sense_key() == Some(5) {
        return Err(Finding::Untried("it knows no persistent reservations".to_owned()));
    }
    expect("REGISTER AND IGNORE EXISTING KEY", &done, GOOD)?;
    expect("CLEAR", &reserve_out(session, CLEAR, 0, HOLDER, 0)?, GOOD)
}

fn register_both(holder: &mut Session, beside: &mut Session) -> CheckResult {
    for (session, key) in [(holder, HOLDER), (beside, BESIDE)] {
        session.ready()?;
        expect("REGISTER", &reserve_out(session, REGISTER_AND_IGNORE, 0, 0, key)?, GOOD)?;
    }
    Ok(())
}

/// Probes the access of the session to the first block of the unit, of `block` bytes.
fn may(session: &mut Session, block: u32) -> CheckResult<AllowedAccess> {
    // Changes that another session made to the reservation are reported as unit attentions first.
    session.ready()?;
    let allowed = |what: &str, done: &CommandResult| match done.status {
        GOOD => Ok(true),
        CONFLICT => Ok(false),
        status => Err(Finding::Wrong(format!("{what} ended with status {status}, sense {:x?}", done.sense))),
    };
    let of_one_block = |operation_code| [operation_code, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let read = session.read(&of_one_block(0x28), block)?;
    let written = send_whole(session, &of_one_block(0x2a), &vec![0; block as usize])?;
    Ok(AllowedAccess { read: allowed("READ (10)", &read)?, write: allowed("WRITE (10)", &written)? })
}

/// Checks a reservation type: access of another registrant, and of a nexus without registration.
fn matrix(aim: &TestTarget, kind: u8, registered: AllowedAccess, stranger: AllowedAccess) -> CheckResult {
    let [mut holder, mut beside] = pair(aim)?;
    let mut third = port(aim, 3)?;
    let block = block_bytes(&mut third)?;
    clear(&mut holder)?;
    let result = (|| {
        register_both(&mut holder, &mut beside)?;
        expect("RESERVE", &reserve_out(&mut holder, RESERVE, kind, HOLDER, 0)?, GOOD)?;
        for (who, session, due) in [
            ("the holder", &mut holder, ALL),
            ("a registrant", &mut beside, registered),
            ("a stranger", &mut third, stranger),
        ] {
            let may = may(session, block)?;
            ensure(may == due, || format!("{who} has {may:?}, and {due:?} is due"))?;
        }
        Ok(())
    })();
    // The unit is cleared whatever the result, so that later checks find it without reservation.
    let cleared = holder.ready().and_then(|()| clear(&mut holder));
    result.and(cleared)
}

pub(super) fn register(aim: &TestTarget) -> CheckResult {
    let [mut session, _] = pair(aim)?;
    clear(&mut session)?;
    // CLEAR has removed the registration of this nexus, too (SPC-4).
    let done = reserve_out(&mut session, RESERVE, WRITE_EXCLUSIVE, HOLDER, 0)?;
    expect("RESERVE by who is not registered", &done, CONFLICT)
}

pub(super) fn write_exclusive(aim: &TestTarget) -> CheckResult {
    matrix(aim, WRITE_EXCLUSIVE, READ, READ)
}

pub(super) fn exclusive_access(aim: &TestTarget) -> CheckResult {
    matrix(aim, EXCLUSIVE_ACCESS, NOTHING, NOTHING)
}

pub(super) fn write_exclusive_registrants(aim: &TestTarget) -> CheckResult {
    matrix(aim, WRITE_EXCLUSIVE_REGISTRANTS, ALL, READ)
}

pub(super) fn exclusive_access_registrants(aim: &TestTarget) -> CheckResult {
    matrix(aim, EXCLUSIVE_ACCESS_REGISTRANTS, ALL, NOTHING)
}

pub(super) fn write_exclusive_all(aim: &TestTarget) -> CheckResult {
    matrix(aim, WRITE_EXCLUSIVE_ALL, ALL, READ)
}

pub(super) fn exclusive_access_all(aim: &TestTarget) -> CheckResult {
    matrix(aim, EXCLUSIVE_ACCESS_ALL, ALL, NOTHING)
}

pub(super) fn preempt(aim: &TestTarget) -> CheckResult {
    let [mut holder, mut beside] = pair(aim)?;
    clear(&mut holder)?;
    let result = (|| {
        register_both(&mut holder, &mut beside)?;
        expect("RESERVE", &reserve_out(&mut holder, RESERVE, WRITE_EXCLUSIVE, HOLDER, 0)?, GOOD)?;
        expect("PREEMPT", &reserve_out(&mut beside, PREEMPT, WRITE_EXCLUSIVE, BESIDE, HOLDER)?, GOOD)?;
        // REGISTRATIONS PREEMPTED.
        told(&mut holder, 0x2a, Some(5))
    })();
    // The holder depends on how far the check came, so both sessions try to clear.
    let cleared = [beside, holder].map(|mut session| session.ready().and_then(|()| clear(&mut session)));
    result.and_then(|()| cleared.into_iter().collect())
}
