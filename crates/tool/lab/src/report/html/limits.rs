//! Bottleneck of each point.

use super::super::markup::Markup;
use super::{folded, row, table, told};
use crate::explain::explain;
use crate::run::Run;

/// Draws a row for each measured point; nothing for a run without meter readings.
pub(super) fn draw(body: &mut Markup, run: &Run) {
    let metered = |point: &crate::run::Measured| point.samples.iter().any(|sample| sample.seen.is_some());
    // A run may have been kept without the readings of its meters.
    if !run.points.iter().any(metered) {
        return;
    }
    folded(body, "What limits each point", |inside| {
        table(inside, "The limit of each point", &["point", "limit", "because", "what would move it"], |rows| {
            for point in run.points.iter().filter(|point| metered(point)) {
                let Some(found) = explain(point, &run.machine) else { continue };
                let unseen = found.unseen.iter().map(|what| format!("not seen: {what}"));
                let because: Vec<String> = found.evidence.iter().cloned().chain(unseen).collect();
                let words = [told(&point.labels), found.limit.to_string(), because.join("; "), found.change.join("; ")];
                row(rows, &words, &[]);
            }
        });
    });
}
