//! Location of structures, which are recognized by the magic number of their blocks, and the corruption of blocks.

use crate::seeded_random::SeededRandom;
use sim::{DiskHandle, DiskImage};
use std::collections::BTreeSet;
use std::fmt;

/// Length of a block of a structure in bytes.
const BLOCK_BYTES: usize = 4096;

/// On-disk structure of a pool, recognized by the magic number in its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Structure(usize);

/// Name, magic number of the first block, distance of the corrupted block from it in blocks, and redundancy.
const STRUCTURES: [(&str, &[u8; 8], u64, Copies); 15] = [
    ("label", b"BLKYDLBL", 0, Copies::InTwoPlaces),
    ("owner's mark", b"BLKYDOWN", 0, Copies::InTwoPlaces),
    ("catalog slot", b"BLKYDCAT", 0, Copies::InTwoPlaces),
    ("catalog", b"BLKYDCAT", 1, Copies::InTwoPlaces),
    ("map head", b"BLKYDMAP", 0, Copies::OnTwoMembers),
    ("map page", b"BLKYDPAG", 0, Copies::OnTwoMembers),
    ("page bits", b"BLKYDPMP", 0, Copies::OnTwoMembers),
    ("map log", b"BLKYDLOG", 0, Copies::OnTwoMembers),
    ("redo log", b"BLKYREDO", 0, Copies::OnTwoMembers),
    ("redo log data", b"BLKYREDO", 1, Copies::AsData),
    ("anchor", b"BLKYANCH", 0, Copies::AsData),
    ("checksum table", b"BLKYSUMS", 0, Copies::AsData),
    ("log device's anchor", b"BYLOGANC", 0, Copies::AsData),
    ("log device's batch", b"BYLOGBAT", 0, Copies::AsData),
    ("log device's data", b"BYLOGBAT", 1, Copies::AsData),
];

/// Redundancy of a block of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// The redundancy of data on that disk.
    AsData,
    /// A copy on another member at any RAID level, where there is more than one member.
    OnTwoMembers,
    /// A copy at another place of the same disk.
    InTwoPlaces,
}

impl Structure {
    /// Returns all structures.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..STRUCTURES.len()).map(Self)
    }

    /// Returns the redundancy of the structure.
    pub(super) fn copies(self) -> Copies {
        STRUCTURES[self.0].3
    }

    /// True when this corruption in every copy makes the block look like the end of a log.
    pub(super) fn ends_at(self, kind: Kind) -> bool {
        match STRUCTURES[self.0].0 {
            "map log" => matches!(kind, Kind::Zeros | Kind::Older),
            "redo log" | "redo log data" | "log device's batch" | "log device's data" => kind != Kind::Unreadable,
            _ => false,
        }
    }

    /// Returns the distance from the block with the magic number to the corrupted block, in bytes.
    fn behind(self) -> u64 {
        STRUCTURES[self.0].2 * BLOCK_BYTES as u64
    }

    /// True when the block at `at` belongs to the structure.
    fn is_at(self, image: &DiskImage, at: u64) -> bool {
        at.checked_sub(self.behind()).is_some_and(|head| self.begins(&image.block(head)))
    }

    fn begins(self, block: &[u8]) -> bool {
        block.starts_with(STRUCTURES[self.0].1)
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(STRUCTURES[self.0].0)
    }
}

/// Kind of corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One flipped bit.
    Flip,
    /// Zeros.
    Zeros,
    /// An earlier content of the block.
    Older,
    /// A block of another structure of the same disk.
    Other,
    /// Exchange with the same place of another member.
    Swapped,
    /// Unreadable until it is written.
    Unreadable,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Flip, Self::Zeros, Self::Older, Self::Other, Self::Swapped, Self::Unreadable];
}

/// Images of the disks of a pool.
pub(super) struct Images {
    disks: Vec<DiskImage>,
    /// Unreadable blocks: disk and byte offset.
    unreadable: BTreeSet<(usize, u64)>,
}

impl Images {
    pub(super) fn of(handles: &[DiskHandle]) -> Self {
        Self { disks: handles.iter().map(DiskHandle::image).collect(), unreadable: BTreeSet::new() }
    }

    pub(super) fn restore(&self, handles: &[DiskHandle]) {
        self.disks.iter().zip(handles).for_each(|(image, handle)| handle.restore(image));
        self.unreadable.iter().for_each(|&(disk, at)| handles[disk].make_unreadable(at..at + BLOCK_BYTES as u64));
    }

    /// Returns the disk and the byte offset of every block of the structure.
    fn places(&self, structure: Structure) -> Vec<(usize, u64)> {
        let of_disk = |(disk, image): (usize, &DiskImage)| {
            let found = image.blocks().filter(|(_, block)| structure.begins(block));
            found.map(|(at, _)| (disk, at + structure.behind())).collect::<Vec<_>>()
        };
        self.disks.iter().enumerate().flat_map(of_disk).collect()
    }
}

/// Planned corruption: structure, kind and place.
pub(super) struct Plan {
    pub structure: Structure,
    pub kind: Kind,
    pub everywhere: bool,
    pub disk: usize,
    at: u64,
}

impl Plan {
    /// Draws a corruption; every structure that exists is equally likely, regardless of its number of blocks.
    pub(super) fn of_chance(chance: &SeededRandom, images: &Images) -> Option<Self> {
        let there: Vec<_> = Structure::all().map(|structure| (structure, images.places(structure))).collect();
        let there: Vec<_> = there.into_iter().filter(|(_, places)| !places.is_empty()).collect();
        if there.is_empty() {
            return None;
        }
        let (structure, places) = &there[chance.index(there.len())];
        let (disk, at) = places[chance.index(places.len())];
        let kind = chance.pick(&Kind::ALL);
        // A swap exchanges two disks, so it cannot apply to all of them.
        let everywhere = kind != Kind::Swapped && chance.percent(25);
        Some(Self { structure: *structure, kind, everywhere, disk, at })
    }

    /// Applies the corruption; false when it changes nothing.
    pub(super) fn strike(&self, chance: &SeededRandom, images: &mut Images, older: &Images) -> bool {
        let disks: Vec<usize> = match self.everywhere {
            // Only where the block at the place belongs to the structure, since members differ in content.
            true => {
                (0..images.disks.len()).filter(|&disk| self.structure.is_at(&images.disks[disk], self.at)).collect()
            }
            false => vec![self.disk],
        };
        let mut changed = false;
        for disk in disks {
            if self.kind == Kind::Unreadable {
                changed |= images.unreadable.insert((disk, self.at));
                continue;
            }
            let before = images.disks[disk].block(self.at);
            let after = self.after(chance, images, older, disk, before.clone());
            changed |= after != before;
            images.disks[disk].put(self.at, &after);
        }
        changed
    }

    fn after(
        &self,
        chance: &SeededRandom,
        images: &mut Images,
        older: &Images,
        disk: usize,
        before: Vec<u8>,
    ) -> Vec<u8> {
        match self.kind {
            Kind::Flip => {
                let mut after = before;
                // The end of a block is often padding, on which nothing depends.
                let used = after.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
                after[chance.index(used)] ^= 1 << chance.below(8);
                after
            }
            Kind::Zeros => vec![0; BLOCK_BYTES],
            // The content stays; only the medium fails to return it.
            Kind::Unreadable => before,
            Kind::Older => older.disks[disk].block(self.at),
            Kind::Other => {
                // A valid block of another structure: the magic number alone does not reveal the corruption.
                let others: Vec<_> = Structure::all()
                    .filter(|&other| other != self.structure)
                    .flat_map(|other| images.places(other))
                    .filter(|&(place, _)| place == disk)
                    .collect();
                if others.is_empty() { before } else { images.disks[disk].block(others[chance.index(others.len())].1) }
            }
            Kind::Swapped => {
                // Both blocks are of the structure, so only the disk that they name reveals the exchange.
                let others: Vec<usize> = (0..images.disks.len())
                    .filter(|&other| other != disk && self.structure.is_at(&images.disks[other], self.at))
                    .collect();
                if others.is_empty() {
                    return before;
                }
                let other = others[chance.index(others.len())];
                let theirs = images.disks[other].block(self.at);
                // Both disks change: the other one gets the block of this one.
                images.disks[other].put(self.at, &before);
                theirs
            }
        }
    }
}
