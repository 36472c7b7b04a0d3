//! Ownership state of one member disk: its labels and all intact owner marks.
//!
//! Read before and after each mark is written, before each commit, and before disks of other pools are
//! overwritten. Nothing here writes except [`OwnershipState::clear_other_marks`].

use super::parse_any;
use crate::label::{Label, LabelError};
use crate::layout::{BLOCK_BYTES, HEAD_LABELS, OWNER_PLACES};
use block::{BlockDevice, Extent, IoError, Lba, Stable, View};
use cluster::{Claim, LastMark, last_mark};
use futures_util::future::join3;
use uuid::Uuid;

/// Reason why the pool was lost to another owner (fenced).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceReason {
    /// Later claim of the pool, or another claim with the same epoch.
    #[error("node {node} has claimed the pool")]
    Claimed {
        /// Name of the claiming node.
        node: String,
    },
    /// Owner mark of another pool on one of its disks.
    #[error("node {node} has claimed a disk of it for another pool")]
    OtherMark {
        /// UUID of the disk.
        disk: Uuid,
        /// Name of the other pool's node.
        node: String,
    },
    /// Label of another pool on one of its disks.
    #[error("a disk of it now has the label of pool \"{pool_name}\"")]
    OtherLabel {
        /// UUID of the disk.
        disk: Uuid,
        /// Name of the other pool.
        pool_name: String,
    },
    /// Last mark of the owner missing on all disks.
    #[error("the owner's mark is missing on all disks of it")]
    MarkMissing,
}

impl FenceReason {
    /// Returns the disk with the foreign mark or label, if one disk caused the loss.
    #[must_use]
    pub fn disk(&self) -> Option<Uuid> {
        match self {
            Self::OtherMark { disk, .. } | Self::OtherLabel { disk, .. } => Some(*disk),
            Self::Claimed { .. } | Self::MarkMissing => None,
        }
    }
}

/// Intact owner mark of any pool and disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// UUID of the claimed pool.
    pub pool: Uuid,
    /// UUID of the disk it was written for.
    pub disk: Uuid,
    /// Claim it makes.
    pub claim: Claim,
    pub(super) place: Lba,
}

/// Reads all intact marks on `disk`; the flag tells whether every place could be read.
///
/// *Errors*: the disk's, when no place can be read.
pub(crate) async fn all_marks<D: BlockDevice>(disk: &D) -> Result<(Vec<Mark>, bool), IoError> {
    let block_bytes = BLOCK_BYTES as usize;
    let parse = |first: u64, data: &[u8]| {
        let blocks = (first..).zip(data.chunks(block_bytes));
        blocks.filter_map(|(place, block)| parse_any(block, Lba(place))).collect::<Vec<_>>()
    };
    let start = OWNER_PLACES.start.0;
    let error = match disk.read(OWNER_PLACES).await {
        Ok(data) => return Ok((parse(start, &data.into_view()), true)),
        Err(error) => error,
    };
    // Places are read one by one after a failed read, so that one bad block hides only its own mark.
    let (mut marks, mut failed) = (Vec::new(), 0);
    for place in start..OWNER_PLACES.end().0 {
        match disk.read(Extent::new(place, 1)).await {
            Ok(data) => marks.extend(parse(place, &data.into_view())),
            Err(_) => failed += 1,
        }
    }
    if failed == OWNER_PLACES.len.0 { Err(error) } else { Ok((marks, failed == 0)) }
}

/// Ownership state of one member.
pub(crate) struct OwnershipState {
    /// Reason why the owner has lost the pool, according to this disk.
    pub(crate) fence_reason: Option<FenceReason>,
    /// Marks of the pool for this disk; an error when they cannot be read.
    pub(crate) marks: Result<Vec<Claim>, IoError>,
    /// True when every place of a mark could be read.
    is_whole: bool,
    others: Vec<Mark>,
}

impl OwnershipState {
    /// Reads the labels and marks of `disk`, member `id` of `pool`, for the owner `own`.
    ///
    /// Without `own`, marks of the pool are no loss. Only the labels at the head are read: making a disk a
    /// member of another pool writes one there.
    pub(crate) async fn read<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid, own: Option<&Claim>) -> Self {
        let label = async |block: u64| disk.read(Extent::new(block, 1)).await.ok().map(block::Rope::into_view);
        // One round trip: a heartbeat reads labels and marks of each disk twice.
        let (first, second, marks) = join3(label(HEAD_LABELS[0]), label(HEAD_LABELS[1]), all_marks(disk)).await;
        let other_label = [first, second].iter().flatten().find_map(|block| other_label(block, pool));
        let of_label = other_label.map(|pool_name| FenceReason::OtherLabel { disk: id, pool_name });
        let (found, is_whole, error) = match marks {
            Ok((found, is_whole)) => (found, is_whole, None),
            Err(error) => (Vec::new(), false, Some(error)),
        };
        let (ours, others): (Vec<Mark>, Vec<Mark>) = found.into_iter().partition(|mark| mark.pool == pool);
        // A mark for another disk of the pool was copied here by hand and says nothing about this disk.
        let ours: Vec<Claim> = ours.into_iter().filter(|mark| mark.disk == id).map(|mark| mark.claim).collect();
        // A mark of this pool means a takeover only to its owner; a claimant without a claim expects older marks.
        let later = own.and_then(|own| ours.iter().find(|mark| mark.has_taken_over(own)));
        let of_claim = later.map(|mark| FenceReason::Claimed { node: mark.name.clone() });
        let of_other = others.first().map(|mark| FenceReason::OtherMark { disk: id, node: mark.claim.name.clone() });
        // A later claim of the pool is the most specific reason.
        let loss = of_claim.or(of_label).or(of_other);
        Self { fence_reason: loss, marks: error.map_or(Ok(ours), Err), is_whole, others }
    }

    /// Tells whether the last mark of the claim `own`, with beat `written`, is present.
    pub(crate) fn last_mark(&self, own: &Claim, written: Option<u64>) -> LastMark {
        last_mark(own, written, self.marks.as_deref().ok(), self.is_whole)
    }

    /// True when the last mark that the disk took, with beat `written`, is missing or damaged.
    pub(crate) fn lacks_mark(&self, own: &Claim, written: Option<u64>) -> bool {
        let (Some(written), Ok(marks)) = (written, &self.marks) else { return false };
        !marks.iter().any(|mark| mark.is_same_claim(own) && mark.beat == written)
    }

    /// True when the disk has the label of another pool.
    pub(crate) fn has_other_label(&self) -> bool {
        matches!(self.fence_reason, Some(FenceReason::OtherLabel { .. }))
    }

    /// Returns the newest mark of another pool.
    pub(crate) fn newest_other(&self) -> Option<&Claim> {
        self.others.iter().map(|mark| &mark.claim).max_by_key(|owner| owner.age())
    }

    /// Zeroes the marks of other pools on `disk`, which their owners, and this node, would otherwise take for
    /// signs of life.
    pub(crate) async fn clear_other_marks<D: BlockDevice>(&self, disk: &D) -> Result<(), IoError> {
        for mark in &self.others {
            let written = disk.write(mark.place, View::zeroed(BLOCK_BYTES as usize)).await?;
            let _: Stable = disk.flush(written).await?;
        }
        Ok(())
    }
}

/// Returns the pool name in the label in `block`, where it is a pool other than `pool`.
fn other_label(block: &[u8], pool: Uuid) -> Option<String> {
    match Label::parse(block) {
        Ok(label) if label.pool != pool => Some(label.pool_name),
        // A label of a newer format does not give its name, only its pool UUID.
        Err(LabelError::Newer { pool: other, .. }) if other != pool => Some(other.to_string()),
        _ => None,
    }
}
