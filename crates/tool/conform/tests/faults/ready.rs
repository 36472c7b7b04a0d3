//! Commands that `ready` sends to a unit, and its verdicts on targets that refuse what they list.

use crate::fault::{Fault, PduAction, ProxyState, allowed, answer, only, request};
use crate::pdu::{COMMAND, Pdu, RESPONSE};
use crate::{LUNS_OF_READY, portal, proxy, target};
use conform::ready::NEEDS;
use conform::{TestTarget, Verdict};
use iscsi::IscsiName;
use std::sync::Mutex;

const UNMAP: u8 = 0x42;
const RESERVE_OUT: u8 = 0x5f;
const EXTENDED_COPY: u8 = 0x83;
const COMPARE_AND_WRITE: u8 = 0x89;
const WRITE_SAME_16: u8 = 0x93;
/// Block that may be overwritten with its own content.
const SCRATCH: u64 = 5;

/// Turns the end of a command into a refusal: INVALID COMMAND OPERATION CODE, or INVALID FIELD IN CDB.
fn refuse(pdu: &mut Pdu, is_meant: bool, code: u8) -> PduAction {
    only(is_meant && pdu.opcode() == RESPONSE, || {
        pdu.header[3] = 2;
        pdu.data = vec![0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, 0, 0, 0, 0, 0];
    })
}

/// Targets that list operations and refuse them.
const REFUSALS: &[Fault] = &[
    answer("COMPARE AND WRITE is refused", "vmfs.ats", "refuses it: sense 5/20/00", |pdu, seen| {
        let is_meant = seen.is_of(pdu, COMPARE_AND_WRITE);
        refuse(pdu, is_meant, 0x20)
    }),
    answer("COMPARE AND WRITE of a block is refused", "vmfs.ats", "refuses it: sense 5/24/00", |pdu, seen| {
        let is_meant = seen.is_of(pdu, COMPARE_AND_WRITE) && seen.cdb(pdu)[13] > 0;
        refuse(pdu, is_meant, 0x24)
    }),
    answer("COMPARE AND WRITE compares nothing", "vmfs.ats", "is no miscompare", |pdu, seen| {
        let is_meant = pdu.sense().is_some() && seen.is_of(pdu, COMPARE_AND_WRITE);
        only(is_meant, || pdu.set_status(0))
    }),
    answer(
        "PREEMPT AND ABORT is refused",
        "reservations.actions",
        "lists PREEMPT AND ABORT and refuses it",
        |pdu, seen| {
            let is_meant = seen.is_of(pdu, RESERVE_OUT) && seen.cdb(pdu)[1] == 5;
            refuse(pdu, is_meant, 0x24)
        },
    ),
    answer("PREEMPT is done for who is not registered", "reservations.actions", "not registered", |pdu, seen| {
        let is_meant = seen.is_of(pdu, RESERVE_OUT) && pdu.opcode() == RESPONSE;
        only(is_meant, || pdu.set_status(0))
    }),
    answer("WRITE SAME is refused", "vmfs.write-same", "refuses it", |pdu, seen| {
        let is_meant = seen.is_of(pdu, WRITE_SAME_16);
        refuse(pdu, is_meant, 0x20)
    }),
    answer("EXTENDED COPY is refused", "vmfs.xcopy", "refuses it", |pdu, seen| {
        let is_meant = seen.is_of(pdu, EXTENDED_COPY);
        refuse(pdu, is_meant, 0x20)
    }),
    answer("UNMAP is refused", "thin.unmap", "refuses it", |pdu, seen| {
        let is_meant = seen.is_of(pdu, UNMAP);
        refuse(pdu, is_meant, 0x20)
    }),
];

/// Checks every requirement on a unit with content in its scratch block, and returns the verdicts.
fn asked(fault: &Fault, lun: u16, scratch: Option<u64>) -> Vec<(&'static str, Verdict)> {
    let url = format!("iscsi://{}/{}/{lun}", proxy::start(portal(), *fault), target::IQN);
    let mut aim: TestTarget = url.parse().expect("a URL");
    aim.initiator = IscsiName::parse(&format!("iqn.2026-11.io.blockyard:ready{lun}")).expect("a name");
    let meant = |name: &str| fault.found_by.is_empty() || fault.found_by == name;
    NEEDS.iter().filter(|need| meant(need.name)).map(|need| (need.name, need.ask(&aim, scratch))).collect()
}

#[test]
fn what_a_target_lists_and_refuses_is_missing() {
    for (lun, fault) in (LUNS_OF_READY..).zip(REFUSALS) {
        let told = asked(fault, lun, Some(SCRATCH));
        let is_found = matches!(&told[..], [(_, Verdict::Failed(how))] if how.contains(fault.says_that));
        assert!(is_found, "{}: {told:?}", fault.name);
        let sound = asked(&Fault { found_by: fault.found_by, ..allowed("nothing", None) }, lun, Some(SCRATCH));
        assert!(matches!(sound[..], [(_, Verdict::Passed)]), "{}: {sound:?}", fault.name);
    }
}

/// Commands that reached the target, with their immediate data.
static SENT: Mutex<Vec<([u8; 16], Vec<u8>)>> = Mutex::new(Vec::new());

fn record(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() == COMMAND {
        SENT.lock().expect("nobody panics").push((seen.cdb(pdu), pdu.data.clone()));
    }
    PduAction::Pass
}

#[test]
fn what_is_sent_to_a_unit_changes_nothing_of_it() {
    let watched = request("nothing", "", "", record);
    let lun = LUNS_OF_READY + REFUSALS.len() as u16;
    for scratch in [None, Some(SCRATCH)] {
        SENT.lock().expect("nobody panics").clear();
        let told = asked(&watched, lun, scratch);
        let untried: Vec<_> = told.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_))).collect();
        assert_eq!(untried.len(), if scratch.is_none() { 2 } else { 0 }, "what writes takes leave: {untried:?}");
        for (cdb, data) in SENT.lock().expect("nobody panics").iter() {
            let lba = u64::from_be_bytes(cdb[2..10].try_into().expect("8 bytes"));
            // The content of a new volume is zeros, so only zeros may be written to it.
            let is_harmless = match cdb[0] {
                // TEST UNIT READY, INQUIRY, MODE SENSE, READ and other commands that only query.
                0x00 | 0x12 | 0x1a | 0x5e | 0x88 | 0x9e | 0xa0 | 0xa3 => true,
                UNMAP | EXTENDED_COPY => data.is_empty() && cdb[7..14].iter().all(|&byte| byte == 0),
                RESERVE_OUT => matches!(cdb[1], 4 | 5),
                COMPARE_AND_WRITE if cdb[13] == 0 => data.is_empty(),
                COMPARE_AND_WRITE => Some(lba) == scratch && cdb[13] == 1 && data[512..] == [0; 512],
                WRITE_SAME_16 => Some(lba) == scratch && cdb[13] == 1 && data[..] == [0; 512],
                _ => false,
            };
            assert!(is_harmless, "{cdb:02x?} with {} bytes", data.len());
        }
    }
}
