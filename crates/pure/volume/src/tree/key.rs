//! What the map of a family is asked by, and what it answers.

/// A key of a family's tree: a tag, and what the tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u128);

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// A granule of a branch in an epoch, and where it lies.
    Version,
    /// 64 granules of a slab, and which of them are taken.
    Taken,
    /// How far the cleaning of a branch is.
    Progress,
    /// A number that would be long to count.
    Counter,
}

/// What is counted, beside its branch and an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counter {
    /// Granules that the branch shows as data; with its present epoch.
    Mapped = 0,
    /// Versions with data of the branch's present epoch.
    Fresh = 1,
    /// Versions that only the snapshot of the epoch sees.
    Exclusive = 2,
    /// Versions with data of the whole family, branch and epoch 0.
    Allocated = 3,
}

impl Counter {
    pub(crate) fn of(code: u32) -> Option<Self> {
        [Self::Mapped, Self::Fresh, Self::Exclusive, Self::Allocated].into_iter().find(|&one| one as u32 == code)
    }
}

impl Key {
    fn of(tag: u8, branch: u32, middle: u32, low: u64) -> Self {
        Self(
            u128::from(tag) << 120
                | u128::from(branch & 0x00ff_ffff) << 96
                | u128::from(middle) << 64
                | u128::from(low),
        )
    }

    /// The version of a granule that was written in `epoch`.
    pub(crate) fn version(branch: u32, granule: u32, epoch: u64) -> Self {
        Self::of(1, branch, granule, epoch)
    }

    /// The 64 granules of a slab from `64 * word` on.
    pub(crate) fn taken(slab: u32, word: u32) -> Self {
        Self::of(2, 0, slab, u64::from(word))
    }

    pub(crate) fn progress(branch: u32) -> Self {
        Self::of(3, branch, 0, 0)
    }

    pub(crate) fn counter(counter: Counter, branch: u32, epoch: u64) -> Self {
        Self::of(4, branch, counter as u32, epoch)
    }

    /// What the key stands for; none for one that nobody writes.
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

    /// The granule of a version, the slab of taken ones, the code of a counter.
    pub(crate) fn middle(self) -> u32 {
        (self.0 >> 64) as u32
    }

    /// The epoch of a version or a counter, the word of taken granules.
    pub(crate) fn low(self) -> u64 {
        self.0 as u64
    }

    /// The key behind this one.
    #[cfg(test)]
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Where a granule lies: a slab of a group and the granule's number in it, or nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    /// The version says that there is nothing, whatever is older.
    pub(crate) const HOLE: Self = Self((1 << 56) - 1);

    /// What the version showed is lost: it is an error, until the granule is written or discarded.
    pub(crate) const LOST: Self = Self((1 << 56) - 2);

    /// Granule `index` of the slab with this number.
    pub(crate) fn new(slab: u32, index: u32) -> Self {
        Self(u64::from(slab) << 24 | u64::from(index))
    }

    /// The number of a slab of a group: unlike any other of the pool.
    pub(crate) fn slab_number(group: u16, slab: u32) -> u32 {
        u32::from(group) << 24 | slab
    }

    pub(crate) fn is_data(self) -> bool {
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

    /// The place behind this one, in the same slab.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
