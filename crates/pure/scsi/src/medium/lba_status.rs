//! GET LBA STATUS (16) (SBC-4): provisioning state of ranges of blocks.

use super::Medium;
use crate::failure::Failure;
use crate::identity::Provisioning;
use crate::reply::Reply;
use crate::request::Job;
use crate::task_set::TaskGuard;
use block::{BlockDevice, Extent, Rope, Run};

const HEADER_BYTES: u64 = 8;
const DESCRIPTOR_BYTES: u64 = 16;
/// Maximum number of descriptors in one response; the initiator continues behind the last one.
const DESCRIPTORS_MAX: usize = 256;
/// Number of runs, beyond one per descriptor, that a command reads in order to merge adjacent ones.
const RUNS_TO_MERGE_MAX: usize = 64;

/// PROVISIONING STATUS: SBC-3 has one value for "mapped" and "unknown".
const MAPPED: u8 = 0;
const DEALLOCATED: u8 = 1;

/// Executes GET LBA STATUS. The descriptors begin at the requested block, have no gaps, and number at least one before
/// the response is truncated to the allocation length.
pub(crate) async fn lba_status<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &TaskGuard<'_>,
) -> Result<Rope, Failure> {
    let allocation = job.request.need.data_in;
    let fit = allocation.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
    // At least one descriptor, even if the allocation length truncates it.
    let wanted = usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, DESCRIPTORS_MAX);
    let runs = if medium.provisioning() == Provisioning::Thin {
        runs_from(medium, job.request.extent, wanted, ticket).await?
    } else {
        // Nothing is ever deallocated on a fully or resource provisioned unit, and its device is not queried.
        vec![Run { extent: job.request.extent, mapped: true }]
    };
    Ok(emit(&runs, wanted).cut(allocation))
}

/// Returns the first runs of `rest`, adjacent ones of equal state merged: at most `wanted`, at least one.
async fn runs_from<D: BlockDevice>(
    medium: &Medium<D>,
    mut rest: Extent,
    wanted: usize,
    ticket: &TaskGuard<'_>,
) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    // Bounded, so that a fragmented volume cannot occupy the shard with one command.
    for _ in 0..wanted.saturating_add(RUNS_TO_MERGE_MAX) {
        if rest.is_empty() {
            break;
        }
        ticket.check_live()?;
        let run = medium.run(rest).await?;
        // With the last descriptor complete, only runs that extend it are still of interest.
        let full = runs.len() == wanted;
        match runs.last_mut() {
            Some(last) if last.mapped == run.mapped => last.extent = joined(last.extent, run.extent),
            _ if full => break,
            _ => runs.push(run),
        }
        rest = behind(rest, run.extent);
    }
    Ok(runs)
}

/// Merges two adjacent extents.
fn joined(first: Extent, second: Extent) -> Extent {
    assert_eq!(first.end(), second.start, "runs have no gap between them");
    Extent { len: second.end() - first.start, ..first }
}

/// Returns the part of `rest` behind its leading `extent`.
fn behind(rest: Extent, extent: Extent) -> Extent {
    assert!(rest.start == extent.start && extent.end() <= rest.end(), "a run is taken from the front");
    Extent { start: extent.end(), len: rest.end() - extent.end() }
}

fn emit(runs: &[Run], wanted: usize) -> Reply {
    let mut list = Reply::new();
    // NUMBER OF LOGICAL BLOCKS has 32 bits; a longer run takes several descriptors.
    for (mut rest, mapped) in runs.iter().map(|run| (run.extent, run.mapped)) {
        while !rest.is_empty() && list.len() / (DESCRIPTOR_BYTES as usize) < wanted {
            let count = u32::try_from(rest.len.0).unwrap_or(u32::MAX);
            let status = if mapped { MAPPED } else { DEALLOCATED };
            list.u64(rest.start.0).u32(count).u8(status).bytes(&[0; 3]);
            rest = behind(rest, Extent { len: block::Blocks(u64::from(count)), ..rest });
        }
    }
    // PARAMETER DATA LENGTH counts the four reserved bytes behind itself as well.
    let follow = list.len().saturating_add(4);
    let mut reply = Reply::new();
    reply.u32(u32::try_from(follow).expect("an answer has few descriptors")).u32(0).bytes(list.as_bytes());
    reply
}

#[cfg(test)]
mod tests;
