//! Blocks of a pool that are lost: no copy of them can be read, and nothing restores them.

use crate::{Name, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The lost blocks of a pool. Reading one is a medium error until it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LostBlocks {
    /// How many blocks of 4096 bytes are lost. One that a volume and its snapshots share counts once.
    pub blocks: u64,
    /// Whose they are, by volume and LBA; at most a thousand ranges.
    pub ranges: Vec<LostRange>,
    /// True when there are more ranges than these.
    pub truncated: bool,
}

/// Lost blocks that follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostRange {
    /// The volume; absent for blocks whose volume is not known yet.
    pub volume: Option<VolumeName>,
    /// The snapshot of the volume that shows them; absent when the volume itself does.
    #[serde(default)]
    pub snapshot: Option<Name>,
    /// True for blocks of the volume's map, not of its data: `lba` counts blocks of the group then.
    #[serde(default)]
    pub is_map: bool,
    /// The group of the pool.
    pub group: u16,
    /// The first logical block.
    pub lba: u64,
    /// How many logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
}

impl LostBlocks {
    /// True when nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The count in words: `8 blocks (32 KiB)`.
    #[must_use]
    pub fn amount(&self) -> String {
        let size = crate::Size::new(self.blocks.saturating_mul(4096)).iec();
        let noun = if self.blocks == 1 { "block" } else { "blocks" };
        format!("{} {noun} ({size})", self.blocks)
    }

    /// The first few ranges in words.
    #[must_use]
    pub fn named(&self, most: usize) -> String {
        let ranges = crate::first_few(self.ranges.iter(), most);
        if self.truncated { format!("{ranges}, and more") } else { ranges }
    }
}

impl fmt::Display for LostRange {
    /// `tank/vm LBA 2048-2055`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.lba + self.blocks.saturating_sub(1);
        match (&self.volume, &self.snapshot) {
            (Some(volume), _) if self.is_map => write!(f, "map of {volume}, group {} block", self.group)?,
            (Some(volume), Some(snapshot)) => write!(f, "{volume}@{snapshot} LBA")?,
            (Some(volume), None) => write!(f, "{volume} LBA")?,
            (None, _) => write!(f, "group {} block", self.group)?,
        }
        if last == self.lba { write!(f, " {last}") } else { write!(f, " {}-{last}", self.lba) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_range_names_volume_and_blocks() {
        let volume = Some("tank/vm".parse().expect("a name"));
        let range =
            LostRange { volume, snapshot: None, is_map: false, group: 0, lba: 2048, blocks: 8, block_bytes: 512 };
        assert_eq!(range.to_string(), "tank/vm LBA 2048-2055");
        let snapshot = Some("monday".parse().expect("a name"));
        assert_eq!(LostRange { snapshot, blocks: 1, ..range.clone() }.to_string(), "tank/vm@monday LBA 2048");
        assert_eq!(LostRange { is_map: true, ..range.clone() }.to_string(), "map of tank/vm, group 0 block 2048-2055");
        assert_eq!(LostRange { volume: None, ..range.clone() }.to_string(), "group 0 block 2048-2055");
        let lost = LostBlocks { blocks: 1, ranges: vec![range], truncated: true };
        assert_eq!(
            (lost.amount(), lost.named(3)),
            ("1 block (4 KiB)".to_owned(), "tank/vm LBA 2048-2055, and more".to_owned())
        );
    }
}
