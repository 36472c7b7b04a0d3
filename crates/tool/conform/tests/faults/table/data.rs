//! Faults of data that is read: Data-In, residuals, digests, recovery.

use super::apart;
use crate::fault::{Fault, PduAction, ProxyState, answer, only, request};
use crate::pdu::{
    COUNT, DATA_IN, DATA_SN, FINAL, NOP_OUT, OFFSET, OVERFLOW, Pdu, REJECT, RESPONSE, TASK_RESPONSE, TRANSFER_TAG,
    UNDERFLOW,
};

const READ_10: u8 = 0x28;
const INQUIRY: u8 = 0x12;

/// Changes the Data-In PDUs of a READ (10).
fn data_in(pdu: &mut Pdu, seen: &ProxyState, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_data = pdu.opcode() == DATA_IN && seen.is_of(pdu, READ_10);
    only(is_data, || change(pdu))
}

/// Changes the end of an INQUIRY.
fn inquiry_end(pdu: &mut Pdu, seen: &ProxyState, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_end = pdu.ends() && seen.is_of(pdu, INQUIRY);
    only(is_end, || change(pdu))
}

/// True for a PDU that was already sent on the connection, apart from its command window.
fn is_again(pdu: &Pdu, seen: &mut ProxyState) -> bool {
    !seen.pdus.insert((pdu.tag(), pdu.word(DATA_SN)))
}

pub(super) const FAULTS: &[Fault] = &[
    answer("Data-In numbered from one", "data.in-order", "DataSN 1 came where 0", |pdu, seen| {
        data_in(pdu, seen, |pdu| pdu.add(DATA_SN, 1))
    }),
    answer("Data-In with a hole in its numbers", "data.in-order", "DataSN", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.word(DATA_SN) > 2 {
                pdu.add(DATA_SN, 1);
            }
        })
    }),
    answer("Data-In that is lost", "data.in-order", "DataSN 2 came where 1", |pdu, seen| {
        let is_lost = pdu.opcode() == DATA_IN && seen.is_of(pdu, READ_10) && pdu.word(DATA_SN) == 1;
        if is_lost { PduAction::Drop } else { PduAction::Pass }
    }),
    answer("Data-In that comes twice", "data.in-order", "DataSN 1 came where 2", |pdu, seen| {
        let is_doubled = pdu.opcode() == DATA_IN && seen.is_of(pdu, READ_10) && pdu.word(DATA_SN) == 1;
        if is_doubled { PduAction::Instead(vec![pdu.clone(), pdu.clone()]) } else { PduAction::Pass }
    }),
    answer("Data-In with a wrong Buffer Offset", "data.in-order", "offset", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.word(DATA_SN) == 2 {
                pdu.add(OFFSET, 512);
            }
        })
    }),
    answer("Data-In that lacks a block", "data.in-order", "bytes came of", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.ends() {
                pdu.data.truncate(512);
            }
        })
    }),
    answer("an underflow of a read that is whole", "data.in-order", "the residual is", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.ends() {
                pdu.header[1] |= UNDERFLOW;
                pdu.put(COUNT, 512);
            }
        })
    }),
    answer("a residual without a direction", "data.in-order", "neither overflow nor underflow", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.ends() {
                pdu.put(COUNT, 4);
            }
        })
    }),
    answer("Data-In to be acknowledged at level 0", "data.in-order", "acknowledged at level 0", |pdu, seen| {
        data_in(pdu, seen, |pdu| pdu.header[1] |= 0x40)
    }),
    answer("reserved bits in a Data-In", "data.in-order", "reserved bits", |pdu, seen| {
        data_in(pdu, seen, |pdu| pdu.header[1] |= 0x20)
    }),
    answer("ExpDataSN of a read is one too high", "data.in-order", "ExpDataSN is", |pdu, seen| {
        if seen.is_of(pdu, READ_10) { apart(pdu, 1) } else { PduAction::Pass }
    }),
    answer("ExpDataSN of a read is one too low", "data.in-order", "ExpDataSN is", |pdu, seen| {
        if seen.is_of(pdu, READ_10) { apart(pdu, u32::MAX) } else { PduAction::Pass }
    }),
    answer("a burst without an end", "data.bursts", "MaxBurstLength is", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if !pdu.ends() {
                pdu.header[1] &= !FINAL;
            }
        })
    }),
    answer("a status before the final data", "data.bursts", "its PDU breaks a rule", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.ends() {
                pdu.header[1] &= !FINAL;
            }
        })
    }),
    answer("an underflow that is not told", "data.underflow", "the residual is None", |pdu, seen| {
        inquiry_end(pdu, seen, |pdu| {
            pdu.header[1] &= !UNDERFLOW;
            pdu.put(COUNT, 0);
        })
    }),
    answer("an underflow of one byte less", "data.underflow", "the residual is Underflow(218)", |pdu, seen| {
        inquiry_end(pdu, seen, |pdu| pdu.add(COUNT, u32::MAX))
    }),
    answer("underflow and overflow at once", "data.underflow", "its PDU breaks a rule", |pdu, seen| {
        inquiry_end(pdu, seen, |pdu| pdu.header[1] |= OVERFLOW | UNDERFLOW)
    }),
    answer("an INQUIRY that is BUSY with too much data", "data.underflow", "gave 300 bytes", |pdu, seen| {
        inquiry_end(pdu, seen, |pdu| {
            pdu.header[3] = 8;
            pdu.data.resize(300, 0);
        })
    }),
    answer("an overflow that is not told", "data.overflow", "the residual is None", |pdu, seen| {
        inquiry_end(pdu, seen, |pdu| {
            pdu.header[1] &= !OVERFLOW;
            pdu.put(COUNT, 0);
        })
    }),
    answer("more data than was expected", "data.overflow", "bytes came of 16", |pdu, seen| {
        inquiry_end(pdu, seen, |pdu| pdu.data.extend([0; 20]))
    }),
    answer("data for a READ that is taken", "data.wrong-way", "the residual is None", |pdu, seen| {
        let is_end = pdu.opcode() == RESPONSE && seen.is_of(pdu, READ_10);
        only(is_end, || {
            pdu.header[1] &= !UNDERFLOW;
            pdu.put(COUNT, 0);
        })
    }),
    answer("a wrong header digest", "data.header-digest", "its header digest is wrong", |pdu, seen| {
        data_in(pdu, seen, |pdu| pdu.is_header_damaged = true)
    }),
    answer("a wrong data digest", "data.data-digest", "its data digest is wrong", |pdu, seen| {
        data_in(pdu, seen, |pdu| pdu.is_data_damaged = true)
    }),
    request("data with a wrong digest is believed", "data.wrong-digest", "whose data digest is wrong", |pdu, _| {
        let is_ping = pdu.opcode() == NOP_OUT;
        only(is_ping, || pdu.is_data_damaged = false)
    }),
    answer("a SNACK at level 0 without an answer", "recovery.snack-at-0", "it said nothing", no_reject),
    answer("a SNACK for what is acknowledged without an answer", "recovery.acknowledged", "it said nothing", no_reject),
    answer("Data-In that is sent again with other data", "recovery.data", "another PDU came", |pdu, seen| {
        let is_other = pdu.opcode() == DATA_IN && seen.is_of(pdu, READ_10) && is_again(pdu, seen);
        only(is_other, || pdu.data[0] ^= 1)
    }),
    answer("a read that is BUSY", "recovery.data", "the read ended after 1 PDUs", |pdu, seen| {
        if pdu.opcode() != DATA_IN || !seen.is_of(pdu, READ_10) {
            return PduAction::Pass;
        }
        if !pdu.ends() {
            return PduAction::Drop;
        }
        match apart(pdu, 0) {
            PduAction::Instead(mut pdus) => {
                // Only the status is left, and no Data-In came before it.
                let mut response = pdus.split_off(1).remove(0);
                response.header[3] = 8;
                response.put(DATA_SN, 0);
                PduAction::Instead(vec![response])
            }
            deed => deed,
        }
    }),
    answer("a status that is sent again with another number", "recovery.status", "another PDU came", |pdu, seen| {
        let is_other = pdu.opcode() == DATA_IN && seen.is_of(pdu, READ_10) && is_again(pdu, seen);
        only(is_other, || pdu.add(crate::pdu::STAT_SN, 1))
    }),
    answer("a Reject with another reason", "recovery.wrong-digest", "its reason is", |pdu, _| {
        let is_reject = pdu.opcode() == REJECT;
        only(is_reject, || pdu.header[2] = 4)
    }),
    answer("a task that cannot be reassigned", "recovery.task-reassign", "TASK REASSIGN came to", |pdu, _| {
        let is_response = pdu.opcode() == TASK_RESPONSE;
        only(is_response, || pdu.header[2] = 4)
    }),
    answer("a Data-In without S has a status", "data.in-order", "a Data-In without S", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if !pdu.ends() {
                pdu.header[3] = 8;
            }
        })
    }),
    answer("CHECK CONDITION in a Data-In", "data.in-order", "no room for sense data", |pdu, seen| {
        data_in(pdu, seen, |pdu| {
            if pdu.ends() {
                pdu.header[3] = 2;
            }
        })
    }),
    answer("the answer to a ping has a transfer tag", "requests.ping", "Target Transfer Tag", |pdu, _| {
        let is_ping = pdu.opcode() == crate::pdu::NOP_IN;
        only(is_ping, || pdu.put(TRANSFER_TAG, 7))
    }),
];

fn no_reject(pdu: &mut Pdu, _: &mut ProxyState) -> PduAction {
    if pdu.opcode() == REJECT { PduAction::Drop } else { PduAction::Pass }
}
