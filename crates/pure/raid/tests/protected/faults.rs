//! Disk faults: every kind on every level, healthy and degraded. A read returns what was written, or an error.

use crate::bench::{Bench, Plan, is_clean};
use crate::disk::BLOCK;
use crate::oracle::{content, run};
use block::{Extent, IoErrorKind, Lba, View};
use raid::geometry::{MemberSet, Role, Rows};
use raid::{FindingKind, Level, MemberState, Outcome, Repair};

/// Fault of a disk at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One bit flips.
    Rot,
    /// The block becomes zeros.
    Zeroed,
    /// Torn: some of its sectors are of an older write.
    Torn,
    /// The block cannot be read.
    Unreadable,
    /// Lost write: the last write was acknowledged and not executed.
    LostWrite,
    /// Misdirected write: the last write went to another block.
    MisdirectedWrite,
    /// Misdirected read: the next read returns another block.
    MisdirectedRead,
}

pub(crate) const FAULTS: [Fault; 7] = [
    Fault::Rot,
    Fault::Zeroed,
    Fault::Torn,
    Fault::Unreadable,
    Fault::LostWrite,
    Fault::MisdirectedWrite,
    Fault::MisdirectedRead,
];

fn levels() -> Vec<(Level, usize)> {
    vec![
        (Level::Raid0, 2),
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
        (Level::Raid10, 4),
    ]
}

fn plan(level: Level, members: usize, volatile: bool) -> Plan {
    Plan { chunk_blocks: 2, stripes: 4, ring_blocks: 64, ..Plan::small(level, members, volatile) }
}

/// Location of a block of the array: its member, and the block of its data.
fn home(bench: &Bench, lba: u64, copy: u16) -> (u16, u64) {
    let layout = bench.layout();
    let place = layout.locate(Lba(lba));
    let member = layout.member_of(place.stripe, Role::Data { column: place.column, copy });
    (member, layout.member_extent(place.stripe, Rows::new(place.row, place.row + 1)).start.0)
}

/// Creates a full array and closes it, with `failed` failed.
fn full(plan: Plan, seed: u64, failed: &[u16]) -> Bench {
    let bench = Bench::format(plan, seed);
    let blocks = bench.blocks();
    let _ = bench.write(0, run(1, Extent::new(0, blocks))).expect("well");
    let _ = bench.write(0, run(2, Extent::new(0, blocks))).expect("well");
    failed.iter().for_each(|&member| bench.fail(member));
    bench.close();
    bench
}

fn inject(bench: &Bench, fault: Fault, lba: u64, copy: u16) -> u64 {
    let (member, block) = home(bench, lba, copy);
    let (disk, at) = (bench.disk(member), bench.data() + block);
    let rows = bench.layout().member_blocks().0;
    let other = bench.data() + (block + 1) % rows;
    match fault {
        Fault::Rot => {
            let mut bytes = disk.block(at).into_buf();
            bytes[1000] ^= 0x10;
            disk.overwrite(at, bytes.freeze());
        }
        Fault::Zeroed => disk.overwrite(at, View::zeroed(BLOCK)),
        Fault::Torn => {
            let mut bytes = disk.block(at).into_buf();
            bytes[512..].copy_from_slice(&content(1, lba)[512..]);
            disk.overwrite(at, bytes.freeze());
        }
        Fault::Unreadable => drop(disk.bad.borrow_mut().insert(at)),
        Fault::LostWrite | Fault::MisdirectedWrite => {
            if fault == Fault::LostWrite {
                disk.lose_next_write.set(Some(at));
            } else {
                disk.misdirect_next_write.set(Some((at, other)));
            }
            let _ = bench.write(lba, content(3, lba)).expect("the disk says that it is well");
            return 3;
        }
        Fault::MisdirectedRead => disk.misdirect_next_read.set(Some((at, other))),
    }
    2
}

/// Checks the outcome of one fault; `spare` if redundancy is left to repair it.
pub(crate) fn judge(
    level: Level,
    members: usize,
    volatile: bool,
    failed: &[u16],
    fault: Fault,
    lba: u64,
) -> Result<(), String> {
    let bench = full(plan(level, members, volatile), lba, failed);
    let layout = bench.layout();
    let copies = layout.copies();
    let copy = (0..copies).find(|&copy| !failed.contains(&home(&bench, lba, copy).0));
    let Some(copy) = copy else { return Ok(()) };
    let (member, _) = home(&bench, lba, copy);
    if failed.contains(&member) {
        return Ok(());
    }
    let gone: MemberSet = failed.iter().copied().collect();
    let spare = layout.survives(gone.with(member));
    let name = inject(&bench, fault, lba, copy);
    // Mirrors are read in turn: each is read within this many reads.
    for _ in 0..2 * copies {
        for at in 0..bench.blocks() {
            let expected = content(if at == lba { name } else { 2 }, at);
            match bench.read(Extent::new(at, 1)) {
                Ok(found) if found == *expected => {}
                Ok(_) => return Err(format!("block {at} is not what was written")),
                Err(error) if !spare && error.kind == IoErrorKind::Medium && error.extent == Extent::new(at, 1) => {}
                Err(error) => return Err(format!("block {at}: {error}")),
            }
        }
    }
    let scrubbed = bench.scrub(Repair::Heal);
    if spare && (!is_clean(&bench.scrub(Repair::Report)) || scrubbed.lost > 0) {
        return Err(format!("not healed: {scrubbed:?}"));
    }
    let was_noted = bench.findings.borrow().iter().any(|finding| {
        let outcome = if spare { Outcome::Healed } else { Outcome::Lost };
        let kind = if fault == Fault::Unreadable { FindingKind::Unreadable } else { FindingKind::Mismatch };
        finding.member == member && (finding.outcome == outcome && finding.kind == kind)
    });
    // A misdirected read is correct when it is repeated.
    if was_noted || fault == Fault::MisdirectedRead { Ok(()) } else { Err("nobody was told".to_owned()) }
}

/// Runs all faults of a level, with and without a failed member.
pub(crate) fn judge_all(level: Level, members: usize, volatile: bool) -> Result<u64, String> {
    let mut cases = 0;
    let nobody: &[u16] = &[];
    for failed in [nobody, &[1]] {
        if level == Level::Raid0 && !failed.is_empty() {
            continue;
        }
        for (fault, lba) in FAULTS.into_iter().flat_map(|fault| [0, 3, 6].map(|lba| (fault, lba))) {
            judge(level, members, volatile, failed, fault, lba).map_err(|error| {
                format!("{level} of {members}, failed {failed:?}, {fault:?} of block {lba}: {error}")
            })?;
            cases += 1;
        }
    }
    Ok(cases)
}

#[test]
fn array_on_a_corrupting_disk_returns_correct_data_or_an_error() {
    let mut cases = 0;
    for (level, members) in levels() {
        cases += judge_all(level, members, true).unwrap_or_else(|error| panic!("{error}"));
    }
    cases += judge_all(Level::Raid10, 4, false).unwrap_or_else(|error| panic!("{error}"));
    println!("{cases} faults");
}

/// As many disks as the level tolerates decay during replay: content that was intact when the log was read need not
/// be when it is read again.
pub(crate) fn judge_rotten_opening(level: Level, members: usize) -> Result<(), String> {
    for (every, seed) in (1..=5).flat_map(|every| (0..4).map(move |seed| (every, seed))) {
        let bench = full(plan(level, members, true), seed, &[]);
        for (start, len) in [(0, 2), (3, 1), (1, 4), (0, 1)] {
            let _ = bench.write(start, run(3, Extent::new(start, len))).map_err(|error| error.to_string())?;
        }
        let bears = bench.array.tolerates();
        (0..bears).for_each(|member| bench.disk((member + seed as u16) % members as u16).rots_every.set(every));
        let (bench, opened) = bench.reopen();
        for at in 0..bench.blocks() {
            let expected = content(if at < 5 { 3 } else { 2 }, at);
            let found = bench.read(Extent::new(at, 1));
            if found.as_ref().ok() != Some(&expected.to_vec()) {
                let found = found.map(|_| "another content");
                return Err(format!("{level} of {members}, every {every}, {opened:?}: block {at} is {found:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn log_that_decays_while_it_is_replayed_loses_nothing() {
    for (level, members) in levels().into_iter().filter(|&(level, _)| level != Level::Raid0) {
        judge_rotten_opening(level, members).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Makes a copy of a page stale, damaged, or another page.
pub(crate) fn judge_pages(level: Level, members: usize) -> Result<(), String> {
    for (case, copy) in ["stale", "rotten", "another", "both"].into_iter().flat_map(|case| [(case, 0), (case, 1)]) {
        let bench = full(plan(level, members, true), 5, &[]);
        let area = bench.plan.shape().area().expect("a valid shape");
        let next = (1 % members) as u16;
        let homes = [(0, area.pages_a.start.0), (next, area.pages_b.start.0)];
        let (member, at) = homes[copy];
        let before = bench.disk(member).block(at);
        let _ = bench.write(0, run(3, Extent::new(0, bench.blocks()))).map_err(|error| error.to_string())?;
        bench.close();
        match case {
            "stale" => bench.disk(member).overwrite(at, before),
            "rotten" => bench.disk(member).overwrite(at, rotten(&bench.disk(member).block(at))),
            "another" => {
                // The page of the next or previous member was written here.
                let other = if copy == 0 { area.pages_b.start.0 } else { area.pages_a.start.0 };
                bench.disk(member).overwrite(at, bench.disk(member).block(other));
            }
            _ => homes.iter().for_each(|&(member, at)| {
                let disk = bench.disk(member);
                disk.overwrite(at, rotten(&disk.block(at)));
            }),
        }
        let (bench, _) = bench.reopen();
        let what = format!("{level} of {members}, copy {copy} is {case}");
        let may_lose = case == "both" && level == Level::Raid0;
        for at in 0..bench.blocks() {
            match bench.read(Extent::new(at, 1)) {
                Ok(found) if found == *content(3, at) => {}
                Ok(_) => return Err(format!("{what}: block {at} is not what was written")),
                Err(_) if may_lose => {}
                Err(error) => return Err(format!("{what}: {error}")),
            }
        }
        bench.scrub(Repair::Heal);
        let kind = if case == "stale" { FindingKind::PageStale } else { FindingKind::PageDamaged };
        let told = bench.findings.borrow().iter().any(|finding| finding.kind == kind && finding.member == member);
        if !told {
            return Err(format!("{what}: nobody was told"));
        }
        if !may_lose {
            let is_lost = bench.findings.borrow().iter().any(|finding| finding.outcome == Outcome::Lost);
            if is_lost {
                return Err(format!("{what}: a loss is told, and every block was read: {:?}", bench.findings.borrow()));
            }
            bench.close();
            let (bench, _) = bench.reopen();
            let scrubbed = bench.scrub(Repair::Report);
            if !is_clean(&scrubbed) || !bench.findings.borrow().is_empty() {
                return Err(format!("{what}: {scrubbed:?} {:?}", bench.findings.borrow()));
            }
        }
    }
    Ok(())
}

#[test]
fn wrong_checksum_page_is_detected_and_rewritten() {
    for (level, members) in levels() {
        judge_pages(level, members).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn content_restored_from_wrong_parity_is_rejected() {
    for (level, members, has_other) in [(Level::Raid5, 4, false), (Level::Raid6, 5, true)] {
        let bench = full(plan(level, members, true), 1, &[]);
        raid::bug_injection::inject(Some(raid::bug_injection::InjectedBug::WrongParity));
        let _ = bench.write(0, content(5, 0)).expect("nobody notices");
        raid::bug_injection::inject(None);
        bench.fail(home(&bench, 0, 0).0);
        match bench.read(Extent::new(0, 1)) {
            Ok(found) => assert!(has_other && found == *content(5, 0), "{level}"),
            Err(error) => assert!(!has_other && error.kind == IoErrorKind::Medium, "{level}: {error}"),
        }
    }
}

#[test]
fn stripe_with_two_wrong_blocks_is_restored_from_two_parities() {
    let bench = full(plan(Level::Raid6, 5, true), 1, &[]);
    for lba in [0, 2] {
        inject(&bench, Fault::Rot, lba, 0);
    }
    assert_eq!(
        bench.read(Extent::new(0, bench.blocks())).expect("two parities"),
        *run(2, Extent::new(0, bench.blocks()))
    );
    assert!(is_clean(&bench.scrub(Repair::Report)), "both were written back");
}

#[test]
fn unrecoverable_stripe_loses_exactly_the_wrong_blocks_until_they_are_written() {
    let bench = full(plan(Level::Raid5, 4, true), 1, &[]);
    for lba in [0, 2] {
        inject(&bench, Fault::Rot, lba, 0);
    }
    for lba in 0..bench.blocks() {
        let found = bench.read(Extent::new(lba, 1));
        match lba {
            0 | 2 => assert_eq!(found.expect_err("nobody knows it").extent, Extent::new(lba, 1)),
            _ => assert_eq!(found.expect("well"), *content(2, lba)),
        }
    }
    assert_eq!(bench.scrub(Repair::Heal).lost, 2);
    let _ = bench.write(0, run(4, Extent::new(0, 6))).expect("a whole stripe needs nothing of the old");
    assert!(is_clean(&bench.scrub(Repair::Report)));
    assert_eq!(bench.read(Extent::new(0, 6)).expect("written anew"), *run(4, Extent::new(0, 6)));
}

/// The copy stayed old, so with the other one missing its blocks had no checksum.
#[test]
fn page_copy_refused_by_a_member_is_written_by_a_later_checkpoint() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        for copy in [0, 1] {
            let bench = full(plan(level, members, true), 7, &[]);
            let area = bench.plan.shape().area().expect("a valid shape");
            let homes = [(0, area.pages_a.start.0), (1, area.pages_b.start.0)];
            // No member can be spared from now on.
            (members - usize::from(level.tolerates(members as u16))..members)
                .for_each(|member| bench.fail(member as u16));
            let (member, at) = homes[copy];
            bench.disk(member).stuck.borrow_mut().insert(at);
            let _ = bench.write(0, run(3, Extent::new(0, 1))).expect("degraded");
            bench.checkpoint();
            bench.disk(member).stuck.borrow_mut().clear();
            bench.checkpoint();
            let copies = homes.map(|(member, at)| bench.disk(member).block(at));
            assert_eq!(bench.state(member), MemberState::InService, "{level} {copy}: it cannot be spared");
            assert_eq!(*copies[0], *copies[1], "{level} {copy}: both copies are of one write");
        }
    }
}

/// A copy of a page, or an anchor, decays while its content is cached, and then the other copy is lost.
#[test]
fn checksums_that_decay_unread_are_found_by_a_scrub() {
    for (level, members) in levels().into_iter().filter(|&(level, _)| level != Level::Raid0) {
        for copy in [0, 1] {
            let bench = full(plan(level, members, true), 7, &[]);
            let area = bench.plan.shape().area().expect("a valid shape");
            let homes = [(0, area.pages_a.start.0), (1, area.pages_b.start.0)];
            let older = homes.map(|(member, at)| bench.disk(member).block(at));
            let _ = bench.write(0, run(3, Extent::new(0, bench.blocks()))).expect("healthy");
            bench.checkpoint();
            assert_eq!((bench.scrub_metadata(), bench.findings.borrow().len()), (0, 0), "{level}: all is right");
            let (member, at) = homes[copy];
            bench.disk(member).overwrite(at, older[copy].clone());
            for anchor in [0, 4] {
                let disk = bench.disk(0);
                disk.overwrite(anchor, rotten(&disk.block(anchor)));
            }
            assert_eq!(bench.scrub_metadata(), 2, "{level}, copy {copy}: {:?}", bench.findings.borrow());
            let kinds: Vec<_> = bench.findings.take().iter().map(|found| (found.member, found.kind)).collect();
            assert_eq!(kinds, [(0, FindingKind::Anchor), (member, FindingKind::PageStale)], "{level}");
            assert_eq!((bench.scrub_metadata(), bench.findings.borrow().len()), (0, 0), "{level}: it was written anew");
            let (member, at) = homes[1 - copy];
            let disk = bench.disk(member);
            disk.overwrite(at, rotten(&disk.block(at)));
            let (bench, opened) = bench.reopen();
            assert!(opened.rejected.is_empty(), "{level}: {opened:?}");
            let found = bench.read(Extent::new(0, bench.blocks())).expect("one copy of each page suffices");
            assert_eq!(found, *run(3, Extent::new(0, bench.blocks())), "{level}");
        }
    }
}

fn rotten(view: &View) -> View {
    let mut bytes = view.clone().into_buf();
    bytes[77] ^= 1;
    bytes.freeze()
}
