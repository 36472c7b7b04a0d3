//! Consistency check of a family's map: reads all of it and reports contradictions (`pool check`).

use super::page_space::LOG_START;
use super::{Family, MapError};
use crate::maplog::replay;
use crate::tree::{Counter, GranuleAddress, Key, Root, Tag, child_of};
use block::BlockDevice;
use futures_util::future::LocalBoxFuture;
use shard::RangeGuard;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Problems found; empty when the maps are consistent.
    pub findings: Vec<Finding>,
    /// Number of map entries checked.
    pub entries: u64,
    /// Number of granules in use.
    pub granules: u64,
    /// Number of map pages in use.
    pub pages: u64,
}

/// Problem found in a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// UUID of the family.
    pub family: Uuid,
    /// Kind of the problem.
    pub kind: FindingKind,
    /// Description.
    pub what: String,
}

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Unused space marked as allocated. [`Pool::repair`](crate::Pool::repair) frees it.
    Leak,
    /// Used space marked as free, which may be allocated again. [`Pool::repair`](crate::Pool::repair) marks it
    /// as allocated.
    UsedMarkedFree,
    /// Space used twice.
    DoubleUse,
    /// Reference to a volume or slab that does not exist.
    OutOfRange,
    /// Unreadable or damaged part of the map.
    Damaged,
    /// Wrong counter. [`Pool::repair`](crate::Pool::repair) recounts.
    Count,
    /// Lost map blocks; the volumes do not open. [`Pool::repair`](crate::Pool::repair) continues with what is
    /// left once the operator has accepted the listed losses.
    Lost,
}

/// Result of a check of one family.
#[derive(Default)]
pub(crate) struct CheckResult {
    pub(crate) findings: Vec<(FindingKind, String)>,
    pub(crate) entries: u64,
    pub(crate) pages: u64,
    /// Granules that versions use, by slab and 64-granule word.
    pub(crate) used: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// Granules marked as allocated, by slab and 64-granule word.
    pub(crate) taken: BTreeMap<u32, BTreeMap<u32, u64>>,
    pub(crate) granules: u64,
    pub(super) own_versions: BTreeMap<u32, u64>,
    /// Pages of the tree.
    pub(super) seen: BTreeSet<u64>,
}

impl CheckResult {
    fn find(&mut self, kind: FindingKind, what: String) {
        self.findings.push((kind, what));
    }
}

/// Check in progress. It borrows the family, which must not change meanwhile.
pub(crate) struct ConsistencyCheck<'a, D: BlockDevice + 'static, G: BlockDevice + 'static> {
    family: &'a Family<D, G>,
    pub(super) checked: CheckResult,
}

impl<'a, D: BlockDevice + 'static, G: BlockDevice + 'static> ConsistencyCheck<'a, D, G> {
    pub(super) fn of(family: &'a Family<D, G>) -> Self {
        Self { family, checked: CheckResult::default() }
    }

    /// Checks the map, its head and its log. Writes nothing but damaged copies. The caller prevents changes
    /// meanwhile.
    pub(crate) async fn run(family: &'a Family<D, G>) -> Result<CheckResult, MapError> {
        let mut check = Self::of(family);
        check.check_map().await?;
        check.check_log().await?;
        Ok(check.checked)
    }

    /// Checks as [`ConsistencyCheck::run`], but only the open map, whatever head and log are on the disks.
    pub(super) async fn run_on_map(family: &'a Family<D, G>) -> Result<CheckResult, MapError> {
        let mut check = Self::of(family);
        check.check_map().await?;
        Ok(check.checked)
    }

    async fn check_map(&mut self) -> Result<(), MapError> {
        self.check_pages().await;
        self.check_entries().await?;
        self.check_space();
        self.check_counts().await
    }

    /// Checks that exactly the pages of the tree are marked as allocated.
    async fn check_pages(&mut self) {
        self.check_tree().await;
        let seen = std::mem::take(&mut self.checked.seen);
        self.checked.pages = seen.len() as u64;
        let space = self.family.meta.space.borrow();
        let is_tree = |page: &u64| *page >= LOG_START + self.family.log_blocks() && !space.is_for_bits(*page);
        for page in (0..space.pages()).filter(is_tree).filter(|&page| space.is_taken(page) != seen.contains(&page)) {
            match space.is_taken(page) {
                true => self.checked.find(FindingKind::Leak, format!("page {page} of the map is taken by nobody")),
                false => {
                    self.checked.find(FindingKind::UsedMarkedFree, format!("page {page} of the map is used and free"))
                }
            }
        }
        self.checked.seen = seen;
    }

    /// Checks that every page of the tree is intact and occurs in it once.
    pub(super) async fn check_tree(&mut self) {
        if let Some(root) = self.family.root.get() {
            self.check_page(root, None).await;
        }
    }

    fn check_page(&mut self, node: Root, first: Option<Key>) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            let number = node.page;
            // A page that occurs twice is not followed again, so a cyclic tree ends here.
            if !self.checked.seen.insert(number) {
                return self.checked.find(FindingKind::DoubleUse, format!("page {number} is in the map twice"));
            }
            let (page, generation) = match self.family.meta.verify_page(number).await {
                Ok(page) => page,
                Err(MapError::Damaged(damage)) => {
                    return self.checked.find(FindingKind::Damaged, format!("page {number}: {damage}"));
                }
                Err(error) => return self.checked.find(FindingKind::Damaged, format!("page {number}: {error:?}")),
            };
            // A parent tells level, first key and number of entries of a child, so a stale page in a valid
            // place is recognized.
            let told = page.level() == node.level
                && page.len() == usize::from(node.count)
                && first.is_none_or(|first| page.entry(0).0 == first)
                && generation <= self.family.head.borrow().generation;
            if !told {
                return self.checked.find(FindingKind::Damaged, format!("page {number} is not what its parent says"));
            }
            // The level decreases at each step, which bounds the recursion.
            for at in (0..page.len()).filter(|_| node.level > 0) {
                let (first, value) = page.entry(at);
                let (child, count) = child_of(value);
                let child = Root { page: child, level: node.level - 1, count: count as u16 };
                self.check_page(child, Some(first)).await;
            }
        })
    }

    /// Checks that head and log on the disks are those of the open family.
    async fn check_log(&mut self) -> Result<(), MapError> {
        // A family that was never written has no head on the disks and the default one in memory.
        let head = self.family.meta.read_head().await?.unwrap_or_default();
        if head != *self.family.head.borrow() {
            self.checked.find(FindingKind::Damaged, "the head on the disks is not the newest".to_owned());
        }
        // Without a head there is no log to compare.
        if head.generation == 0 {
            return Ok(());
        }
        let image = self.family.meta.read_log().await;
        match replay(&image.slots, head.sequence, head.serial, head.life) {
            Ok(found) if found.sequence == self.family.log.borrow().sequence => {
                self.family.meta.repair_log(&image, head.sequence..found.sequence).await;
            }
            Ok(_) => self.checked.find(FindingKind::Damaged, "the log on the disks ends elsewhere".to_owned()),
            Err(damage) => self.checked.find(FindingKind::Damaged, damage.to_string()),
        }
        Ok(())
    }

    async fn check_entries(&mut self) -> Result<(), MapError> {
        let mut from = Key(0);
        loop {
            let (entries, next) = self.family.entries(from, Key(u128::MAX)).await?;
            for (key, value) in entries {
                self.checked.entries += 1;
                self.check_entry(key, value);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    fn check_entry(&mut self, key: Key, value: u64) {
        match key.tag() {
            Some(Tag::Version) => self.check_version(key, GranuleAddress(value)),
            // Bitmaps are collected and compared with the versions once all entries have been read.
            Some(Tag::Taken) => {
                self.checked.taken.entry(key.middle()).or_default().insert(key.low() as u32, value);
            }
            Some(Tag::Progress) if self.family.branch(key.branch()).is_some() => {}
            Some(Tag::Counter) if Counter::of(key.middle()).is_some() => {}
            // Counters of a removed branch may remain until the next checkpoint.
            _ => self.checked.find(FindingKind::OutOfRange, format!("{key:?} stands for nothing")),
        }
    }

    fn check_version(&mut self, key: Key, place: GranuleAddress) {
        let known = self.family.branch(key.branch()).is_some_and(|branch| {
            let granules = branch.granules(self.family.granule_blocks);
            u64::from(key.middle()) < granules && (1..=branch.epoch.get()).contains(&key.low())
        });
        if !known {
            self.checked.find(FindingKind::OutOfRange, format!("{key:?} is of no volume"));
        }
        // Holes and lost granules occupy no space.
        if !place.is_data() {
            return;
        }
        let granules = self.family.space.granules.borrow();
        if !granules.has(place.slab()) || place.index() >= granules.granules(place.slab()) {
            self.checked.find(FindingKind::OutOfRange, format!("{key:?} lies on a slab that the family does not have"));
            return;
        }
        let word = self.checked.used.entry(place.slab()).or_default().entry(place.index() / 64).or_default();
        let bit = 1 << (place.index() % 64);
        let twice = *word & bit != 0;
        *word |= bit;
        self.checked.granules += 1;
        if self.family.branch(key.branch()).is_some_and(|branch| branch.epoch.get() == key.low()) {
            *self.checked.own_versions.entry(key.branch()).or_default() += 1;
        }
        // Two versions in one place: freeing one of them would free the other's data.
        if twice {
            self.checked.find(FindingKind::DoubleUse, format!("{place:?} is in the map twice, also as {key:?}"));
        }
    }

    /// Compares the allocation bitmaps with the granules in use.
    fn check_space(&mut self) {
        let slabs: BTreeSet<u32> = self.checked.used.keys().chain(self.checked.taken.keys()).copied().collect();
        for slab in slabs {
            let word = |map: &BTreeMap<u32, BTreeMap<u32, u64>>, at: u32| {
                map.get(&slab).and_then(|words| words.get(&at)).copied().unwrap_or(0)
            };
            // Versions on such a slab were reported and not collected above, so only bits are left.
            if !self.family.space.granules.borrow().has(slab) {
                self.checked.find(
                    FindingKind::Leak,
                    format!("granules of slab {slab:#x} are taken, which is not the family's"),
                );
                continue;
            }
            // One finding for a word of 64 granules keeps the list short.
            for at in 0..self.family.space.granules.borrow().granules(slab).div_ceil(64) {
                let (used, taken) = (word(&self.checked.used, at), word(&self.checked.taken, at));
                let told = |what| format!("granules of slab {slab:#x} from {} on {what}", at * 64);
                if taken & !used != 0 {
                    self.checked.find(FindingKind::Leak, told("are taken by nobody"));
                }
                if used & !taken != 0 {
                    self.checked.find(FindingKind::UsedMarkedFree, told("are used and free"));
                }
            }
        }
    }

    async fn check_counts(&mut self) -> Result<(), MapError> {
        if self.family.allocated.get() != self.checked.granules {
            let what =
                format!("{} granules are counted, {} are used", self.family.allocated.get(), self.checked.granules);
            self.checked.find(FindingKind::Count, what);
        }
        for branch in self.family.branches().into_iter().filter(|branch| !branch.deleting.get()) {
            let fresh = self.checked.own_versions.get(&branch.number).copied().unwrap_or(0);
            let mapped = self.family.count_mapped(&branch).await?;
            if (branch.own_versions.get(), branch.mapped.get()) != (fresh, mapped) {
                let counted = (branch.own_versions.get(), branch.mapped.get());
                let what = format!("volume {}: {counted:?} granules are counted, not {:?}", branch.id, (fresh, mapped));
                self.checked.find(FindingKind::Count, what);
            }
        }
        // Otherwise a write of a thick volume could find no space, which must never happen.
        let total = self.family.space.granules.borrow().total();
        if self.family.allocated.get().saturating_add(self.family.reserved()) > total {
            self.checked.find(FindingKind::Count, "less is kept for thick volumes than they may need".to_owned());
        }
        Ok(())
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Blocks all changes of the family while the returned guards live.
    pub(crate) async fn freeze_writes(&self) -> Vec<RangeGuard> {
        let mut held = Vec::new();
        for branch in self.branches() {
            held.push(branch.locks.exclusive(0..u64::MAX).await);
        }
        // Commits run without the locks; after them no task changes the map.
        self.drain().await;
        held
    }

    /// Blocks changes as [`Family::freeze_writes`], with every change logged and no background work in progress.
    pub(crate) async fn quiesce(self: &Rc<Self>) -> Result<Vec<RangeGuard>, MapError> {
        // The same order as in the background work, which takes branch locks under this one: no deadlock.
        let mut held = vec![self.maintenance_lock.exclusive(0..1).await];
        held.extend(self.freeze_writes().await);
        self.commit().await?;
        // The commit may have started a checkpoint.
        self.drain().await;
        Ok(held)
    }

    /// Number of granules that the volume of the branch sees as data.
    pub(super) async fn count_mapped(&self, branch: &Rc<super::Branch>) -> Result<u64, MapError> {
        let (mut granule, end) = (0, branch.granules(self.granule_blocks));
        let mut mapped = 0;
        while granule < end {
            // Only granules with a version somewhere can be mapped; the others are skipped in whole leaves.
            let (candidates, until) = self.candidates_in(branch, granule..end).await?;
            for candidate in candidates {
                mapped += u64::from(self.visible_version(branch, candidate, branch.epoch.get()).await?.is_some());
            }
            granule = until;
        }
        Ok(mapped)
    }
}
