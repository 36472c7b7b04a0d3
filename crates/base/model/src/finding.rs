//! What was looked at, and whether it will hurt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad a finding is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// As it should be.
    Good,
    /// It does not hurt yet.
    Warning,
    /// It hurts.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// How bad it is.
    pub grade: Grade,
    /// What was looked at.
    pub subject: String,
    /// What is so.
    pub sentence: String,
    /// What to do; empty where nothing is to be done.
    pub fix: String,
}

impl Finding {
    /// It is as it should be.
    pub fn good(subject: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { grade: Grade::Good, subject: subject.into(), sentence: sentence.into(), fix: String::new() }
    }

    /// It does not hurt yet.
    pub fn warning(subject: impl Into<String>, sentence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { grade: Grade::Warning, subject: subject.into(), sentence: sentence.into(), fix: fix.into() }
    }

    /// It hurts.
    pub fn bad(subject: impl Into<String>, sentence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { grade: Grade::Bad, subject: subject.into(), sentence: sentence.into(), fix: fix.into() }
    }
}
