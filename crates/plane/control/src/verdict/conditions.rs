//! What is wrong now, thing by thing.

use super::problems::{
    of_disk, of_errors, of_hold, of_isns, of_log, of_losses, of_openness, of_paths, of_pool, of_portal, of_scrub,
    of_slow, of_space, of_spares, of_stalled, of_volume,
};
use crate::notices::Known;
use crate::standing;
use crate::state::State;
use crate::system::now;
use crate::verdict::Status;
use model::{
    DiskName, DiskReport, Event, EventCode, EventSeverity, IsnsReport, LogState, MemberState, Name, Order, PoolReport,
    PoolState, PortalReport, PortalState, Problem, Refusal, Severity, SpaceState, Subject, SubjectKind, VolumeName,
    VolumeReport, code, event,
};
use std::cmp::Reverse;
use std::sync::Arc;

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What sort of thing it is: with its subject it is the same condition however it is told.
    pub topic: EventCode,
    /// The event that it would be.
    pub code: EventCode,
    /// What it is about.
    pub subject: Subject,
    /// What is so, what it means, what to do.
    pub problem: Problem,
    /// What else helps to find it: disks with serial number and place.
    pub details: Vec<String>,
    /// True for what an operator has chosen to have so: the status shows it, and nobody is alerted.
    pub is_chosen: bool,
}

/// All that is wrong now and was not chosen.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// What is wrong.
    pub there: Vec<Condition>,
    /// What may be wrong: nobody knows just now.
    pub unsure: Vec<(EventCode, Subject)>,
}

impl Condition {
    /// How bad it is, as events are.
    #[must_use]
    pub fn severity(&self) -> EventSeverity {
        match self.problem.severity {
            Severity::Critical => EventSeverity::Critical,
            Severity::Warning | Severity::Good => EventSeverity::Warning,
        }
    }

    /// What is so and what it means.
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

/// How everything is, looked at once.
pub(super) struct Snapshot {
    pub(super) node: Name,
    pub(super) state: Arc<State>,
    pub(super) disks: Vec<DiskReport>,
    pub(super) pools: Vec<PoolReport>,
    /// The volumes that do not serve.
    pub(super) away: Vec<VolumeReport>,
    /// How many volumes are known.
    pub(super) volumes: usize,
    pub(super) portals: Vec<PortalReport>,
    pub(super) isns: IsnsReport,
    pub(super) noticed: Known,
    pub(super) hold: Option<Refusal>,
    /// What events tell of that is still so, of things that are still there.
    pub(super) standing: Vec<Event>,
}

impl Status {
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let (disks, pools) = (self.disks.list().await?, self.pools.list().await?);
        let open = self.core.engine.volume_names(Order::VolumeNames).await?;
        let away = self.volumes.away(&open).await?;
        let is_open = |name: &VolumeName| open.binary_search(name).is_ok();
        let volumes = open.len() + away.iter().filter(|volume| !is_open(&volume.name)).count();
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

    /// What is wrong now and does not mend itself. What an operator has chosen to have so is not wrong.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn conditions(&self) -> Result<Conditions, Refusal> {
        let snapshot = self.snapshot().await?;
        let silent = snapshot.disks.iter().filter(|disk| disk.health.is_none()).filter_map(|disk| disk.name.as_ref());
        let unsure =
            silent.flat_map(|name| [event::DISK_FAILING, event::DISK_WEARS].map(|code| (code, Subject::disk(name))));
        let there = snapshot.conditions().into_iter().filter(|condition| !condition.is_chosen).collect();
        Ok(Conditions { there, unsure: unsure.collect() })
    }
}

impl Snapshot {
    /// All that is wrong, the worst first.
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
            let stands = standing::of(event.code).expect("the log says which stand");
            let problem = standing::problem(event, &stands);
            let told = Condition::of(stands.topic, event.subject.clone(), problem);
            found.push(Condition { code: event.code, ..told });
        }
        for (volume, problem) in of_openness(&self.state) {
            let subject = Subject::new(SubjectKind::Volume, &volume);
            let open = Condition::of(event::LUN_HIDDEN, subject, problem);
            found.push(Condition { is_chosen: true, ..open });
        }
        found.sort_by_key(|condition| Reverse(condition.problem.severity));
        found
    }

    fn of_pool(&self, pool: &PoolReport) -> Vec<Condition> {
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
        let spares = of_spares(pool).into_iter();
        let spares = spares.map(|problem| Condition::of(event::SPARE_TOOK_OVER, subject(), problem));
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
            // A spare is missed before it is needed; what no pool uses any more is nobody's loss.
            is_chosen: !failing && disk.spare.is_none(),
            ..Condition::of(topic, Subject::disk(name), problem).with(place(disk))
        });
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
        let placed = [wear, stalled, slow, errs].into_iter().flatten().map(|it| it.with(place(disk)));
        state.into_iter().chain(placed).chain(paths).collect()
    }
}

fn wear(name: &DiskName, complaints: &[String]) -> Option<Problem> {
    (!complaints.is_empty()).then(|| Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: "wearing out".to_owned(),
        meaning: complaints.join(", "),
        action: "have a spare ready".to_owned(),
    })
}

/// The members that are not in step, each with what finds it in its rack.
fn members(pool: &PoolReport, disks: &[DiskReport]) -> Vec<String> {
    let lost = pool.members().filter_map(|member| {
        let state = match member.state {
            MemberState::Failed => "has failed",
            MemberState::Missing => "is missing",
            MemberState::Behind => "does not answer",
            MemberState::Rebuilding => "is being filled",
            _ => return None,
        };
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

/// The disk, with its serial number and its place, else its path.
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
