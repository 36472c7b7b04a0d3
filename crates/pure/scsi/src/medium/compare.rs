//! COMPARE AND WRITE and ORWRITE (SBC-4): atomic read-modify-write commands.
//!
//! The task set runs them alone on their blocks, against every command of every nexus.

use super::Medium;
use super::verify::first_difference;
use crate::failure::Failure;
use crate::request::{Job, blocks_of};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::TaskGuard;
use block::{BlockDevice, Blocks, Extent, Rope};

/// Offset of NUMBER OF LOGICAL BLOCKS in the COMPARE AND WRITE CDB.
const BLOCKS_AT: u16 = 13;

pub(crate) async fn compare_and_write<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &TaskGuard<'_>,
) -> Result<Rope, Failure> {
    let extent = job.request.extent;
    // The data-out is two lists of equal length. Any other length contradicts the CDB.
    if job.data_out_expected != job.request.need.data_out {
        return Err(Sense::cdb_byte(BLOCKS_AT).into());
    }
    // A transfer of zero blocks is not an error (SBC-4).
    if extent.is_empty() {
        return Ok(Rope::new());
    }
    let data = job.whole_data()?;
    let half = data.len() / 2;
    assert_eq!(half as u64, extent.len.bytes(job.geometry.block_bytes), "each block comes twice");
    let stored = medium.read_blocks(extent).await?;
    if let Some(byte) = first_difference(&stored, &data[..half]) {
        let miscompare = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY);
        // INFORMATION is the offset of the first byte that differs (SBC-4 COMPARE AND WRITE).
        return Err(miscompare.with_information(byte as u64).into());
    }
    // The stored blocks are released before the write, which may take time.
    drop(stored);
    // The write must not follow an abort: another nexus may rely on the blocks already.
    ticket.check_live()?;
    medium.write(extent.start, data.slice(half..), true).await
}

pub(crate) async fn or_write<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &TaskGuard<'_>,
) -> Result<Rope, Failure> {
    let (request, geometry) = (&job.request, job.geometry);
    // A shorter data-out merges only the blocks that the initiator sends.
    let data = blocks_of(job.data_out.clone(), job.data_out_expected, request.need.data_out, geometry)?;
    let blocks = Blocks(data.len() as u64 / u64::from(geometry.block_bytes));
    let extent = Extent { len: blocks, ..request.extent };
    if extent.is_empty() {
        return Ok(Rope::new());
    }
    let mut merged = medium.read_blocks(extent).await?.to_buf();
    for (stored, new) in merged.iter_mut().zip(data.iter()) {
        *stored |= new;
    }
    // As above: no write after an abort.
    ticket.check_live()?;
    medium.write(extent.start, merged.freeze(), true).await
}

#[cfg(test)]
mod tests;
