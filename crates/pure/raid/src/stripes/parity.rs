//! Parity of a band: pure arithmetic over the new data and what was read.

use crate::geometry::{Band, Role, Rows, bytes};
use crate::stripes::restore::Loaded;
use block::{Buf, View};
use smallvec::SmallVec;

type Slices<'a> = SmallVec<[Option<&'a [u8]>; 16]>;

/// Updates P and Q, as far as they were read, by the difference between old and new data (read-modify-write).
pub(super) fn changed(band: &Band, data: &View, loaded: Loaded) -> (Option<View>, Option<View>) {
    let (mut p, mut q) = (None, None);
    let mut deltas: SmallVec<[(u16, Rows, Buf); 8]> = SmallVec::new();
    for (read, view) in loaded {
        match read.role {
            Role::P => p = Some(view.into_buf()),
            Role::Q => q = Some(view.into_buf()),
            Role::Data { column, .. } => deltas.push((column, read.rows, view.into_buf())),
        }
    }
    for (column, rows, delta) in &mut deltas {
        let column_write = band
            .writes
            .iter()
            .find(|column_write| column_write.column == *column)
            .expect("only touched columns are read");
        // P changes by the difference itself, Q by the difference times the coefficient of the column.
        simd::xor::xor_into(delta, &super::parity_write::new_content(data, column_write));
        // Rows of the band outside of this column do not change, so their parity stays.
        let at = band.rows.bytes_of(*rows);
        if let Some(p) = &mut p {
            simd::xor::xor_into(&mut p[at.clone()], delta);
        }
        if let Some(q) = &mut q {
            simd::parity::update_q(&mut q[at], delta, usize::from(*column));
        }
    }
    (p.map(Buf::freeze), q.map(Buf::freeze))
}

/// Computes P and Q, where wanted, from the new data and the `old` content of the columns that are not written.
pub(super) fn computed(band: &Band, data: &View, old: &Loaded, wanted: (bool, bool)) -> (Option<View>, Option<View>) {
    let len = bytes(band.rows.len());
    let mut p = Buf::recycled(len);
    // P is computed in any case: together with Q it costs one pass over the data.
    let mut q = wanted.1.then(|| Buf::recycled(len));
    for rows in segments(band) {
        let columns = columns_of(band, data, old, rows);
        let at = band.rows.bytes_of(rows);
        match &mut q {
            Some(q) => simd::parity::pq(&columns, &mut p[at.clone()], &mut q[at]),
            None => {
                let columns: SmallVec<[&[u8]; 16]> = columns.into_iter().flatten().collect();
                simd::xor::xor(&columns, &mut p[at]);
            }
        }
    }
    (wanted.0.then(|| p.freeze()), q.map(Buf::freeze))
}

/// Splits the band at the rows where a column starts or ends being written: within a part each column has one source.
fn segments(band: &Band) -> SmallVec<[Rows; 3]> {
    let mut cuts: SmallVec<[u64; 8]> = SmallVec::from_slice(&[band.rows.start, band.rows.end]);
    cuts.extend(band.writes.iter().flat_map(|column_write| [column_write.rows.start, column_write.rows.end]));
    cuts.sort_unstable();
    // Equal cuts would give parts without rows.
    cuts.dedup();
    cuts.windows(2).map(|pair| Rows::new(pair[0], pair[1])).collect()
}

/// New content of each column in `rows`.
fn columns_of<'a>(band: &Band, data: &'a View, old: &'a Loaded, rows: Rows) -> Slices<'a> {
    let mut columns: Slices<'a> = SmallVec::new();
    let mut put = |column: u16, content: &'a [u8]| {
        let column = usize::from(column);
        columns.resize(columns.len().max(column + 1), None);
        columns[column] = Some(content);
    };
    for (read, view) in old {
        if let Role::Data { column, .. } = read.role
            && read.rows.contains(rows)
        {
            put(column, &view[read.rows.bytes_of(rows)]);
        }
    }
    // Written data comes last, so it replaces old content of the same column.
    for column_write in band.writes.iter().filter(|column_write| column_write.rows.contains(rows)) {
        let from = column_write.at + rows.start - column_write.rows.start;
        put(column_write.column, &data[bytes(from)..bytes(from + rows.len())]);
    }
    columns
}
