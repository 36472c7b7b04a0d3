//! What is left of a map of which blocks are lost in every copy: the last whole checkpoint, and the log blocks behind it that are whole.
//!
//! Only an operator may order to go on with that ([`crate::Pool::repair`]): any block that a lost log block spoke of is older
//! then. What cannot be shown without showing another's data is an error.

use super::check::{ConsistencyCheck, FindingKind};
use super::repair::{Repair, count_pages};
use super::{Family, Log, MapError, PageCache, Tuning};
use crate::catalog::FamilyRecord;
use crate::layout::BLOCK_BYTES;
use crate::maplog::{Record, remains};
use crate::pool::{Families, Shared};
use crate::tree::{Damage, Key, Place, Tag};
use block::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::{Rc, Weak};

/// The most granules that are listed one by one.
const LISTED_MAX: usize = 16;

/// What going on with the remains of a map costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// The checkpoint that is left.
    pub(crate) checkpoint: u64,
    /// Blocks of the log that are lost, and changes that were in them at most.
    pub(crate) lost_blocks: u64,
    pub(crate) lost_changes: u64,
    /// The volumes: what each is called, how many of its granules have data, and how many of these are surely not older.
    pub(crate) volumes: Vec<(String, u64, u64)>,
    /// Granules that are errors: of which volume, and the first byte.
    pub(crate) errors: Vec<(String, u64)>,
    granule_bytes: u64,
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint {} of the map can be used", self.checkpoint)?;
        if self.lost_blocks == 0 {
            return f.write_str(", and all that was logged since");
        }
        let (blocks, changes) = (self.lost_blocks, self.lost_changes);
        write!(f, "; {blocks} log blocks since are lost, with up to {changes} changes of unknown granules")?;
        for (name, mapped, current) in &self.volumes {
            let older = mapped.saturating_sub(*current).min(changes);
            write!(
                f,
                "; volume {name}: up to {older} of {mapped} granules of {} may be older",
                block::in_units(self.granule_bytes, true)
            )?;
        }
        let listed = self.errors.iter().take(LISTED_MAX);
        for (at, (name, byte)) in listed.enumerate() {
            f.write_str(if at == 0 { "; medium errors until rewritten: " } else { ", " })?;
            write!(f, "volume {name} at byte {byte}")?;
        }
        match self.errors.len().checked_sub(LISTED_MAX) {
            Some(more) if more > 0 => write!(f, " and {more} more granules"),
            _ => Ok(()),
        }
    }
}

/// A family of whose map blocks are lost, as far as it is whole.
pub(crate) struct Remains<D: BlockDevice + 'static, G: BlockDevice + 'static> {
    family: Family<D, G>,
    /// What going on with it costs.
    pub(crate) losses: Losses,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Remains<D, G> {
    /// The family as far as its map is whole, and what that costs. Nothing is written.
    ///
    /// *Errors*: `Damaged` when no checkpoint is whole.
    pub(crate) async fn open(
        shared: Rc<Shared<D, G>>,
        families: Weak<Families<D, G>>,
        record: &FamilyRecord,
        cache: (Rc<PageCache>, u32),
        tuning: Tuning,
    ) -> Result<Self, MapError> {
        let family = Family::unread(shared, families, record, cache, tuning);
        let head = family.meta.read_any_head().await.ok_or(Damage("no head of the map is whole"))?;
        family.root.set(head.root);
        family.meta.set_generation(head.generation);
        *family.head.borrow_mut() = head.clone();
        // The bits may be of a later checkpoint than the head that is left.
        count_pages(&family).await?;
        let image = family.meta.read_log().await;
        let found = remains(&image.slots, head.sequence, head.serial, head.life);
        *family.log.borrow_mut() = Log {
            sequence: found.replay.sequence,
            from: found.replay.sequence,
            serial: found.replay.serial,
            life: found.replay.life,
            ..Log::default()
        };
        family.read_counters().await?;
        family.read_progress().await?;
        found.replay.records.iter().for_each(|record| family.take_in(record));
        let losses = Losses {
            checkpoint: head.generation,
            lost_blocks: found.lost,
            lost_changes: found.lost * tuning.records_max as u64,
            granule_bytes: u64::from(family.granule_blocks * BLOCK_BYTES),
            ..Losses::default()
        };
        let mut remains = Self { family, losses };
        if found.lost > 0 {
            remains.tell_losses(record, &found.replay.records[found.behind..]).await?;
        }
        Ok(remains)
    }

    /// Marks what lies where something newer does, or where the family has nothing, and tells what may be older: `newer` are the
    /// changes behind the lost ones.
    async fn tell_losses(&mut self, record: &FamilyRecord, newer: &[Record]) -> Result<(), MapError> {
        let name = |number| record.branch(number).map_or_else(|| number.to_string(), |branch| branch.name.clone());
        for key in self.overwritten(newer).await? {
            self.family.take_in(&Record::put(key, Place::LOST.0));
            self.losses.errors.push((name(key.branch()), u64::from(key.middle()) * self.losses.granule_bytes));
        }
        for branch in self.family.branches() {
            let is_own = |key: &&Record| key.key.tag() == Some(Tag::Version) && key.key.branch() == branch.number;
            let current: BTreeSet<u32> = newer.iter().filter(is_own).map(|record| record.key.middle()).collect();
            let mapped = self.family.count_mapped(&branch).await?;
            self.losses.volumes.push((name(branch.number), mapped, current.len() as u64));
        }
        Ok(())
    }

    /// Versions whose place holds something else now: `newer` changes have used it, or its slab is another's.
    async fn overwritten(&self, newer: &[Record]) -> Result<Vec<Key>, MapError> {
        let used: BTreeMap<Place, Key> =
            newer.iter().filter_map(|record| Some((record.place()?, record.key))).collect();
        let mut found = Vec::new();
        let mut from = Key::version(0, 0, 0);
        loop {
            let (entries, next) = self.family.entries(from, Key::taken(0, 0)).await?;
            for (key, place) in entries.into_iter().map(|(key, value)| (key, Place(value))) {
                let is_other = used.get(&place).is_some_and(|&newest| newest != key);
                let is_away = place.is_data() && !self.family.space.granules.borrow().has(place.slab());
                if is_other || is_away {
                    found.push(key);
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }

    /// The family, which goes on with what is left of its map, durably, with a new log.
    ///
    /// *Errors*: `Damaged` when it contradicts itself in what nobody can decide.
    pub(crate) async fn keep(self) -> Result<Rc<Family<D, G>>, MapError> {
        let family = Rc::new(self.family);
        family.follow_catalog();
        let checked = ConsistencyCheck::run_on_map(&family).await?;
        let undecided =
            |kind: &FindingKind| !matches!(kind, FindingKind::Leak | FindingKind::Unguarded | FindingKind::Count);
        if checked.findings.iter().any(|(kind, _)| undecided(kind)) {
            return Err(Damage("what is left of the map contradicts itself").into());
        }
        Repair::of(&family, &checked).run().await?;
        family.meta.clear_log().await?;
        Ok(family)
    }
}
