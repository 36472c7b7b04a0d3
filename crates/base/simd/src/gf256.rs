//! Arithmetic of the field GF(2^8) of RAID-6: polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2.
//!
//! Addition is XOR. Used for single bytes (coefficients and tables); kernels process buffers.

/// Residue of x^8.
pub const REDUCTION: u8 = 0x1d;

/// Number of distinct powers of the generator.
const ORDER: usize = 255;

struct Tables {
    power: [u8; ORDER],
    /// Exponent of each byte; unused for zero, which is no power.
    exponent: [u8; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables { power: [0; ORDER], exponent: [0; 256] };
    let mut value = 1;
    let mut exponent = 0;
    while exponent < ORDER {
        // The powers are a permutation of 1 to 255, so each exponent is set once.
        tables.power[exponent] = value;
        tables.exponent[value as usize] = exponent as u8;
        value = double(value);
        exponent += 1;
    }
    tables
}

/// `2·a`.
#[must_use]
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { REDUCTION }
}

/// The generator to the power of `exponent`: the coefficient of data column `exponent` in Q.
#[must_use]
pub fn power(exponent: usize) -> u8 {
    // The powers of 2 repeat after all 255 nonzero bytes.
    TABLES.power[exponent % ORDER]
}

/// `a·b`.
#[must_use]
pub fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    // Logarithms: a product is the power of the sum of the exponents.
    power(usize::from(TABLES.exponent[usize::from(a)]) + usize::from(TABLES.exponent[usize::from(b)]))
}

/// Returns the multiplicative inverse of `a`.
///
/// *Panics*: when `a` is zero, which has none.
#[must_use]
pub fn invert(a: u8) -> u8 {
    assert_ne!(a, 0, "zero has no inverse");
    // The exponents of a byte and of its inverse add up to 255, which is the power zero again.
    power(ORDER - usize::from(TABLES.exponent[usize::from(a)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference multiplication: shift, add, reduce.
    fn long_multiply(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b != 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = double(a);
            b >>= 1;
        }
        product
    }

    #[test]
    fn gf256_products_are_those_of_long_multiplication() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), long_multiply(a, b));
            }
        }
        assert_eq!(multiply(0x80, 2), 0x1d);
    }

    #[test]
    fn gf256_generator_reaches_every_byte_but_zero_and_all_have_inverses() {
        let mut reached: Vec<u8> = (0..255).map(power).collect();
        reached.sort_unstable();
        assert_eq!(reached, (1..=255).collect::<Vec<u8>>());
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1);
        }
    }
}
