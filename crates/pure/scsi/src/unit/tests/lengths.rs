//! Data-out with another length than the CDB names: checked before anything is read, compared, written or persisted.

use crate::rig::*;
use crate::*;
use std::rc::Rc;

/// Expected result of a command with a wrong data length.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Sense and field pointer for data that is too short; `None` where its whole blocks are accepted.
    short: Option<Judged>,
    /// Sense and field pointer for data that is too long; `None` where the excess is ignored.
    long: Option<Judged>,
}

/// Sense key, code and qualifier.
type Judged = (u8, u8, u8);

/// INVALID FIELD IN COMMAND INFORMATION UNIT.
const OTHER_LENGTH: Option<Judged> = Some((5, 0x0E, 3));
const IN_CDB: Option<Judged> = Some((5, 0x24, 0));

/// WRITE and similar commands write the whole blocks that arrived, and report the rest as a residual.
const BLOCKS_THAT_CAME: Lengths = Lengths { short: None, long: None };
/// All data is required; the excess is ignored.
const WHOLE: Lengths = Lengths { short: OTHER_LENGTH, long: None };
/// Exactly one block.
const EXACT: Lengths = Lengths { short: OTHER_LENGTH, long: OTHER_LENGTH };
/// Two lists of equal length: with any other length, the boundary between them is unknown.
const PAIRS: Lengths = Lengths { short: IN_CDB, long: IN_CDB };

fn with_count(mut cdb: Vec<u8>, at: usize, count: u8) -> Vec<u8> {
    cdb[at] = count;
    cdb
}

/// Every command with data-out, for two blocks or a valid list, with the number of bytes that it needs.
fn commands() -> Vec<(&'static str, Vec<u8>, Vec<u8>, Lengths)> {
    let two = vec![0; 2 * BLOCK];
    let list6 = |code: u8, bits: u8, bytes: usize| vec![code, bits, 0, 0, bytes as u8, 0];
    let list10 = |code: u8, bits: u8, at: usize, bytes: usize| {
        with_count([code, bits, 0, 0, 0, 0, 0, 0, 0, 0].into(), at, bytes as u8)
    };
    let list16 = |action: u8, bytes: usize| with_count([&[0x83, action][..], &[0; 14]].concat(), 13, bytes as u8);
    let control = [&[0, 0, 0, 0, 0x0A, 10, 2, 0x10][..], &[0, 0, 0, 0, 0xFF, 0xFF, 0, 0]].concat();
    let control10 = [&[0; 4][..], &control].concat();
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 8, 0, 0, 0, 0]].concat();
    let register = [&[0; 15][..], &[7], &[0; 8]].concat();
    let overwrite = vec![1, 0, 0, 1, 9];
    let copy = [&[1, 0, 0, 0][..], &[0; 12]].concat();
    let populate = [&[0, 30, 0, 0][..], &[0; 10], &[0, 16], &[0; 8], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let groups = vec![0, 0, 0, 0, 0, 0, 0, 1];
    vec![
        ("WRITE (6)", vec![0x0A, 0, 0, 0, 2, 0], two.clone(), BLOCKS_THAT_CAME),
        ("WRITE (10)", cdb10(0x2A, 0, 0, 2).into(), two.clone(), BLOCKS_THAT_CAME),
        ("WRITE (16)", cdb16(0x8A, 0, 0, 2).into(), two.clone(), BLOCKS_THAT_CAME),
        ("WRITE AND VERIFY (10)", cdb10(0x2E, 2, 0, 2).into(), two.clone(), BLOCKS_THAT_CAME),
        ("WRITE AND VERIFY (16)", cdb16(0x8E, 2, 0, 2).into(), two.clone(), BLOCKS_THAT_CAME),
        ("ORWRITE (16)", cdb16(0x8B, 0, 0, 2).into(), two.clone(), BLOCKS_THAT_CAME),
        ("WRITE ATOMIC (16)", with_count(cdb16(0x9C, 0, 0, 0).into(), 13, 2), two.clone(), WHOLE),
        ("VERIFY (10), BYTCHK 1", cdb10(0x2F, 2, 0, 2).into(), two.clone(), WHOLE),
        ("VERIFY (16), BYTCHK 1", cdb16(0x8F, 2, 0, 2).into(), two.clone(), WHOLE),
        ("VERIFY (16), BYTCHK 3", cdb16(0x8F, 6, 0, 2).into(), vec![0; BLOCK], WHOLE),
        ("COMPARE AND WRITE", with_count(cdb16(0x89, 0, 0, 0).into(), 13, 1), two.clone(), PAIRS),
        ("WRITE SAME (10)", cdb10(0x41, 0, 0, 2).into(), vec![0; BLOCK], EXACT),
        ("WRITE SAME (16)", cdb16(0x93, 0, 0, 2).into(), vec![0; BLOCK], EXACT),
        ("UNMAP", list10(0x42, 0, 8, unmap.len()), unmap, WHOLE),
        ("MODE SELECT (6)", list6(0x15, 0x10, control.len()), control, WHOLE),
        ("MODE SELECT (10)", list10(0x55, 0x10, 8, control10.len()), control10, WHOLE),
        ("PERSISTENT RESERVE OUT", list10(0x5F, 0, 8, register.len()), register, WHOLE),
        ("SANITIZE, OVERWRITE", list10(0x48, 0x81, 8, overwrite.len()), overwrite, WHOLE),
        ("EXTENDED COPY (LID1)", list16(0, copy.len()), copy, WHOLE),
        ("POPULATE TOKEN", list16(0x10, populate.len()), populate, WHOLE),
        (
            "SET TARGET PORT GROUPS",
            with_count([&[0xA4, 0x0A][..], &[0; 10]].concat(), 9, groups.len() as u8),
            groups,
            WHOLE,
        ),
    ]
}

fn judged(outcome: &Outcome) -> Option<Judged> {
    outcome.sense.is_some().then(|| sense(outcome))
}

/// Returns all state that a command could change, except the blocks.
fn standing(unit: &LogicalUnit<Bench>) -> String {
    format!("{:?} {:?} {}", unit.mode.get(), unit.reservations(), unit.is_being_sanitized())
}

#[test]
fn data_of_another_length_is_judged_before_anything_is_done() {
    for (name, cdb, data, lengths) in commands() {
        let thin = Options { provisioning: Provisioning::Thin, ..Options::default() };
        let unit = unit_with(thin).with_state_store(Rc::new(MemoryStore::default()));
        let before = standing(&unit);
        let block = BLOCK.min(data.len());
        let shorter = [data.len() - 1, data.len() - block, 1];
        for bytes in shorter.into_iter().filter(|&bytes| bytes > 0 && bytes < data.len()) {
            let outcome = run(&unit, HOST, &cdb, &data[..bytes]);
            // Where blocks are accepted one by one, a part of a block is an error.
            let expected = lengths.short.or(if bytes % BLOCK == 0 { None } else { OTHER_LENGTH });
            assert_eq!(judged(&outcome), expected, "{name}, {bytes} of {} bytes", data.len());
            if expected.is_some() {
                assert_eq!((ops(&unit), standing(&unit)), (vec![], before.clone()), "{name}, {bytes} bytes");
            }
            let _ = ops(&unit);
        }
        for more in [1, BLOCK] {
            let long = [&data[..], &vec![0x55; more]].concat();
            let Some(expected) = lengths.long else { continue };
            assert_eq!(judged(&run(&unit, HOST, &cdb, &long)), Some(expected), "{name}, {} bytes", long.len());
            assert_eq!((ops(&unit), standing(&unit)), (vec![], before.clone()), "{name}, {} bytes", long.len());
        }
        // No data where some is required: nothing is written, and no success is reported.
        let outcome = run(&unit, HOST, &cdb, &[]);
        assert_eq!(judged(&outcome), lengths.short, "{name} without data");
        assert_eq!(standing(&unit), before, "{name} without data");
        assert!(!ops(&unit).iter().any(|op| matches!(op, Op::Write(..) | Op::WriteAtomic(..))), "{name} without data");
    }
}

/// Every command with data-out is in the table above, so that a new one cannot be forgotten.
#[test]
fn every_operation_with_data_out_has_its_lengths_tried() {
    let tried: Vec<Vec<u8>> = commands().into_iter().map(|(_, cdb, ..)| cdb).collect();
    // Longer CDBs of tested commands, and lists with the same parser.
    let alike = ["WRITE (12)", "WRITE AND VERIFY (12)", "VERIFY (12)", "EXTENDED COPY (LID4)", "WRITE USING TOKEN"];
    for operation in crate::operation::OPERATIONS.iter().filter(|operation| operation.data.goes_out()) {
        let is_tried = tried.iter().any(|cdb| cdb[0] == operation.code());
        let is_none = operation.name == "SEND DIAGNOSTIC" || alike.contains(&operation.name);
        assert!(is_tried || is_none, "{}", operation.name);
    }
}
