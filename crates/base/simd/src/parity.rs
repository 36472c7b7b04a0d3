//! P and Q of RAID-6, as computed by Linux md: P = Σ dᵢ, Q = Σ gⁱ·dᵢ over GF(2^8).
//!
//! *Source*: H. Peter Anvin, "The mathematics of RAID-6".

use crate::choice;
use crate::gf256;
use crate::kernel::Columns;

/// Limit on data columns: Q cannot distinguish more.
pub const COLUMNS_MAX: usize = 255;

/// Error: the missing column cannot be computed from the remaining ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecoverable;

/// Computes the parity of `columns` into `p` and `q`.
///
/// *Shape*: data columns in order; `None` stands for zeros. All have the length of `p` and `q`. *Panics*: when lengths
/// differ, or there are more than [`COLUMNS_MAX`] columns.
pub fn pq(columns: &Columns<'_>, p: &mut [u8], q: &mut [u8]) {
    assert_eq!(p.len(), q.len(), "P and Q cover the same rows");
    judge(columns, p.len());
    (choice::best().pq)(columns, 0, p, q);
}

/// Updates `q` after a change of column `column` by `delta` (old XOR new).
///
/// P changes by `delta` itself: [`crate::xor::xor_into`]. *Panics*: when the lengths differ.
pub fn update_q(q: &mut [u8], delta: &[u8], column: usize) {
    choice::best().multiply_into(q, delta, gf256::power(column));
}

/// Reconstructs the missing data column `column` into `out` from the other columns and P, Q or both.
///
/// *Shape*: a missing column is `None`, as is a missing P or Q. *Errors*: [`Unrecoverable`] when more is missing than
/// parity can replace. *Panics*: when `column` is not missing, or lengths differ.
pub fn recover(
    columns: &Columns<'_>,
    p: Option<&[u8]>,
    q: Option<&[u8]>,
    column: usize,
    out: &mut [u8],
) -> Result<(), Unrecoverable> {
    judge(columns, out.len());
    for parity in [p, q].into_iter().flatten() {
        assert_eq!(parity.len(), out.len(), "parity covers the rows that are recovered");
    }
    assert!(columns.get(column).is_some_and(Option::is_none), "only a lost column is recovered");
    // Missing beside the wanted column. P and Q are two equations, so there can be one of these at most.
    let mut others = (0..columns.len()).filter(|&other| other != column && columns[other].is_none());
    match (others.next(), others.next(), p, q) {
        // P is preferred where both are left: it needs only XOR.
        (None, _, Some(p), _) => by_p(columns, p, out),
        (None, _, None, Some(q)) => by_q(columns, q, column, out),
        (Some(other), None, Some(p), Some(q)) => by_both(columns, (p, q), (column, other), out),
        _ => return Err(Unrecoverable),
    }
    Ok(())
}

fn judge(columns: &Columns<'_>, len: usize) {
    assert!(columns.len() <= COLUMNS_MAX, "Q has {COLUMNS_MAX} coefficients");
    for column in columns.iter().flatten() {
        assert_eq!(column.len(), len, "parity covers the same rows of every column");
    }
}

fn by_p(columns: &Columns<'_>, p: &[u8], out: &mut [u8]) {
    out.copy_from_slice(p);
    for column in columns.iter().flatten() {
        (choice::best().xor_into)(out, column);
    }
}

/// Step size in bytes, so that data needed twice stays in the cache.
const STEP: usize = 4096;

fn by_q(columns: &Columns<'_>, q: &[u8], column: usize, out: &mut [u8]) {
    let kernel = choice::best();
    let coefficient = gf256::invert(gf256::power(column));
    // P of the surviving columns is a by-product: no kernel has a loop for Q alone.
    let mut unused = [0; STEP];
    for (step, out) in out.chunks_mut(STEP).enumerate() {
        let from = step * STEP;
        let len = out.len();
        // Q of the surviving columns; the XOR with the stored Q leaves gˣ·d of the missing column.
        (kernel.pq)(columns, from, &mut unused[..len], out);
        (kernel.xor_into)(out, &q[from..from + len]);
        (kernel.scale)(out, coefficient);
    }
}

/// Solves two equations for x: x + y = P', gˣ·x + gʸ·y = Q', where P' and Q' exclude the contribution of the surviving
/// columns. So x = (gʸ·P' + Q') / (gˣ + gʸ).
fn by_both(columns: &Columns<'_>, (p, q): (&[u8], &[u8]), (x, y): (usize, usize), out: &mut [u8]) {
    let kernel = choice::best();
    // Never zero: the powers of two different columns differ, as both are below 255.
    let divisor = gf256::invert(gf256::power(x) ^ gf256::power(y));
    let of_p = gf256::multiply(gf256::power(y), divisor);
    let mut syndrome = [0; STEP];
    for (step, out) in out.chunks_mut(STEP).enumerate() {
        let from = step * STEP;
        let len = out.len();
        let syndrome = &mut syndrome[..len];
        // Missing columns count as zeros here, so these are P and Q of the surviving ones.
        (kernel.pq)(columns, from, out, syndrome);
        (kernel.xor_into)(out, &p[from..from + len]);
        (kernel.xor_into)(syndrome, &q[from..from + len]);
        (kernel.scale)(out, of_p);
        (kernel.multiply_into)(out, syndrome, divisor);
    }
}

#[cfg(test)]
mod tests;
