//! Map lookups: the tree, overlaid by the changes in memory.

use super::{Branch, Family, MapError};
use crate::tree::{Change, GranuleAddress, Key, last_at_most, leaf_at};
use block::BlockDevice;
use std::rc::Rc;

/// Version that a viewer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VisibleVersion {
    /// Branch with the version: the viewer's own, or one of its origins.
    pub(crate) branch: u32,
    pub(crate) epoch: u64,
    /// Location; never a hole, but it may be lost.
    pub(crate) place: GranuleAddress,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Returns the entry with the largest key from `from` to `to`.
    pub(crate) async fn last_entry(&self, from: Key, to: Key) -> Result<Option<(Key, u64)>, MapError> {
        let _looking = self.space.eras.enter();
        let mut to = to;
        loop {
            // Both are read at one instant, because a checkpoint moves changes from the layers into the tree.
            let (changed, root) = (self.overlay.borrow().last(from..=to), self.root.get());
            if let Some((key, Change::Put(value))) = changed
                && key == to
            {
                // The wanted key itself was changed, so the tree need not be read.
                return Ok(Some((key, value)));
            }
            let stored = last_at_most(&self.meta, root, to).await?.filter(|(key, _)| *key >= from);
            // The larger key of the tree and of the changes wins.
            let Some((key, change)) = changed else { return Ok(stored) };
            match (stored, change) {
                (Some(stored), _) if stored.0 > key => return Ok(Some(stored)),
                (_, Change::Put(value)) => return Ok(Some((key, value))),
                // The newest change is a removal; the search continues below the removed key.
                _ if key <= from => return Ok(None),
                // No underflow: the removed key lies above `from`.
                _ => to = Key(key.0 - 1),
            }
        }
    }

    /// Returns some entries from `from` on and before `end`, in order, and the key at which to continue.
    pub(crate) async fn entries(&self, from: Key, end: Key) -> Result<(Vec<(Key, u64)>, Option<Key>), MapError> {
        let _looking = self.space.eras.enter();
        loop {
            let root = self.root.get();
            let leaf = leaf_at(&self.meta, root, from).await?;
            if self.root.get() != root {
                // A checkpoint moved changes into a new tree while the leaf was read; the old leaf lacks them.
                continue;
            }
            let Some((leaf, next)) = leaf else {
                return Ok((self.overlay.borrow().apply_to(Vec::new(), from, end), None));
            };
            let next = next.filter(|next| *next < end);
            // One leaf at a time, so that a long range needs little memory.
            let until = next.unwrap_or(end);
            let stored = leaf.iter().filter(|(key, _)| (from..until).contains(key)).collect();
            return Ok((self.overlay.borrow().apply_to(stored, from, until), next));
        }
    }

    /// Returns the newest version of a granule in one branch that `viewer` sees, hole or not.
    pub(crate) async fn version(
        &self,
        branch: &Branch,
        granule: u32,
        viewer: u64,
    ) -> Result<Option<(u64, GranuleAddress)>, MapError> {
        let mut viewer = viewer;
        loop {
            // Each step continues at an earlier epoch, so this ends.
            let (floor, next) = branch.lookup_step(viewer);
            let key = |epoch| Key::version(branch.number, granule, epoch);
            let newest = self.last_entry(key(0), key(viewer)).await?;
            match (newest, next) {
                (None, _) => return Ok(None),
                // A version at or below the floor lies in a dead range and is not seen.
                (Some((key, value)), _) if key.low() > floor => {
                    return Ok(Some((key.low(), self.data.place_of(value))));
                }
                (Some(_), None) => return Ok(None),
                (Some(_), Some(next)) => viewer = next,
            }
        }
    }

    /// Locates the data of a granule for `viewer`, following clones to their origins; none for a hole.
    pub(crate) async fn visible_version(
        &self,
        branch: &Rc<Branch>,
        granule: u32,
        viewer: u64,
    ) -> Result<Option<VisibleVersion>, MapError> {
        let (mut branch, mut viewer) = (branch.clone(), viewer);
        loop {
            // A hole of the branch itself hides the origin's data, so the search ends here.
            if let Some((epoch, place)) = self.version(&branch, granule, viewer).await? {
                return Ok((place != GranuleAddress::HOLE).then_some(VisibleVersion {
                    branch: branch.number,
                    epoch,
                    place,
                }));
            }
            match self.branches.parent(&branch) {
                Some(parent) => (branch, viewer) = parent,
                None => return Ok(None),
            }
        }
    }
}
