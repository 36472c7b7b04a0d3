//! Repair of findings that the map itself can resolve: allocation bitmaps and counters.

use super::check::{CheckResult, ConsistencyCheck};
use super::{Family, MapError};
use crate::tree::Damage;
use block::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Repair of a family from the result of a check.
pub(crate) struct Repair<'a, D: BlockDevice + 'static, G: BlockDevice + 'static> {
    family: &'a Rc<Family<D, G>>,
    checked: &'a CheckResult,
}

impl<'a, D: BlockDevice + 'static, G: BlockDevice + 'static> Repair<'a, D, G> {
    pub(crate) fn of(family: &'a Rc<Family<D, G>>, checked: &'a CheckResult) -> Self {
        Self { family, checked }
    }

    /// Sets the allocation of granules and pages to what the map refers to, and recounts everything.
    ///
    /// The caller prevents changes meanwhile. *Durability*: when it returns.
    pub(crate) async fn run(self) -> Result<(), MapError> {
        let Self { family, checked } = self;
        self.repair_granules();
        repair_pages(family, &checked.seen);
        // Counted from the versions alone: stored counters are among the things that may be wrong.
        family.allocated.set(checked.granules);
        for branch in family.branches() {
            branch.own_versions.set(checked.own_versions.get(&branch.number).copied().unwrap_or(0));
            branch.mapped.set(family.count_mapped(&branch).await?);
        }
        // Bitmaps, counters and free pages become durable together.
        family.checkpoint().await?;
        // Loaded slabs are dropped, so that their free granules are read from the repaired map.
        let slabs: Vec<u32> = family.space.granules.borrow().slabs().collect();
        slabs.into_iter().for_each(|slab| family.space.granules.borrow_mut().mark_unknown(slab));
        Ok(())
    }

    fn repair_granules(&self) {
        let none = BTreeMap::new();
        let slabs: BTreeSet<u32> = self.checked.used.keys().chain(self.checked.taken.keys()).copied().collect();
        for slab in slabs {
            let of = |map: &BTreeMap<u32, BTreeMap<u32, u64>>| map.get(&slab).unwrap_or(&none).clone();
            let (used, taken) = (of(&self.checked.used), of(&self.checked.taken));
            // Words of both sides: one that only one of them has differs, too.
            let words: BTreeSet<u32> = used.keys().chain(taken.keys()).copied().collect();
            for word in words {
                let bits = |map: &BTreeMap<u32, u64>| map.get(&word).copied().unwrap_or(0);
                let (used, taken) = (bits(&used), bits(&taken));
                if used != taken {
                    // A change like any other: lookups see it at once, and the checkpoint writes it.
                    self.family.overlay.borrow_mut().mark(slab, word, used & !taken, taken & !used);
                }
            }
        }
    }
}

/// Recomputes the free pages from the tree when the bitmaps are lost; its time depends on the size of the map.
///
/// *Errors*: `Damaged` when the tree is damaged as well.
pub(super) async fn count_pages<D, G>(family: &Family<D, G>) -> Result<(), MapError>
where
    D: BlockDevice + 'static,
    G: BlockDevice + 'static,
{
    // Only the tree is needed: its pages are exactly those in use.
    let mut check = ConsistencyCheck::of(family);
    check.check_tree().await;
    if !check.checked.findings.is_empty() {
        return Err(Damage("the bits of free pages and a page of the map are damaged in every copy").into());
    }
    repair_pages(family, &check.checked.seen);
    Ok(())
}

/// Marks exactly the pages of the tree as allocated.
fn repair_pages<D: BlockDevice + 'static, G: BlockDevice + 'static>(family: &Family<D, G>, seen: &BTreeSet<u64>) {
    let first = super::page_space::LOG_START + family.log_blocks();
    let mut space = family.meta.space.borrow_mut();
    for page in (first..space.pages()).filter(|page| !space.is_for_bits(*page)).collect::<Vec<_>>() {
        match (space.is_taken(page), seen.contains(&page)) {
            (true, false) => space.release(page),
            (false, true) => space.take(page),
            _ => {}
        }
    }
}

#[cfg(test)]
impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Marks a used granule as free, a free granule and a free page as allocated, and miscounts.
    pub(crate) fn spoil(&self) {
        let slab = self.space.granules.borrow().slabs().next().expect("something was written");
        self.overlay.borrow_mut().mark(slab, 0, 1 << 15, 1);
        let page = self.meta.space.borrow_mut().allocate();
        assert!(page.is_some());
        self.allocated.set(self.allocated.get() + 3);
    }
}
