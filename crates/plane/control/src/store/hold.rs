//! Hold on changes: an older version of the state is served, or the folder is not the one that was opened.
//!
//! Volumes stay online. Facts that the daemon records by itself, such as the path of a disk, change in memory
//! only.

use super::Store;
use crate::State;
use model::{Refusal, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason for serving an older version.
pub(super) struct WriteHold {
    /// Sentences that name what is damaged or missing, and what is used instead.
    pub sentences: Vec<String>,
    /// The damaged files.
    pub damaged: Vec<(String, u64)>,
    /// The highest version number that any file names, whether it is readable or not.
    pub version_max: u64,
}

/// The version of the state that is served, and whether changes are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateReport {
    /// Version number of the state.
    pub version: u64,
    /// Versions kept, oldest first.
    pub kept: Vec<u64>,
    /// Reason why changes are refused; null while they are accepted.
    pub changes_refused: Option<String>,
}

impl Store {
    /// Returns the reason why nothing may be changed; `None` where changes are accepted.
    #[must_use]
    pub fn hold(&self) -> Option<Refusal> {
        // Checked at each call: the folder can be replaced while the daemon runs.
        if let Err(refusal) = self.folder.check() {
            return Some(refusal);
        }
        let current = self.current();
        let hold = current.hold.as_ref()?;
        Some(Refusal::new(
            code::STATE_UNACCEPTED,
            format!("changes are refused: {}", hold.sentences.join("; ")),
            "check hosts, mappings and users, then run blockyard state accept; or restore a backup of the state \
             folder",
        ))
    }

    /// Returns true while an older version is served and not yet accepted.
    pub(crate) fn serves_older(&self) -> bool {
        self.current().hold.is_some()
    }

    /// Makes the served state the latest version, with everything recorded since the start. Damaged files are
    /// renamed and kept. *Durability*: it survives power loss.
    ///
    /// *Errors*: it could not be written; the hold stays.
    pub fn accept(&self) -> Result<(), Refusal> {
        // Before anything is written, because the folder may be another one by now.
        self.folder.check()?;
        let mut current = self.current();
        let Some(hold) = current.hold.take() else { return Ok(()) };
        let before = current.version;
        // The new version must be numbered above the lost one, or the next start would serve an older version
        // again.
        current.version = hold.version_max.max(current.version);
        drop(current);
        let written = self.write_accepted(&hold);
        if written.is_err() {
            // Put back, so that changes stay refused.
            let mut current = self.current();
            (current.version, current.hold) = (before, Some(hold));
        }
        written
    }

    fn write_accepted(&self, hold: &WriteHold) -> Result<(), Refusal> {
        // The state is written last: it is the commit point, and its header names the documents.
        self.rewrite_documents(&hold.damaged)?;
        self.write_version(State::clone(&self.state()))?;
        // Only after the commit, because until then another start has to find them as they are.
        for (name, number) in &hold.damaged {
            self.folder.quarantine(name, *number)?;
        }
        Ok(())
    }
}
