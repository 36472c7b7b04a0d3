//! Formatting of byte counts with binary units, for errors of crates that do not know `model::Size`.

/// Formats `bytes` as `1.5 GiB`, to a tenth. Available amounts are rounded down and required amounts are rounded `up`,
/// so that an insufficient amount never looks sufficient.
#[must_use]
pub fn in_units(bytes: u64, up: bool) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} bytes");
    };
    let unit_bytes = 1_u128 << shift;
    // In 128 bits: ten times a byte count may exceed 64.
    let tenths = (u128::from(bytes) * 10 + if up { unit_bytes - 1 } else { 0 }) / unit_bytes;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        part => format!("{}.{part} {unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_that_is_too_small_by_a_byte_does_not_look_enough() {
        let least = 64 << 20;
        assert_eq!((in_units(least, true), in_units(least - 1, false)), ("64 MiB".to_owned(), "63.9 MiB".to_owned()));
        assert_eq!((in_units(least + 1, true), in_units(512, false)), ("64.1 MiB".to_owned(), "512 bytes".to_owned()));
    }
}
