//! Self-checking metadata on arrays without checksums: the valid copy wins, and the others are rewritten.

use crate::bench::{Bench, noise};
use crate::disk::BLOCK;
use block::{BlockDevice, Extent, Lba, View};
use raid::Level;

/// Damage to one copy of a block.
const DAMAGE: [&str; 4] = ["a bit", "zeros", "older", "another block"];

/// Content of block `number` in version `version`.
fn sealed(number: u64, version: u64) -> View {
    let mut block = noise(number << 8 | version, 1).into_buf();
    block[..8].copy_from_slice(&version.to_le_bytes());
    block[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = sum_of(&block);
    block[BLOCK - 8..].copy_from_slice(&sum.to_le_bytes());
    block.freeze()
}

fn sum_of(block: &[u8]) -> u64 {
    block[..BLOCK - 8].iter().fold(1, |sum: u64, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

fn version_of(number: u64, block: &[u8]) -> Option<u64> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
    (word(8) == number && word(BLOCK - 8) == sum_of(block)).then(|| word(0))
}

fn best(bench: &Bench, lba: u64) -> (Option<u64>, u64) {
    let array = bench.array.clone();
    let found = bench.run(async move {
        let rank = |block: &[u8]| version_of(lba, block);
        array.read_best(Extent::new(lba, 1), &rank).await
    });
    let found = found.expect("every copy can be read");
    (version_of(lba, &found.content), found.repaired)
}

#[test]
fn metadata_with_one_damaged_copy_is_read_from_the_other_and_rewritten() {
    for (level, members) in
        [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4), (Level::Raid5, 3), (Level::Raid6, 5)]
    {
        for (damage, lba) in DAMAGE.into_iter().flat_map(|damage| [0, 3, 9].map(|lba| (damage, lba))) {
            let bench = Bench::new(level, members, 2, 16);
            for number in 0..bench.layout().blocks().0 {
                let _ = bench.write(number, sealed(number, 7)).expect("healthy");
            }
            assert_eq!(best(&bench, lba), (Some(7), 0), "{level}: every copy is right");
            let (member, at) = bench.home(lba);
            let wrong = match damage {
                "a bit" => {
                    let mut block = sealed(lba, 7).into_buf();
                    block[77] ^= 1;
                    block.freeze()
                }
                "zeros" => View::zeroed(BLOCK),
                "older" => sealed(lba, 6),
                _ => sealed(lba + 1, 7),
            };
            let disk = bench.disk(member);
            let _ = bench.run(async move { disk.write(Lba(at), wrong).await }).expect("healthy");
            // With parity, an older block is intact, and nothing shows that a newer one exists.
            let expected = if matches!(level, Level::Raid5 | Level::Raid6) && damage == "older" {
                (Some(6), 0)
            } else {
                (Some(7), 1)
            };
            assert_eq!(best(&bench, lba), expected, "{level}, {damage}, block {lba}");
            if expected.1 > 0 {
                assert_eq!(
                    (best(&bench, lba), bench.mismatches()),
                    ((Some(7), 0), 0),
                    "{level}, {damage}, block {lba}"
                );
            }
        }
    }
}

#[test]
fn metadata_without_an_intact_copy_is_returned_unchanged() {
    let bench = Bench::new(Level::Raid1, 2, 2, 4);
    assert_eq!(best(&bench, 1), (None, 0), "zeros are for the caller to judge");
    let array = bench.array.clone();
    let found = bench.run(async move { array.read_best(Extent::new(0, 8), &|_| None).await }).expect("readable");
    assert_eq!((&*found.content, found.repaired), (&[0; 8 * BLOCK][..], 0));
}
