//! Any bytes as the file of a flight recorder: a trace that is the same after it was written again, or a flaw. The checksum is made
//! right first, so that what stands behind it is reached.
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
