//! Documents beside the state: one each, outside its versions. Restoring a state leaves them as they are.
//!
//! All of them are read and verified at start, so that later decay of the disk changes nothing that is in use.

use super::{STATE, Store, unwritable};
use model::Refusal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Versions kept of each document.
const KEPT: u64 = 4;

/// Documents that hold only history: an older copy is used without asking the operator.
pub(super) const DISPOSABLE: [&str; 1] = ["refused-logins"];

/// Documents by name: the number of the latest version, and the content with its secrets sealed.
#[derive(Default)]
pub(super) struct Documents(BTreeMap<String, (u64, Value)>);

impl Documents {
    pub(super) fn insert(&mut self, name: &str, number: u64, document: Value) {
        self.0.insert(name.to_owned(), (number, document));
    }

    /// Returns the numbers of the latest versions.
    pub(super) fn numbers(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(name, (number, _))| (name.clone(), *number)).collect()
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |(number, _)| *number)
    }
}

impl Store {
    /// Returns the document of this name with its secrets in plain text; `None` when there is none.
    ///
    /// *Errors*: the secrets are sealed with another key.
    pub(crate) fn document(&self, name: &str) -> Result<Option<Value>, Refusal> {
        let found = self.current().documents.0.get(name).cloned();
        // `rewrite_documents` writes null for a document that was lost, once an operator has accepted the loss.
        let Some((_, document)) = found.filter(|(_, document)| !document.is_null()) else { return Ok(None) };
        // The name is the root of the secret's place, which the seal authenticates.
        let mut placed = json!({ name: document });
        self.node_key.open_all(&mut placed, self.forget)?;
        Ok(placed.get_mut(name).map(Value::take))
    }

    /// Stores the document. Strings under the key `secret` are sealed, as in the state.
    ///
    /// *Errors*: it could not be written, and the previous one stays. *Durability*: it survives power loss,
    /// except while the store is held.
    pub(crate) fn keep_document(&self, name: &str, document: Value) -> Result<(), Refusal> {
        let mut placed = json!({ name: document });
        self.node_key.seal(&mut placed)?;
        let sealed = placed[name].take();
        let held = self.current().hold.is_some();
        let number = self.current().documents.number(name);
        // Held: keep the number, because no file is written under a new one.
        if held {
            self.current().documents.insert(name, number, sealed);
            return Ok(());
        }
        self.write_document(name, number + 1, sealed)
    }

    /// Rewrites each document under a number above every damaged or missing version of it, sealed with the
    /// current key.
    pub(super) fn rewrite_documents(&self, damaged: &[(String, u64)]) -> Result<(), Refusal> {
        // Numbers that are known follow in the chain, and replace these zeros.
        let lost = damaged.iter().filter(|(name, _)| name != STATE).map(|(name, _)| (name.clone(), 0));
        // Documents of which no copy is left are included, so that their loss is recorded as null.
        let numbers: BTreeMap<String, u64> = lost.chain(self.current().documents.numbers()).collect();
        for (name, number) in numbers {
            let lost = damaged.iter().filter(|(of, _)| *of == name).map(|(_, number)| *number).max();
            // Opened and sealed again, so that it ends up under the current key.
            let mut placed = json!({ name.as_str(): self.document(&name)? });
            self.node_key.seal(&mut placed)?;
            // Above every version that a header names, so that the next start reports none as missing.
            self.write_document(&name, number.max(lost.unwrap_or(0)) + 1, placed[name.as_str()].take())?;
        }
        Ok(())
    }

    fn write_document(&self, name: &str, number: u64, sealed: Value) -> Result<(), Refusal> {
        let body = serde_json::to_vec(&sealed).map_err(|error| unwritable(self.folder.path(), &error))?;
        let mut current = self.current();
        let header = self.header(&current, name, number);
        self.folder.write(&header, &body)?;
        current.documents.insert(name, number, sealed);
        // Only after the newer one is durable.
        if let Some(old) = number.checked_sub(KEPT) {
            self.folder.remove(name, old);
        }
        Ok(())
    }
}
