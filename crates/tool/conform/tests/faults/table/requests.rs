//! Faults of requests other than commands: pings, texts, Reject, logouts.

use crate::fault::{Fault, PduAction, ProxyState, answer, only, request};
use crate::parts::{PART, ask_again};
use crate::pdu::{
    ASYNC, CONTINUE, EXP_CMD_SN, FINAL, LOGOUT_RESPONSE, MAX_CMD_SN, NOP_IN, NOP_OUT, Pdu, REJECT, RESPONSE, STAT_SN,
    TAG, TASK_RESPONSE, TEXT_RESPONSE, TRANSFER_TAG,
};

fn of(opcode: u8, pdu: &mut Pdu, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_it = pdu.opcode() == opcode;
    only(is_it, || change(pdu))
}

pub(super) const FAULTS: &[Fault] = &[
    answer("a ping comes back with other data", "requests.ping", "other data", |pdu, _| {
        of(NOP_IN, pdu, |pdu| pdu.data[0] ^= 1)
    }),
    answer("a ping comes back without its data", "requests.ping", "other data", |pdu, _| {
        of(NOP_IN, pdu, |pdu| pdu.data.clear())
    }),
    answer("a ping is answered twice", "requests.ping", "a ping was due", |pdu, _| {
        if pdu.opcode() == NOP_IN { PduAction::Twice } else { PduAction::Pass }
    }),
    answer("no ping is answered", "requests.ping", "it said nothing", |pdu, _| {
        if pdu.opcode() == NOP_IN { PduAction::Drop } else { PduAction::Pass }
    }),
    request("a NOP-Out without a tag is answered", "requests.ping-unanswered", "nobody asked", |pdu, _| {
        let has_no_tag = pdu.opcode() == NOP_OUT && pdu.tag() == u32::MAX;
        only(has_no_tag, || pdu.put(TAG, 0x7fff))
    }),
    answer("SendTargets names another target", "requests.send-targets", "it answered", |pdu, _| {
        of(TEXT_RESPONSE, pdu, |pdu| pdu.replace("iqn.", "iqn.x"))
    }),
    answer("a text without an end", "requests.send-targets", "has no end after 1024 parts", |pdu, _| {
        of(TEXT_RESPONSE, pdu, |pdu| {
            pdu.header[1] = CONTINUE;
            pdu.put(TRANSFER_TAG, PART);
        })
    })
    .reading(ask_again),
    answer("a Text Response names another task", "requests.send-targets", "names task", |pdu, _| {
        of(TEXT_RESPONSE, pdu, |pdu| pdu.add(TAG, 1))
    }),
    answer("an unknown text key is irrelevant", "requests.text-key", "it answered", |pdu, _| {
        of(TEXT_RESPONSE, pdu, |pdu| pdu.replace("NotUnderstood", "Irrelevant"))
    }),
    answer("an exchange ends before the initiator does", "requests.text-goes-on", "has not ended", |pdu, _| {
        of(TEXT_RESPONSE, pdu, |pdu| {
            pdu.header[1] |= FINAL;
            pdu.put(TRANSFER_TAG, u32::MAX);
        })
    }),
    answer("ABORT TASK of an absent task is complete", "requests.abort-absent", "it answered Complete", |pdu, _| {
        of(TASK_RESPONSE, pdu, |pdu| pdu.header[2] = 0)
    }),
    answer(
        "a Task Management Function Response names another task",
        "requests.abort-absent",
        "names task",
        |pdu, _| of(TASK_RESPONSE, pdu, |pdu| pdu.add(TAG, 1)),
    ),
    answer("task management is not answered", "requests.abort-absent", "it said nothing", |pdu, _| {
        if pdu.opcode() == TASK_RESPONSE { PduAction::Drop } else { PduAction::Pass }
    }),
    answer("an unknown function is complete", "requests.unknown-function", "it has done it", |pdu, _| {
        if pdu.opcode() != REJECT {
            return of(TASK_RESPONSE, pdu, |pdu| pdu.header[2] = 0);
        }
        // The Reject contains the header of the request.
        let mut response = pdu.clone();
        response.header[0] = TASK_RESPONSE;
        response.header[2] = 0;
        response.header[TAG..TAG + 4].copy_from_slice(&pdu.data[TAG..TAG + 4]);
        response.data.clear();
        *pdu = response;
        PduAction::Pass
    }),
    answer("a Reject without the header", "requests.unknown-opcode", "lacks the header", |pdu, _| {
        of(REJECT, pdu, |pdu| pdu.data.truncate(16))
    }),
    answer("a Reject with a tag", "requests.unknown-opcode", "names a task", |pdu, _| {
        of(REJECT, pdu, |pdu| pdu.put(TAG, 1))
    }),
    answer("a logout that fails", "requests.logout", "it answered", |pdu, _| {
        of(LOGOUT_RESPONSE, pdu, |pdu| pdu.header[2] = 3)
    }),
    answer("a Logout Response names another task", "requests.logout", "names task", |pdu, _| {
        of(LOGOUT_RESPONSE, pdu, |pdu| pdu.add(TAG, 1))
    }),
    answer("a connection that is not there is closed", "requests.logout-other", "it answered Closed", |pdu, _| {
        of(LOGOUT_RESPONSE, pdu, |pdu| pdu.header[2] = 0)
    }),
    answer("another connection is told to be lost", "messages.connection-lost", "is lost, and it is", |pdu, seen| {
        connection_dropped(pdu, seen, 9, 0)
    }),
    answer("a message with something in reserved bytes", "messages.connection-lost", "reserved bytes", |pdu, seen| {
        connection_dropped(pdu, seen, 1, 1)
    }),
];

/// Reports a dropped connection once the unit is ready.
fn connection_dropped(pdu: &Pdu, seen: &mut ProxyState, cid: u8, reserved: u8) -> PduAction {
    let is_ready = pdu.opcode() == RESPONSE && pdu.header[3] == 0;
    if !is_ready || !seen.is_nth(0) {
        return PduAction::Pass;
    }
    let mut message = Pdu::blank(ASYNC);
    (message.header[1], message.header[36], message.header[39], message.header[47]) = (FINAL, 2, cid, reserved);
    message.put(TAG, u32::MAX);
    for at in [STAT_SN, EXP_CMD_SN, MAX_CMD_SN] {
        message.put(at, pdu.word(at));
    }
    PduAction::More(vec![message])
}
