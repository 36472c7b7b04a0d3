//! `blockyard pool add-log|remove-log`

use super::layout;
use crate::commands::{Desk, pool_path};
use crate::confirm;
use crate::failure::Failure;
use control::request::{AddLog, RemoveLog};
use model::{DiskName, LogReport, LogState, Name, PoolReport, Refusal, code};

/// The pool has a log device of these disks.
pub fn add(desk: &Desk, name: &Name, disks: Vec<DiskName>, yes: bool, force: bool) -> Result<(), Failure> {
    let count = disks.len();
    let request = AddLog { disks, force, confirmed: yes };
    let answer = desk.client.post(&format!("{}/log", pool_path(name)), &request, "pool")?;
    let pool: PoolReport = answer.decode()?;
    let size = pool.log.map_or_else(String::new, |log| format!(", with room for {}", log.size.iec()));
    let of = if count == 1 { "one disk".to_owned() } else { format!("a mirror of {count} disks") };
    desk.out.done(&answer, &format!("pool {name} has a log device: {of}{size}"))
}

/// The pool has no log device any more.
pub fn remove(desk: &Desk, name: &Name, lost: bool, yes: bool) -> Result<(), Failure> {
    if lost && !yes {
        let message = format!("what volumes of pool {name} acknowledged last, and its log holds, would be lost");
        confirm::repetition(name, Refusal::new(code::UNCONFIRMED, message, "repeat with --yes if that is wanted"))?;
    }
    let request = RemoveLog { lost, confirmed: lost };
    let answer = desk.client.post(&format!("{}/log/removal", pool_path(name)), &request, "pool")?;
    desk.out.done(&answer, &format!("pool {name} has no log device any more; its disks are free"))
}

/// The log in a few words, for a table.
pub fn brief(log: &LogReport) -> String {
    match log.state {
        LogState::Ready => format!("{} %", log.percent()),
        state => state.as_str().to_owned(),
    }
}

/// The log in a line, for a drawing.
pub fn drawn(log: &LogReport) -> String {
    let why = log.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let used = format!("{} of {} used ({} %)", log.used.iec(), log.size.iec(), log.percent());
    let volumes: Vec<String> = log.volumes.iter().map(ToString::to_string).collect();
    let of = if volumes.is_empty() { String::new() } else { format!(", for {}", volumes.join(", ")) };
    match log.state {
        LogState::Ready => format!("{}, {}, {used}{of}", layout(&log.group), log.group.state.as_str()),
        state => format!("{}, {}{why}{of}", layout(&log.group), state.as_str()),
    }
}
