//! What a disk says of its own health.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What SMART told, the last time that it was asked for. What a disk does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskHealth {
    /// When it was asked.
    pub time: Timestamp,
    /// False when the disk itself says that it fails.
    pub passed: Option<bool>,
    /// Degrees Celsius.
    pub temperature: Option<i64>,
    /// For how many hours it has been powered.
    pub power_on_hours: Option<u64>,
    /// Sectors that it has replaced by others.
    pub reallocated_sectors: Option<u64>,
    /// Sectors that it could not read and would replace when they are written.
    pub pending_sectors: Option<u64>,
    /// Errors that it could not correct.
    pub uncorrected_errors: Option<u64>,
    /// How much of its life is used, of a hundred; may be more.
    pub percent_used: Option<u64>,
    /// How much of its spare flash is left, of a hundred.
    pub spare_percent: Option<u64>,
    /// Times that the link or the drive reported a CRC error of the interface.
    pub link_errors: Option<u64>,
}

impl DiskHealth {
    /// What is wrong, in words, the worst first; empty where nothing is.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.passed == Some(false) {
            complaints.push("it says itself that it fails".to_owned());
        }
        if let Some(count) = self.pending_sectors.filter(|&count| count > 0) {
            complaints.push(format!("it cannot read {count} sectors"));
        }
        if let Some(count) = self.uncorrected_errors.filter(|&count| count > 0) {
            complaints.push(format!("it could not correct {count} errors"));
        }
        if let Some(percent) = self.percent_used.filter(|&percent| percent >= 90) {
            complaints.push(format!("{percent} % of its life are used"));
        }
        if let Some(percent) = self.spare_percent.filter(|&percent| percent <= 10) {
            complaints.push(format!("{percent} % of its spare flash are left"));
        }
        if let Some(count) = self.reallocated_sectors.filter(|&count| count > 0) {
            complaints.push(format!("it has replaced {count} sectors"));
        }
        complaints
    }

    /// True when it had better be replaced before it fails.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.passed == Some(false)
            || self.pending_sectors.is_some_and(|count| count > 0)
            || self.percent_used.is_some_and(|percent| percent >= 100)
            || self.spare_percent.is_some_and(|percent| percent == 0)
    }
}
