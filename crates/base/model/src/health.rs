//! SMART health data of a disk.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// SMART data of a disk, as of the last query. Values that the disk does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskHealth {
    /// Time of the query.
    pub time: Timestamp,
    /// Overall assessment by the disk: false if it predicts or reports a failure.
    pub passed: Option<bool>,
    /// Temperature in degrees Celsius.
    pub temperature: Option<i64>,
    /// Power-on time in hours.
    pub power_on_hours: Option<u64>,
    /// Number of reallocated sectors.
    pub reallocated_sectors: Option<u64>,
    /// Number of unreadable sectors that will be reallocated when they are written.
    pub pending_sectors: Option<u64>,
    /// Number of uncorrected errors.
    pub uncorrected_errors: Option<u64>,
    /// Used portion of the rated lifetime in percent; may exceed 100.
    pub percent_used: Option<u64>,
    /// Remaining spare flash blocks in percent.
    pub spare_percent: Option<u64>,
    /// Number of interface CRC errors that the link or the drive reported.
    pub link_errors: Option<u64>,
}

impl DiskHealth {
    /// Returns the problems in words, most severe first; empty if there are none.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.passed == Some(false) {
            complaints.push("SMART self-assessment failed".to_owned());
        }
        // Zero is no problem, and an absent value is not known: neither is reported.
        if let Some(count) = self.pending_sectors.filter(|&count| count > 0) {
            complaints.push(counted(count, "pending (unreadable) sector"));
        }
        if let Some(count) = self.uncorrected_errors.filter(|&count| count > 0) {
            complaints.push(counted(count, "uncorrected error"));
        }
        // Chosen: 90 % leaves time to order a replacement. The value may exceed 100 (NVMe, Percentage Used).
        if let Some(percent) = self.percent_used.filter(|&percent| percent >= 90) {
            complaints.push(format!("{percent} % of rated life used"));
        }
        // Counts down, in contrast to the used life: a low value is the problem.
        if let Some(percent) = self.spare_percent.filter(|&percent| percent <= 10) {
            complaints.push(format!("{percent} % of spare flash left"));
        }
        // Last: these sectors are replaced already, so they show wear and no present loss.
        if let Some(count) = self.reallocated_sectors.filter(|&count| count > 0) {
            complaints.push(counted(count, "reallocated sector"));
        }
        // Link errors are not listed: they point to the cable or the port, not to the disk.
        complaints
    }

    /// Returns true if the disk should be replaced before it fails.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        // Pending sectors are unreadable now. Reallocated ones are replaced already and count as wear only.
        self.passed == Some(false)
            || self.pending_sectors.is_some_and(|count| count > 0)
            || self.percent_used.is_some_and(|percent| percent >= 100)
            || self.spare_percent.is_some_and(|percent| percent == 0)
    }
}

/// Returns the count with its noun, in the plural unless the count is one.
fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
