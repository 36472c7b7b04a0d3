//! Faults of data that is written: R2T, residuals, and the data itself.

use crate::fault::{Fault, PduAction, ProxyState, answer, only, request};
use crate::pdu::{
    COMMAND, COUNT, DATA_OUT, DATA_SN, OFFSET, OVERFLOW, Pdu, R2T, RESPONSE, STAT_SN, TRANSFER_TAG, UNDERFLOW,
};

const WRITE_10: u8 = 0x2a;

fn r2t(pdu: &mut Pdu, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_r2t = pdu.opcode() == R2T;
    only(is_r2t, || change(pdu))
}

/// Changes the end of a WRITE (10).
fn end(pdu: &mut Pdu, seen: &ProxyState, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_end = pdu.opcode() == RESPONSE && seen.is_of(pdu, WRITE_10);
    only(is_end, || change(pdu))
}

fn no_residual(pdu: &mut Pdu) {
    pdu.header[1] &= !(UNDERFLOW | OVERFLOW);
    pdu.put(COUNT, 0);
}

/// Replaces lost Data-Out by zeros.
fn made_up(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() != DATA_OUT {
        return PduAction::Pass;
    }
    let last = seen.kept.replace(pdu.clone());
    let Some(mut lost) = last.filter(|last| pdu.word(DATA_SN) == last.word(DATA_SN) + 2) else {
        return PduAction::Pass;
    };
    let bytes = lost.data.len() as u32;
    lost.add(DATA_SN, 1);
    lost.add(OFFSET, bytes);
    lost.data.fill(0);
    PduAction::Instead(vec![lost, pdu.clone()])
}

/// Sends an R2T before the previous one was answered.
fn ahead(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() != R2T || !seen.is_nth(0) {
        return PduAction::Pass;
    }
    let mut second = pdu.clone();
    second.add(DATA_SN, 1);
    second.add(OFFSET, pdu.word(COUNT));
    PduAction::Instead(vec![pdu.clone(), second])
}

pub(super) const FAULTS: &[Fault] = &[
    request("immediate data is written with a bit turned", "writes.immediate", "is not what was written", |pdu, _| {
        let has_data = pdu.opcode() == COMMAND && !pdu.data.is_empty();
        only(has_data, || pdu.data[100] ^= 4)
    }),
    answer("a write that is whole has a residual", "writes.immediate", "the residual is", |pdu, seen| {
        end(pdu, seen, |pdu| {
            pdu.header[1] |= UNDERFLOW;
            pdu.put(COUNT, 512);
        })
    }),
    answer("data that was sent is asked for again", "writes.unsolicited", "offset 0 is asked for", |pdu, seen| {
        let is_first = pdu.opcode() == R2T && seen.is_nth(0);
        only(is_first, || pdu.put(OFFSET, 0))
    }),
    request("unsolicited data lands elsewhere", "writes.unsolicited", "is not what was written", |pdu, _| {
        let is_unsolicited = pdu.opcode() == DATA_OUT && pdu.word(TRANSFER_TAG) == u32::MAX;
        only(is_unsolicited, || pdu.data[0] ^= 1)
    }),
    answer("R2Ts numbered from one", "writes.solicited", "R2TSN 1 came where 0", |pdu, _| {
        r2t(pdu, |pdu| pdu.add(DATA_SN, 1))
    }),
    answer("an R2T that comes twice", "writes.solicited", "R2TSN 0 came where 1", |pdu, _| {
        if pdu.opcode() == R2T && pdu.word(DATA_SN) == 0 {
            return PduAction::Instead(vec![pdu.clone(), pdu.clone()]);
        }
        PduAction::Pass
    }),
    answer("an R2T beyond MaxBurstLength", "writes.solicited", "MaxBurstLength is", |pdu, _| {
        r2t(pdu, |pdu| pdu.put(COUNT, 32 << 10))
    }),
    answer("an R2T of nothing", "writes.solicited", "its PDU breaks a rule", |pdu, _| {
        r2t(pdu, |pdu| pdu.put(COUNT, 0))
    }),
    answer("an R2T without a transfer tag", "writes.solicited", "its PDU breaks a rule", |pdu, _| {
        r2t(pdu, |pdu| pdu.put(TRANSFER_TAG, u32::MAX))
    }),
    answer("an R2T that leaves data out", "writes.solicited", "is asked for where", |pdu, _| {
        r2t(pdu, |pdu| pdu.add(OFFSET, 4096))
    }),
    answer("an R2T with another LUN", "writes.solicited", "names the LUN", |pdu, _| r2t(pdu, |pdu| pdu.header[9] ^= 1)),
    answer("an R2T that takes a StatSN", "writes.solicited", "an R2T has the StatSN", |pdu, _| {
        r2t(pdu, |pdu| pdu.add(STAT_SN, 1))
    }),
    answer("an R2T with data", "writes.solicited", "an R2T has", |pdu, _| r2t(pdu, |pdu| pdu.data = vec![0; 4])),
    answer("an R2T without F", "writes.solicited", "an R2T has", |pdu, _| r2t(pdu, |pdu| pdu.header[1] = 0)),
    answer("ExpDataSN of a write is one too high", "writes.solicited", "ExpDataSN is 5", |pdu, seen| {
        end(pdu, seen, |pdu| pdu.add(DATA_SN, 1))
    }),
    request("a write lands one block further", "writes.solicited", "is not what was written", |pdu, seen| {
        let is_write = pdu.opcode() == COMMAND && seen.is_of(pdu, WRITE_10);
        only(is_write, || pdu.header[32 + 5] = 1)
    }),
    answer("a second R2T ahead of its turn", "writes.outstanding", "nobody asked", ahead),
    answer("data that was not wanted is not counted", "writes.underflow", "the residual is None", |pdu, seen| {
        end(pdu, seen, no_residual)
    }),
    answer("data that was missing is not counted", "writes.overflow", "the residual is None", |pdu, seen| {
        end(pdu, seen, no_residual)
    }),
    answer("a write without data is GOOD", "writes.wrong-way", "it says GOOD", |pdu, seen| {
        end(pdu, seen, |pdu| pdu.set_status(0))
    }),
    request("data that was lost is made up", "writes.lost-data", "is not what was written", made_up),
    request("Data-Out with a wrong digest is written", "writes.wrong-digest", "is not what was written", |pdu, _| {
        let is_data = pdu.opcode() == DATA_OUT;
        only(is_data, || pdu.is_data_damaged = false)
    }),
];
