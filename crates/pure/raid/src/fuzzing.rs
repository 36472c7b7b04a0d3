//! Assertions of the fuzz targets about single on-disk structures, for arbitrary bytes. Built for them only.

use crate::bounds::BLOCK_BYTES;
use crate::on_disk::anchor::Anchor;
use crate::on_disk::batch::{HEADER_BYTES, Kind};
use crate::on_disk::{batch, page};
use block::View;

/// Asserts that a parsed anchor is unchanged when it is emitted and parsed again.
pub fn anchor(blocks: &[u8]) {
    let Some(anchor) = Anchor::parse(blocks) else { return };
    assert!(Anchor::parse(&anchor.emit()).is_some_and(|again| again == anchor), "an anchor is written as it was read");
}

/// Asserts that a parsed checksum page is unchanged when it is emitted and parsed again.
pub fn page(block: &[u8]) {
    let Some(id) = block.get(16..32).and_then(|id| id.try_into().ok()) else { return };
    let Some((place, found)) = page::parse_any(block, id) else { return };
    let again = page::emit(id, place, found.stamp, found.entries());
    let (of, again) = page::parse_any(&again, id).expect("what is written is whole");
    assert!(of == place && again.stamp == found.stamp && again.has(found.entries()));
}

/// Asserts that a parsed batch is unchanged when it is emitted and parsed again, and that its images lie within it.
pub fn batch(bytes: &[u8]) {
    let Some(header) = batch::parse_header(bytes) else { return };
    let Some(records) = batch::parse(bytes, &header) else { return };
    let tables = header.table_blocks() * if header.twice { 2 } else { 1 };
    assert!(header.table_bytes as usize >= HEADER_BYTES && tables <= u64::from(header.blocks));
    let end = u64::from(header.blocks) - (tables - header.table_blocks());
    let mut images = 0;
    for record in &records {
        let first = record.image.unwrap_or(end);
        assert!((header.table_blocks()..=end).contains(&first));
        images += if record.kind == Kind::Images { record.count } else { 0 };
    }
    assert_eq!(images, end - header.table_blocks(), "every image has its record");
    // Larger batches are never written; rebuilding them would only cost memory.
    if header.blocks > 64 {
        return;
    }
    let table = &bytes[HEADER_BYTES..header.table_bytes as usize];
    let written = batch::emit(&header, table, &[View::zeroed(images as usize * BLOCK_BYTES as usize)]);
    assert_eq!(batch::parse_header(&written), Some(header));
    assert_eq!(batch::parse(&written, &header), Some(records));
}
