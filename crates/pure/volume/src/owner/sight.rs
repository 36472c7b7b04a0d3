//! What a member disk says about the ownership of its pool: its labels and all whole owner's marks.
//!
//! Read before and after each mark is written, before each commit, and before disks of others are overwritten. Nothing here
//! writes but [`Sight::clear_other_marks`].

use super::parse_any;
use crate::label::{Label, NoLabel};
use crate::layout::{BLOCK_BYTES, HEAD_LABELS, OWNER_PLACES};
use block::{BlockDevice, Extent, IoError, Lba, Stable, View};
use cluster::{Claim, LastMark, last_mark};
use futures_util::future::join3;
use uuid::Uuid;

/// Why a pool is not its owner's any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// A later claim of the pool, or another one with the same number.
    #[error("node {node} has claimed the pool")]
    Claimed {
        /// What that node is called.
        node: String,
    },
    /// A disk has the owner's mark of another pool.
    #[error("node {node} has claimed a disk of it for another pool")]
    OtherMark {
        /// Which disk.
        disk: Uuid,
        /// What the other node is called.
        node: String,
    },
    /// A disk has the label of another pool.
    #[error("a disk of it now has the label of pool \"{pool_name}\"")]
    OtherLabel {
        /// Which disk.
        disk: Uuid,
        /// What the other pool is called.
        pool_name: String,
    },
    /// The last mark of the owner is on no disk any more.
    #[error("the owner's mark is missing on all disks of it")]
    MarkMissing,
}

impl Loss {
    /// The disk that shows it, where it is one.
    #[must_use]
    pub fn disk(&self) -> Option<Uuid> {
        match self {
            Self::OtherMark { disk, .. } | Self::OtherLabel { disk, .. } => Some(*disk),
            Self::Claimed { .. } | Self::MarkMissing => None,
        }
    }
}

/// A whole mark, whichever pool and disk it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which pool it claims.
    pub pool: Uuid,
    /// Which disk it was written for.
    pub disk: Uuid,
    /// Who claims it.
    pub claim: Claim,
    pub(super) place: Lba,
}

/// All whole marks on `disk`, and whether every place could be read.
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
    // One place that cannot be read is what there are others for.
    let (mut marks, mut failed) = (Vec::new(), 0);
    for place in start..OWNER_PLACES.end().0 {
        match disk.read(Extent::new(place, 1)).await {
            Ok(data) => marks.extend(parse(place, &data.into_view())),
            Err(_) => failed += 1,
        }
    }
    if failed == OWNER_PLACES.len.0 { Err(error) } else { Ok((marks, failed == 0)) }
}

/// What one member says.
pub(crate) struct Sight {
    /// Why the pool is not the owner's any more, by this disk.
    pub(crate) loss: Option<Loss>,
    /// The marks of the pool for this disk; none when they cannot be read.
    pub(crate) marks: Result<Vec<Claim>, IoError>,
    /// True when every place of a mark could be read.
    is_whole: bool,
    others: Vec<Mark>,
}

impl Sight {
    /// What `disk`, the member `id` of `pool`, says to the owner `own`; without one, marks of the pool are no loss.
    ///
    /// Labels are read at the head alone: who makes a disk a member of another pool writes one there.
    pub(crate) async fn of<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid, own: Option<&Claim>) -> Self {
        let label = async |block: u64| disk.read(Extent::new(block, 1)).await.ok().map(block::Rope::into_view);
        let (first, second, marks) = join3(label(HEAD_LABELS[0]), label(HEAD_LABELS[1]), all_marks(disk)).await;
        let other_label = [first, second].iter().flatten().find_map(|block| other_label(block, pool));
        let of_label = other_label.map(|pool_name| Loss::OtherLabel { disk: id, pool_name });
        let (found, is_whole, error) = match marks {
            Ok((found, is_whole)) => (found, is_whole, None),
            Err(error) => (Vec::new(), false, Some(error)),
        };
        let (ours, others): (Vec<Mark>, Vec<Mark>) = found.into_iter().partition(|mark| mark.pool == pool);
        // A mark for another disk of the pool is a copy that somebody made, and says nothing of this one.
        let ours: Vec<Claim> = ours.into_iter().filter(|mark| mark.disk == id).map(|mark| mark.claim).collect();
        let later = own.and_then(|own| ours.iter().find(|mark| mark.has_taken_over(own)));
        let of_claim = later.map(|mark| Loss::Claimed { node: mark.name.clone() });
        let of_other = others.first().map(|mark| Loss::OtherMark { disk: id, node: mark.claim.name.clone() });
        let loss = of_claim.or(of_label).or(of_other);
        Self { loss, marks: error.map_or(Ok(ours), Err), is_whole, others }
    }

    /// Whether the last mark of the claim `own` is there, which `written` is the beat of.
    pub(crate) fn last_mark(&self, own: &Claim, written: Option<u64>) -> LastMark {
        last_mark(own, written, self.marks.as_deref().ok(), self.is_whole)
    }

    /// True when the mark with the beat `written`, the last one that the disk has taken, is not there or not whole any more.
    pub(crate) fn lacks_mark(&self, own: &Claim, written: Option<u64>) -> bool {
        let (Some(written), Ok(marks)) = (written, &self.marks) else { return false };
        !marks.iter().any(|mark| mark.is_same_claim(own) && mark.beat == written)
    }

    /// True when the disk has the label of another pool.
    pub(crate) fn has_other_label(&self) -> bool {
        matches!(self.loss, Some(Loss::OtherLabel { .. }))
    }

    /// The newest mark of another pool.
    pub(crate) fn newest_other(&self) -> Option<&Claim> {
        self.others.iter().map(|mark| &mark.claim).max_by_key(|owner| owner.age())
    }

    /// The marks of other pools are not on `disk` any more: their owners would take them for signs of life, and so would we.
    pub(crate) async fn clear_other_marks<D: BlockDevice>(&self, disk: &D) -> Result<(), IoError> {
        for mark in &self.others {
            let written = disk.write(mark.place, View::zeroed(BLOCK_BYTES as usize)).await?;
            let _: Stable = disk.flush(written).await?;
        }
        Ok(())
    }
}

/// What the pool is called that the label in `block` names, when it is another than `pool`.
fn other_label(block: &[u8], pool: Uuid) -> Option<String> {
    match Label::parse(block) {
        Ok(label) if label.pool != pool => Some(label.pool_name),
        Err(NoLabel::Newer { pool: other, .. }) if other != pool => Some(other.to_string()),
        _ => None,
    }
}
