//! Function table of one instruction set.

/// Data columns of a stripe in order; `None` stands for zeros.
pub type Columns<'a> = [Option<&'a [u8]>];

/// Set of loops that this CPU can run. Obtained from [`crate::choice`] only, so that a kernel which the CPU does not
/// support cannot be called.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub(crate) name: &'static str,
    pub(crate) xor_into: fn(target: &mut [u8], source: &[u8]),
    pub(crate) xor: fn(sources: &[&[u8]], out: &mut [u8]),
    /// Computes P and Q of the columns' bytes starting at `from`, as many as `p` and `q` are long.
    pub(crate) pq: fn(columns: &Columns<'_>, from: usize, p: &mut [u8], q: &mut [u8]),
    /// `target ^= c·source`.
    pub(crate) multiply_into: fn(target: &mut [u8], source: &[u8], c: u8),
    /// `target = c·target`.
    pub(crate) scale: fn(target: &mut [u8], c: u8),
}

impl Kernel {
    /// Name of the instruction set.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// XOR of `sources`; see [`crate::xor::xor`], which checks the lengths.
    pub fn xor(&self, sources: &[&[u8]], out: &mut [u8]) {
        (self.xor)(sources, out);
    }

    /// P and Q of `columns`; see [`crate::parity::pq`], which checks the lengths.
    pub fn pq(&self, columns: &Columns<'_>, p: &mut [u8], q: &mut [u8]) {
        (self.pq)(columns, 0, p, q);
    }

    /// `target ^= c·source`, byte for byte in GF(2^8).
    ///
    /// *Panics*: when the lengths differ.
    pub fn multiply_into(&self, target: &mut [u8], source: &[u8], c: u8) {
        assert_eq!(target.len(), source.len(), "a product is added to as many bytes");
        (self.multiply_into)(target, source, c);
    }
}
