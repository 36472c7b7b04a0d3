//! Implementation of each requirement.

use super::probes;
use super::unit::{Answer, Unit};
use crate::{CheckResult, Finding, ensure};

const MIB: u64 = 1 << 20;

fn wrong(how: impl Into<String>) -> Finding {
    Finding::Wrong(how.into())
}

pub(super) fn reads(unit: &mut Unit) -> CheckResult {
    let bytes = unit.block_bytes()?;
    let answer = unit.ask("READ (16)", &[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], bytes)?;
    ensure(answer.0.len() == bytes as usize, || format!("{} bytes came of a block of {bytes}", answer.0.len()))
}

pub(super) fn writable(unit: &mut Unit) -> CheckResult {
    // Page 3Fh asks for all pages: only the header is of interest.
    let (_, header) = unit.mode(0x3F, 0)?;
    // WP in the device-specific parameter of the mode parameter header (SBC-4).
    ensure(!header.bit(2, 7), || "it is write-protected for this host (WP)".to_owned())
}

pub(super) fn blocks_of_512(unit: &mut Unit) -> CheckResult {
    let bytes = unit.block_bytes()?;
    ensure(bytes == 512, || format!("its blocks have {bytes} bytes"))
}

pub(super) fn transfer(unit: &mut Unit) -> CheckResult {
    let bytes = u64::from(unit.block_bytes()?);
    // MAXIMUM TRANSFER LENGTH, in blocks.
    let most = unit.vital(0xB0)?.u32(8);
    // SBC-4: zero means that no limit is reported.
    ensure(most == 0 || u64::from(most) * bytes >= MIB, || {
        format!("one command moves at most {most} blocks of {bytes}")
    })
}

pub(super) fn durable(unit: &mut Unit) -> CheckResult {
    let (page, _) = unit.mode(0x08, 0)?;
    // PS and SPF share the byte with the page code.
    ensure(page.u8(0) & 0x3F == 0x08, || "it has no caching page, and does not say whether it caches".to_owned())?;
    ensure(!page.bit(2, 2), || "its write cache may lose what it answered (WCE is 1)".to_owned())
}

/// Returns the globally unique designators of the logical unit: NAA, EUI-64 and UUID.
fn unique(page: &Answer) -> Vec<Vec<u8>> {
    let end = 4 + usize::from(page.u16(2));
    let (mut found, mut at) = (Vec::new(), 4);
    while at + 4 <= end.min(page.0.len()) {
        // ASSOCIATION 00b: the designator names the logical unit, not the port or the target.
        let len = 4 + usize::from(page.u8(at + 3));
        let of_unit = page.u8(at + 1) & 0x30 == 0;
        // EUI-64 (2h), NAA (3h) and UUID (Ah).
        if of_unit && matches!(page.u8(at + 1) & 0x0F, 0x2 | 0x3 | 0xA) {
            found.push(page.0.get(at..at + len).unwrap_or_default().to_vec());
        }
        at += len;
    }
    found
}

pub(super) fn designator(unit: &mut Unit) -> CheckResult {
    let names = unique(&unit.vital(0x83)?);
    ensure(!names.is_empty(), || "page 83h has no such name of the unit".to_owned())?;
    // Two hosts recognize one unit on two paths only by an equal designator.
    let again = unique(&unit.through_another_session()?.vital(0x83)?);
    ensure(names == again, || "another session is told another name".to_owned())
}

pub(super) fn serial(unit: &mut Unit) -> CheckResult {
    let page = unit.vital(0x80)?;
    let text = page.0.get(4..).unwrap_or_default();
    ensure(text.iter().any(|&byte| byte != b' ' && byte != 0), || "it is empty".to_owned())
}

pub(super) fn version(unit: &mut Unit) -> CheckResult {
    let version = unit.inquiry()?.u8(2);
    ensure(version >= 5, || format!("VERSION is {version}, and SPC-3 is 5"))
}

pub(super) fn alua(unit: &mut Unit) -> CheckResult {
    let groups = unit.inquiry()?.u8(5) >> 4 & 0x03;
    ensure(groups != 0, || "it knows no target port groups (TPGS is 0)".to_owned())?;
    let own = own_group(&unit.vital(0x83)?).ok_or(wrong("page 83h does not say which group this port is in"))?;
    let answer = unit.ask("REPORT TARGET PORT GROUPS", &[0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], 1024)?;
    // RETURN DATA LENGTH does not count its own four bytes.
    let end = 4 + answer.u32(0) as usize;
    let mut at = 4;
    while at + 8 <= end.min(answer.0.len()) {
        if answer.u16(at + 2) == own {
            let state = answer.u8(at) & 0x0F;
            // Active/optimized or active/non-optimized.
            return ensure(state <= 1, || format!("the group of this path, {own}, is in state {state:X}h"));
        }
        // A descriptor of a group has 8 bytes, followed by 4 bytes for each port.
        at += 8 + 4 * usize::from(answer.u8(at + 7));
    }
    Err(wrong(format!("the group of this path, {own}, is not among those that are reported")))
}

/// Returns the target port group of this port from page 83h.
fn own_group(page: &Answer) -> Option<u16> {
    let mut at = 4;
    while at + 4 <= page.0.len() {
        // ASSOCIATION 01b (target port) and DESIGNATOR TYPE 5h (target port group).
        if page.u8(at + 1) & 0x3F == 0x15 {
            return Some(page.u16(at + 6));
        }
        at += 4 + usize::from(page.u8(at + 3));
    }
    None
}

pub(super) fn reset(unit: &mut Unit) -> CheckResult {
    let cdb = [0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0];
    let answer = unit
        .ask("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", &cdb, 4)
        .map_err(|_| Finding::Untried("the target does not say which functions it supports".to_owned()))?;
    // LURS and ATS in the parameter data (SPC-4).
    ensure(answer.bit(0, 3), || "LOGICAL UNIT RESET is not supported".to_owned())?;
    ensure(answer.bit(0, 7), || "ABORT TASK is not supported".to_owned())
}

/// Service action REPORT CAPABILITIES.
const CAPABILITIES: u8 = 2;

pub(super) fn kind(unit: &mut Unit) -> CheckResult {
    let answer = unit.reservations(CAPABILITIES)?;
    ensure(answer.bit(3, 7), || "it does not say which types it supports (TMV is 0)".to_owned())?;
    // WR_EX_RO in the persistent reservation type mask (SPC-4).
    ensure(answer.bit(4, 5), || "it is not".to_owned())
}

pub(super) fn survive(unit: &mut Unit) -> CheckResult {
    let answer = unit.reservations(CAPABILITIES)?;
    ensure(answer.bit(2, 0), || "they cannot (PTPL_C is 0)".to_owned())
}

pub(super) fn free(unit: &mut Unit) -> CheckResult {
    let answer = unit.reservations(1)?;
    // READ RESERVATION has an ADDITIONAL LENGTH of zero if there is no reservation (SPC-4).
    ensure(answer.u32(4) == 0, || format!("it is reserved, with the type {:X}h", answer.u8(21) & 0x0F))
}

pub(super) fn unmap(unit: &mut Unit) -> CheckResult {
    let bytes = u64::from(unit.block_bytes()?);
    ensure(unit.capacity()?.bit(14, 7), || "blocks cannot be given back (LBPME is 0)".to_owned())?;
    ensure(unit.vital(0xB2)?.bit(5, 7), || "UNMAP is not supported (LBPU is 0)".to_owned())?;
    probes::unmap_of_nothing(unit)?;
    let limits = unit.vital(0xB0)?;
    // MAXIMUM UNMAP LBA COUNT, OPTIMAL UNMAP GRANULARITY and UNMAP GRANULARITY ALIGNMENT.
    let (most, granule, alignment) = (limits.u32(20), limits.u32(28), limits.u32(32));
    ensure(most > 0, || "page B0h lets UNMAP name no blocks".to_owned())?;
    ensure(granule > 0, || "page B0h tells no granularity".to_owned())?;
    ensure(u64::from(granule) * bytes <= MIB, || format!("its granules have {granule} blocks of {bytes} bytes"))?;
    // Bit 31 (UGAVALID) only says whether the alignment is valid.
    ensure(alignment & 0x7FFF_FFFF == 0, || format!("its granules begin at block {}", alignment & 0x7FFF_FFFF))
}

pub(super) fn zeros(unit: &mut Unit) -> CheckResult {
    ensure(unit.capacity()?.bit(14, 6), || "they do not say so (LBPRZ is 0)".to_owned())
}

pub(super) fn thresholds(unit: &mut Unit) -> CheckResult {
    ensure(unit.vital(0xB2)?.u8(4) > 0, || "page B2h has no threshold exponent".to_owned())
}
