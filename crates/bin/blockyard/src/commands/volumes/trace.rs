//! Command `blockyard volume trace`.

use crate::commands::CommandContext;
use crate::commands::new_file::NewFile;
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::duration;
use control::request::NewTrace;
use model::{TraceReport, VolumeName};
use std::path::Path;

/// Starts to trace the volume.
pub(super) fn start(desk: &CommandContext, name: &VolumeName, commands: Option<u32>) -> Result<(), Failure> {
    let answer = desk.client.post(&format!("/traces/{name}"), &NewTrace { commands }, "trace")?;
    let trace: TraceReport = answer.decode()?;
    desk.out
        .done(&answer, &format!("trace of volume {name} started: the last {} commands are kept", trace.commands_max))
}

/// Writes the recorded commands to the file `to`; with `stops`, ends the trace and discards them.
pub(super) fn take(desk: &CommandContext, name: &VolumeName, to: &Path, stops: bool) -> Result<(), Failure> {
    let mut file = NewFile::at(to);
    let saved = desk.client.fetch(&format!("/trace-files/{name}"), |bytes| file.put(bytes))?;
    // A reader of standard output that closed the pipe has what it wanted.
    if file.is_saved(saved)? && !file.is_stdout() {
        desk.out.said(&format!("trace of volume {name} written to {}", to.display()))?;
    }
    if !stops {
        return Ok(());
    }
    // Ended only after the file was saved: a failure leaves the recording in the daemon.
    let answer = desk.client.delete_for(&format!("/traces/{name}"), "trace")?;
    if file.is_stdout() { Ok(()) } else { desk.out.done(&answer, &format!("trace of volume {name} stopped")) }
}

/// Ends the trace and discards the recorded commands.
pub(super) fn stop(desk: &CommandContext, name: &VolumeName) -> Result<(), Failure> {
    let answer = desk.client.delete_for(&format!("/traces/{name}"), "trace")?;
    let trace: TraceReport = answer.decode()?;
    desk.out.done(&answer, &format!("trace of volume {name} stopped; {} commands discarded", trace.kept))
}

/// Prints the state of the trace, and the number of recorded commands.
pub(super) fn show(desk: &CommandContext, name: &VolumeName) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/traces/{name}"), "trace")?;
    let trace: TraceReport = answer.decode()?;
    let header = &["VOLUME", "TRACED", "COMMANDS", "CAPACITY", "OVERWRITTEN", "IN FLIGHT", "SESSIONS", "DURATION"];
    let mut row = vec![trace.volume.to_string(), if trace.is_on { "yes" } else { "no" }.to_owned()];
    let counts = [trace.kept, trace.commands_max.into(), trace.overwritten, trace.incomplete, trace.sessions.into()];
    if trace.is_on {
        row.extend(counts.map(|count| count.to_string()));
        row.push(duration(trace.running_ms / 1000));
    } else {
        // Figures of a volume without a trace are unknown, not zero.
        row.extend(std::iter::repeat_n("-".to_owned(), counts.len() + 1));
    }
    desk.out.rows(&answer, &Rows { header, rows: vec![row] })
}
