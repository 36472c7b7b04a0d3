//! UNMAP of a branch: frees whole granules and zeroes parts of granules.

use super::parts::{bytes, parts};
use super::{Branch, Family, MapError};
use crate::bug_injection::{self, InjectedBug};
use crate::maplog::Record;
use crate::tree::{GranuleAddress, Key};
use block::{BlockDevice, Extent, View};
use std::rc::Rc;

/// Number of granules locked at a time.
const BATCH: u64 = 256;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Unmaps the blocks of `extent`: they read as zeros from now on, and whole granules of them are freed.
    pub(crate) async fn discard(self: &Rc<Self>, branch: &Rc<Branch>, extent: Extent) -> Result<(), MapError> {
        let blocks = u64::from(self.granule_blocks);
        // The last granule of the volume counts as whole when the extent reaches the end of the volume.
        let size = branch.size_bytes.get().div_ceil(u64::from(crate::layout::BLOCK_BYTES));
        let end = if extent.end().0 >= size { extent.end().0.next_multiple_of(blocks) } else { extent.end().0 };
        let (first, last) = (extent.start.0.div_ceil(blocks), end / blocks);
        if first >= last {
            return self.clear(branch, extent).await;
        }
        // Partial granules at both ends are zeroed, since a granule is freed as a whole.
        self.clear(branch, Extent::new(extent.start.0, first * blocks - extent.start.0)).await?;
        if last * blocks < extent.end().0 {
            self.clear(branch, Extent::new(last * blocks, extent.end().0 - last * blocks)).await?;
        }
        let mut granule = first;
        while granule < last {
            let (candidates, until) = self.candidates_in(branch, granule..last).await?;
            // Without a version in this part of the map there is nothing to free and nothing to lock.
            let Some(&next) = candidates.first() else {
                granule = until;
                continue;
            };
            // A bounded batch, so that writers and snapshots wait for a short time only.
            let batch = u64::from(next)..(u64::from(next) + BATCH).min(until);
            self.admit_change().await?;
            let _held = branch.locks.exclusive(batch.clone()).await;
            for granule in candidates.into_iter().filter(|&granule| batch.contains(&u64::from(granule))) {
                self.unmap_granule(branch, granule).await?;
            }
            granule = batch.end;
        }
        Ok(())
    }

    /// Zeroes parts of granules, where they are mapped.
    async fn clear(self: &Rc<Self>, branch: &Rc<Branch>, extent: Extent) -> Result<(), MapError> {
        for part in parts(extent, self.granule_blocks) {
            // Zeros written to an unmapped part would allocate a granule for what reads as zeros already.
            if self.visible_version(branch, part.granule, branch.epoch.get()).await?.is_some() {
                let here = Extent::new(extent.start.0 + part.at, part.blocks);
                self.write(branch, here, View::zeroed(bytes(part.blocks))).await?;
            }
        }
        Ok(())
    }

    /// Makes the granule a hole of the volume; what a snapshot sees stays. The caller holds the granule's lock.
    pub(super) async fn unmap_granule(&self, branch: &Rc<Branch>, granule: u32) -> Result<(), MapError> {
        let epoch = branch.epoch.get();
        let Some(seen) = self.visible_version(branch, granule, epoch).await? else { return Ok(()) };
        branch.unmapped.set(branch.unmapped.get() + 1);
        let own = (seen.branch, seen.epoch) == (branch.number, epoch);
        let key = |epoch| Key::version(branch.number, granule, epoch);
        // Without a hole record the volume would show the older version beneath it.
        let beneath = branch.parent.is_some() || self.last_entry(key(0), key(epoch - 1)).await?.is_some();
        if bug_injection::is_injected(InjectedBug::DiscardShared) && !own && seen.branch == branch.number {
            let freed = Some(seen.place);
            self.change(Record { key: key(seen.epoch), value: None, freed, mapped: -1, exclusive: false });
            return Ok(());
        }
        self.change(Record {
            key: key(epoch),
            value: beneath.then_some(GranuleAddress::HOLE.0),
            freed: own.then_some(seen.place).filter(|place| place.is_data()),
            mapped: -1,
            exclusive: !own && seen.branch == branch.number && branch.is_exclusive(seen.epoch),
        });
        Ok(())
    }
}
