//! Findings of the arrays (wrong checksums, unreadable or damaged blocks): counted by disk and reported, folded into
//! one event per second and cause.

use super::OpenPool;
use block::{Blocks, Extent};
use model::{DiskId, Size, Subject, SubjectKind, event};
use raid::{Finding, FindingKind, Outcome};
use shard::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Findings within this time are one event.
const TOGETHER: Duration = Duration::from_secs(1);

/// Findings on the members of one pool.
#[derive(Default)]
pub(super) struct Findings {
    /// Wrong blocks by disk, since the pool was opened.
    wrong: RefCell<BTreeMap<DiskId, u64>>,
    untold: RefCell<BTreeMap<Sort, Untold>>,
    telling: Cell<bool>,
}

/// Key of an event: disk name at the time of the finding (it may have been replaced since), kind and outcome.
type Sort = (String, FindingKind, Outcome);

/// Findings that were not reported yet.
struct Untold {
    blocks: u64,
    /// Byte offset of the first of them on the disk.
    first: u64,
}

impl Findings {
    /// Raises the events for all pending findings.
    fn raise_events<W: World>(&self, pool: &OpenPool<W>) {
        assert!(self.telling.replace(false), "what comes together is told once");
        // Taken as a whole: a finding that comes during the loop belongs to the next event.
        for ((disk, kind, outcome), Untold { blocks, first }) in self.untold.take() {
            let name = &pool.name;
            // Metadata lies outside the data area, so no byte offset is given.
            if let Some(structure) = structure(kind) {
                let sentence = format!(
                    "{structure} on disk {disk} of pool {name} was damaged and was repaired from another copy; \
                     check the disk and whether other software writes to it"
                );
                pool.shard.raise(event::METADATA_REPAIRED, Subject::new(SubjectKind::Disk, &disk), sentence);
                continue;
            }
            let came = told(outcome);
            let amount = bytes_of(blocks);
            let what = described(kind);
            let sentence = format!("{amount} of disk {disk} of pool {name} {what}, the first at byte {first}; {came}");
            pool.shard.raise(event::BLOCKS_HEALED, Subject::new(SubjectKind::Disk, &disk), sentence);
        }
    }

    /// Wrong blocks of the disk since the pool was opened.
    pub(super) fn wrong_blocks(&self, disk: DiskId) -> u64 {
        self.wrong.borrow().get(&disk).copied().unwrap_or_default()
    }
}

impl<W: World> OpenPool<W> {
    /// Records a finding of an array.
    pub(crate) fn note_finding(self: &Rc<Self>, group: usize, finding: Finding) {
        let Finding { member, extent, kind, outcome, lost } = finding;
        tracing::warn!(pool = %self.name, group, member, %extent, ?kind, ?outcome, "found on a disk");
        // A lost block that is read again is no further loss; the list of lost blocks reports it.
        let entered = |start| self.groups[group].array.losses.suspect(Extent { start, len: Blocks(1) });
        if outcome == Outcome::Lost && lost.map(entered) == Some(0) {
            return;
        }
        // The name is taken now: the slot may have another disk when the event is raised.
        let (disk, called) = {
            let slots = self.groups[group].slots.borrow();
            (slots[usize::from(member)].id, slots[usize::from(member)].called())
        };
        *self.findings.wrong.borrow_mut().entry(disk).or_default() += extent.len.0;
        // Reported with the list of lost blocks, which names the volume.
        if outcome == Outcome::Lost {
            return;
        }
        let first = self.groups[group].byte_on_disk(extent.start.0);
        // Events of one disk are folded: a failing disk must not push everything else out of the event list.
        let mut untold = self.findings.untold.borrow_mut();
        let entry = untold.entry((called, kind, outcome)).or_insert(Untold { blocks: 0, first });
        entry.blocks += extent.len.0;
        entry.first = entry.first.min(first);
        drop(untold);
        // The first finding starts the timer; others join its event.
        if !self.findings.telling.replace(true) {
            let (pool, world) = (Rc::downgrade(self), self.shard.world.clone());
            self.spawn(async move {
                world.sleep(TOGETHER).await;
                if let Some(pool) = pool.upgrade() {
                    pool.findings.raise_events(&pool);
                }
            });
        }
    }
}

fn bytes_of(blocks: u64) -> String {
    Size::new(blocks * u64::from(raid::BLOCK_BYTES)).iec()
}

fn described(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Mismatch => "had a checksum mismatch (stale or misdirected write)",
        FindingKind::Unreadable => "could not be read",
        FindingKind::Unknown => "had no checksums left",
        FindingKind::PageDamaged => "had a damaged copy of their checksums",
        FindingKind::PageStale => "had an old copy of their checksums",
        FindingKind::Anchor | FindingKind::Log => "were damaged metadata",
        FindingKind::Parity => "were inconsistent with the data that they protect",
    }
}

/// Name of a metadata structure that has other copies; `None` for data.
fn structure(kind: FindingKind) -> Option<&'static str> {
    match kind {
        FindingKind::Anchor => Some("the anchor of the redo log"),
        FindingKind::Log => Some("a batch of the redo log"),
        _ => None,
    }
}

fn told(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Healed => "repaired from redundancy",
        Outcome::Served => "hosts received correct data from redundancy",
        Outcome::Lost => "the data cannot be reconstructed",
    }
}
