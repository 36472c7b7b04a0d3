use crate::{CHECKSUM_BYTES, COMMAND_BYTES, HEADER_BYTES, TraceError, emit, parse};
use model::{Traced, TracedCommand};
use proptest::prelude::*;

fn command(number: u64, began_ns: u64, session: u32) -> TracedCommand {
    TracedCommand {
        number,
        began_ns,
        took_ns: 17,
        cdb: [0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        session,
        data_out_bytes: 512,
        data_in_bytes: 0,
        status: 2,
        sense: [5, 0x24, 0],
    }
}

fn traced(commands: Vec<TracedCommand>) -> Traced {
    Traced {
        volume: "tank/db".parse().unwrap(),
        block_bytes: 512,
        blocks: 2048,
        begun_unix_ns: 1_795_000_000_000_000_000,
        span_ns: 1_000_000,
        overwritten: 3,
        unended: 1,
        sessions: vec!["iqn.2001-04.com.example:web".to_owned(), String::new()],
        commands,
    }
}

/// Replaces the bytes at `at` and updates the checksum.
fn patched(mut file: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let summed = file.len() - CHECKSUM_BYTES;
    let sum = simd::crc32c::crc32c(&file[..summed]).to_le_bytes();
    file[summed..].copy_from_slice(&sum);
    file
}

#[test]
fn file_has_the_commands_in_the_order_in_which_they_began() {
    let file = emit(traced(vec![command(3, 20, 0), command(2, 10, 1), command(1, 10, 0)]));
    assert_eq!(parse(&file), Ok(traced(vec![command(1, 10, 0), command(2, 10, 1), command(3, 20, 0)])));
}

/// Today's format stays readable.
#[test]
fn file_of_format_1_is_read() {
    let file = emit(traced(vec![command(1, 10, 0)]));
    let names = 2 + 7 + 2 + 27 + 2;
    assert_eq!(file.len(), HEADER_BYTES + names + COMMAND_BYTES + CHECKSUM_BYTES);
    assert_eq!(file[..16], *b"BYTRACE\0\x01\0\0\0\x70\0\0\0");
    let first = HEADER_BYTES + names;
    let words = [1_u64, 10, 17].map(u64::to_le_bytes).concat();
    assert_eq!(file[first..first + 24], words);
    assert_eq!(file[first + 24..first + 34], [0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0]);
    assert_eq!(file[first + 40..first + 56], [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 2, 5, 0x24, 0]);
    assert_eq!(simd::crc32c::crc32c(&file[..file.len() - 4]), 0xC2FD_B6D9, "the checksum is of this file");
}

#[test]
fn file_that_is_cut_off_anywhere_is_refused() {
    let file = emit(traced(vec![command(1, 10, 0), command(2, 11, 1)]));
    assert_eq!(parse(&[]), Err(TraceError::Foreign));
    for len in 1..file.len() {
        let flaw = parse(&file[..len]).unwrap_err();
        assert!(matches!(flaw, TraceError::Short { has, needs } if has == len as u64 && needs > has), "{len}: {flaw}");
    }
    let longer = [file.as_slice(), &[0]].concat();
    assert!(matches!(parse(&longer), Err(TraceError::Long { .. })));
}

#[test]
fn file_with_any_bit_changed_is_refused() {
    let file = emit(traced(vec![command(1, 10, 0), command(2, 11, 1)]));
    for bit in 0..file.len() * 8 {
        let mut wrong = file.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&wrong).is_err(), "bit {bit}");
    }
}

#[test]
fn file_that_is_wrong_says_what_is() {
    let file = emit(traced(vec![command(1, 10, 0), command(2, 11, 1)]));
    let first = file.len() - CHECKSUM_BYTES - 2 * COMMAND_BYTES;
    assert_eq!(parse(b"\x0a\x0d\x0d\x0a a pcapng file of some length"), Err(TraceError::Foreign));
    assert_eq!(parse(&patched(file.clone(), 8, &[2, 0, 0, 0])), Err(TraceError::Version(2)));
    let absurd = parse(&patched(file.clone(), 16, &[0xff; 8]));
    assert!(matches!(absurd, Err(TraceError::Short { needs: u64::MAX, .. })), "{absurd:?}");
    assert_eq!(parse(&patched(file.clone(), 68, &[0xff; 4])), Err(TraceError::Names));
    assert_eq!(parse(&patched(file.clone(), 72, &[0xff, 0xff])), Err(TraceError::Names));
    assert_eq!(parse(&patched(file.clone(), 64, &[0; 4])), Err(TraceError::Volume { blocks: 2048, block_bytes: 0 }));
    assert_eq!(parse(&patched(file.clone(), first + 40, &[2])), Err(TraceError::Session { command: 1, session: 2 }));
    assert_eq!(parse(&patched(file.clone(), first + 8, &[99])), Err(TraceError::Order { command: 2 }));
    let same_time = patched(file.clone(), first + 8, &[11]);
    assert!(parse(&same_time).is_ok(), "of one nanosecond, in the order of their numbers");
    assert_eq!(parse(&patched(same_time, first, &[3])), Err(TraceError::Order { command: 2 }));
    let mut damaged = file;
    damaged[first + 30] ^= 1;
    assert_eq!(parse(&damaged), Err(TraceError::Checksum));
}

proptest! {
    #[test]
    fn trace_is_what_it_was_after_a_file(
        starts in proptest::collection::vec((prop_oneof![any::<u64>(), 0..4u64], any::<u64>(), any::<[u8; 16]>(), any::<[u32; 2]>(), 0..2u32, any::<[u8; 4]>()), 0..40),
    ) {
        let commands = (1..).zip(starts).map(|(number, (began_ns, took_ns, cdb, [data_out_bytes, data_in_bytes], session, rest))| {
            let [status, sense @ ..] = rest;
            TracedCommand { number, began_ns, took_ns, cdb, session, data_out_bytes, data_in_bytes, status, sense }
        });
        let mut traced = traced(commands.collect());
        let read = parse(&emit(traced.clone()));
        traced.commands.sort_by_key(|command| (command.began_ns, command.number));
        prop_assert_eq!(read, Ok(traced));
    }

    /// Any content under a right checksum is a trace or has a named flaw.
    #[test]
    fn file_of_any_bytes_is_judged(changes in proptest::collection::vec((8usize..200, any::<u8>()), 0..8)) {
        let mut file = emit(traced(vec![command(1, 10, 0), command(2, 11, 1)]));
        for (at, byte) in changes {
            file = patched(file, at, &[byte]);
        }
        match parse(&file) {
            Ok(traced) => prop_assert_eq!(parse(&emit(traced.clone())), Ok(traced)),
            Err(flaw) => prop_assert!(!flaw.to_string().is_empty()),
        }
    }
}
