//! Content of a disk, and the checksums of structures at the places that docs/on-disk.md, docs/raid.md and
//! docs/cache.md define.

use simd::crc32c::crc32c;
use std::collections::BTreeMap;
use std::rc::Rc;

pub const BLOCK: usize = 4096;

/// Blocks by number; missing blocks are zeros. Cheap to clone.
#[derive(Clone, Default)]
pub struct Image(pub BTreeMap<u64, Rc<[u8]>>);

impl Image {
    pub fn block(&self, at: u64) -> Vec<u8> {
        self.0.get(&at).map_or_else(|| vec![0; BLOCK], |block| block.to_vec())
    }

    pub fn put(&mut self, at: u64, block: &[u8]) {
        self.0.insert(at, block.into());
    }
}

/// Magic number of a structure, offset of its checksum, and the bytes that the checksum covers.
const STRUCTURES: [(&[u8; 8], usize, Extent); 11] = [
    (b"BLKYDLBL", 12, Extent::Bytes(BLOCK)),
    (b"BLKYDOWN", 12, Extent::Bytes(BLOCK)),
    (b"BLKYDCAT", 12, Extent::Bytes(BLOCK)),
    (b"BLKYDMAP", 8, Extent::Bytes(BLOCK)),
    (b"BLKYDPAG", 8, Extent::Bytes(BLOCK)),
    (b"BLKYDPMP", 8, Extent::Bytes(BLOCK)),
    (b"BLKYDLOG", 8, Extent::Bytes(BLOCK)),
    (b"BLKYSUMS", 8, Extent::Bytes(BLOCK)),
    (b"BLKYANCH", 12, Extent::Bytes(3 * BLOCK)),
    (b"BLKYREDO", 8, Extent::At(60)),
    (b"BYLOGANC", 12, Extent::Bytes(104)),
];

enum Extent {
    Bytes(usize),
    /// Length stored at this offset.
    At(usize),
}

/// Upper bound of the length of a structure, except for a catalog.
const BYTES_MAX: usize = 16 * BLOCK;

/// Recomputes the checksum of the structure that begins at block `at`, if there is one.
pub fn seal(image: &mut Image, at: u64) {
    let head = image.block(at);
    // The slot header contains the checksum of the catalog behind it, and a checksum of its own, which the table below
    // covers.
    if head.starts_with(b"BLKYDCAT") {
        let body = bytes(image, at + 1, u32_at(&head, 80).min(1 << 20));
        write(image, at, 84, crc32c(&body));
    }
    let head = image.block(at);
    for (magic, place, extent) in STRUCTURES {
        if head.starts_with(magic) {
            let len = match extent {
                Extent::Bytes(len) => len,
                Extent::At(place) => u32_at(&head, place).clamp(place + 4, BYTES_MAX),
            };
            let mut content = bytes(image, at, len);
            content[place..place + 4].fill(0);
            write(image, at, place, crc32c(&content));
        }
    }
    // A batch of a log device: header and records are covered by the checksum.
    if head.starts_with(b"BYLOGBAT") {
        let records = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let mut content = bytes(image, at, (64 + 64 * records).min(BYTES_MAX));
        content[12..16].fill(0);
        write(image, at, 12, crc32c(&content));
    }
}

fn u32_at(block: &[u8], at: usize) -> usize {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]) as usize
}

fn bytes(image: &Image, at: u64, len: usize) -> Vec<u8> {
    let blocks = (at..).take(len.div_ceil(BLOCK));
    let mut bytes: Vec<u8> = blocks.flat_map(|block| image.block(block)).collect();
    bytes.truncate(len);
    bytes
}

fn write(image: &mut Image, at: u64, place: usize, checksum: u32) {
    let mut block = image.block(at);
    block[place..place + 4].copy_from_slice(&checksum.to_le_bytes());
    image.put(at, &block);
}
