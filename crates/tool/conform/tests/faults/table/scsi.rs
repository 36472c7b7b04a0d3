//! Faults of the unit: sense data, parameter data, and block commands.

use crate::fault::{Fault, PduAction, ProxyState, answer, only, request};
use crate::pdu::{COMMAND, COUNT, DATA_OUT, Pdu, RESPONSE, UNDERFLOW};

const CDB: usize = 32;
const INQUIRY: u8 = 0x12;
const READ_CAPACITY_10: u8 = 0x25;
const UNMAP: u8 = 0x42;
const READ_16: u8 = 0x88;
const COMPARE_AND_WRITE: u8 = 0x89;
const WRITE_16: u8 = 0x8a;
const VERIFY_16: u8 = 0x8f;
const WRITE_SAME_16: u8 = 0x93;
/// Operation code of which GET LBA STATUS is a service action.
const SERVICE_ACTION_IN_16: u8 = 0x9e;
const REPORT_LUNS: u8 = 0xa0;

/// Changes the data that a command returns.
fn data(operation_code: u8, pdu: &mut Pdu, seen: &ProxyState, change: impl FnOnce(&mut Vec<u8>)) -> PduAction {
    let is_it = pdu.opcode() == crate::pdu::DATA_IN && seen.is_of(pdu, operation_code);
    only(is_it, || change(&mut pdu.data))
}

/// Replaces the sense of a refusal with this additional sense code.
fn sense(pdu: &mut Pdu, from: u8, to: (u8, u8, u8)) -> PduAction {
    let is_it = pdu.sense().is_some_and(|(_, code, _)| code == from);
    only(is_it, || pdu.set_sense(to.0, to.1, to.2))
}

/// Changes a command with this operation code.
fn command(operation_code: u8, pdu: &mut Pdu, change: impl FnOnce(&mut Pdu)) -> PduAction {
    let is_it = pdu.opcode() == COMMAND && pdu.header[CDB] == operation_code;
    only(is_it, || change(pdu))
}

/// Reduces a command of two blocks to one block.
fn one_of_two(operation_code: u8, pdu: &mut Pdu) -> PduAction {
    command(operation_code, pdu, |pdu| {
        if pdu.header[CDB + 13] == 2 {
            pdu.header[CDB + 13] = 1;
        }
    })
}

/// Changes the parameter list of an UNMAP, which comes with the command or after it.
fn unmap_list(pdu: &mut Pdu, seen: &ProxyState, change: impl FnOnce(&mut Vec<u8>)) -> PduAction {
    let is_it = matches!(pdu.opcode(), COMMAND | DATA_OUT) && seen.is_of(pdu, UNMAP) && pdu.data.len() >= 24;
    only(is_it, || change(&mut pdu.data))
}

pub(super) const FAULTS: &[Fault] = &[
    answer("CHECK CONDITION without sense data", "requests.absent-lun", "without sense data", |pdu, _| {
        let is_refused = pdu.sense().is_some();
        only(is_refused, || pdu.data.clear())
    }),
    answer("SenseLength beyond the data segment", "requests.absent-lun", "SenseLength is", |pdu, _| {
        let is_refused = pdu.sense().is_some();
        only(is_refused, || pdu.data[0] = 1)
    }),
    answer("sense data of no format", "requests.absent-lun", "no response code", |pdu, _| {
        let is_refused = pdu.sense().is_some();
        only(is_refused, || pdu.data[2] = 0x10)
    }),
    answer("an absent unit is an unknown command", "requests.absent-lun", "status 2", |pdu, _| {
        sense(pdu, 0x25, (5, 0x20, 0))
    }),
    answer("a SCSI Response without F", "login.plain", "in byte 1", |pdu, _| {
        let is_response = pdu.opcode() == RESPONSE;
        only(is_response, || pdu.header[1] &= 0x7f)
    }),
    answer("reserved bits in a SCSI Response", "login.plain", "in byte 1", |pdu, _| {
        let is_response = pdu.opcode() == RESPONSE;
        only(is_response, || pdu.header[1] |= 0x40)
    }),
    answer("Target Failure where a command was done", "login.plain", "not Command Completed at Target", |pdu, _| {
        let is_response = pdu.opcode() == RESPONSE;
        only(is_response, || pdu.header[2] = 1)
    }),
    answer("a SNACK Tag without a SNACK", "login.plain", "SNACK Tag", |pdu, _| {
        let is_response = pdu.opcode() == RESPONSE;
        only(is_response, || pdu.put(crate::pdu::TRANSFER_TAG, 1))
    }),
    answer("a bidirectional residual", "login.plain", "bidirectional residual", |pdu, _| {
        let is_response = pdu.opcode() == RESPONSE;
        only(is_response, || {
            pdu.header[1] |= 0x08;
            pdu.put(40, 512);
        })
    }),
    answer("a residual of a command without data", "login.plain", "neither overflow nor underflow", |pdu, _| {
        let is_response = pdu.opcode() == RESPONSE;
        only(is_response, || pdu.put(COUNT, 512))
    }),
    answer("an unknown operation is an invalid field", "commands.unknown", "5/20/00 is due", |pdu, _| {
        sense(pdu, 0x20, (5, 0x24, 0))
    }),
    request(
        "the allocation length is not looked at",
        "commands.allocation-length",
        "5 bytes were asked for",
        |pdu, _| command(INQUIRY, pdu, |pdu| pdu.header[CDB + 4] = 96),
    ),
    answer("a page with the code of another", "commands.pages", "was asked for", |pdu, seen| {
        let is_vital = seen.cdb(pdu)[2] == 0x83;
        data(INQUIRY, pdu, seen, |data| data[1] = if is_vital { 0x80 } else { data[1] })
    }),
    answer("a page with the length of another", "commands.pages", "PAGE LENGTH", |pdu, seen| {
        let is_vital = seen.cdb(pdu)[2] == 0x83;
        data(INQUIRY, pdu, seen, |data| data[3] = data[3].wrapping_add(u8::from(is_vital)))
    }),
    answer("an absent page is an unknown operation", "commands.pages", "is not listed", |pdu, seen| {
        if seen.is_of(pdu, INQUIRY) { sense(pdu, 0x24, (5, 0x20, 0)) } else { PduAction::Pass }
    }),
    answer("LUN LIST LENGTH of one unit less", "commands.report-luns", "LUN LIST LENGTH", |pdu, seen| {
        data(REPORT_LUNS, pdu, seen, |data| data[3] = data[3].wrapping_sub(8))
    }),
    answer(
        "the last block of READ CAPACITY (10) is the count",
        "blocks.capacity",
        "READ CAPACITY (10) tells",
        |pdu, seen| data(READ_CAPACITY_10, pdu, seen, |data| data[3] = data[3].wrapping_add(1)),
    ),
    answer(
        "the last block of READ CAPACITY (16) is the count",
        "blocks.capacity",
        "READ CAPACITY (10) tells",
        |pdu, seen| {
            let is_capacity = seen.cdb(pdu)[1] == 0x10;
            data(SERVICE_ACTION_IN_16, pdu, seen, |data| data[6] = data[6].wrapping_add(u8::from(is_capacity)))
        },
    ),
    answer("a read beyond the end is an invalid field", "blocks.read-beyond", "5/21/00 is due", |pdu, _| {
        sense(pdu, 0x21, (5, 0x24, 0))
    }),
    request("a read across the end wraps", "blocks.read-beyond", "5/21/00 is due", |pdu, _| {
        command(READ_16, pdu, |pdu| pdu.header[CDB + 2..CDB + 10].fill(0))
    }),
    request("a VERIFY across the end is cut", "blocks.verify", "5/21/00 is due", |pdu, _| one_of_two(VERIFY_16, pdu)),
    request("VERIFY compares nothing", "blocks.verify-compares", "e/1d/00 is due", |pdu, _| {
        command(VERIFY_16, pdu, |pdu| pdu.header[CDB + 1] = 0)
    }),
    answer("a read that is GOOD without data", "blocks.verify-compares", "0 bytes of 2048 came", |pdu, seen| {
        let is_it = pdu.opcode() == crate::pdu::DATA_IN && seen.is_of(pdu, READ_16);
        let bytes = pdu.data.len() as u32;
        only(is_it, || {
            pdu.header[1] |= UNDERFLOW;
            pdu.put(COUNT, bytes);
            pdu.data.clear();
        })
    }),
    answer("a miscompare of VERIFY is a medium error", "blocks.verify-compares", "e/1d/00 is due", |pdu, _| {
        sense(pdu, 0x1d, (3, 0x11, 0))
    }),
    answer("GET LBA STATUS with a gap", "blocks.lba-status", "is due", |pdu, seen| {
        let is_status = seen.cdb(pdu)[1] == 0x12;
        data(SERVICE_ACTION_IN_16, pdu, seen, |data| data[15] = data[15].wrapping_add(9 * u8::from(is_status)))
    }),
    answer("GET LBA STATUS with a length that is wrong", "blocks.lba-status", "PARAMETER DATA LENGTH", |pdu, seen| {
        let is_status = seen.cdb(pdu)[1] == 0x12;
        data(SERVICE_ACTION_IN_16, pdu, seen, |data| data[3] = data[3].wrapping_sub(4 * u8::from(is_status)))
    }),
    answer("GET LBA STATUS beyond the end is GOOD", "blocks.lba-status", "5/21/00 is due", |pdu, seen| {
        let is_beyond = pdu.sense().is_some() && seen.is_of(pdu, SERVICE_ACTION_IN_16);
        only(is_beyond, || pdu.set_status(0))
    }),
    request("a write across the end is cut", "blocks.write-beyond", "5/21/00 is due", |pdu, _| {
        one_of_two(WRITE_16, pdu)
    }),
    answer("a write across the end is an invalid field", "blocks.write-beyond", "5/21/00 is due", |pdu, _| {
        sense(pdu, 0x21, (5, 0x24, 0))
    }),
    request("UNMAP of one block more", "blocks.unmap", "has changed block 12", |pdu, seen| {
        unmap_list(pdu, seen, |list| list[19] += 1)
    }),
    request("UNMAP of nothing is refused", "blocks.unmap", "UNMAP of nothing ended", |pdu, _| {
        command(UNMAP, pdu, |pdu| {
            if pdu.header[CDB + 8] == 0 {
                pdu.header[CDB + 1] = 0x80;
            }
        })
    }),
    request("an unmapped block is not zeros", "blocks.unmap", "reads neither", |pdu, seen| {
        // Writes zeros over the blocks instead of unmapping them.
        let is_unmapped = pdu.opcode() == COMMAND && pdu.header[CDB] == UNMAP && !pdu.data.is_empty();
        seen.count += u32::from(is_unmapped);
        only(is_unmapped, || {
            let mut cdb = [0; 16];
            (cdb[0], cdb[9], cdb[13]) = (WRITE_SAME_16, 4, 8);
            pdu.header[CDB..].copy_from_slice(&cdb);
            pdu.data = vec![0xe5; 512];
            pdu.put(20, 512);
        })
    }),
    request("UNMAP beyond the end unmaps nothing and is GOOD", "blocks.unmap-beyond", "5/21/00 is due", |pdu, seen| {
        unmap_list(pdu, seen, |list| list[8..20].fill(0))
    }),
    answer("UNMAP beyond the end is an invalid field", "blocks.unmap-beyond", "5/21/00 is due", |pdu, _| {
        sense(pdu, 0x21, (5, 0x26, 0))
    }),
    answer("UNMAP with half a header is GOOD", "blocks.unmap-list-length", "5/1a/00 is due", |pdu, seen| {
        let is_refused = pdu.sense().is_some() && seen.is_of(pdu, UNMAP);
        only(is_refused, || pdu.set_status(0))
    }),
    request(
        "COMPARE AND WRITE writes what it compares",
        "blocks.compare-and-write",
        "holds something else",
        |pdu, _| {
            let has_data = pdu.data.len() == 1024;
            command(COMPARE_AND_WRITE, pdu, |pdu| {
                if has_data {
                    let verify = pdu.data[..512].to_vec();
                    pdu.data[512..].copy_from_slice(&verify);
                }
            })
        },
    ),
    answer(
        "COMPARE AND WRITE of equal data is a miscompare",
        "blocks.compare-and-write",
        "COMPARE AND WRITE ended",
        |pdu, seen| {
            let is_done = pdu.opcode() == RESPONSE && seen.is_of(pdu, COMPARE_AND_WRITE) && pdu.header[3] == 0;
            only(is_done, || {
                pdu.header[3] = 2;
                pdu.data = vec![0, 18, 0x70, 0, 0xe, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0];
            })
        },
    ),
    answer("a miscompare is GOOD", "blocks.compare-and-write-miscompare", "e/1d/00 is due", |pdu, seen| {
        let is_refused = pdu.sense().is_some() && seen.is_of(pdu, COMPARE_AND_WRITE);
        only(is_refused, || pdu.set_status(0))
    }),
    request("COMPARE AND WRITE compares nothing", "blocks.compare-and-write-miscompare", "e/1d/00 is due", |pdu, _| {
        command(COMPARE_AND_WRITE, pdu, |pdu| {
            pdu.header[CDB] = WRITE_16;
            pdu.data.drain(..pdu.data.len() / 2);
            let bytes = pdu.data.len() as u32;
            pdu.put(20, bytes);
        })
    }),
    answer(
        "a miscompare that names another byte",
        "blocks.compare-and-write-miscompare",
        "INFORMATION tells",
        |pdu, seen| {
            let is_refused = pdu.sense().is_some() && seen.is_of(pdu, COMPARE_AND_WRITE);
            let at = if pdu.data.get(2).is_some_and(|code| code & 0x7f == 0x70) { 8 } else { 21 };
            only(is_refused, || pdu.data[at] ^= 1)
        },
    ),
    request("COMPARE AND WRITE across the end is cut", "blocks.compare-and-write-bounds", "is due", |pdu, _| {
        command(COMPARE_AND_WRITE, pdu, |pdu| {
            if pdu.header[CDB + 13] == 2 {
                pdu.header[CDB + 13] = 1;
                pdu.data.truncate(1024);
                pdu.put(20, 1024);
            }
        })
    }),
    answer(
        "COMPARE AND WRITE of more than page B0h allows",
        "blocks.compare-and-write-bounds",
        "5/24/00 is due",
        |pdu, seen| {
            let is_limits = seen.cdb(pdu)[2] == 0xb0;
            data(INQUIRY, pdu, seen, |data| data[5] = if is_limits { 4 } else { data[5] })
        },
    ),
    request("WRITE SAME of one block less", "blocks.write-same", "block 6 holds something else", |pdu, _| {
        command(WRITE_SAME_16, pdu, |pdu| pdu.header[CDB + 13] -= 1)
    }),
    request("WRITE SAME of one block more", "blocks.write-same", "block 7 holds something else", |pdu, _| {
        command(WRITE_SAME_16, pdu, |pdu| pdu.header[CDB + 13] += 1)
    }),
    request("WRITE SAME across the end is cut", "blocks.write-same-beyond", "5/21/00 is due", |pdu, _| {
        one_of_two(WRITE_SAME_16, pdu)
    }),
    answer("a read that is refused brings data", "blocks.read-beyond", "bytes came all the same", |pdu, seen| {
        let is_refused = pdu.sense().is_some() && seen.is_of(pdu, READ_16);
        if !is_refused {
            return PduAction::Pass;
        }
        let mut data = Pdu::blank(crate::pdu::DATA_IN);
        data.header[1] = crate::pdu::FINAL;
        for at in [crate::pdu::TAG, 28, 32] {
            data.put(at, pdu.word(at));
        }
        data.put(crate::pdu::TRANSFER_TAG, u32::MAX);
        data.data = vec![0x5a; 512];
        pdu.put(crate::pdu::DATA_SN, 1);
        pdu.header[1] |= UNDERFLOW;
        pdu.put(COUNT, 512);
        PduAction::Instead(vec![data, pdu.clone()])
    }),
];
