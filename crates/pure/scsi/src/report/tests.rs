use crate::operation::{OPERATIONS, OptionalFeatures};
use crate::rig::*;
use crate::*;

fn codes(options: u8, code: u8, action: u16, allocation: u32) -> [u8; 12] {
    let mut cdb = [0xA3, 0x0C, options, code, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[4..6].copy_from_slice(&action.to_be_bytes());
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

fn thin() -> LogicalUnit<Bench> {
    unit_with(Options { provisioning: Provisioning::Thin, ..Options::default() })
}

/// Creates a unit that supports every operation.
fn full() -> LogicalUnit<Bench> {
    unit_with(Options { provisioning: Provisioning::Thin, removable: true, ..Options::default() })
}

#[test]
fn report_of_all_operations_lists_the_table() {
    for (unit, count) in [(full(), OPERATIONS.len()), (thin(), OPERATIONS.len() - 1), (unit(), OPERATIONS.len() - 3)] {
        for (options, descriptor_bytes) in [(0x00, 8), (0x80, 20)] {
            let data = ask(&unit, &codes(options, 0, 0, 65535));
            assert_eq!(u32::from_be_bytes(data[..4].try_into().expect("four")) as usize, data.len() - 4);
            assert_eq!(data.len() - 4, count * descriptor_bytes);
            for descriptor in data[4..].chunks(descriptor_bytes) {
                assert_eq!(descriptor[5] & 2 != 0, descriptor_bytes == 20, "CTDP says whether time-outs follow");
                assert!(descriptor[5] & 1 == 1 || descriptor[2..4] == [0, 0], "no service action without SERVACTV");
                assert!(descriptor_bytes == 8 || descriptor[8..12] == [0, 10, 0, 0]);
            }
        }
    }
}

#[test]
fn report_of_one_operation_gives_its_usage_map() {
    let unit = full();
    for row in &OPERATIONS {
        let action = u16::from(row.action().unwrap_or(0));
        let (right, wrong) = if row.action().is_some() { (2, 1) } else { (1, 2) };
        assert_eq!(pointed(&unit, &codes(wrong, row.code(), action, 256), &[]), (2, Some(2)));
        for options in [right, 3] {
            let data = ask(&unit, &codes(options, row.code(), action, 256));
            assert_eq!(data[..4], [0, 3, 0, row.cdb_bytes], "{}", row.name);
            assert_eq!((data.len(), data[4]), (4 + usize::from(row.cdb_bytes), row.code()));
            let with_timeouts = ask(&unit, &codes(options | 0x80, row.code(), action, 256));
            assert_eq!((with_timeouts[1], with_timeouts.len()), (0x83, data.len() + 12));
        }
    }
}

#[test]
fn report_of_an_operation_that_is_not_there_says_so() {
    let unit = unit();
    for cdb in [
        codes(1, 0xC1, 0, 64),
        codes(2, 0x9E, 0x13, 64),
        codes(2, 0xC1, 1, 64),
        codes(3, 0x28, 1, 64),
        codes(1, 0x42, 0, 64),
        codes(0x83, 0xFF, 0xFFFF, 64),
    ] {
        assert_eq!(ask(&unit, &cdb), [0, 1, 0, 0]);
    }
    for options in 4..8 {
        assert_eq!(pointed(&unit, &codes(options, 0, 0, 64), &[]), (2, Some(2)));
    }
    assert_eq!(ask(&unit, &codes(0, 0, 0, 3)).len(), 3);
}

#[test]
fn report_without_unmap_does_not_show_its_bit() {
    assert_eq!(ask(&unit(), &codes(1, 0x41, 0, 64))[5], 0x00);
    assert_eq!(ask(&thin(), &codes(1, 0x41, 0, 64))[5], 0x08);
    assert_eq!(ask(&unit(), &codes(1, 0x93, 0, 64))[5], 0x01);
}

#[test]
fn report_of_start_stop_unit_shows_what_ejects_where_something_can_be() {
    assert_eq!(ask(&unit(), &codes(1, 0x1B, 0, 64))[8], 0x05);
    assert_eq!(ask(&full(), &codes(1, 0x1B, 0, 64))[8], 0xF7);
}

#[test]
fn dpo_and_fua_are_in_the_usage_maps_as_mode_sense_promises() {
    let unit = unit();
    assert_eq!(ask(&unit, &[0x1A, 0, 0x3F, 0, 255, 0])[2] & 0x10, 0x10);
    for code in [0x28, 0xA8, 0x88, 0x2A, 0xAA, 0x8A, 0x8B, 0x89] {
        assert_eq!(ask(&unit, &codes(1, code, 0, 64))[5] & 0x18, 0x18, "{code:#x}");
    }
    for code in [0x2E, 0xAE, 0x8E, 0x2F, 0xAF, 0x8F] {
        assert_eq!(ask(&unit, &codes(1, code, 0, 64))[5] & 0x10, 0x10, "{code:#x}");
    }
}

#[test]
fn bit_outside_the_usage_map_is_refused_where_it_stands() {
    // Ignored bits: FUA_NV and SYNC_NV of SBC-2, the group number, the third-party and extent fields of SPC-2, and
    // SCOPE and TYPE where no reservation is made.
    let ignored = |code: u8, byte: usize, bit: u8| {
        matches!(
            (code, byte, bit),
            (0x28 | 0x2A | 0xA8 | 0xAA | 0x88 | 0x8A | 0x89 | 0x8B, 1, 1)
                | (0x35 | 0x91, 1, 2)
                | (0x2A | 0x28 | 0x2E | 0x2F | 0x34 | 0x35 | 0x41 | 0x42, 6, 0..=5)
                | (0xA8 | 0xAA | 0xAE | 0xAF, 10, 0..=5)
                | (0x88..=0x93 | 0x9C, 14, 0..=5)
                | (0x16 | 0x17, 1, 1..=3)
                | (0x16 | 0x17, 2, _)
                | (0x16, 3 | 4, _)
                | (0x56 | 0x57, 2 | 3 | 7 | 8, _)
                | (0x5F, 2, _)
        )
    };
    let unit = full();
    for row in &OPERATIONS {
        let usage = row.usage(OptionalFeatures::ALL);
        for (byte, bit) in (1..usage.len()).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (row.code(), row.action().unwrap_or(0));
            if usage[byte] & 1 << bit != 0 || (byte == 1 && row.action().is_some() && bit < 5) {
                continue;
            }
            cdb[byte] |= 1 << bit;
            let outcome = run(&unit, HOST, &cdb, &[0; BLOCK]);
            let pointed = outcome.sense.and_then(|sense| sense.field).map(|field| (field.byte, field.bit));
            let expected = (!ignored(row.code(), byte, bit)).then_some((byte as u16, Some(bit)));
            let found = pointed.filter(|_| outcome.status == Status::CheckCondition);
            assert!(expected.is_none() || found == expected, "{} byte {byte} bit {bit}: {found:?}", row.name);
            assert!(
                expected.is_some() || found != Some((byte as u16, Some(bit))),
                "{} byte {byte} bit {bit}",
                row.name
            );
        }
    }
}

#[test]
fn report_of_task_management_names_what_manage_serves() {
    let unit = unit();
    let mut cdb = [0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
    assert_eq!(ask(&unit, &cdb), [0xDA, 0, 0, 0]);
    cdb[2] = 0x80;
    assert_eq!(ask(&unit, &cdb), [0xDA, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    cdb[9] = 3;
    assert_eq!(pointed(&unit, &cdb, &[]), (6, None));
}
