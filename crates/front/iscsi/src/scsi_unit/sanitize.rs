//! Progress of SANITIZE.

use super::ScsiUnit;
use model::SanitizeReport;
use shard::World;

impl<W: World> ScsiUnit<W> {
    /// Returns the progress of a running SANITIZE or its failure. `None` otherwise.
    pub(super) fn sanitize_report(&self) -> Option<SanitizeReport> {
        // The progress indication of sense data has the denominator 65,536 (SPC-4).
        let percent = self.logical_unit.sanitize_progress().map(|done| u8::try_from(u32::from(done) * 100 / 65_536));
        match percent {
            // The conversion never fails: 65,535 of 65,536 is 99 %.
            Some(percent) => Some(SanitizeReport::Running { percent: percent.unwrap_or(99) }),
            None if self.logical_unit.has_failed_to_be_sanitized() => Some(SanitizeReport::Failed),
            None => None,
        }
    }
}
