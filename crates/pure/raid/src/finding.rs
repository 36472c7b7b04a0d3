//! Findings: damage that a protected array detects on its members and reports to its owner.

use block::{Extent, Lba};

/// Damage detected on a member, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Number of the member.
    pub member: u16,
    /// Blocks of its data area; for a page, the blocks whose entries it holds.
    pub extent: Extent,
    /// Kind of damage.
    pub kind: FindingKind,
    /// Outcome for the content.
    pub outcome: Outcome,
    /// Block of the array that is lost, where `outcome` says so and the extent is one block of data.
    pub lost: Option<Lba>,
}

impl Finding {
    /// Creates a finding without a lost block of the array.
    pub(crate) fn new(member: u16, extent: Extent, kind: FindingKind, outcome: Outcome) -> Self {
        Self { member, extent, kind, outcome, lost: None }
    }

    /// Adds the block of the array that this block of the member held; kept only if the outcome is `Lost`.
    pub(crate) fn of_lost(self, lba: Option<Lba>) -> Self {
        Self { lost: lba.filter(|_| self.outcome == Outcome::Lost), ..self }
    }
}

/// Kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Content differs from what was written last: decayed, torn, misdirected, lost or stale.
    Mismatch,
    /// The device could not read the blocks.
    Unreadable,
    /// The blocks have no known checksum, because both copies of their page were gone.
    Unknown,
    /// A copy of a checksum page was damaged, or was another page.
    PageDamaged,
    /// A copy of a checksum page was older than the other: its last write was lost.
    PageStale,
    /// The anchors of a member were missing, damaged or old; the extent is the first block.
    Anchor,
    /// A copy of a log batch was damaged; the extent is the batch in the ring.
    Log,
    /// All blocks of a stripe matched their checksums, but its parity or mirrors were inconsistent.
    Parity,
}

/// Outcome of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Repaired.
    Healed,
    /// Served from redundancy; the blocks on the member were not changed.
    Served,
    /// Lost: the content cannot be restored, and reads are a medium error until it is rewritten.
    Lost,
}
