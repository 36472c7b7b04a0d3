//! Logical unit numbers and their addressing methods (SAM-5, logical unit number).

/// Logical unit number as it appears in a PDU: eight bytes, four levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(pub u64);

impl Lun {
    /// Largest number that a single-level form can represent (14 bits).
    pub const NUMBER_MAX: u16 = 0x3FFF;

    /// Returns the form in which `number` is reported: peripheral device addressing up to 255, flat space addressing
    /// above.
    ///
    /// *Panics*: when the number is above [`Lun::NUMBER_MAX`].
    #[must_use]
    pub fn of(number: u16) -> Self {
        assert!(number <= Self::NUMBER_MAX, "LUN {number} does not fit in 14 bits");
        let method = if number > 0xFF { 0x4000 } else { 0 };
        Self(u64::from(method | number) << 48)
    }

    /// Returns the number that the form represents, or `None` for a form that no unit here has: another bus, a second
    /// level, a well-known logical unit, a reserved method.
    #[inline]
    #[must_use]
    pub fn number(self) -> Option<u16> {
        let [first, second, rest @ ..] = self.0.to_be_bytes();
        let number = u16::from_be_bytes([first, second]) & Self::NUMBER_MAX;
        match first >> 6 {
            // Peripheral device addressing: a bus other than 0 is a second level.
            0b00 if first == 0 && rest == [0; 6] => Some(number),
            0b01 if rest == [0; 6] => Some(number),
            0b11 => self.extended_flat(),
            _ => None,
        }
    }

    /// Parses extended flat space addressing: method 11b, a length of one or two words, extended method 2h.
    fn extended_flat(self) -> Option<u16> {
        let [method, number @ ..] = self.0.to_be_bytes();
        let number = match (method, number) {
            (0xD2, [a, b, c, 0, 0, 0, 0]) => u64::from_be_bytes([0, 0, 0, 0, 0, a, b, c]),
            (0xE2, [a, b, c, d, e, 0, 0]) => u64::from_be_bytes([0, 0, 0, a, b, c, d, e]),
            _ => return None,
        };
        u16::try_from(number).ok().filter(|&number| number <= Self::NUMBER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lun_number_is_the_same_in_every_form() {
        for number in [0, 1, 255, 256, 1023, Lun::NUMBER_MAX] {
            assert_eq!(Lun::of(number).number(), Some(number));
            let flat = Lun((0x4000 | u64::from(number)) << 48);
            assert_eq!(flat.number(), Some(number));
            assert_eq!(Lun(0xD200_0000_0000_0000 | u64::from(number) << 32).number(), Some(number));
            assert_eq!(Lun(0xE200_0000_0000_0000 | u64::from(number) << 16).number(), Some(number));
        }
        assert_eq!(Lun::of(5), Lun(0x0005_0000_0000_0000));
        assert_eq!(Lun::of(300), Lun(0x412C_0000_0000_0000));
    }

    #[test]
    fn lun_that_addresses_a_bus_a_second_level_or_a_well_known_unit_has_no_number() {
        for raw in [
            0x0105_0000_0000_0000,
            0x0005_0001_0000_0000,
            0xC101_0000_0000_0000,
            0x8000_0000_0000_0000,
            0x4001_0000_0000_0001,
            0xD201_0000_0000_0000,
            u64::MAX,
            1,
        ] {
            assert_eq!(Lun(raw).number(), None, "{raw:#x}");
        }
    }
}
