//! Machine identity, as written into the ownership records on disks.
//!
//! *Source*: machine-id(5): the ID is confidential, so only a hash of it with a text of our own is written
//! elsewhere.

use model::MachineId;
use sha3::{Digest, Sha3_256};
use std::fs;

/// Domain separator of the hash: other programs derive other values from the same ID.
const PURPOSE: &[u8] = b"blockyard owner's mark\0";

/// Returns the machine identity; `None` where the system has no machine ID, as in some containers.
#[must_use]
pub fn read() -> Option<MachineId> {
    of_text(&fs::read_to_string("/etc/machine-id").ok()?)
}

fn of_text(text: &str) -> Option<MachineId> {
    let text = text.trim();
    // Until the first boot has completed, the file is empty or says "uninitialized" (machine-id(5)).
    let is_id = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then_some(())?;
    let digest = Sha3_256::new().chain_update(PURPOSE).chain_update(text.to_ascii_lowercase()).finalize();
    let bytes: [u8; 16] = digest.as_slice().get(..16)?.try_into().ok()?;
    Some(MachineId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_id_is_hashed_and_the_same_for_the_same_machine_alone() {
        let one = of_text("0123456789abcdef0123456789abcdef\n");
        assert!(one.is_some());
        assert_eq!(one, of_text("0123456789ABCDEF0123456789abcdef"));
        assert_ne!(one, of_text("1123456789abcdef0123456789abcdef"));
        assert_ne!(one.map(MachineId::to_bytes).map(|bytes| bytes[0]), Some(0x01), "the ID itself is not shown");
        assert_eq!(of_text(""), None);
        assert_eq!(of_text("uninitialized\n"), None);
    }
}
