//! Commands `blockyard pool add-log` and `remove-log`.

use super::layout;
use crate::commands::{CommandContext, pool_path};
use crate::confirm;
use crate::failure::Failure;
use control::request::{AddLog, RemoveLog};
use model::{DiskName, LogReport, LogState, Name, PoolReport, code};

/// Adds a log device made of these disks.
pub(super) fn add(
    desk: &CommandContext,
    name: &Name,
    disks: Vec<DiskName>,
    yes: bool,
    force: bool,
) -> Result<(), Failure> {
    let count = disks.len();
    let request = AddLog { disks, force, confirmed: yes };
    let answer = desk.client.post(&format!("{}/log", pool_path(name)), &request, "pool")?;
    let pool: PoolReport = answer.decode()?;
    let size = pool.log.map_or_else(String::new, |log| format!(", capacity {}", log.size.iec()));
    let of = if count == 1 { "one disk".to_owned() } else { format!("a mirror of {count} disks") };
    desk.out.done(&answer, &format!("pool {name} has a log device: {of}{size}"))
}

/// Removes the log device of the pool.
pub(super) fn remove(desk: &CommandContext, name: &Name, lost: bool, yes: bool) -> Result<(), Failure> {
    let path = format!("{}/log/removal", pool_path(name));
    // Only the removal of a lost log destroys data, so only it is bound to the version that was read.
    let seen = if lost && !yes { Some(desk.client.read_version(&pool_path(name), "pool")?) } else { None };
    let answer = match desk.client.post(&path, &RemoveLog { lost, confirmed: lost && yes }, "pool") {
        Err(Failure::Refused(refusal)) if refusal.code == code::UNCONFIRMED => {
            confirm::repetition(name, refusal)?;
            desk.client.post_if_unchanged(&path, &RemoveLog { lost, confirmed: true }, "pool", seen.as_ref())?
        }
        answered => answered?,
    };
    desk.out.done(&answer, &format!("log device of pool {name} removed; its disks are free"))
}

/// Describes the log in a few words, for a table.
pub(super) fn brief(log: &LogReport) -> String {
    match log.state {
        LogState::Ready => format!("{} %", log.percent()),
        state => state.as_str().to_owned(),
    }
}

/// Describes the log in one line, for the drawing of a pool.
pub(super) fn drawn(log: &LogReport) -> String {
    let why = log.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let used = format!("{} of {} used ({} %)", log.used.iec(), log.size.iec(), log.percent());
    let volumes: Vec<String> = log.volumes.iter().map(ToString::to_string).collect();
    let of = if volumes.is_empty() { String::new() } else { format!(", for {}", volumes.join(", ")) };
    match log.state {
        LogState::Ready => format!("{}, {}, {used}{of}", layout(&log.group), log.group.state.as_str()),
        state => format!("{}, {}{why}{of}", layout(&log.group), state.as_str()),
    }
}
