//! How part of a stripe is written: pure choice of what must be read first.
//!
//! Every plan writes the touched columns and the parities that are there; plans differ in what they
//! read. The fewest member reads win; of equal ones the plan that trusts data rather than old parity.

use crate::geometry::{Band, Role, Rows};
use smallvec::{SmallVec, smallvec};

/// A way to keep parity right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Every column is written over all rows: parity comes from what is written, nothing is read.
    FullStripe,
    /// What is not written is read, and parity computed anew.
    Reconstruct,
    /// What is overwritten and its parity are read, and parity changed by the difference.
    ReadModifyWrite,
    /// All that can be read is read, what is lost computed from it, and parity computed anew.
    Restore,
    /// No parity is left to keep: the data is written and nothing read.
    Unprotected,
}

/// Each kind, in the order of its number.
pub const KINDS: [Kind; 5] =
    [Kind::FullStripe, Kind::Reconstruct, Kind::ReadModifyWrite, Kind::Restore, Kind::Unprotected];

/// What can be done with one parity of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// Its member is lost, or the level does not have it.
    Absent,
    /// Its old content cannot be read; it is written.
    WriteOnly,
    /// It is read and written.
    Readable,
}

/// What can be read of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// How many data columns there are.
    pub columns: u16,
    /// The columns whose old content cannot be read, as bits.
    pub lost: u64,
    /// The first parity.
    pub p: Parity,
    /// The second parity.
    pub q: Parity,
}

/// One member read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Whose chunk.
    pub role: Role,
    /// Which rows of it.
    pub rows: Rows,
}

/// What is read before a band is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How parity is kept.
    pub kind: Kind,
    /// The member reads.
    pub reads: Reads,
}

/// Member reads of one stripe.
pub type Reads = SmallVec<[Read; 8]>;

impl Sight {
    /// True when the old content of `column` can be read.
    #[must_use]
    pub fn sees(&self, column: u16) -> bool {
        self.lost & (1 << column) == 0
    }

    fn parities(&self) -> impl Iterator<Item = (Role, Parity)> + use<> {
        [(Role::P, self.p), (Role::Q, self.q)].into_iter().filter(|&(_, parity)| parity != Parity::Absent)
    }
}

impl Plan {
    fn cost(&self) -> (usize, u64) {
        (self.reads.len(), self.reads.iter().map(|read| read.rows.len()).sum())
    }
}

/// The cheapest way to write `band`, or `None` when what is lost leaves no way.
#[must_use]
pub fn choose(band: &Band, sight: &Sight) -> Option<Plan> {
    if sight.parities().next().is_none() {
        return Some(Plan { kind: Kind::Unprotected, reads: Reads::new() });
    }
    let reconstruct = reconstruct(band, sight);
    if let Some(Plan { kind: Kind::FullStripe, .. }) = reconstruct {
        return reconstruct;
    }
    let restore = || restore(sight, band.rows).map(|reads| Plan { kind: Kind::Restore, reads });
    // `min_by_key` keeps the first of equal ones: data is trusted rather than parity.
    let cheapest = [reconstruct, read_modify_write(band, sight)].into_iter().flatten().min_by_key(Plan::cost);
    cheapest.or_else(restore)
}

/// The reads from which every data column of `rows` can be had, computing those that are lost.
#[must_use]
pub fn restore(sight: &Sight, rows: Rows) -> Option<Reads> {
    let mut reads: Reads =
        (0..sight.columns).filter(|&column| sight.sees(column)).map(|column| data(column, rows)).collect();
    let lost = usize::from(sight.columns) - reads.len();
    let readable = sight.parities().filter(|&(_, parity)| parity == Parity::Readable);
    reads.extend(readable.take(lost).map(|(role, _)| Read { role, rows }));
    (reads.len() == usize::from(sight.columns)).then_some(reads)
}

fn reconstruct(band: &Band, sight: &Sight) -> Option<Plan> {
    let mut reads = Reads::new();
    for column in 0..sight.columns {
        let rest = untouched(band, column);
        if !rest.is_empty() && !sight.sees(column) {
            return None;
        }
        reads.extend(rest.into_iter().map(|rows| data(column, rows)));
    }
    let kind = if reads.is_empty() { Kind::FullStripe } else { Kind::Reconstruct };
    Some(Plan { kind, reads })
}

fn read_modify_write(band: &Band, sight: &Sight) -> Option<Plan> {
    if sight.parities().any(|(_, parity)| parity == Parity::WriteOnly) {
        return None;
    }
    if !band.touches.iter().all(|touch| sight.sees(touch.column)) {
        return None;
    }
    let mut reads: Reads = band.touches.iter().map(|touch| data(touch.column, touch.rows)).collect();
    reads.extend(sight.parities().map(|(role, _)| Read { role, rows: band.rows }));
    Some(Plan { kind: Kind::ReadModifyWrite, reads })
}

/// The rows of the band that are not written in `column`.
fn untouched(band: &Band, column: u16) -> SmallVec<[Rows; 2]> {
    let Some(touch) = band.touches.iter().find(|touch| touch.column == column) else {
        return smallvec![band.rows];
    };
    let before = Rows::new(band.rows.start, touch.rows.start);
    let behind = Rows::new(touch.rows.end, band.rows.end);
    [before, behind].into_iter().filter(|rows| rows.len() > 0).collect()
}

fn data(column: u16, rows: Rows) -> Read {
    Read { role: Role::Data { column, copy: 0 }, rows }
}

#[cfg(test)]
mod tests;
