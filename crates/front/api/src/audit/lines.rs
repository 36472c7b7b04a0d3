//! A record as a line: JSON that ends with the hash of everything before it.

use super::AuditRecord;
use model::{Refusal, code};
use sha3::{Digest, Sha3_256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Longer than any record.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// No audit has so many records: the numbers in the names of files have 12 digits.
pub(crate) const NUMBER_END: u64 = 1_000_000_000_000;
/// Where the hash stands in a line: at its end.
const HASH_KEY: &str = ",\"hash\":\"";

/// The record as a line, and its hash.
pub(crate) fn sealed(record: &AuditRecord) -> Result<(String, String), Refusal> {
    let text = serde_json::to_string(record).map_err(|error| {
        tracing::error!(%error, "a record cannot be said in JSON");
        Refusal::new(code::INTERNAL, "a record cannot be said in JSON", "report this with the daemon's log")
    })?;
    let (open, _) = text.rsplit_once(HASH_KEY).expect("the hash is the last key of a record");
    let hash = hash(open);
    Ok((format!("{open}{HASH_KEY}{hash}\"}}\n"), hash))
}

/// The record of a line, and its hash.
///
/// *Errors*: why it is not as it was written.
pub(crate) fn opened(line: &[u8]) -> Result<(AuditRecord, String), String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is no text")?;
    let whole = line.rsplit_once(HASH_KEY).and_then(|(open, rest)| Some((open, rest.strip_suffix("\"}")?)));
    let (open, said) = whole.ok_or("it is no record")?;
    let found = hash(open);
    if found != said {
        return Err("its hash does not match".to_owned());
    }
    let record: AuditRecord = serde_json::from_str(line).map_err(|error| format!("it is no record: {error}"))?;
    if record.number >= NUMBER_END {
        return Err(format!("it cannot have the number {}", record.number));
    }
    Ok((record, found))
}

/// The lines of a file, without their ends; the last one may lack its end.
///
/// *Errors*: the file cannot be read.
pub(crate) fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
    let mut reader = BufReader::new(File::open(path)?);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => {
                line.pop_if(|last| *last == b'\n');
                Some(Ok(line))
            }
            Err(error) => Some(Err(error)),
        }
    }))
}

pub(crate) fn hash(text: &str) -> String {
    control::to_hex(&Sha3_256::digest(text.as_bytes()))
}
