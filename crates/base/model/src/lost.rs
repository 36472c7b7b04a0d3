//! Lost blocks of a pool: no copy can be read, and redundancy cannot restore them.

use crate::{Name, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Lost blocks of a pool. Reading one returns a medium error until it is overwritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LostBlocks {
    /// Number of lost blocks of 4096 bytes. A block that is shared by a volume and its snapshots counts once.
    pub blocks: u64,
    /// Affected ranges by volume and LBA; at most one thousand.
    pub ranges: Vec<LostRange>,
    /// True if there are more ranges than listed.
    pub truncated: bool,
}

/// Contiguous range of lost blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostRange {
    /// Affected volume; absent for blocks whose volume is not known yet.
    pub volume: Option<VolumeName>,
    /// Snapshot that contains the blocks; absent if the volume itself does.
    #[serde(default)]
    pub snapshot: Option<Name>,
    /// True for blocks of the volume map instead of data; `lba` then is a block number within the group.
    #[serde(default)]
    pub is_map: bool,
    /// Number of the disk group in the pool.
    pub group: u16,
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
}

impl LostBlocks {
    /// Returns true if nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Not by `ranges`: while the volumes are unknown, blocks are counted without a range.
        self.blocks == 0
    }

    /// Returns the count in words: `8 blocks (32 KiB)`.
    #[must_use]
    pub fn amount(&self) -> String {
        // The number counts blocks of 4096 bytes, whatever logical block size the volumes have.
        let size = crate::Size::new(self.blocks.saturating_mul(4096)).iec();
        let noun = if self.blocks == 1 { "block" } else { "blocks" };
        format!("{} {noun} ({size})", self.blocks)
    }

    /// Returns the first `most` ranges in words.
    #[must_use]
    pub fn named(&self, most: usize) -> String {
        if self.ranges.is_empty() {
            // The maps that would tell are damaged, too, or have not been read yet.
            return "their volumes are not known yet".to_owned();
        }
        // Beyond the limit of the report the number of ranges is unknown, so no count can be given.
        let ranges = crate::first_few(self.ranges.iter(), most);
        if self.truncated { format!("{ranges}, and more") } else { ranges }
    }
}

impl fmt::Display for LostRange {
    /// Writes a text such as `tank/vm LBA 2048-2055`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Inclusive: the text names the last block that is lost.
        let last = self.lba + self.blocks.saturating_sub(1);
        match (&self.volume, &self.snapshot) {
            // A block of the map has no address in the volume, only one in its group.
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
        let unknown = LostBlocks { ranges: Vec::new(), ..lost };
        assert_eq!(unknown.named(3), "their volumes are not known yet");
    }
}
