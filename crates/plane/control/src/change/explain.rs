//! Who would see what, said in advance: everything between a host and a volume, point by point.

use crate::Control;
use crate::change::hosts::unknown_host;
use crate::change::volumes;
use crate::state::{PresentationRecord, State};
use crate::view::ProofReport;
use model::{
    ChapAlgorithm, Demand, Name, PortalPolicy, PortalReport, PortalState, Refusal, SanitizeReport, SessionReport,
    VolumeName, VolumeReport, VolumeState, is_shown_in,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What stands between a host and a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The host.
    pub host: Name,
    /// The volume.
    pub volume: VolumeName,
    /// True when the host sees the volume, or will when it logs in.
    pub sees: bool,
    /// Everything that was looked at, from the volume to the host.
    pub points: Vec<Point>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// False when this keeps the host from the volume.
    pub good: bool,
    /// How it is, as a sentence without its end.
    pub sentence: String,
    /// What would change it, where something should.
    pub remedy: Option<String>,
}

impl Point {
    fn good(sentence: impl Into<String>) -> Self {
        Self { good: true, sentence: sentence.into(), remedy: None }
    }

    fn bad(sentence: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { good: false, sentence: sentence.into(), remedy: Some(remedy.into()) }
    }

    /// It does not keep the host away, but somebody should know.
    fn note(sentence: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { good: true, ..Self::bad(sentence, remedy) }
    }
}

impl Control {
    /// Whether the host sees the volume, and every reason for it or against it.
    ///
    /// *Errors*: the host or the volume is not known.
    pub async fn explain(&self, host: &Name, volume: &VolumeName) -> Result<Explanation, Refusal> {
        let state = self.state();
        if !state.hosts.contains_key(host) {
            return Err(unknown_host(host));
        }
        let report = self.volume(volume).await?.ok_or_else(|| volumes::unknown(volume))?;
        let (portals, sessions) = (self.portal_reports().await?, self.sessions().await?);
        let mut points = vec![of_volume(&report)];
        let shown: Vec<&PresentationRecord> = state.seen_by(host).filter(|shown| shown.volume == *volume).collect();
        points.extend(shown.iter().map(|shown| of_presentation(&state, host, shown)));
        if shown.is_empty() {
            let sentence = format!("volume {volume} is not presented to host {host}, nor to a group of it");
            points.push(Point::bad(sentence, format!("blockyard present {volume} {host}")));
        }
        points.extend(shown.iter().map(|shown| of_portals(shown, &portals)));
        points.extend(of_others(&state, host, volume));
        points.extend(of_proof(&state, host));
        points.push(of_sessions(host, &shown, &state, &sessions));
        let sees = points.iter().all(|point| point.good);
        Ok(Explanation { host: host.clone(), volume: volume.clone(), sees, points })
    }
}

fn of_volume(volume: &VolumeReport) -> Point {
    let name = &volume.name;
    match volume.sanitize {
        Some(SanitizeReport::Running { percent }) => {
            let sentence =
                format!("volume {name} is being sanitized by order of a host, {percent} %, and serves nobody");
            return Point::bad(sentence, "wait for the end: blockyard event list");
        }
        Some(SanitizeReport::Failed) => {
            let sentence = format!("volume {name} could not be sanitized, and serves nobody");
            return Point::bad(sentence, "have its host ask for SANITIZE again, or leave the failure mode");
        }
        None => {}
    }
    match volume.state {
        VolumeState::Online => Point::good(format!("volume {name} is online")),
        VolumeState::Failed => Point::bad(format!("volume {name} does not serve"), "see blockyard status"),
        VolumeState::Missing => Point::bad(format!("what holds volume {name} was not found"), "see blockyard status"),
        VolumeState::Copying => Point::bad(format!("volume {name} is being copied"), "wait, see blockyard volume list"),
    }
}

fn of_presentation(state: &State, host: &Name, shown: &PresentationRecord) -> Point {
    let iqn = state.targets.get(&shown.target).map(|target| target.iqn.to_string()).unwrap_or_default();
    let how = if shown.read_only { "read-only" } else { "read-write" };
    let sentence = format!("it is LUN {} of {iqn}, {how}", shown.lun);
    if state.is_everyone(&shown.host) {
        let remedy = format!("blockyard unpresent {} {}, and present it to hosts by name", shown.volume, shown.host);
        return Point::note(format!("{sentence}, as it is to everyone who reaches a portal"), remedy);
    }
    let by = if shown.host == *host { String::new() } else { format!(", as one of group {}", shown.host) };
    Point::good(sentence + &by)
}

fn of_portals(shown: &PresentationRecord, portals: &[PortalReport]) -> Point {
    let in_group = |policy: &PortalPolicy| is_shown_in(&shown.groups, policy.tag);
    let open = portals.iter().filter(|portal| portal.state == PortalState::Open && in_group(&portal.policy));
    let takes = open.filter(|portal| !portal.policy.drained);
    let open: Vec<String> = takes.map(|portal| portal.address.to_string()).collect();
    match open.is_empty() {
        false => Point::good(format!("target {} is reached at {}", shown.target, open.join(", "))),
        true => Point::bad(
            format!("no portal that takes sessions shows LUN {} of target {}", shown.lun, shown.target),
            "see blockyard portal list",
        ),
    }
}

/// Others that may write the volume.
fn of_others(state: &State, host: &Name, volume: &VolumeName) -> Option<Point> {
    let writes =
        |other: &&Name| *other != host && state.seen_by(other).any(|shown| shown.volume == *volume && !shown.read_only);
    let others: Vec<&str> = state.hosts.keys().filter(writes).map(Name::as_str).collect();
    let sentence = format!("{} may write it, too", others.join(", "));
    let remedy = "make sure that all of them use a cluster file system or reservations, or present it with --read-only";
    (!others.is_empty()).then(|| Point::note(sentence, remedy))
}

/// What the host is known by, and must prove.
fn of_proof(state: &State, host: &Name) -> Vec<Point> {
    let record = &state.hosts[host];
    let who = match record.initiators.as_slice() {
        [] => "any initiator that no other host names".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let from = match record.networks.as_slice() {
        [] => "from anywhere".to_owned(),
        some => format!("from {} only", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let told = ProofReport::of(&record.proof);
    let sentence = format!("host {host} {told}");
    let proof = match told.chap_demand {
        None => Point::note(sentence, "consider a CHAP secret"),
        Some(Demand::Offered) => Point::note(sentence, format!("blockyard host change {host} --chap required")),
        Some(Demand::Required) => Point::good(sentence),
    };
    let weakest = state.auth.weakest;
    let hash = (told.chap_user.is_some() && weakest > ChapAlgorithm::Md5)
        .then(|| Point::good(format!("hash functions weaker than {weakest} are not spoken")));
    [Point::good(format!("host {host} is {who}, {from}")), proof].into_iter().chain(hash).collect()
}

/// Whether it is logged in where the volume is seen. Not to be is no fault of ours.
fn of_sessions(host: &Name, shown: &[&PresentationRecord], state: &State, sessions: &[SessionReport]) -> Point {
    let iqns: Vec<String> = shown
        .iter()
        .filter_map(|shown| state.targets.get(&shown.target))
        .map(|target| target.iqn.to_string())
        .collect();
    let here = sessions.iter().filter(|session| session.host.as_ref() == Some(host));
    let here: Vec<&SessionReport> =
        here.filter(|session| session.target.as_ref().is_some_and(|target| iqns.contains(target))).collect();
    let at = |session: &&SessionReport| session.portal.to_string();
    match here.len() {
        0 => Point::note(format!("host {host} is not logged in"), "log in there; blockyard present prints how"),
        1 => Point::good(format!("it is logged in at {}", at(&here[0]))),
        n => {
            let places: Vec<String> = here.iter().map(at).collect();
            Point::good(format!("it is logged in {n} times, at {}", places.join(", ")))
        }
    }
}
