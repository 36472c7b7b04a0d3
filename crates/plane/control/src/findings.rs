//! Findings of `blockyard doctor`: risks that the status and the settings of the array reveal.

use crate::status::Status;
use model::{
    DiskReport, Finding, Level, MeasureReport, MeasureState, MemoryReport, PoolReport, PortalReport, PortalRole,
    PortalState, Problem, Refusal, RefusedLogin, ScrubEvery, SessionKind, SessionReport, Severity, StatusReport,
    first_few,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

impl Status {
    /// Returns all findings, the worst first.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn findings(&self) -> Result<Vec<Finding>, Refusal> {
        let status = self.report().await?;
        let mut findings = vec![io(&status)];
        findings.extend(status.memory.as_ref().map(memory));
        findings.push(secrets(model::Secret::all_are_locked()));
        findings.extend(status.confinement.iter().map(measure));
        findings.extend(problems(&status));
        findings.extend(self.pools.list().await?.iter().flat_map(pool));
        let disks = self.disks.list().await?;
        findings.extend(health(&disks));
        findings.extend(single_paths(&disks));
        findings.extend(disks.iter().filter_map(former));
        findings.extend(paths(&self.sessions.list().await?, &self.access.portals()));
        findings.extend(self.isns.finding());
        findings.extend(denied_initiators(&self.refused_logins.list().await?));
        // A stable sort, so findings of one grade keep the order above.
        findings.sort_by_key(|finding| Reverse(finding.grade));
        Ok(findings)
    }
}

fn io(status: &StatusReport) -> Finding {
    if status.engine.io == "io_uring" {
        return Finding::good("engine", "uses io_uring");
    }
    let fix = "set the sysctl kernel.io_uring_disabled to 0, or allow io_uring in the container's seccomp profile";
    Finding::warning("engine", format!("uses {}, which needs more CPU time", status.engine.io), fix)
}

fn secrets(locked: bool) -> Finding {
    if locked {
        return Finding::good("secrets", "are in locked memory");
    }
    let fix = "set LimitMEMLOCK=infinity in the service, as the package does (ulimit -l), and restart";
    Finding::warning("secrets", "can be swapped out: the locked-memory limit is too low", fix)
}

fn measure(report: &MeasureReport) -> Finding {
    let subject = format!("sandbox: {}", report.measure.as_str());
    let detail = report.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
    let sentence = format!("is {}{detail}", report.state.as_str());
    match report.state {
        MeasureState::InForce => Finding::good(subject, sentence),
        MeasureState::NotSupported => Finding::warning(
            subject,
            sentence,
            "run a newer kernel, or allow it in the container; see docs/operate/security.md",
        ),
        MeasureState::SwitchedOff => Finding::warning(
            subject,
            sentence,
            "start without --no-sandbox, and without sandbox = false in the configuration",
        ),
    }
}

fn memory(memory: &MemoryReport) -> Finding {
    let MemoryReport { limit, limited_by, cache_max, .. } = memory;
    let (limit, cache) = (limit.iec(), cache_max.iec());
    let sentence = format!("is limited to {limit} ({limited_by}); read cache up to {cache}");
    // The other half is left to buffers and everything else.
    if cache_max.bytes() <= memory.limit.bytes() / 2 {
        return Finding::good("memory", sentence);
    }
    let fix = "set a smaller cache in the configuration, at most half of the limit";
    Finding::warning("memory", sentence, fix)
}

fn problems(status: &StatusReport) -> Vec<Finding> {
    let problem = |problem: &Problem| {
        let sentence = format!("{}: {}", problem.state, problem.meaning);
        match problem.severity {
            Severity::Critical => Finding::bad(&problem.subject, sentence, &problem.action),
            Severity::Warning | Severity::Good => Finding::warning(&problem.subject, sentence, &problem.action),
        }
    };
    if status.problems.is_empty() {
        return vec![Finding::good("array", status.summary.clone())];
    }
    status.problems.iter().map(problem).collect()
}

/// Finds risks of a pool that cause no harm yet: no redundancy, no spare, no scrub.
fn pool(pool: &PoolReport) -> Vec<Finding> {
    let (name, subject) = (&pool.name, format!("pool {}", pool.name));
    let mut findings = Vec::new();
    if pool.groups.iter().any(|group| group.level == Level::Raid0) {
        let fix = "store only data there that can be lost, or copy it to a pool with redundancy";
        findings.push(Finding::warning(&subject, "has no redundancy: one failed disk loses all data", fix));
    } else if pool.spares.is_empty() {
        // Not for RAID 0, where a spare has nothing to rebuild from.
        let fix = "add one with blockyard disk spare add DISK";
        findings.push(Finding::warning(&subject, "has no hot spare: a failed disk is not replaced automatically", fix));
    }
    if pool.policy.scrub.every == ScrubEvery::Off {
        let fix = format!("schedule a monthly scrub: blockyard pool set {name} scrub=monthly");
        findings.push(Finding::warning(
            &subject,
            "has no scheduled scrub: latent errors surface only when the data is read",
            fix,
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good(subject, "has a hot spare and scheduled scrubs"));
    }
    findings
}

fn health(disks: &[DiskReport]) -> Option<Finding> {
    // A file has neither a serial number nor SMART data.
    let is_real = |disk: &&DiskReport| disk.identity.serial.is_some() && disk.remote.is_none();
    let real: Vec<&DiskReport> = disks.iter().filter(is_real).collect();
    let silent = real.iter().filter(|disk| disk.health.is_none()).count();
    if real.is_empty() {
        return None;
    }
    if silent == 0 {
        return Some(Finding::good("disks", format!("report their health, {} in all", real.len())));
    }
    let sentence = format!("{silent} of {} do not report their health", real.len());
    Some(Finding::warning("disks", sentence, "install smartmontools and allow the daemon to run smartctl"))
}

/// Finds a disk that failed in its pool, was replaced, and is still attached.
fn former(disk: &DiskReport) -> Option<Finding> {
    let (name, former) = (disk.name.as_ref()?, disk.former.as_ref().filter(|former| former.failed)?);
    let fix = format!("pull it, and remove it with blockyard disk remove {name}");
    Some(Finding::warning(format!("disk {name}"), format!("is a {}", former.sentence()), fix))
}

/// Finds remote disks with a single path.
fn single_paths(disks: &[DiskReport]) -> Option<Finding> {
    let remote = disks.iter().filter_map(|disk| Some((disk.name.as_ref()?, disk.remote.as_ref()?)));
    let single = remote.filter(|(_, remote)| remote.paths.len() < 2);
    let names: Vec<String> = single.map(|(name, _)| name.to_string()).collect();
    let sentence = match &names[..] {
        [] => return None,
        [name] => format!("{name} has only one path"),
        names => format!("{} have only one path", first_few(names.iter(), 5)),
    };
    let fix = "add the disk with a second portal of its target: remove it from its pool, then blockyard disk add \
               iscsi://IP,IP/TARGET/LUN";
    Some(Finding::warning("remote disks", sentence, fix))
}

/// Finds hosts with a single path where several portals are open.
fn paths(sessions: &[SessionReport], portals: &[PortalReport]) -> Vec<Finding> {
    // Front portals only redirect logins; no session stays there.
    let ways = portals
        .iter()
        .filter(|portal| portal.state == PortalState::Open && portal.policy.role != PortalRole::Front)
        .count();
    let mut reached: BTreeMap<&str, BTreeSet<SocketAddr>> = BTreeMap::new();
    // A discovery session carries no I/O.
    for session in sessions.iter().filter(|session| session.kind == SessionKind::Normal) {
        let host = session.host.as_ref().map_or(session.initiator.as_str(), |host| host.as_str());
        reached.entry(host).or_default().insert(session.portal);
    }
    let lonely = reached.into_iter().filter(|(_, portals)| portals.len() < 2);
    let finding = |(host, portals): (&str, BTreeSet<SocketAddr>)| {
        let portal = portals.into_iter().next().map_or_else(String::new, |portal| portal.to_string());
        let sentence = format!("uses one path, through {portal}, of {ways} portals");
        Finding::warning(
            format!("host {host}"),
            sentence,
            "add a session through another portal, with multipath: blockyard connect",
        )
    };
    // With a single portal no host can have two paths.
    if ways < 2 { Vec::new() } else { lonely.map(finding).collect() }
}

fn denied_initiators(refused: &[RefusedLogin]) -> Option<Finding> {
    let names: BTreeSet<&str> = refused.iter().filter_map(|login| login.initiator.as_deref()).collect();
    if names.is_empty() {
        return None;
    }
    let (subject, verb) = if names.len() == 1 { ("initiator", "was") } else { ("initiators", "were") };
    let sentence = format!("{} {verb} denied", first_few(names.iter(), 3));
    Some(Finding::warning(subject, sentence, "see blockyard host denied, and add the initiators that belong to you"))
}
