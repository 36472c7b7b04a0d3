//! The form of a file of the state folder: one version of one document under a checksum.
//!
//! A file is a line of JSON (the [`Header`]), the body, and a line with the SHA3-256 of everything before it. A file has its final name
//! only after it is on disk in full, so one that does not match its checksum was damaged, never torn. The header repeats the name and the
//! number that the file name says: a file that was renamed or copied over another one does not match either.
//!
//! Nothing here may panic on what a file holds.

use model::Timestamp;
use serde::{Deserialize, Serialize};
use sha3::{Digest, Sha3_256};
use std::collections::BTreeMap;

/// The form of the files. Raised when an older daemon would misread them.
pub(crate) const FORMAT: u64 = 3;

/// The bytes of the last line: 64 hexadecimal digits and a line break.
const SUM_BYTES: usize = 65;

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The form of the file.
    pub format: u64,
    /// The document: `state`, `events` or one that another part of the daemon keeps.
    pub name: String,
    /// The number of this version.
    pub number: u64,
    /// When it was written.
    pub time: Timestamp,
    /// The name of the node that wrote it.
    #[serde(default)]
    pub node: String,
    /// The key that its secrets are sealed with.
    pub key: String,
    /// The version of the state that was the latest one when this was written: tells that a later version of it was lost.
    pub state: u64,
    /// The last record of the audit that was known when this was written.
    #[serde(default)]
    pub audit: AuditHead,
    /// True where hosts may see something else than in the version before.
    #[serde(default)]
    pub access: bool,
    /// The latest version of each document beside the state when this was written: tells that a later version of it was lost.
    #[serde(default)]
    pub documents: BTreeMap<String, u64>,
    /// What tells the key from one of which a bit has changed; empty in files of versions that did not know it.
    #[serde(default)]
    pub key_check: String,
}

/// The last record of the audit: records that were cut off behind it are noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// Its number; 0 for none.
    pub number: u64,
    /// Its hash, in hexadecimal.
    pub hash: String,
}

/// The file that has this header and this body.
pub(crate) fn emit(header: &Header, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec(header)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(body);
    bytes.push(b'\n');
    let sum = sum(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    Ok(bytes)
}

/// The header and the body of a file that is as it was written.
///
/// *Errors*: what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let at = bytes.len().checked_sub(SUM_BYTES).ok_or("it is too short")?;
    let (content, said) = bytes.split_at_checked(at).ok_or("it is too short")?;
    if sum(content).as_bytes() != said {
        return Err("its checksum does not match".to_owned());
    }
    let end = content.iter().position(|byte| *byte == b'\n').ok_or("it has no header")?;
    let (header, body) = content.split_at_checked(end).ok_or("it has no header")?;
    let header = serde_json::from_slice(header).map_err(|error| format!("its header cannot be read: {error}"))?;
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
