//! What is wrong now, thing by thing, for whoever tells people of it.

use super::{of_disk, of_hold, of_log, of_pool, of_portal, of_spares, of_volume};
use crate::Control;
use model::{
    DiskName, DiskReport, EventCode, EventSeverity, MemberState, PoolReport, PoolState, PortalState, Problem, Refusal,
    Severity, Subject, SubjectKind, code, event,
};

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What sort of thing it is: with its subject it is the same condition however it is told.
    pub topic: EventCode,
    /// The event that it would be.
    pub code: EventCode,
    /// What it is about.
    pub subject: Subject,
    /// How bad it is.
    pub severity: EventSeverity,
    /// What is so and what it means.
    pub sentence: String,
    /// What to do about it.
    pub action: String,
    /// What else helps to find it: disks with serial number and place.
    pub details: Vec<String>,
}

/// All that is wrong now.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// What is wrong.
    pub there: Vec<Condition>,
    /// What may be wrong: nobody knows just now.
    pub unsure: Vec<(EventCode, Subject)>,
}

impl Control {
    /// What is wrong now and does not mend itself. What an operator has chosen to have so is not wrong.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn conditions(&self) -> Result<Conditions, Refusal> {
        let (disks, pools) = (self.disks().await?, self.pools().await?);
        let mut found = Conditions::default();
        if let Some(refusal) = self.hold() {
            let replaced = refusal.code == code::STATE_REPLACED;
            let topic = if replaced { event::STATE_REPLACED } else { event::STATE_OLDER };
            let node = Subject::new(SubjectKind::Node, &self.settings.node);
            found.there.push(condition(topic, node, of_hold(&refusal), Vec::new()));
        }
        for pool in &pools {
            found.there.extend(pool_conditions(pool, &disks));
        }
        for disk in &disks {
            let Some(name) = &disk.name else { continue };
            match &disk.health {
                Some(health) if health.is_failing() => {
                    let problem = of_disk(disk, &pools);
                    found.there.extend(
                        problem
                            .map(|problem| condition(event::DISK_FAILING, Subject::disk(name), problem, place(disk))),
                    );
                }
                Some(health) => found.there.extend(wear(name, disk, &health.complaints())),
                None => {
                    let unsure = [event::DISK_FAILING, event::DISK_WEARS];
                    found.unsure.extend(unsure.map(|code| (code, Subject::disk(name))));
                }
            }
            // A spare is missed before it is needed; what no pool uses any more is nobody's loss.
            if disk.spare.is_some() && disk.health.as_ref().is_none_or(|health| !health.is_failing()) {
                let problem = of_disk(disk, &pools);
                found.there.extend(
                    problem.map(|problem| condition(event::DISK_MISSING, Subject::disk(name), problem, place(disk))),
                );
            }
        }
        // Volumes of pools fare as their pools do.
        for volume in self.lost_volumes().await? {
            let subject = Subject::new(SubjectKind::Volume, &volume.name);
            found.there.extend(of_volume(&volume).map(|it| condition(event::VOLUME_HELD, subject, it, Vec::new())));
        }
        for portal in self.portal_reports().await? {
            let code = match portal.state {
                PortalState::NoLink { .. } => event::PORTAL_LINK_DOWN,
                PortalState::Open | PortalState::Failed { .. } => event::PORTAL_UNUSABLE,
            };
            let subject = Subject::new(SubjectKind::Portal, &portal.address);
            let told = of_portal(&portal).map(|problem| condition(code, subject, problem, Vec::new()));
            found.there.extend(told.map(|told| Condition { topic: event::PORTAL_UNUSABLE, ..told }));
        }
        let noticed = self.noticed.all().into_iter();
        found.there.extend(noticed.map(|((code, subject), problem)| condition(code, subject, problem, Vec::new())));
        Ok(found)
    }
}

fn pool_conditions(pool: &PoolReport, disks: &[DiskReport]) -> Vec<Condition> {
    let code = match pool.state {
        _ if pool.fenced.is_some() => event::POOL_FENCED,
        PoolState::Failed => event::POOL_FAILED,
        PoolState::Missing => event::POOL_UNOPENED,
        _ if pool.read_only.is_some() => event::POOL_READ_ONLY,
        PoolState::Healthy | PoolState::Rebuilding | PoolState::Degraded => event::POOL_DEGRADED,
    };
    let subject = || Subject::pool(&pool.name);
    let state = of_pool(pool).map(|problem| condition(code, subject(), problem, members(pool, disks)));
    let state = state.map(|state| Condition { topic: event::POOL_DEGRADED, ..state });
    let log = of_log(pool).map(|problem| condition(event::LOG_FAILED, subject(), problem, Vec::new()));
    let spares = of_spares(pool).into_iter().next();
    let spares = spares.map(|problem| condition(event::SPARE_TOOK_OVER, subject(), problem, Vec::new()));
    state.into_iter().chain(log).chain(spares).collect()
}

fn wear(name: &DiskName, disk: &DiskReport, complaints: &[String]) -> Option<Condition> {
    let problem = Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: "wearing out".to_owned(),
        meaning: complaints.join(", "),
        action: "have a spare ready".to_owned(),
    };
    (!complaints.is_empty()).then(|| condition(event::DISK_WEARS, Subject::disk(name), problem, place(disk)))
}

fn condition(topic: EventCode, subject: Subject, problem: Problem, details: Vec<String>) -> Condition {
    let severity = match problem.severity {
        Severity::Critical => EventSeverity::Critical,
        Severity::Warning | Severity::Good => EventSeverity::Warning,
    };
    let sentence = format!("{} is {}: {}", problem.subject, problem.state, problem.meaning);
    Condition { topic, code: topic, subject, severity, sentence, action: problem.action, details }
}

/// The members that are not in step, each with what finds it in its rack.
fn members(pool: &PoolReport, disks: &[DiskReport]) -> Vec<String> {
    let lost = pool.members().filter_map(|member| {
        let state = match member.state {
            MemberState::Failed => "has failed",
            MemberState::Missing => "is missing",
            MemberState::Rebuilding => "is being filled",
            _ => return None,
        };
        let report = disks.iter().find(|disk| disk.name.is_some() && disk.name == member.disk);
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
