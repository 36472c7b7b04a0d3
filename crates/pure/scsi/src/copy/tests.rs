mod long;
mod tokens;

use super::*;
use crate::rig::*;
use crate::{AccessState, Command, LogicalUnit, Options, Outcome, PortGroup, Status, TaskManagement, TaskTag};
use block::Buf;
use futures_util::FutureExt;
use std::cell::{Cell, RefCell};
use std::slice;

type TestUnit = Rc<LogicalUnit<Bench>>;

/// Set of units with their mappings, as the copy manager sees them.
#[derive(Default)]
struct TestEnvironment {
    lots: RefCell<Vec<TestMapping>>,
    now: Cell<Duration>,
    drawn: Cell<u8>,
}

/// Unit with the nexuses that it is mapped to, each with or without write access.
type TestMapping = (TestUnit, Vec<(NexusId, bool)>);

impl CopyEnvironment for TestEnvironment {
    fn mapped_units(&self, asker: &CopyPrincipal) -> Vec<MappedUnit> {
        let seen = |(unit, seers): &TestMapping| {
            let &(_, read_only) = seers.iter().find(|(seer, _)| *seer == asker.nexus)?;
            Some(MappedUnit { identity: unit.identity().clone(), read_only, unit: Rc::new(TestCopyUnit(unit.clone())) })
        };
        self.lots.borrow().iter().filter_map(seen).collect()
    }

    fn now(&self) -> Duration {
        self.now.get()
    }

    fn random(&self, out: &mut [u8]) {
        self.drawn.set(self.drawn.get().wrapping_add(1));
        out.fill(self.drawn.get());
    }
}

struct TestCopyUnit(TestUnit);

impl CopyUnit for TestCopyUnit {
    fn geometry(&self) -> CopyFuture<'_, Option<Geometry>> {
        Box::pin(std::future::ready(Some(self.0.device().geometry.get())))
    }

    fn read(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<Rope, Sense>> {
        Box::pin(async move { self.0.copy_read(&asker, extent).await })
    }

    fn run(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<Run, Sense>> {
        Box::pin(async move { self.0.copy_run(&asker, extent).await })
    }

    fn discard(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<(), Sense>> {
        Box::pin(async move { self.0.copy_discard(&asker, extent).await })
    }

    fn token(
        &self,
        _: CopyPrincipal,
        token: Box<[u8; 512]>,
        deletes: bool,
    ) -> CopyFuture<'_, Result<Vec<Extent>, Sense>> {
        Box::pin(std::future::ready(self.0.copy_token(&token, deletes)))
    }

    fn write(&self, asker: CopyPrincipal, start: Lba, data: View) -> CopyFuture<'_, Result<(), Sense>> {
        Box::pin(async move { self.0.copy_write(&asker, start, data).await })
    }
}

/// Creates a unit with this number in the set, filled with its number.
fn move_in(street: &Rc<TestEnvironment>, number: u8, block_bytes: u32, seers: &[(NexusId, bool)]) -> TestUnit {
    move_in_over(street, number, Bench::new(block_bytes, BLOCKS), seers)
}

fn move_in_over(street: &Rc<TestEnvironment>, number: u8, bench: Bench, seers: &[(NexusId, bool)]) -> TestUnit {
    let mut identity = identity();
    (identity.naa[15], identity.uuid[15]) = (number, number);
    bench.bytes.borrow_mut().fill(number);
    let unit = LogicalUnit::new(bench, identity, Options::default()).with_copy_environment(street.clone());
    for (nexus, relative) in [(HOST, 1), (OTHER, 2)] {
        unit.attach(nexus, initiator(relative), port(relative));
        assert_eq!(sense(&run(&unit, nexus, &[0; 6], &[])), (6, 0x29, 0));
    }
    let unit = Rc::new(unit);
    street.lots.borrow_mut().push((unit.clone(), seers.to_vec()));
    unit
}

/// HOST sees units 1 and 2, OTHER sees units 3 and 4.
fn two_tenants() -> [TestUnit; 4] {
    let street = Rc::new(TestEnvironment::default());
    [(1, HOST), (2, HOST), (3, OTHER), (4, OTHER)]
        .map(|(number, nexus)| move_in(&street, number, 512, &[(nexus, false)]))
}

/// Builds an identification descriptor CSCD descriptor.
fn cscd(unit: &TestUnit, kind: u8) -> Vec<u8> {
    let designator = match kind {
        0x3 => unit.identity().naa.to_vec(),
        _ => [&[0x10, 0], &unit.identity().uuid[..]].concat(),
    };
    let mut descriptor = vec![0xE4, 0, 0, 0, 1, kind, 0, designator.len() as u8];
    descriptor.extend(designator);
    descriptor.resize(28, 0);
    descriptor.extend(unit.device().geometry.get().block_bytes.to_be_bytes());
    descriptor
}

/// Builds a block device to block device segment.
fn segment(ends: (u16, u16), blocks: u16, lbas: (u64, u64)) -> Vec<u8> {
    let mut descriptor = vec![0x02, 0, 0, 24];
    descriptor.extend(ends.0.to_be_bytes());
    descriptor.extend(ends.1.to_be_bytes());
    descriptor.extend([0, 0]);
    descriptor.extend(blocks.to_be_bytes());
    descriptor.extend(lbas.0.to_be_bytes());
    descriptor.extend(lbas.1.to_be_bytes());
    descriptor
}

/// Builds a block device to block device segment with offset; each end is its CSCD descriptor ID, its block, and the
/// bytes behind that.
fn offset_segment(bytes: u32, source: (u16, u64, u16), destination: (u16, u64, u16)) -> Vec<u8> {
    let mut descriptor = vec![0x0A, 0, 0, 28];
    descriptor.extend([source.0, destination.0].map(u16::to_be_bytes).concat());
    descriptor.extend(bytes.to_be_bytes());
    descriptor.extend([source.1, destination.1].map(u64::to_be_bytes).concat());
    descriptor.extend([source.2, destination.2].map(u16::to_be_bytes).concat());
    descriptor
}

fn list(cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![7, 0];
    list.extend((cscds.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    [list, cscds, segments].concat()
}

fn cdb(list: &[u8]) -> [u8; 16] {
    cdb16(0x83, 0, 0, list.len() as u32)
}

fn copy(unit: &TestUnit, nexus: NexusId, list: &[u8]) -> Outcome {
    run(unit, nexus, &cdb(list), list)
}

/// Orders a copy of 8 blocks from block 0 of `from` to block 8 of `to`, on behalf of HOST at `manager`.
fn ask_for_copy(manager: &TestUnit, from: &TestUnit, to: &TestUnit) -> Outcome {
    copy(manager, HOST, &list(&[cscd(from, 3), cscd(to, 3)], &[segment((0, 1), 8, (0, 8))]))
}

fn holds(unit: &TestUnit, from: u64, count: u64, byte: u8) -> bool {
    blocks(unit, from, count).iter().all(|&found| found == byte)
}

const NOT_REACHABLE: (u8, u8, u8) = (0xA, 0x0D, 0x02);
const UNREACHABLE: (u8, u8, u8) = (0xA, 0x08, 0x04);
const THIRD_PARTY: (u8, u8, u8) = (0xA, 0x0D, 0x01);

#[test]
fn copy_moves_blocks_between_units_that_the_nexus_sees() {
    let [one, two, ..] = two_tenants();
    for kind in [0x3, 0xA] {
        let list =
            list(&[cscd(&one, kind), cscd(&two, kind)], &[segment((0, 1), 8, (0, 8)), segment((1, 0), 1, (8, 255))]);
        good(copy(&two, HOST, &list));
        assert!(holds(&two, 8, 8, 1) && holds(&two, 16, 8, 2) && holds(&two, 0, 8, 2), "exactly these blocks");
        assert!(holds(&one, 255, 1, 1));
        two.device().bytes.borrow_mut().fill(2);
    }
    let own = list(&[cscd(&one, 3)], &[segment((SELF_ID, 0), 2, (100, 30))]);
    good(copy(&two, HOST, &own));
    assert!(holds(&one, 30, 2, 2), "FFFFh is the unit that is asked");
    assert_eq!(ops(&two).last(), Some(&Op::Read(100, 2)));
}

const SELF_ID: u16 = 0xFFFF;

#[test]
fn copy_with_a_unit_of_another_tenant_is_refused_in_every_form_and_the_victim_is_unchanged() {
    let [own, second, victim, another] = two_tenants();
    for kind in [0x3, 0xA] {
        let (mine, other) = (cscd(&own, kind), cscd(&victim, kind));
        let forms = [
            (list(&[mine.clone(), other.clone()], &[segment((0, 1), 8, (0, 0))]), NOT_REACHABLE),
            (list(&[other.clone(), mine.clone()], &[segment((0, 1), 8, (0, 0))]), NOT_REACHABLE),
            (list(&[other.clone(), cscd(&another, kind)], &[segment((0, 1), 8, (0, 0))]), NOT_REACHABLE),
            (list(slice::from_ref(&other), &[segment((0, 0), 8, (0, 64))]), NOT_REACHABLE),
            (list(slice::from_ref(&other), &[segment((SELF_ID, 0), 8, (0, 0))]), NOT_REACHABLE),
            (list(slice::from_ref(&other), &[segment((0, SELF_ID), 8, (0, 0))]), NOT_REACHABLE),
            // The valid segment before the invalid one is not executed either.
            (
                list(
                    &[mine.clone(), cscd(&second, kind), other.clone()],
                    &[segment((0, 1), 8, (0, 0)), segment((0, 2), 8, (0, 0))],
                ),
                NOT_REACHABLE,
            ),
            (list(slice::from_ref(&mine), &[segment((0, 1), 8, (0, 0))]), UNREACHABLE),
            (list(&[], &[segment((0, 1), 8, (0, 0))]), UNREACHABLE),
            (list(slice::from_ref(&other), &[segment((0, 0), 0, (0, 0))]), NOT_REACHABLE),
        ];
        for (nth, (list, expected)) in forms.iter().enumerate() {
            assert_eq!(sense(&copy(&own, HOST, list)), *expected, "form {nth}");
        }
        let mut inline = list(&[mine, other], &[segment((0, 1), 8, (0, 0))]);
        inline[15] = 16;
        inline.extend([0xEE; 16]);
        assert_eq!(sense(&copy(&own, HOST, &inline)), (5, 0x26, 0x0B));
    }
    for (unit, byte) in [(&own, 1), (&second, 2), (&victim, 3), (&another, 4)] {
        assert!(holds(unit, 0, BLOCKS, byte), "unit {byte}");
        assert_eq!(ops(unit), [], "unit {byte} was not even read");
    }
}

#[test]
fn copy_without_descriptors_or_segments_does_nothing() {
    let [one, two, ..] = two_tenants();
    for list in [Vec::new(), list(&[], &[]), list(&[cscd(&one, 3), cscd(&two, 3)], &[])] {
        assert!(good(copy(&one, HOST, &list)).is_empty());
    }
    assert_eq!((ops(&one), ops(&two)), (vec![], vec![]));
}

#[test]
fn copy_respects_reservations_of_source_and_destination() {
    let street = Rc::new(TestEnvironment::default());
    let both = [(HOST, false), (OTHER, false)];
    let [one, two, manager] = [1, 2, 5].map(|number| move_in(&street, number, 512, &both));
    good(run(&one, OTHER, &[0x16, 0, 0, 0, 0, 0], &[]));
    assert_eq!(sense(&ask_for_copy(&manager, &one, &two)), THIRD_PARTY, "the source is reserved");
    assert_eq!(sense(&ask_for_copy(&manager, &two, &one)), THIRD_PARTY, "the destination is reserved");
    assert_eq!(
        ask_for_copy(&one, &two, &manager).status,
        Status::ReservationConflict,
        "the manager itself is reserved"
    );
    good(run(&one, OTHER, &[0x17, 0, 0, 0, 0, 0], &[]));
    // A write exclusive reservation lets others read.
    let register = |key: u64, own: u64| [own.to_be_bytes(), key.to_be_bytes(), [0; 8]].concat();
    good(run(&one, OTHER, &[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &register(9, 0)));
    good(run(&one, OTHER, &[0x5F, 1, 1, 0, 0, 0, 0, 0, 24, 0], &register(0, 9)));
    good(ask_for_copy(&manager, &one, &two));
    assert_eq!(sense(&ask_for_copy(&manager, &two, &one)), THIRD_PARTY);
    good(copy(&manager, OTHER, &list(&[cscd(&two, 3), cscd(&one, 3)], &[segment((0, 1), 1, (0, 9))])));
    assert!(holds(&one, 9, 1, 2) && holds(&one, 10, 8, 1), "the holder itself may write");
}

#[test]
fn copy_writes_nothing_that_the_nexus_may_not_write_and_nothing_that_is_not_served_to_it() {
    let street = Rc::new(TestEnvironment::default());
    let one = move_in(&street, 1, 512, &[(HOST, false)]);
    let shown = move_in(&street, 2, 512, &[(HOST, true)]);
    assert_eq!(sense(&ask_for_copy(&one, &one, &shown)), (7, 0x27, 0));
    good(ask_for_copy(&one, &shown, &one));
    assert!(holds(&one, 8, 8, 2) && holds(&shown, 0, BLOCKS, 2));
    now(shown.set_port_groups(&[PortGroup { state: AccessState::Standby, ..PortGroup::default() }]));
    assert_eq!(sense(&ask_for_copy(&one, &shown, &one)), THIRD_PARTY);
}

#[test]
fn copy_within_one_unit_reads_before_it_overwrites() {
    let street = Rc::new(TestEnvironment::default());
    let large = move_in(&street, 1, 4096, &[(HOST, false)]);
    // Pieces of 1 MiB have 256 blocks; the offset is small, so that ranges overlap within the disk of 256 blocks.
    for (from, to) in [(0_u64, 3), (3, 0)] {
        let content: Vec<u8> = (0..BLOCKS * 4096).map(|at| (at / 4096) as u8).collect();
        *large.device().bytes.borrow_mut() = content.clone();
        let list = list(&[cscd(&large, 3)], &[segment((0, 0), 200, (from, to))]);
        good(copy(&large, HOST, &list));
        let bytes = |block: u64, count: u64| (block * 4096) as usize..((block + count) * 4096) as usize;
        assert!(blocks(&large, to, 200) == content[bytes(from, 200)]);
    }
}

#[test]
fn copy_between_units_with_other_blocks_counts_as_the_segment_says() {
    let street = Rc::new(TestEnvironment::default());
    let small = move_in(&street, 1, 512, &[(HOST, false)]);
    let large = move_in(&street, 2, 4096, &[(HOST, false)]);
    let ends = [cscd(&small, 3), cscd(&large, 3)];
    good(copy(&small, HOST, &list(&ends, &[segment((0, 1), 16, (0, 1))])));
    assert!(holds(&large, 1, 2, 1) && holds(&large, 3, 1, 2));
    let mut counts_destination = segment((0, 1), 1, (0, 9));
    counts_destination[1] = 0x02;
    good(copy(&small, HOST, &list(&ends, &[counts_destination])));
    assert!(holds(&large, 9, 1, 1) && holds(&large, 10, 1, 2));
    let inexact = copy(&small, HOST, &list(&ends, &[segment((0, 1), 3, (0, 0))]));
    assert_eq!(sense(&inexact), (0xA, 0x26, 0x0A));
    let mut lies = cscd(&large, 3);
    lies[28..].copy_from_slice(&512_u32.to_be_bytes());
    let lies = copy(&small, HOST, &list(&[cscd(&small, 3), lies], &[segment((0, 1), 8, (0, 0))]));
    assert_eq!(sense(&lies), (0xA, 0x0D, 0x03), "another block length than the unit has");
}

#[test]
fn copy_with_offset_counts_bytes_and_copies_whole_blocks() {
    let street = Rc::new(TestEnvironment::default());
    let small = move_in(&street, 1, 512, &[(HOST, false)]);
    let large = move_in(&street, 2, 4096, &[(HOST, false)]);
    let ends = [cscd(&small, 3), cscd(&large, 3)];
    let asked =
        |bytes, source, destination| copy(&small, HOST, &list(&ends, &[offset_segment(bytes, source, destination)]));
    small.device().bytes.borrow_mut()[3 * 512..4 * 512].fill(7);
    good(asked(8192, (0, 1, 1024), (1, 1, 4096)));
    assert_eq!(
        blocks(&large, 2, 2),
        [[7; 512].as_slice(), &[1; 8192 - 512]].concat(),
        "blocks 3 to 18, from block 2 on"
    );
    assert!(holds(&large, 0, 2, 2) && holds(&large, 4, 1, 2), "exactly these blocks");
    good(asked(0, (0, 0, 0), (1, 0, 0)));
    // Combined with the other segment type, and in both directions.
    let both = [offset_segment(4096, (1, 2, 0), (0, 32, 0)), segment((0, 1), 8, (32, 9))];
    good(copy(&small, HOST, &list(&ends, &both)));
    assert!(blocks(&small, 32, 1) == [7; 512] && blocks(&large, 9, 1)[..512] == [7; 512]);

    let before = large.device().bytes.borrow().clone();
    let inexact = (0xA, 0x26, 0x0A);
    assert_eq!(sense(&asked(512, (0, 0, 0), (1, 0, 0))), inexact, "a part of a block of the destination");
    assert_eq!(sense(&asked(4096, (0, 0, 1), (1, 0, 0))), inexact, "it begins within a block");
    assert_eq!(sense(&asked(4096, (0, 0, 0), (1, 0, 512))), inexact);
    assert_eq!(sense(&asked(4096, (0, BLOCKS - 8, 512), (1, 0, 0))), (0xA, 0, 0), "one block behind the end");
    assert_eq!(sense(&asked(4096, (0, u64::MAX, 512), (1, 0, 0))), (0xA, 0, 0));
    let long = asked(0x1000_0000, (0, 0, 0), (1, 0, 0));
    assert_eq!((sense(&long), long.sense.unwrap().field.unwrap().byte), ((5, 0x26, 0), 16 + 64 + 8));
    let mut short = offset_segment(4096, (0, 0, 0), (1, 0, 0));
    short[3] = 24;
    assert_eq!(sense(&copy(&small, HOST, &list(&ends, &[short]))), (5, 0x1A, 0));
    assert!(*large.device().bytes.borrow() == before);
}

#[test]
fn copy_list_that_lies_is_refused_and_nothing_is_copied() {
    let [one, two, ..] = two_tenants();
    let ends = [cscd(&one, 3), cscd(&two, 3)];
    let good_list = list(&ends, &[segment((0, 1), 8, (0, 8))]);
    for cut in [1, 15, 16, 47, 79, good_list.len() - 1] {
        assert_eq!(sense(&copy(&one, HOST, &good_list[..cut])), (5, 0x1A, 0), "{cut}");
    }
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut list = good_list.clone();
        change(&mut list);
        sense(&copy(&one, HOST, &list))
    };
    assert_eq!(with(&|list| list[2] = 0xFF), (5, 0x1A, 0), "more descriptors than there may be");
    assert_eq!(with(&|list| list[8] = 0xFF), (5, 0x1A, 0), "more segments than memory has");
    assert_eq!(with(&|list| list[1] = 0x08), (5, 0x26, 0), "LIST ID USAGE is reserved");
    assert_eq!(with(&|list| list[16] = 0xE0), (5, 0x26, 0x07), "a port of Fibre Channel");
    assert_eq!(with(&|list| list[17] = 0x01), (5, 0x26, 0), "a tape");
    assert_eq!(with(&|list| list[17] = 0x20), UNREACHABLE, "NUL");
    assert_eq!(with(&|list| list[21] = 0x13), (5, 0x26, 0), "a designator of a port");
    assert_eq!(with(&|list| list[21] = 0x01), NOT_REACHABLE, "a serial number is no name");
    assert_eq!(with(&|list| list[23] = 21), (5, 0x26, 0), "a designator that is longer than its field");
    assert_eq!(with(&|list| list[23] = 8), NOT_REACHABLE, "a part of a name");
    assert_eq!(with(&|list| list[80] = 0x04), (5, 0x26, 0x09), "from tape to tape");
    assert_eq!(with(&|list| list[83] = 23), (5, 0x1A, 0));
    assert_eq!(with(&|list| list[92] = 0xFF), (0xA, 0, 0), "blocks beyond the end of the source");
    assert_eq!(with(&|list| list[100] = 0xFF), (0xA, 0, 0), "blocks beyond the end of the destination");
    let cscds: Vec<_> = (0..17).map(|_| cscd(&one, 3)).collect();
    assert_eq!(sense(&copy(&one, HOST, &list(&cscds, &[segment((0, 1), 1, (0, 0))]))), (5, 0x26, 0x06));
    let segments = vec![segment((0, 1), 1, (0, 0)); 65];
    assert_eq!(sense(&copy(&one, HOST, &list(&ends[..1], &segments))), (5, 0x26, 0x08));
    assert_eq!(sense(&copy(&one, HOST, &list(&cscds, &vec![segment((0, 1), 1, (0, 0)); 80]))), (5, 0x1A, 0));
    let huge = cdb16(0x83, 0, 0, u32::MAX);
    assert_eq!(sense(&run(&one, HOST, &huge, &[])), (5, 0x1A, 0), "refused before any of it comes");
    assert!(holds(&one, 0, BLOCKS, 1) && holds(&two, 0, BLOCKS, 2));
    let mut ignored = good_list.clone();
    ignored[17] = 0x80;
    good(copy(&one, HOST, &ignored));
    assert!(holds(&two, 8, 8, 1), "LU ID TYPE is ignored");
}

fn status(unit: &TestUnit, nexus: NexusId, id: u8) -> Outcome {
    let mut cdb = cdb16(0x84, 0, 0, 64);
    cdb[2] = id;
    run(unit, nexus, &cdb, &[])
}

#[test]
fn copy_results_are_told_to_the_nexus_that_asked_and_to_nobody_else() {
    let [one, two, ..] = two_tenants();
    assert_eq!(sense(&status(&one, HOST, 7)), (5, 0x24, 0));
    good(ask_for_copy(&one, &one, &two));
    assert_eq!(good(status(&one, HOST, 7)), [0, 0, 0, 8, 0x01, 0, 1, 0x01, 0, 0, 0, 4], "one segment of 4 KiB");
    assert_eq!(sense(&status(&one, OTHER, 7)), (5, 0x24, 0));
    let mut bad = list(&[cscd(&one, 3)], &[segment((0, 3), 8, (0, 8))]);
    bad[0] = 9;
    assert_eq!(sense(&copy(&one, HOST, &bad)), UNREACHABLE);
    assert_eq!(good(status(&one, HOST, 9))[4..7], [0x02, 0, 0]);
    for id in (20..120).rev() {
        bad[0] = id;
        copy(&one, HOST, &bad);
    }
    assert_eq!(one.copies().status_count(), 64, "only so many are remembered");
    good(status(&one, HOST, 20));
    assert_eq!(sense(&status(&one, HOST, 119)), (5, 0x24, 0), "the oldest are not");
    one.detach(HOST);
    assert_eq!(one.copies().status_count(), 0);
}

#[test]
fn copy_under_way_is_seen_is_one_of_its_number_and_ends_when_it_is_aborted() {
    let [one, two, ..] = two_tenants();
    two.device().permits.set(0);
    let list = list(&[cscd(&one, 3), cscd(&two, 3)], &[segment((0, 1), 8, (0, 8))]);
    let tagged = |tag| Command { tag: TaskTag(tag), ..command(&cdb(&list), &list) };
    let mut copying = Box::pin(one.execute(HOST, tagged(1)));
    assert!((&mut copying).now_or_never().is_none());
    assert_eq!(good(status(&one, HOST, 7))[4], 0x00, "in progress");
    assert_eq!(sense(&now(one.execute(HOST, tagged(2)))), (5, 0x00, 0x16));
    let mut aborting = Box::pin(one.manage(HOST, TaskManagement::AbortTask(TaskTag(1))));
    assert!((&mut aborting).now_or_never().is_none(), "what was begun is not torn out of the device");
    two.device().permits.set(usize::MAX);
    assert_eq!(copying.now_or_never().map(|outcome| outcome.status), Some(Status::Unanswered));
    assert!(aborting.now_or_never().is_some());
}

#[test]
fn copy_that_is_ordered_does_not_wait_for_who_waits_for_it() {
    let [one, two, ..] = two_tenants();
    two.device().permits.set(0);
    let list = list(&[cscd(&one, 3), cscd(&two, 3)], &[segment((0, 1), 8, (0, 8)), segment((0, 1), 8, (0, 8))]);
    let ordered = Command { attribute: crate::TaskAttribute::Ordered, ..command(&cdb(&list), &list) };
    let mut copying = Box::pin(two.execute(HOST, ordered));
    assert!((&mut copying).now_or_never().is_none());
    let mut compare = [0; 16];
    (compare[0], compare[9], compare[13]) = (0x89, 8, 1);
    let data = [[1; BLOCK], [9; BLOCK]].concat();
    let mut swap = Box::pin(two.execute(HOST, Command { tag: TaskTag(5), ..command(&compare, &data) }));
    assert!((&mut swap).now_or_never().is_none());
    two.device().permits.set(usize::MAX);
    assert_eq!(copying.now_or_never().map(|outcome| outcome.status), Some(Status::Good));
    assert_eq!(swap.now_or_never().map(|outcome| outcome.status), Some(Status::Good));
    assert!(holds(&two, 8, 1, 9));
}

#[test]
fn operating_parameters_and_third_party_page_say_what_is_kept() {
    let [one, ..] = two_tenants();
    let data = ask(&one, &cdb16(0x84, 3, 0, 64));
    let number = |data: &[u8], at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    assert_eq!((data.len(), data[3]), (47, 43));
    assert_eq!((number(&data, 8), number(&data, 10), number(&data, 14)), (16, 64, 2560));
    assert_eq!(data[36..], [16, 9, 0, 0, 0, 0, 0, 3, 0x02, 0x0A, 0xE4]);
    let page = ask(&one, &[0x12, 1, 0x8F, 2, 0, 0]);
    let (mut kinds, mut rest) = (Vec::new(), &page[4..]);
    while !rest.is_empty() {
        let length = usize::from(number(rest, 2));
        assert!(length.is_multiple_of(4));
        kinds.push((number(rest, 0), rest[4..8].to_vec()));
        rest = &rest[4 + length..];
    }
    let expected = [
        (0x0000, vec![0; 4]),
        (0x0001, vec![13, 0x83, 5, 0x00]),
        (0x0004, vec![0; 4]),
        (0x0008, vec![3, 0x02, 0x0A, 0xE4]),
        (0x000C, vec![0, 2, 0xFF, 0xFF]),
        (0x0106, vec![0; 4]),
        (0x0108, vec![0, 0, 0, 128]),
        (0x8001, vec![0, 0, 0, 16]),
    ];
    assert_eq!(kinds, expected);
    let limits = [&[0, 64][..], &600_u32.to_be_bytes(), &60_u32.to_be_bytes(), &(256_u64 << 20).to_be_bytes()].concat();
    assert_eq!(page[14..32], limits, "block device ROD limits");
    let types = page.windows(8).filter(|window| window[..4] == [0, 0x80, 0, 1] || window[..4] == [0xFF, 0xFF, 0, 1]);
    assert_eq!(types.map(|window| window[4]).collect::<Vec<_>>(), [3, 2], "made and taken; taken");
    assert_eq!(ask(&one, &[0x12, 0, 0, 0, 36, 0])[5] & 0x08, 0x08, "3PC");
}

#[test]
fn unit_without_neighbours_has_nothing_to_copy() {
    let unit = Rc::new(unit());
    assert_eq!(sense(&ask_for_copy(&unit, &unit, &unit)), NOT_REACHABLE);
    let data = Buf::copy_of(&[1; 3]).freeze();
    let asker = CopyPrincipal { nexus: HOST, initiator: initiator(1), port: (*port(1)).clone(), read_only: false };
    assert!(now(unit.copy_write(&asker, Lba(0), data)).is_err(), "a part of a block");
}

/// Creates a unit over a thin disk with granules of 8 blocks.
fn move_in_thin(street: &Rc<TestEnvironment>, number: u8, granules: usize) -> TestUnit {
    let mut bench = Bench::new(512, BLOCKS);
    bench.thin = Some(Thin::new(8, granules));
    let unit = move_in_over(street, number, bench, &[(HOST, false)]);
    unit.device().bytes.borrow_mut().fill(0);
    unit
}

#[test]
fn copy_makes_holes_of_holes_and_reads_none_of_them() {
    let street = Rc::new(TestEnvironment::default());
    let (from, to) = (move_in_thin(&street, 1, 32), move_in_thin(&street, 2, 32));
    tell(&from, &cdb10(0x2A, 0, 16, 8), &[7; 8 * BLOCK]);
    tell(&to, &cdb10(0x2A, 0, 0, 64), &[9; 64 * BLOCK]);
    ops(&from);
    ops(&to);
    let segment = segment((0, 1), 64, (0, 0));
    good(copy(&to, HOST, &list(&[cscd(&from, 3), cscd(&to, 3)], &[segment])));
    assert!(holds(&to, 0, 16, 0) && holds(&to, 16, 8, 7) && holds(&to, 24, 40, 0) && holds(&to, 64, 8, 0));
    assert_eq!(ops(&from), [Op::Read(16, 8)]);
    assert_eq!(thin_of(&to).mapped.borrow().iter().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(good(status(&to, HOST, 7))[8..12], [0, 0, 0, 32], "holes count as copied");
}

#[test]
fn copy_of_holes_respects_reservations_and_says_that_a_pool_is_full() {
    let street = Rc::new(TestEnvironment::default());
    let (from, to) = (move_in_thin(&street, 1, 32), move_in_thin(&street, 2, 1));
    street.lots.borrow_mut().iter_mut().for_each(|(_, seers)| seers.push((OTHER, false)));
    good(run(&from, OTHER, &[0x16, 0, 0, 0, 0, 0], &[]));
    assert_eq!(sense(&ask_for_copy(&to, &from, &to)), THIRD_PARTY, "what has a place is not told either");
    good(run(&from, OTHER, &[0x17, 0, 0, 0, 0, 0], &[]));
    tell(&from, &cdb10(0x2A, 0, 0, 16), &[7; 16 * BLOCK]);
    tell(&to, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    assert_eq!(sense(&ask_for_copy(&to, &from, &to)), (7, 0x27, 0x07));
}
