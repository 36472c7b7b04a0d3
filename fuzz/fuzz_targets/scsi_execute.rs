//! Fuzz target: arbitrary commands with arbitrary data from two nexuses to a logical unit.
#![no_main]

mod memory_unit;

use block::{Buf, View};
use libfuzzer_sys::fuzz_target;
use memory_unit::{BLOCK_BYTES, Strict, now, unit};
use scsi::{
    Cdb, Command, LogicalUnit, Lun, ManagementOutcome, NexusId, Outcome, SenseKey, Status, TaskAttribute,
    TaskManagement, TaskTag, no_unit, judge,
};

/// Length of a command in the input: two bytes of parameters and a CDB, followed by its data.
const HEAD_BYTES: usize = 2 + 16;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, mut rest)) = input.split_first() else { return };
    let unit = unit(kind);
    // One nexus has reported its unit attention, so that its first command is executed.
    execute(&unit, 0, Cdb::new(&[0; 6]), &[]);
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let [circumstances, length, cdb @ ..] = head;
        let (data, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        execute(&unit, *circumstances, Cdb::new(cdb), data);
    }
    let reset = now(unit.manage(NexusId(0), TaskManagement::LogicalUnitReset));
    assert_eq!(reset, ManagementOutcome::Complete, "no task was left behind");
});

/// Executes one command as a transport does, and compares the outcome with the prior judgment.
fn execute(unit: &LogicalUnit<Strict>, circumstances: u8, cdb: Cdb, data: &[u8]) {
    // Some commands get whole blocks, because a short input would rarely contain one.
    let bytes = if circumstances & 0x80 == 0 { data.len() } else { data.len().min(32) * BLOCK_BYTES as usize };
    let mut data_out = Buf::zeroed(bytes);
    data_out.iter_mut().zip(data.iter().cycle()).for_each(|(to, from)| *to = *from);
    let _: Outcome = no_unit::execute(cdb, &[Lun::of(0)]);
    let judged = judge(cdb, &unit.shape());
    let command = Command {
        tag: TaskTag(0),
        attribute: [TaskAttribute::Simple, TaskAttribute::Ordered, TaskAttribute::HeadOfQueue, TaskAttribute::Aca]
            [usize::from(circumstances >> 1 & 3)],
        cdb,
        data_out: if judged.is_ok() { data_out.freeze() } else { View::default() },
        data_out_expected: bytes as u64,
        data_in_expected: 0,
    };
    let Outcome { status, sense, data_in } = now(unit.execute(NexusId(u64::from(circumstances & 1)), command));
    assert_eq!(status == Status::CheckCondition, sense.is_some());
    assert!(status == Status::Good || data_in.is_empty(), "what failed shows nothing");
    match judged {
        // A reservation is checked only on execution, not in the judgment of the CDB.
        Ok(need) => assert!(data_in.len() as u64 <= need.data_in),
        Err(_) if status == Status::ReservationConflict => {}
        Err(refusal) => {
            let sense = sense.as_deref().expect("what is judged to be refused is refused");
            let first = matches!(sense.key, SenseKey::UnitAttention | SenseKey::NotReady | SenseKey::DataProtect);
            assert!(first || sense.code == refusal.code || circumstances >> 1 & 3 == 3, "{sense:?} {refusal:?}");
        }
    }
    if let Some(sense) = sense {
        assert!((8..=40).contains(&sense.emit().len()));
    }
}
