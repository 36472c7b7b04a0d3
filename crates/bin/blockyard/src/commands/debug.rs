//! Commands `blockyard debug …`.

use super::{CommandContext, or_dash};
use crate::args::DebugCommand;
use crate::failure::Failure;
use crate::output::{Rows, put};
use model::{Span, TaskReport};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn run(desk: &CommandContext, command: &DebugCommand) -> Result<(), Failure> {
    let DebugCommand::Tasks { older } = command;
    let mut answer = desk.client.get("/tasks", "tasks")?;
    let mut tasks: Vec<TaskReport> = answer.decode()?;
    if let Some(span) = older {
        // A command in both lists has waited at least as long as the interval between them.
        let before: BTreeSet<(u32, u32, u32)> = tasks.iter().map(which).collect();
        std::thread::sleep(Duration::from_millis(Span::millis(*span)));
        answer = desk.client.get("/tasks", "tasks")?;
        tasks = answer.decode()?;
        tasks.retain(|task| before.contains(&which(task)));
    }
    // Not the answer itself, which still has the commands that the comparison has removed.
    if desk.out.is_json() {
        let whole = serde_json::json!({ "schema": 1, "tasks": tasks });
        return put(&format!("{whole:#}\n"));
    }
    let header = &["SESSION", "HOST", "VOLUME", "LUN", "COMMAND", "TAG", "CMDSN", "AGE", "WAITING ON"];
    desk.out.rows(&answer, &Rows { header, rows: tasks.iter().map(row).collect() })
}

/// Identity of a command: the tag and the command number together are not reused within the interval.
fn which(task: &TaskReport) -> (u32, u32, u32) {
    (task.session, task.tag, task.cmd_sn)
}

fn row(task: &TaskReport) -> Vec<String> {
    vec![
        task.session.to_string(),
        or_dash(task.host.as_ref()),
        or_dash(task.volume.as_ref()),
        or_dash(task.lun),
        named(task.operation_code),
        format!("0x{:08x}", task.tag),
        task.cmd_sn.to_string(),
        age(task.waited_ms),
        task.waits_for(),
    ]
}

/// Formats the wait. Milliseconds below one second tell a slow command from one that hangs.
fn age(waited_ms: u64) -> String {
    match waited_ms {
        0..1_000 => format!("{waited_ms} ms"),
        1_000..60_000 => format!("{}.{} s", waited_ms / 1000, waited_ms / 100 % 10),
        _ => format!("{} min {} s", waited_ms / 60_000, waited_ms / 1000 % 60),
    }
}

/// Names the operation codes that often wait; others are printed in hexadecimal.
fn named(operation_code: u8) -> String {
    let name = match operation_code {
        0x28 => "READ (10)",
        0x88 => "READ (16)",
        0x2a => "WRITE (10)",
        0x8a => "WRITE (16)",
        0x35 | 0x91 => "SYNCHRONIZE CACHE",
        0x42 => "UNMAP",
        0x41 | 0x93 => "WRITE SAME",
        0x89 => "COMPARE AND WRITE",
        0x83 => "EXTENDED COPY",
        0x48 => "SANITIZE",
        0x5e | 0x5f => "PERSISTENT RESERVE",
        other => return format!("0x{other:02x}"),
    };
    name.to_owned()
}
