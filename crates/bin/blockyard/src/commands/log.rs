//! Command `blockyard log`: prints the last lines of the daemon's log.

use super::CommandContext;
use crate::failure::Failure;
use crate::output::put;
use api::DaemonLog;

pub(super) fn run(desk: &CommandContext, limit: u16) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/log?limit={limit}"), "log")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let log: DaemonLog = answer.decode()?;
    put(&text(&log))
}

/// Joins the lines unchanged.
pub(super) fn text(log: &DaemonLog) -> String {
    log.lines.iter().map(|line| format!("{line}\n")).collect()
}
