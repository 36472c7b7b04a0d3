//! Damage of every map block, in one copy and in both: one intact copy suffices, and without one the result is
//! an error.

use super::rig::*;
use crate::family::plan::MapRepair;
use crate::layout::{DATA_START, TAIL_BLOCKS};
use crate::tests::disk::block_on;
use crate::tests::world::{DISK_BLOCKS, Opened, TestPool, World, volume_id};
use crate::{PoolError, Provisioning, ThinPlan};
use block::{BlockDevice, Extent, IoErrorKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Disk index and block.
type At = (usize, u64);

/// Kind of damage to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Bit,
    Zeros,
    Unreadable,
    /// Another block of the same structure.
    Swapped,
}

const HARMS: [Harm; 4] = [Harm::Bit, Harm::Zeros, Harm::Unreadable, Harm::Swapped];

/// Two volumes with snapshots; the first has blocks of every kind, and changes in the log.
fn build(opened: &Opened) -> BTreeMap<u64, BTreeMap<u64, Stamp>> {
    let pool = &opened.pool;
    pool.tune(TUNING);
    for number in [1, 3] {
        let plan = ThinPlan { provisioning: Provisioning::Thin, granule_bytes: 16 << 10, ..thin_plan(number, 400) };
        let volume = block_on(pool.create_thin_volume(plan)).unwrap();
        (0..12).for_each(|at| write(&volume, at * 31, 9, at as Stamp + 1).unwrap());
        flush(&volume);
        snapshot(pool, number, number).unwrap();
        block_on(pool.open_family(volume_id(number)).unwrap().checkpoint()).unwrap();
        write(&volume, 100, 20, 50).unwrap();
        block_on(pool.open_family(volume_id(number)).unwrap().checkpoint()).unwrap();
        (0..3).for_each(|at| {
            write(&volume, at * 40, 5, 60 + at as Stamp).unwrap();
            flush(&volume);
        });
    }
    [1, 3].into_iter().map(|number| (number, contents(&open(pool, number)))).collect()
}

/// Map blocks that begin with `magic`.
fn blocks_with(world: &World, magic: &[u8]) -> Vec<At> {
    let mut found = Vec::new();
    for (disk, device) in world.disks.iter().enumerate() {
        let area = DATA_START..DISK_BLOCKS - TAIL_BLOCKS;
        found.extend(area.filter(|&block| device.block(block).starts_with(magic)).map(|block| (disk, block)));
    }
    found
}

const MAGICS: [&[u8]; 4] = [b"BLKYDMAP", b"BLKYDLOG", b"BLKYDPMP", b"BLKYDPAG"];

fn harm(world: &World, (disk, block): At, harm: Harm, other: At) {
    let disk = &world.disks[disk];
    let mut bytes = disk.block(block);
    match harm {
        Harm::Bit => bytes[70] ^= 4,
        Harm::Zeros => bytes.fill(0),
        Harm::Swapped => bytes = world.disks[other.0].block(other.1),
        Harm::Unreadable => {
            disk.unreadable.borrow_mut().insert(block);
        }
    }
    disk.scribble(block * 4096, &bytes);
}

/// Readable content of the volumes of the pool; none of a volume that does not open.
fn shown(pool: &TestPool, number: u64) -> Result<BTreeMap<u64, Result<Stamp, IoErrorKind>>, PoolError> {
    let volume = block_on(pool.open_thin_volume(volume_id(number)))?;
    let one = |block| match block_on(volume.read(Extent::new(block, 1))) {
        Ok(data) => Ok(stamps_of(block, &data.into_view()).expect("a block is of one write")[0]),
        Err(error) => Err(error.kind),
    };
    Ok((0..volume.geometry().blocks.0).map(|block| (block, one(block))).collect())
}

/// Checks that every block has the content written last or is an error; returns the number of errors.
fn errors(pool: &TestPool, number: u64, expected: &BTreeMap<u64, Stamp>) -> Result<usize, String> {
    let shown = match shown(pool, number) {
        Ok(shown) => shown,
        Err(PoolError::MapDamaged { .. }) => return Ok(usize::MAX),
        Err(error) => return Err(error.to_string()),
    };
    let mut errors = 0;
    for (block, found) in shown {
        match found {
            Ok(stamp) if stamp == expected.get(&block).copied().unwrap_or(0) => {}
            Err(IoErrorKind::Medium) => errors += 1,
            found => return Err(format!("volume {number}, block {block}: {found:?}, not {:?}", expected.get(&block))),
        }
    }
    Ok(errors)
}

/// Locations of identical blocks: a block and its copy.
fn pairs(world: &World, blocks: &[At]) -> Vec<(At, At)> {
    let content = |(disk, block): At| world.disks[disk].block(block);
    let mut pairs = Vec::new();
    for (at, &one) in blocks.iter().enumerate() {
        let other = blocks[at + 1..].iter().copied().find(|&other| content(other) == content(one));
        pairs.extend(other.map(|other| (one, other)));
    }
    pairs
}

fn striped(disks: usize) -> (World, BTreeMap<u64, BTreeMap<u64, Stamp>>) {
    let world = World::blank(disks);
    let opened = world.create_striped().unwrap();
    let expected = build(&opened);
    (world, expected)
}

/// Regression: the check overwrote the intact copy with the damaged one, which it had not been able to rewrite.
#[test]
fn copy_that_cannot_be_rewritten_does_not_cost_the_other() {
    let (world, expected) = striped(3);
    let pairs = pairs(&world, &blocks_with(&world, b"BLKYDPAG"));
    assert!(!pairs.is_empty());
    for (one, other) in pairs.iter().flat_map(|&(one, other)| [(one, other), (other, one)]) {
        for what in [Harm::Bit, Harm::Unreadable] {
            let again = World::of(world.images());
            harm(&again, one, what, other);
            again.disks[one.0].unwritable.borrow_mut().insert(one.1);
            let intact = again.disks[other.0].block(other.1);
            let opened = again.open().unwrap();
            block_on(opened.pool.check()).unwrap();
            assert!(again.disks[other.0].block(other.1) == intact, "{what:?} of {one:?}");
            for number in [1, 3] {
                assert_eq!(errors(&opened.pool, number, &expected[&number]), Ok(0), "{what:?} of {one:?}");
            }
        }
    }
}

fn one_copy_costs_nothing(disks: usize) {
    let (world, expected) = striped(disks);
    let mut tried = 0;
    for magic in MAGICS {
        let blocks = blocks_with(&world, magic);
        assert!(blocks.len() >= 4, "{} blocks of {}", blocks.len(), String::from_utf8_lossy(magic));
        for (at, &block) in blocks.iter().enumerate() {
            for what in HARMS {
                let again = World::of(world.images());
                harm(&again, block, what, blocks[(at + 1) % blocks.len()]);
                let opened = again.open().unwrap();
                let heard: Rc<RefCell<Vec<MapRepair>>> = Rc::default();
                let hears = heard.clone();
                opened.pool.on_map_repair(move |repair| hears.borrow_mut().push(repair));
                for number in [1, 3] {
                    let lost = errors(&opened.pool, number, &expected[&number]);
                    assert_eq!(lost, Ok(0), "{what:?} of {block:?}, {}", String::from_utf8_lossy(magic));
                }
                assert_sound(&opened.pool);
                // The rewritten copies are intact, and no repair is left to do.
                let before = heard.borrow().len();
                assert_sound(&opened.pool);
                assert_eq!(heard.borrow().len(), before, "{what:?} of {block:?}: {heard:?}");
                tried += 1;
            }
        }
    }
    println!("{tried} blocks were damaged");
    assert!(tried > 300);
}

#[test]
fn one_copy_of_any_block_of_a_map_costs_nothing_on_stripes() {
    one_copy_costs_nothing(3);
}

#[test]
fn one_copy_of_any_block_of_a_map_costs_nothing_on_a_single_disk() {
    one_copy_costs_nothing(1);
}

#[test]
fn copies_of_a_block_lie_on_different_members() {
    let (world, _) = striped(3);
    for magic in MAGICS {
        let blocks = blocks_with(&world, magic);
        let pairs = pairs(&world, &blocks);
        assert_eq!(pairs.len() * 2, blocks.len(), "every block of {} has a copy", String::from_utf8_lossy(magic));
        assert!(pairs.iter().all(|((one, _), (other, _))| one != other), "{pairs:?}");
    }
}

#[test]
fn both_copies_of_a_block_of_a_map_cost_errors_and_never_show_something_older() {
    let (world, expected) = striped(2);
    let (mut closed, mut bounded, mut whole) = (0, 0, 0);
    for magic in MAGICS {
        let blocks = blocks_with(&world, magic);
        for (one, other) in pairs(&world, &blocks) {
            for what in [Harm::Bit, Harm::Unreadable] {
                let again = World::of(world.images());
                harm(&again, one, what, one);
                harm(&again, other, what, other);
                let opened = again.open().unwrap();
                let told = |number| {
                    let lost = errors(&opened.pool, number, &expected[&number]);
                    lost.unwrap_or_else(|wrong| {
                        panic!("{what:?} of {one:?}, {}: {wrong}", String::from_utf8_lossy(magic))
                    })
                };
                let lost = [told(1), told(3)];
                assert!(lost.contains(&0), "a block of one map costs the other: {what:?} of {one:?}, {lost:?}");
                match lost[0].max(lost[1]) {
                    0 => whole += 1,
                    usize::MAX => closed += 1,
                    _ => bounded += 1,
                }
            }
        }
    }
    println!("{whole} times nothing was lost, {bounded} times some blocks, {closed} times a volume did not open");
    assert!(bounded > 0 && closed > 0);
}

#[test]
fn last_acknowledged_block_of_the_log_is_there_with_one_copy_and_an_error_with_none() {
    let (world, expected) = striped(3);
    let blocks = blocks_with(&world, b"BLKYDLOG");
    let family = |bytes: &[u8]| uuid::Uuid::from_slice(&bytes[16..32]).unwrap();
    let sequence = |bytes: &[u8]| u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let content = |&(disk, block): &At| world.disks[disk].block(block);
    let own = |at: &&At| family(&content(at)) == volume_id(1);
    let last = blocks.iter().filter(own).map(|at| sequence(&content(at))).max().unwrap();
    let copies: Vec<At> = blocks.iter().filter(own).filter(|at| sequence(&content(at)) == last).copied().collect();
    assert_eq!(copies.len(), 2);
    for what in [Harm::Bit, Harm::Unreadable] {
        let again = World::of(world.images());
        harm(&again, copies[0], what, copies[0]);
        assert_eq!(errors(&again.open().unwrap().pool, 1, &expected[&1]), Ok(0));
        harm(&again, copies[0], what, copies[0]);
        harm(&again, copies[1], what, copies[1]);
        let opened = again.open().unwrap();
        assert_eq!(errors(&opened.pool, 1, &expected[&1]), Ok(usize::MAX), "which blocks it changed is unknown");
        assert_eq!(errors(&opened.pool, 3, &expected[&3]), Ok(0));
    }
}

/// Modifies the entries of leaves with `change` and recomputes the checksums of the pages.
fn forge(world: &World, change: impl Fn(&mut [u8])) {
    for (disk, block) in blocks_with(world, b"BLKYDPAG") {
        let mut bytes = world.disks[disk].block(block);
        if bytes[14] == 0 {
            let count = usize::from(u16::from_le_bytes([bytes[12], bytes[13]]));
            bytes[64..64 + 24 * count].chunks_exact_mut(24).for_each(&change);
            bytes[8..12].fill(0);
            let checksum = simd::crc32c::crc32c(&bytes);
            bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
            world.disks[disk].scribble(block * 4096, &bytes);
        }
    }
}

/// Memory corrupted before the checksum was computed, or a deliberate attack on the daemon.
#[test]
fn places_that_are_nowhere_are_errors_until_they_are_written_and_end_nothing() {
    let (world, expected) = striped(2);
    // A group that does not exist; beyond the last granule of a slab; an impossible place.
    for place in [200 << 48, 0xff_ffff, u64::MAX] {
        let again = World::of(world.images());
        forge(&again, |entry| {
            let (is_version, value) = (entry[7] == 1, u64::from_le_bytes(entry[16..24].try_into().unwrap()));
            if is_version && value < (1 << 56) - 2 {
                entry[16..24].copy_from_slice(&place.to_le_bytes());
            }
        });
        let opened = again.open().unwrap();
        let lost = errors(&opened.pool, 1, &expected[&1]).unwrap();
        assert!(lost > 0 && lost < usize::MAX, "{place:#x}: {lost}");
        let volume = open(&opened.pool, 1);
        write(&volume, 0, 400, 90).unwrap();
        flush(&volume);
        assert_eq!(errors(&opened.pool, 1, &(0..400).map(|block| (block, 90)).collect()), Ok(0), "{place:#x}");
        assert!(!block_on(opened.pool.check()).unwrap().findings.is_empty());
    }
}

#[test]
fn place_that_two_versions_have_stops_the_changes_of_its_map_alone() {
    let (world, _) = striped(2);
    forge(&world, |entry| {
        let value = u64::from_le_bytes(entry[16..24].try_into().unwrap());
        if entry[7] == 1 && value < (1 << 56) - 2 {
            entry[16..24].copy_from_slice(&(value & !7).to_le_bytes());
        }
    });
    let opened = world.open().unwrap();
    let volume = open(&opened.pool, 1);
    let mut done = (0..400).step_by(4).map(|block| write(&volume, block, 4, 90).is_ok()).collect::<Vec<_>>();
    done.push(block_on(volume.discard(Extent::new(0, 400))).is_ok());
    done.push(block_on(volume.flush(block::Written::attest())).is_ok());
    assert!(done.contains(&false), "the map takes no change any more");
    assert!(block_on(opened.pool.create_thin_volume(thin_plan(5, 100))).is_ok(), "the pool does");
}

/// Host writes and flushes while each disk of `refusing` rejects `refusals` writes of map blocks; returns the
/// number of failed flushes. Acknowledged data must be present at every moment.
fn flushes_that_fail(refusing: &[usize], refusals: u32) -> u32 {
    let world = World::blank(3);
    let opened = world.create_striped().unwrap();
    let mut expected = build(&opened).remove(&1).unwrap();
    let volume = open(&opened.pool, 1);
    let found = |expected: &BTreeMap<u64, Stamp>| errors(&World::of(world.images()).open().unwrap().pool, 1, expected);
    let mut failed = 0;
    for round in 0..8u64 {
        // One granule each, so that an unacknowledged write is present or not as a whole.
        let blocks = 300 + round * 4..303 + round * 4;
        let stamp = 100 + round as Stamp;
        write(&volume, blocks.start, 3, stamp).unwrap();
        if round == 2 {
            refusing.iter().for_each(|&disk| world.disks[disk].refusals.set(refusals));
        }
        let mut newer = expected.clone();
        newer.extend(blocks.map(|block| (block, stamp)));
        while block_on(volume.flush(block::Written::attest())).is_err() {
            failed += 1;
            let (without, with) = (found(&expected), found(&newer));
            assert!(without == Ok(0) || with == Ok(0), "{refusals} refusals, round {round}: {without:?} {with:?}");
            assert!(failed < 100, "it never ends");
        }
        expected = newer;
        assert_eq!(found(&expected), Ok(0), "{refusals} refusals, round {round}");
    }
    assert_sound(&opened.pool);
    assert_sound(&World::of(world.images()).open().unwrap().pool);
    failed
}

#[test]
fn log_that_could_not_be_written_is_followed_by_a_checkpoint_and_another_log() {
    // When only the log fails, the flush makes a checkpoint and is acknowledged.
    for disk in 0..3 {
        assert_eq!(flushes_that_fail(&[disk], 1), 0);
    }
    // Here the checkpoint fails as well, for a while.
    for refusals in 1..12 {
        assert!(flushes_that_fail(&[0, 1, 2], refusals) > 0);
    }
}

/// Checks that the volume of `number` has the content `expected`, or an error, or older content where
/// `may_be_older` permits it; returns the numbers of older blocks and errors.
fn older(pool: &TestPool, number: u64, expected: &BTreeMap<u64, Stamp>) -> (usize, usize) {
    let (mut older, mut errors) = (0, 0);
    for (block, found) in shown(pool, number).unwrap() {
        match found {
            Ok(stamp) if stamp == expected.get(&block).copied().unwrap_or(0) => {}
            Ok(_) => older += 1,
            Err(_) => errors += 1,
        }
    }
    (older, errors)
}

#[test]
fn repair_uses_what_is_left_of_a_lost_map_only_when_the_loss_is_accepted_and_tells_it() {
    use crate::FindingKind;
    let (world, expected) = striped(2);
    let mut lossy = 0;
    for magic in [b"BLKYDMAP", b"BLKYDLOG"] {
        for (one, other) in pairs(&world, &blocks_with(&world, magic)) {
            let again = World::of(world.images());
            harm(&again, one, Harm::Bit, one);
            harm(&again, other, Harm::Bit, other);
            let opened = again.open().unwrap();
            opened.pool.tune(TUNING);
            let is_lost = |number| block_on(opened.pool.open_thin_volume(volume_id(number))).is_err();
            let Some(number) = [1, 3].into_iter().find(|&number| is_lost(number)) else { continue };
            let before = again.images().len();
            let found = block_on(opened.pool.check()).unwrap().findings;
            assert_eq!((found.len(), found[0].kind), (1, FindingKind::Lost), "{found:?}");
            assert!(found[0].what.contains("can be used"), "{}", found[0].what);
            assert_eq!((block_on(opened.pool.repair(false)).unwrap().findings, before), (found.clone(), 2));
            assert!(is_lost(number), "nothing is given up by itself");
            block_on(opened.pool.repair(true)).unwrap();
            assert_sound(&opened.pool);
            let (older, errors) = older(&opened.pool, number, &expected[&number]);
            println!("{number}: {older} older, {errors} errors: {}", found[0].what);
            // A lost log block of these tests records three granules of four blocks.
            assert!(older + errors <= 12, "{older} older, {errors} errors: {}", found[0].what);
            lossy += usize::from(older > 0);
            let volume = open(&opened.pool, number);
            write(&volume, 200, 8, 77).unwrap();
            flush(&volume);
            let later = World::of(again.images()).open().unwrap();
            assert_sound(&later.pool);
            assert_eq!(
                stamps_of(200, &block_on(open(&later.pool, number).read(Extent::new(200, 1))).unwrap().into_view()),
                Ok(vec![77])
            );
        }
    }
    assert!(lossy > 0);
}
