//! Command `blockyard status`.

use super::{CommandContext, counted};
use crate::failure::Failure;
use crate::output::put;
use crate::progress::duration;
use model::{MemoryReport, Severity, Size, StatusReport};
use std::fmt::Write;

pub(super) fn status(desk: &CommandContext, check: bool) -> Result<(), Failure> {
    let answer = desk.client.get("/status", "status")?;
    let status: StatusReport = answer.decode()?;
    if desk.out.is_json() {
        desk.out.json(&answer)?;
    } else if desk.out.is_quiet() {
        put(&format!("{}\n", status.summary))?;
    } else {
        put(&told(&status))?;
    }
    // `--check` follows the severity of the verdict.
    if check && status.severity != Severity::Good { Err(Failure::NotGood) } else { Ok(()) }
}

/// Formats the status: verdict, problems, then totals.
fn told(status: &StatusReport) -> String {
    let mut text = format!("{}\n", status.summary);
    let mut line = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args).expect("a string takes all text");
        text.push('\n');
    };
    let problems = status.problems.iter().map(|problem| (problem, problem.severity.as_str()));
    for (problem, how) in problems.chain(status.notices.iter().map(|notice| (notice, "notice"))) {
        line(format_args!(""));
        line(format_args!("{}: {} ({how})", problem.subject, problem.state));
        line(format_args!("  meaning: {}", problem.meaning));
        line(format_args!("  action:  {}", problem.action));
    }
    let engine = &status.engine;
    line(format_args!(""));
    line(format_args!("node     {}, version {}, up {}", status.node, status.version, duration(engine.uptime_seconds)));
    line(format_args!("pools    {}, {}, {} used", status.pools, status.size, status.used.iec()));
    line(format_args!("disks    {}", status.disks));
    line(format_args!("volumes  {}", status.volumes));
    line(format_args!("hosts    {}, {}", status.hosts, counted(engine.sessions, "session")));
    line(format_args!(
        "served   {}, {} read, {} written",
        counted(engine.commands, "command"),
        Size::new(engine.read_bytes).iec(),
        Size::new(engine.written_bytes).iec()
    ));
    let buffers = Size::new(engine.buffer_bytes_max);
    let shards = if engine.shards == 1 { "shard" } else { "shards" };
    line(format_args!("engine   {} {shards} on {}, {} for buffers", engine.shards, engine.io, buffers.iec()));
    if let Some(MemoryReport { limit, limited_by, cache_now, .. }) = &status.memory {
        line(format_args!("memory   {} ({limited_by}), {} for the read cache", limit.iec(), cache_now.iec()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_all_others_are_many() {
        assert_eq!([0u32, 1, 2].map(|n| counted(n, "command")), ["0 commands", "1 command", "2 commands"]);
    }
}
