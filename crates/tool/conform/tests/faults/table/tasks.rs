//! Faults of task management, unit attentions and reservations.

use crate::fault::{Fault, PduAction, ProxyState, answer, only};
use crate::pdu::{COUNT, DATA_IN, FINAL, Pdu, R2T, RESPONSE, STAT_SN, TAG, TASK_RESPONSE};

const TEST_UNIT_READY: u8 = 0x00;
const MODE_SENSE: u8 = 0x1a;
const RESERVE_OUT: u8 = 0x5f;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
const GOOD: u8 = 0;
const CONFLICT: u8 = 0x18;
const TASK_ABORTED: u8 = 0x40;
/// Length of the write that waits for its data.
const WAITING_BYTES: u32 = 4096;
/// Bit TAS of the control mode page.
const TAS: u8 = 0x40;

/// Turns a RESERVATION CONFLICT of these commands into GOOD.
fn no_conflict(pdu: &mut Pdu, seen: &ProxyState, operation_code: u8) -> PduAction {
    let is_conflict = pdu.opcode() == RESPONSE && pdu.header[3] == CONFLICT && seen.is_of(pdu, operation_code);
    only(is_conflict, || pdu.set_status(GOOD))
}

/// Lets every nexus write.
fn all_may_write(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    no_conflict(pdu, seen, WRITE_10)
}

/// Lets every nexus read.
fn all_may_read(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    no_conflict(pdu, seen, READ_10)
}

/// Suppresses a unit attention with this code and qualifier.
fn not_told(pdu: &mut Pdu, code: u8, qualifier: u8) -> PduAction {
    let is_told = pdu.sense() == Some((6, code, qualifier));
    only(is_told, || pdu.set_status(GOOD))
}

/// Answers a write that task management aborted while it waited for its data.
fn answered_all_the_same(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() == R2T {
        seen.kept = Some(pdu.clone());
    }
    let waiting = seen.kept.clone().filter(|_| pdu.opcode() == TASK_RESPONSE);
    let Some(waiting) = waiting else { return PduAction::Pass };
    let mut response = Pdu::blank(RESPONSE);
    (response.header[1], response.header[3]) = (FINAL, TASK_ABORTED);
    response.put(TAG, waiting.tag());
    for at in [STAT_SN, 28, 32] {
        response.put(at, pdu.word(at));
    }
    PduAction::More(vec![response])
}

/// Suppresses the answer to commands that another nexus aborts.
fn unanswered(pdu: &mut Pdu, _: &mut ProxyState) -> PduAction {
    if pdu.opcode() == RESPONSE && pdu.header[3] == TASK_ABORTED { PduAction::Drop } else { PduAction::Pass }
}

/// Suppresses the answer, and reports by a unit attention that the commands were cleared.
fn unanswered_and_told(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() == RESPONSE && pdu.header[3] == TASK_ABORTED {
        return PduAction::Drop;
    }
    if pdu.opcode() == R2T && seen.is_of(pdu, WRITE_10) && pdu.word(COUNT) == WAITING_BYTES {
        seen.count = 1;
    }
    // The first command after the write that waits for its data.
    let is_next = pdu.opcode() == RESPONSE && seen.is_of(pdu, TEST_UNIT_READY) && seen.count == 1;
    only(is_next, || {
        seen.count = 2;
        pdu.header[3] = 2;
        pdu.data = vec![0, 18, 0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2f, 0, 0, 0, 0, 0];
    })
}

/// Emulates a target whose TAS is zero.
pub(super) fn without_tas(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() == DATA_IN && seen.is_of(pdu, MODE_SENSE) {
        tas(pdu, |byte| byte & !TAS);
        return PduAction::Pass;
    }
    unanswered_and_told(pdu, seen)
}

/// Changes TAS in the control mode page, which follows the header and its block descriptors.
fn tas(pdu: &mut Pdu, change: impl FnOnce(u8) -> u8) {
    let at = 4 + usize::from(pdu.data[3]) + 5;
    pdu.data[at] = change(pdu.data[at]);
}

pub(super) const FAULTS: &[Fault] = &[
    answer("a write that is aborted is answered", "resets.abort-task", "nobody asked", answered_all_the_same),
    answer("a task set that is aborted is answered", "resets.abort-task-set", "nobody asked", answered_all_the_same),
    answer("a reset is told to nobody", "resets.unit", "06/29 was due", |pdu, _| not_told(pdu, 0x29, 3)),
    answer("writes that a reset ends have no answer", "resets.unit-ends-tasks", "has no answer", unanswered),
    answer("commands that are cleared have no answer", "resets.clear-task-set", "has no answer", unanswered),
    answer(
        "commands that are cleared have an attention for an answer",
        "resets.clear-task-set",
        "has no answer",
        unanswered_and_told,
    ),
    answer("TASK ABORTED where TAS is zero", "resets.clear-task-set", "TAS is zero", |pdu, seen| {
        let is_mode = pdu.opcode() == DATA_IN && seen.is_of(pdu, MODE_SENSE);
        only(is_mode, || tas(pdu, |byte| byte & !TAS))
    }),
    answer("commands that are cleared end GOOD", "resets.clear-task-set", "was due", |pdu, _| {
        let is_aborted = pdu.opcode() == RESPONSE && pdu.header[3] == TASK_ABORTED;
        only(is_aborted, || pdu.header[3] = GOOD)
    }),
    answer("CLEAR TASK SET fails", "resets.clear-task-set", "it answered", |pdu, _| {
        let is_response = pdu.opcode() == TASK_RESPONSE;
        only(is_response, || pdu.header[2] = 255)
    }),
    answer(
        "who is not registered reserves",
        "reservations.register",
        "RESERVE by who is not registered",
        |pdu, seen| no_conflict(pdu, seen, RESERVE_OUT),
    ),
    answer("others write under Write Exclusive", "reservations.write-exclusive", "is due", all_may_write),
    answer("others read under Exclusive Access", "reservations.exclusive-access", "is due", all_may_read),
    answer(
        "others write under Write Exclusive, Registrants Only",
        "reservations.write-exclusive-registrants",
        "is due",
        all_may_write,
    ),
    answer(
        "others read under Exclusive Access, Registrants Only",
        "reservations.exclusive-access-registrants",
        "is due",
        all_may_read,
    ),
    answer(
        "others write under Write Exclusive, All Registrants",
        "reservations.write-exclusive-all",
        "is due",
        all_may_write,
    ),
    answer(
        "others read under Exclusive Access, All Registrants",
        "reservations.exclusive-access-all",
        "is due",
        all_may_read,
    ),
    answer("who is preempted is not told", "reservations.preempt", "06/2a was due", |pdu, _| not_told(pdu, 0x2a, 5)),
];
