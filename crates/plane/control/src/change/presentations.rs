//! Presentations: mapping of volumes to hosts, with LUNs.

use crate::access::{Access, Confirmation};
use crate::change::copies::admit_whole;
use crate::change::hosts::{unknown_host, unknown_target};
use crate::change::portals::Portals;
use crate::change::volumes;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::refused::RefusedLogins;
use crate::request::{NewPresentation, Unpresent};
use crate::sessions::Sessions;
use crate::state::lun_history::LunIndex;
use crate::state::{DEFAULT_TARGET, PresentationRecord, State};
use crate::view::PresentationReport;
use model::{Name, Order, Refusal, VolumeId, VolumeName, code};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Highest LUN in flat space addressing (SAM-5 §4.7.7.4).
const LUN_MAX: u16 = 16_383;

/// Presentations: which volumes are mapped to which hosts, and the LUNs.
pub struct Presentations {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) portals: Arc<Portals>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) refused_logins: Arc<RefusedLogins>,
}

impl Presentations {
    /// Presents the volume to the host.
    ///
    /// *Errors*: one of them is unknown, the volume is presented to the host already, or the LUN is taken.
    pub async fn present(&self, request: NewPresentation) -> Result<PresentationReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let volume = self.volumes.opened(&request.volume).await?.ok_or_else(|| volumes::unknown(&request.volume))?;
        admit_whole(&volume)?;
        let default = || DEFAULT_TARGET.parse().expect("the default target's name is a name");
        let target: Name = request.target.clone().unwrap_or_else(default);
        // Only an explicit LUN can be forced; a LUN that is chosen here never conflicts.
        let consent = Confirmation { luns: request.force && request.lun.is_some(), ..Confirmation::forced(false) };
        let record = admit_presentation(&self.core.state(), request, volume.id, target)?;
        // The shape is recorded with the presentation, so hosts see the LUN even if the pool fails to open next
        // time.
        let shapes = self.volumes.core.engine.unit_shapes(Order::UnitShapes).await?;
        let add = |state: &mut State| {
            state.presentations.push(record.clone());
            state.learn_shapes(&shapes);
        };
        self.access.commit(&turn, consent, add).await?;
        Ok(self.report_of(&record))
    }

    /// Ends a presentation.
    ///
    /// *Errors*: there is none; or sessions have it mapped, and `force` is not set.
    pub async fn unpresent(&self, request: &Unpresent) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        // Without a target, the presentations in all targets are ended.
        let is_it = |record: &PresentationRecord| {
            record.volume == request.volume
                && record.host == request.host
                && request.target.as_ref().is_none_or(|target| record.target == *target)
        };
        if !self.core.state().presentations.iter().any(is_it) {
            return Err(Refusal::new(
                code::PRESENTATION_UNKNOWN,
                format!("volume {1} is not presented to host {0}", request.host, request.volume),
                "see blockyard presentation list",
            ));
        }
        let consent = Confirmation::forced(request.force);
        self.access.commit(&turn, consent, |state| state.presentations.retain(|record| !is_it(record))).await
    }

    /// Lists all presentations, by host, target and LUN.
    #[must_use]
    pub fn list(&self) -> Vec<PresentationReport> {
        let (state, portals) = (self.core.state(), self.access.portals());
        let report = |record| PresentationReport::of(record, &state, &portals);
        let mut all: Vec<_> = state.presentations.iter().map(report).collect();
        all.sort_by(|a, b| (&a.host, &a.target, a.lun).cmp(&(&b.host, &b.target, b.lun)));
        all
    }

    pub(crate) fn report_of(&self, record: &PresentationRecord) -> PresentationReport {
        PresentationReport::of(record, &self.core.state(), &self.access.portals())
    }
}

/// Admits a new presentation of an existing host or group in an existing target, and chooses its LUN.
pub(crate) fn admit_presentation(
    state: &State,
    request: NewPresentation,
    volume_id: VolumeId,
    target: Name,
) -> Result<PresentationRecord, Refusal> {
    Numbers::of(state, state).admit(state, request, volume_id, target)
}

/// LUNs in use, by host or group and target. Built once for many presentations: admitting one costs what its
/// own hosts have mapped, not what all hosts have.
pub(crate) struct Numbers<'a> {
    mappings: BTreeMap<Name, BTreeMap<Name, HostMappings>>,
    /// Current and former LUNs before the change.
    known: LunIndex<'a>,
}

/// LUNs and volumes of one host in one target.
#[derive(Default)]
struct HostMappings {
    luns: BTreeMap<u16, VolumeName>,
    volumes: BTreeMap<VolumeName, u16>,
}

impl<'a> Numbers<'a> {
    pub(crate) fn of(state: &State, before: &'a State) -> Self {
        let mut numbers = Self { mappings: BTreeMap::new(), known: LunIndex::of(before) };
        state.presentations.iter().for_each(|record| numbers.learn(state, record));
        numbers
    }

    fn learn(&mut self, state: &State, record: &PresentationRecord) {
        // The group itself is recorded, too: hosts that join it later get its LUNs.
        let hosts = state.hosts_of(&record.host).filter(|host| **host != record.host);
        for who in hosts.chain([&record.host]) {
            let seen = self.mappings.entry(who.clone()).or_default().entry(record.target.clone()).or_default();
            seen.luns.insert(record.lun, record.volume.clone());
            seen.volumes.insert(record.volume.clone(), record.lun);
        }
    }

    /// Admits a presentation and records its LUN as used.
    pub(crate) fn admit(
        &mut self,
        state: &State,
        request: NewPresentation,
        volume_id: VolumeId,
        target: Name,
    ) -> Result<PresentationRecord, Refusal> {
        let lun = self.choose_lun(state, &request, volume_id, &target)?;
        let NewPresentation { volume, host, groups, read_only, .. } = request;
        let record = PresentationRecord { volume, volume_id, host, target, lun, groups, read_only };
        // Counts for the next request of the same batch.
        self.learn(state, &record);
        Ok(record)
    }

    fn choose_lun(
        &self,
        state: &State,
        request: &NewPresentation,
        volume_id: VolumeId,
        target: &Name,
    ) -> Result<u16, Refusal> {
        let who = &request.host;
        // Groups and `everyone` are names in use, too, so all that can be presented to passes.
        if !state.is_taken(who) {
            return Err(unknown_host(who));
        }
        let iqn = &state.targets.get(target).ok_or_else(|| unknown_target(target))?.iqn;
        // Members before the group: a conflict is reported for the host that has it.
        let hosts: Vec<&Name> = state.hosts_of(who).filter(|host| *host != who).chain([who]).collect();
        let seen = hosts.iter().filter_map(|&host| Some((host, self.mappings.get(host)?.get(target)?)));
        let seen: Vec<(&Name, &HostMappings)> = seen.collect();
        let shows = |&(host, seen): &(&Name, &HostMappings)| Some((host.clone(), *seen.volumes.get(&request.volume)?));
        if let Some((host, lun)) = seen.iter().find_map(shows) {
            return Err(Refusal::new(
                code::PRESENTED_ALREADY,
                format!("volume {} is already presented to host {host}, as LUN {lun}", request.volume),
                "no change needed; to add a second mapping use another --target",
            ));
        }
        let holds = |lun: u16| seen.iter().find_map(|(host, seen)| Some((*host, seen.luns.get(&lun)?)));
        // A LUN that any of the hosts knows as another volume is not free.
        let is_known = |lun: u16| hosts.iter().any(|host| self.known.other(host, iqn, lun, volume_id).is_some());
        let is_free = |lun: &u16| holds(*lun).is_none() && !is_known(*lun);
        // The LUN that the volume had before is reused; that of the group or host named in the request first.
        let old = || hosts.iter().rev().flat_map(|host| self.known.numbers_of(host, iqn, volume_id)).find(is_free);
        // The lowest LUN that is neither in use nor remembered for another volume.
        let free = || old().or_else(|| (0..=LUN_MAX).find(is_free));
        let all_taken = || {
            let message = format!("host {who} has no free LUN: each is in use or was used for another volume");
            let hint = format!(
                "release the old ones with blockyard host forget-luns {who}, or present through another --target"
            );
            Refusal::new(code::LIMIT_REACHED, message, hint)
        };
        let Some(lun) = request.lun else { return free().ok_or_else(all_taken) };
        if lun > LUN_MAX {
            let message = format!("LUN {lun} is out of range");
            return Err(Refusal::new(code::LUN_INVALID, message, format!("choose 0 to {LUN_MAX}")));
        }
        // A conflict with a remembered LUN is found by the commit, where it can be confirmed.
        let Some((host, volume)) = holds(lun) else { return Ok(lun) };
        Err(Refusal::new(
            code::LUN_TAKEN,
            format!("LUN {lun} of host {host} is already volume {volume}"),
            format!("omit --lun, or choose a free number such as {}", free().ok_or_else(all_taken)?),
        ))
    }
}
