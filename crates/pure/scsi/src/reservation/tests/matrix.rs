//! Conflict tables of the standards, written a second time by operation name.

use super::*;
use crate::operation::{OPERATIONS, Verb};

/// Operations permitted to a nexus without access: under write exclusive types, under exclusive access types, and under
/// a RESERVE of another nexus. Copied from SPC-4 and SBC-3 ("commands that are allowed in the presence of various
/// reservations") and, for the last column, SPC-2; RESERVE and RELEASE have tests of their own.
#[rustfmt::skip]
const TABLE: [(&str, bool, bool, bool); 58] = [
    ("TEST UNIT READY", true, true, false),
    ("REQUEST SENSE", true, true, true),
    ("READ (6)", true, false, false),
    ("WRITE (6)", false, false, false),
    ("INQUIRY", true, true, true),
    ("MODE SELECT (6)", false, false, false),
    ("MODE SENSE (6)", true, false, false),
    ("START STOP UNIT", false, false, false),
    ("READ CAPACITY (10)", true, true, false),
    ("READ (10)", true, false, false),
    ("WRITE (10)", false, false, false),
    ("WRITE AND VERIFY (10)", false, false, false),
    ("VERIFY (10)", true, false, false),
    ("PRE-FETCH (10)", true, false, false),
    ("SYNCHRONIZE CACHE (10)", false, false, false),
    ("WRITE SAME (10)", false, false, false),
    ("UNMAP", false, false, false),
    ("LOG SENSE", true, true, true),
    ("MODE SELECT (10)", false, false, false),
    ("MODE SENSE (10)", true, false, false),
    ("SANITIZE, OVERWRITE", false, false, false),
    ("SANITIZE, BLOCK ERASE", false, false, false),
    ("SANITIZE, CRYPTOGRAPHIC ERASE", false, false, false),
    ("SANITIZE, EXIT FAILURE MODE", false, false, false),
    ("EXTENDED COPY (LID1)", false, false, false),
    ("EXTENDED COPY (LID4)", false, false, false),
    ("POPULATE TOKEN", true, false, false),
    ("WRITE USING TOKEN", false, false, false),
    ("COPY OPERATION ABORT", false, false, false),
    ("RECEIVE COPY STATUS (LID4)", true, false, false),
    ("RECEIVE ROD TOKEN INFORMATION", true, false, false),
    ("RECEIVE COPY RESULTS, COPY STATUS", true, false, false),
    ("RECEIVE COPY RESULTS, OPERATING PARAMETERS", true, false, false),
    ("READ (16)", true, false, false),
    ("COMPARE AND WRITE", false, false, false),
    ("WRITE (16)", false, false, false),
    ("ORWRITE (16)", false, false, false),
    ("WRITE AND VERIFY (16)", false, false, false),
    ("VERIFY (16)", true, false, false),
    ("PRE-FETCH (16)", true, false, false),
    ("SYNCHRONIZE CACHE (16)", false, false, false),
    ("WRITE SAME (16)", false, false, false),
    ("WRITE ATOMIC (16)", false, false, false),
    ("SEND DIAGNOSTIC", false, false, false),
    ("PREVENT ALLOW MEDIUM REMOVAL", false, false, false),
    ("READ DEFECT DATA (10)", true, false, false),
    ("READ DEFECT DATA (12)", true, false, false),
    ("READ CAPACITY (16)", true, true, false),
    ("GET LBA STATUS (16)", true, false, false),
    ("REPORT LUNS", true, true, true),
    ("REPORT TARGET PORT GROUPS", true, true, true),
    ("SET TARGET PORT GROUPS", false, false, false),
    ("REPORT SUPPORTED OPERATION CODES", true, false, false),
    ("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", true, false, false),
    ("READ (12)", true, false, false),
    ("WRITE (12)", false, false, false),
    ("WRITE AND VERIFY (12)", false, false, false),
    ("VERIFY (12)", true, false, false),
];

/// Returns a CDB of the operation with default fields.
fn cdb(row: &crate::operation::Operation) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (row.code(), row.action().unwrap_or(0));
    // PREVENT ALLOW MEDIUM REMOVAL with PREVENT zero is permitted, so it is tested separately below.
    cdb[4] = u8::from(row.verb == Verb::PreventAllow);
    cdb
}

fn has_conflict(unit: &LogicalUnit<Bench>, nexus: NexusId, cdb: &[u8]) -> bool {
    run(unit, nexus, cdb, &[]).status == Status::ReservationConflict
}

#[test]
fn every_operation_says_how_it_fares_under_every_reservation() {
    for row in &OPERATIONS {
        let listed = TABLE.iter().find(|(name, ..)| *name == row.name);
        let is_own = matches!(row.access, Access::Keys | Access::Own);
        assert_eq!(listed.is_none(), is_own, "{} is in no table", row.name);
        let Some(&(_, write_exclusive, exclusive_access, reserve)) = listed else { continue };
        for kind in ReservationType::ALL {
            let expected = if kind.excludes_reads() { exclusive_access } else { write_exclusive };
            assert_eq!(row.access.is_allowed_under(kind), expected, "{} under {kind:?}", row.name);
        }
        assert_eq!(row.access.is_allowed_under_reserve(false), reserve, "{} under RESERVE", row.name);
        assert!(row.access.is_allowed_under_reserve(true), "{} under its own RESERVE", row.name);
    }
}

#[test]
fn every_type_lets_in_whom_it_should_for_every_operation() {
    for kind in ReservationType::ALL {
        for row in &OPERATIONS {
            let Some(&(name, write_exclusive, exclusive_access, _)) = TABLE.iter().find(|(name, ..)| *name == row.name)
            else {
                continue;
            };
            // UNMAP exists on thin units only.
            let bench = Bench { thin: Some(Thin::new(8, 32)), ..Bench::new(BLOCK as u32, BLOCKS) };
            let (unit, _) = shared_unit_over(bench);
            register(&unit, HOST, 1);
            register(&unit, OTHER, 2);
            done(&out(&unit, HOST, RESERVE, kind.code(), (1, 0)));
            let kept_out_may =
                if kind.code() % 2 == 1 && kind.code() != 3 { write_exclusive } else { exclusive_access };
            let cdb = cdb(row);
            assert!(!has_conflict(&unit, HOST, &cdb), "{name}: the holder under {kind:?}");
            let registrant_may = kind.code() >= 5 || kept_out_may;
            assert_eq!(has_conflict(&unit, OTHER, &cdb), !registrant_may, "{name}: a registrant under {kind:?}");
            assert_eq!(has_conflict(&unit, THIRD, &cdb), !kept_out_may, "{name}: a stranger under {kind:?}");
        }
    }
}

#[test]
fn start_stop_unit_may_start_for_everybody_and_stop_for_nobody_else() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    assert!(has_conflict(&unit, OTHER, &[0x1B, 0, 0, 0, 0, 0]));
    assert!(!has_conflict(&unit, OTHER, &[0x1B, 0, 0, 0, 1, 0]));
    assert!(has_conflict(&unit, OTHER, &[0x1B, 0, 0, 0, 0x11, 0]), "a power condition");
    assert!(!has_conflict(&unit, HOST, &[0x1B, 0, 0, 0, 0, 0]));
}

#[test]
fn medium_may_be_let_go_by_everybody_and_kept_by_nobody_else() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    assert!(has_conflict(&unit, OTHER, &[0x1E, 0, 0, 0, 1, 0]));
    assert!(!has_conflict(&unit, OTHER, &[0x1E, 0, 0, 0, 0, 0]));
    assert!(!has_conflict(&unit, HOST, &[0x1E, 0, 0, 0, 1, 0]));
}

#[test]
fn conflict_ranks_before_what_is_wrong_with_the_command_and_behind_unit_attentions() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    done(&out(&unit, HOST, RESERVE, 1, (1, 0)));
    conflicts(&run(&unit, OTHER, &cdb10(0x2A, 0, u32::MAX, 1), &[0; BLOCK]));
    unit.capacity_changed();
    assert_eq!(sense(&run(&unit, OTHER, &cdb10(0x2A, 0, 0, 1), &[0; BLOCK])), (6, 0x2A, 9));
    conflicts(&run(&unit, OTHER, &cdb10(0x2A, 0, 0, 1), &[0; BLOCK]));
    assert_eq!(unit.statistics().conflicts, 2);
    assert_eq!(ops(&unit), [], "nothing was written");
}

#[test]
fn registrations_alone_keep_nobody_out() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    for row in OPERATIONS.iter().filter(|row| row.access != Access::Own) {
        assert!(row.access == Access::Keys || !has_conflict(&unit, THIRD, &cdb(row)), "{}", row.name);
    }
}
