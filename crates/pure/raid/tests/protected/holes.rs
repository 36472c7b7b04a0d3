//! Decayed log batches with intact later ones behind them: their content is restored, or is an error, or the array
//! does not serve. The previous content is never returned.

use crate::bench::{Bench, Plan};
use crate::disk::{BLOCK, Content, Dice, Rack};
use crate::oracle::{content, run};
use block::{Buf, Extent, View};
use raid::{FindingKind, Level, OpenError, Outcome};
use std::collections::BTreeMap;
use std::rc::Rc;

const LEVELS: [(Level, usize); 7] = [
    (Level::Raid0, 1),
    (Level::Raid0, 3),
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid5, 3),
    (Level::Raid6, 4),
    (Level::Raid10, 4),
];
const DAMAGE: [&str; 4] = ["a bit", "zeros", "older", "another block"];
/// Blocks written alone, and so in a batch of their own.
const WRITTEN: [u64; 5] = [0, 3, 1, 2, 0];

/// Disks after a power cut behind a few acknowledged writes, none of which is in place.
struct Stopped {
    plan: Plan,
    before: Vec<Content>,
    disks: Vec<Content>,
}

/// Location of a batch's table: the disk, and the block.
type Tables = BTreeMap<u64, Vec<(usize, u64)>>;

fn stopped(level: Level, members: usize) -> Stopped {
    let plan = Plan { ring_blocks: 64, page_bytes: 1 << 20, ..Plan::small(level, members, true) };
    let bench = Bench::format(plan, 3);
    let _ = bench.write(0, run(2, Extent::new(0, bench.blocks()))).expect("well");
    bench.close();
    let before = bench.rack.disks.borrow().iter().map(|disk| disk.content()).collect();
    for (name, lba) in (10..).zip(WRITTEN) {
        let _ = bench.write(lba, content(name, lba)).expect("well");
    }
    let disks = bench.rack.cut().into_iter().map(|left| left.durable).collect();
    Stopped { plan, before, disks }
}

impl Stopped {
    fn ring(&self) -> Extent {
        self.plan.shape().area().expect("a valid shape").ring
    }

    fn word(block: &View, at: usize) -> u64 {
        u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Tables of the batches behind the last checkpoint, by batch number.
    fn tables(&self) -> Tables {
        let mut tables = Tables::new();
        for (disk, content) in self.disks.iter().enumerate() {
            for (&at, block) in content.range(self.ring().start.0..self.ring().end().0) {
                if block.starts_with(b"BLKYREDO") && self.before[disk].get(&at).is_none_or(|old| **old != **block) {
                    tables.entry(Self::word(block, 40)).or_default().push((disk, at));
                }
            }
        }
        tables
    }

    fn damaged(&self, disk: usize, at: u64, how: &str) -> View {
        let zeros = View::zeroed(BLOCK);
        let now = self.disks[disk].get(&at).unwrap_or(&zeros);
        match how {
            "a bit" => {
                let mut block = now.clone().into_buf();
                block[41] ^= 4;
                block.freeze()
            }
            "zeros" => zeros,
            "older" => self.before[disk].get(&at).unwrap_or(&zeros).clone(),
            _ => self.disks[disk].get(&0).unwrap_or(&zeros).clone(),
        }
    }

    /// Opens the array with these blocks damaged.
    fn open(&self, damage: &[(usize, u64)], how: &str, accepts_loss: bool) -> Result<(Bench, raid::Opened), OpenError> {
        Bench::open(Plan { accepts_loss, ..self.plan }, self.rack(damage, how), &[], &[])
    }

    fn rack(&self, damage: &[(usize, u64)], how: &str) -> Rc<Rack> {
        let rack = Rack::new(Dice::new(5));
        for (number, content) in self.disks.iter().enumerate() {
            let mut content = content.clone();
            for &(_, at) in damage.iter().filter(|&&(disk, _)| disk == number) {
                content.insert(at, self.damaged(number, at, how));
            }
            rack.add(self.plan.disk_blocks(), true, content);
        }
        rack
    }
}

/// Last content of block `lba`, without the writes of these batches.
fn expected(lba: u64, without: &[usize]) -> View {
    let last = (0..WRITTEN.len()).rev().find(|n| WRITTEN[*n] == lba && !without.contains(n));
    content(last.map_or(2, |last| 10 + last as u64), lba)
}

/// Asserts that exactly these blocks are errors; all others have their last content.
fn lost(bench: &Bench, what: &str) -> Vec<u64> {
    let mut lost = Vec::new();
    for lba in 0..bench.blocks() {
        match bench.read(Extent::new(lba, 1)) {
            Ok(found) => assert!(found == *expected(lba, &[]), "{what}: block {lba} is not what was written last"),
            Err(_) => lost.push(lba),
        }
    }
    lost
}

#[test]
fn batch_with_one_decayed_table_is_replayed() {
    for (level, members) in LEVELS {
        let stopped = stopped(level, members);
        let tables = stopped.tables();
        assert_eq!(tables.len(), WRITTEN.len(), "{level}: a batch for each write");
        for ((number, copies), how) in tables.iter().flat_map(|batch| DAMAGE.map(|how| (batch, how))) {
            assert!(copies.len() > 1, "{level} of {members}: batch {number} has a second table");
            for &copy in copies {
                let what = format!("{level} of {members}, batch {number}, {copy:?} is {how}");
                let (bench, opened) =
                    stopped.open(&[copy], how, false).unwrap_or_else(|error| panic!("{what}: {error}"));
                // A batch that goes to one member alone has its images beside that table, where they are intact.
                assert_eq!((opened.batches, lost(&bench, &what)), (WRITTEN.len() as u64, Vec::new()), "{what}");
            }
        }
    }
}

/// A mirror loses a member while another one joins. The joining member takes no batch, so the last one that counts has
/// both tables.
#[test]
fn batch_has_two_tables_where_one_member_is_left_beside_one_that_joins() {
    let small = Plan::small(Level::Raid1, 2, true);
    let plan = Plan { ring_blocks: 64, page_bytes: 1 << 20, spare: true, ..small };
    let bench = Bench::format(plan, 3);
    let _ = bench.write(0, run(2, Extent::new(0, bench.blocks()))).expect("well");
    bench.close();
    let before = bench.rack.disks.borrow().iter().map(|disk| disk.content()).collect();
    let (array, disk) = (bench.array.clone(), bench.disk(2));
    // The first write to the new member erases its anchors.
    disk.stall_next_write.set(Some(0));
    let added = bench.begin(async move { array.add_member(disk).await });
    bench.settle();
    assert!(added.take().is_none(), "the member is still joining");
    bench.fail(0);
    for (name, lba) in (10..).zip(WRITTEN) {
        let _ = bench.write(lba, content(name, lba)).expect("well");
    }
    let disks = bench.rack.cut().into_iter().map(|left| left.durable).collect();
    let stopped = Stopped { plan, before, disks };
    let tables = stopped.tables();
    assert_eq!(tables.len(), WRITTEN.len(), "a batch for each write");
    for (number, copies) in &tables {
        assert_eq!(copies.iter().map(|(disk, _)| *disk).collect::<Vec<_>>(), [1, 1], "batch {number}");
        for &copy in copies {
            let what = format!("batch {number} without {copy:?}");
            let rack = stopped.rack(&[copy], "zeros");
            let (bench, opened) = Bench::open(plan, rack, &[0], &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(opened.not_joined, "{what}");
            assert_eq!((opened.batches, lost(&bench, &what)), (WRITTEN.len() as u64, Vec::new()), "{what}");
        }
    }
}

#[test]
fn batch_without_a_readable_table_blocks_opening_until_the_loss_is_accepted() {
    for (level, members) in LEVELS {
        let stopped = stopped(level, members);
        let tables = stopped.tables();
        let last = *tables.keys().next_back().expect("there are batches");
        for (n, (&number, copies)) in tables.iter().enumerate().filter(|(_, (number, _))| **number != last) {
            for how in DAMAGE {
                let what = format!("{level} of {members}, batch {number} is {how}");
                let rack = stopped.rack(copies, how);
                let writes = || rack.disks.borrow().iter().map(|disk| disk.counts.writes.get()).sum::<u64>();
                let refused = Bench::open(stopped.plan, rack.clone(), &[], &[]).err();
                let hole = number..number + 1;
                assert_eq!(refused, Some(OpenError::LogDamaged(vec![hole.clone()])), "{what}");
                assert_eq!(writes(), 0, "{what}");
                let (bench, opened) = stopped.open(copies, how, true).expect("the loss is accepted");
                assert_eq!((opened.lost_batches, opened.batches), (vec![hole], WRITTEN.len() as u64 - 1), "{what}");
                for lba in 0..bench.blocks() {
                    match bench.read(Extent::new(lba, 1)) {
                        Ok(found) => assert!(found == *expected(lba, &[n]), "{what}: block {lba} is as the others say"),
                        // The new content is in place, but its entry is old.
                        Err(error) => assert_eq!(lba, WRITTEN[n], "{what}: {error}"),
                    }
                }
                let (_, opened) = bench.reopen();
                assert_eq!((opened.lost_batches, opened.batches), (Vec::new(), 0), "{what}: it is over");
            }
        }
    }
}

#[test]
fn last_batch_that_is_torn_was_never_acknowledged() {
    for (level, members) in LEVELS {
        let stopped = stopped(level, members);
        let tables = stopped.tables();
        let (_, copies) = tables.last_key_value().expect("there are batches");
        let (bench, opened) = stopped.open(copies, "zeros", false).expect("that is the end of the log");
        assert_eq!((opened.batches, opened.lost_batches.len()), (WRITTEN.len() as u64 - 1, 0), "{level}");
        assert_eq!(bench.read(Extent::new(0, 1)).expect("well"), *expected(0, &[WRITTEN.len() - 1]), "{level}");
    }
}

/// A power cut leaves no unreadable block: the last batch may have been acknowledged, so it is not the end of the
/// log.
#[test]
fn last_batch_that_cannot_be_read_is_damage() {
    for (level, members) in LEVELS {
        let stopped = stopped(level, members);
        let tables = stopped.tables();
        let (&number, copies) = tables.last_key_value().expect("there are batches");
        let unreadable = |places: &[(usize, u64)]| {
            let rack = stopped.rack(&[], "zeros");
            for &(disk, at) in places {
                rack.disks.borrow()[disk].bad.borrow_mut().insert(at);
            }
            rack
        };
        let rack = unreadable(copies);
        let refused = Bench::open(stopped.plan, rack.clone(), &[], &[]).err();
        // With both tables of the only member lost, nothing shows that there was a batch.
        let hole = (members > 1).then(|| OpenError::LogDamaged(vec![number..number + 1]));
        assert_eq!(refused, hole, "{level} of {members}");
        if members > 1 {
            let (bench, _) =
                Bench::open(Plan { accepts_loss: true, ..stopped.plan }, rack, &[], &[]).expect("accepted");
            let (_, opened) = bench.reopen();
            assert_eq!(opened.lost_batches, Vec::new(), "{level} of {members}: it is over");
        }
        let (bench, opened) = Bench::open(stopped.plan, unreadable(&copies[..1]), &[], &[]).expect("a table is left");
        let what = format!("{level} of {members}");
        assert_eq!((opened.batches, lost(&bench, &what)), (WRITTEN.len() as u64, Vec::new()), "{what}");
        let (_, at) = copies[0];
        let images: Vec<(usize, u64)> = copies.iter().map(|&(disk, _)| (disk, at + 1)).collect();
        let (bench, opened) = Bench::open(stopped.plan, unreadable(&images), &[], &[]).expect("its table is there");
        assert_eq!(opened.batches, WRITTEN.len() as u64, "{what}");
        let found = lost(&bench, &what);
        let has_parity = matches!(level, Level::Raid5 | Level::Raid6);
        assert!(found.is_empty() || (!has_parity && found == [WRITTEN[WRITTEN.len() - 1]]), "{what}: {found:?}");
    }
}

/// A power cut has torn the images of the last batch on every member, and as many members as the level tolerates
/// cannot read one of them. The others never had it, so the batch was not acknowledged, and its blocks keep their
/// content.
#[test]
fn last_batch_that_is_torn_on_one_member_and_cannot_be_read_on_others_was_never_acknowledged() {
    for (level, members) in LEVELS.into_iter().filter(|&(level, _)| level != Level::Raid0) {
        let stopped = stopped(level, members);
        let tables = stopped.tables();
        let (_, copies) = tables.last_key_value().expect("there are batches");
        let (lane, at) = copies[0];
        let blocks = u64::from(u32::from_le_bytes(stopped.disks[lane][&at][56..60].try_into().expect("four bytes")));
        let layout = stopped.plan.shape().layout().expect("a valid shape");
        let images: Vec<(usize, u64)> =
            (0..members).flat_map(|disk| (1..blocks).map(move |image| (disk, at + image))).collect();
        let bears = |set: &u16| layout.survives((0..members as u16).filter(|member| set & 1 << member != 0).collect());
        for (set, image) in (1..1 << members).filter(bears).flat_map(|set| (1..blocks).map(move |image| (set, image))) {
            let what = format!("{level} of {members}, members {set:#b} do not give back image {image}");
            let rack = stopped.rack(&images, "older");
            for disk in (0..members).filter(|disk| set & 1 << disk != 0) {
                rack.disks.borrow()[disk].bad.borrow_mut().insert(at + image);
            }
            let (bench, opened) =
                Bench::open(stopped.plan, rack, &[], &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((opened.batches, opened.lost_batches.len()), (WRITTEN.len() as u64 - 1, 0), "{what}");
            let found = bench.read(Extent::new(0, 1)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(found, *expected(0, &[WRITTEN.len() - 1]), "{what}");
        }
    }
}

#[test]
fn decayed_images_are_restored_from_redundancy_or_are_errors() {
    for (level, members) in LEVELS {
        let stopped = stopped(level, members);
        let tables = stopped.tables();
        let numbers: Vec<u64> = tables.keys().copied().collect();
        for (n, number) in numbers.iter().enumerate().take(WRITTEN.len() - 1) {
            let (disk, at) = tables[number][0];
            let table = &stopped.disks[disk][&at];
            let blocks = u64::from(u32::from_le_bytes(table[56..60].try_into().expect("four bytes")));
            for image in 1..blocks {
                for how in DAMAGE {
                    let what = format!("{level} of {members}, image {image} of batch {number} is {how}");
                    let all: Vec<(usize, u64)> = (0..members).map(|disk| (disk, at + image)).collect();
                    let (bench, _) =
                        stopped.open(&all[..1], how, false).unwrap_or_else(|error| panic!("{what}: {error}"));
                    let bears = level != Level::Raid0;
                    let found = lost(&bench, &what);
                    assert!(found.is_empty() || !bears && found == [WRITTEN[n]], "{what}, on one disk: {found:?}");
                    let (bench, _) = stopped.open(&all, how, false).unwrap_or_else(|error| panic!("{what}: {error}"));
                    let found = lost(&bench, &what);
                    assert!(found.is_empty() || found == [WRITTEN[n]], "{what}, on all disks: {found:?}");
                    let has_parity = matches!(level, Level::Raid5 | Level::Raid6);
                    assert!(found.is_empty() || !has_parity, "{what}: parity gives it back: {found:?}");
                    let is_told = bench.findings.borrow().iter().any(|finding| finding.outcome == Outcome::Lost);
                    assert_eq!(is_told, !found.is_empty(), "{what}: {:?}", bench.findings.borrow());
                }
            }
        }
    }
}

#[test]
fn decayed_copy_of_a_batch_is_reported() {
    let stopped = stopped(Level::Raid5, 3);
    let mut copies = stopped.tables().into_values().next().expect("there are batches");
    copies.truncate(1);
    let rack = Rack::new(Dice::new(5));
    for (number, content) in stopped.disks.iter().enumerate() {
        let mut content = content.clone();
        if number == copies[0].0 {
            // In the records: the header still identifies the batch.
            let mut block: Buf = content[&copies[0].1].clone().into_buf();
            block[100] ^= 1;
            content.insert(copies[0].1, block.freeze());
        }
        rack.add(stopped.plan.disk_blocks(), true, content);
    }
    let (bench, _) = Bench::open(stopped.plan, rack, &[], &[]).expect("the other copy is whole");
    let told: Vec<_> = bench.findings.borrow().iter().map(|found| (found.member, found.kind, found.outcome)).collect();
    assert_eq!(told, [(copies[0].0 as u16, FindingKind::Log, Outcome::Healed)]);
}

/// Damage to the anchors of one member: a bit in one of them, both zeroed, or one far ahead with a valid checksum.
#[test]
fn decayed_anchors_of_one_member_lose_nothing_and_are_reported() {
    for (level, members) in LEVELS.into_iter().filter(|&(_, members)| members > 1) {
        for how in ["both zeroed", "ahead"] {
            for member in 0..members {
                let stopped = stopped(level, members);
                let rack = stopped.rack(&[], "");
                let disk = rack.disks.borrow()[member].clone();
                match how {
                    "both zeroed" => (0..8).for_each(|at| disk.overwrite(at, View::zeroed(BLOCK))),
                    _ => {
                        // The newest one is overwritten by one that claims a much later state.
                        let number =
                            |at: u64| u64::from_le_bytes(disk.block(at)[32..40].try_into().expect("eight bytes"));
                        let at = if number(0) > number(4) { 0 } else { 4 };
                        let mut all: Vec<u8> = (at..at + 3).flat_map(|at| disk.block(at).to_vec()).collect();
                        let far = number(at) + 40;
                        all[32..40].copy_from_slice(&far.to_le_bytes());
                        all[12..16].fill(0);
                        let check = simd::crc32c::crc32c(&all);
                        all[12..16].copy_from_slice(&check.to_le_bytes());
                        for (at, block) in (at..).zip(all.chunks(BLOCK)) {
                            disk.overwrite(at, Buf::copy_of(block).freeze());
                        }
                    }
                }
                let what = format!("{level} of {members}, anchors of {member}: {how}");
                let (bench, opened) =
                    Bench::open(stopped.plan, rack, &[], &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!((opened.rejected.len(), lost(&bench, &what)), (0, Vec::new()), "{what}");
                let is_told = bench
                    .findings
                    .borrow()
                    .iter()
                    .any(|finding| (finding.member, finding.kind) == (member as u16, FindingKind::Anchor));
                assert!(is_told, "{what}: {:?}", bench.findings.borrow());
                let (bench, _) = bench.reopen();
                assert!(bench.findings.borrow().is_empty(), "{what}: it was written again");
            }
        }
    }
}
