//! Resolution of checksum-only writes that had not finished: each copy holds the new content, the old, or neither.

use super::{FinalState, FinalStates};
use crate::bug_injection::{self, InjectedBug};
use crate::members::ReadWait;
use crate::on_disk::entry::{Entry, guards};
use crate::recovery::Recovery;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View};
use std::collections::BTreeSet;

/// State of one copy of a block.
struct Copy {
    member: u16,
    content: Option<View>,
    has_new: bool,
    has_old: bool,
}

impl<D: BlockDevice + 'static> Recovery<'_, D> {
    /// Makes the copies of every such block equal, to the newest content that any of them holds; returns the number
    /// of blocks.
    pub(super) async fn resolve_checksum_only(&self, final_states: &mut FinalStates) -> Result<u64, IoError> {
        let copies = self.array.layout.copies();
        let open = final_states.iter().filter(|(_, last)| last.old.is_some());
        let open: BTreeSet<(u16, u64)> = open.map(|(&(member, block), _)| (member / copies, block)).collect();
        if bug_injection::is_injected(InjectedBug::NoJudge) {
            return Ok(0);
        }
        for &(pair, block) in &open {
            self.resolve_block(final_states, pair, block).await?;
        }
        self.array.members.failures_recorded(Extent::default()).await?;
        Ok(open.len() as u64)
    }

    async fn resolve_block(&self, final_states: &mut FinalStates, pair: u16, block: u64) -> Result<(), IoError> {
        let copies = self.array.layout.copies();
        let mut found = Vec::new();
        for member in pair * copies..(pair + 1) * copies {
            let Some(&last) = final_states.get(&(member, block)) else { continue };
            if self.array.members.in_use().contains(member) {
                found.push(self.read_copy(member, block, last).await);
            }
        }
        // The newest content that any copy holds may have been returned to a reader before the crash.
        let newest = found.iter().position(|copy| copy.has_new);
        let right = newest.or_else(|| found.iter().position(|copy| copy.has_old));
        for member in pair * copies..(pair + 1) * copies {
            let Some(last) = final_states.get_mut(&(member, block)) else { continue };
            last.new = match (newest, right, last.old) {
                (Some(_), ..) => last.new,
                (None, Some(_), Some(old)) => old,
                // Torn on the only copy: the content is unknown and reads as a medium error, never as wrong data.
                _ => Entry::LOST,
            };
        }
        let Some(right) = right else { return Ok(()) };
        let Some(content) = found[right].content.clone() else { return Ok(()) };
        for copy in &found {
            // Copies that already agree are not written again.
            let is_right = if newest.is_some() { copy.has_new } else { copy.has_old };
            if is_right {
                continue;
            }
            // A needed member that refuses keeps its old content, which no longer matches: redundancy serves the
            // block.
            match self.array.members.place(copy.member).write(Lba(block), content.clone()).await {
                Err(error) if error.kind != IoErrorKind::Medium || self.array.members.can_lose(copy.member) => {
                    self.array.members.mark_failed(copy.member, error);
                    self.array.members.serving(Extent::default())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn read_copy(&self, member: u16, block: u64, last: FinalState) -> Copy {
        let content = self
            .array
            .members
            .read_data(member, Extent::new(block, 1), ReadWait::Unbounded)
            .await
            .ok()
            .map(block::Rope::into_view);
        let guard = content.as_ref().and_then(|content| guards(content).next());
        let binding = self.array.checksums.pages.binding(member, block);
        let is = |entry: Entry| guard.is_some_and(|guard| entry.matches(binding, guard));
        let old = last.old.unwrap_or(last.new);
        // The block was unwritten before: its content does not matter, because it reads as zeros again.
        let has_old = old.is_unwritten() || is(old);
        Copy {
            member,
            has_new: is(last.new),
            has_old,
            content: content.filter(|_| !old.is_unwritten() || is(last.new)),
        }
    }
}
