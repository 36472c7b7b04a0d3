//! Presentations: who sees what.

use crate::Control;
use crate::boot::DEFAULT_TARGET;
use crate::change::copies::admit_whole;
use crate::change::hosts::{unknown_host, unknown_target};
use crate::change::volumes;
use crate::request::{NewPresentation, Unpresent};
use crate::state::{PresentationRecord, State};
use crate::view::PresentationReport;
use model::{Name, Refusal, VolumeId, code};

/// The largest logical unit number of the flat space method (SAM-5 §4.7.7.4).
const LUN_MAX: u16 = 16_383;

impl Control {
    /// The host sees the volume.
    ///
    /// *Errors*: one of them is not known, the host sees it already, or the number is taken.
    pub async fn present(&self, request: NewPresentation) -> Result<PresentationReport, Refusal> {
        let turn = self.turn().await;
        let volume = self.volume(&request.volume).await?.ok_or_else(|| volumes::unknown(&request.volume))?;
        admit_whole(&volume)?;
        let default = || DEFAULT_TARGET.parse().expect("the default target's name is a name");
        let target: Name = request.target.clone().unwrap_or_else(default);
        let record = admit_presentation(&self.state(), request, volume.id, target)?;
        self.commit_access(&turn, |state| state.presentations.push(record.clone())).await?;
        Ok(self.presentation_report(&record))
    }

    /// The host no longer sees the volume.
    ///
    /// *Errors*: it did not see it.
    pub async fn unpresent(&self, request: &Unpresent) -> Result<(), Refusal> {
        let turn = self.turn().await;
        let is_it = |record: &PresentationRecord| {
            record.volume == request.volume
                && record.host == request.host
                && request.target.as_ref().is_none_or(|target| record.target == *target)
        };
        if !self.state().presentations.iter().any(is_it) {
            return Err(Refusal::new(
                code::PRESENTATION_UNKNOWN,
                format!("host {} does not see volume {}", request.host, request.volume),
                "see blockyard presentation list",
            ));
        }
        self.commit_access(&turn, |state| state.presentations.retain(|record| !is_it(record))).await
    }
}

/// Admits a presentation that is new, of a host or a group and a target that are there.
pub(crate) fn admit_presentation(
    state: &State,
    request: NewPresentation,
    volume_id: VolumeId,
    target: Name,
) -> Result<PresentationRecord, Refusal> {
    let lun = choose_lun(state, &request, &target)?;
    let NewPresentation { volume, host, groups, read_only, .. } = request;
    Ok(PresentationRecord { volume, volume_id, host, target, lun, groups, read_only })
}

fn choose_lun(state: &State, request: &NewPresentation, target: &Name) -> Result<u16, Refusal> {
    let who = &request.host;
    if !state.is_taken(who) {
        return Err(unknown_host(who));
    }
    if !state.targets.contains_key(target) {
        return Err(unknown_target(target));
    }
    // A group without hosts sees what it will.
    let own = state.presentations.iter().filter(|record| record.host == *who);
    let seen = own
        .map(|record| (who, record))
        .chain(state.hosts_of(who).flat_map(|host| state.seen_by(host).map(move |record| (host, record))));
    let seen: Vec<(&Name, &PresentationRecord)> = seen.filter(|(_, record)| record.target == *target).collect();
    if let Some((host, record)) = seen.iter().find(|(_, record)| record.volume == request.volume) {
        return Err(Refusal::new(
            code::PRESENTED_ALREADY,
            format!("host {host} sees volume {} already, as LUN {}", request.volume, record.lun),
            "there is nothing to do, or present it through another --target",
        ));
    }
    let free = (0..=LUN_MAX).find(|lun| seen.iter().all(|(_, record)| record.lun != *lun));
    let free = free.ok_or_else(|| {
        let message = format!("host {who} sees as many volumes as can be numbered");
        Refusal::new(code::LIMIT_REACHED, message, "present through another --target")
    })?;
    let Some(lun) = request.lun else { return Ok(free) };
    if lun > LUN_MAX {
        let message = format!("LUN {lun} cannot be addressed");
        return Err(Refusal::new(code::LUN_INVALID, message, format!("choose 0 to {LUN_MAX}")));
    }
    match seen.iter().find(|(_, record)| record.lun == lun) {
        Some((host, record)) => Err(Refusal::new(
            code::LUN_TAKEN,
            format!("host {host} sees volume {} as LUN {lun}", record.volume),
            format!("leave out --lun, or choose a free number such as {free}"),
        )),
        None => Ok(lun),
    }
}
