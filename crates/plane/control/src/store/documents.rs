//! What is kept beside the state: one document each, in no version of it. A state that is restored leaves them as they are.

use super::{Store, damaged, unwritable};
use crate::Control;
use model::Refusal;
use redb::{Database, ReadableDatabase, TableDefinition};
use serde_json::{Value, json};

/// Documents by name, as JSON.
const DOCUMENTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("documents");

impl Store {
    /// The document of this name, with its secrets in plain; none when there is none.
    ///
    /// *Errors*: the file cannot be read, or the secrets are sealed with another key.
    pub(crate) fn document(&self, name: &str) -> Result<Option<Value>, Refusal> {
        let read = |database: &Database| {
            let table = match database.begin_read()?.open_table(DOCUMENTS) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            Ok(table.get(name)?.map(|json| json.value().to_vec()))
        };
        let read = self.current().attempt(&self.path, read).map_err(|error| damaged(&self.path, &error))?;
        let Some(json) = read else { return Ok(None) };
        let document: Value = serde_json::from_slice(&json).map_err(|error| damaged(&self.path, &error))?;
        let mut placed = json!({ name: document });
        self.vault.open_all(&mut placed, self.forget)?;
        Ok(placed.get_mut(name).map(Value::take))
    }

    /// The document is this one. What stands under the key `secret` is sealed, as in the state.
    ///
    /// *Errors*: it could not be written, and is as it was. *Durability*: it survives power loss.
    pub(crate) fn keep_document(&self, name: &str, document: Value) -> Result<(), Refusal> {
        let mut placed = json!({ name: document });
        self.vault.seal(&mut placed)?;
        let json = serde_json::to_vec(&placed[name]).map_err(|error| unwritable(&self.path, &error))?;
        let write = |database: &Database| {
            let transaction = database.begin_write()?;
            transaction.open_table(DOCUMENTS)?.insert(name, json.as_slice())?;
            Ok(transaction.commit()?)
        };
        self.current().attempt(&self.path, write).map_err(|error| unwritable(&self.path, &error))
    }
}

impl Control {
    /// What a door keeps under this name; none when it keeps nothing.
    ///
    /// *Errors*: it cannot be read, or its secrets are sealed with another key.
    pub fn document(&self, name: &str) -> Result<Option<Value>, Refusal> {
        self.store.document(name)
    }

    /// A door keeps this under the name, in no version of the state. Strings under the key `secret` are sealed.
    ///
    /// *Errors*: it could not be written, and is as it was. *Durability*: it survives power loss.
    pub fn keep_document(&self, name: &str, document: Value) -> Result<(), Refusal> {
        self.store.keep_document(name, document)
    }
}
