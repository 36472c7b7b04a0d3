//! Zeroing of slabs before their first write (ADR 0005).

use super::Volume;
use crate::layout::BLOCK_BYTES;
use crate::map::SlabId;
use block::{BlockDevice, Blocks, IoError, IoErrorKind, Lba, Stable, View, Written};
use smallvec::SmallVec;

/// Number of slabs initialized ahead where a discard does it.
const AHEAD: u32 = 64;
/// Approximate number of bytes zeroed in one write.
const ZERO_BYTES: u64 = 1 << 20;

impl<D: BlockDevice + 'static, G: BlockDevice> Volume<D, G> {
    /// Number of initialized slabs and number of all slabs of the volume.
    pub fn initialised(&self) -> (u64, u64) {
        self.map.borrow().initialised()
    }

    /// Zeroes the slab `id`, and possibly some after it, and records that in the catalog.
    ///
    /// *Errors*: in the addresses of the group.
    pub(super) async fn initialise(&self, id: SlabId) -> Result<(), IoError> {
        // A sequential load then commits once for many slabs; writing zeros ahead would cost too much.
        let ahead = if self.geometry().discard_zeroes { AHEAD } else { 1 };
        let end = id.slab.saturating_add(ahead).min(self.map.borrow().slabs_in_segment(id));
        assert!(id.slab < end, "a slab that is made ready is one of its segment");
        // One write initializes the slab; others of the same slab wait for it.
        let _filling = self.filling.exclusive(number(id)..number(SlabId { slab: end, ..id })).await;
        let slabs: SmallVec<[SlabId; AHEAD as usize]> = {
            let map = self.map.borrow();
            let ids = (id.slab..end).map(|slab| SlabId { slab, ..id });
            ids.filter(|&id| !map.is_initialised(id)).collect()
        };
        // Another write initialized it while this one waited for the lock.
        if slabs.first() != Some(&id) {
            return Ok(());
        }
        let mut groups: SmallVec<[u16; 8]> = SmallVec::new();
        let mut zeroed = Written::attest();
        for &slab in &slabs {
            zeroed = zeroed.and(self.zero(slab).await?);
            let group = self.map.borrow().slab(slab).0;
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        // All zeros must be stable before the catalog calls the slabs initialized.
        let mut stable = self.shared.gate(groups[0]).device().flush(zeroed).await?;
        for &group in &groups[1..] {
            stable = stable.and(self.shared.gate(group).device().flush(Written::attest()).await?);
        }
        self.commit_initialised(&slabs, stable).await
    }

    /// Zeroes the blocks of a slab on its group.
    async fn zero(&self, id: SlabId) -> Result<Written, IoError> {
        let (group, extent) = self.map.borrow().slab(id);
        let refused = |_| IoError::new(IoErrorKind::ReadOnly, extent);
        // Zeroing is a write as well: the group must be dirty before it.
        let _writing = self.shared.start_write(group).await.map_err(refused)?;
        let device = self.shared.gate(group).device();
        let geometry = device.geometry();
        if geometry.discard_zeroes {
            return device.discard(extent).await;
        }
        // Whole stripes are written, so that zeroing needs no read-modify-write.
        let stripe_blocks = u64::from(geometry.optimal_bytes / BLOCK_BYTES).max(1);
        let step = stripe_blocks * (ZERO_BYTES / u64::from(BLOCK_BYTES)).div_ceil(stripe_blocks);
        let zeros = View::zeroed(super::bytes(Blocks(step.min(extent.len.0))));
        let mut written = Written::attest();
        let mut at = extent.start.0;
        while at < extent.end().0 {
            let blocks = Blocks(step.min(extent.end().0 - at));
            written = written.and(device.write(Lba(at), zeros.slice(..super::bytes(blocks))).await?);
            at += blocks.0;
        }
        Ok(written)
    }

    /// Records `slabs` as initialized; `_zeroed` attests that their zeros are stable.
    async fn commit_initialised(&self, slabs: &[SlabId], _zeroed: Stable) -> Result<(), IoError> {
        let made = self.shared.store.change(|catalog| {
            let record = catalog.volumes.iter_mut().find(|volume| volume.id == self.id);
            let segments = &mut record.expect("a volume in use is in the catalog").segments;
            for id in slabs {
                segments[id.segment as usize].initialised.insert(id.slab);
            }
            Ok(())
        });
        let refused = |_| IoError::new(IoErrorKind::ReadOnly, self.map.borrow().slab(slabs[0]).1);
        let ((), change) = made.map_err(refused)?;
        self.shared.store.committed(change).await.map_err(refused)?;
        // Only after the commit: a write that is let through must find the slab initialized after a crash.
        let mut map = self.map.borrow_mut();
        let is_ready = slabs.iter().any(|&id| map.is_initialised(id));
        assert!(!is_ready, "no slab is zeroed that a volume writes to");
        slabs.iter().for_each(|&id| map.set_initialised(id));
        Ok(())
    }
}

/// Lock number of a slab: slabs of one segment are adjacent.
fn number(id: SlabId) -> u64 {
    u64::from(id.segment) << 32 | u64::from(id.slab)
}
