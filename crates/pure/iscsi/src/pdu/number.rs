//! Sequence numbers: 32-bit serial numbers that wrap, compared according to RFC 1982.

/// Defines a type for one kind of sequence number.
macro_rules! serial_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Has no `Ord`: numbers that wrap have no total order. Two numbers that are exactly 2^31 apart
        /// precede each other neither way.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the next number.
            #[inline]
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// Returns the number `count` after this one.
            #[inline]
            #[must_use]
            pub const fn plus(self, count: u32) -> Self {
                Self(self.0.wrapping_add(count))
            }

            /// Returns the number `count` before this one.
            #[inline]
            #[must_use]
            pub const fn minus(self, count: u32) -> Self {
                Self(self.0.wrapping_sub(count))
            }

            /// True when this number precedes `other`.
            #[inline]
            #[must_use]
            pub const fn precedes(self, other: Self) -> bool {
                let ahead = other.0.wrapping_sub(self.0);
                ahead != 0 && ahead < 1 << 31
            }

            /// Returns the distance from `earlier` to this number, modulo 2^32.
            #[inline]
            #[must_use]
            pub const fn since(self, earlier: Self) -> u32 {
                self.0.wrapping_sub(earlier.0)
            }
        }
    };
}

serial_number! {
    /// Number of a command in its session (RFC 7143 §4.2.2.1).
    CmdSn
}
serial_number! {
    /// Number of a status on its connection (RFC 7143 §4.2.2.2).
    StatSn
}
serial_number! {
    /// Number of a data PDU in its sequence (RFC 7143 §4.2.2.3).
    DataSn
}
serial_number! {
    /// Number of an R2T of its command (RFC 7143 §4.2.2.3).
    R2tSn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_number_order_survives_the_wrap() {
        assert!(CmdSn(u32::MAX).precedes(CmdSn(0)));
        assert!(!CmdSn(0).precedes(CmdSn(u32::MAX)));
        assert!(!CmdSn(7).precedes(CmdSn(7)));
        assert_eq!(CmdSn(u32::MAX).next(), CmdSn(0));
        assert_eq!(CmdSn(2).since(CmdSn(u32::MAX)), 3);
        assert_eq!(CmdSn(0).minus(1), CmdSn(u32::MAX));
    }

    #[test]
    fn serial_number_half_the_circle_away_is_not_ordered() {
        assert!(!StatSn(0).precedes(StatSn(1 << 31)));
        assert!(!StatSn(1 << 31).precedes(StatSn(0)));
        assert!(StatSn(0).precedes(StatSn((1 << 31) - 1)));
    }
}
