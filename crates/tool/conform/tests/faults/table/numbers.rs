//! Faults of sequence numbers: StatSN, command window, and order of commands.

use super::is_later;
use crate::fault::{Fault, PduAction, ProxyState, answer, only, request};
use crate::pdu::{
    CMD_SN, COMMAND, DATA_SN, EXP_CMD_SN, MAX_CMD_SN, NOP_IN, Pdu, RESPONSE, STAT_SN, TAG, TASK_RESPONSE,
};

/// Executes commands in order of arrival, regardless of CmdSN.
fn in_order_of_arrival(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() != COMMAND {
        return PduAction::Pass;
    }
    // The first command of a session keeps its number.
    let next = seen.kept.as_ref().map_or(pdu.word(CMD_SN), |last| last.word(CMD_SN).wrapping_add(1));
    pdu.put(CMD_SN, next);
    seen.kept = Some(pdu.clone());
    PduAction::Pass
}

fn response(pdu: &mut Pdu, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_response = pdu.opcode() == RESPONSE;
    only(is_response, || change(pdu))
}

pub(super) const FAULTS: &[Fault] = &[
    answer("a StatSN is left out", "login.plain", "StatSN", |pdu, _| response(pdu, |pdu| pdu.add(STAT_SN, 1))),
    answer("a StatSN comes twice", "login.plain", "StatSN", |pdu, seen| {
        let is_later = pdu.opcode() == RESPONSE && is_later(seen);
        only(is_later, || pdu.add(STAT_SN, u32::MAX))
    }),
    answer("a task management response without a StatSN of its own", "requests.abort-absent", "StatSN", |pdu, _| {
        let is_response = pdu.opcode() == TASK_RESPONSE;
        only(is_response, || pdu.add(STAT_SN, u32::MAX))
    }),
    answer("ExpCmdSN stays behind", "login.plain", "ExpCmdSN is", |pdu, seen| {
        let is_first = pdu.opcode() == RESPONSE && !is_later(seen);
        only(is_first, || pdu.add(EXP_CMD_SN, u32::MAX))
    }),
    answer("ExpCmdSN runs ahead", "login.plain", "ExpCmdSN is", |pdu, _| response(pdu, |pdu| pdu.add(EXP_CMD_SN, 1))),
    answer("ExpCmdSN goes back", "login.plain", "ExpCmdSN goes back", |pdu, _| {
        response(pdu, |pdu| pdu.add(EXP_CMD_SN, 0_u32.wrapping_sub(9)))
    }),
    answer("MaxCmdSN goes back", "login.plain", "MaxCmdSN goes back", |pdu, seen| {
        let is_later = pdu.opcode() == RESPONSE && is_later(seen);
        only(is_later, || pdu.add(MAX_CMD_SN, 0_u32.wrapping_sub(5)))
    }),
    answer("a window of less than nothing", "login.plain", "MaxCmdSN", |pdu, seen| {
        let has_one = seen.is_in || pdu.opcode() == crate::pdu::LOGIN_RESPONSE;
        let below = pdu.word(EXP_CMD_SN).wrapping_sub(3);
        only(has_one, || pdu.put(MAX_CMD_SN, below))
    }),
    answer("ExpDataSN of one without data", "login.plain", "ExpDataSN is 1", |pdu, _| {
        response(pdu, |pdu| pdu.add(DATA_SN, 1))
    }),
    answer("an answer to another task", "login.plain", "was due, and it said", |pdu, _| {
        response(pdu, |pdu| pdu.add(TAG, 1))
    }),
    answer("a ping of its own with data", "requests.ping", "ping", |pdu, _| {
        let is_ping = pdu.opcode() == NOP_IN;
        only(is_ping, || pdu.put(TAG, u32::MAX))
    }),
    request("a command ahead of a hole does not wait", "numbers.order", "nobody asked", in_order_of_arrival),
    request("a command outside the window is done", "numbers.outside", "nobody asked", in_order_of_arrival),
    request("a CmdSN that came already is done again", "numbers.twice", "nobody asked", in_order_of_arrival),
    request("an immediate command advances CmdSN", "numbers.immediate", "ExpCmdSN went on", |pdu, _| {
        let is_command = pdu.opcode() == COMMAND;
        only(is_command, || pdu.header[0] &= !0x40)
    }),
];
