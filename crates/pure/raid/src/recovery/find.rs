//! Search for one batch of the log: its table and each of its images on any member, and the tables behind an
//! unreadable one.

use super::chain::{Batch, Found};
use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::checksums::Pages;
use crate::geometry::{MemberSet, bytes};
use crate::members::ReadWait;
use crate::on_disk::batch::{Header, Kind, Record, parse, parse_header};
use crate::on_disk::entry::{CheckBinding, Entry};
use crate::recovery::Recovery;
use crate::redo::LogState;
use crate::redo::ring::Head;
use block::{BlockDevice, Buf, Extent, IoErrorKind, View};
use futures_util::future::join_all;
use simd::crc32c::crc32c;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Blocks of each member that are read in one step of the search.
const STEP_BLOCKS: u64 = 256;
/// Number of largest batches that may have decayed in sequence with the batches behind them still found.
const LATER_BATCHES_MAX: u64 = 8;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Table of a batch, and the member it was read from.
pub(super) struct FoundTable {
    source: u16,
    pub(super) header: Header,
    records: Vec<Record>,
    table: View,
}

/// Checksum entries that an image must match: one for each block that gets it.
type Expected = SmallVec<[(CheckBinding, Entry); 2]>;

impl<D: BlockDevice + 'static> Recovery<'_, D> {
    /// Looks for batch `number` at block `at` of the ring on all members; `None` where no table is found.
    pub(super) async fn find(&self, epoch: u64, number: u64, at: u64) -> Option<Found> {
        let first = Extent::new(self.array.log.state.area.ring.start.0 + at, 1);
        let members = self.array.members.in_use();
        let read = |member| async move {
            (member, self.array.members.read_metadata(member, first, ReadWait::Unbounded).await)
        };
        let (mut found_table, mut damaged): (Option<FoundTable>, _) = (None, MemberSet::NONE);
        for (source, block) in join_all(members.iter().map(read)).await {
            let Some(block) = block.ok().map(block::Rope::into_view) else { continue };
            let Some(header) = parse_header(&block) else { continue };
            // A stale batch of an earlier turn of the ring, or payload that looks like a header.
            if !is_of(&self.array.log.state, &header, epoch) || (header.number, header.at) != (number, at) {
                continue;
            }
            match self.table(source, at, &header, block).await {
                Some(found) => found_table = found_table.or(Some(found)),
                // The header was intact and the table was not: this copy has decayed.
                None => damaged = damaged.with(source),
            }
        }
        Some(self.assemble(found_table?, damaged).await)
    }

    /// True when no member that batch `number` went to can read the first block of its table.
    ///
    /// With a single member left the batch has a second table behind it. Where that was not found either, there is no
    /// batch.
    pub(super) async fn is_table_unreadable(&self, number: u64, at: u64) -> bool {
        // The same mirrors as for writing: they follow from the batch number.
        let mirrors = self.array.log.log_mirrors(number, self.array.members.not_in_use(), MemberSet::NONE);
        let tables = self.array.log.table_mirror(mirrors).map_or(mirrors, |second| mirrors.with(second));
        // The table begins at two places then, and both were looked for.
        if self.array.members.in_use().len() == 1 {
            return false;
        }
        let first = Extent::new(self.array.log.state.area.ring.start.0 + at, 1);
        for member in tables.iter() {
            let read = self.array.members.read_metadata(member, first, ReadWait::Unbounded).await;
            if !read.is_err_and(|error| error.kind == IoErrorKind::Medium) {
                return false;
            }
        }
        true
    }

    /// Reads and parses the table at block `at` of this member's ring, of which `first` is the first block.
    async fn table(&self, source: u16, at: u64, header: &Header, first: View) -> Option<FoundTable> {
        let extent = Extent::new(self.array.log.state.area.ring.start.0 + at, header.table_blocks());
        let table = match extent.len.0 {
            1 => first,
            _ => self.array.members.read_metadata(source, extent, ReadWait::Unbounded).await.ok()?.into_view(),
        };
        let records = parse(&table, header)?;
        // A table that names blocks outside of the array was not written by it.
        records.iter().all(|record| self.is_here(record)).then(|| FoundTable {
            source,
            header: *header,
            records,
            table,
        })
    }

    /// True for a record whose blocks exist in the array.
    fn is_here(&self, record: &Record) -> bool {
        if record.kind == Kind::Moved {
            return self.array.checksums.pages.position.get().is_some();
        }
        let end = record.block.checked_add(record.count);
        record.member < self.array.members.counted_len()
            && end.is_some_and(|end| end <= self.array.layout.member_blocks().0)
    }

    /// Assembles the batch of this table, taking each image from any member that has it as logged.
    pub(super) async fn assemble(&self, found_table: FoundTable, damaged: MemberSet) -> Found {
        let FoundTable { source, header, records, table } = found_table;
        let table_blocks = header.table_blocks();
        let expected = expected_of(&self.array.checksums.pages, &records, &header);
        let mut images: Vec<Option<u16>> = vec![None; expected.len()];
        let mut all = Buf::zeroed(bytes(u64::from(header.blocks)));
        all[..table.len()].copy_from_slice(&table);
        if let Some(second) = header.second_table() {
            let at = bytes(second - header.at);
            all[at..at + table.len()].copy_from_slice(&table);
        }
        let extent =
            Extent::new(self.array.log.state.area.ring.start.0 + header.at + table_blocks, expected.len() as u64);
        let others = self.array.members.in_use().iter().filter(|&member| member != source);
        // Each of these members had a copy of a stable image, whole or damaged.
        let holders = self.array.log.log_mirrors(header.number, self.array.members.not_in_use(), MemberSet::NONE);
        let mut unreadable = vec![true; expected.len()];
        // Start with the member that has the table: normally it has all images, too.
        let (mut missed, mut sources) = (false, std::iter::once(source).chain(others));
        while images.iter().any(Option::is_none)
            && let Some(member) = sources.next()
        {
            let found = self.read_each(member, extent).await;
            // A member that was never given the batch says nothing about whether it was stable.
            if holders.contains(member) {
                unreadable.iter_mut().zip(&found).for_each(|(is, found)| *is &= found.is_none());
            }
            for (((image, expected), found), into) in
                images.iter_mut().zip(&expected).zip(found).zip(all[table.len()..].chunks_exact_mut(BLOCK))
            {
                let Some(found) = found.filter(|_| image.is_none()) else { continue };
                if is_right(expected, &found) {
                    *image = Some(member);
                    into.copy_from_slice(&found);
                }
            }
            // A second table may be on a member that never got the images.
            missed |= member == source && holders.contains(source) && images.iter().any(Option::is_none);
        }
        let damaged = if missed { damaged.with(source) } else { damaged };
        let (number, at, blocks) = (header.number, header.at, u64::from(header.blocks));
        let is_unreadable =
            images.iter().zip(unreadable).all(|(image, is_unreadable)| image.is_some() || is_unreadable);
        let batch = Batch { number, at, blocks, table_blocks, records, images, damaged, is_unreadable };
        Found { batch, settled: header.settled, bytes: all.freeze() }
    }

    /// Reads blocks of a member, individually where they cannot be read together; `None` for those that fail.
    async fn read_each(&self, member: u16, extent: Extent) -> Vec<Option<View>> {
        let mut found = Vec::new();
        if let Ok(rope) = self.array.members.read_metadata(member, extent, ReadWait::Unbounded).await {
            let whole = rope.into_view();
            found.extend((0..whole.len()).step_by(BLOCK).map(|at| Some(whole.slice(at..at + BLOCK))));
            return found;
        }
        for block in extent.start.0..extent.end().0 {
            let one = self.array.members.read_metadata(member, Extent::new(block, 1), ReadWait::Unbounded).await;
            found.push(one.ok().map(block::Rope::into_view));
        }
        found
    }

    /// Collects tables behind `head` by batch number, wherever they start; of the batch at `head` only the second
    /// table, because the first cannot be read.
    pub(super) async fn search_later(&self, epoch: u64, head: Head) -> BTreeMap<u64, FoundTable> {
        let ring = self.array.log.state.ring.blocks;
        // The search is bounded: a torn end of the log is the normal case, and is paid for at every opening.
        let most = (LATER_BATCHES_MAX * self.array.log.state.ring.batch_blocks_max()).min(ring);
        // No more batches than blocks fit into the part that is searched.
        let numbers = head.number..=head.number + most;
        let mut tables: BTreeMap<u64, FoundTable> = BTreeMap::new();
        let mut looked = 0;
        while looked < most {
            let at = (head.at + looked) % ring;
            // A read does not cross the end of the ring.
            let step = STEP_BLOCKS.min(most - looked).min(ring - at);
            let extent = Extent::new(self.array.log.state.area.ring.start.0 + at, step);
            let members = self.array.members.in_use();
            let read = |member| async move { (member, self.read_each(member, extent).await) };
            for (source, blocks) in join_all(members.iter().map(read)).await {
                for (at, block) in (at..).zip(blocks) {
                    let Some((block, header)) = block.and_then(|block| Some((block.clone(), parse_header(&block)?)))
                    else {
                        continue;
                    };
                    let is_table = header.at == at || header.second_table() == Some(at);
                    // The first member that has an intact table suffices; images are collected from all members
                    // later.
                    let is_new = numbers.contains(&header.number) && !tables.contains_key(&header.number);
                    if !is_table || !is_new || !is_of(&self.array.log.state, &header, epoch) {
                        continue;
                    }
                    if let Some(found) = self.table(source, at, &header, block).await {
                        tables.insert(header.number, found);
                    }
                }
            }
            looked += step;
        }
        tables
    }
}

/// True for a batch of this array and this epoch that lies within the ring.
fn is_of(log: &LogState, header: &Header, epoch: u64) -> bool {
    let end = header.at.checked_add(u64::from(header.blocks));
    header.id == log.id
        && (header.epoch == epoch || bug_injection::is_injected(InjectedBug::AnyEpoch))
        && end.is_some_and(|end| end <= log.ring.blocks)
}

/// Returns the entries that each image of a batch must match.
fn expected_of(pages: &Pages, records: &[Record], header: &Header) -> Vec<Expected> {
    let tables = header.table_blocks() * if header.twice { 2 } else { 1 };
    let count = usize::try_from(u64::from(header.blocks) - tables).expect("a batch fits in memory");
    let mut expected: Vec<Expected> = vec![Expected::new(); count];
    for record in records {
        // Records without images describe entries only.
        let Some(first) = record.image else { continue };
        for ((block, &entry), image) in (record.block..).zip(&record.new).zip(first - header.table_blocks()..) {
            if let Some(of) = usize::try_from(image).ok().and_then(|image| expected.get_mut(image)) {
                of.push((pages.binding(record.member, block), entry));
            }
        }
    }
    expected
}

fn is_right(expected: &Expected, image: &[u8]) -> bool {
    let guard = crc32c(image);
    bug_injection::is_injected(InjectedBug::TornBatch)
        || expected.iter().all(|(binding, entry)| entry.matches(*binding, guard))
}
