//! UNMAP (SBC-4): parses the parameter list and discards its extents.
#![warn(clippy::arithmetic_side_effects)]

use super::Medium;
use crate::failure::Failure;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use crate::shape::{UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX};
use crate::task_set::TaskGuard;
use block::{BlockDevice, Extent, Geometry, Rope, Written};

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;
/// Offset of UNMAP BLOCK DESCRIPTOR DATA LENGTH in the header.
const LENGTH_AT: u16 = 2;

/// Executes UNMAP. All descriptors are validated before the first one is carried out.
pub(crate) async fn unmap<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &TaskGuard<'_>,
) -> Result<Rope, Failure> {
    let list = job.whole_data()?;
    if list.is_empty() {
        return Ok(Rope::new());
    }
    // Validated as a whole, so that an invalid descriptor has no effect on the others.
    let extents = extents_of(&list, job.geometry)?;
    let mut all: Option<Written> = None;
    for extent in extents {
        ticket.check_live()?;
        // Where freeing would take space, the blocks stay mapped; UNMAP is a request without guarantee.
        let Some(written) = medium.unmap(extent).await? else { continue };
        all = Some(match all {
            None => written,
            Some(earlier) => written.and(earlier),
        });
    }
    // One flush for all extents.
    if let Some(written) = all {
        medium.make_stable(written).await?;
    }
    Ok(Rope::new())
}

/// Parses the parameter list; the resulting extents are not empty and within the capacity.
fn extents_of(list: &[u8], geometry: Geometry) -> Result<Vec<Extent>, Sense> {
    let too_short = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let (header, rest) = list.split_at_checked(HEADER_BYTES).ok_or(too_short)?;
    let length = number(header.get(usize::from(LENGTH_AT)..4).ok_or(too_short)?);
    let length = usize::try_from(length).map_err(|_| too_short)?;
    // Bytes behind the last whole descriptor are ignored (SBC-4).
    let (descriptors, _) = rest.get(..length).ok_or(too_short)?.as_chunks::<DESCRIPTOR_BYTES>();
    // Limits of the Block Limits VPD page.
    if descriptors.len() > UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Sense::parameter(LENGTH_AT, None));
    }
    let mut extents = Vec::with_capacity(descriptors.len());
    let mut total = 0_u64;
    for (nth, descriptor) in descriptors.iter().enumerate() {
        let (lba, count) = descriptor.split_at(8);
        let (lba, blocks) = (number(lba), number(count.get(..4).unwrap_or_default()));
        let out_of_range = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE);
        // Zero blocks at the end of the medium are valid, as for any command of zero blocks.
        if geometry.blocks.0.checked_sub(lba).is_none_or(|behind| blocks > behind) {
            return Err(out_of_range);
        }
        total = total.saturating_add(blocks);
        if total > u64::from(UNMAP_BLOCKS_MAX) {
            let at = nth.saturating_mul(DESCRIPTOR_BYTES).saturating_add(HEADER_BYTES + 8);
            return Err(Sense::parameter(u16::try_from(at).unwrap_or(u16::MAX), None));
        }
        if blocks > 0 {
            extents.push(Extent::checked(lba, blocks).ok_or(out_of_range)?);
        }
    }
    assert!(extents.iter().all(|&extent| geometry.all().contains(extent)), "what is unmapped is on the unit");
    Ok(extents)
}

/// Reads up to eight bytes as a big-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
