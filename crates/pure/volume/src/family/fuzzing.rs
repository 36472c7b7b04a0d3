//! Properties of single map blocks with arbitrary bytes; see [`crate::fuzzing`].

use super::head::{Head, REGIONS_MAX, Region};
use super::page_space::{LOG_START, PageSpace};
use crate::maplog::{LogIdentity, LogSlot, RECORDS_MAX, emit, parse, replay, salvage_log};
use crate::tree::{FANOUT, Page, PageIdentity, parse_page};
use block::Buf;
use uuid::Uuid;

const BLOCK: usize = 4096;

/// Identity of the family, as the block itself states it.
fn identity(block: &[u8]) -> LogIdentity {
    LogIdentity { family: uuid_at(block, 16), birth: u64_at(block, 32) }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

/// Head: encoding a parsed head again yields the same head.
pub fn head(block: &[u8]) {
    let identity = identity(block);
    let Some(head) = Head::parse(identity, block) else { return };
    assert!(head.regions.len() <= REGIONS_MAX);
    assert_eq!(Head::parse(identity, &head.emit(identity)), Some(head));
}

/// Tree page: encoding a parsed page again yields the same page, and its keys ascend.
pub fn page(block: &[u8]) {
    let (identity, number) = (identity(block), u64_at(block, 40));
    let family = *identity.family.as_bytes();
    let parsed = |bytes: &[u8]| parse_page(Buf::copy_of(bytes).freeze(), family, identity.birth, number);
    let Ok((page, generation)) = parsed(block) else { return };
    let entries: Vec<_> = page.iter().collect();
    assert!((1..=FANOUT).contains(&entries.len()) && entries.is_sorted_by(|a, b| a.0 < b.0));
    let place = PageIdentity { family, birth: identity.birth, number, generation };
    let (again, of) = parsed(Page::emit(place, page.level(), &entries).bytes()).expect("what is written is whole");
    assert_eq!((again.iter().collect::<Vec<_>>(), again.level(), of), (entries, page.level(), generation));
    for (key, _) in again.iter() {
        assert_eq!(again.entry(again.rank(key) - 1).0, key);
    }
}

/// Bitmap of a region: it never frees blocks with a fixed use, and encoding it again yields the same bits.
pub fn bits(block: &[u8]) {
    let (identity, region) = (identity(block), u64_at(block, 40));
    let told = Region { generation: u64_at(block, 48), copy: 0 };
    let Ok(region) = usize::try_from(region) else { return };
    if PageSpace::admit(block, identity, region, told).is_err() || region > 1 {
        return;
    }
    let of = |page: &[u8]| {
        let mut space = PageSpace::new(20);
        space.extend(40_000);
        space.read(page, identity, region, told).map(|()| space)
    };
    let Ok(mut space) = of(block) else { return };
    let again = of(&space.emit(identity, region, told.generation)).expect("what is written is whole");
    assert!((0..40_000).all(|page| again.is_taken(page) == space.is_taken(page)));
    let mut given = 0;
    while let Some(page) = space.allocate() {
        assert!((LOG_START + 20..40_000).contains(&page) && !space.is_for_bits(page), "page {page} has another use");
        given += 1;
    }
    assert_eq!(given, again.free());
}

/// Ring of log blocks, one for each of `blocks`: replay and salvage depend on their order alone.
pub fn ring(blocks: &[Vec<u8>], from: u64, serial: u64, life: u32) {
    let Some(first) = blocks.first() else { return };
    let (identity, places) = (identity(first), blocks.len() as u64);
    let slots: Vec<LogSlot> =
        (0..).zip(blocks).map(|(place, block)| LogSlot::of(identity, block, place, places)).collect();
    for block in slots.iter().filter_map(LogSlot::block) {
        assert!(block.records.len() <= RECORDS_MAX);
        let mut bytes = [0; BLOCK];
        emit(identity, block, &block.records, &mut bytes);
        assert_eq!(parse(identity, &bytes).as_ref(), Some(block));
    }
    let all: usize = slots.iter().filter_map(LogSlot::block).map(|block| block.records.len()).sum();
    let newest = slots.iter().filter_map(LogSlot::block).map(|block| block.life).max().unwrap_or(0);
    let left = salvage_log(&slots, from, serial, life);
    assert!(left.replay.records.len() <= all && left.replay.life > newest.max(life));
    let Ok(found) = replay(&slots, from, serial, life) else { return };
    assert!(found.sequence - from <= places && found.life > newest.max(life) && found.serial >= serial);
    assert!(left.replay.records.starts_with(&found.records), "what is whole is in the remains");
}

/// UUID at offset `at`; bytes beyond the end count as zeros.
pub(crate) fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    let bytes = bytes.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
    Uuid::from_bytes(bytes.unwrap_or_default())
}
