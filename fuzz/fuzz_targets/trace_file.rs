//! Fuzz target: arbitrary bytes as the file of a flight recorder. The result is a trace that is equal after it is
//! written and read again, or an error. The checksum is corrected first, so that the parser behind it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::{CHECKSUM_BYTES, emit, parse};

fuzz_target!(|input: &[u8]| {
    let _ = parse(input);
    let mut file = input.to_vec();
    if let Some(summed) = file.len().checked_sub(CHECKSUM_BYTES) {
        let sum = simd::crc32c::crc32c(&file[..summed]).to_le_bytes();
        file[summed..].copy_from_slice(&sum);
    }
    if let Ok(traced) = parse(&file) {
        assert_eq!(parse(&emit(traced.clone())), Ok(traced));
    }
});
