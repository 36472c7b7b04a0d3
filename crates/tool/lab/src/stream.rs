//! Streams of stamps: written by `genstream`, verified by `checkstream`.

use crate::load::Verification;
use crate::stamp::{Found, STAMP_BYTES, Stamp};
use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};

const PIECE_BYTES: usize = 1 << 20;
const WORDS_MAX: usize = 20;

/// Writes `bytes` bytes of stamps with `seed` to `out`.
///
/// *Errors*: no multiple of 512 bytes, or `out` cannot be written.
pub fn generate(out: &mut impl Write, bytes: u64, seed: u64) -> Result<()> {
    ensure!(
        bytes.is_multiple_of(STAMP_BYTES as u64),
        "a stream is whole blocks of {STAMP_BYTES} bytes, and {bytes} is not"
    );
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(PIECE_BYTES as u64) as usize;
        Stamp { block: at / STAMP_BYTES as u64, generation: 1, seed }.fill(&mut piece[..len]);
        out.write_all(&piece[..len]).context("the stream cannot be written")?;
        at += len as u64;
    }
    out.flush().context("the stream cannot be written")
}

/// Verifies a stream with `seed` from `from`, and its length if `bytes` is given.
///
/// *Errors*: `from` cannot be read.
pub fn check(from: &mut impl Read, bytes: Option<u64>, seed: u64) -> Result<Verification> {
    let mut proof = Verification::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut all = 0;
    loop {
        let len = fill(from, &mut piece).context("the stream cannot be read")?;
        // Only the last piece can have a partial block, which is no valid stamp.
        for block in piece[..len].chunks(STAMP_BYTES) {
            // Counted and not taken from the stamp, so that a missing block shows.
            let number = proof.judged;
            proof.judged += 1;
            let wrong = match Stamp::read(block) {
                Found::Stamp(stamp) if stamp.seed != seed => format!("it is of the run {}, not {seed}", stamp.seed),
                Found::Stamp(stamp) if stamp.block != number => format!("it holds block {}", stamp.block),
                Found::Stamp(_) => continue,
                Found::Zeros => "it holds zeros".to_owned(),
                Found::Damaged => "it holds no stamp".to_owned(),
            };
            note(&mut proof, format!("block {number}: {wrong}"));
        }
        all += len as u64;
        // A short piece is the end: `fill` reads until a piece is full.
        if len < PIECE_BYTES {
            break;
        }
    }
    match bytes {
        Some(bytes) if bytes != all => note(&mut proof, format!("the stream has {all} bytes, not {bytes}")),
        _ => {}
    }
    Ok(proof)
}

fn note(proof: &mut Verification, words: String) {
    // All faults are counted, but a damaged stream must not fill the memory with descriptions.
    proof.faults += 1;
    if proof.words.len() < WORDS_MAX {
        proof.words.push(words);
    }
}

/// Reads until `into` is full or the stream has ended.
fn fill(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_good_until_something_happens_to_it() {
        let (bytes, seed) = (3 * (1 << 20) + 512, 11);
        let mut stream = Vec::new();
        generate(&mut stream, bytes, seed).expect("memory takes it");
        let judged = |stream: &[u8], bytes| check(&mut &*stream, bytes, seed).expect("memory can be read");
        assert_eq!(judged(&stream, Some(bytes)), Verification { judged: bytes / 512, ..Verification::default() });
        assert_eq!(judged(&stream[..1024], Some(bytes)).faults, 1, "it is cut");
        assert_eq!(check(&mut &*stream, None, 12).expect("memory can be read").faults, bytes / 512, "another run");
        stream[5 * 512..6 * 512].fill(0);
        stream.copy_within(0..512, 2 << 20);
        let proof = judged(&stream, None);
        assert_eq!(proof.words, ["block 5: it holds zeros", "block 4096: it holds block 0"]);
        assert!(generate(&mut Vec::new(), 100, 0).is_err());
    }
}
