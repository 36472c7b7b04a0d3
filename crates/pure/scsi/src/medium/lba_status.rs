//! GET LBA STATUS (16) (SBC-4 GET LBA STATUS): which blocks have a place.

use super::Medium;
use crate::failure::Failure;
use crate::identity::Provisioning;
use crate::reply::Reply;
use crate::request::Job;
use crate::task_set::Ticket;
use block::{BlockDevice, Extent, Rope, Run};

const HEADER_BYTES: u64 = 8;
const DESCRIPTOR_BYTES: u64 = 16;
/// The most descriptors in one answer: whoever wants to know more asks again from where it ends.
const DESCRIPTORS_MAX: usize = 256;
/// How many runs beyond one for each descriptor a command walks to make its descriptors long.
const RUNS_TO_MERGE_MAX: usize = 64;

/// PROVISIONING STATUS: SBC-3 has one value for "mapped" and "not known".
const MAPPED: u8 = 0;
const DEALLOCATED: u8 = 1;

/// The answer begins at the block that was asked for, has no gaps and, however short the
/// allocation length, holds at least one descriptor before it is cut.
pub(crate) async fn lba_status<D: BlockDevice>(
    medium: &Medium<D>,
    job: &Job,
    ticket: &Ticket<'_>,
) -> Result<Rope, Failure> {
    let allocation = job.request.need.data_in;
    let fit = allocation.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
    let wanted = usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, DESCRIPTORS_MAX);
    let runs = if medium.provisioning() == Provisioning::Thin {
        runs_from(medium, job.request.extent, wanted, ticket).await?
    } else {
        // Nothing is ever deallocated where every block always has its space.
        vec![Run { extent: job.request.extent, mapped: true }]
    };
    Ok(emit(&runs, wanted).cut(allocation))
}

/// The first runs of `rest`, each as long as it can be told: at most `wanted`, at least one.
async fn runs_from<D: BlockDevice>(
    medium: &Medium<D>,
    mut rest: Extent,
    wanted: usize,
    ticket: &Ticket<'_>,
) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    for _ in 0..wanted.saturating_add(RUNS_TO_MERGE_MAX) {
        if rest.is_empty() {
            break;
        }
        ticket.check_live()?;
        let run = medium.run(rest).await?;
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

/// `first` and `second`, which begins where it ends.
fn joined(first: Extent, second: Extent) -> Extent {
    assert_eq!(first.end(), second.start, "runs have no gap between them");
    Extent { len: second.end() - first.start, ..first }
}

/// What of `rest` lies behind `extent`, with which it begins.
fn behind(rest: Extent, extent: Extent) -> Extent {
    assert!(rest.start == extent.start && extent.end() <= rest.end(), "a run is taken from the front");
    Extent { start: extent.end(), len: rest.end() - extent.end() }
}

fn emit(runs: &[Run], wanted: usize) -> Reply {
    let mut list = Reply::new();
    // A descriptor counts its blocks in 32 bits; a longer run takes several.
    for (mut rest, mapped) in runs.iter().map(|run| (run.extent, run.mapped)) {
        while !rest.is_empty() && list.len() / (DESCRIPTOR_BYTES as usize) < wanted {
            let count = u32::try_from(rest.len.0).unwrap_or(u32::MAX);
            let status = if mapped { MAPPED } else { DEALLOCATED };
            list.u64(rest.start.0).u32(count).u8(status).bytes(&[0; 3]);
            rest = behind(rest, Extent { len: block::Blocks(u64::from(count)), ..rest });
        }
    }
    let follow = list.len().saturating_add(4);
    let mut reply = Reply::new();
    reply.u32(u32::try_from(follow).expect("an answer has few descriptors")).u32(0).bytes(list.as_bytes());
    reply
}

#[cfg(test)]
mod tests;
