//! Commands `blockyard pool set`, `pause`, `resume` and `scrub`.

use crate::args::{ListOptions, ScrubCommand};
use crate::commands::operations::follow;
use crate::commands::{CommandContext, or_dash, pool_path};
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::{WaitTimeout, drawn, duration, sentence};
use control::request::{PoolSettings, StartScrub};
use model::{ErrorPolicy, Name, OperationId, OperationKind, PoolPolicy, PoolReport, ScrubReport};

pub(super) fn set(desk: &CommandContext, name: &Name, settings: Vec<(String, String)>) -> Result<(), Failure> {
    let answer = if settings.is_empty() {
        // Not an empty PATCH: a viewer may read the settings, but not change them.
        desk.client.get(&pool_path(name), "pool")?
    } else {
        let settings = settings.into_iter().collect();
        desk.client.patch(&pool_path(name), &PoolSettings { settings }, "pool")?
    };
    let pool: PoolReport = answer.decode()?;
    if desk.out.is_quiet() && !desk.out.is_json() {
        return Ok(());
    }
    let rows = pool.policy.settings().map(|(key, value)| vec![key.to_owned(), value]);
    desk.out.rows(&answer, &Rows { header: &["SETTING", "VALUE"], rows: rows.into() })
}

pub(super) fn pause(desk: &CommandContext, name: &Name) -> Result<(), Failure> {
    let answer = desk.client.post(&format!("{}/pause", pool_path(name)), &(), "pool")?;
    let text = format!("repairs of pool {name} paused until blockyard pool resume {name}");
    desk.out.done(&answer, &text)
}

pub(super) fn resume(desk: &CommandContext, name: &Name) -> Result<(), Failure> {
    let answer = desk.client.post(&format!("{}/resume", pool_path(name)), &(), "pool")?;
    desk.out.done(&answer, &format!("repairs of pool {name} resumed"))
}

pub(super) fn scrub(desk: &CommandContext, command: ScrubCommand) -> Result<(), Failure> {
    match command {
        ScrubCommand::Start { pool, repair, wait, patience } => {
            let path = format!("{}/scrubs", pool_path(&pool));
            let answer = desk.client.post(&path, &StartScrub { repairs: repair }, "pool")?;
            let said = format!("scrub of pool {pool} started, see blockyard pool scrub status {pool}");
            desk.out.done(&answer, &said)?;
            if wait {
                let id = OperationId::of(OperationKind::Scrub, &pool);
                follow(&desk.client, &id, !desk.out.is_quiet(), WaitTimeout::new(patience))?;
                // A command prints one JSON object, and that was the answer to the start.
                return if desk.out.is_json() { Ok(()) } else { status(desk, &pool, &ListOptions::default()) };
            }
            Ok(())
        }
        ScrubCommand::Stop { pool } => {
            desk.client.delete(&format!("{}/scrubs", pool_path(&pool)))?;
            desk.out.said(&format!("scrub of pool {pool} is stopping"))
        }
        ScrubCommand::Status { pool, list } => status(desk, &pool, &list),
    }
}

fn status(desk: &CommandContext, pool: &Name, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list(&format!("{}/scrubs", pool_path(pool)), "scrubs", options, &[])?;
    let scrubs: Vec<ScrubReport> = answer.decode()?;
    let row = |scrub: &ScrubReport| {
        let state = match &scrub.progress {
            Some(progress) => format!("{}, {} %", scrub.state.as_str(), progress.percent()),
            None => scrub.state.as_str().to_owned(),
        };
        vec![
            scrub.started.to_string(),
            or_dash(scrub.ended.map(|ended| duration(ended.since(scrub.started)))),
            state,
            scrub.checked.iec(),
            scrub.mismatches.to_string(),
            scrub.unreadable.to_string(),
            scrub.repaired.to_string(),
        ]
    };
    let header = &["STARTED", "TOOK", "STATE", "CHECKED", "MISMATCHES", "UNREADABLE", "REPAIRED"];
    desk.out.rows(&answer, &Rows { header, rows: scrubs.iter().map(row).collect() })
}

/// Describes the repair and scrub settings of the pool, and its scrub.
pub(super) fn told(pool: &PoolReport) -> Vec<String> {
    let defaults = PoolPolicy::default().settings();
    let changed = pool.policy.settings().into_iter().zip(defaults).filter(|(set, default)| set != default);
    let changed: Vec<String> = changed.map(|((key, value), _)| format!("{key}={value}")).collect();
    let mut told = Vec::new();
    if !changed.is_empty() {
        told.push(format!("set     {}", changed.join(" ")));
    }
    told.push(format!("errors  {}", of_errors(&pool.policy.repair.errors)));
    if pool.policy.repair.paused {
        told.push(format!("paused  no repairs until blockyard pool resume {}", pool.name));
    }
    if let Some(scrub) = &pool.scrub {
        told.push(format!("scrub   {}", of_scrub(scrub)));
    }
    told.extend(pool.next_scrub.map(|next| format!("next    scrub not before {next}")));
    told
}

/// Describes the limits at which a member is copied to a hot spare.
fn of_errors(policy: &ErrorPolicy) -> String {
    let limits = [
        policy.count.map(|count| format!("{count} failed reads in 24 h")),
        policy.rate.map(|rate| format!("{rate} % of reads in one minute")),
        policy.slow.map(|span| format!("slow for {span}")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { "no limit".to_owned() } else { format!("copied to a hot spare at {}", limits.join(", or ")) }
}

fn of_scrub(scrub: &ScrubReport) -> String {
    let found = match (scrub.mismatches, scrub.unreadable, scrub.repaired) {
        (0, 0, 0) => "all right".to_owned(),
        (wrong, unreadable, healed) => {
            format!("{wrong} stripes inconsistent, {unreadable} unreadable, {healed} repaired")
        }
    };
    match (&scrub.progress, scrub.ended) {
        (Some(progress), _) if scrub.state.runs() => {
            format!("{} {}, {found} so far", drawn(progress), sentence(scrub.state.as_str(), progress))
        }
        (_, Some(ended)) => format!("{} {ended}, {} read, {found}", scrub.state.as_str(), scrub.checked.iec()),
        _ => format!("{}, {} read, {found} so far", scrub.state.as_str(), scrub.checked.iec()),
    }
}
