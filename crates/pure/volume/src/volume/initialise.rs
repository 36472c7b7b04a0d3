//! Slabs begin as zeros: `docs/adr/0005-thick-volumes-read-zeros.md` says why it is done this way.

use super::Volume;
use crate::layout::BLOCK_BYTES;
use crate::map::SlabId;
use block::{BlockDevice, Blocks, IoError, IoErrorKind, Lba, Stable, View, Written};
use smallvec::SmallVec;

/// How many slabs are made ready at once where that costs only a discard.
const AHEAD: u32 = 64;
/// Bytes of zeros that are written at once, about.
const ZERO_BYTES: u64 = 1 << 20;

impl<D: BlockDevice + 'static, G: BlockDevice> Volume<D, G> {
    /// How many slabs of the volume were written, and how many it has.
    pub fn initialised(&self) -> (u64, u64) {
        self.map.borrow().initialised()
    }

    /// The slab `id` holds what the volume wrote, or zeros, and the catalog says so; perhaps some after it, too.
    ///
    /// *Errors*: in the addresses of the group.
    pub(super) async fn initialise(&self, id: SlabId) -> Result<(), IoError> {
        let ahead = if self.geometry().discard_zeroes { AHEAD } else { 1 };
        let end = id.slab.saturating_add(ahead).min(self.map.borrow().slabs_beside(id));
        assert!(id.slab < end, "a slab that is made ready is one of its segment");
        let _filling = self.filling.exclusive(number(id)..number(SlabId { slab: end, ..id })).await;
        let slabs: SmallVec<[SlabId; AHEAD as usize]> = {
            let map = self.map.borrow();
            let ids = (id.slab..end).map(|slab| SlabId { slab, ..id });
            ids.filter(|&id| !map.is_initialised(id)).collect()
        };
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
        let mut stable = self.shared.gate(groups[0]).device().flush(zeroed).await?;
        for &group in &groups[1..] {
            stable = stable.and(self.shared.gate(group).device().flush(Written::attest()).await?);
        }
        self.commit_initialised(&slabs, stable).await
    }

    /// The blocks of a slab read as zeros on its group.
    async fn zero(&self, id: SlabId) -> Result<Written, IoError> {
        let (group, extent) = self.map.borrow().slab(id);
        let refused = |_| IoError::new(IoErrorKind::ReadOnly, extent);
        let _writing = self.shared.begin_write(group).await.map_err(refused)?;
        let device = self.shared.gate(group).device();
        let geometry = device.geometry();
        if geometry.discard_zeroes {
            return device.discard(extent).await;
        }
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

    /// The catalog says that `slabs` hold what the volume writes: only what is stable may be shown.
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
        let mut map = self.map.borrow_mut();
        let is_ready = slabs.iter().any(|&id| map.is_initialised(id));
        assert!(!is_ready, "no slab is zeroed that a volume writes to");
        slabs.iter().for_each(|&id| map.set_initialised(id));
        Ok(())
    }
}

/// A number for the locks: slabs of one segment lie beside each other.
fn number(id: SlabId) -> u64 {
    u64::from(id.segment) << 32 | u64::from(id.slab)
}
