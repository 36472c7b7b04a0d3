//! Unit over a thin disk with limited space: refusals when it is full, operations that continue, and the integrity of
//! written data.

use crate::operation::{OPERATIONS, Operation, Verb};
use crate::rig::*;
use crate::*;
use block::IoErrorKind;
use proptest::prelude::*;
use std::collections::BTreeSet;

const NO_SPACE: (u8, u8, u8) = (7, 0x27, 0x07);
const UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;

/// Builds the parameter list of an UNMAP.
fn list(extents: &[(u64, u32)]) -> Vec<u8> {
    let bytes = extents.len() as u16 * 16;
    let mut list = [(bytes + 6).to_be_bytes(), bytes.to_be_bytes(), [0; 2], [0; 2]].concat();
    for (lba, count) in extents {
        list.extend(lba.to_be_bytes());
        list.extend(count.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

fn unmap(unit: &LogicalUnit<Bench>, extents: &[(u64, u32)]) -> Outcome {
    let list = list(extents);
    run(unit, HOST, &cdb10(0x42, 0, 0, list.len() as u16), &list)
}

/// Returns the command of `operation` that changes block 0 from zeros to ones.
fn writing_block_0(operation: &Operation) -> ([u8; 16], Vec<u8>) {
    let mut cdb = [0; 16];
    cdb[0] = operation.code();
    let count_at = match operation.cdb_bytes {
        6 => 4,
        10 => 8,
        12 => 9,
        _ => 13,
    };
    cdb[count_at] = 1;
    let old = if operation.verb == Verb::CompareAndWrite { vec![0; BLOCK] } else { Vec::new() };
    (cdb, [old, vec![1; BLOCK]].concat())
}

#[test]
fn every_write_that_needs_space_is_refused_in_a_full_pool_and_changes_nothing() {
    let writing = OPERATIONS.iter().filter(|operation| {
        operation.writes() && !matches!(operation.verb, Verb::Unmap | Verb::Sanitize | Verb::WriteUsingToken)
    });
    let mut seen = 0;
    for operation in writing {
        let unit = thin_unit(8, 1);
        tell(&unit, &cdb10(0x2A, 0, 8, 1), &[7; BLOCK]);
        let (cdb, data) = writing_block_0(operation);
        let refusal = run(&unit, HOST, &cdb, &data);
        assert_eq!(sense(&refusal), NO_SPACE, "{}", operation.name);
        assert_eq!(refusal.sense.expect("sense").information, None, "the pool is full, not a block");
        assert_eq!(blocks(&unit, 0, 8), vec![0; 8 * BLOCK], "{}", operation.name);
        // Operations that need no space continue: reads, and writes to mapped blocks.
        assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 16)).len(), 16 * BLOCK);
        tell(&unit, &cdb10(0x2A, 0, 15, 1), &[7; BLOCK]);
        // The same command succeeds once space is available.
        if seen % 2 == 0 {
            good(unmap(&unit, &[(8, 8)]));
        } else {
            thin_of(&unit).granules.set(2);
        }
        good(run(&unit, HOST, &cdb, &data));
        assert_eq!(blocks(&unit, 0, 1), [1; BLOCK], "{}", operation.name);
        seen += 1;
    }
    assert_eq!(seen, 12);
}

#[test]
fn write_across_a_border_gets_all_of_its_places_or_none() {
    let unit = thin_unit(8, 1);
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 7, 2), &[1; 2 * BLOCK]), NO_SPACE);
    assert!(thin_of(&unit).mapped.borrow().is_empty());
    tell(&unit, &cdb10(0x2A, 0, 7, 1), &[1; BLOCK]);
}

#[test]
fn unmap_is_never_refused_for_want_of_space() {
    let unit = thin_unit(8, 1);
    tell(&unit, &cdb10(0x2A, 0, 0, 8), &[1; 8 * BLOCK]);
    ops(&unit);
    // For example, a part of a granule that a snapshot shares.
    unit.device().failure.set(Some(IoErrorKind::NoSpace));
    good(unmap(&unit, &[(0, 3)]));
    assert_eq!((ops(&unit), unit.statistics().errors), (vec![Op::Discard(0, 3)], 0));
    assert_eq!(blocks(&unit, 0, 8), [1; 8 * BLOCK], "what cannot be unmapped stays as it is");
    // WRITE SAME promises zeros, so it must not skip blocks that it could not write.
    assert_eq!(refused(&unit, &cdb16(0x93, UNMAP | NDOB, 0, 3), &[]), NO_SPACE);
    // Other errors fail UNMAP as well.
    unit.device().failure.set(Some(IoErrorKind::Gone));
    assert_eq!(sense(&unmap(&unit, &[(0, 3)])), (4, 0x44, 0));
}

#[test]
fn parts_of_granules_read_as_zeros_and_keep_their_place() {
    let unit = thin_unit(8, 8);
    tell(&unit, &cdb10(0x2A, 0, 0, 24), &[1; 24 * BLOCK]);
    good(unmap(&unit, &[(5, 14)]));
    assert_eq!(blocks(&unit, 0, 24), [[1; 5 * BLOCK].as_slice(), &[0; 14 * BLOCK], &[1; 5 * BLOCK]].concat());
    assert_eq!(*thin_of(&unit).mapped.borrow(), [0, 2].into());
    tell(&unit, &cdb16(0x93, UNMAP | NDOB, 0, 5), &[]);
    assert_eq!(*thin_of(&unit).mapped.borrow(), [0, 2].into());
    tell(&unit, &cdb16(0x93, UNMAP, 0, 8), &[0; BLOCK]);
    assert_eq!(*thin_of(&unit).mapped.borrow(), [2].into());
}

#[test]
fn anchors_are_refused_on_a_thin_unit() {
    let unit = thin_unit(8, 8);
    assert_eq!(pointed(&unit, &cdb10(0x42, 1, 0, 24), &list(&[(0, 8)])), (1, Some(0)));
    assert_eq!(pointed(&unit, &cdb16(0x93, 0x10 | UNMAP, 0, 8), &[0; BLOCK]), (1, Some(4)));
    assert_eq!(pointed(&unit, &cdb10(0x41, 0x10 | UNMAP, 0, 8), &[0; BLOCK]), (1, Some(4)));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, u8),
    /// WRITE SAME with flags.
    Same(u64, u64, u8, u8),
    Or(u64, u64, u8),
    /// COMPARE AND WRITE of one block, with matching or different data.
    Compare(u64, u8, bool),
    Unmap(Vec<(u64, u32)>),
    /// Resizes the pool.
    Granules(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    // Bytes that are sometimes zero, runs that are often short, and sometimes whole granules.
    let lba = 0..BLOCKS;
    let byte = prop_oneof![1 => Just(0), 2 => 1..5u8];
    let run =
        (lba, prop_oneof![4 => 1..20u64, 1 => 1..=BLOCKS]).prop_map(|(lba, count)| (lba, count.min(BLOCKS - lba)));
    let flags = prop::sample::select(vec![0, UNMAP, NDOB, UNMAP | NDOB]);
    let extents = prop::collection::vec(run.clone().prop_map(|(lba, count)| (lba, count as u32)), 0..4);
    prop_oneof![
        4 => (run.clone(), byte.clone()).prop_map(|((lba, count), byte)| Step::Write(lba, count, byte)),
        2 => (run.clone(), byte.clone(), flags).prop_map(|((lba, count), byte, flags)| Step::Same(lba, count, byte, flags)),
        1 => (run.clone(), byte.clone()).prop_map(|((lba, count), byte)| Step::Or(lba, count, byte)),
        1 => (0..BLOCKS, byte, any::<bool>()).prop_map(|(lba, byte, right)| Step::Compare(lba, byte, right)),
        2 => extents.prop_map(Step::Unmap),
        1 => (0..40usize).prop_map(Step::Granules),
    ]
}

/// Expected state: one byte per block, and the mapped granules.
struct Oracle {
    granule_blocks: u64,
    granules: usize,
    blocks: Vec<u8>,
    mapped: BTreeSet<u64>,
}

impl Oracle {
    /// Writes `values` from `lba` on; false when there is no space.
    fn write(&mut self, lba: u64, values: &[u8]) -> bool {
        let end = lba + values.len() as u64;
        let mut mapped = self.mapped.clone();
        mapped.extend((lba..end).map(|block| block / self.granule_blocks));
        if mapped.len() > self.granules.max(self.mapped.len()) {
            return false;
        }
        self.mapped = mapped;
        self.blocks[lba as usize..end as usize].copy_from_slice(values);
        true
    }

    fn unmap(&mut self, lba: u64, count: u64) {
        self.blocks[lba as usize..(lba + count) as usize].fill(0);
        let (size, end) = (self.granule_blocks, lba + count);
        self.mapped.retain(|granule| granule * size < lba || (granule * size + size).min(BLOCKS) > end);
    }

    /// Applies the same step to the model and to the unit.
    fn take(&mut self, unit: &LogicalUnit<Bench>, step: &Step) {
        let repeated = |byte: u8, count: u64| vec![byte; count as usize * BLOCK];
        let (outcome, expected) = match *step {
            Step::Write(lba, count, byte) => (
                run(unit, HOST, &cdb16(0x8A, 0, lba, count as u32), &repeated(byte, count)),
                self.write(lba, &vec![byte; count as usize]),
            ),
            Step::Same(lba, count, byte, flags) => {
                let byte = if flags & NDOB != 0 { 0 } else { byte };
                let data = if flags & NDOB != 0 { Vec::new() } else { repeated(byte, 1) };
                let outcome = run(unit, HOST, &cdb16(0x93, flags, lba, count as u32), &data);
                if flags & UNMAP != 0 && byte == 0 {
                    self.unmap(lba, count);
                    (outcome, true)
                } else {
                    (outcome, self.write(lba, &vec![byte; count as usize]))
                }
            }
            Step::Or(lba, count, byte) => {
                let merged: Vec<u8> =
                    self.blocks[lba as usize..(lba + count) as usize].iter().map(|old| old | byte).collect();
                let outcome = run(unit, HOST, &cdb16(0x8B, 0, lba, count as u32), &repeated(byte, count));
                (outcome, self.write(lba, &merged))
            }
            Step::Compare(lba, byte, right) => {
                let old = self.blocks[lba as usize] ^ u8::from(!right);
                let mut cdb = cdb16(0x89, 0, lba, 0);
                cdb[13] = 1;
                let outcome = run(unit, HOST, &cdb, &[repeated(old, 1), repeated(byte, 1)].concat());
                if !right {
                    assert_eq!(sense(&outcome), (0xE, 0x1D, 0));
                    return;
                }
                (outcome, self.write(lba, &[byte]))
            }
            Step::Unmap(ref extents) => {
                extents.iter().for_each(|&(lba, count)| self.unmap(lba, u64::from(count)));
                (unmap(unit, extents), true)
            }
            Step::Granules(granules) => {
                self.granules = granules;
                return thin_of(unit).granules.set(granules);
            }
        };
        if expected {
            assert_eq!(outcome.status, Status::Good, "{step:?}: {:?}", outcome.sense);
        } else {
            assert_eq!(sense(&outcome), NO_SPACE, "{step:?}");
        }
    }

    /// Checks that reads and GET LBA STATUS agree with the model.
    fn agrees_with(&self, unit: &LogicalUnit<Bench>) {
        let read = ask(unit, &cdb16(0x88, 0, 0, BLOCKS as u32));
        let expected: Vec<u8> = self.blocks.iter().flat_map(|&byte| [byte; BLOCK]).collect();
        assert!(read == expected, "the blocks hold something else than was written");
        let answer = ask(unit, &cdb16(0x9E, 0x12, 0, 8 + 256 * 16));
        let mut told = Vec::new();
        for descriptor in answer[8..].chunks(16) {
            let lba = u64::from_be_bytes(descriptor[..8].try_into().expect("eight bytes"));
            let count = u32::from_be_bytes(descriptor[8..12].try_into().expect("four bytes"));
            assert_eq!(lba, told.len() as u64, "runs have no gaps");
            told.extend(std::iter::repeat_n(descriptor[12] == 0, count as usize));
        }
        let mapped: Vec<bool> = (0..BLOCKS).map(|block| self.mapped.contains(&(block / self.granule_blocks))).collect();
        assert_eq!(told, mapped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn thin_unit_holds_what_was_written_and_tells_what_has_a_place(
        granule_blocks in prop::sample::select(vec![1u64, 8, 12, 32]),
        granules in 0..40usize,
        run_granules in 1..5u64,
        steps in prop::collection::vec(steps(), 1..40),
    ) {
        let unit = thin_unit(granule_blocks, granules);
        thin_of(&unit).run_granules.set(run_granules);
        let blocks = vec![0; BLOCKS as usize];
        let mut oracle = Oracle { granule_blocks, granules, blocks, mapped: BTreeSet::new() };
        for step in &steps {
            oracle.take(&unit, step);
            oracle.agrees_with(&unit);
        }
    }

    #[test]
    fn any_map_is_told_whole_in_answers_of_any_length(
        mapped in prop::collection::btree_set(0..BLOCKS, 0..60),
        run_granules in 1..5u64,
        allocation in 24..200u32,
    ) {
        let unit = thin_unit(1, 256);
        thin_of(&unit).run_granules.set(run_granules);
        thin_of(&unit).mapped.borrow_mut().extend(&mapped);
        // A host that continues where each answer ends reaches the end and sees every block once.
        let mut told = Vec::new();
        while (told.len() as u64) < BLOCKS {
            let answer = ask(&unit, &cdb16(0x9E, 0x12, told.len() as u64, allocation));
            prop_assert!(answer.len() >= 24 && answer.len() <= allocation as usize);
            for descriptor in answer[8..].chunks_exact(16) {
                let lba = u64::from_be_bytes(descriptor[..8].try_into().expect("eight bytes"));
                prop_assert_eq!(lba, told.len() as u64);
                let count = u32::from_be_bytes(descriptor[8..12].try_into().expect("four bytes"));
                told.extend(std::iter::repeat_n(descriptor[12] == 0, count as usize));
            }
        }
        let expected: Vec<bool> = (0..BLOCKS).map(|block| mapped.contains(&block)).collect();
        prop_assert_eq!(told, expected);
    }
}
