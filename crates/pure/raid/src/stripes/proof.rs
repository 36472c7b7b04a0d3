//! Verification of restored content against checksums, and logging of what is written back.

use crate::checksums::cache::Pins;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{MemberSet, Role, Rows};
use crate::members::{Change, Ops};
use crate::on_disk::batch::Records;
use crate::on_disk::entry::{Entry, guards};
use crate::plan::Availability;
use crate::stripes::restore::{Loaded, ReadsFailed, Salvaged, complete};
use crate::stripes::{Excluded, Stripes};
use block::{BlockDevice, Extent, IoError, IoErrorKind};
use std::rc::Rc;

/// Entries of blocks that are written back, and pins on their pages.
pub(crate) struct ChosenEntries {
    entries: Vec<(u16, u64, Entry)>,
    pins: Pins,
}

impl<D: BlockDevice + 'static> Stripes<D> {
    /// Finds a lost column whose restored content does not match its checksum; returns the parity that was used for
    /// it.
    ///
    /// That parity is excluded for these rows, and the other one, if there is one, is tried.
    pub(crate) async fn checksum_mismatch(
        self: &Rc<Self>,
        stripe: u64,
        availability: &Availability,
        rows: Rows,
        loaded: &Loaded,
    ) -> Option<ReadsFailed> {
        let protected = self.protection.as_ref()?;
        // Without parity in the reads nothing was computed, so there is nothing to verify.
        let used = loaded.iter().filter(|(read, _)| !matches!(read.role, Role::Data { .. }));
        let used: MemberSet = used.map(|(read, _)| self.layout.member_of(stripe, read.role)).collect();
        if used.is_empty() {
            return None;
        }
        let extent = self.layout.member_extent(stripe, rows);
        let columns = complete(availability, rows, loaded.clone());
        for column in (0..availability.columns).filter(|&column| !availability.is_readable(column)) {
            let member = self.layout.member_of(stripe, Role::Data { column, copy: 0 });
            let _pins = protected.checksums.hold_pages(member, extent).await;
            let content = &columns[usize::from(column)];
            for ((block, guard), bytes) in (extent.start.0..).zip(guards(content)).zip(content.chunks(4096)) {
                let entry = protected.checksums.entry(member, block);
                let is_right = match entry {
                    entry if entry.is_unwritten() => bytes.iter().all(|&byte| byte == 0),
                    entry if entry.is_known() => entry.matches(protected.checksums.pages.binding(member, block), guard),
                    // Unknown entries cannot be verified, and lost ones have no content.
                    _ => true,
                };
                if !is_right {
                    let error = IoError::new(IoErrorKind::Medium, Extent::new(block, 1)).of_member(member);
                    // The parity used last is excluded first: the other may be correct.
                    let last = used.iter().last().expect("there is one");
                    return Some(ReadsFailed { members: Excluded::of(MemberSet::only(last)), error });
                }
            }
        }
        None
    }

    /// Refuses blocks that are marked lost, without reading anything.
    pub(crate) async fn admit_restoring(self: &Rc<Self>, member: u16, extent: Extent) -> Result<(), IoError> {
        let Some(protected) = &self.protection else { return Ok(()) };
        // A mirror has its own entry for each copy, so another copy may still be good.
        if self.layout.copies() > 1 {
            return Ok(());
        }
        let _pins = protected.checksums.hold_pages(member, extent).await;
        let is_lost = |&block: &u64| protected.checksums.entry(member, block) == Entry::LOST;
        match (extent.start.0..extent.end().0).find(is_lost) {
            Some(block) => Err(IoError::new(IoErrorKind::Medium, Extent::new(block, 1)).of_member(member)),
            None => Ok(()),
        }
    }

    /// Chooses entries for blocks that are written back and do not match their entry; `None` where all match.
    pub(crate) async fn choose_entries(self: &Rc<Self>, ops: &Ops) -> Option<ChosenEntries> {
        let protected = self.protection.as_ref()?;
        let mut pins = Pins::new(&protected.checksums.pages.cache);
        let mut entries = Vec::new();
        for op in ops {
            let Change::Write(content) = &op.change else { continue };
            // The pins are returned with the entries, so that the pages are in memory when the entries are stored.
            protected.checksums.hold_more(&mut pins, op.member, op.extent()).await;
            for ((block, guard), bytes) in (op.start.0..).zip(guards(content)).zip(content.chunks(4096)) {
                let (entry, binding) =
                    (protected.checksums.entry(op.member, block), protected.checksums.pages.binding(op.member, block));
                // A block that reads as zeros because it was never written needs no entry.
                let fits = entry.matches(binding, guard) || entry.is_unwritten() && bytes.iter().all(|&byte| byte == 0);
                if !fits {
                    entries.push((op.member, block, entry.next(binding, guard)));
                }
            }
        }
        (!entries.is_empty()).then_some(ChosenEntries { entries, pins })
    }

    /// Logs the entries and stores them in the pages. No effect once the array has stopped.
    pub(crate) async fn log_entries(self: &Rc<Self>, chosen: ChosenEntries) {
        let Some(protected) = &self.protection else { return };
        // 256 entries, the blocks of a few stripes, fit into any batch.
        for some in chosen.entries.chunks(256) {
            let mut records = Records::default();
            some.iter().for_each(|&(member, block, entry)| records.entries(member, block, &[entry]));
            // Logged before the pages change: a page may be written by a checkpoint at any time.
            let Ok(reservation) = protected.log.commit(records).await else { return };
            let mut cache = protected.checksums.pages.cache.borrow_mut();
            some.iter().for_each(|&(member, block, entry)| cache.set(member, block, entry));
            drop(cache);
            drop(reservation);
        }
        drop(chosen.pins);
    }

    /// Marks these blocks as lost, in the log and in the pages.
    pub(crate) async fn mark_lost(self: &Rc<Self>, member: u16, extent: Extent) {
        let Some(protected) = &self.protection else { return };
        let pins = protected.checksums.hold_pages(member, extent).await;
        let entries = (extent.start.0..extent.end().0).map(|block| (member, block, Entry::LOST)).collect();
        self.log_entries(ChosenEntries { entries, pins }).await;
    }

    /// Reports to the owner what was wrong with the copies of a column, and the outcome.
    pub(crate) fn report(&self, stripe: u64, column: u16, salvaged: &[Salvaged]) {
        let Some(protected) = &self.protection else { return };
        let usable = self.members.usable(stripe).read;
        for part in salvaged {
            let extent = self.layout.member_extent(stripe, part.rows);
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(stripe, Role::Data { column, copy });
                // Late members are not reported: they may be healthy.
                if !(part.excluded.unreadable() & usable).contains(member) {
                    continue;
                }
                let outcome = if part.content.is_ok() { Outcome::Healed } else { Outcome::Lost };
                for block in extent.start.0..extent.end().0 {
                    let kind = self.kind_of(member, block);
                    let finding = Finding::new(member, Extent::new(block, 1), kind, outcome);
                    protected.checksums.pages.report(finding.of_lost(self.layout.lba_on(member, block)));
                }
            }
        }
    }

    /// Classifies what was wrong with a block that could not be read.
    pub(crate) fn kind_of(&self, member: u16, block: u64) -> FindingKind {
        let Some(protected) = &self.protection else { return FindingKind::Unreadable };
        let was_wrong = protected.checksums.pages.mismatched.borrow_mut().remove(&(member, block));
        match protected.checksums.entry(member, block) {
            // Both copies of the page were gone, so the block itself may be intact.
            Entry::UNKNOWN => FindingKind::Unknown,
            _ if was_wrong => FindingKind::Mismatch,
            _ => FindingKind::Unreadable,
        }
    }
}
