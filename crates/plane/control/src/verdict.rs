//! How everything is, in one sentence: what is so, what it means, what to do.

mod conditions;

pub use conditions::{Condition, Conditions};

use crate::Control;
use crate::state::{PresentationRecord, State};
use model::{
    DiskName, DiskReport, DiskState, EngineReport, IsnsReport, IsnsState, LogState, MemberReport, MemberState, Order,
    PoolReport, PoolState, PortalReport, PortalState, Problem, Refusal, Severity, Size, StatusReport, VolumeReport,
    VolumeState, code,
};
use std::collections::BTreeSet;

impl Control {
    /// How the whole array is.
    pub async fn status(&self) -> Result<StatusReport, Refusal> {
        let engine = self.engine.status(Order::Status).await?;
        let disks = self.disks().await?;
        let pools = self.pools().await?;
        let (open, lost) = (self.engine.volume_names(Order::VolumeNames).await?, self.lost_volumes().await?);
        let portals = self.portal_reports().await?;
        let mut problems: Vec<Problem> = pools
            .iter()
            .filter_map(of_pool)
            .chain(pools.iter().filter_map(of_log))
            .chain(pools.iter().flat_map(of_spares))
            .chain(disks.iter().filter_map(|disk| of_disk(disk, &pools)))
            .chain(lost.iter().filter_map(of_volume))
            .chain(portals.iter().filter_map(of_portal))
            .chain(of_openness(&self.state()))
            .chain(self.noticed.all().into_values())
            .chain(self.hold().as_ref().map(of_hold))
            .collect();
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        let drained = portals.iter().filter(|portal| portal.policy.drained).map(of_drained);
        let notices: Vec<Problem> = of_isns(&self.isns()).into_iter().chain(drained).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let total = |amount: fn(&PoolReport) -> Size| Size::new(pools.iter().map(|pool| amount(pool).bytes()).sum());
        Ok(StatusReport {
            node: self.settings.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            severity: problems.first().map_or(Severity::Good, |problem| problem.severity),
            verdict: verdict(&problems, &notices),
            pools: count(pools.len()),
            size: total(|pool| pool.size),
            used: total(|pool| pool.used),
            disks: count(disks.len()),
            volumes: count(open.len() + lost.len()),
            hosts: count(self.state().hosts.len()),
            engine: EngineReport { ..engine },
            memory: self.memory(),
            problems,
            notices,
        })
    }
}

/// One sentence: all is good, or the worst thing and what to do about it.
fn verdict(problems: &[Problem], notices: &[Problem]) -> String {
    match problems {
        [] if notices.is_empty() => "All good".to_owned(),
        [] => format!("All good, but {}", verdict(notices, &[])),
        [only] => format!("{} is {}: {}", only.subject, only.state, only.action),
        [worst, rest @ ..] => {
            format!("{} is {}: {} ({} more below)", worst.subject, worst.state, worst.action, rest.len())
        }
    }
}

/// The state may not be changed.
fn of_hold(refusal: &Refusal) -> Problem {
    let state = if refusal.code == code::STATE_REPLACED { "not in its folder" } else { "an older version" };
    Problem {
        severity: Severity::Critical,
        subject: "state".to_owned(),
        state: state.to_owned(),
        meaning: refusal.message.clone(),
        action: refusal.hint.clone(),
    }
}

/// A registration that is set and does not succeed. Hosts that know where we are do not need it.
fn of_isns(isns: &IsnsReport) -> Option<Problem> {
    let IsnsState::Failing { why } = &isns.state else { return None };
    let server = isns.server.map_or(String::new(), |server| format!(" {server}"));
    Some(Problem {
        severity: Severity::Good,
        subject: format!("iSNS server{server}"),
        state: "not told of us".to_owned(),
        meaning: format!("{why}; hosts that ask it for targets may not find us"),
        action: "see to that server, or end it with blockyard isns off".to_owned(),
    })
}

/// A portal that an operator has emptied, perhaps for longer than meant.
fn of_drained(portal: &PortalReport) -> Problem {
    let address = portal.address;
    Problem {
        severity: Severity::Good,
        subject: format!("portal {address}"),
        state: "drained".to_owned(),
        meaning: "no session stays there, and others bear what it would".to_owned(),
        action: format!("when it may take sessions again: blockyard portal resume {address}"),
    }
}

fn of_pool(pool: &PoolReport) -> Option<Problem> {
    let name = &pool.name;
    if let Some(why) = &pool.fenced {
        return Some(Problem {
            severity: Severity::Critical,
            subject: format!("pool {name}"),
            state: "used by another owner".to_owned(),
            meaning: format!("{why}; this node has stopped using it, and its volumes do not serve here"),
            action: format!("find the node that uses its disks; then run blockyard pool export {name} here"),
        });
    }
    let (severity, state, meaning, action) = match pool.state {
        _ if pool.state < PoolState::Failed && pool.read_only.is_some() => (
            Severity::Warning,
            "read-only".to_owned(),
            format!("{}; hosts cannot write to its volumes", pool.read_only.as_deref().unwrap_or_default()),
            pool.way_to_write(),
        ),
        PoolState::Healthy => return None,
        PoolState::Rebuilding => {
            let percent = pool.rebuild().map_or(0, |progress| progress.percent());
            let state = format!("rebuilding, {percent} % done");
            (Severity::Warning, state, spare_failures(pool), "nothing to do but wait".to_owned())
        }
        PoolState::Degraded => (Severity::Warning, "degraded".to_owned(), spare_failures(pool), replace(pool)),
        PoolState::Failed => (
            Severity::Critical,
            "failed".to_owned(),
            "more disks are lost than it bears, and its volumes do not serve".to_owned(),
            format!(
                "attach its disks, make room where they have none, and run {}, or restore from a copy",
                pool.import_command()
            ),
        ),
        PoolState::Missing => (
            Severity::Critical,
            "missing".to_owned(),
            "it could not be opened, and its volumes do not serve".to_owned(),
            format!("attach its disks and run {}, which says what is wrong", pool.import_command()),
        ),
    };
    Some(Problem { severity, subject: format!("pool {name}"), state, meaning, action })
}

/// Volumes that whoever reaches a portal sees, each once.
fn of_openness(state: &State) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    let shown = state.presentations.iter().filter(|shown| state.is_open(&shown.host) && seen.insert(&shown.volume));
    let problem = |shown: &PresentationRecord| Problem {
        severity: Severity::Warning,
        subject: format!("volume {}", shown.volume),
        state: "open to everyone".to_owned(),
        meaning: format!(
            "whoever reaches a portal can {} it, and proves nothing",
            if shown.read_only { "read" } else { "read and write" }
        ),
        action: format!("present it to hosts by name, and run blockyard unpresent {} {}", shown.volume, shown.host),
    };
    shown.map(problem).collect()
}

/// A log device that does not work.
fn of_log(pool: &PoolReport) -> Option<Problem> {
    let (log, name) = (pool.log.as_ref()?, &pool.name);
    let (severity, state, meaning, action) = match log.state {
        LogState::Ready => return None,
        LogState::Failed => (
            Severity::Warning,
            "failed",
            "volumes that were written back are written through".to_owned(),
            format!("write them through, take the log away with blockyard pool remove-log {name}, and add another"),
        ),
        LogState::Lost if log.volumes.is_empty() => (
            Severity::Warning,
            "lost",
            "nothing is lost with it, but volumes cannot be written back".to_owned(),
            format!("attach its disks and open the pool again, or take it away with blockyard pool remove-log {name}"),
        ),
        LogState::Lost => (
            Severity::Critical,
            "lost",
            format!("{} volumes that have something in it do not serve", log.volumes.len()),
            format!(
                "attach its disks and open the pool again, or give up what they acknowledged last with blockyard pool remove-log {name} --lost"
            ),
        ),
    };
    Some(Problem { severity, subject: format!("log of pool {name}"), state: state.to_owned(), meaning, action })
}

/// Spares that are used up, and what to do to have them again.
fn of_spares(pool: &PoolReport) -> Vec<Problem> {
    let used = pool.members().filter_map(|member| Some((member.disk.as_ref()?, member.stands_for.as_ref()?)));
    let left = match pool.spares.len() {
        0 => "no spare is left for the next one".to_owned(),
        1 => "one more spare is ready".to_owned(),
        n => format!("{n} more spares are ready"),
    };
    let problem = |(spare, of): (&DiskName, &String)| Problem {
        severity: Severity::Warning,
        subject: format!("pool {}", pool.name),
        state: format!("served by spare {spare}"),
        meaning: format!("it took the place of disk {of}, which was lost; {left}"),
        action: format!(
            "put a new disk in the place of {of}, and make it the next spare with blockyard disk spare add NEW"
        ),
    };
    used.map(problem).collect()
}

/// How many more disks may fail, in words.
pub(crate) fn spare_failures(pool: &PoolReport) -> String {
    let spare = pool.kept_groups().map(|group| {
        let is_there = |member: &&MemberReport| matches!(member.state, MemberState::InSync | MemberState::Joining);
        let lost = group.members.iter().filter(|member| !is_there(member)).count();
        group.level.tolerated(group.members.len()).saturating_sub(lost)
    });
    match spare.min().unwrap_or(0) {
        0 => "it serves, but the next disk that fails may take data with it".to_owned(),
        1 => "it serves, and bears one more failed disk".to_owned(),
        n => format!("it serves, and bears {n} more failed disks"),
    }
}

/// The command that repairs the first lost member.
fn replace(pool: &PoolReport) -> String {
    let lost = pool
        .kept_groups()
        .flat_map(|group| &group.members)
        .find(|member| matches!(member.state, MemberState::Failed | MemberState::Missing));
    let name = lost.and_then(|member| member.disk.as_ref()).map_or("DISK".to_owned(), ToString::to_string);
    format!("replace the lost disk with blockyard disk replace {name} NEW")
}

/// A disk that its pool does not speak for.
fn of_disk(disk: &DiskReport, pools: &[PoolReport]) -> Option<Problem> {
    let name = disk.name.as_ref()?;
    let spoken_for = pools.iter().flat_map(PoolReport::members).any(|member| member.disk.as_ref() == Some(name));
    let pool_missing = pools.iter().any(|pool| pool.state == PoolState::Missing);
    if let Some(health) = disk.health.as_ref().filter(|health| health.is_failing()) {
        let meaning = health.complaints().join(", ");
        let action = format!("replace it with blockyard disk replace {name} NEW --force");
        let (severity, subject) = (Severity::Warning, format!("disk {name}"));
        return Some(Problem { severity, subject, state: "failing".to_owned(), meaning, action });
    }
    if spoken_for || pool_missing {
        return None;
    }
    let (state, action) = match disk.state {
        DiskState::Missing => ("missing", format!("attach it, or forget it with blockyard disk remove {name}")),
        DiskState::Failed => ("failed", format!("take it out, and forget it with blockyard disk remove {name}")),
        DiskState::Free | DiskState::InUse | DiskState::Rebuilding => return None,
    };
    Some(Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: state.to_owned(),
        meaning: "no pool uses it".to_owned(),
        action,
    })
}

fn of_volume(volume: &VolumeReport) -> Option<Problem> {
    // A volume in a pool fares as its pool does, which has its own line.
    if volume.state == VolumeState::Online || volume.name.pool().is_some() {
        return None;
    }
    Some(Problem {
        severity: Severity::Critical,
        subject: format!("volume {}", volume.name),
        state: volume.state.as_str().to_owned(),
        meaning: "what holds its data does not answer, and hosts get errors".to_owned(),
        action: "bring its file or device back and start the daemon again".to_owned(),
    })
}

fn of_portal(portal: &PortalReport) -> Option<Problem> {
    let (severity, state, why, action) = match &portal.state {
        PortalState::Open => return None,
        PortalState::NoLink { why } => (Severity::Warning, "without a link", why, "mend its link"),
        PortalState::Failed { why } => {
            let action = "free the address, or correct the configuration; the portal is tried again every second";
            (Severity::Critical, "not listening", why, action)
        }
    };
    Some(Problem {
        severity,
        subject: format!("portal {}", portal.address),
        state: state.to_owned(),
        meaning: format!("{why}, so no host reaches us there"),
        action: action.to_owned(),
    })
}
