//! READ and WRITE, unit attentions, write protection and errors: the processing of every command.

use crate::alua::PortGroups;
use crate::copy::Copies;
use crate::rig::*;
use crate::*;
use block::{BlockDevice, IoErrorKind};
use std::rc::Rc;

impl<D> LogicalUnit<D> {
    pub(crate) fn port_groups(&self) -> &PortGroups {
        &self.port_groups
    }

    pub(crate) fn copies(&self) -> &Copies {
        &self.copies
    }
}

const TEST_UNIT_READY: [u8; 6] = [0; 6];

#[test]
fn read_returns_what_write_wrote_in_every_length_of_cdb() {
    let unit = unit();
    let writes: [(&[u8], u64); 4] = [
        (&[0x0A, 0, 0, 3, 2, 0], 3),
        (&cdb10(0x2A, 0x18, 9, 2), 9),
        (&cdb12(0xAA, 0, 20, 2), 20),
        (&cdb16(0x8A, 0x08, BLOCKS - 2, 2), BLOCKS - 2),
    ];
    for (nth, (cdb, at)) in writes.into_iter().enumerate() {
        tell(&unit, cdb, &[nth as u8 + 1; 2 * BLOCK]);
        assert_eq!(ops(&unit), [Op::Write(at, 2), Op::Flush], "GOOD comes after the flush");
        assert_eq!(blocks(&unit, at, 2), [nth as u8 + 1; 2 * BLOCK]);
    }
    assert_eq!(ask(&unit, &[0x08, 0, 0, 3, 2, 0]), [1; 2 * BLOCK]);
    assert_eq!(ask(&unit, &cdb10(0x28, 0x18, 9, 2)), [2; 2 * BLOCK]);
    assert_eq!(ask(&unit, &cdb12(0xA8, 0, 20, 2)), [3; 2 * BLOCK]);
    assert_eq!(ask(&unit, &cdb16(0x88, 0, BLOCKS - 2, 2)), [4; 2 * BLOCK]);
}

#[test]
fn read_6_of_no_count_reads_256_blocks_and_others_read_none() {
    let unit = unit();
    assert_eq!(ask(&unit, &[0x08, 0, 0, 0, 0, 0]).len(), 256 * BLOCK);
    ops(&unit);
    assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 0)).len(), 0);
    tell(&unit, &cdb16(0x8A, 0, BLOCKS, 0), &[]);
    assert_eq!(ops(&unit), []);
}

#[test]
fn write_without_a_volatile_cache_is_not_flushed() {
    let unit = unit();
    let mut geometry = unit.device().geometry();
    geometry.volatile_cache = false;
    unit.device().geometry.set(geometry);
    tell(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(0, 1)]);
}

#[test]
fn write_with_the_write_cache_enabled_is_flushed_only_when_that_is_asked_for() {
    let unit = unit();
    let caching = |unit: &LogicalUnit<Bench>| ask(unit, &[0x1A, 0x08, 0x08, 0, 64, 0])[6] & 0x04;
    assert_eq!(caching(&unit), 0);
    unit.set_write_cache(true);
    assert_eq!(sense(&run(&unit, HOST, &[0; 6], &[])), (6, 0x2A, 0x01));
    unit.set_write_cache(true);
    assert_eq!(caching(&unit), 0x04, "told once");
    ops(&unit);
    tell(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    tell(&unit, &[0x0A, 0, 0, 1, 1, 0], &[1; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(0, 1), Op::Write(1, 1)]);
    tell(&unit, &cdb10(0x2A, 0x08, 2, 1), &[1; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(2, 1), Op::Flush], "FUA");
    tell(&unit, &cdb10(0x35, 0, 0, 0), &[]);
    assert_eq!(ops(&unit), [Op::Flush]);
    unit.set_write_cache(false);
    assert_eq!(sense(&run(&unit, HOST, &[0; 6], &[])), (6, 0x2A, 0x01));
    tell(&unit, &cdb10(0x2A, 0, 3, 1), &[1; BLOCK]);
    assert_eq!(ops(&unit), [Op::Write(3, 1), Op::Flush]);
}

#[test]
fn media_commands_beyond_the_end_are_out_of_range_and_touch_nothing() {
    let unit = unit();
    for code in [0x88, 0x8A, 0x8B, 0x8E, 0x8F, 0x90, 0x91, 0x93] {
        for (lba, count) in
            [(BLOCKS, 1), (BLOCKS - 1, 2), (BLOCKS + 1, 0), (u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 0)]
        {
            assert_eq!(
                refused(&unit, &cdb16(code, 0, lba, count), &[7; BLOCK]),
                (5, 0x21, 0),
                "{code:#x} {lba} {count}"
            );
        }
    }
    for code in [0x28, 0x2A, 0x2E, 0x2F, 0x34, 0x35, 0x41] {
        for (lba, count) in [(256, 1), (u32::MAX, 0), (u32::MAX, u16::MAX), (0, 257)] {
            assert_eq!(refused(&unit, &cdb10(code, 0, lba, count), &[7; BLOCK]), (5, 0x21, 0), "{code:#x}");
        }
    }
    assert_eq!(refused(&unit, &[0x08, 0x1F, 0xFF, 0xFF, 1, 0], &[]), (5, 0x21, 0));
    assert_eq!(ops(&unit), []);
}

#[test]
fn transfer_longer_than_announced_is_an_invalid_field() {
    let unit = unit_with(Options { transfer_bytes_max: 8 * BLOCK as u32, ..Options::default() });
    assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 8)).len(), 8 * BLOCK);
    assert_eq!(pointed(&unit, &cdb10(0x28, 0, 0, 9), &[]), (7, None));
    assert_eq!(pointed(&unit, &cdb12(0xAA, 0, 0, 9), &[]), (6, None));
    assert_eq!(pointed(&unit, &cdb16(0x8A, 0, 0, 9), &[]), (10, None));
}

#[test]
fn protection_bits_and_naca_are_refused_with_a_pointer() {
    let unit = unit();
    for protect in 1..8 {
        for code in [0x28, 0x2A, 0x2E, 0x2F, 0x41] {
            assert_eq!(refused(&unit, &cdb10(code, protect << 5, 0, 1), &[0; BLOCK]), (5, 0x24, 0));
        }
        for code in [0x88, 0x8A, 0x8B, 0x8E, 0x8F, 0x93, 0x89] {
            assert_eq!(refused(&unit, &cdb16(code, protect << 5, 0, 1), &[0; BLOCK]), (5, 0x24, 0));
        }
    }
    assert_eq!(pointed(&unit, &cdb10(0x28, 0x80, 0, 1), &[]), (1, Some(7)));
    assert_eq!(pointed(&unit, &[0, 0, 0, 0, 0, 0x04], &[]), (5, Some(2)));
}

#[test]
fn write_of_less_data_than_it_names_writes_the_whole_blocks_that_came() {
    let unit = unit();
    tell(&unit, &cdb10(0x2A, 0, 0, 2), &[b'a'; 2 * BLOCK]);
    // No data, one block of two, two blocks where one is named, and a part of a block.
    tell(&unit, &cdb10(0x2A, 0, 0, 1), &[]);
    assert_eq!(blocks(&unit, 0, 1), [b'a'; BLOCK]);
    tell(&unit, &cdb10(0x2A, 0, 0, 2), &[b'b'; BLOCK]);
    assert_eq!((blocks(&unit, 0, 1), blocks(&unit, 1, 1)), (vec![b'b'; BLOCK], vec![b'a'; BLOCK]));
    tell(&unit, &cdb10(0x2A, 0, 0, 1), &[b'c'; 2 * BLOCK]);
    assert_eq!((blocks(&unit, 0, 1), blocks(&unit, 1, 1)), (vec![b'c'; BLOCK], vec![b'a'; BLOCK]));
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[b'd'; 200]), (5, 0x0E, 3));
    assert_eq!(blocks(&unit, 0, 1), [b'c'; BLOCK]);
}

#[test]
fn operations_of_single_disks_are_not_known() {
    let unit = unit();
    // FORMAT UNIT, REASSIGN BLOCKS, WRITE BUFFER, READ BUFFER (10) and (16), READ LONG and WRITE LONG (10), LOG SELECT.
    for code in [0x04, 0x07, 0x3B, 0x3C, 0x9B, 0x3E, 0x3F, 0x4C] {
        assert_eq!(
            refused(&unit, &[code, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            (5, 0x20, 0),
            "{code:02x}h"
        );
    }
    // READ LONG (16) shares its operation code with supported service actions, WRITE LONG (16) does not.
    assert_eq!(refused(&unit, &cdb16(0x9E, 0x11, 0, 0), &[]), (5, 0x24, 0));
    assert_eq!(refused(&unit, &cdb16(0x9F, 0x11, 0, 0), &[]), (5, 0x20, 0));
}

#[test]
fn write_for_which_the_initiator_sends_nothing_but_waits_is_refused_and_never_good() {
    let unit = unit();
    let block = [1; BLOCK];
    for cdb in [&cdb10(0x2A, 0, 0, 1)[..], &cdb16(0x8A, 0, 0, 1), &cdb10(0x2E, 0, 0, 1), &[0x15, 0x10, 0, 0, 24, 0]] {
        let backwards = Command { data_in_expected: BLOCK as u64, ..command(cdb, &[]) };
        let outcome = now(unit.execute(HOST, backwards.clone()));
        assert_eq!(sense(&outcome), (5, 0x0E, 3), "{cdb:x?}");
        assert!(unit.execute_fast_path(HOST, backwards.borrowed()).is_none(), "{cdb:x?}");
    }
    assert_eq!(ops(&unit), []);
    // A command that reads as well as it writes has its data; one that takes no data needs none.
    let both = Command { data_in_expected: BLOCK as u64, ..command(&cdb10(0x2A, 0, 0, 1), &block) };
    assert_eq!(now(unit.execute(HOST, both)).status, Status::Good);
    let none = Command { data_in_expected: BLOCK as u64, ..command(&cdb10(0x2A, 0, 0, 0), &[]) };
    assert_eq!(now(unit.execute(HOST, none)).status, Status::Good);
}

#[test]
fn write_whose_data_was_not_brought_along_is_busy_and_never_good() {
    let unit = unit();
    let stale = Command { data_out_expected: BLOCK as u64, ..command(&cdb10(0x2A, 0, 0, 1), &[]) };
    assert_eq!(now(unit.execute(HOST, stale)).status, Status::Busy);
    assert_eq!(ops(&unit), []);
}

#[test]
fn unit_attention_is_told_once_before_anything_but_inquiry_report_luns_and_request_sense() {
    let unit = unit();
    unit.attach(HOST, initiator(1), port(1));
    assert_eq!(ask(&unit, &[0x12, 0, 0, 0, 96, 0]).len(), 96);
    assert_eq!(ask(&unit, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]).len(), 16);
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]), (6, 0x29, 0));
    assert_eq!(blocks(&unit, 0, 1), [0; BLOCK]);
    tell(&unit, &TEST_UNIT_READY, &[]);
}

#[test]
fn nexus_that_may_only_read_is_told_so_and_does_not_bind_others() {
    let unit = unit();
    unit.set_read_only(HOST, true);
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]), (7, 0x27, 0));
    assert_eq!(ask(&unit, &[0x1A, 0, 0x3F, 0, 255, 0])[2] & 0x80, 0x80, "WP of MODE SENSE");
    assert_eq!(run(&unit, OTHER, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]).status, Status::Good);
    assert_eq!(blocks(&unit, 0, 1), [1; BLOCK]);
    unit.set_read_only(HOST, false);
    assert_eq!(run(&unit, HOST, &cdb10(0x2A, 0, 1, 1), &[2; BLOCK]).status, Status::Good);
}

#[test]
fn unit_attentions_come_in_order_to_every_nexus_and_request_sense_takes_one() {
    let unit = unit();
    unit.lun_inventory_changed(HOST);
    unit.lun_inventory_changed(OTHER);
    unit.capacity_changed();
    let data = ask(&unit, &[0x03, 0, 0, 0, 252, 0]);
    assert_eq!((data.len(), data[2], data[12], data[13]), (18, 6, 0x2A, 9));
    assert_eq!(refused(&unit, &TEST_UNIT_READY, &[]), (6, 0x3F, 0x0E));
    tell(&unit, &TEST_UNIT_READY, &[]);
    assert_eq!(sense(&run(&unit, OTHER, &TEST_UNIT_READY, &[])), (6, 0x2A, 9));
    // REPORT LUNS reports the inventory that the last unit attention announces.
    good(run(&unit, OTHER, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[]));
    good(run(&unit, OTHER, &TEST_UNIT_READY, &[]));
}

#[test]
fn unit_attention_outranks_an_invalid_command() {
    let unit = unit();
    unit.capacity_changed();
    assert_eq!(refused(&unit, &[0xC1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]), (6, 0x2A, 9));
    assert_eq!(refused(&unit, &[0xC1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]), (5, 0x20, 0));
}

#[test]
fn nexus_that_left_is_told_nothing_and_leaves_nothing_behind() {
    let unit = unit();
    unit.capacity_changed();
    unit.detach(HOST);
    unit.detach(OTHER);
    assert!(unit.nexuses.none_pending());
    good(run(&unit, HOST, &TEST_UNIT_READY, &[]));
}

#[test]
fn read_only_unit_refuses_every_write_and_says_so() {
    let unit = unit_with(Options { read_only: true, provisioning: Provisioning::Thin, ..Options::default() });
    for operation in crate::operation::OPERATIONS.iter().filter(|operation| operation.writes()) {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (operation.code(), operation.action().unwrap_or(0));
        assert_eq!(refused(&unit, &cdb, &[0; 2 * BLOCK]), (7, 0x27, 0), "{}", operation.name);
    }
    assert_eq!(refused(&unit, &cdb10(0x41, 0x08, 0, 1), &[]), (7, 0x27, 0));
    assert_eq!(ask(&unit, &[0x1A, 0, 0x3F, 0, 4, 0])[2] & 0x80, 0x80);
    assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 1)).len(), BLOCK);
    assert_eq!(ops(&unit), [Op::Read(0, 1)]);
}

#[test]
fn device_errors_become_sense_with_the_first_bad_block() {
    let unit = unit();
    let cases = [
        (IoErrorKind::Medium, (3, 0x11, 0), (3, 0x0C, 0)),
        (IoErrorKind::Gone, (4, 0x44, 0), (4, 0x44, 0)),
        (IoErrorKind::NoSpace, (7, 0x27, 7), (7, 0x27, 7)),
        (IoErrorKind::ReadOnly, (7, 0x27, 0), (7, 0x27, 0)),
        (IoErrorKind::OutOfRange, (5, 0x21, 0), (5, 0x21, 0)),
        (IoErrorKind::Unsupported, (5, 0x20, 0), (5, 0x20, 0)),
    ];
    for (kind, on_read, on_write) in cases {
        unit.device().failure.set(Some(kind));
        let read = run(&unit, HOST, &cdb10(0x28, 0, 5, 1), &[]);
        assert_eq!(sense(&read), on_read);
        assert_eq!(read.sense.expect("sense").information, (kind == IoErrorKind::Medium).then_some(5));
        assert!(read.data_in.is_empty());
        assert_eq!(refused(&unit, &cdb10(0x2A, 0, 5, 1), &[1; BLOCK]), on_write);
    }
}

#[test]
fn resize_is_told_to_every_nexus_and_read_capacity_agrees() {
    let unit = unit();
    let mut geometry = unit.device().geometry();
    geometry.blocks.0 *= 2;
    unit.device().geometry.set(geometry);
    unit.capacity_changed();
    for nexus in [HOST, OTHER] {
        assert_eq!(sense(&run(&unit, nexus, &TEST_UNIT_READY, &[])), (6, 0x2A, 0x09));
        let capacity = good(run(&unit, nexus, &cdb10(0x25, 0, 0, 0), &[]));
        assert_eq!(capacity[..4], (2 * BLOCKS as u32 - 1).to_be_bytes());
    }
}

#[test]
fn roll_back_is_told_once_to_every_nexus_as_a_medium_that_may_have_changed() {
    let unit = unit();
    unit.medium_may_have_changed();
    unit.capacity_changed();
    for nexus in [HOST, OTHER] {
        // The write intended for the old content is refused.
        assert_eq!(sense(&run(&unit, nexus, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK])), (6, 0x28, 0x00));
        assert_eq!(sense(&run(&unit, nexus, &TEST_UNIT_READY, &[])), (6, 0x2A, 0x09));
        good(run(&unit, nexus, &TEST_UNIT_READY, &[]));
    }
    assert_eq!(ops(&unit), []);
}

#[test]
fn command_with_the_aca_attribute_is_refused() {
    let unit = unit();
    let aca = Command { attribute: TaskAttribute::Aca, ..command(&TEST_UNIT_READY, &[]) };
    assert_eq!(sense(&now(unit.execute(HOST, aca))), (5, 0x49, 0));
}

#[test]
fn capacity_that_grew_is_used_at_once() {
    let unit = unit();
    assert_eq!(refused(&unit, &cdb10(0x28, 0, BLOCKS as u32, 1), &[]), (5, 0x21, 0));
    let mut geometry = unit.device().geometry();
    geometry.blocks.0 += 1;
    unit.device().geometry.set(geometry);
    unit.device().bytes.borrow_mut().resize((BLOCKS as usize + 1) * BLOCK, 9);
    assert_eq!(ask(&unit, &cdb10(0x28, 0, BLOCKS as u32, 1)), [9; BLOCK]);
}

#[test]
fn execute_is_a_small_future() {
    let ram = block::memory::Ram::new(4096, block::Blocks(16));
    let unit = LogicalUnit::new(Rc::new(ram), identity(), Options::default());
    let size = size_of_val(&unit.execute(HOST, command(&TEST_UNIT_READY, &[])));
    assert!(size <= 400, "the future of execute has {size} bytes");
}

mod atomic;
mod fast_path;
mod lengths;
mod management;
mod medium;
mod properties;
mod thin;
