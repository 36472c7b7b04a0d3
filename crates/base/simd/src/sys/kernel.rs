//! Loops of the vector kernels, written once. Each instruction set defines a vector type and a few operations on it,
//! and the macro builds its kernel from them, compiled for its target features as a whole.

/// Vectors per step: enough to keep all execution ports busy.
pub(super) const UNROLL: usize = 4;

/// Defines `kernel()` of an instruction set.
///
/// Its module defines `Vector`, `Factor` (a byte prepared for multiplication) and `load`, `store`, `zero`, `xor`,
/// `double`, `factor`, `multiply` with the same target features.
macro_rules! kernel {
    ($name:literal, $enable:literal, [$($feature:tt),+]) => {
        const BYTES: usize = size_of::<Vector>();
        const STEP: usize = BYTES * $crate::sys::kernel::UNROLL;

        /// The kernel, if this CPU can run it.
        pub(crate) fn kernel() -> Option<&'static $crate::kernel::Kernel> {
            static KERNEL: $crate::kernel::Kernel = $crate::kernel::Kernel {
                name: $name,
                // SAFETY: this kernel leaves `kernel()` only where every feature of these loops was detected.
                xor_into: |target, source| unsafe { xor_into(target, source) },
                // SAFETY: as above.
                xor: |sources, out| unsafe { xor_all(sources, out) },
                // SAFETY: as above.
                pq: |columns, from, p, q| unsafe { pq(columns, from, p, q) },
                // SAFETY: as above.
                multiply_into: |target, source, c| unsafe { multiply_into(target, source, c) },
                // SAFETY: as above.
                scale: |target, c| unsafe { scale(target, c) },
            };
            let detected = true $(&& std::arch::is_x86_feature_detected!($feature))+;
            detected.then_some(&KERNEL)
        }

        #[target_feature(enable = $enable)]
        fn xor_into(target: &mut [u8], source: &[u8]) {
            let (vectors, rest) = target.as_chunks_mut::<BYTES>();
            let (source_vectors, source_rest) = source.as_chunks::<BYTES>();
            for (vector, source) in vectors.iter_mut().zip(source_vectors) {
                store(vector, xor(load(vector), load(source)));
            }
            $crate::scalar::xor_into(rest, source_rest);
        }

        #[target_feature(enable = $enable)]
        fn xor_all(sources: &[&[u8]], out: &mut [u8]) {
            let done = out.len() / STEP * STEP;
            for (step, out) in out.as_chunks_mut::<STEP>().0.iter_mut().enumerate() {
                // Sums stay in registers over all sources, so each byte of `out` is written once.
                let mut sum = [zero(); $crate::sys::kernel::UNROLL];
                for source in sources {
                    let vectors = source[step * STEP..][..STEP].as_chunks::<BYTES>().0;
                    for (sum, vector) in sum.iter_mut().zip(vectors) {
                        *sum = xor(*sum, load(vector));
                    }
                }
                for (out, sum) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(sum) {
                    store(out, sum);
                }
            }
            $crate::scalar::xor_from(sources, done, &mut out[done..]);
        }

        #[target_feature(enable = $enable)]
        fn pq(columns: &$crate::kernel::Columns<'_>, from: usize, p: &mut [u8], q: &mut [u8]) {
            let done = p.len() / STEP * STEP;
            let steps = p.as_chunks_mut::<STEP>().0.iter_mut().zip(q.as_chunks_mut::<STEP>().0);
            for (step, (p, q)) in steps.enumerate() {
                let mut sum = [zero(); $crate::sys::kernel::UNROLL];
                let mut syndrome = sum;
                for column in columns.iter().rev() {
                    for syndrome in &mut syndrome {
                        *syndrome = double(*syndrome);
                    }
                    // A column of zeros still doubles the syndrome: the powers of the later columns depend on it.
                    let Some(bytes) = column else { continue };
                    let vectors = bytes[from + step * STEP..][..STEP].as_chunks::<BYTES>().0;
                    for ((sum, syndrome), vector) in sum.iter_mut().zip(&mut syndrome).zip(vectors) {
                        let vector = load(vector);
                        *sum = xor(*sum, vector);
                        *syndrome = xor(*syndrome, vector);
                    }
                }
                for (p, sum) in p.as_chunks_mut::<BYTES>().0.iter_mut().zip(sum) {
                    store(p, sum);
                }
                for (q, syndrome) in q.as_chunks_mut::<BYTES>().0.iter_mut().zip(syndrome) {
                    store(q, syndrome);
                }
            }
            ($crate::scalar::KERNEL.pq)(columns, from + done, &mut p[done..], &mut q[done..]);
        }

        #[target_feature(enable = $enable)]
        fn multiply_into(target: &mut [u8], source: &[u8], c: u8) {
            let factor = factor(c);
            let (vectors, rest) = target.as_chunks_mut::<BYTES>();
            let (source_vectors, source_rest) = source.as_chunks::<BYTES>();
            for (vector, source) in vectors.iter_mut().zip(source_vectors) {
                store(vector, xor(load(vector), multiply(load(source), &factor)));
            }
            $crate::scalar::multiply_into(rest, source_rest, c);
        }

        #[target_feature(enable = $enable)]
        fn scale(target: &mut [u8], c: u8) {
            let factor = factor(c);
            let (vectors, rest) = target.as_chunks_mut::<BYTES>();
            for vector in vectors {
                store(vector, multiply(load(vector), &factor));
            }
            $crate::scalar::scale(rest, c);
        }
    };
}

/// Products of `c` with every low and with every high half of a byte: any product is the sum of two of them.
pub(super) fn nibble_products(c: u8) -> ([u8; 16], [u8; 16]) {
    let product = |shift: u8| std::array::from_fn(|half| crate::gf256::multiply((half as u8) << shift, c));
    (product(0), product(4))
}

/// Multiplication by `c` as the bit matrix of GF2P8AFFINEQB: the row of output bit `i` is byte `7 - i`.
pub(super) fn bit_matrix(c: u8) -> u64 {
    let mut rows = [0; 8];
    for column in 0..8 {
        let product = crate::gf256::multiply(1 << column, c);
        for (bit, row) in rows.iter_mut().rev().enumerate() {
            *row |= (product >> bit & 1) << column;
        }
    }
    u64::from_le_bytes(rows)
}

/// Bit matrix of 2, as a constant because doubling is the most frequent operation of P+Q.
pub(super) const DOUBLE: u64 = 0x8001_8284_8810_2040;

#[cfg(test)]
mod tests {
    #[test]
    fn bit_matrix_of_two_is_the_constant() {
        assert_eq!(super::bit_matrix(2), super::DOUBLE);
    }
}
