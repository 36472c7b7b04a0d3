//! Salvage of a map with blocks lost in every copy: the last intact checkpoint and the intact log blocks behind
//! it.
//!
//! Only an operator may order it ([`crate::Pool::repair`]), because blocks described by a lost log block revert
//! to older content. A granule that could show another volume's data becomes an error instead.

use super::check::{ConsistencyCheck, FindingKind};
use super::repair::{Repair, count_pages};
use super::{Family, Log, MapError, PageCache, Tuning};
use crate::catalog::FamilyRecord;
use crate::layout::BLOCK_BYTES;
use crate::maplog::{Record, salvage_log};
use crate::pool::{Families, Shared};
use crate::tree::{Damage, GranuleAddress, Key, Tag};
use block::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::{Rc, Weak};

/// Maximum number of granules listed individually.
const LISTED_MAX: usize = 16;

/// Cost of continuing with the remains of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SalvageLosses {
    /// Generation of the checkpoint that is left.
    pub(crate) checkpoint: u64,
    /// Number of lost log blocks, and upper bound of the changes in them.
    pub(crate) lost_blocks: u64,
    pub(crate) lost_changes: u64,
    /// Per volume: name, number of granules with data, and number of these that are certainly current.
    pub(crate) volumes: Vec<(String, u64, u64)>,
    /// Granules that become medium errors: volume name and first byte.
    pub(crate) errors: Vec<(String, u64)>,
    granule_bytes: u64,
}

impl fmt::Display for SalvageLosses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint {} of the map can be used", self.checkpoint)?;
        if self.lost_blocks == 0 {
            return f.write_str(", and all that was logged since");
        }
        let (blocks, changes) = (self.lost_blocks, self.lost_changes);
        write!(f, "; {blocks} log blocks since are lost, with up to {changes} changes of unknown granules")?;
        for (name, mapped, current) in &self.volumes {
            // A lost change is one of one granule, so their number bounds the older ones, too.
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

/// Family with lost map blocks, as far as it is intact.
pub(crate) struct Salvage<D: BlockDevice + 'static, G: BlockDevice + 'static> {
    family: Family<D, G>,
    /// Cost of continuing with it.
    pub(crate) losses: SalvageLosses,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Salvage<D, G> {
    /// Opens what is intact of the family and computes the losses. Writes nothing.
    ///
    /// *Errors*: `Damaged` when no checkpoint is intact.
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
        // The bitmaps may belong to a later checkpoint than the head that is left.
        count_pages(&family).await?;
        let image = family.meta.read_log().await;
        let found = salvage_log(&image.slots, head.sequence, head.serial, head.life);
        *family.log.borrow_mut() = Log {
            sequence: found.replay.sequence,
            // The log starts empty behind everything found; [`Salvage::accept`] writes a checkpoint and clears
            // it.
            from: found.replay.sequence,
            serial: found.replay.serial,
            life: found.replay.life,
            ..Log::default()
        };
        family.read_counters().await?;
        family.read_progress().await?;
        // Records behind the gap count too: they are newer than anything the checkpoint has.
        found.replay.records.iter().for_each(|record| family.apply_record(record));
        let losses = SalvageLosses {
            checkpoint: head.generation,
            lost_blocks: found.lost,
            lost_changes: found.lost * tuning.records_max as u64,
            granule_bytes: u64::from(family.granule_blocks * BLOCK_BYTES),
            ..SalvageLosses::default()
        };
        let mut remains = Self { family, losses };
        // Without lost log blocks the result is the same as that of a regular replay.
        if found.lost > 0 {
            remains.record_losses(record, &found.replay.records[found.behind..]).await?;
        }
        Ok(remains)
    }

    /// Marks versions whose place was reused or belongs to another family, and counts what may be outdated.
    /// `newer` are the changes behind the lost ones.
    async fn record_losses(&mut self, record: &FamilyRecord, newer: &[Record]) -> Result<(), MapError> {
        let name = |number| record.branch(number).map_or_else(|| number.to_string(), |branch| branch.name.clone());
        for key in self.overwritten(newer).await? {
            self.family.apply_record(&Record::put(key, GranuleAddress::LOST.0));
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

    /// Versions whose place holds other content now: a `newer` change has used it, or its slab is no longer the
    /// family's.
    async fn overwritten(&self, newer: &[Record]) -> Result<Vec<Key>, MapError> {
        let used: BTreeMap<GranuleAddress, Key> =
            newer.iter().filter_map(|record| Some((record.place()?, record.key))).collect();
        let mut found = Vec::new();
        let mut from = Key::version(0, 0, 0);
        loop {
            let (entries, next) = self.family.entries(from, Key::taken(0, 0)).await?;
            for (key, place) in entries.into_iter().map(|(key, value)| (key, GranuleAddress(value))) {
                // The change that uses the place now is intact itself.
                let is_other = used.get(&place).is_some_and(|&newest| newest != key);
                // A slab that was returned to the pool may hold another volume's data.
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

    /// Continues, durably, with what is left of the map and a new log.
    ///
    /// *Errors*: `Damaged` when it contradicts itself in a way that cannot be resolved.
    pub(crate) async fn accept(self) -> Result<Rc<Family<D, G>>, MapError> {
        let family = Rc::new(self.family);
        family.follow_catalog();
        let checked = ConsistencyCheck::run_on_map(&family).await?;
        // Allocation and counts are recomputed from the versions; anything else would be a guess.
        let undecided =
            |kind: &FindingKind| !matches!(kind, FindingKind::Leak | FindingKind::UsedMarkedFree | FindingKind::Count);
        if checked.findings.iter().any(|(kind, _)| undecided(kind)) {
            return Err(Damage("what is left of the map contradicts itself").into());
        }
        Repair::of(&family, &checked).run().await?;
        // Last: until the checkpoint of the repair is stable, another attempt needs the old log.
        family.meta.clear_log().await?;
        Ok(family)
    }
}
