//! What redundancy gives back is believed only where the sums of the block say so.

use crate::checksums::cache::Pins;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{MemberSet, Role, Rows};
use crate::members::{Change, Ops};
use crate::on_disk::batch::Records;
use crate::on_disk::entry::{Entry, guards};
use crate::plan::Sight;
use crate::stripes::restore::{Blinded, Loaded, Salvaged, complete};
use crate::stripes::{Blind, Stripes};
use block::{BlockDevice, Extent, IoError, IoErrorKind};
use std::rc::Rc;

/// Entries that blocks have once they are written back, and the pages that hold them.
pub(crate) struct Remembered {
    entries: Vec<(u16, u64, Entry)>,
    pins: Pins,
}

impl<D: BlockDevice + 'static> Stripes<D> {
    /// The parity that gave back a column which is not what was written there, if one did.
    ///
    /// It is not used again for these rows; where there is another, that is tried.
    pub(crate) async fn disproved(
        self: &Rc<Self>,
        stripe: u64,
        sight: &Sight,
        rows: Rows,
        loaded: &Loaded,
    ) -> Option<Blinded> {
        let protected = self.protection.as_ref()?;
        let used = loaded.iter().filter(|(read, _)| !matches!(read.role, Role::Data { .. }));
        let used: MemberSet = used.map(|(read, _)| self.layout.member_of(stripe, read.role)).collect();
        if used.is_empty() {
            return None;
        }
        let extent = self.layout.member_extent(stripe, rows);
        let columns = complete(sight, rows, loaded.clone());
        for column in (0..sight.columns).filter(|&column| !sight.sees(column)) {
            let member = self.layout.member_of(stripe, Role::Data { column, copy: 0 });
            let _pins = protected.checksums.hold_pages(member, extent).await;
            let content = &columns[usize::from(column)];
            for ((block, guard), bytes) in (extent.start.0..).zip(guards(content)).zip(content.chunks(4096)) {
                let entry = protected.checksums.entry(member, block);
                let is_right = match entry {
                    entry if entry.is_unwritten() => bytes.iter().all(|&byte| byte == 0),
                    entry if entry.is_known() => entry.matches(protected.checksums.pages.tie(member, block), guard),
                    _ => true,
                };
                if !is_right {
                    let error = IoError::new(IoErrorKind::Medium, Extent::new(block, 1)).of_member(member);
                    // The last parity that was used is given up first: the other may be right.
                    let last = used.iter().last().expect("there is one");
                    return Some(Blinded { members: Blind::of(MemberSet::only(last)), error });
                }
            }
        }
        None
    }

    /// Refuses blocks of which it is known that nobody can give them back.
    pub(crate) async fn admit_restoring(self: &Rc<Self>, member: u16, extent: Extent) -> Result<(), IoError> {
        let Some(protected) = &self.protection else { return Ok(()) };
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

    /// The entries that blocks get which are written back and have none that fits.
    pub(crate) async fn remember(self: &Rc<Self>, ops: &Ops) -> Option<Remembered> {
        let protected = self.protection.as_ref()?;
        let mut pins = Pins::new(&protected.checksums.pages.cache);
        let mut entries = Vec::new();
        for op in ops {
            let Change::Write(content) = &op.change else { continue };
            protected.checksums.hold_more(&mut pins, op.member, op.extent()).await;
            for ((block, guard), bytes) in (op.start.0..).zip(guards(content)).zip(content.chunks(4096)) {
                let (entry, tie) =
                    (protected.checksums.entry(op.member, block), protected.checksums.pages.tie(op.member, block));
                let fits = entry.matches(tie, guard) || entry.is_unwritten() && bytes.iter().all(|&byte| byte == 0);
                if !fits {
                    entries.push((op.member, block, entry.next(tie, guard)));
                }
            }
        }
        (!entries.is_empty()).then_some(Remembered { entries, pins })
    }

    /// The blocks have these entries, in the log and in the pages. Without effect once the array has stopped.
    pub(crate) async fn make_known(self: &Rc<Self>, remembered: Remembered) {
        let Some(protected) = &self.protection else { return };
        // Entries of a few stripes at a time fit into any batch.
        for some in remembered.entries.chunks(256) {
            let mut records = Records::default();
            some.iter().for_each(|&(member, block, entry)| records.marks(member, block, &[entry]));
            let Ok(ticket) = protected.log.commit(records).await else { return };
            let mut cache = protected.checksums.pages.cache.borrow_mut();
            some.iter().for_each(|&(member, block, entry)| cache.set(member, block, entry));
            drop(cache);
            drop(ticket);
        }
        drop(remembered.pins);
    }

    /// These blocks are lost, and that is in the log and in the pages.
    pub(crate) async fn mark_lost(self: &Rc<Self>, member: u16, extent: Extent) {
        let Some(protected) = &self.protection else { return };
        let pins = protected.checksums.hold_pages(member, extent).await;
        let entries = (extent.start.0..extent.end().0).map(|block| (member, block, Entry::LOST)).collect();
        self.make_known(Remembered { entries, pins }).await;
    }

    /// Tells the owner what was wrong with the copies of a column, and what came of it.
    pub(crate) fn tell(&self, stripe: u64, column: u16, salvaged: &[Salvaged]) {
        let Some(protected) = &self.protection else { return };
        let usable = self.members.usable(stripe).read;
        for part in salvaged {
            let extent = self.layout.member_extent(stripe, part.rows);
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(stripe, Role::Data { column, copy });
                if !(part.blind.unreadable() & usable).contains(member) {
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

    /// What was wrong with a block that could not be had.
    pub(crate) fn kind_of(&self, member: u16, block: u64) -> FindingKind {
        let Some(protected) = &self.protection else { return FindingKind::Unreadable };
        let was_wrong = protected.checksums.pages.mismatched.borrow_mut().remove(&(member, block));
        match protected.checksums.entry(member, block) {
            Entry::UNKNOWN => FindingKind::Unknown,
            _ if was_wrong => FindingKind::Mismatch,
            _ => FindingKind::Unreadable,
        }
    }
}
