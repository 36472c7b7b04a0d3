//! The stored state and the documents beside it, for the front ends: which version is served, whether it may be changed.

use crate::{Control, StateReport};
use model::{Refusal, Subject, SubjectKind, event};
use serde_json::Value;

impl Control {
    /// What a door keeps under this name; none when it keeps nothing.
    ///
    /// *Errors*: its secrets are sealed with another key.
    pub fn document(&self, name: &str) -> Result<Option<Value>, Refusal> {
        self.store.document(name)
    }

    /// A door keeps this under the name, in no version of the state. Strings under the key `secret` are sealed.
    ///
    /// *Errors*: it could not be written, and is as it was. *Durability*: it survives power loss, except while the store is held.
    pub fn keep_document(&self, name: &str, document: Value) -> Result<(), Refusal> {
        self.store.keep_document(name, document)
    }

    /// Why no change is taken just now; none where changes are taken.
    #[must_use]
    pub fn hold(&self) -> Option<Refusal> {
        self.store.hold()
    }

    /// The state that is served.
    #[must_use]
    pub fn state_report(&self) -> StateReport {
        let held = self.hold().map(|refusal| refusal.message);
        StateReport { version: self.store.version(), kept: self.store.versions(), held }
    }

    /// The older version that is served is the state from now on.
    ///
    /// *Errors*: it could not be written, or the folder is not the one that was opened.
    pub async fn accept_state(&self) -> Result<StateReport, Refusal> {
        let turn = self.turn().await;
        let Some(refusal) = self.hold() else { return Ok(self.state_report()) };
        // What an older version says of pools that were being made or destroyed is not so any more: their disks stay as they are.
        self.commit(&turn, |state| state.pending.clear())?;
        self.store.accept()?;
        let node = Subject::new(SubjectKind::Node, &self.settings.node);
        self.raise(event::STATE_ACCEPTED, node, format!("an operator has accepted it: {}", refusal.message));
        Ok(self.state_report())
    }
}
