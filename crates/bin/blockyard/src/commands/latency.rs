//! Latency tables of commands.

use super::CommandContext;
use crate::args::ListOptions;
use crate::failure::Failure;
use crate::output::Rows;
use model::{LatencyReport, VolumeName};

/// Prints the latencies of a volume (`blockyard volume latency`).
pub(super) fn of_volume(desk: &CommandContext, name: &VolumeName, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list(&format!("/latencies/{name}"), "latencies", options, &[])?;
    let latencies: Vec<LatencyReport> = answer.decode()?;
    desk.out.rows(&answer, &rows(&latencies))
}

/// Returns a row for each operation.
pub(super) fn rows(latencies: &[LatencyReport]) -> Rows {
    let row = |one: &LatencyReport| {
        let times = [one.p50_us, one.p99_us, one.p999_us, one.longest_us].map(time);
        [one.operation.clone(), one.commands.to_string()].into_iter().chain(times).collect()
    };
    let header = &["OPERATION", "COMMANDS", "P50", "P99", "P99.9", "MAX"];
    Rows { header, rows: latencies.iter().map(row).collect() }
}

fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}
