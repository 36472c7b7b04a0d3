//! Bands: the rows and columns that a partial-stripe write touches.

use super::Rows;
use smallvec::{SmallVec, smallvec};

/// Rows of one column that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnWrite {
    /// Data column.
    pub column: u16,
    /// Rows written in it.
    pub rows: Rows,
    /// Offset of their new content, in blocks of the written data.
    pub at: u64,
}

/// Rows whose parity changes together, and the columns written in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// Rows from the first to the last that is touched; their parity is written.
    pub rows: Rows,
    /// Touched columns, in ascending order.
    pub writes: SmallVec<[ColumnWrite; 8]>,
}

/// Splits a write of `len` blocks, from block `offset` of a stripe's data on, into bands.
///
/// There is one band, except for a write that crosses into the next chunk and is so short that its two ends share no
/// row: then each end is a band, so that no parity between them is read or written.
#[must_use]
pub fn bands(chunk_blocks: u64, offset: u64, len: u64) -> SmallVec<[Band; 2]> {
    let end = offset + len;
    let mut writes: SmallVec<[ColumnWrite; 8]> = SmallVec::new();
    let mut at = offset;
    while at < end {
        let (column, row) = (at / chunk_blocks, at % chunk_blocks);
        let rows = Rows::new(row, chunk_blocks.min(row + end - at));
        let column = u16::try_from(column).expect("a stripe has fewer columns than members");
        writes.push(ColumnWrite { column, rows, at: at - offset });
        at += rows.len();
    }
    match writes[..] {
        [one] => smallvec![Band { rows: one.rows, writes: smallvec![one] }],
        // Strictly less: ends that meet share a parity read if they are one band.
        [head, tail] if tail.rows.end < head.rows.start => {
            [head, tail].map(|column_write| Band { rows: column_write.rows, writes: smallvec![column_write] }).into()
        }
        // The ends share rows, or a column between them is written whole.
        _ => smallvec![Band { rows: Rows::new(0, chunk_blocks), writes }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(bands: &[Band]) -> Vec<(u64, u64, usize)> {
        bands.iter().map(|band| (band.rows.start, band.rows.end, band.writes.len())).collect()
    }

    #[test]
    fn bands_of_a_small_write_are_its_own_rows_only() {
        assert_eq!(rows_of(&bands(16, 20, 1)), [(4, 5, 1)]);
        assert_eq!(rows_of(&bands(16, 16, 16)), [(0, 16, 1)]);
    }

    #[test]
    fn bands_of_a_short_write_over_a_chunk_border_are_two() {
        assert_eq!(rows_of(&bands(16, 15, 2)), [(15, 16, 1), (0, 1, 1)]);
        assert_eq!(rows_of(&bands(16, 8, 16)), [(0, 16, 2)], "ends that meet are one");
        assert_eq!(rows_of(&bands(1, 1, 2)), [(0, 1, 2)]);
    }

    #[test]
    fn bands_cover_every_written_block_once_in_order() {
        for (offset, len) in [(0, 48), (5, 30), (15, 2), (31, 17), (47, 1), (15, 18)] {
            let found = bands(16, offset, len);
            let mut blocks = Vec::new();
            for column_write in found.iter().flat_map(|band| &band.writes) {
                blocks.extend((0..column_write.rows.len()).map(|n| {
                    let lba = u64::from(column_write.column) * 16 + column_write.rows.start + n;
                    assert_eq!(lba - offset, column_write.at + n);
                    lba
                }));
            }
            assert_eq!(blocks, (offset..offset + len).collect::<Vec<_>>());
            assert!(
                found.iter().all(|band| band.writes.iter().all(|column_write| band.rows.contains(column_write.rows)))
            );
        }
    }
}
