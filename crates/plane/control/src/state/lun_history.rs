//! Former LUNs of hosts, recorded so that none is assigned to another volume automatically.
//!
//! A host addresses a volume by target and LUN alone: when a LUN that it has open becomes another volume, it
//! writes into that one. Current LUNs stand in the presentations; this keeps former ones, across restarts and
//! while the host is not logged in. They are recorded by the iSCSI name of the target, which is what hosts
//! know: a target that is removed and added again is the same one. The LUNs of a host are its own, those of its
//! groups and those of `everyone`.
//!
//! [`State::remember_luns`] is called by [`Core::commit`](crate::core::Core::commit) with every change,
//! whatever its origin, and adds the LUNs that the change removes. [`State::admit_luns`] refuses a change that
//! would assign a known LUN to another volume.

mod known;

pub(crate) use known::{LunIndex, Replaced};

use crate::state::host_index::HostIndex;
use crate::state::{PresentationRecord, State};
use model::{EVERYONE, Iqn, Name, Refusal, VolumeId, VolumeName, code};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Limit on recorded LUNs: four times the presentations of the largest supported array.
const FORMER_MAX: usize = 65_536;

/// Former LUNs by the iSCSI name of the target.
pub(crate) type Numbers = BTreeMap<Iqn, BTreeSet<FormerMapping>>;

/// LUNs that are no longer presented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunHistory {
    /// Former LUNs of hosts, of groups and of `everyone`.
    pub of: BTreeMap<Name, Numbers>,
    /// Former LUNs of initiators that were removed from a host. The host that one is added to inherits them.
    pub detached: BTreeMap<Iqn, Detached>,
}

/// A LUN, and the volume that was presented under it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FormerMapping {
    /// LUN within the target.
    pub lun: u16,
    /// Name of the volume at that time.
    pub volume: VolumeName,
    /// Identity of the volume.
    pub volume_id: VolumeId,
}

/// LUNs that an initiator knew through the host that it was removed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The former host; when it is removed or forgets its LUNs, this entry is dropped.
    pub from: Name,
    /// The LUNs.
    pub luns: Numbers,
}

impl State {
    /// Records the LUNs that this state removes compared with `before`, for hosts and groups that still exist.
    ///
    /// *Errors*: the limit on recorded LUNs is reached.
    pub(crate) fn remember_luns(&mut self, before: &Self) -> Result<(), Refusal> {
        // Most commits change no mapping.
        if self.same_views(before) {
            return Ok(());
        }
        // Moved out, because the closures below read the rest of the state.
        let mut luns = std::mem::take(&mut self.luns);
        let present: BTreeSet<_> = places(&self.presentations, self).collect();
        // A LUN that another volume has now was assigned with consent, and counts as that volume from now on.
        let given: BTreeSet<_> = present.iter().map(|(who, target, former)| (*who, *target, former.lun)).collect();
        for place in places(&before.presentations, before).filter(|place| !present.contains(place)) {
            let (who, target, former) = place;
            if !given.contains(&(who, target, former.lun)) {
                luns.insert(who, target, former);
            }
        }
        self.remember_leavers(before, &mut luns);
        self.remember_initiators(before, &mut luns);
        // A host that was removed and added anew starts without former LUNs.
        let is_here =
            |who: &Name| self.hosts.contains_key(who) || self.groups.contains_key(who) || who.as_str() == EVERYONE;
        luns.of.retain(|who, _| is_here(who));
        luns.detached.retain(|_, detached| self.hosts.contains_key(&detached.from));
        // A LUN that is presented again is current, no longer former.
        for (who, target, former) in places(&self.presentations, self) {
            // For the hosts of a group as well as for the group itself.
            for who in self.hosts_of(who).chain([who]) {
                luns.remove(who, target, &former);
            }
        }
        luns.drop_empty();
        self.luns = luns;
        let count = self.luns.count();
        // A state that is over the limit already may still change, as long as it records no more.
        if count > FORMER_MAX && count > before.luns.count() {
            let message = format!("the limit of {FORMER_MAX} remembered LUN numbers is reached");
            let hint = "release those of a host that no longer uses them with blockyard host forget-luns HOST";
            return Err(Refusal::new(code::LIMIT_REACHED, message, hint));
        }
        Ok(())
    }

    /// Copies the LUNs of a group to the hosts that have left it.
    fn remember_leavers(&self, before: &Self, luns: &mut LunHistory) {
        for (group, hosts) in &before.groups {
            let stayed = self.groups.get(group);
            let mut left = hosts.iter().filter(|host| stayed.is_none_or(|now| !now.contains(*host))).peekable();
            // Collecting the LUNs of a group is costly, so only groups that lost a host are considered.
            if left.peek().is_none() {
                continue;
            }
            let numbers = before.own_numbers(group);
            left.for_each(|host| luns.merge(host, &numbers));
        }
    }

    /// Moves the LUNs of initiators that changed hosts: to the new host, or to `detached` while there is none.
    pub(crate) fn remember_initiators(&self, before: &Self, luns: &mut LunHistory) {
        if self.hosts == before.hosts {
            return;
        }
        let (was, is) = (HostIndex::of(before), HostIndex::of(self));
        for iqn in was.named_initiators().filter(|iqn| is.named(iqn).is_none()) {
            // An initiator whose host was removed leaves nothing behind: its host's LUNs go with the host.
            let Some(from) = was.named(iqn).filter(|from| self.hosts.contains_key(*from)) else { continue };
            luns.detached.insert(iqn.clone(), Detached { from: from.clone(), luns: before.numbers_of(from) });
        }
        for (iqn, owner) in is.all_named() {
            let from = was.owner_of(iqn);
            if from == Some(owner) {
                continue;
            }
            // The initiator knows the LUNs of its former host, so the new host must not use them for other volumes.
            from.into_iter().for_each(|from| luns.merge(owner, &before.numbers_of(from)));
            if let Some(detached) = luns.detached.remove(iqn) {
                luns.merge(owner, &detached.luns);
            }
        }
    }

    /// Returns true when no mapping of any host can have changed.
    fn same_views(&self, before: &Self) -> bool {
        let same = self.presentations == before.presentations && self.targets == before.targets;
        same && self.hosts == before.hosts && self.groups == before.groups
    }

    fn shown_to(&self, who: &Name) -> Vec<(&PresentationRecord, &Iqn)> {
        let own = self.presentations.iter().filter(|record| record.host == *who);
        own.filter_map(|record| Some((record, &self.targets.get(&record.target)?.iqn))).collect()
    }

    /// Returns the current and former LUNs of exactly this name.
    fn own_numbers(&self, who: &Name) -> Numbers {
        let mut numbers = self.luns.of.get(who).cloned().unwrap_or_default();
        for (record, target) in self.shown_to(who) {
            numbers.entry(target.clone()).or_default().insert(FormerMapping::of(record));
        }
        numbers
    }

    /// Returns all LUNs that the host knows: its own, and those of its groups.
    fn numbers_of(&self, host: &Name) -> Numbers {
        let mut numbers = self.own_numbers(host);
        let groups = self.groups.iter().filter(|(_, hosts)| hosts.contains(host)).map(|(group, _)| group);
        groups.for_each(|group| merge(&mut numbers, &self.own_numbers(group)));
        numbers
    }
}

impl LunHistory {
    /// Returns the number of recorded LUNs.
    pub(crate) fn count(&self) -> usize {
        let of = self.of.values().chain(self.detached.values().map(|detached| &detached.luns));
        of.flat_map(BTreeMap::values).map(BTreeSet::len).sum()
    }

    /// Returns the former LUNs of this host, group or `everyone`, by target.
    pub(crate) fn of(&self, who: &Name) -> impl Iterator<Item = (&Iqn, &FormerMapping)> {
        self.of.get(who).into_iter().flatten().flat_map(|(target, all)| all.iter().map(move |one| (target, one)))
    }

    /// Forgets the former LUNs of this host, group or `everyone`, and those of initiators removed from it.
    pub(crate) fn forget(&mut self, who: &Name) {
        self.of.remove(who);
        self.detached.retain(|_, detached| detached.from != *who);
    }

    pub(crate) fn insert(&mut self, who: &Name, target: &Iqn, former: FormerMapping) {
        self.of.entry(who.clone()).or_default().entry(target.clone()).or_default().insert(former);
    }

    fn merge(&mut self, who: &Name, numbers: &Numbers) {
        if !numbers.is_empty() {
            merge(self.of.entry(who.clone()).or_default(), numbers);
        }
    }

    fn remove(&mut self, who: &Name, target: &Iqn, former: &FormerMapping) {
        let Some(numbers) = self.of.get_mut(who) else { return };
        if let Some(all) = numbers.get_mut(target) {
            // Compared by identity: the volume may have been renamed since.
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

impl FormerMapping {
    fn of(record: &PresentationRecord) -> Self {
        Self { lun: record.lun, volume: record.volume.clone(), volume_id: record.volume_id }
    }
}

fn merge(into: &mut Numbers, from: &Numbers) {
    for (target, all) in from {
        into.entry(target.clone()).or_default().extend(all.iter().cloned());
    }
}

/// Returns each presentation as name, target and LUN; those of missing targets are left out.
fn places<'a>(
    records: &'a [PresentationRecord],
    state: &'a State,
) -> impl Iterator<Item = (&'a Name, &'a Iqn, FormerMapping)> {
    let place = |record: &'a PresentationRecord| {
        Some((&record.host, &state.targets.get(&record.target)?.iqn, FormerMapping::of(record)))
    };
    records.iter().filter_map(place)
}
