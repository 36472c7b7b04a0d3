//! Test vectors: the first 16 bytes of each structure on disk. They contain its checksum and thus fix all of
//! its bytes.

use super::disk::block_on;
use super::world::World;
use crate::layout::STATE_PLACES;
use crate::maplog::{self, LogBlock, LogIdentity, Record};
use crate::tree::{Key, Page, PageIdentity};
use crate::{owner, slot, state_copy};
use cluster::Claim;
use uuid::Uuid;

const POOL: Uuid = Uuid::from_u128(1);
const DISK: Uuid = Uuid::from_u128(2);
const MAP: LogIdentity = LogIdentity { family: Uuid::from_u128(4), birth: 7 };

#[test]
fn structures_of_a_disk_are_written_as_they_were() {
    let claim = Claim {
        node: Uuid::from_u128(5),
        name: "a".into(),
        boot_instance: Uuid::from_u128(6),
        machine: Some(Uuid::from_u128(7)),
        epoch: 8,
        beat: 9,
        claimed_at: 10,
        released: true,
    };
    assert_eq!(owner::emit(&claim, POOL, DISK)[..16], *b"BLKYDOWN\x01\0\0\0\x1f\xfc\x11\xae");
    assert_eq!(slot::emit(POOL, DISK, 9, b"catalog", false)[..16], *b"BLKYDCAT\x01\0\0\0\xb7PBA");
    let world = World::blank(1);
    block_on(state_copy::write(&*world.disks[0], (POOL, DISK), (1, 77), b"state")).unwrap();
    assert_eq!(world.disks[0].block(STATE_PLACES[1])[..16], *b"BLKYDSTA\x01\0\0\0\xe3\x8b4/");
}

#[test]
fn structures_of_a_map_are_written_as_they_were() {
    let page = PageIdentity { family: [4; 16], birth: 7, number: 90, generation: 12 };
    assert_eq!(Page::emit(page, 1, &[(Key::version(1, 2, 3), 4)]).bytes()[..16], *b"BLKYDPAG\0\xf4h\xf6\x01\0\x01\0");
    let records = vec![Record::put(Key::version(1, 2, 3), 4)];
    let block = LogBlock { sequence: 77, serial: 5, life: 3, back: 1, records };
    let mut bytes = vec![0; 4096];
    maplog::emit(MAP, &block, &block.records, &mut bytes);
    assert_eq!(bytes[..16], *b"BLKYDLOG\xe2\xf0\x14\x01\x01\0\0\0");
}
