//! Invariants of audit lines and heads for arbitrary bytes. Built for the fuzz targets only.

use super::{head, lines};

/// Checks that a valid line or head stays the same when it is written again, also with a hash computed to match.
pub fn audit(bytes: &[u8]) {
    line(bytes);
    place(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    line(format!("{text},\"hash\":\"{}\"}}", lines::hash(text)).as_bytes());
    place(format!("{text} {}\n", head::sum(text)).as_bytes());
}

fn line(bytes: &[u8]) {
    let Ok((record, hash)) = lines::opened(bytes) else { return };
    let (again, _) = lines::sealed(&record).expect("what was read can be written");
    let (same, _) = lines::opened(again.trim_end_matches('\n').as_bytes()).expect("what is written is whole");
    assert_eq!(same, super::AuditRecord { hash: same.hash.clone(), ..record.clone() });
    assert_eq!(record.hash, hash, "the hash that a record names is its own");
}

fn place(bytes: &[u8]) {
    let Some((number, hash)) = head::parse(bytes) else { return };
    assert_eq!(head::parse(head::emit(number, &hash).as_bytes()), Some((number, hash)));
}
