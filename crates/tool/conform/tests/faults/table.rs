//! Fault tables, by topic.

mod data;
mod login;
mod numbers;
mod requests;
mod scsi;
mod tasks;
mod unasked;
mod writes;

use crate::fault::{Fault, allowed};
use crate::fault::{PduAction, ProxyState, only};
use crate::pdu::{DATA_IN, DATA_SN, FINAL, MAX_CMD_SN, Pdu, RESPONSE, STAT_SN, STATUS, TAG};
pub(crate) use unasked::SOUND as UNASKED;

/// Returns every fault.
pub(crate) fn faults() -> impl Iterator<Item = &'static Fault> {
    let tables = [
        login::FAULTS,
        numbers::FAULTS,
        data::FAULTS,
        writes::FAULTS,
        requests::FAULTS,
        scsi::FAULTS,
        tasks::FAULTS,
        unasked::FAULTS,
    ];
    tables.into_iter().flatten()
}

/// Deviations that no rule forbids: no check may report them.
pub(crate) const ALLOWED: &[Fault] = &[
    allowed("nothing", None),
    allowed(
        "the status of a read apart from its data",
        Some(|pdu, seen| {
            let is_again = pdu.ends() && !seen.pdus.insert((pdu.tag(), pdu.word(DATA_SN)));
            match apart(pdu, 0) {
                // A repeated status comes without the data.
                PduAction::Instead(mut pdus) if is_again => PduAction::Instead(pdus.split_off(1)),
                deed => deed,
            }
        }),
    ),
    allowed(
        "a window that is wider",
        Some(|pdu, seen| {
            let has_one = seen.is_in;
            only(has_one, || pdu.add(MAX_CMD_SN, 7))
        }),
    ),
    allowed(
        "ExpDataSN without R2Ts",
        Some(|pdu, _| {
            let is_response = pdu.opcode() == RESPONSE;
            only(is_response, || pdu.put(DATA_SN, 0))
        }),
    ),
    allowed("TAS of zero, and unit attentions instead of TASK ABORTED", Some(tasks::without_tas)),
];

/// Separates the status of a read from its data: a SCSI Response whose ExpDataSN is too high by `too_high`.
pub(crate) fn apart(pdu: &mut Pdu, too_high: u32) -> PduAction {
    if pdu.opcode() != DATA_IN || !pdu.ends() {
        return PduAction::Pass;
    }
    let mut response = Pdu::blank(RESPONSE);
    response.header[1] = FINAL | pdu.header[1] & 0x06;
    response.header[3] = pdu.header[3];
    for at in [TAG, STAT_SN, 28, MAX_CMD_SN, 44] {
        response.put(at, pdu.word(at));
    }
    response.put(DATA_SN, pdu.word(DATA_SN).wrapping_add(1).wrapping_add(too_high));
    let mut data = pdu.clone();
    data.header[1] &= !(STATUS | 0x06);
    data.header[3] = 0;
    data.put(STAT_SN, 0);
    data.put(44, 0);
    PduAction::Instead(vec![data, response])
}

/// True for every PDU of a session except the first; used to inject a fault later.
pub(crate) fn is_later(seen: &mut ProxyState) -> bool {
    seen.count += 1;
    seen.count > 1
}
