//! WRITE SAME (10) and (16) (SBC-4): writes one block repeatedly.

use super::Medium;
use crate::failure::Failure;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use crate::task_set::TaskGuard;
use block::{BlockDevice, Blocks, Buf, Extent, Rope, View};

/// Bytes written at a time; an abort is noticed between two pieces.
const PIECE_BYTES: u64 = 1 << 20;

pub(crate) async fn write_same<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &TaskGuard<'_>,
) -> Result<Rope, Failure> {
    let (request, geometry) = (&job.request, job.geometry);
    let extent = request.extent;
    let pattern = if request.has_no_data_out() {
        View::zeroed(geometry.block_bytes as usize)
    } else if job.data_out_expected == request.need.data_out {
        job.whole_data()?
    } else {
        // The data-out is exactly one block, neither a part of it nor several.
        return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT).into());
    };
    if extent.is_empty() {
        return Ok(Rope::new());
    }
    // UNMAP may be honored only where unmapped blocks read as the data that would have been written (SBC-4).
    let zeros = pattern.iter().all(|&byte| byte == 0);
    if request.unmaps() && zeros && medium.reads_zeros_where_unmapped(geometry) {
        let written = medium.discard(extent).await?;
        medium.make_stable(written).await?;
    } else {
        write_repeated(medium, job, ticket, extent, &pattern).await?;
    }
    Ok(Rope::new())
}

async fn write_repeated<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &TaskGuard<'_>,
    extent: Extent,
    pattern: &View,
) -> Result<(), Failure> {
    let block_bytes = u64::from(job.geometry.block_bytes);
    let piece_blocks = (PIECE_BYTES / block_bytes).min(extent.len.0);
    assert!(piece_blocks > 0, "there is something to write");
    // Built once, because all pieces have the same content.
    let piece = repeated(pattern, piece_blocks);
    let mut all = None;
    let mut rest = extent;
    while !rest.is_empty() {
        ticket.check_live()?;
        let here = rest.len.0.min(piece_blocks);
        // A piece fits into memory, so its length fits `usize`.
        let data = piece.slice(..(here * block_bytes) as usize);
        let written = medium.write_blocks(rest.start, data).await?;
        all = Some(match all {
            None => written,
            Some(earlier) => written.and(earlier),
        });
        rest = Extent { start: rest.start + Blocks(here), len: rest.len - Blocks(here) };
    }
    // One flush for all pieces.
    if let Some(written) = all {
        medium.make_stable(written).await?;
    }
    Ok(())
}

/// Returns `pattern`, repeated `times` times.
pub(crate) fn repeated(pattern: &[u8], times: u64) -> View {
    assert!(!pattern.is_empty(), "a block has bytes");
    // Every byte of the recycled buffer is overwritten.
    let mut piece = Buf::recycled(pattern.len() * times as usize);
    for block in piece.chunks_exact_mut(pattern.len()) {
        block.copy_from_slice(pattern);
    }
    piece.freeze()
}

#[cfg(test)]
mod tests;
