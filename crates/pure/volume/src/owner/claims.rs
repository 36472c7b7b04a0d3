//! Claims of other pools on disks that an operator wants to overwrite: `--force` must not take a disk from a
//! live node.

use super::ownership_state::{Mark, all_marks};
use block::BlockDevice;
use cluster::{Claim, Node};
use uuid::Uuid;

/// Newest mark of each pool on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Vec<Mark>);

impl Claims {
    /// Reads the marks on `disk` of all pools except `own`, which the caller owns. Writes nothing.
    ///
    /// A disk whose marks cannot be read has none: the caller's own I/O reports the error.
    pub async fn on<D: BlockDevice>(disk: &D, own: Option<Uuid>) -> Self {
        let marks = all_marks(disk).await.map_or(Vec::new(), |(marks, _)| marks);
        let marks = marks.into_iter().filter(|mark| Some(mark.pool) != own);
        let mut newest: Vec<Mark> = Vec::new();
        for mark in marks {
            match newest.iter_mut().find(|known| known.is_same_disk(&mark)) {
                // Of several marks of one pool only the newest tells about its owner.
                Some(known) if known.claim.age() < mark.claim.age() => *known = mark,
                Some(_) => {}
                None => newest.push(mark),
            }
        }
        Self(newest)
    }

    /// Removes the marks of earlier daemons of `node` itself: with the same seat, their writer is known to have
    /// ended.
    #[must_use]
    pub fn without(mut self, node: &Node) -> Self {
        self.0.retain(|mark| !mark.claim.is_by_ended_self(node));
        self
    }

    /// Returns the last owner of `pool`, by the newest mark.
    #[must_use]
    pub fn owner_of(&self, pool: Uuid) -> Option<&Claim> {
        let marks = self.0.iter().filter(|mark| mark.pool == pool).map(|mark| &mark.claim);
        marks.max_by_key(|claim| claim.age())
    }

    /// True when the marks must be read again after [`WATCH`](cluster::WATCH) to tell whether a node uses one
    /// of the disks.
    #[must_use]
    pub fn must_be_watched(&self) -> bool {
        // A released mark is the last one of an owner that has closed its pool.
        self.0.iter().any(|mark| !mark.claim.released)
    }

    /// Returns a mark that was written between the read of `earlier` and this one.
    #[must_use]
    pub fn moved_since(&self, earlier: &Self) -> Option<&Mark> {
        self.0.iter().filter(|mark| !mark.claim.released).find(|mark| {
            let known = earlier.0.iter().find(|known| known.is_same_disk(mark));
            // A mark of a pool that was not there before counts as moved.
            mark.claim.moved_since(known.map(|known| &known.claim), None)
        })
    }
}

impl Mark {
    /// True when both marks are of the same pool and disk.
    fn is_same_disk(&self, other: &Self) -> bool {
        (self.pool, self.disk) == (other.pool, other.disk)
    }
}
