//! XOR of whole blocks: the parity of RAID-5, and the P of RAID-6.

use crate::choice;

/// Adds `source` to `target` with XOR.
///
/// *Panics*: when the lengths differ.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "only as many bytes are added");
    (choice::best().xor_into)(target, source);
}

/// Writes the XOR of all `sources` to `out`; zeros when there are none.
///
/// *Panics*: when a source has another length than `out`.
pub fn xor(sources: &[&[u8]], out: &mut [u8]) {
    for source in sources {
        assert_eq!(source.len(), out.len(), "only as many bytes are added");
    }
    (choice::best().xor)(sources, out);
}
