//! Steps between two states of the access rules, with the effect of each on sessions.

use super::plan::{Step, StepKind, changes};
use crate::state::host_index::HostIndex;
use crate::state::{HostRecord, PresentationRecord, State, TargetRecord};
use model::{IsnsServer, Name, PortalGroupPolicy, SessionReport, VolumeName, is_shown_in};
use std::collections::{BTreeMap, BTreeSet};

/// Steps, and the sessions that they affect, each once.
pub(super) struct Steps {
    pub steps: Vec<Step>,
    pub sessions: BTreeSet<u32>,
}

/// Sessions that a step affects.
#[derive(Default)]
struct Hit {
    sessions: BTreeSet<u32>,
    /// Effect on these sessions.
    effect: &'static str,
}

const ENDS: &str = "is closed";
const LOSES: &str = "loses access";
const OTHERWISE: &str = "changes access";
const OTHER_HOST: &str = "changes to the mappings of another host";
const MOVES: &str = "asked to move: about half a second";
const MAY_MOVE: &str = "may be asked to move: about half a second";

/// Computes the steps between two states.
pub(super) fn access_steps(before: &State, after: &State, sessions: &[SessionReport]) -> Steps {
    let view = View::of(before, after, sessions);
    let told = |was: Option<String>, is: Option<String>| was.into_iter().chain(is).collect::<Vec<_>>().join(" → ");
    let mut all = compared(&before.targets, &after.targets, |name, was, is| {
        let iqn = |record: &TargetRecord| record.iqn.to_string();
        (
            format!("target {name}"),
            told(was.map(iqn), is.map(iqn)),
            was.map(|was| view.through(was)).unwrap_or_default(),
        )
    });
    all.extend(compared(&before.hosts, &after.hosts, |name, was, is| {
        let change = match (was, is) {
            (Some(was), Some(is)) => host_change(was, is),
            (None, Some(is)) => initiators(is),
            _ => String::new(),
        };
        (format!("host {name}"), change, view.of_host(name))
    }));
    all.extend(compared(&before.groups, &after.groups, |name, was, is| {
        let change = if is.is_some() { told(was.map(names), is.map(names)) } else { String::new() };
        (format!("group {name}"), change, view.of_group(name, was, is))
    }));
    // Keyed by volume, host and target, so that another LUN is one change rather than a removal and a creation.
    let (was, is) = (by_place(before), by_place(after));
    all.extend(compared(&was, &is, |&(volume, host, _), was, is| {
        let seen_as = |record: &&PresentationRecord| seen_as(record);
        // A new presentation takes nothing from any session.
        let hit = was.map(|was| view.sessions_with(was, is.is_some())).unwrap_or_default();
        (format!("presentation of volume {volume} to {host}"), told(was.map(seen_as), is.map(seen_as)), hit)
    }));
    all.extend(former_lun_steps(before, after));
    all.extend(portal_steps(&view));
    // A session that several steps affect counts once.
    let touched = all.iter().flat_map(|(_, hit)| hit.sessions.iter().copied()).collect();
    Steps { steps: all.into_iter().map(|(step, _)| step).collect(), sessions: touched }
}

/// Both states, with the sessions indexed.
struct View<'a> {
    before: &'a State,
    after: &'a State,
    sessions: &'a [SessionReport],
    by_host: BTreeMap<&'a str, Vec<&'a SessionReport>>,
    by_target: BTreeMap<&'a str, Vec<&'a SessionReport>>,
    /// Sessions that belong to another host afterwards, or to none (`None`).
    moved: BTreeMap<u32, Option<&'a Name>>,
}

impl<'a> View<'a> {
    fn of(before: &'a State, after: &'a State, sessions: &'a [SessionReport]) -> Self {
        let mut view = Self {
            before,
            after,
            sessions,
            by_host: BTreeMap::new(),
            by_target: BTreeMap::new(),
            moved: BTreeMap::new(),
        };
        let owners = HostIndex::of(after);
        // Indexed once, because every step looks up sessions.
        for session in sessions {
            let was = session.host.as_ref();
            was.iter().for_each(|host| view.by_host.entry(host.as_str()).or_default().push(session));
            session.target.iter().for_each(|iqn| view.by_target.entry(iqn).or_default().push(session));
            // Decided as a login would be: a session whose host changes sees another host's volumes.
            let is = owners.host_of(session);
            if is != was {
                view.moved.insert(session.id, is);
            }
        }
        view
    }

    fn through(&self, target: &TargetRecord) -> Hit {
        let sessions = self.by_target.get(target.iqn.as_str()).into_iter().flatten();
        Hit { sessions: sessions.map(|session| session.id).collect(), effect: ENDS }
    }

    /// Returns the sessions that leave this host or come to it.
    fn of_host(&self, name: &Name) -> Hit {
        let own = self.by_host.get(name.as_str()).into_iter().flatten().map(|session| session.id);
        let left: BTreeSet<u32> = own.filter(|id| self.moved.contains_key(id)).collect();
        // One session that ends is the more severe effect, so it names the step.
        // `left` has keys of `moved` only, so the index cannot fail.
        let ends = left.iter().any(|id| self.moved[id].is_none());
        let came = self.moved.iter().filter(|(_, is)| **is == Some(name)).map(|(id, _)| *id);
        Hit { effect: if ends { ENDS } else { OTHER_HOST }, sessions: left.into_iter().chain(came).collect() }
    }

    /// Returns the sessions that lose presentations to a group, because their host leaves it.
    fn of_group(&self, name: &Name, was: Option<&BTreeSet<Name>>, is: Option<&BTreeSet<Name>>) -> Hit {
        let shows: Vec<&PresentationRecord> =
            self.before.presentations.iter().filter(|record| record.host == *name).collect();
        let left = was.into_iter().flatten().filter(|host| is.is_none_or(|is| !is.contains(*host)));
        let sees = |session: &SessionReport| shows.iter().any(|record| self.sees(session, record));
        let sessions = left.flat_map(|host| self.by_host.get(host.as_str()).into_iter().flatten());
        Hit { sessions: sessions.filter(|session| sees(session)).map(|session| session.id).collect(), effect: LOSES }
    }

    fn sessions_with(&self, record: &PresentationRecord, still: bool) -> Hit {
        // Sessions of unknown initiators belong to `everyone` by its name, not through any host.
        let hosts: BTreeSet<&str> =
            self.before.hosts_of(&record.host).chain([&record.host]).map(Name::as_str).collect();
        let sessions = hosts.into_iter().flat_map(|host| self.by_host.get(host).into_iter().flatten());
        let sessions = sessions.filter(|session| self.sees(session, record)).map(|session| session.id);
        Hit { sessions: sessions.collect(), effect: if still { OTHERWISE } else { LOSES } }
    }

    /// Returns true when the session, of the given host, uses a target and portal group with the presentation.
    fn sees(&self, session: &SessionReport, record: &PresentationRecord) -> bool {
        let target = self.before.targets.get(&record.target).map(|target| target.iqn.as_str());
        // A presentation limited to portal groups is visible through their portals only.
        let tag = self.before.portal_policy(session.portal).tag;
        session.target.as_deref() == target && is_shown_in(&record.groups, tag)
    }
}

/// Lists creations, changes and removals between two maps; `say` returns subject, change and affected sessions.
fn compared<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    say: impl Fn(&K, Option<&V>, Option<&V>) -> (String, String, Hit),
) -> Vec<(Step, Hit)> {
    let keys: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    let step = |key: &K| {
        let (was, is) = (before.get(key), after.get(key));
        let kind = match (was, is) {
            (None, _) => StepKind::Create,
            (_, None) => StepKind::Remove,
            _ if was == is => return None,
            _ => StepKind::Change,
        };
        let (subject, change, hit) = say(key, was, is);
        Some(stepped(kind, subject, change, hit))
    };
    keys.into_iter().filter_map(step).collect()
}

fn stepped(kind: StepKind, subject: String, change: String, hit: Hit) -> (Step, Hit) {
    let sessions = u32::try_from(hit.sessions.len()).unwrap_or(u32::MAX);
    let effect = (sessions > 0).then(|| hit.effect.to_owned());
    (Step { kind, subject, change, sessions, effect }, hit)
}

/// Steps for additional former LUNs, which affect no session.
fn former_lun_steps(before: &State, after: &State) -> Vec<(Step, Hit)> {
    let step = |who: &Name| {
        let known: BTreeSet<_> = before.luns.of(who).collect();
        let new = after.luns.of(who).filter(|one| !known.contains(one)).count();
        let numbers = if new == 1 { "1 LUN number".to_owned() } else { format!("{new} LUN numbers") };
        (new > 0).then(|| stepped(StepKind::Create, format!("memory of {who}"), numbers, Hit::default()))
    };
    after.luns.of.keys().filter_map(step).collect()
}

fn portal_steps(view: &View<'_>) -> Vec<(Step, Hit)> {
    let (before, after) = (view.before, view.after);
    // Portals without a record have default settings, before and after.
    let addresses: BTreeSet<_> = before.portals.keys().chain(after.portals.keys()).copied().collect();
    let step = |address| {
        let (was, is) = (before.portal_policy(address), after.portal_policy(address));
        let drained = |is: bool| if is { "drained" } else { "open" };
        // Draining is no setting of the policy, so it is compared by itself.
        let drains = (was.drained != is.drained).then(|| format!("{} → {}", drained(was.drained), drained(is.drained)));
        let change: Vec<String> = changes(&was.settings(), &is.settings()).into_iter().chain(drains).collect();
        let change = (!change.is_empty()).then(|| change.join(", "))?;
        let sessions = view.sessions.iter().filter(|session| session.portal == address).map(|session| session.id);
        let hit =
            Hit { sessions: sessions.collect(), effect: if is.drained && !was.drained { MOVES } else { MAY_MOVE } };
        Some(stepped(StepKind::Change, format!("portal {address}"), change, hit))
    };
    let mut steps: Vec<(Step, Hit)> = addresses.into_iter().filter_map(step).collect();
    if before.balance != after.balance {
        let change = format!("{} → {}", before.balance.as_str(), after.balance.as_str());
        steps.push(stepped(StepKind::Change, "balance of sessions".to_owned(), change, Hit::default()));
    }
    steps.extend(steps_for_all(before, after));
    steps
}

/// Steps for global settings: portal groups, authentication policy, iSNS server.
fn steps_for_all(before: &State, after: &State) -> Vec<(Step, Hit)> {
    let tags: BTreeSet<u16> = before.portal_groups.keys().chain(after.portal_groups.keys()).copied().collect();
    let policy = |state: &State, tag| state.portal_groups.get(&tag).copied().unwrap_or_default();
    let group = |tag| (format!("portal group {tag}"), served(policy(before, tag)), served(policy(after, tag)));
    let server = |isns: Option<IsnsServer>| isns.map_or_else(|| "none".to_owned(), |server| server.to_string());
    let (was, is) = (&before.auth, &after.auth);
    let mut differs: Vec<(String, String, String)> = tags.into_iter().map(group).collect();
    differs.push(("weakest CHAP".to_owned(), was.weakest.as_str().to_owned(), is.weakest.as_str().to_owned()));
    differs.push(("iSNS server".to_owned(), server(before.isns), server(after.isns)));
    differs.retain(|(_, was, is)| was != is);
    let mut changes: Vec<(String, String)> =
        differs.into_iter().map(|(subject, was, is)| (subject, format!("{was} → {is}"))).collect();
    // Credentials are never printed, not even as a difference.
    if was.discovery != is.discovery {
        changes.push(("discovery".to_owned(), "authentication".to_owned()));
    }
    let step = |(subject, change)| stepped(StepKind::Change, subject, change, Hit::default());
    changes.into_iter().map(step).collect()
}

fn served(policy: PortalGroupPolicy) -> String {
    format!("{}{}", policy.access.as_str(), if policy.preferred { ", preferred" } else { "" })
}

fn names(hosts: &BTreeSet<Name>) -> String {
    hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>().join(", ")
}

fn by_place(state: &State) -> BTreeMap<(&VolumeName, &Name, &Name), &PresentationRecord> {
    state.presentations.iter().map(|record| ((&record.volume, &record.host, &record.target), record)).collect()
}

fn seen_as(record: &PresentationRecord) -> String {
    let mode = if record.read_only { ", read-only" } else { "" };
    format!("LUN {} of target {}{mode}", record.lun, record.target)
}

fn initiators(host: &HostRecord) -> String {
    if host.any {
        return "any initiator".to_owned();
    }
    host.initiators.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn host_change(was: &HostRecord, is: &HostRecord) -> String {
    let mut changes = Vec::new();
    if (was.any, &was.initiators) != (is.any, &is.initiators) {
        changes.push(format!("{} → {}", initiators(was), initiators(is)));
    }
    if was.networks != is.networks {
        changes.push("allowed addresses".to_owned());
    }
    // Credentials are never printed, not even as a difference.
    if was.proof != is.proof {
        changes.push("authentication".to_owned());
    }
    changes.join(", ")
}
