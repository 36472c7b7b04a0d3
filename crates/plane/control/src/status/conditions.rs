//! Conditions: the current problems of all objects, and the snapshot that they are derived from.

use super::problems::{
    of_disk, of_errors, of_hold, of_isns, of_log, of_losses, of_openness, of_paths, of_pool, of_portal, of_scrub,
    of_slow, of_space, of_spares, of_stalled, of_volume,
};
use crate::notices::CurrentProblems;
use crate::standing_conditions;
use crate::state::State;
use crate::status::Status;
use crate::system::now;
use model::{
    DiskName, DiskReport, Event, EventCode, EventSeverity, IsnsReport, LogState, MemberState, Name, Order, PoolReport,
    PoolState, PortalReport, PortalState, Problem, Refusal, Severity, SpaceState, Subject, SubjectKind, VolumeName,
    VolumeReport, code, event,
};
use std::cmp::Reverse;
use std::sync::Arc;

/// A current problem of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Kind of the condition. Topic and subject identify it, whichever event code it has at the moment.
    pub topic: EventCode,
    /// Event code that describes its present severity.
    pub code: EventCode,
    /// Object of the condition.
    pub subject: Subject,
    /// State, meaning and action.
    pub problem: Problem,
    /// Details that help to locate it: disks with serial number and bay.
    pub details: Vec<String>,
    /// True for a state that an operator has chosen: the status shows it, and no alert is sent.
    pub is_chosen: bool,
}

/// All current conditions that were not chosen.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Conditions that hold.
    pub active: Vec<Condition>,
    /// Conditions that cannot be evaluated at the moment: their alerts are not ended.
    pub indeterminate: Vec<(EventCode, Subject)>,
}

impl Condition {
    /// Returns the severity on the scale of events.
    #[must_use]
    pub fn severity(&self) -> EventSeverity {
        match self.problem.severity {
            Severity::Critical => EventSeverity::Critical,
            Severity::Warning | Severity::Good => EventSeverity::Warning,
        }
    }

    /// Returns subject, state and meaning as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Problem { subject, state, meaning, .. } = &self.problem;
        format!("{subject} is {state}: {meaning}")
    }

    fn of(topic: EventCode, subject: Subject, problem: Problem) -> Self {
        Self { topic, code: topic, subject, problem, details: Vec::new(), is_chosen: false }
    }

    fn with(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

/// State of all objects, read once.
pub(super) struct Snapshot {
    pub(super) node: Name,
    pub(super) state: Arc<State>,
    pub(super) disks: Vec<DiskReport>,
    pub(super) pools: Vec<PoolReport>,
    /// Volumes that are offline.
    pub(super) away: Vec<VolumeReport>,
    /// Number of known volumes.
    pub(super) volumes: usize,
    pub(super) portals: Vec<PortalReport>,
    pub(super) isns: IsnsReport,
    pub(super) noticed: CurrentProblems,
    pub(super) hold: Option<Refusal>,
    /// Standing events whose subjects still exist.
    pub(super) standing: Vec<Event>,
}

impl Status {
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let (disks, pools) = (self.disks.list().await?, self.pools.list().await?);
        // Names alone: reporting every volume of a large array would be too slow for each poll of the status.
        let open = self.core.engine.volume_names(Order::VolumeNames).await?;
        let away = self.volumes.away(&open).await?;
        // The data plane returns the names sorted, as the binary search needs them.
        let is_open = |name: &VolumeName| open.binary_search(name).is_ok();
        // A volume that the data plane holds back is in both lists.
        let volumes = open.len() + away.iter().filter(|volume| !is_open(&volume.name)).count();
        // A standing event of a removed object has nothing left to report.
        let is_there = |event: &Event| {
            let name = event.subject.name.as_str();
            match event.subject.kind {
                SubjectKind::Disk => {
                    disks.iter().any(|disk| disk.name.as_ref().is_some_and(|disk| disk.as_str() == name))
                }
                SubjectKind::Pool => pools.iter().any(|pool| pool.name.as_str() == name),
                SubjectKind::Volume => {
                    name.parse().is_ok_and(|name| is_open(&name))
                        || away.iter().any(|volume| volume.name.to_string() == name)
                }
                SubjectKind::Host | SubjectKind::Portal | SubjectKind::Node | SubjectKind::Receiver => true,
            }
        };
        let standing = self.core.events.standing().into_iter().filter(is_there).collect();
        Ok(Snapshot {
            node: self.core.settings.node.clone(),
            state: self.core.state(),
            portals: self.portals.list().await?,
            isns: self.isns.report(),
            noticed: self.notices.all(),
            hold: self.core.hold(),
            disks,
            pools,
            away,
            volumes,
            standing,
        })
    }

    /// Returns the current conditions that do not clear by themselves, except states that an operator has
    /// chosen.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn conditions(&self) -> Result<Conditions, Refusal> {
        let snapshot = self.snapshot().await?;
        // No SMART data, as after a start: earlier health alerts must not be cleared before the disk was
        // polled.
        let silent = snapshot.disks.iter().filter(|disk| disk.health.is_none()).filter_map(|disk| disk.name.as_ref());
        let unsure =
            silent.flat_map(|name| [event::DISK_FAILING, event::DISK_WEARS].map(|code| (code, Subject::disk(name))));
        let there = snapshot.conditions().into_iter().filter(|condition| !condition.is_chosen).collect();
        Ok(Conditions { active: there, indeterminate: unsure.collect() })
    }
}

impl Snapshot {
    /// Returns all conditions, the worst first.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let mut found: Vec<Condition> = Vec::new();
        found.extend(self.hold.as_ref().map(|refusal| {
            let replaced = refusal.code == code::STATE_REPLACED;
            let topic = if replaced { event::STATE_REPLACED } else { event::STATE_OLDER };
            Condition::of(topic, Subject::new(SubjectKind::Node, &self.node), of_hold(refusal))
        }));
        found.extend(self.pools.iter().flat_map(|pool| self.of_pool(pool)));
        found.extend(self.disks.iter().flat_map(|disk| self.of_disk(disk)));
        for volume in &self.away {
            let subject = Subject::new(SubjectKind::Volume, &volume.name);
            found.extend(of_volume(volume).map(|problem| Condition::of(event::VOLUME_HELD, subject, problem)));
        }
        for portal in &self.portals {
            // One topic for both states, so that a change from one to the other is the same alert.
            let code = match portal.state {
                PortalState::NoLink { .. } => event::PORTAL_LINK_DOWN,
                PortalState::Open | PortalState::Failed { .. } => event::PORTAL_UNUSABLE,
            };
            let subject = Subject::new(SubjectKind::Portal, &portal.address);
            let told = of_portal(portal).map(|problem| Condition::of(event::PORTAL_UNUSABLE, subject, problem));
            found.extend(told.map(|told| Condition { code, ..told }));
        }
        let node = || Subject::new(SubjectKind::Node, &self.node);
        found.extend(of_isns(&self.isns).map(|problem| Condition::of(event::ISNS_FAILED, node(), problem)));
        for ((code, subject), problem) in &self.noticed {
            found.push(Condition::of(*code, subject.clone(), problem.clone()));
        }
        for event in &self.standing {
            let stands = standing_conditions::of(event.code).expect("the log says which stand");
            let problem = standing_conditions::problem(event, &stands);
            let told = Condition::of(stands.topic, event.subject.clone(), problem);
            found.push(Condition { code: event.code, ..told });
        }
        // Presenting to everyone is a decision of an operator, so no alert is sent.
        for (volume, problem) in of_openness(&self.state) {
            let subject = Subject::new(SubjectKind::Volume, &volume);
            let open = Condition::of(event::LUN_HIDDEN, subject, problem);
            found.push(Condition { is_chosen: true, ..open });
        }
        // The sort is stable: within a severity the order above stays.
        found.sort_by_key(|condition| Reverse(condition.problem.severity));
        found
    }

    fn of_pool(&self, pool: &PoolReport) -> Vec<Condition> {
        // One topic for all states of a pool, so that a worsening is the same alert with another code.
        let code = match pool.state {
            _ if pool.fenced.is_some() => event::POOL_FENCED,
            PoolState::Failed => event::POOL_FAILED,
            PoolState::Missing => event::POOL_UNOPENED,
            _ if pool.read_only.is_some() => event::POOL_READ_ONLY,
            PoolState::Healthy | PoolState::Rebuilding | PoolState::Degraded => event::POOL_DEGRADED,
        };
        let subject = || Subject::pool(&pool.name);
        let state = of_pool(pool).map(|problem| Condition::of(event::POOL_DEGRADED, subject(), problem));
        let state = state.map(|state| Condition { code, ..state }.with(members(pool, &self.disks)));
        let lost = pool.log.as_ref().is_some_and(|log| log.state == LogState::Lost);
        let log_code = if lost { event::LOG_LOST } else { event::LOG_FAILED };
        let log = of_log(pool).map(|problem| Condition::of(event::LOG_FAILED, subject(), problem));
        let log = log.map(|log| Condition { code: log_code, ..log });
        let space = of_space(pool).map(|problem| {
            let code = match pool.space {
                SpaceState::Enough | SpaceState::Low => event::POOL_FILLING,
                SpaceState::NearlyFull => event::POOL_FULL,
                SpaceState::Full => event::WRITE_REFUSED,
            };
            Condition { code, ..Condition::of(event::POOL_FILLING, subject(), problem) }
        });
        // The subject is the spare, because an alert is identified by its topic and subject: with the pool as the
        // subject, several spares in use would be one alert that names the last of them.
        let spares = of_spares(pool).into_iter();
        let spares =
            spares.map(|(spare, problem)| Condition::of(event::SPARE_TOOK_OVER, Subject::disk(&spare), problem));
        let overdue = of_scrub(&self.state, pool, now());
        let overdue = overdue.map(|problem| Condition::of(event::SCRUB_OVERDUE, subject(), problem));
        let lost = of_losses(pool).map(|problem| Condition::of(event::BLOCKS_LOST, subject(), problem));
        state.into_iter().chain(lost).chain(log).chain(space).chain(spares).chain(overdue).collect()
    }

    fn of_disk(&self, disk: &DiskReport) -> Vec<Condition> {
        let Some(name) = &disk.name else { return Vec::new() };
        let failing = disk.health.as_ref().is_some_and(model::DiskHealth::is_failing);
        let topic = if failing { event::DISK_FAILING } else { event::DISK_MISSING };
        let state = of_disk(disk, &self.pools).map(|problem| Condition {
            // A missing spare is reported before it is needed; a disk that no pool uses costs nothing.
            is_chosen: !failing && disk.spare.is_none(),
            ..Condition::of(topic, Subject::disk(name), problem).with(place(disk))
        });
        // A failing disk has that as its state already; wear would repeat its complaints.
        let complaints = disk.health.as_ref().filter(|_| !failing).map_or(Vec::new(), model::DiskHealth::complaints);
        let wear =
            wear(name, &complaints).map(|problem| Condition::of(event::DISK_WEARS, Subject::disk(name), problem));
        let stalled = of_stalled(disk, &self.pools);
        let stalled = stalled.map(|problem| Condition::of(event::DISK_STALLED, Subject::disk(name), problem));
        let paths = of_paths(disk).map(|problem| Condition::of(event::PATH_LOST, Subject::disk(name), problem));
        let slow = of_slow(disk, &self.pools);
        let slow = slow.map(|problem| Condition::of(event::DISK_SLOW, Subject::disk(name), problem));
        let errs = of_errors(disk, &self.pools);
        let errs = errs.map(|problem| Condition::of(event::DISK_ERRS, Subject::disk(name), problem));
        // Problems of the hardware carry serial number and bay, to find the disk in its enclosure.
        let placed = [wear, stalled, slow, errs].into_iter().flatten().map(|it| it.with(place(disk)));
        // Paths lead to remote disks, which have no bay here.
        state.into_iter().chain(placed).chain(paths).collect()
    }
}

fn wear(name: &DiskName, complaints: &[String]) -> Option<Problem> {
    (!complaints.is_empty()).then(|| Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: "wearing out".to_owned(),
        meaning: complaints.join(", "),
        action: "keep a replacement ready".to_owned(),
    })
}

/// Describes each member that is not in sync, with serial number and bay.
fn members(pool: &PoolReport, disks: &[DiskReport]) -> Vec<String> {
    let lost = pool.members().filter_map(|member| {
        let state = match member.state {
            MemberState::Failed => "has failed",
            MemberState::Missing => "is missing",
            MemberState::NotResponding => "does not respond",
            MemberState::Rebuilding => "is being rebuilt",
            _ => return None,
        };
        // A disk and a member without names must not count as the same.
        let report = disks.iter().find(|disk| disk.name.is_some() && disk.name == member.disk);
        let state = member.next_step().map_or_else(|| state.to_owned(), |next| format!("{state}; {next}"));
        Some(match (report, &member.disk) {
            (Some(report), _) => format!("{} {state}", place(report).join("")),
            (None, Some(name)) => format!("disk {name} {state}"),
            (None, None) => format!("the disk with the identity {} {state}", member.id),
        })
    });
    lost.collect()
}

/// Describes the disk with serial number, bay and path.
fn place(disk: &DiskReport) -> Vec<String> {
    let identity = &disk.identity;
    let name = disk.name.as_ref().map_or_else(|| disk.path.clone(), ToString::to_string);
    let mut facts: Vec<String> = Vec::new();
    facts.extend(identity.model.clone());
    facts.extend(identity.serial.as_ref().map(|serial| format!("serial number {serial}")));
    facts.extend(identity.place().map(|place| format!("bay {place}")));
    facts.push(disk.path.clone());
    vec![format!("disk {name} ({})", facts.join(", "))]
}
