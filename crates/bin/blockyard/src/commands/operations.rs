//! Commands `blockyard operation …`.

use super::{CommandContext, or_dash};
use crate::args::{ListOptions, OperationCommand};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::{WaitTimeout, duration, sentence};
use model::{OperationId, OperationReport, Size};

pub(super) fn run(desk: &CommandContext, command: &OperationCommand) -> Result<(), Failure> {
    match command {
        OperationCommand::List(options) => list(desk, options),
        OperationCommand::Show { id, wait: true, patience } => {
            follow(&desk.client, id, !desk.out.is_quiet(), WaitTimeout::new(*patience))?;
            desk.out.said(&format!("{id} is no longer running"))
        }
        OperationCommand::Show { id, wait: false, .. } => show(desk, id),
        OperationCommand::Cancel { id } => {
            desk.client.delete(&format!("/operations/{id}"))?;
            desk.out.said(&format!("{id} is stopping"))
        }
    }
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/operations", "operations", options, &[])?;
    let operations: Vec<OperationReport> = answer.decode()?;
    let row = |operation: &OperationReport| {
        let speed = operation.progress.map(|progress| Size::new(progress.bytes_per_second).decimal() + "/s");
        vec![
            operation.id.to_string(),
            or_dash(operation.percent.map(|percent| format!("{percent} %"))),
            if operation.is_running { "running" } else { "waiting" }.to_owned(),
            or_dash(speed),
            or_dash(operation.progress.and_then(|progress| progress.seconds_left).map(duration)),
            or_dash(operation.started),
            if operation.cancellable { "yes" } else { "no" }.to_owned(),
            operation.description.clone(),
        ]
    };
    let header = &["OPERATION", "DONE", "STATE", "SPEED", "LEFT", "STARTED", "CANCELABLE", "DESCRIPTION"];
    desk.out.rows(&answer, &Rows { header, rows: operations.iter().map(row).collect() })
}

fn show(desk: &CommandContext, id: &OperationId) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/operations/{id}"), "operation")?;
    let operation: OperationReport = answer.decode()?;
    desk.out.done(&answer, &told(&operation))
}

/// Waits until the operation has finished; prints a line to stderr for every ten percent.
pub(super) fn follow(client: &Client, id: &OperationId, shown: bool, patience: WaitTimeout) -> Result<(), Failure> {
    let mut last = None;
    loop {
        let operations: Vec<OperationReport> = client.get("/operations", "operations")?.decode()?;
        // The daemon lists only operations that have not finished.
        let Some(operation) = operations.into_iter().find(|operation| operation.id == *id) else { return Ok(()) };
        // The step is optional, so the first report without a percentage is printed once as well.
        let step = operation.percent.map(|percent| percent / 10);
        if shown && last != Some(step) {
            eprintln!("{}", told(&operation));
            last = Some(step);
        }
        patience.pause(&id.to_string())?;
    }
}

/// Describes an operation: `the scrub of pool tank: running 12 %, 1.2 GiB of …`.
fn told(operation: &OperationReport) -> String {
    let state = if operation.is_running { "running" } else { "waiting" };
    let progress = operation.progress.map(|progress| sentence(state, &progress));
    let percent = operation.percent.map(|percent| format!("{state} {percent} %"));
    format!("{}: {}", operation.description, progress.or(percent).unwrap_or_else(|| state.to_owned()))
}
