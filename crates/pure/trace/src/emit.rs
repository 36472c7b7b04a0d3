//! Encoding of a trace file.

use crate::{CHECKSUM_BYTES, COMMAND_BYTES, HEADER_BYTES, MAGIC, VERSION, sort_key};
use model::{Traced, TracedCommand};

/// Encodes `traced` as a file; its commands may be in any order.
///
/// In the file they are ordered by start time, and within a nanosecond by number.
#[must_use]
pub fn emit(mut traced: Traced) -> Vec<u8> {
    // `parse` refuses a file whose commands are out of order.
    traced.commands.sort_by_key(sort_key);
    let names = names(&traced);
    let len = HEADER_BYTES + names.len() + traced.commands.len() * COMMAND_BYTES + CHECKSUM_BYTES;
    let mut file = Vec::with_capacity(len);
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    // Where the commands begin; names have no fixed length.
    file.extend(count(HEADER_BYTES + names.len()).to_le_bytes());
    let of_trace = [traced.commands.len() as u64, traced.overwritten, traced.unended];
    let of_time = [traced.begun_unix_ns, traced.span_ns, traced.blocks];
    of_trace.into_iter().chain(of_time).for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(traced.block_bytes.to_le_bytes());
    file.extend(count(traced.sessions.len()).to_le_bytes());
    file.extend(names);
    assert_eq!(len - file.len(), traced.commands.len() * COMMAND_BYTES + CHECKSUM_BYTES, "the header says its length");
    traced.commands.iter().for_each(|command| put(&mut file, command));
    // The checksum covers everything before it.
    let checksum = simd::crc32c::crc32c(&file);
    file.extend(checksum.to_le_bytes());
    assert_eq!(file.len(), len, "a file is as long as its header, its names and its commands");
    file
}

fn put(file: &mut Vec<u8>, command: &TracedCommand) {
    let TracedCommand { number, began_ns, took_ns, cdb, session, data_out_bytes, data_in_bytes, status, sense } =
        command;
    // In the order of the record that docs/operate/tracing.md defines.
    [number, began_ns, took_ns].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(cdb);
    [session, data_out_bytes, data_in_bytes].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.push(*status);
    file.extend(sense);
}

/// Name of the volume, then those of the sessions; each preceded by its length.
fn names(traced: &Traced) -> Vec<u8> {
    let volume = traced.volume.to_string();
    let mut names = Vec::new();
    for name in std::iter::once(&volume).chain(&traced.sessions) {
        // The format has 16 bits for a length; iSCSI names are much shorter.
        let len = u16::try_from(name.len()).expect("names have a few hundred bytes at most");
        names.extend(len.to_le_bytes());
        names.extend(name.as_bytes());
    }
    names
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("a trace tells a few thousand sessions apart")
}
