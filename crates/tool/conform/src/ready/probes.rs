//! Exercises of advertised features that change neither data nor reservations.
//!
//! REPORT SUPPORTED OPERATION CODES is a table, and a target may refuse an operation that it lists, so every operation
//! that can be exercised without harm is. Operations that write, even the content that is already stored, need a
//! scratch block from the caller.

use super::unit::Unit;
use crate::session::{CommandResult, random};
use crate::{CheckResult, Finding, ensure};

/// Status RESERVATION CONFLICT.
const CONFLICT: u8 = 0x18;
/// Reservation type Write Exclusive, Registrants Only.
const REGISTRANTS_ONLY: u8 = 5;
const DATA_PROTECT: u8 = 7;
const MISCOMPARE: (u8, u8, u8) = (0xE, 0x1D, 0);

fn sense_of(done: &CommandResult) -> Option<(u8, u8, u8)> {
    done.sensed().filter(|_| done.status == 2).map(|sensed| sensed.triple())
}

fn ending(done: &CommandResult) -> String {
    match sense_of(done) {
        Some((key, code, qualifier)) => format!("sense {key:x}/{code:02x}/{qualifier:02x}"),
        None => format!("status {:#04x}", done.status),
    }
}

/// Returns not testable when a reservation or write protection hides whether the command is supported.
fn is_free_to_answer(name: &str, done: &CommandResult) -> CheckResult {
    if done.status == CONFLICT {
        return Err(Finding::Untried(format!("{name} cannot be tried: another nexus has reserved the unit")));
    }
    match sense_of(done) {
        Some((DATA_PROTECT, ..)) => {
            Err(Finding::Untried(format!("{name} cannot be tried: the unit is write-protected ({})", ending(done))))
        }
        _ => Ok(()),
    }
}

/// Checks that a command without effect ends GOOD.
fn taken(name: &str, done: &CommandResult) -> CheckResult {
    is_free_to_answer(name, done)?;
    ensure(done.status == 0, || format!("the target lists {name} and refuses it: {}", ending(done)))
}

pub(super) fn actions(unit: &mut Unit) -> CheckResult {
    let actions = [
        ("REGISTER", 0),
        ("RESERVE", 1),
        ("RELEASE", 2),
        ("CLEAR", 3),
        ("PREEMPT", 4),
        ("PREEMPT AND ABORT", 5),
        ("REGISTER AND IGNORE EXISTING KEY", 6),
    ];
    actions.into_iter().try_for_each(|(name, action)| unit.supports(name, 0x5F, Some(action)))?;
    preempts_are_known(unit)
}

/// Checks that PREEMPT from a nexus without registration ends with RESERVATION CONFLICT, which shows that the action
/// exists.
///
/// The initiator port is new and neither key is registered, so that a target which omits one of these tests still has
/// no registration to preempt.
///
/// *Source*: SPC-4 5.12.11.2.
fn preempts_are_known(unit: &mut Unit) -> CheckResult {
    let mut stranger = unit.through_a_new_port()?;
    let keys = stranger.reservations(0).map_err(|why| match why {
        Finding::Wrong(why) => {
            Finding::Untried(format!("PREEMPT cannot be tried without the keys that there are: {why}"))
        }
        untried => untried,
    })?;
    // The keys follow PRGENERATION and ADDITIONAL LENGTH.
    let registered: Vec<&[u8]> = keys.0.get(8..).unwrap_or_default().chunks(8).collect();
    let mut parameters = [0; 24];
    // One key is not that of the nexus, and the other one is not that of a victim.
    parameters[..8].copy_from_slice(&key_of_nobody(&registered)?);
    parameters[8..16].copy_from_slice(&key_of_nobody(&registered)?);
    for (name, action) in [("PREEMPT", 4), ("PREEMPT AND ABORT", 5)] {
        let done = stranger.send(&[0x5F, action, REGISTRANTS_ONLY, 0, 0, 0, 0, 0, 24, 0], &parameters)?;
        match done.status {
            CONFLICT => {}
            0 => return Err(Finding::Wrong(format!("{name} is done for a nexus that is not registered"))),
            _ => taken(name, &done)?,
        }
    }
    Ok(())
}

fn key_of_nobody(registered: &[&[u8]]) -> CheckResult<[u8; 8]> {
    loop {
        let random = random()?;
        let key = *random.first_chunk::<8>().expect("there are 32 bytes");
        // Key zero stands for no registration (SPC-4).
        if key != [0; 8] && !registered.contains(&&key[..]) {
            return Ok(key);
        }
    }
}

/// Returns the scratch block and its content; not testable when the caller gave no scratch block for `name`.
fn scratch(unit: &mut Unit, name: &str) -> CheckResult<(u64, Vec<u8>)> {
    let Some(lba) = unit.scratch else {
        return Err(Finding::Untried(format!(
            "the target lists {name}; it was not tried, for that writes: --scratch BLOCK names a block that may be \
             overwritten with what it holds"
        )));
    };
    let capacity = unit.capacity()?;
    let blocks = u64::from(capacity.u32(0)) << 32 | u64::from(capacity.u32(4));
    // READ CAPACITY reports the last block, which is a valid scratch block.
    if lba > blocks {
        return Err(Finding::Untried(format!("block {lba} is none of the unit, whose last block is {blocks}")));
    }
    let bytes = capacity.u32(8);
    let data = unit.ask("READ (16)", &cdb(0x88, lba, 1), bytes)?.0;
    ensure(data.len() == bytes as usize, || format!("{} bytes came of a block of {bytes}", data.len()))?;
    Ok((lba, data))
}

/// Builds a CDB of 16 bytes for `blocks` blocks.
fn cdb(operation_code: u8, lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (operation_code, blocks);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb
}

/// Checks that COMPARE AND WRITE succeeds with the stored data and fails with other data; in both cases the data to
/// write is the stored data.
pub(super) fn compare_and_write(unit: &mut Unit) -> CheckResult {
    let name = "COMPARE AND WRITE";
    unit.supports(name, 0x89, None)?;
    let most = unit.vital(0xB0)?.u8(5);
    ensure(most > 0, || "page B0h lets it name no blocks".to_owned())?;
    // With zero blocks nothing is compared or written (SBC-4 COMPARE AND WRITE), so this needs no scratch block.
    taken(name, &unit.end(&cdb(0x89, 0, 0))?)?;
    let (lba, stored) = scratch(unit, name)?;
    // The data to compare precedes the data to write.
    taken(name, &unit.send(&cdb(0x89, lba, 1), &[&stored[..], &stored].concat())?)?;
    let mut other = stored.clone();
    other.iter_mut().for_each(|byte| *byte = !*byte);
    let done = unit.send(&cdb(0x89, lba, 1), &[&other[..], &stored].concat())?;
    ensure(sense_of(&done) == Some(MISCOMPARE), || {
        format!("{name} with other data than is there is no miscompare, but {}", ending(&done))
    })
}

/// Checks WRITE SAME of one block with its own content.
pub(super) fn write_same(unit: &mut Unit) -> CheckResult {
    let name = "WRITE SAME (16)";
    unit.supports(name, 0x93, None)?;
    let (lba, stored) = scratch(unit, name)?;
    taken(name, &unit.send(&cdb(0x93, lba, 1), &stored)?)
}

/// Checks EXTENDED COPY with an empty parameter list, which is not an error.
///
/// *Source*: SPC-4 EXTENDED COPY (LID1), PARAMETER LIST LENGTH.
pub(super) fn extended_copy(unit: &mut Unit) -> CheckResult {
    let name = "EXTENDED COPY (LID1)";
    unit.supports(name, 0x83, Some(0))?;
    let inquiry = unit.inquiry()?;
    // Hosts learn from 3PC whether the unit copies (SPC-4, standard INQUIRY data).
    ensure(inquiry.bit(5, 3), || "INQUIRY does not say so (3PC is 0)".to_owned())?;
    taken(name, &unit.end(&cdb(0x83, 0, 0))?)
}

/// Checks UNMAP with an empty parameter list, which is not an error.
///
/// *Source*: SBC-4 UNMAP, PARAMETER LIST LENGTH.
pub(super) fn unmap_of_nothing(unit: &mut Unit) -> CheckResult {
    taken("UNMAP", &unit.end(&[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0])?)
}
