//! LUN numbers that hosts have known, so that none is given to another volume by itself.
//!
//! A host addresses a volume by target and LUN alone: when a LUN that it has open becomes another volume, it writes into that one. What
//! is presented now stands in the presentations; this keeps what was presented before, also while the host is away and over restarts.
//! It is kept by the iSCSI name of the target, because that is what hosts know: a target that is removed and added again is the same
//! one. A host knows its own numbers, those of its groups and those of `everyone`.
//!
//! [`State::remember_luns`] is called by [`Core::commit`](crate::core::Core::commit) with every change, whoever asked for it, and adds what the change takes
//! away. [`State::admit_luns`] refuses what would give a known number to another volume.

mod known;

pub(crate) use known::{Known, Replaced};

use crate::state::owners::Owners;
use crate::state::{PresentationRecord, State};
use model::{EVERYONE, Iqn, Name, Refusal, VolumeId, VolumeName, code};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most numbers that are remembered: four times the presentations of the largest array that is served.
const FORMER_MAX: usize = 65_536;

/// Numbers by the iSCSI name of the target.
pub(crate) type Numbers = BTreeMap<Iqn, BTreeSet<Former>>;

/// Numbers that are not presented so any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunMemory {
    /// Of hosts, of groups and of `everyone`.
    pub of: BTreeMap<Name, Numbers>,
    /// Of initiators that were taken from a host. The host that gets one of them knows them as well.
    pub detached: BTreeMap<Iqn, Detached>,
}

/// A number, and the volume that was presented under it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Former {
    /// The number.
    pub lun: u16,
    /// What the volume was called.
    pub volume: VolumeName,
    /// Which volume it was.
    pub volume_id: VolumeId,
}

/// What an initiator knew as the host that it was taken from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// That host; when it is removed or forgets its numbers this is forgotten, too.
    pub from: Name,
    /// The numbers.
    pub luns: Numbers,
}

impl State {
    /// What this state takes away from what `before` presented is remembered, as far as those who saw it are still there.
    ///
    /// *Errors*: more would have to be remembered than is possible.
    pub(crate) fn remember_luns(&mut self, before: &Self) -> Result<(), Refusal> {
        if self.same_views(before) {
            return Ok(());
        }
        let mut luns = std::mem::take(&mut self.luns);
        let present: BTreeSet<_> = places(&self.presentations, self).collect();
        // A number that is another volume's now was given to it with consent, and is known as that one from now on.
        let given: BTreeSet<_> = present.iter().map(|(who, target, former)| (*who, *target, former.lun)).collect();
        for place in places(&before.presentations, before).filter(|place| !present.contains(place)) {
            let (who, target, former) = place;
            if !given.contains(&(who, target, former.lun)) {
                luns.insert(who, target, former);
            }
        }
        self.remember_leavers(before, &mut luns);
        self.remember_initiators(before, &mut luns);
        let is_here =
            |who: &Name| self.hosts.contains_key(who) || self.groups.contains_key(who) || who.as_str() == EVERYONE;
        luns.of.retain(|who, _| is_here(who));
        luns.detached.retain(|_, detached| self.hosts.contains_key(&detached.from));
        // What is presented again stands there.
        for (who, target, former) in places(&self.presentations, self) {
            for who in self.hosts_of(who).chain([who]) {
                luns.remove(who, target, &former);
            }
        }
        luns.drop_empty();
        self.luns = luns;
        let count = self.luns.count();
        if count > FORMER_MAX && count > before.luns.count() {
            let message =
                format!("the array remembers {FORMER_MAX} LUN numbers that hosts had, and no more are possible");
            let hint = "forget those of a host that cannot use them any more with blockyard host forget-luns HOST";
            return Err(Refusal::new(code::LIMIT_REACHED, message, hint));
        }
        Ok(())
    }

    /// Hosts that have left a group know its numbers themselves from now on.
    fn remember_leavers(&self, before: &Self, luns: &mut LunMemory) {
        for (group, hosts) in &before.groups {
            let stayed = self.groups.get(group);
            let mut left = hosts.iter().filter(|host| stayed.is_none_or(|now| !now.contains(*host))).peekable();
            if left.peek().is_none() {
                continue;
            }
            let numbers = before.own_numbers(group);
            left.for_each(|host| luns.merge(host, &numbers));
        }
    }

    /// Initiators that are another host's now have brought what they knew with them.
    pub(crate) fn remember_initiators(&self, before: &Self, luns: &mut LunMemory) {
        if self.hosts == before.hosts {
            return;
        }
        let (was, is) = (Owners::of(before), Owners::of(self));
        for iqn in was.named_initiators().filter(|iqn| is.named(iqn).is_none()) {
            let Some(from) = was.named(iqn).filter(|from| self.hosts.contains_key(*from)) else { continue };
            luns.detached.insert(iqn.clone(), Detached { from: from.clone(), luns: before.numbers_of(from) });
        }
        for (iqn, owner) in is.all_named() {
            let from = was.owner_of(iqn);
            if from == Some(owner) {
                continue;
            }
            from.into_iter().for_each(|from| luns.merge(owner, &before.numbers_of(from)));
            if let Some(detached) = luns.detached.remove(iqn) {
                luns.merge(owner, &detached.luns);
            }
        }
    }

    /// True when everybody sees what they saw.
    fn same_views(&self, before: &Self) -> bool {
        let same = self.presentations == before.presentations && self.targets == before.targets;
        same && self.hosts == before.hosts && self.groups == before.groups
    }

    fn shown_to(&self, who: &Name) -> Vec<(&PresentationRecord, &Iqn)> {
        let own = self.presentations.iter().filter(|record| record.host == *who);
        own.filter_map(|record| Some((record, &self.targets.get(&record.target)?.iqn))).collect()
    }

    /// What is, and was, presented to exactly this name.
    fn own_numbers(&self, who: &Name) -> Numbers {
        let mut numbers = self.luns.of.get(who).cloned().unwrap_or_default();
        for (record, target) in self.shown_to(who) {
            numbers.entry(target.clone()).or_default().insert(Former::of(record));
        }
        numbers
    }

    /// What the host knows: its own numbers, those of its groups, and those of everyone.
    fn numbers_of(&self, host: &Name) -> Numbers {
        let mut numbers = self.own_numbers(host);
        let groups = self.groups.iter().filter(|(_, hosts)| hosts.contains(host)).map(|(group, _)| group);
        groups.for_each(|group| merge(&mut numbers, &self.own_numbers(group)));
        numbers
    }
}

impl LunMemory {
    /// How many numbers are remembered.
    pub(crate) fn count(&self) -> usize {
        let of = self.of.values().chain(self.detached.values().map(|detached| &detached.luns));
        of.flat_map(BTreeMap::values).map(BTreeSet::len).sum()
    }

    /// What this host, or group, or everyone had and has no more, by target.
    pub(crate) fn of(&self, who: &Name) -> impl Iterator<Item = (&Iqn, &Former)> {
        self.of.get(who).into_iter().flatten().flat_map(|(target, all)| all.iter().map(move |one| (target, one)))
    }

    /// What this host, or group, or everyone had is not known any more, nor what initiators know that were taken from it.
    pub(crate) fn forget(&mut self, who: &Name) {
        self.of.remove(who);
        self.detached.retain(|_, detached| detached.from != *who);
    }

    pub(crate) fn insert(&mut self, who: &Name, target: &Iqn, former: Former) {
        self.of.entry(who.clone()).or_default().entry(target.clone()).or_default().insert(former);
    }

    fn merge(&mut self, who: &Name, numbers: &Numbers) {
        if !numbers.is_empty() {
            merge(self.of.entry(who.clone()).or_default(), numbers);
        }
    }

    fn remove(&mut self, who: &Name, target: &Iqn, former: &Former) {
        let Some(numbers) = self.of.get_mut(who) else { return };
        if let Some(all) = numbers.get_mut(target) {
            // A volume may have another name by now.
            all.retain(|one| (one.lun, one.volume_id) != (former.lun, former.volume_id));
        }
    }

    fn drop_empty(&mut self) {
        self.of.values_mut().for_each(|numbers| numbers.retain(|_, all| !all.is_empty()));
        self.of.retain(|_, numbers| !numbers.is_empty());
        self.detached.retain(|_, detached| !detached.luns.is_empty());
    }

    fn replace(&mut self, who: &Name, target: &Iqn, lun: u16, volume: VolumeId) {
        if let Some(all) = self.of.get_mut(who).and_then(|numbers| numbers.get_mut(target)) {
            all.retain(|one| one.lun != lun || one.volume_id == volume);
        }
    }
}

impl Former {
    fn of(record: &PresentationRecord) -> Self {
        Self { lun: record.lun, volume: record.volume.clone(), volume_id: record.volume_id }
    }
}

fn merge(into: &mut Numbers, from: &Numbers) {
    for (target, all) in from {
        into.entry(target.clone()).or_default().extend(all.iter().cloned());
    }
}

/// Who is shown what where.
fn places<'a>(
    records: &'a [PresentationRecord],
    state: &'a State,
) -> impl Iterator<Item = (&'a Name, &'a Iqn, Former)> {
    let place = |record: &'a PresentationRecord| {
        Some((&record.host, &state.targets.get(&record.target)?.iqn, Former::of(record)))
    };
    records.iter().filter_map(place)
}
