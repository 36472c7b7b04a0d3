//! WRITE ATOMIC (16): limits, refusals, and exclusion of other commands.

use crate::rig::*;
use crate::*;
use futures_util::FutureExt;

/// Builds WRITE ATOMIC (16) with an atomic boundary.
fn cdb(flags: u8, lba: u64, boundary: u16, blocks: u16) -> [u8; 16] {
    let mut cdb = cdb16(0x9C, flags, lba, 0);
    cdb[10..12].copy_from_slice(&boundary.to_be_bytes());
    cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

const FUA: u8 = 0x08;

#[test]
fn atomic_write_goes_to_the_device_as_one_and_is_stable() {
    let unit = unit();
    tell(&unit, &cdb(0, 3, 0, 8), &[7; 8 * BLOCK]);
    assert_eq!(ops(&unit), [Op::WriteAtomic(3, 8), Op::Write(3, 8), Op::Flush]);
    assert_eq!(blocks(&unit, 3, 8), [7; 8 * BLOCK]);
    unit.set_write_cache(true);
    assert_eq!(sense(&run(&unit, HOST, &[0; 6], &[])), (6, 0x2A, 0x01));
    tell(&unit, &cdb(0, 0, 0, 1), &[1; BLOCK]);
    tell(&unit, &cdb(FUA, 0, 0, 1), &[2; BLOCK]);
    let expected = [Op::WriteAtomic(0, 1), Op::Write(0, 1), Op::WriteAtomic(0, 1), Op::Write(0, 1), Op::Flush];
    assert_eq!(ops(&unit), expected, "FUA counts where writes are answered early");
    tell(&unit, &cdb(0, BLOCKS, 0, 0), &[]);
    assert_eq!(ops(&unit), []);
}

#[test]
fn atomic_write_that_cannot_be_whole_is_refused() {
    let unit = unit();
    assert_eq!(pointed(&unit, &cdb(0, 0, 0, 9), &[0; 9 * BLOCK]), (12, None), "longer than is offered");
    assert_eq!(pointed(&unit, &cdb(0, 0, 4, 8), &[0; 8 * BLOCK]), (10, None), "parts that are whole each by itself");
    assert_eq!(refused(&unit, &cdb(0, BLOCKS - 1, 0, 2), &[0; 2 * BLOCK]), (5, 0x21, 0));
    let short = Command { data_out_expected: BLOCK as u64, ..command(&cdb(0, 0, 0, 2), &[1; BLOCK]) };
    assert_eq!(sense(&now(unit.execute(HOST, short))), (5, 0x0E, 3), "a part of the data");
    unit.set_read_only(HOST, true);
    assert_eq!(refused(&unit, &cdb(0, 0, 0, 1), &[0; BLOCK]), (7, 0x27, 0));
    assert_eq!(ops(&unit), []);
}

#[test]
fn atomic_write_is_offered_where_the_device_has_it_and_limits_say_so() {
    let unit = unit();
    let limits = |unit: &LogicalUnit<Bench>| ask(unit, &[0x12, 1, 0xB0, 0, 64, 0])[44..64].to_vec();
    assert_eq!(limits(&unit), [[0, 0, 0, 8].as_slice(), &[0; 16]].concat());
    assert_eq!(ask(&unit, &[0xA3, 0x0C, 1, 0x9C, 0, 0, 0, 0, 0, 64, 0, 0])[1], 3);
    unit.device().atomic_bytes.set(0);
    assert_eq!(limits(&unit), [0; 20]);
    assert_eq!(ask(&unit, &[0xA3, 0x0C, 1, 0x9C, 0, 0, 0, 0, 0, 64, 0, 0])[1], 1);
    assert_eq!(refused(&unit, &cdb(0, 0, 0, 1), &[0; BLOCK]), (5, 0x20, 0));
}

#[test]
fn atomic_write_lets_nobody_read_its_blocks_meanwhile() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut writing = Box::pin(unit.execute(HOST, command(&cdb(0, 0, 0, 2), &[5; 2 * BLOCK])));
    assert!((&mut writing).now_or_never().is_none());
    let mut reading = Box::pin(unit.execute(OTHER, command(&cdb10(0x28, 0, 1, 1), &[])));
    unit.device().permits.set(usize::MAX);
    assert!((&mut reading).now_or_never().is_none(), "the write has not ended");
    assert_eq!(writing.now_or_never().map(|outcome| outcome.status), Some(Status::Good));
    assert_eq!(good(reading.now_or_never().expect("its turn has come")), [5; BLOCK]);
}
