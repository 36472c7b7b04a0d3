//! Format of a file of the state folder: one version of one document under a checksum.
//!
//! A file is a line of JSON (the [`Header`]), the body, and a line with the SHA3-256 of everything before it. A
//! file gets its final name only after it is on disk in full, so a checksum mismatch means damage, never a torn
//! write. The header repeats the name and the number of the file name, so a file that was renamed or copied
//! over another one does not match either.
//!
//! Parsing never panics, whatever a file holds.

use model::Timestamp;
use serde::{Deserialize, Serialize};
use sha3::{Digest, Sha3_256};
use std::collections::BTreeMap;

/// Version of the file format. Raised when an older daemon would misread the files.
pub(crate) const FORMAT: u64 = 3;

/// Length in bytes of the checksum line: 64 hexadecimal digits and a line break.
const SUM_BYTES: usize = 65;

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Version of the file format.
    pub format: u64,
    /// Name of the document: `state`, `events` or one that another part of the daemon keeps.
    pub name: String,
    /// Number of this version.
    pub number: u64,
    /// Time at which it was written.
    pub time: Timestamp,
    /// Identity of the node that wrote it; empty before the node has one.
    #[serde(default)]
    pub node: String,
    /// ID of the key that its secrets are sealed with.
    pub key: String,
    /// Latest version of the state when this was written; reveals that a later version than the one found was
    /// lost.
    pub state: u64,
    /// Last known audit record when this was written.
    #[serde(default)]
    pub audit: AuditHead,
    /// True where this version changed the access of hosts.
    #[serde(default)]
    pub access: bool,
    /// Latest version of each document when this was written; reveals that a later version than the one found
    /// was lost.
    #[serde(default)]
    pub documents: BTreeMap<String, u64>,
    /// Check value that tells the key from one with a flipped bit; empty in files of versions that did not have
    /// it.
    #[serde(default)]
    pub key_check: String,
}

/// Last record of the audit log, kept to detect a log that was truncated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// Record number; 0 for none.
    pub number: u64,
    /// Hash of the record, in hexadecimal.
    pub hash: String,
}

/// Emits the file of this header and body.
pub(crate) fn emit(header: &Header, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec(header)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(body);
    bytes.push(b'\n');
    let sum = sum(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    Ok(bytes)
}

/// Parses a file and verifies its checksum.
///
/// *Errors*: the reason why it is damaged.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let at = bytes.len().checked_sub(SUM_BYTES).ok_or("it is too short")?;
    let (content, said) = bytes.split_at_checked(at).ok_or("it is too short")?;
    // Nothing is parsed before the checksum is verified.
    if sum(content).as_bytes() != said {
        return Err("its checksum does not match".to_owned());
    }
    // The header is one line of JSON, so the first line break ends it.
    let end = content.iter().position(|byte| *byte == b'\n').ok_or("it has no header")?;
    let (header, body) = content.split_at_checked(end).ok_or("it has no header")?;
    let header = serde_json::from_slice(header).map_err(|error| format!("its header cannot be read: {error}"))?;
    // The line breaks around the body belong to the format.
    Ok((header, body.trim_ascii()))
}

pub(crate) fn sum(bytes: &[u8]) -> String {
    crate::request::to_hex(&Sha3_256::digest(bytes)) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            format: FORMAT,
            name: "state".to_owned(),
            number: 7,
            time: Timestamp::from_unix(1_795_000_000),
            node: "n1".to_owned(),
            key: "0badcafe".to_owned(),
            state: 7,
            audit: AuditHead { number: 3, hash: "ff".to_owned() },
            access: true,
            documents: [("people".to_owned(), 2)].into(),
            key_check: "00ff00ff".to_owned(),
        }
    }

    #[test]
    fn sheet_is_read_as_it_was_written() {
        let bytes = emit(&header(), br#"{"a":1}"#).expect("JSON");
        assert_eq!(parse(&bytes), Ok((header(), br#"{"a":1}"#.as_slice())));
    }

    #[test]
    fn sheet_with_any_bit_flipped_or_any_part_cut_is_damaged() {
        let bytes = emit(&header(), br#"{"hosts":{"alpha":{"initiators":["iqn.2001-01.org.example:alpha"]}}}"#);
        let bytes = bytes.expect("JSON");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&changed).is_err(), "bit {bit} is missed");
        }
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "a file of {len} bytes counts as whole");
        }
        assert!(parse(&[&bytes[..], b"\n"].concat()).is_err());
    }
}
