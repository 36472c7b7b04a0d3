//! Sets of members as bit masks.

use crate::bounds::MEMBERS_MAX;
use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

/// Set of an array's members, one bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberSet(u64);

impl MemberSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The members 0 to `count` - 1.
    #[must_use]
    pub fn first(count: u16) -> Self {
        (0..count).collect()
    }

    /// The set of this member only.
    #[must_use]
    pub fn only(member: u16) -> Self {
        assert!(member < MEMBERS_MAX, "an array has no more members than a set has bits");
        Self(1 << member)
    }

    /// True when `member` is in the set.
    #[must_use]
    pub fn contains(self, member: u16) -> bool {
        self.0 & (1 << member) != 0
    }

    /// Bit mask of the set; member 0 is the lowest bit.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Set from a bit mask.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Number of members in the set.
    #[must_use]
    pub fn len(self) -> u16 {
        u16::try_from(self.0.count_ones()).expect("64 bits at most")
    }

    /// True when the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set with `member` added.
    #[must_use]
    pub fn with(self, member: u16) -> Self {
        self | Self::only(member)
    }

    /// Members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let member = u16::try_from(rest.trailing_zeros()).expect("64 bits at most");
            (rest != 0).then(|| {
                // Clears the lowest bit; `rest` is not zero here, so the subtraction cannot underflow.
                rest &= rest - 1;
                member
            })
        })
    }
}

impl BitOr for MemberSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for MemberSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for MemberSet {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl FromIterator<u16> for MemberSet {
    fn from_iter<I: IntoIterator<Item = u16>>(members: I) -> Self {
        members.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_set_contains_added_members_up_to_the_last() {
        let set: MemberSet = [3, 0, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63]);
        assert_eq!(set.len(), 3);
        assert!(set.contains(63) && !set.contains(62));
        assert_eq!((set - MemberSet::only(3)).with(1), [0, 1, 63].into_iter().collect());
        assert_eq!(MemberSet::first(64).len(), 64);
    }
}
