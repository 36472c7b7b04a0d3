//! Keys and values of a family's map.

/// Key of a family's tree: a tag, a branch and two fields that depend on the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u128);

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Version of a granule: branch, granule and epoch, with its place.
    Version,
    /// Allocation bitmap of 64 granules of a slab.
    Taken,
    /// Progress of the cleaning of a branch.
    Progress,
    /// Stored counter, which would take long to compute.
    Counter,
}

/// Counter, with its branch and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counter {
    /// Granules mapped in the branch, with its current epoch.
    Mapped = 0,
    /// Versions with data in the branch's current epoch.
    OwnVersions = 1,
    /// Versions that only the snapshot of the epoch sees.
    Exclusive = 2,
    /// Versions with data in the whole family; branch and epoch are 0.
    Allocated = 3,
}

impl Counter {
    pub(crate) fn of(code: u32) -> Option<Self> {
        [Self::Mapped, Self::OwnVersions, Self::Exclusive, Self::Allocated].into_iter().find(|&one| one as u32 == code)
    }
}

impl Key {
    fn of(tag: u8, branch: u32, middle: u32, low: u64) -> Self {
        // The order of the fields is the order of the tree: all versions of a granule are adjacent, by
        // ascending epoch.
        Self(
            u128::from(tag) << 120
                | u128::from(branch & 0x00ff_ffff) << 96
                | u128::from(middle) << 64
                | u128::from(low),
        )
    }

    /// Key of the version of a granule written in `epoch`.
    pub(crate) fn version(branch: u32, granule: u32, epoch: u64) -> Self {
        Self::of(1, branch, granule, epoch)
    }

    /// Key of the bitmap of 64 granules of a slab from `64 * word` on.
    pub(crate) fn taken(slab: u32, word: u32) -> Self {
        // Branch 0 for all of them: slabs belong to the family, and not to one of its volumes.
        Self::of(2, 0, slab, u64::from(word))
    }

    pub(crate) fn progress(branch: u32) -> Self {
        Self::of(3, branch, 0, 0)
    }

    pub(crate) fn counter(counter: Counter, branch: u32, epoch: u64) -> Self {
        Self::of(4, branch, counter as u32, epoch)
    }

    /// Kind of the entry; none for an unknown tag.
    pub(crate) fn tag(self) -> Option<Tag> {
        match (self.0 >> 120) as u8 {
            1 => Some(Tag::Version),
            2 => Some(Tag::Taken),
            3 => Some(Tag::Progress),
            4 => Some(Tag::Counter),
            _ => None,
        }
    }

    pub(crate) fn branch(self) -> u32 {
        (self.0 >> 96) as u32 & 0x00ff_ffff
    }

    /// Granule of a version, slab of a bitmap, or code of a counter.
    pub(crate) fn middle(self) -> u32 {
        (self.0 >> 64) as u32
    }

    /// Epoch of a version or counter, or word of a bitmap.
    pub(crate) fn low(self) -> u64 {
        self.0 as u64
    }

    /// Key after this one.
    #[cfg(test)]
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Location of a granule: group, slab and index in the slab, or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GranuleAddress(pub(crate) u64);

impl GranuleAddress {
    /// Hole: the granule is unmapped in this version, whatever older versions say.
    pub(crate) const HOLE: Self = Self((1 << 56) - 1);

    /// Lost data: reads fail until the granule is written or discarded.
    pub(crate) const LOST: Self = Self((1 << 56) - 2);

    /// Place of granule `index` in the slab with this number.
    pub(crate) fn new(slab: u32, index: u32) -> Self {
        // 24 bits of the granule, 24 of the slab, 8 of the group; the check of the catalog bounds all three.
        Self(u64::from(slab) << 24 | u64::from(index))
    }

    /// Number of a slab, unique in the pool.
    pub(crate) fn slab_number(group: u16, slab: u32) -> u32 {
        u32::from(group) << 24 | slab
    }

    pub(crate) fn is_data(self) -> bool {
        // Both special values lie above every possible place.
        self != Self::HOLE && self != Self::LOST
    }

    pub(crate) fn slab(self) -> u32 {
        (self.0 >> 24) as u32
    }

    pub(crate) fn index(self) -> u32 {
        self.0 as u32 & 0x00ff_ffff
    }

    pub(crate) fn group(self) -> u16 {
        (self.0 >> 48) as u16 & 0xff
    }

    /// Place after this one in the same slab.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
