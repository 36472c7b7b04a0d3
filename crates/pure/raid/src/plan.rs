//! Choice of a write plan for part of a stripe: a pure function of what must be written and what can be read.
//!
//! Every plan writes the touched columns and the parities that are present; plans differ in what they read. The
//! fewest member reads win; of equal ones the plan that relies on data rather than old parity.

use crate::geometry::{Band, Role, Rows};
use smallvec::{SmallVec, smallvec};

/// Method of keeping parity consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Full-stripe write: every column is written over all rows, parity is computed from them, nothing is read.
    FullStripe,
    /// Reconstruct-write: the columns not written are read, and parity is computed anew.
    Reconstruct,
    /// Read-modify-write: the overwritten blocks and their parity are read, and parity is changed by the difference.
    ReadModifyWrite,
    /// Degraded write: everything readable is read, lost columns are computed, and parity is computed anew.
    Restore,
    /// Unprotected write: no parity is left, so only data is written and nothing read.
    Unprotected,
}

/// All kinds, in the order of their discriminants.
pub const KINDS: [Kind; 5] =
    [Kind::FullStripe, Kind::Reconstruct, Kind::ReadModifyWrite, Kind::Restore, Kind::Unprotected];

/// Availability of one parity of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// Not present: its member is lost, or the level does not have it.
    Absent,
    /// Written, but its old content cannot be read.
    WriteOnly,
    /// Read and written.
    Readable,
}

/// Readable parts of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Number of data columns.
    pub columns: u16,
    /// Bit mask of the columns whose old content cannot be read.
    pub lost: u64,
    /// First parity.
    pub p: Parity,
    /// Second parity.
    pub q: Parity,
}

/// Read of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Chunk to read.
    pub role: Role,
    /// Rows of the chunk.
    pub rows: Rows,
}

/// Reads that precede the write of a band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Method of keeping parity consistent.
    pub kind: Kind,
    /// Member reads; empty where nothing needs to be read.
    pub reads: Reads,
}

/// Member reads of one stripe.
pub type Reads = SmallVec<[Read; 8]>;

impl Availability {
    /// True when the old content of `column` can be read.
    #[must_use]
    pub fn is_readable(&self, column: u16) -> bool {
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

/// Chooses the cheapest plan to write `band`; `None` when too much is lost.
#[must_use]
pub fn choose(band: &Band, availability: &Availability) -> Option<Plan> {
    // Nothing has to be kept consistent, so lost columns do not matter here.
    if availability.parities().next().is_none() {
        return Some(Plan { kind: Kind::Unprotected, reads: Reads::new() });
    }
    let reconstruct = reconstruct(band, availability);
    // No reads at all, so nothing can be cheaper.
    if let Some(Plan { kind: Kind::FullStripe, .. }) = reconstruct {
        return reconstruct;
    }
    // The last resort, because it reads every column that can be read.
    let restore = || restore(availability, band.rows).map(|reads| Plan { kind: Kind::Restore, reads });
    // `min_by_key` keeps the first of equal plans: reconstruct-write, which relies on data rather than on parity.
    let cheapest = [reconstruct, read_modify_write(band, availability)].into_iter().flatten().min_by_key(Plan::cost);
    cheapest.or_else(restore)
}

/// Returns the reads from which every data column of `rows` follows, the lost ones by computation; `None` when too
/// much is lost.
#[must_use]
pub fn restore(availability: &Availability, rows: Rows) -> Option<Reads> {
    let mut reads: Reads = (0..availability.columns)
        .filter(|&column| availability.is_readable(column))
        .map(|column| data(column, rows))
        .collect();
    let lost = usize::from(availability.columns) - reads.len();
    let readable = availability.parities().filter(|&(_, parity)| parity == Parity::Readable);
    // One parity for each lost column, P before Q.
    reads.extend(readable.take(lost).map(|(role, _)| Read { role, rows }));
    // Fewer reads than columns: more columns are lost than there are parities to restore them.
    (reads.len() == usize::from(availability.columns)).then_some(reads)
}

fn reconstruct(band: &Band, availability: &Availability) -> Option<Plan> {
    let mut reads = Reads::new();
    for column in 0..availability.columns {
        let rest = untouched(band, column);
        // A column that is lost and not written whole cannot be read for the new parity.
        if !rest.is_empty() && !availability.is_readable(column) {
            return None;
        }
        reads.extend(rest.into_iter().map(|rows| data(column, rows)));
    }
    let kind = if reads.is_empty() { Kind::FullStripe } else { Kind::Reconstruct };
    Some(Plan { kind, reads })
}

fn read_modify_write(band: &Band, availability: &Availability) -> Option<Plan> {
    // A parity that cannot be read cannot be updated by a difference.
    if availability.parities().any(|(_, parity)| parity == Parity::WriteOnly) {
        return None;
    }
    // The difference needs the old content of every block that is written.
    if !band.writes.iter().all(|column_write| availability.is_readable(column_write.column)) {
        return None;
    }
    let mut reads: Reads =
        band.writes.iter().map(|column_write| data(column_write.column, column_write.rows)).collect();
    // Parity is read over the whole band, because the columns may cover different rows of it.
    reads.extend(availability.parities().map(|(role, _)| Read { role, rows: band.rows }));
    Some(Plan { kind: Kind::ReadModifyWrite, reads })
}

/// Rows of the band that are not written in `column`.
fn untouched(band: &Band, column: u16) -> SmallVec<[Rows; 2]> {
    let Some(column_write) = band.writes.iter().find(|column_write| column_write.column == column) else {
        return smallvec![band.rows];
    };
    let before = Rows::new(band.rows.start, column_write.rows.start);
    let behind = Rows::new(column_write.rows.end, band.rows.end);
    [before, behind].into_iter().filter(|rows| rows.len() > 0).collect()
}

fn data(column: u16, rows: Rows) -> Read {
    Read { role: Role::Data { column, copy: 0 }, rows }
}

#[cfg(test)]
mod tests;
