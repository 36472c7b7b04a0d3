//! Findings of a diagnosis: graded results of individual checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Grade of a finding, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    // The order of declaration is the order in lists: `Ord` is derived, and the worst finding comes first.
    /// No problem.
    Good,
    /// Risk without a present effect.
    Warning,
    /// Problem that has an effect now.
    Bad,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Grade of the result.
    pub grade: Grade,
    /// Object of the check.
    pub subject: String,
    /// Result as a sentence.
    pub message: String,
    /// Recommended action; empty if none is required.
    pub fix: String,
}

impl Finding {
    /// Returns a finding without a problem.
    pub fn good(subject: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { grade: Grade::Good, subject: subject.into(), message: sentence.into(), fix: String::new() }
    }

    /// Returns a finding about a risk.
    pub fn warning(subject: impl Into<String>, sentence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { grade: Grade::Warning, subject: subject.into(), message: sentence.into(), fix: fix.into() }
    }

    /// Returns a finding about a problem.
    pub fn bad(subject: impl Into<String>, sentence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { grade: Grade::Bad, subject: subject.into(), message: sentence.into(), fix: fix.into() }
    }
}
