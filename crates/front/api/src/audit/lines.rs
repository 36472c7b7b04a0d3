//! Format of a record: a line of JSON that ends with the hash of everything before it.

use super::AuditRecord;
use model::{Refusal, code};
use sha3::{Digest, Sha3_256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Longest line, in bytes; more than any record.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Upper bound of record numbers: file names have 12 digits.
pub(crate) const NUMBER_END: u64 = 1_000_000_000_000;
/// Start of the hash, which is the last key of a line.
const HASH_KEY: &str = ",\"hash\":\"";

/// Serializes a record as a line; returns the line and its hash.
pub(crate) fn sealed(record: &AuditRecord) -> Result<(String, String), Refusal> {
    let text = serde_json::to_string(record).map_err(|error| {
        tracing::error!(%error, "an audit record cannot be encoded as JSON");
        Refusal::new(
            code::INTERNAL,
            "an audit record cannot be encoded as JSON",
            "report this as a bug, with the daemon log",
        )
    })?;
    let (open, _) = text.rsplit_once(HASH_KEY).expect("the hash is the last key of a record");
    let hash = hash(open);
    Ok((format!("{open}{HASH_KEY}{hash}\"}}\n"), hash))
}

/// Parses and verifies a line; returns the record and its hash.
///
/// *Errors*: a description of the damage.
pub(crate) fn opened(line: &[u8]) -> Result<(AuditRecord, String), String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not valid UTF-8")?;
    let whole = line.rsplit_once(HASH_KEY).and_then(|(open, rest)| Some((open, rest.strip_suffix("\"}")?)));
    let (open, said) = whole.ok_or("it is not a record")?;
    let found = hash(open);
    // The hash covers the bytes as written, so a changed formatting is noticed as well.
    if found != said {
        return Err("its hash does not match".to_owned());
    }
    let record: AuditRecord = serde_json::from_str(line).map_err(|error| format!("it is not a record: {error}"))?;
    // Such a number would not fit into a file name.
    if record.number >= NUMBER_END {
        return Err(format!("it cannot have the number {}", record.number));
    }
    Ok((record, found))
}

/// Iterates over the lines of a file without their ends; the last one may be incomplete.
///
/// *Errors*: the file cannot be read.
pub(crate) fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
    let mut reader = BufReader::new(File::open(path)?);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        // Bounded, because the file may have been changed by anybody with access to it.
        // The limit starts anew with each line.
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
