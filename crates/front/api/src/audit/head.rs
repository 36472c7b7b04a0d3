//! Head of the audit log: a file that names the last record, so that cut-off records are noticed.
//!
//! It has two slots that are written in turn, each with a checksum: a torn write leaves the other one intact. The file
//! is flushed with each record, so it is at most one record behind.

use super::lines::NUMBER_END;
use sha3::{Digest, Sha3_256};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const FILE: &str = "head";
/// Length of a slot: number, hash and checksum, separated by spaces, and a line break.
const PLACE_BYTES: usize = 20 + 1 + 64 + 1 + 16 + 1;

/// Content of the head file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// No file exists.
    Missing,
    /// No slot is valid; the text is the reason.
    Damaged(String),
    /// Number and hash of the last record; `worn` if one of the slots is damaged.
    Whole { number: u64, hash: String, worn: bool },
}

/// Reads the head in the folder.
///
/// *Errors*: the file cannot be read.
pub(crate) fn read(folder: &Path) -> io::Result<Head> {
    let bytes = match std::fs::read(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Head::Missing),
        bytes => bytes?,
    };
    if bytes.is_empty() {
        return Ok(Head::Damaged("it is empty".to_owned()));
    }
    let places: Vec<Option<(u64, String)>> = bytes.chunks(PLACE_BYTES).map(parse).collect();
    // A slot of zeros was never written.
    let unused = |place: &[u8]| place.iter().all(|byte| *byte == 0);
    let worn = places.iter().zip(bytes.chunks(PLACE_BYTES)).any(|(said, place)| said.is_none() && !unused(place));
    // The slot with the higher number is the newer one.
    let latest = places.into_iter().flatten().max_by_key(|(number, _)| *number);
    Ok(match latest {
        Some((number, hash)) => Head::Whole { number, hash, worn: worn || bytes.len() > 2 * PLACE_BYTES },
        None if bytes.len() < PLACE_BYTES => Head::Damaged("it is truncated".to_owned()),
        None => Head::Damaged("its checksum does not match".to_owned()),
    })
}

/// Sets the last record. *Durability*: it survives a power loss when this returns.
///
/// *Errors*: it could not be written.
pub(crate) fn write(folder: &Path, number: u64, hash: &str) -> io::Result<()> {
    let path = folder.join(FILE);
    let is_new = !path.exists();
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
    // A file of another length is damaged and starts anew, with both slots empty.
    if file.metadata()?.len() != 2 * PLACE_BYTES as u64 {
        file.set_len(0)?;
        file.set_len(2 * PLACE_BYTES as u64)?;
    }
    // Numbers alternate between the slots, so the slot with the previous record is never overwritten.
    let place = (number % 2) * PLACE_BYTES as u64;
    file.write_all_at(emit(number, hash).as_bytes(), place)?;
    file.sync_data()?;
    // A new file also needs its folder entry to be durable.
    if is_new { std::fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

pub(crate) fn emit(number: u64, hash: &str) -> String {
    let said = format!("{number:020} {hash:064}");
    format!("{said} {}\n", sum(&said))
}

pub(crate) fn parse(place: &[u8]) -> Option<(u64, String)> {
    let text = std::str::from_utf8(place).ok()?.strip_suffix('\n')?;
    let (said, found) = text.rsplit_once(' ')?;
    let (number, hash) = said.split_once(' ')?;
    let number = number.parse().ok().filter(|number| *number < NUMBER_END)?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (place.len() == PLACE_BYTES && is_hash && sum(said) == found).then(|| (number, hash.to_owned()))
}

pub(crate) fn sum(said: &str) -> String {
    control::to_hex(&Sha3_256::digest(said.as_bytes())).chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_the_latest_of_its_places_and_any_flipped_bit_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(read(dir.path()).expect("reads"), Head::Missing);
        for number in 1..=5 {
            write(dir.path(), number, &"ab".repeat(32)).expect("writes");
            let whole = Head::Whole { number, hash: "ab".repeat(32), worn: false };
            assert_eq!(read(dir.path()).expect("reads"), whole);
        }
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).expect("reads");
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, changed).expect("writes");
            let head = read(dir.path()).expect("reads");
            assert!(!matches!(head, Head::Whole { worn: false, .. }), "bit {bit}: {head:?}");
        }
        for len in [0, 1, 50] {
            std::fs::write(&path, &whole[..len]).expect("writes");
            assert!(matches!(read(dir.path()).expect("reads"), Head::Damaged(_)));
        }
    }
}
