//! Lookup of the LUNs that hosts know, and the check whether a state would assign one of them to another
//! volume.

use crate::state::host_index::HostIndex;
use crate::state::{PresentationRecord, State};
use model::{EVERYONE, Iqn, Name, Refusal, VolumeId, VolumeName, code};
use std::collections::{BTreeMap, BTreeSet};

/// A known LUN that an operator has confirmed to assign to another volume.
pub(crate) struct Replaced {
    pub who: Name,
    pub target: Iqn,
    pub lun: u16,
    pub volume: VolumeName,
}

/// A LUN that would change its volume.
pub(crate) struct Conflict<'a> {
    pub who: &'a Name,
    pub target: &'a Iqn,
    pub lun: u16,
    /// The volume that would get the LUN.
    pub volume: &'a VolumeName,
    /// The volume that had it, and the name that it was presented to.
    pub had: (&'a VolumeName, &'a Name),
    /// True when it was presented to a group.
    pub by_group: bool,
}

/// A volume that is or was presented under a LUN.
#[derive(Clone, Copy)]
pub(crate) struct KnownVolume<'a> {
    pub id: VolumeId,
    pub volume: &'a VolumeName,
    /// The host, the group or `everyone` that it was presented to.
    pub by: &'a Name,
}

/// Index of the current and former LUNs of one state.
pub(crate) struct LunIndex<'a> {
    by_lun: BTreeMap<(&'a Name, &'a Iqn, u16), Vec<KnownVolume<'a>>>,
    by_volume: BTreeMap<(&'a Name, &'a Iqn, VolumeId), Vec<u16>>,
    groups: BTreeMap<&'a Name, Vec<&'a Name>>,
    everyone: Name,
}

impl<'a> LunIndex<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        let everyone = EVERYONE.parse().expect("a word is a name");
        let (by_lun, by_volume, groups) = Default::default();
        let mut known = Self { by_lun, by_volume, groups, everyone };
        for record in &state.presentations {
            if let Some(target) = state.targets.get(&record.target) {
                let had = KnownVolume { id: record.volume_id, volume: &record.volume, by: &record.host };
                known.learn(&target.iqn, record.lun, had);
            }
        }
        // Former LUNs count like current ones.
        for (who, numbers) in &state.luns.of {
            for (target, former) in numbers.iter().flat_map(|(target, all)| all.iter().map(move |one| (target, one))) {
                known.learn(target, former.lun, KnownVolume { id: former.volume_id, volume: &former.volume, by: who });
            }
        }
        for (group, hosts) in &state.groups {
            hosts.iter().for_each(|host| known.groups.entry(host).or_default().push(group));
        }
        known
    }

    fn learn(&mut self, target: &'a Iqn, lun: u16, had: KnownVolume<'a>) {
        let volumes = self.by_lun.entry((had.by, target, lun)).or_default();
        // The same volume may be both current and former under this LUN.
        if volumes.iter().all(|one| one.id != had.id) {
            volumes.push(had);
        }
        self.by_volume.entry((had.by, target, had.id)).or_default().push(lun);
    }

    /// Returns a volume other than `volume` that `who` knows under the LUN.
    pub(crate) fn other(&self, who: &Name, target: &Iqn, lun: u16, volume: VolumeId) -> Option<KnownVolume<'a>> {
        let mut known = self.names_of(who).filter_map(|name| self.by_lun.get(&(name, target, lun))).flatten();
        known.find(|one| one.id != volume).copied()
    }

    /// Returns the LUNs under which `who` knows the volume.
    pub(crate) fn numbers_of(&self, who: &Name, target: &Iqn, volume: VolumeId) -> Vec<u16> {
        self.names_of(who)
            .filter_map(move |name| self.by_volume.get(&(name, target, volume)))
            .flatten()
            .copied()
            .collect()
    }

    fn names_of<'b>(&'b self, who: &'b Name) -> impl Iterator<Item = &'b Name> {
        // The name itself first, so that a conflict is reported for it rather than for its groups.
        let groups = self.groups.get(who).into_iter().flatten().copied();
        std::iter::once(who).chain(groups).chain(std::iter::once(&self.everyone))
    }
}

impl State {
    /// Admits a state that follows `before` only if no host would find another volume under a LUN that it
    /// knows.
    ///
    /// *Errors*: the first such LUN.
    pub(crate) fn admit_luns(&self, before: &Self) -> Result<(), Refusal> {
        self.lun_conflict(before).map_or(Ok(()), |conflict| Err(conflict.refusal()))
    }

    /// Replaces known LUNs that this state assigns to other volumes, and returns them. Called when the operator
    /// has confirmed the change.
    pub(crate) fn replace_luns(&mut self, before: &Self) -> Vec<Replaced> {
        let mut luns = std::mem::take(&mut self.luns);
        let mut replaced = Vec::new();
        {
            let known = LunIndex::of(before);
            for (record, target) in self.fresh(before) {
                // The hosts of a group, and the group itself: each has its own record.
                let hosts = self.hosts_of(&record.host).filter(|host| **host != record.host);
                for who in hosts.chain([&record.host]) {
                    if known.other(who, target, record.lun, record.volume_id).is_some() {
                        luns.replace(who, target, record.lun, record.volume_id);
                        let (who, target, lun, volume) =
                            (who.clone(), target.clone(), record.lun, record.volume.clone());
                        replaced.push(Replaced { who, target, lun, volume });
                    }
                }
            }
        }
        luns.drop_empty();
        self.luns = luns;
        replaced
    }

    fn lun_conflict<'a>(&'a self, before: &'a Self) -> Option<Conflict<'a>> {
        if self.same_views(before) {
            return None;
        }
        // Judged by what hosts knew before the change.
        let known = LunIndex::of(before);
        let conflict = |who: &'a Name, record: &'a PresentationRecord, target: &'a Iqn| {
            let had = known.other(who, target, record.lun, record.volume_id)?;
            Some(self.conflict(before, who, (record, target), (had.volume, had.by)))
        };
        let of_fresh = |(record, target): (&'a PresentationRecord, &'a Iqn)| {
            self.hosts_of(&record.host).chain([&record.host]).find_map(|who| conflict(who, record, target))
        };
        if let Some(found) = self.fresh(before).into_iter().find_map(of_fresh) {
            return Some(found);
        }
        // No new presentation conflicts; a host may also join a group whose presentations conflict with its own
        // LUNs.
        for (group, hosts) in &self.groups {
            let was = before.groups.get(group);
            let joined = || hosts.iter().filter(|host| was.is_none_or(|was| !was.contains(*host)));
            if joined().next().is_none() {
                continue;
            }
            let shown = self.shown_to(group);
            if let Some(found) =
                joined().find_map(|host| shown.iter().find_map(|(record, iqn)| conflict(host, record, iqn)))
            {
                return Some(found);
            }
        }
        self.initiator_conflict(before, &known)
    }

    fn conflict<'a>(
        &'a self,
        before: &Self,
        who: &'a Name,
        (PresentationRecord { lun, volume, .. }, target): (&'a PresentationRecord, &'a Iqn),
        had: (&'a VolumeName, &'a Name),
    ) -> Conflict<'a> {
        Conflict { who, target, lun: *lun, volume, had, by_group: before.groups.contains_key(had.1) }
    }

    /// Finds an initiator that has moved to another host, where it would find another volume under a LUN that
    /// it knows.
    fn initiator_conflict<'a>(&'a self, before: &'a Self, known: &LunIndex<'a>) -> Option<Conflict<'a>> {
        if self.hosts == before.hosts {
            return None;
        }
        let (was, is) = (HostIndex::of(before), HostIndex::of(self));
        let initiators: BTreeSet<&Iqn> = was.named_initiators().chain(is.named_initiators()).collect();
        for iqn in initiators {
            let (from, owner) = (was.owner_of(iqn), is.owner_of(iqn));
            let (Some(owner), false) = (owner, from == owner) else { continue };
            let detached = before.luns.detached.get(iqn);
            // Every LUN that the initiator would find through its new host.
            for record in self.mappings_of(owner) {
                let Some(target) = self.targets.get(&record.target).map(|target| &target.iqn) else { continue };
                let PresentationRecord { lun, volume_id, .. } = record;
                let as_host = from.and_then(|from| known.other(from, target, *lun, *volume_id));
                // Not even a former host: the LUNs that the initiator took along when it was removed.
                let alone =
                    || detached?.luns.get(target)?.iter().find(|one| one.lun == *lun && one.volume_id != *volume_id);
                let had = as_host.map(|had| (had.volume, had.by));
                if let Some(had) = had.or_else(|| Some((&alone()?.volume, &detached?.from))) {
                    return Some(self.conflict(before, owner, (record, target), had));
                }
            }
        }
        None
    }

    /// Returns the presentations that `before` did not have in this form.
    fn fresh(&self, before: &Self) -> Vec<(&PresentationRecord, &Iqn)> {
        let key = |state: &Self, record: &PresentationRecord| {
            // By the iSCSI name, so that a target that was removed and added again is the same one.
            let target = state.targets.get(&record.target).map(|target| target.iqn.clone());
            (record.host.clone(), target, record.lun, record.volume_id)
        };
        let was: BTreeSet<_> = before.presentations.iter().map(|record| key(before, record)).collect();
        let fresh = self.presentations.iter().filter(|record| !was.contains(&key(self, record)));
        fresh.filter_map(|record| Some((record, &self.targets.get(&record.target)?.iqn))).collect()
    }
}

impl Conflict<'_> {
    pub(crate) fn refusal(&self) -> Refusal {
        let Self { who, target, lun, volume, had: (had, by), by_group } = self;
        // A deleted and recreated volume has its old name, which would read as no change.
        let had = if had == volume { format!("an earlier volume {had}") } else { format!("volume {had}") };
        let noun = if *by_group { "group" } else { "host" };
        Refusal::new(
            code::LUN_REMEMBERED,
            format!("{} used LUN {lun} of {target} for {had}, and would find volume {volume} there", called(who)),
            format!(
                "choose another LUN. If no host uses the old one, reuse the number for {volume} with --force, or \
                 release the old numbers with blockyard {noun} forget-luns {by}"
            ),
        )
    }
}

fn called(who: &Name) -> String {
    if who.as_str() == EVERYONE { EVERYONE.to_owned() } else { format!("host {who}") }
}
