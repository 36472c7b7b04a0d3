//! What disks return that was not written to them, counted and told: one event for what comes together.

use super::OpenPool;
use block::Extent;
use model::{DiskId, EventCode, Size, Subject, SubjectKind, event};
use raid::{Finding, FindingKind, Outcome};
use shard::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What is found so close together is one event.
const TOGETHER: Duration = Duration::from_secs(1);

/// What is found on the members of one pool.
#[derive(Default)]
pub(super) struct Findings {
    /// Blocks that were not as written, by disk, since the pool was opened.
    wrong: RefCell<BTreeMap<DiskId, u64>>,
    untold: RefCell<BTreeMap<Sort, Untold>>,
    telling: Cell<bool>,
}

/// What has an event of its own: which member of which group, what was wrong, and what came of it.
type Sort = (usize, u16, FindingKind, Outcome);

/// What was found since the last event.
struct Untold {
    blocks: u64,
    /// Where on the disk the first of them lies, in bytes.
    first: u64,
}

impl Findings {
    /// Operators hear of what was found since they heard last.
    fn tell<W: World>(&self, pool: &OpenPool<W>) {
        self.telling.set(false);
        for ((group, member, kind, outcome), Untold { blocks, first }) in self.untold.take() {
            let (disk, name) = (pool.disk_name(group, member), &pool.name);
            if let Some(structure) = structure(kind) {
                let sentence = format!(
                    "{structure} on disk {disk} of pool {name} was damaged and was written again from another copy; check what \
                     else writes to this disk, and the disk itself"
                );
                pool.shard.raise(event::METADATA_REPAIRED, Subject::new(SubjectKind::Disk, &disk), sentence);
                continue;
            }
            let (code, came) = told(outcome);
            let amount = bytes_of(blocks);
            let what = described(kind);
            let sentence = format!("{amount} of disk {disk} of pool {name} {what}, the first at byte {first}; {came}");
            // What is lost is lost to the pool, and its next scrub says whether that is still so.
            let subject = match code {
                event::BLOCKS_LOST => Subject::pool(name),
                _ => Subject::new(SubjectKind::Disk, &disk),
            };
            pool.shard.raise(code, subject, sentence);
        }
    }

    /// Blocks of the disk that were not as written, since the pool was opened.
    pub(super) fn wrong_blocks(&self, disk: DiskId) -> u64 {
        self.wrong.borrow().get(&disk).copied().unwrap_or_default()
    }
}

impl<W: World> OpenPool<W> {
    /// An array has found something wrong on a member.
    pub(crate) fn note_finding(self: &Rc<Self>, group: usize, finding: Finding) {
        let Finding { member, extent, kind, outcome } = finding;
        tracing::warn!(pool = %self.name, group, member, %extent, ?kind, ?outcome, "found on a disk");
        let disk = self.groups[group].slots.borrow()[usize::from(member)].id;
        *self.findings.wrong.borrow_mut().entry(disk).or_default() += extent.len.0;
        let first = self.groups[group].byte_on_disk(extent.start.0);
        let mut untold = self.findings.untold.borrow_mut();
        let entry = untold.entry((group, member, kind, outcome)).or_insert(Untold { blocks: 0, first });
        entry.blocks += extent.len.0;
        entry.first = entry.first.min(first);
        drop(untold);
        if !self.findings.telling.replace(true) {
            let (pool, world) = (Rc::downgrade(self), self.shard.world.clone());
            self.spawn(async move {
                world.sleep(TOGETHER).await;
                if let Some(pool) = pool.upgrade() {
                    pool.findings.tell(&pool);
                }
            });
        }
    }
}

/// A rebuild of this disk could not give it these blocks: what is lost is told at its end, not when somebody reads it.
pub(super) fn tell_of_unfilled<W: World>(pool: &OpenPool<W>, disk: &str, unreadable: &[Extent]) {
    let blocks: u64 = unreadable.iter().map(|extent| extent.len.0).sum();
    let (amount, name) = (bytes_of(blocks), &pool.name);
    let sentence = format!(
        "{amount} of disk {disk} of pool {name} could not be rebuilt, because other disks could not read what that takes; data of \
         volumes is lost: reading it is an error until it is written"
    );
    pool.shard.raise(event::BLOCKS_LOST, Subject::pool(name), sentence);
}

fn bytes_of(blocks: u64) -> String {
    Size::new(blocks * u64::from(raid::BLOCK_BYTES)).iec()
}

fn described(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Mismatch => "were not what was written there last",
        FindingKind::Unreadable => "could not be read",
        FindingKind::Unknown => "had lost their checksums",
        FindingKind::PageDamaged => "had a damaged copy of their checksums",
        FindingKind::PageStale => "had an old copy of their checksums",
        FindingKind::Anchor | FindingKind::Log => "were metadata that was damaged",
        FindingKind::Parity => "disagreed with the data that they protect",
    }
}

/// What metadata was found wrong that has other copies; its place is not one of the data.
fn structure(kind: FindingKind) -> Option<&'static str> {
    match kind {
        FindingKind::Anchor => Some("the anchor of the redo log"),
        FindingKind::Log => Some("a batch of the redo log"),
        _ => None,
    }
}

fn told(outcome: Outcome) -> (EventCode, &'static str) {
    match outcome {
        Outcome::Healed => (event::BLOCKS_HEALED, "they were put right from redundancy"),
        Outcome::Served => (event::BLOCKS_HEALED, "hosts got the right data from redundancy"),
        Outcome::Lost => {
            (event::BLOCKS_LOST, "nothing can give them back: reading them is an error until they are written")
        }
    }
}
