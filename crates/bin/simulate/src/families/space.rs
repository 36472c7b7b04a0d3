//! Space in a full pool: hosts can rewrite space that they gave back, and everything can be deleted.

use super::Families;
use crate::host::traffic::{Unit, WorkloadProfile};
use crate::stage::{CheckResult, PresentedVolume};
use model::{Backend, Order, Provision, Size, code};
use shard::World;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Default granule in bytes.
const USUAL_GRANULE_BYTES: u64 = 64 << 10;

impl Families<'_> {
    /// Allows refusals for lack of space on thin volumes from now on. Other volumes have reserved space and are never
    /// refused.
    pub(crate) fn expect_refusals(&mut self) {
        self.scarce = true;
    }

    /// Returns the block length of the volumes in bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.volumes.first().map_or(4096, |(volume, _)| volume.unit.block_bytes as u64)
    }

    /// Distributes the commands to the newest volume over `places` ranges of it.
    pub(crate) fn spread(&mut self, places: u64) {
        let Some((volume, _)) = self.volumes.last_mut() else { return };
        let blocks = volume.unit.oracle.borrow().blocks();
        let each = blocks / places;
        let len = each.min((256 << 10) / volume.unit.block_bytes as u64);
        let place = |at: u64| {
            // Places do not overlap, and each begins at a random block of its part.
            let start = at * each + self.stage.chance.below(each - len + 1);
            start..start + len
        };
        volume.unit.hot = Rc::new((0..places).map(place).collect());
    }

    /// Discards all of a volume that never shared space, and writes the same amount again: this is never refused. No
    /// host works meanwhile.
    pub(crate) async fn refill(&mut self, habits: &WorkloadProfile) -> CheckResult<()> {
        let stage = self.stage;
        let is_alone = |volume: &PresentedVolume| !self.relatives.contains(&volume.id);
        let thin = self.volumes.iter().filter(|(volume, of)| *of == Provision::Thin && is_alone(volume));
        let alone: Vec<&PresentedVolume> = thin.map(|(volume, _)| volume).collect();
        if alone.is_empty() {
            return Ok(());
        }
        let volume = alone[stage.chance.index(alone.len())];
        let (granule, given_back) = self.mapped(volume).await?;
        stage.discard_all(&volume.unit).await?;
        let (_, left) = self.mapped(volume).await?;
        // Nothing shares the space of this volume, so all of it must be free.
        if left > 0 {
            return Err(format!("volume {} was discarded, and {left} bytes of it take space", volume.name));
        }
        // Only as much as was given back is guaranteed to fit again.
        let hot = within(&volume.unit, granule, given_back);
        if hot.is_empty() {
            return Ok(());
        }
        // Refusals are violations here, since the space was freed just now.
        let unit = Unit { hot: Rc::new(hot), scarce: false, ..volume.unit.clone() };
        let traffic = stage.start_hosts(1, stage.chance.within(10..=60), &[unit], habits);
        stage.until_over(&traffic, Duration::from_millis(10)).await;
        stage.until_quiet(&traffic).await?;
        self.check_all_blocks().await
    }

    /// Returns the granule of a volume and its mapped bytes.
    async fn mapped(&self, volume: &PresentedVolume) -> CheckResult<(u64, u64)> {
        let found = self.stage.volumes().await?.into_iter().find(|found| found.id == volume.id);
        let found = found.ok_or_else(|| format!("volume {} is gone", volume.name))?;
        let Backend::Pool { granule, .. } = found.backend else {
            return Err(format!("volume {} lies in no pool: {:?}", volume.name, found.backend));
        };
        Ok((granule.map_or(USUAL_GRANULE_BYTES, Size::bytes), found.space.map_or(0, |space| space.mapped.bytes())))
    }

    /// Deletes every snapshot and every volume, which needs no space. No host works meanwhile.
    pub(crate) async fn take_apart(&mut self) -> CheckResult<()> {
        self.stage.present(&[]).await?;
        while !self.volumes.is_empty() {
            while let Some(at) = self.snapshots.iter().position(|snapshot| snapshot.clones.is_empty()) {
                let order = Order::DeleteSnapshot { snapshot: self.snapshots[at].name.clone() };
                match self.stage.ask(order).await {
                    Ok(_) => drop(self.snapshots.remove(at)),
                    // A clone of it is still being deleted.
                    Err(refusal) if refusal.code == code::SNAPSHOT_IN_USE => {
                        self.stage.world.sleep(Duration::from_secs(1)).await;
                    }
                    Err(refusal) => return Err(format!("the snapshot stays: {refusal}")),
                }
            }
            // A volume with snapshots cannot be deleted; the clones go first, which frees the snapshots.
            let is_free =
                |volume: &PresentedVolume| self.snapshots.iter().all(|snapshot| snapshot.name.volume != volume.name);
            let at = self.volumes.iter().position(|(volume, _)| is_free(volume));
            let (gone, _) = self.volumes.remove(at.ok_or("every volume has a snapshot that was cloned")?);
            self.stage.order(Order::DeleteVolume { volume: gone.name }).await?;
            self.forget_clone(gone.id);
        }
        Ok(())
    }
}

/// Returns the hot ranges of the volume, from the first on, whose granules fit into `bytes`.
fn within(unit: &Unit, granule: u64, bytes: u64) -> Vec<Range<u64>> {
    let mut left = bytes / granule;
    let block = unit.block_bytes as u64;
    // Granules that the range touches only in part count as well.
    let granules = |place: &&Range<u64>| (place.end * block).div_ceil(granule) - place.start * block / granule;
    let fits = |place: &&Range<u64>| {
        // A range that does not fit is skipped, and a shorter one may follow.
        let rest = left.checked_sub(granules(place));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    unit.hot.iter().filter(fits).cloned().collect()
}
