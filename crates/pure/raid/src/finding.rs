//! What a protected array finds wrong on its members, told to its owner.

use block::{Extent, Lba};

/// Something was not as it should be on a member, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// On which member.
    pub member: u16,
    /// Which blocks of its data area; for a page, the blocks whose entries it holds.
    pub extent: Extent,
    /// What was wrong.
    pub kind: FindingKind,
    /// What came of it.
    pub outcome: Outcome,
    /// Which block of the array is lost, where `outcome` says that and the extent is one block of data.
    pub lost: Option<Lba>,
}

impl Finding {
    /// Something was wrong, and no block of the array is lost with it.
    pub(crate) fn new(member: u16, extent: Extent, kind: FindingKind, outcome: Outcome) -> Self {
        Self { member, extent, kind, outcome, lost: None }
    }

    /// The same, of one block that `lba` of the array was on.
    pub(crate) fn of_lost(self, lba: Option<Lba>) -> Self {
        Self { lost: lba.filter(|_| self.outcome == Outcome::Lost), ..self }
    }
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The device returned other bytes than were written last: rotten, torn, misdirected, lost or stale.
    Mismatch,
    /// The device could not read the blocks.
    Unreadable,
    /// Nothing was known of the blocks, for both copies of their page were gone.
    Unknown,
    /// A copy of a page of sums was not whole, or another.
    PageDamaged,
    /// A copy of a page of sums was older than the other: its last write was lost.
    PageStale,
    /// Where the log begins was not said, or something old; the extent is that of the first block.
    Anchor,
    /// A copy of a batch of the log was damaged; the extent is the batch in the ring.
    Log,
    /// All blocks of a stripe were as written, and yet its parity was not that of its data.
    Parity,
}

/// What came of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was put right.
    Healed,
    /// The content was served from redundancy; the blocks are as they were.
    Served,
    /// Nobody can give the content back: a medium error until it is written.
    Lost,
}
