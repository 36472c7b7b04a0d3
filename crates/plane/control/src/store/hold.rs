//! When nothing may be changed: an older version of the state is served, or the folder is not the one that was opened.
//!
//! Volumes are served all the while. What the daemon notes by itself meanwhile, such as where a disk was found, is so in memory alone.

use super::Store;
use crate::State;
use model::{Refusal, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why an older version is served.
pub(super) struct Hold {
    /// What is damaged or missing, and what is used in its place.
    pub sentences: Vec<String>,
    /// The files that are damaged.
    pub damaged: Vec<(String, u64)>,
    /// The highest version that is known to have been.
    pub version_max: u64,
}

/// The state that is served, and whether it may be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateReport {
    /// The number of its version.
    pub version: u64,
    /// The versions that are kept, oldest first.
    pub kept: Vec<u64>,
    /// Why changes are refused; null where they are not.
    pub held: Option<String>,
}

impl Store {
    /// Why nothing may be changed; none where everything may.
    #[must_use]
    pub fn hold(&self) -> Option<Refusal> {
        if let Err(refusal) = self.folder.check() {
            return Some(refusal);
        }
        let current = self.current();
        let hold = current.hold.as_ref()?;
        Some(Refusal::new(
            code::STATE_UNACCEPTED,
            format!("changes are refused: {}", hold.sentences.join("; ")),
            "check hosts, mappings and users, then run blockyard state accept; or put back a backup of the state folder",
        ))
    }

    /// True where an older version is served and was not accepted.
    pub(crate) fn serves_older(&self) -> bool {
        self.current().hold.is_some()
    }

    /// What is served is the latest version from now on, with what was noted since the start. Damaged files keep their content under
    /// names that nothing reads. *Durability*: it survives power loss.
    ///
    /// *Errors*: it could not be written; it is not accepted then.
    pub fn accept(&self) -> Result<(), Refusal> {
        self.folder.check()?;
        let mut current = self.current();
        let Some(hold) = current.hold.take() else { return Ok(()) };
        let before = current.version;
        current.version = hold.version_max.max(current.version);
        drop(current);
        let written = self.write_accepted(&hold);
        if written.is_err() {
            let mut current = self.current();
            (current.version, current.hold) = (before, Some(hold));
        }
        written
    }

    fn write_accepted(&self, hold: &Hold) -> Result<(), Refusal> {
        self.rewrite_documents(&hold.damaged)?;
        self.write_version(State::clone(&self.state()))?;
        for (name, number) in &hold.damaged {
            self.folder.put_aside(name, *number)?;
        }
        Ok(())
    }
}
