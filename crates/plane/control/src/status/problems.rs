//! Problems by kind of object, each with state, meaning and action.

use crate::state::{PresentationRecord, State};
use model::{
    DiskName, DiskReport, DiskState, FormerMember, IsnsReport, IsnsState, LogState, MemberFitness, MemberReport,
    MemberState, NextSpare, PoolReport, PoolState, PoolWaiting, PortalReport, PortalState, Problem, Refusal, Severity,
    SpaceState, Timestamp, VolumeName, VolumeReport, VolumeState, code, first_few,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time without an answer after which a disk is reported.
const STALLED: Duration = Duration::from_secs(1);
/// Time without an answer after which a remote disk is reported.
const STALLED_REMOTE: Duration = Duration::from_secs(15);

/// Hold: the state may not be changed.
pub(super) fn of_hold(refusal: &Refusal) -> Problem {
    let state = if refusal.code == code::STATE_REPLACED { "not in its folder" } else { "an older version" };
    Problem {
        severity: Severity::Critical,
        subject: "state".to_owned(),
        state: state.to_owned(),
        meaning: refusal.message.clone(),
        action: refusal.hint.clone(),
    }
}

/// Failing iSNS registration. Hosts that have the portal addresses do not need it.
pub(super) fn of_isns(isns: &IsnsReport) -> Option<Problem> {
    let IsnsState::Failing { reason: why } = &isns.state else { return None };
    let server = isns.server.map_or(String::new(), |server| format!(" {server}"));
    Some(Problem {
        severity: Severity::Warning,
        subject: format!("iSNS server{server}"),
        state: "without a current registration".to_owned(),
        meaning: format!("{why}; hosts may not discover this array through it"),
        action: "repair that server, or turn registration off with blockyard isns off".to_owned(),
    })
}

/// Drained portal, perhaps left so by mistake.
pub(super) fn of_drained(portal: &PortalReport) -> Problem {
    let address = portal.address;
    Problem {
        severity: Severity::Good,
        subject: format!("portal {address}"),
        state: "drained".to_owned(),
        meaning: "it accepts no sessions, and other portals carry its load".to_owned(),
        action: format!("to accept sessions again: blockyard portal resume {address}"),
    }
}

pub(super) fn of_pool(pool: &PoolReport) -> Option<Problem> {
    // First, because a fenced pool must not be repaired here, whatever its disks look like.
    let name = &pool.name;
    if let Some(why) = &pool.fenced {
        return Some(Problem {
            severity: Severity::Critical,
            subject: format!("pool {name}"),
            state: "used by another owner".to_owned(),
            meaning: format!("{why}; this node has stopped using it, and its volumes are offline here"),
            action: format!(
                "run blockyard pool export {name} here; to have it back, export it on that node first and import it here"
            ),
        });
    }
    let (severity, state, meaning, action) = match pool.state {
        // Read-only outranks degraded: it is what hosts notice.
        _ if pool.state < PoolState::Failed && pool.read_only.is_some() => (
            Severity::Warning,
            "read-only".to_owned(),
            format!("{}; hosts cannot write to its volumes", pool.read_only.as_deref().unwrap_or_default()),
            pool.writable_hint(),
        ),
        PoolState::Healthy => return None,
        PoolState::Rebuilding => {
            let percent = pool.rebuild().map_or(0, |progress| progress.percent());
            let state = format!("rebuilding, {percent} % done");
            (Severity::Warning, state, spare_failures(pool), "no action needed".to_owned())
        }
        PoolState::Degraded => {
            // Where spares will replace all lost members by themselves, that is the whole advice.
            let action = pending_replacements(pool).unwrap_or_else(|| replace(pool));
            (Severity::Warning, "degraded".to_owned(), spare_failures(pool), action)
        }
        PoolState::Failed => (
            Severity::Critical,
            "failed".to_owned(),
            "more disks are lost than its redundancy covers, and its volumes are offline".to_owned(),
            format!(
                "attach its disks, free space where they have none, and run {}; or restore from a backup",
                pool.import_command()
            ),
        ),
        PoolState::Missing => of_missing(pool),
    };
    Some(Problem { severity, subject: format!("pool {name}"), state, meaning, action })
}

/// Pool that is not open: severity, state, meaning, action.
fn of_missing(pool: &PoolReport) -> (Severity, String, String, String) {
    let import = pool.import_command();
    let (meaning, action) = match &pool.waiting {
        None => (
            "it could not be opened, and its volumes are offline".to_owned(),
            format!("attach its disks and run {import}, which shows the problem"),
        ),
        // An operator is needed: the hint of the refusal, where it has one, is the most specific advice.
        Some(PoolWaiting { reason: why, needs_operator: true, hint, .. }) => {
            let action = match hint {
                Some(hint) => hint.clone(),
                None => format!("correct this, then run {import}, which shows the problem"),
            };
            (format!("{why}; its volumes are offline"), action)
        }
        // The pool opens by itself; the operator can only help by attaching its disks.
        Some(waiting) => {
            let disks = match &waiting.disks[..] {
                [] => "its disks".to_owned(),
                [disk] => format!("disk {disk}"),
                disks => format!("disks {}", first_few(disks.iter(), 5)),
            };
            let without = waiting.degraded_in_s.map_or_else(
                || format!("{import} shows what is missing"),
                |left| format!("it opens without them in {left} s if redundancy allows"),
            );
            let meaning = format!("{}; its LUNs are not ready", waiting.reason);
            (meaning, format!("attach {disks}; the pool then opens by itself; {without}"))
        }
    };
    (Severity::Critical, "missing".to_owned(), meaning, action)
}

/// Volumes that any initiator can use without authentication, each once.
pub(super) fn of_openness(state: &State) -> Vec<(VolumeName, Problem)> {
    let mut seen = BTreeSet::new();
    // Each volume once, however many presentations make it public.
    let shown = state.presentations.iter().filter(|shown| state.is_open(&shown.host) && seen.insert(&shown.volume));
    let problem = |shown: &PresentationRecord| Problem {
        severity: Severity::Warning,
        subject: format!("volume {}", shown.volume),
        state: "open to every initiator".to_owned(),
        meaning: format!(
            "any initiator that can reach a portal can {} it, without authentication",
            if shown.read_only { "read" } else { "read and write" }
        ),
        action: format!("present it to hosts by name, then run blockyard unpresent {} {}", shown.volume, shown.host),
    };
    shown.map(|shown| (shown.volume.clone(), problem(shown))).collect()
}

/// Failed or lost log device.
pub(super) fn of_log(pool: &PoolReport) -> Option<Problem> {
    let (log, name) = (pool.log.as_ref()?, &pool.name);
    let (severity, state, action) = match log.state {
        LogState::Ready => return None,
        LogState::Failed => (
            Severity::Critical,
            "failed",
            format!(
                "set them to write-through, remove the log device with blockyard pool remove-log {name}, and \
                 add another"
            ),
        ),
        // No volume has acknowledged writes in it, so its loss costs speed only.
        LogState::Lost if log.volumes.is_empty() => (
            Severity::Warning,
            "lost",
            format!("attach its disks and open the pool again, or remove it with blockyard pool remove-log {name}"),
        ),
        LogState::Lost => (
            Severity::Critical,
            "lost",
            format!(
                "attach its disks and open the pool again, or discard the last acknowledged writes with blockyard \
                 pool remove-log {name} --lost"
            ),
        ),
    };
    let meaning = log.reason.clone().unwrap_or_else(|| "it is not ready".to_owned());
    Some(Problem { severity, subject: format!("log of pool {name}"), state: state.to_owned(), meaning, action })
}

/// Blocks that could not be reconstructed.
pub(super) fn of_losses(pool: &PoolReport) -> Option<Problem> {
    let (lost, name) = (&pool.lost, &pool.name);
    if lost.is_empty() {
        return None;
    }
    let whose = if lost.ranges.is_empty() { String::new() } else { format!(" ({})", lost.named(3)) };
    Some(Problem {
        severity: Severity::Critical,
        subject: format!("pool {name}"),
        state: "missing data".to_owned(),
        meaning: format!("{} are lost{whose}; reads of them return a medium error", lost.amount()),
        action: format!(
            "restore them from a backup: rewrite the blocks listed by blockyard pool show {name}, or delete their \
             volume"
        ),
    })
}

/// Spares in use, each with the advice to restock.
pub(super) fn of_spares(pool: &PoolReport) -> Vec<(DiskName, Problem)> {
    // Members that were spares, with the names of the disks that they replaced.
    let used = pool.members().filter_map(|member| Some((member.disk.as_ref()?, member.replaces.as_ref()?)));
    let left = match pool.spares.len() {
        0 => "no hot spare is left".to_owned(),
        1 => "one more hot spare is ready".to_owned(),
        n => format!("{n} more hot spares are ready"),
    };
    let problem = |(spare, of): (&DiskName, &String)| Problem {
        severity: Severity::Warning,
        subject: format!("pool {}", pool.name),
        state: format!("using hot spare {spare}"),
        meaning: format!("it replaces the lost disk {of}; {left}"),
        action: format!("insert a new disk for {of}, and make it a hot spare with blockyard disk spare add NEW"),
    };
    used.map(|(spare, of)| (spare.clone(), problem((spare, of)))).collect()
}

/// Describes how many more disk failures the pool survives.
pub(crate) fn spare_failures(pool: &PoolReport) -> String {
    // The weakest group decides, because data is striped over all groups of a pool.
    let spare = pool.kept_groups().map(|group| {
        let is_there = |member: &&MemberReport| matches!(member.state, MemberState::InSync | MemberState::Joining);
        let lost = group.members.iter().filter(|member| !is_there(member)).count();
        // More members may be lost than the level tolerates.
        group.level.tolerated(group.members.len()).saturating_sub(lost)
    });
    match spare.min().unwrap_or(0) {
        0 => "online without redundancy; the next failed disk may lose data".to_owned(),
        1 => "online; survives one more disk failure".to_owned(),
        n => format!("online; survives {n} more disk failures"),
    }
}

/// Describes the pending spare replacements, if every lost member has one.
fn pending_replacements(pool: &PoolReport) -> Option<String> {
    let step = |member: &MemberReport| {
        let NextSpare { disk: spare, at, .. } = member.next_spare.as_ref()?;
        let disk = member.disk.as_ref().map_or_else(|| member.id.to_string(), ToString::to_string);
        Some(format!("hot spare {spare} replaces disk {disk} at {at} unless the disk returns"))
    };
    let lost = pool.kept_groups().flat_map(|group| &group.members).filter(|member| member.state.is_lost());
    // Without a spare for every lost member the operator has to act.
    let steps: Vec<String> = lost.map(step).collect::<Option<_>>()?;
    (!steps.is_empty()).then(|| steps.join("; "))
}

/// Returns the command that repairs the first lost member.
fn replace(pool: &PoolReport) -> String {
    let lost = pool.kept_groups().flat_map(|group| &group.members).find(|member| member.state.is_lost());
    let name = lost.and_then(|member| member.disk.as_ref()).map_or("DISK".to_owned(), ToString::to_string);
    format!("replace the lost disk with blockyard disk replace {name} NEW")
}

/// Failing, failed or missing disk that no pool reports.
pub(super) fn of_disk(disk: &DiskReport, pools: &[PoolReport]) -> Option<Problem> {
    let name = disk.name.as_ref()?;
    let spoken_for = pools.iter().flat_map(PoolReport::members).any(|member| member.disk.as_ref() == Some(name));
    // While any pool is not open, its members are unknown: a missing disk may be one of them.
    let pool_missing = pools.iter().any(|pool| pool.state == PoolState::Missing);
    // A disk that reports its failure is to be replaced, whatever else is wrong with it.
    if let Some(health) = disk.health.as_ref().filter(|health| health.is_failing()) {
        let meaning = health.complaints().join(", ");
        let action = match spoken_for || pool_missing {
            true => format!("replace it with blockyard disk replace {name} NEW --force"),
            false => format!("do not use it; remove it with blockyard disk remove {name}"),
        };
        let (severity, subject) = (Severity::Critical, format!("disk {name}"));
        return Some(Problem { severity, subject, state: "failing".to_owned(), meaning, action });
    }
    // Members are covered by the problem of their pool.
    if spoken_for || pool_missing {
        return None;
    }
    let (state, action) = match disk.state {
        DiskState::Missing => ("missing", format!("attach it, or remove it with blockyard disk remove {name}")),
        DiskState::Failed => ("failed", format!("pull it, and remove it with blockyard disk remove {name}")),
        DiskState::Free | DiskState::InUse | DiskState::Rebuilding | DiskState::Former => return None,
    };
    Some(Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: state.to_owned(),
        meaning: disk.former.as_ref().map_or_else(|| "no pool uses it".to_owned(), FormerMember::sentence),
        action,
    })
}

/// Volume that is offline. Volumes of a pool that is not open are covered by the pool's problem.
pub(super) fn of_volume(volume: &VolumeReport) -> Option<Problem> {
    if matches!(volume.state, VolumeState::Online | VolumeState::Copying) {
        return None;
    }
    let (meaning, action) = match volume.name.pool() {
        Some(pool) => (
            volume.reason.clone().unwrap_or_else(|| "it could not be opened".to_owned()),
            format!("run blockyard pool check {pool} to see the options"),
        ),
        None => {
            ("its back end does not respond".to_owned(), "restore its file or device and restart the daemon".to_owned())
        }
    };
    Some(Problem {
        severity: Severity::Critical,
        subject: format!("volume {}", volume.name),
        state: "offline".to_owned(),
        meaning: format!("{meaning}; hosts get errors"),
        action,
    })
}

/// Pool that runs out of space for thin volumes.
pub(super) fn of_space(pool: &PoolReport) -> Option<Problem> {
    let (severity, state, meaning) = match pool.space {
        SpaceState::Enough => return None,
        SpaceState::Low => (Severity::Warning, "filling", "plan more disks"),
        SpaceState::NearlyFull => (Severity::Critical, "nearly full", "writes that need space will be refused soon"),
        SpaceState::Full => (Severity::Critical, "full", "writes that need space are refused"),
    };
    // In 128 bits, because the bytes of a large pool times 100 exceed 64.
    let percent = u128::from(pool.used.bytes()) * 100 / u128::from(pool.size.bytes().max(1));
    Some(Problem {
        severity,
        subject: format!("pool {}", pool.name),
        state: state.to_owned(),
        meaning: format!("{percent} % of {} used; {meaning}", pool.size.iec()),
        action: format!("delete snapshots or volumes, or add disks with blockyard pool add-group {}", pool.name),
    })
}

/// Pool whose scrub is overdue.
pub(super) fn of_scrub(state: &State, pool: &PoolReport, now: Timestamp) -> Option<Problem> {
    let since = state.pools.get(&pool.name)?.overdue_since(now)?;
    Some(Problem {
        severity: Severity::Warning,
        subject: format!("pool {}", pool.name),
        state: "overdue for a scrub".to_owned(),
        meaning: format!("no scrub has finished since {since}; latent errors surface only when the data is read"),
        action: format!(
            "run blockyard pool scrub start {0}, or widen its window with blockyard pool set {0}",
            pool.name
        ),
    })
}

/// Disk that does not answer while commands may wait for it.
pub(crate) fn of_stalled(disk: &DiskReport, pools: &[PoolReport]) -> Option<Problem> {
    let (name, waited) = (disk.name.as_ref()?, Duration::from_nanos(disk.counters.oldest_ns));
    // A disk that its pool has failed delays no command any more.
    let of_pool = |pool: &&PoolReport| {
        let used = |member: &MemberReport| member.disk.as_ref() == Some(name) && member.state != MemberState::Failed;
        pool.members().any(used)
    };
    // A remote disk needs 10 s to detect a lost path before another one takes over.
    let limit = if disk.remote.is_some() { STALLED_REMOTE } else { STALLED };
    let pool = pools.iter().find(of_pool).filter(|_| waited >= limit)?;
    Some(Problem {
        severity: Severity::Critical,
        subject: format!("disk {name}"),
        state: "not responding".to_owned(),
        meaning: format!(
            "an operation has waited for {} s; commands of hosts to pool {} may wait as well",
            waited.as_secs(),
            pool.name
        ),
        action: format!(
            "check its cable and its enclosure, or remove it from the pool with blockyard disk fail {name}"
        ),
    })
}

/// Disk that is many times slower than the other members of its group.
pub(super) fn of_slow(disk: &DiskReport, pools: &[PoolReport]) -> Option<Problem> {
    let name = disk.name.as_ref()?;
    let member = pools.iter().flat_map(PoolReport::members).find(|member| member.disk.as_ref() == Some(name))?;
    let latency = member.latency.filter(|latency| latency.slow)?;
    // The slower direction is the one reported.
    let median = latency.write_p50_us.max(latency.read_p50_us);
    let median = if median > 0 { format!(" (median {} ms)", median / 1000) } else { String::new() };
    Some(Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: "slow".to_owned(),
        meaning: format!("its latency is many times that of the other members{median}; reads use the other members"),
        action: format!("check for other load on it, or replace it with blockyard disk replace {name} NEW --force"),
    })
}

/// Disk with more read errors than the policy of its pool allows, or being copied to a spare for that reason.
pub(super) fn of_errors(disk: &DiskReport, pools: &[PoolReport]) -> Option<Problem> {
    let name = disk.name.as_ref()?;
    let has = |pool: &&PoolReport| pool.members().any(|member| member.disk.as_ref() == Some(name));
    let pool = pools.iter().find(has)?;
    let member = pool.members().find(|member| member.disk.as_ref() == Some(name))?;
    // A lost member is part of the problem of its pool.
    if member.state.is_lost() {
        return None;
    }
    let errors =
        format!("it has failed {} reads within 24 hours; they were served from the other disks", member.errors_24h);
    let (severity, state, meaning) = match (&member.copy, member.health) {
        (Some(copy), _) => {
            let state = format!("being copied to disk {}, {} % done", copy.disk, copy.progress.percent());
            (Severity::Warning, state, errors)
        }
        (None, MemberFitness::Critical) => (Severity::Critical, "failing its reads".to_owned(), errors),
        (None, MemberFitness::Failing) => (Severity::Warning, "failing reads".to_owned(), errors),
        (None, MemberFitness::Slow | MemberFitness::Good) => return None,
    };
    let action = match member.copy {
        Some(_) => "wait, then replace the disk".to_owned(),
        None => format!(
            "replace it with blockyard disk replace {name} NEW --force, or add a hot spare to pool {} with \
             blockyard disk spare add NEW",
            pool.name
        ),
    };
    Some(Problem { severity, subject: format!("disk {name}"), state, meaning, action })
}

/// Remote disk in use with failed paths.
pub(super) fn of_paths(disk: &DiskReport) -> Option<Problem> {
    let (name, remote) = (disk.name.as_ref()?, disk.remote.as_ref()?);
    let down: Vec<String> = remote.down().map(|path| path.portal.to_string()).collect();
    let is_used = matches!(disk.state, DiskState::InUse | DiskState::Rebuilding);
    if down.is_empty() || !is_used {
        return None;
    }
    // `down` is a part of `paths`, so the difference cannot wrap.
    let left = remote.paths.len() - down.len();
    let reason = remote.down().find_map(|path| path.reason.clone()).unwrap_or_default();
    let down = first_few(down.iter(), 3);
    let meaning = match left {
        0 => format!("no path is up and I/O waits: {reason}"),
        1 => format!("one path is left; {down} is down: {reason}"),
        left => format!("{left} paths are left; {down} is down: {reason}"),
    };
    Some(Problem {
        severity: Severity::Warning,
        subject: format!("disk {name}"),
        state: "with a path down".to_owned(),
        meaning,
        action: format!("restore the path; it reconnects by itself, see blockyard disk show {name}"),
    })
}

pub(super) fn of_portal(portal: &PortalReport) -> Option<Problem> {
    let (severity, state, why, action) = match &portal.state {
        PortalState::Open => return None,
        PortalState::NoLink { reason: why } => (Severity::Warning, "without a link", why, "repair its link"),
        PortalState::Failed { reason: why } => {
            let action = "free the address, or correct the configuration; retried every second";
            (Severity::Critical, "not listening", why, action)
        }
    };
    Some(Problem {
        severity,
        subject: format!("portal {}", portal.address),
        state: state.to_owned(),
        meaning: format!("{why}, so no host can connect there"),
        action: action.to_owned(),
    })
}
