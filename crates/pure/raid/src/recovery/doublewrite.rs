//! Restoring of pages from the doublewrite area: a checkpoint that was interrupted may have torn them in their homes.

use crate::bounds::BLOCK_BYTES;
use crate::members::ReadWait;
use crate::on_disk::page::{PageId, parse_any};
use crate::recovery::Recovery;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View};
use std::collections::BTreeMap;

/// Page found in the doublewrite area: its block there, and its content.
struct DoublewritePage {
    at: u64,
    block: View,
}

impl<D: BlockDevice + 'static> Recovery<'_, D> {
    /// Restores every page of the doublewrite area to its homes, unless they have it or a newer version.
    ///
    /// The page is first made stable in the doublewrite area of every member: until its homes are whole, that may be
    /// the only copy.
    pub(super) async fn restore_doublewrite(&self) -> Result<(), IoError> {
        let (stamp, pages) = self.find_doublewrite().await;
        if pages.is_empty() {
            return Ok(());
        }
        for page in pages.values() {
            let extent = Extent::new(self.array.log.state.area.doublewrite.start.0 + page.at, 1);
            for member in self.array.members.in_use().iter() {
                if self
                    .array
                    .members
                    .read_metadata(member, extent, ReadWait::Unbounded)
                    .await
                    .is_ok_and(|found| found == *page.block)
                {
                    continue;
                }
                self.write_or_fail(member, extent.start, page.block.clone()).await;
            }
        }
        // In the doublewrite area before the homes are touched.
        self.array.members.flush_those(self.array.members.in_use()).await?;
        // Later pages need higher stamps than those found here.
        self.array.checksums.pages.stamp.set(stamp);
        for (&id, page) in &pages {
            for address in self.array.checksums.page_addresses(id) {
                if !self.array.members.in_use().contains(address.member) {
                    continue;
                }
                let found = self
                    .array
                    .members
                    .read_metadata(address.member, Extent::new(address.at.0, 1), ReadWait::Unbounded)
                    .await;
                let found = found.ok().and_then(|rope| parse_any(&rope.into_view(), self.array.log.state.id));
                // A home that was written completely needs no second write.
                if found.is_none_or(|(is, found)| is != id || found.stamp < stamp) {
                    self.write_or_fail(address.member, address.at, page.block.clone()).await;
                }
            }
        }
        self.array.members.flush_those(self.array.members.in_use()).await
    }

    /// Finds the pages of the last round in the doublewrite area that no anchor has covered. Homes of earlier rounds
    /// were whole before it began, and may have changed since.
    async fn find_doublewrite(&self) -> (u64, BTreeMap<PageId, DoublewritePage>) {
        // A stamp up to the anchor's was stable in its homes when the anchor was written.
        let mut newest = self.array.log.state.anchor.borrow().stamp + 1;
        let mut pages: BTreeMap<PageId, DoublewritePage> = BTreeMap::new();
        for member in self.array.members.in_use().iter() {
            let Ok(rope) = self
                .array
                .members
                .read_metadata(member, self.array.log.state.area.doublewrite, ReadWait::Unbounded)
                .await
            else {
                continue;
            };
            let whole = rope.into_view();
            for (at, start) in (0..).zip((0..whole.len()).step_by(BLOCK_BYTES as usize)) {
                let block = whole.slice(start..start + BLOCK_BYTES as usize);
                let Some((id, found)) = parse_any(&block, self.array.log.state.id) else { continue };
                // Pages of a member that never joined, or of a growth that was not finished, have no home.
                let is_there = id.member < self.array.members.counted_len()
                    && id.page < self.array.checksums.pages.segments.pages();
                if !is_there || found.stamp < newest {
                    continue;
                }
                if found.stamp > newest {
                    // A newer round makes the older ones void: their homes were complete before it began.
                    newest = found.stamp;
                    pages.clear();
                }
                pages.insert(id, DoublewritePage { at, block });
            }
        }
        (newest, pages)
    }

    /// Writes a page or fails the member; a refusal by a needed member is ignored, because other copies can be
    /// written.
    async fn write_or_fail(&self, member: u16, at: Lba, block: View) {
        match self.array.members.place(member).write_metadata(at, block).await {
            Err(error) if error.kind != IoErrorKind::Medium || self.array.members.can_lose(member) => {
                self.array.members.mark_failed(member, error)
            }
            _ => {}
        }
    }
}
