//! VERIFY and WRITE AND VERIFY (SBC-4).

use super::Medium;
use crate::failure::Failure;
use crate::request::{Job, blocks_of};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{BlockDevice, Blocks, Extent, Rope};

pub(crate) async fn verify<D: BlockDevice>(medium: &Medium<D>, job: &Job) -> Result<Rope, Failure> {
    let request = &job.request;
    if request.extent.is_empty() {
        return Ok(Rope::new());
    }
    // GOOD states that all blocks are equal, so all data must have arrived.
    let data = job.whole_data()?;
    let stored = medium.read_blocks(request.extent).await?;
    // BYTCHK zero only checks that the blocks can be read.
    if request.byte_check() != 0 {
        compare(&stored, &data, request.extent, block_bytes(job))?;
    }
    Ok(Rope::new())
}

pub(crate) async fn write_and_verify<D: BlockDevice>(medium: &Medium<D>, job: &Job) -> Result<Rope, Failure> {
    let (request, geometry) = (&job.request, job.geometry);
    let data = blocks_of(job.data_out.clone(), job.data_out_expected, request.need.data_out, geometry)?;
    let extent = Extent { len: Blocks(data.len() as u64 / block_bytes(job)), ..request.extent };
    // Written with FUA, so that the medium and not a cache is verified.
    medium.write(extent.start, data.clone(), true).await?;
    if extent.is_empty() {
        return Ok(Rope::new());
    }
    let stored = medium.read_blocks(extent).await?;
    if request.byte_check() == 1 {
        compare(&stored, &data, extent, block_bytes(job))?;
    }
    Ok(Rope::new())
}

fn block_bytes(job: &Job) -> u64 {
    u64::from(job.geometry.block_bytes)
}

/// Compares the stored blocks with `data`, which repeats where it is shorter (BYTCHK 11b).
///
/// *Errors*: MISCOMPARE with the first block that differs.
fn compare(stored: &Rope, data: &[u8], extent: Extent, block_bytes: u64) -> Result<(), Failure> {
    assert_eq!(stored.len() as u64, extent.len.bytes(block_bytes as u32), "all blocks are compared");
    match first_difference(stored, data) {
        None => Ok(()),
        Some(byte) => {
            let miscompare = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY);
            Err(miscompare.with_information(extent.start.0 + byte as u64 / block_bytes).into())
        }
    }
}

/// Returns the offset of the first byte of `stored` that differs from `data`, repeated as needed.
pub(crate) fn first_difference(stored: &Rope, data: &[u8]) -> Option<usize> {
    assert!(!data.is_empty(), "blocks are compared with something");
    let mut at = 0;
    for part in stored.parts() {
        let mut rest: &[u8] = part;
        while !rest.is_empty() {
            // The data repeats where it is shorter than the stored blocks.
            let expected = &data[at % data.len()..];
            let len = rest.len().min(expected.len());
            let (here, behind) = rest.split_at(len);
            // Whole runs are compared first: one `memcmp`, and in nearly all cases no search by byte.
            if here != &expected[..len] {
                let within = here.iter().zip(expected).position(|(a, b)| a != b);
                return Some(at + within.expect("runs that differ differ somewhere"));
            }
            at += len;
            rest = behind;
        }
    }
    None
}

#[cfg(test)]
mod tests;
