//! Access diagnosis: checks everything between a host and a volume, point by point. Nothing is changed.

mod obstacles;

use crate::change::hosts::unknown_host;
use crate::change::presentations::Presentations;
use crate::change::volumes;
use crate::state::{PresentationRecord, State};
use crate::view::ProofReport;
use model::{
    ChapAlgorithm, Demand, Name, PortalReport, PortalState, Refusal, SanitizeReport, SessionReport, VolumeName,
    VolumeReport, VolumeState, is_shown_in,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Access diagnosis for a host and a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Name of the host.
    pub host: Name,
    /// Name of the volume.
    pub volume: VolumeName,
    /// True when the volume is mapped to the host, or will be at its next login. A point that is not good may
    /// still keep the host from using it.
    pub has_access: bool,
    /// All checks, from the volume to the host.
    pub checks: Vec<Point>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// False when this keeps the host from the volume, or from using it.
    pub passed: bool,
    /// Result, as a sentence without a full stop.
    pub message: String,
    /// Action that would change it, where one is needed.
    pub remedy: Option<String>,
}

impl Point {
    fn good(sentence: impl Into<String>) -> Self {
        Self { passed: true, message: sentence.into(), remedy: None }
    }

    fn bad(sentence: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { passed: false, message: sentence.into(), remedy: Some(remedy.into()) }
    }

    /// Builds a note: it does not block access, but deserves attention.
    fn note(sentence: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { passed: true, ..Self::bad(sentence, remedy) }
    }
}

impl Presentations {
    /// Explains whether the host has access to the volume, with every reason for or against it.
    ///
    /// *Errors*: the host or the volume is unknown.
    pub async fn explain(&self, host: &Name, volume: &VolumeName) -> Result<Explanation, Refusal> {
        let state = self.core.state();
        if !state.hosts.contains_key(host) {
            return Err(unknown_host(host));
        }
        let report = self.volumes.opened(volume).await?.ok_or_else(|| volumes::unknown(volume))?;
        // Read once, so that all points describe the same moment.
        let (portals, sessions) = (self.portals.list().await?, self.sessions.list().await?);
        let mut points = vec![of_volume(&report)];
        let shown: Vec<&PresentationRecord> = state.mappings_of(host).filter(|shown| shown.volume == *volume).collect();
        points.extend(shown.iter().map(|shown| of_presentation(&state, host, shown)));
        if shown.is_empty() {
            let sentence = format!("volume {volume} is not presented to host {host}, nor to a group of it");
            points.push(Point::bad(sentence, format!("blockyard present {volume} {host}")));
        }
        let ways: Vec<AccessPath<'_>> = shown.iter().map(|shown| AccessPath::of(shown, &portals)).collect();
        // One reachable presentation is enough: others that cannot be reached do not block access.
        let is_reached = ways.iter().any(AccessPath::is_open);
        points.extend(ways.iter().map(|way| way.point(is_reached)));
        // The first point is the state of the volume.
        let sees = points[0].passed && is_reached;
        points.extend(obstacles::of_groups(&state, &ways));
        // The host was found in this snapshot of the state above, so the index cannot fail.
        let names = obstacles::names_of(host, &state.hosts[host], &sessions);
        points.extend(obstacles::of_reservation(volume, report.reservation.as_deref(), host, &names));
        points.extend(of_others(&state, host, volume));
        points.extend(of_proof(&state, host));
        points.extend(obstacles::of_refused(&self.refused_logins.list().await?, &names));
        points.push(of_sessions(host, &shown, &state, &sessions));
        Ok(Explanation { host: host.clone(), volume: volume.clone(), has_access: sees, checks: points })
    }
}

fn of_volume(volume: &VolumeReport) -> Point {
    let name = &volume.name;
    // A volume that is being sanitized, or could not be, serves no host whatever its state.
    match volume.sanitize {
        Some(SanitizeReport::Running { percent }) => {
            let sentence = format!("volume {name} is being sanitized by a host, {percent} % done, and is offline");
            return Point::bad(sentence, "wait until it has finished: blockyard event list");
        }
        Some(SanitizeReport::Failed) => {
            let sentence = format!("sanitize of volume {name} failed, and the volume is offline");
            return Point::bad(sentence, "send SANITIZE again from its host, or EXIT FAILURE MODE");
        }
        None => {}
    }
    match volume.state {
        VolumeState::Online => Point::good(format!("volume {name} is online")),
        VolumeState::Failed => Point::bad(format!("volume {name} is offline"), "see blockyard status"),
        VolumeState::Missing => Point::bad(format!("the back end of volume {name} is missing"), "see blockyard status"),
        VolumeState::Copying => Point::bad(format!("volume {name} is being copied"), "wait, see blockyard volume list"),
    }
}

fn of_presentation(state: &State, host: &Name, shown: &PresentationRecord) -> Point {
    let iqn = state.targets.get(&shown.target).map(|target| target.iqn.to_string()).unwrap_or_default();
    let how = if shown.read_only { "read-only" } else { "read-write" };
    let sentence = format!("it is LUN {} of {iqn}, {how}", shown.lun);
    if state.is_everyone(&shown.host) {
        let remedy = format!("blockyard unpresent {} {}, and present it to hosts by name", shown.volume, shown.host);
        return Point::note(format!("{sentence}, because it is presented to every initiator"), remedy);
    }
    let by = if shown.host == *host { String::new() } else { format!(", through group {}", shown.host) };
    Point::good(sentence + &by)
}

/// A presentation with the portals that lead to it.
struct AccessPath<'a> {
    shown: &'a PresentationRecord,
    /// Portals of the groups through which it is mapped.
    portals: Vec<&'a PortalReport>,
}

impl<'a> AccessPath<'a> {
    fn of(shown: &'a PresentationRecord, portals: &'a [PortalReport]) -> Self {
        let shows = |portal: &&PortalReport| is_shown_in(&shown.groups, portal.policy.tag);
        Self { shown, portals: portals.iter().filter(shows).collect() }
    }

    /// Returns the portals that accept sessions.
    fn open(&self) -> impl Iterator<Item = &'a PortalReport> {
        // A drained portal hands new sessions on, so it counts as closed.
        let takes = |portal: &&PortalReport| portal.state == PortalState::Open && !portal.policy.drained;
        self.portals.iter().copied().filter(takes)
    }

    fn is_open(&self) -> bool {
        self.open().next().is_some()
    }

    /// Reports the reachability. An unreachable presentation blocks access only where there is no other one.
    fn point(&self, is_reached: bool) -> Point {
        let PresentationRecord { lun, target, .. } = self.shown;
        if self.is_open() {
            let open: Vec<String> = self.open().map(|portal| portal.address.to_string()).collect();
            return Point::good(format!("target {target} is available at {}", open.join(", ")));
        }
        let groups = groups_of(self.shown);
        let sentence = format!("no portal{groups} that accepts sessions provides LUN {lun} of target {target}");
        Point { passed: is_reached, ..Point::bad(sentence, self.remedy()) }
    }

    /// Returns the action that would make it reachable.
    fn remedy(&self) -> String {
        // Resuming a drained portal is the simplest remedy, so it is named first.
        let drained = self.portals.iter().find(|portal| portal.policy.drained && portal.state == PortalState::Open);
        match (drained, self.shown.groups.first()) {
            (Some(portal), _) => format!("blockyard portal resume {}", portal.address),
            (None, Some(group)) if self.portals.is_empty() => format!("blockyard portal add ADDRESS group={group}"),
            _ => "see blockyard portal list".to_owned(),
        }
    }
}

/// Names the portal groups that the presentation is limited to.
fn groups_of(shown: &PresentationRecord) -> String {
    let tags: Vec<String> = shown.groups.iter().map(u16::to_string).collect();
    match tags.len() {
        0 => String::new(),
        1 => format!(" of group {}", tags[0]),
        _ => format!(" of groups {}", tags.join(", ")),
    }
}

/// Notes other hosts that may write the volume.
fn of_others(state: &State, host: &Name, volume: &VolumeName) -> Option<Point> {
    // Hosts that can only read cannot corrupt it.
    let writes = |other: &&Name| {
        *other != host && state.mappings_of(other).any(|shown| shown.volume == *volume && !shown.read_only)
    };
    let others: Vec<&str> = state.hosts.keys().filter(writes).map(Name::as_str).collect();
    let sentence = format!("{} can write to it, too", others.join(", "));
    let remedy = "make sure that all use a cluster file system or reservations, or present it with --read-only";
    (!others.is_empty()).then(|| Point::note(sentence, remedy))
}

/// Reports initiators, networks and authentication of the host.
fn of_proof(state: &State, host: &Name) -> Vec<Point> {
    let record = &state.hosts[host];
    let who = match record.initiators.as_slice() {
        [] => "any initiator that belongs to no other host".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let from = match record.networks.as_slice() {
        [] => "from anywhere".to_owned(),
        some => format!("from {} only", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let told = ProofReport::of(&record.proof);
    let sentence = format!("host {host} {told}");
    let proof = match told.chap_demand {
        None => Point::note(sentence, "consider setting a CHAP secret"),
        Some(Demand::Offered) => Point::note(sentence, format!("blockyard host change {host} --chap required")),
        Some(Demand::Required) => Point::good(sentence),
    };
    let weakest = state.auth.weakest;
    // MD5 is the weakest hash function, so as a limit it excludes none.
    let hash = (told.chap_user.is_some() && weakest > ChapAlgorithm::Md5)
        .then(|| Point::good(format!("CHAP hash functions weaker than {weakest} are not accepted")));
    [Point::good(format!("host {host} is {who}, {from}")), proof].into_iter().chain(hash).collect()
}

/// Reports whether the host is logged in to a target with the volume. Not being logged in is a note, no fault
/// of the array.
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
