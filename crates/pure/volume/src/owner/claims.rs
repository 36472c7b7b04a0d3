//! Claims of other pools on disks that an operator wants to overwrite: `--force` must not take what a living node writes to.

use super::sight::{Mark, all_marks};
use block::BlockDevice;
use cluster::{Claim, Node};
use uuid::Uuid;

/// The newest mark of every pool on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Vec<Mark>);

impl Claims {
    /// What is on `disk` now, of all pools but `own`, which the caller holds. Nothing is written.
    ///
    /// A disk whose marks cannot be read says nothing: the caller finds out what else cannot be done with it.
    pub async fn on<D: BlockDevice>(disk: &D, own: Option<Uuid>) -> Self {
        let marks = all_marks(disk).await.map_or(Vec::new(), |(marks, _)| marks);
        let marks = marks.into_iter().filter(|mark| Some(mark.pool) != own);
        let mut newest: Vec<Mark> = Vec::new();
        for mark in marks {
            match newest.iter_mut().find(|known| known.is_beside(&mark)) {
                Some(known) if known.claim.age() < mark.claim.age() => *known = mark,
                Some(_) => {}
                None => newest.push(mark),
            }
        }
        Self(newest)
    }

    /// The same without those of `node` itself: who wrote them has ended, for it sits where that one sat.
    #[must_use]
    pub fn without(mut self, node: &Node) -> Self {
        self.0.retain(|mark| !mark.claim.is_of_our_past(node));
        self
    }

    /// Who has, or had, this pool last.
    #[must_use]
    pub fn owner_of(&self, pool: Uuid) -> Option<&Claim> {
        let marks = self.0.iter().filter(|mark| mark.pool == pool).map(|mark| &mark.claim);
        marks.max_by_key(|claim| claim.age())
    }

    /// True when only a second look, [`WATCH`](cluster::WATCH) later, tells whether a node uses one of the disks.
    #[must_use]
    pub fn must_be_watched(&self) -> bool {
        self.0.iter().any(|mark| !mark.claim.released)
    }

    /// A mark that was written between the look that found `earlier` and this one.
    #[must_use]
    pub fn moved_since(&self, earlier: &Self) -> Option<&Mark> {
        self.0.iter().filter(|mark| !mark.claim.released).find(|mark| {
            let known = earlier.0.iter().find(|known| known.is_beside(mark));
            mark.claim.is_life_after(known.map(|known| &known.claim), None)
        })
    }
}

impl Mark {
    /// True when both are of the same pool on the same disk.
    fn is_beside(&self, other: &Self) -> bool {
        (self.pool, self.disk) == (other.pool, other.disk)
    }
}
