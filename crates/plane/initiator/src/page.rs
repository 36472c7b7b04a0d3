//! Parsers of SCSI parameter data: capacity, identity, limits, caches, port groups, registrations.
//!
//! The bytes come from a target: nothing is indexed, and truncated fields are absent. Called by [`crate::disk`] and
//! [`crate::fence`].
#![warn(clippy::arithmetic_side_effects)]

/// READ CAPACITY (16) parameter data (SBC-4, 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of logical blocks.
    pub blocks: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Physical block size in bytes.
    pub physical_block_bytes: u32,
    /// LBPME: blocks can be unmapped.
    pub thin: bool,
}

/// Limits of the block limits VPD page (SBC-4, B0h). Zero means that the target names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// MAXIMUM TRANSFER LENGTH in blocks.
    pub transfer_blocks_max: u32,
    /// OPTIMAL TRANSFER LENGTH in blocks.
    pub optimal_blocks: u32,
    /// MAXIMUM UNMAP LBA COUNT.
    pub unmap_blocks_max: u32,
}

/// ASYMMETRIC ACCESS STATE of a target port group, the best first (SPC-4, 6.37).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessState {
    /// Active/optimized. Also for a target without ALUA.
    #[default]
    Optimized,
    /// Active/non-optimized.
    NonOptimized,
    /// Transitioning.
    Transitioning,
    /// Standby, unavailable, offline or unknown: takes no media commands.
    Standby,
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..)?.first_chunk().copied()
}

/// Parses READ CAPACITY (16) data; `None` when it is truncated or has no blocks.
#[must_use]
pub fn capacity(page: &[u8]) -> Option<Capacity> {
    // RETURNED LOGICAL BLOCK ADDRESS is the last block, so the count may overflow for a hostile target.
    let blocks = u64::from_be_bytes(at(page, 0)?).checked_add(1)?;
    let block_bytes = u32::from_be_bytes(at(page, 8)?);
    // LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    let exponent = u32::from(page.get(13)? & 0x0f);
    // `checked_shl` does not detect lost bits, hence the comparison.
    let physical_block_bytes = block_bytes.checked_shl(exponent).filter(|&bytes| bytes >= block_bytes)?;
    let thin = page.get(14)? & 0x80 != 0;
    (block_bytes > 0).then_some(Capacity { blocks, block_bytes, physical_block_bytes, thin })
}

/// Returns the logical unit's own designators in the device identification VPD page (83h): type and bytes of each,
/// sorted. Two paths lead to the same unit when they share one.
///
/// *Source*: SPC-4, 7.8.6. Only NAA, EUI-64 and SCSI name strings; T10 vendor IDs where there is none of those.
#[must_use]
pub fn designators(page: &[u8]) -> Vec<(u8, Vec<u8>)> {
    const ASSOCIATION_UNIT: u8 = 0;
    let len = at(page, 2).map_or(0, u16::from_be_bytes);
    let end = usize::from(len).saturating_add(4).min(page.len());
    let mut rest = page.get(4..end).unwrap_or_default();
    let mut found = Vec::new();
    while let &[_, kind, _, len, ref behind @ ..] = rest {
        // A designator that is longer than the page is cut, not refused.
        let (body, next) = behind.split_at(usize::from(len).min(behind.len()));
        let (association, kind) = ((kind >> 4) & 3, kind & 0x0f);
        if association == ASSOCIATION_UNIT && !body.is_empty() {
            found.push((kind, body.to_vec()));
        }
        rest = next;
    }
    // 2 is EUI-64, 3 is NAA, 8 is a SCSI name string; a T10 vendor ID (1) is not unique for certain.
    let is_unique = |kind: u8| matches!(kind, 2 | 3 | 8);
    if found.iter().any(|(kind, _)| is_unique(*kind)) {
        found.retain(|(kind, _)| is_unique(*kind));
    } else {
        found.retain(|(kind, _)| *kind == 1);
    }
    found.sort();
    found
}

/// Returns the number of the target port group of the answering port (TARGET PORT GROUP designator, page 83h).
#[must_use]
pub fn port_group(page: &[u8]) -> Option<u16> {
    const TARGET_PORT_GROUP: u8 = 5;
    let mut rest = page.get(4..)?;
    while let &[_, kind, _, len, ref behind @ ..] = rest {
        let (body, next) = behind.split_at(usize::from(len).min(behind.len()));
        // The association need not be checked: this type exists for target ports only.
        if kind & 0x0f == TARGET_PORT_GROUP {
            return at(body, 2).map(u16::from_be_bytes);
        }
        rest = next;
    }
    None
}

/// Formats a unit name for messages: NAA and EUI-64 in hexadecimal, others as text.
#[must_use]
pub fn name_of(designators: &[(u8, Vec<u8>)]) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let best = designators.iter().find(|(kind, _)| *kind == 3).or_else(|| designators.first())?;
    Some(match best.0 {
        3 => format!("naa.{}", hex(&best.1)),
        2 => format!("eui.{}", hex(&best.1)),
        _ => String::from_utf8_lossy(&best.1).trim_end_matches('\0').to_owned(),
    })
}

/// Parses the unit serial number VPD page (80h).
#[must_use]
pub fn serial(page: &[u8]) -> Option<String> {
    let len = usize::from(u16::from_be_bytes(at(page, 2)?));
    let bytes = page.get(4..)?;
    // LIO includes the terminating zero in the length.
    let is_filler = |letter: char| letter.is_whitespace() || letter.is_control();
    let text = String::from_utf8_lossy(bytes.get(..len.min(bytes.len()))?).trim_matches(is_filler).to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns vendor and product of standard INQUIRY data.
#[must_use]
pub fn model(page: &[u8]) -> Option<String> {
    let field = |range| page.get(range).map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    let (vendor, product): (String, String) = (field(8..16)?, field(16..32)?);
    Some(format!("{vendor} {product}").trim().to_owned()).filter(|text| !text.is_empty())
}

/// True when the peripheral device type is a disk and a unit is connected (qualifier 0).
#[must_use]
pub fn is_disk(page: &[u8]) -> bool {
    // One byte has both: the qualifier in its upper three bits, the type below.
    page.first() == Some(&0)
}

/// True when the standard INQUIRY data reports target port groups (TPGS).
#[must_use]
pub fn has_port_groups(page: &[u8]) -> bool {
    page.get(5).is_some_and(|byte| byte & 0x30 != 0)
}

/// Parses the limits of VPD page B0h.
#[must_use]
pub fn limits(page: &[u8]) -> Limits {
    // A short page reports no limit.
    let field = |from| at(page, from).map_or(0, u32::from_be_bytes);
    Limits { transfer_blocks_max: field(8), optimal_blocks: field(12), unmap_blocks_max: field(20) }
}

/// True when UNMAP is supported: LBPU of the logical block provisioning VPD page (B2h).
#[must_use]
pub fn unmaps(page: &[u8]) -> bool {
    page.get(5).is_some_and(|byte| byte & 0x80 != 0)
}

/// Returns WCE of the caching mode page in MODE SENSE (10) data; `None` when there is no such page.
#[must_use]
pub fn write_cache(page: &[u8]) -> Option<bool> {
    let descriptors = usize::from(u16::from_be_bytes(at(page, 6)?));
    // The header has 8 bytes, and block descriptors may precede the page although DBD was set.
    let mode = page.get(8_usize.checked_add(descriptors)?..)?;
    // The upper two bits of the page code byte are PS and SPF.
    (mode.first()? & 0x3f == 0x08).then_some(mode.get(2)? & 0x04 != 0)
}

/// Returns the access state of `group` in REPORT TARGET PORT GROUPS data.
#[must_use]
pub fn access_state(page: &[u8], group: u16) -> Option<AccessState> {
    // RETURN DATA LENGTH precedes the descriptors.
    let mut rest = page.get(4..)?;
    loop {
        let state = rest.first()? & 0x0f;
        let id = u16::from_be_bytes(at(rest, 2)?);
        let ports = usize::from(*rest.get(7)?);
        if id == group {
            return Some(match state {
                0 => AccessState::Optimized,
                1 => AccessState::NonOptimized,
                0x0f => AccessState::Transitioning,
                _ => AccessState::Standby,
            });
        }
        // A group descriptor has 8 bytes and 4 for each port.
        rest = rest.get(ports.checked_mul(4)?.checked_add(8)?..)?;
    }
}

/// PERSISTENT RESERVE IN, REPORT CAPABILITIES data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveCapabilities {
    /// True when Write Exclusive, All Registrants is supported.
    pub all_registrants: bool,
    /// True when registrations can survive a power loss of the target (PTPL_C).
    pub survives: bool,
}

/// Parses the capabilities; a target that lists no types is assumed to support all of SPC-3.
#[must_use]
pub fn reserve_capabilities(page: &[u8]) -> ReserveCapabilities {
    let flags = page.get(3).copied().unwrap_or(0);
    // TMV: the type mask is valid.
    let (names_types, types) = (flags & 0x80 != 0, page.get(4).copied().unwrap_or(0));
    let survives = page.get(2).is_some_and(|byte| byte & 1 != 0);
    // Without a type mask every type counts as supported.
    ReserveCapabilities { all_registrants: !names_types || types & 0x80 != 0, survives }
}

/// Returns the registered keys of READ KEYS data, one for each registration, as far as the page goes.
#[must_use]
pub fn keys(page: &[u8]) -> Vec<u64> {
    let bytes = at(page, 4).map_or(0, u32::from_be_bytes) as usize;
    let list = page.get(8..).unwrap_or_default();
    let list = list.get(..bytes.min(list.len())).unwrap_or_default();
    list.chunks_exact(8).filter_map(|key| at(key, 0)).map(u64::from_be_bytes).collect()
}

/// Returns key and type of the reservation in READ RESERVATION data; `None` without a reservation.
#[must_use]
pub fn holder(page: &[u8]) -> Option<(u64, u8)> {
    let bytes = u32::from_be_bytes(at(page, 4)?);
    let key = u64::from_be_bytes(at(page, 8)?);
    // A shorter descriptor means that there is no reservation.
    (bytes >= 16).then_some((key, page.get(21)? & 0x0f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_of_a_512e_disk_is_read_and_a_cut_page_is_not() {
        let mut page = [0; 32];
        page[..8].copy_from_slice(&2047_u64.to_be_bytes());
        page[8..12].copy_from_slice(&512_u32.to_be_bytes());
        (page[13], page[14]) = (3, 0x80);
        let expected = Capacity { blocks: 2048, block_bytes: 512, physical_block_bytes: 4096, thin: true };
        assert_eq!(capacity(&page), Some(expected));
        assert_eq!((capacity(&page[..14]), capacity(&[0xff; 32])), (None, None));
    }

    #[test]
    fn serial_number_ends_before_the_zero_that_lio_counts() {
        assert_eq!(serial(b"\0\x80\0\x07 lio-1\0").as_deref(), Some("lio-1"));
        assert_eq!((serial(b"\0\x80\0\x02 \0"), serial(b"\0\x80")), (None, None));
    }

    #[test]
    fn designators_of_the_unit_are_compared_and_those_of_the_port_are_not() {
        let mut page = vec![0, 0x83, 0, 0];
        page.extend_from_slice(&[1, 0x03, 0, 8, 0x60, 1, 2, 3, 4, 5, 6, 7]);
        page.extend_from_slice(&[1, 0x15, 0, 4, 0, 0, 0, 9]);
        page.extend_from_slice(&[2, 0x01, 0, 3, b'a', b'b', b'c']);
        page[3] = (page.len() - 4) as u8;
        let found = designators(&page);
        assert_eq!(found, [(3, vec![0x60, 1, 2, 3, 4, 5, 6, 7])]);
        assert_eq!((name_of(&found).as_deref(), port_group(&page)), (Some("naa.6001020304050607"), Some(9)));
        assert_eq!((designators(&page[..6]), designators(&[])), (vec![], vec![]));
    }

    #[test]
    fn access_states_are_found_by_group() {
        let mut page = vec![0, 0, 0, 24];
        page.extend_from_slice(&[0x01, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        page.extend_from_slice(&[0x02, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(access_state(&page, 1), Some(AccessState::NonOptimized));
        assert_eq!(access_state(&page, 2), Some(AccessState::Standby));
        assert_eq!((access_state(&page, 3), access_state(&page[..9], 2)), (None, None));
    }

    #[test]
    fn keys_and_the_holder_are_read_as_far_as_the_pages_go() {
        let mut page = vec![0, 0, 0, 9, 0, 0, 0, 16];
        page.extend_from_slice(&0x1234_u64.to_be_bytes());
        page.extend_from_slice(&[0xff; 8]);
        assert_eq!(keys(&page), [0x1234, u64::MAX]);
        assert_eq!((keys(&page[..20]), keys(&[])), (vec![0x1234], vec![]));
        let mut held = page[..16].to_vec();
        held.extend_from_slice(&[0, 0, 0, 0, 0, 0x17, 0, 0]);
        assert_eq!((holder(&held), holder(&page[..12])), (Some((0x1234, 7)), None));
    }
}
