//! Pages that had been put down when the array stopped: they may be torn in their homes, and are put there again.

use crate::bounds::BLOCK_BYTES;
use crate::members::Patience;
use crate::on_disk::page::{PageId, parse_any};
use crate::recovery::Recovery;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, View};
use std::collections::BTreeMap;

/// A page that was put down: where, and as what.
struct Spared {
    at: u64,
    block: View,
}

impl<D: BlockDevice + 'static> Recovery<'_, D> {
    /// The homes of every page that had been put down are whole, and not older than it.
    ///
    /// First the page is made stable where it was put down: until its homes are whole, it may be all there is.
    pub(super) async fn restore_spared(&self) -> Result<(), IoError> {
        let (stamp, spared) = self.find_spared().await;
        if spared.is_empty() {
            return Ok(());
        }
        for page in spared.values() {
            let extent = Extent::new(self.array.log.state.area.spare.start.0 + page.at, 1);
            for member in self.array.members.in_use().iter() {
                if self
                    .array
                    .members
                    .read_beside_data(member, extent, Patience::Patient)
                    .await
                    .is_ok_and(|found| found == *page.block)
                {
                    continue;
                }
                self.write_or_lose(member, extent.start, page.block.clone()).await;
            }
        }
        self.array.members.flush_those(self.array.members.in_use()).await?;
        self.array.checksums.pages.stamp.set(stamp);
        for (&id, page) in &spared {
            for home in self.array.checksums.homes(id) {
                if !self.array.members.in_use().contains(home.member) {
                    continue;
                }
                let found = self
                    .array
                    .members
                    .read_beside_data(home.member, Extent::new(home.at.0, 1), Patience::Patient)
                    .await;
                let found = found.ok().and_then(|rope| parse_any(&rope.into_view(), self.array.log.state.id));
                if found.is_none_or(|(is, found)| is != id || found.stamp < stamp) {
                    self.write_or_lose(home.member, home.at, page.block.clone()).await;
                }
            }
        }
        self.array.members.flush_those(self.array.members.in_use()).await
    }

    /// The pages of the round that was put down last, if no anchor has covered it: the homes of all earlier rounds
    /// were whole before it began, and may have been changed since.
    async fn find_spared(&self) -> (u64, BTreeMap<PageId, Spared>) {
        let mut newest = self.array.log.state.anchor.borrow().stamp + 1;
        let mut spared: BTreeMap<PageId, Spared> = BTreeMap::new();
        for member in self.array.members.in_use().iter() {
            let Ok(rope) =
                self.array.members.read_beside_data(member, self.array.log.state.area.spare, Patience::Patient).await
            else {
                continue;
            };
            let whole = rope.into_view();
            for (at, start) in (0..).zip((0..whole.len()).step_by(BLOCK_BYTES as usize)) {
                let block = whole.slice(start..start + BLOCK_BYTES as usize);
                let Some((id, found)) = parse_any(&block, self.array.log.state.id) else { continue };
                let is_there =
                    id.member < self.array.members.width() && id.page < self.array.checksums.pages.segments.pages();
                if !is_there || found.stamp < newest {
                    continue;
                }
                if found.stamp > newest {
                    newest = found.stamp;
                    spared.clear();
                }
                spared.insert(id, Spared { at, block });
            }
        }
        (newest, spared)
    }

    /// What cannot be spared and cannot be written here has another place where it can.
    async fn write_or_lose(&self, member: u16, at: Lba, block: View) {
        match self.array.members.place(member).write_beside_data(at, block).await {
            Err(error) if error.kind != IoErrorKind::Medium || self.array.members.spares(member) => {
                self.array.members.lose(member, error)
            }
            _ => {}
        }
    }
}
