//! The desired state, kept.
//!
//! One redb file holds the whole state as JSON, once for each of the latest versions. A state of the
//! largest array that we serve is some hundred kilobytes, so a change writes it whole: what is read
//! back is one value that once was true, never a mixture.

mod documents;
mod upgrade;
mod vault;

use crate::State;
use crate::control::random;
use crate::machine_id;
use model::{Event, Name, NodeId, NodeIdentity, Refusal, Secret, Timestamp, code};
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vault::Vault;

/// How many versions of the state are kept, the present one among them.
pub const VERSIONS_KEPT: u64 = 32;

/// The form of the state. Raised when an older daemon would misread it.
const SCHEMA: u64 = 2;

/// Facts about the file: `schema`.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The state by version, as JSON.
const VERSIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("versions");

/// Who saw what by the version since which it was so, as JSON of [`Config`].
const CONFIGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("configs");

/// How many of these are kept.
const CONFIGS_KEPT: usize = 20;

/// Events by number, as JSON.
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

/// The file's name in the state directory.
const FILE: &str = "state.redb";

/// The name of the key's file in the state directory, unless it is elsewhere.
const KEY_FILE: &str = "node.key";

/// Memory for the file's pages.
const CACHE_BYTES: usize = 1 << 20;

/// Where the key of the secrets is.
#[derive(Clone, Debug, Default)]
pub struct KeyFile {
    /// Its file; `node.key` in the state directory when absent.
    pub path: Option<PathBuf>,
    /// True when secrets that it cannot open are to be forgotten. Whoever should prove one stays outside until it is set anew.
    pub forget: bool,
}

/// The state in its file. While it lives no other daemon can open the same directory.
pub struct Store {
    path: PathBuf,
    vault: Vault,
    /// True when secrets that the key cannot open are to be forgotten.
    forget: bool,
    current: Mutex<Current>,
}

/// The latest version, and the file that has it.
struct Current {
    version: u64,
    state: Arc<State>,
    /// Closed after it could not be written, for redb writes no more then; the next use opens it anew.
    database: Option<Database>,
}

impl Store {
    /// The state of `dir` is read, and nobody else can open it until this is dropped. Its secrets are sealed with the key in
    /// `node.key` there.
    ///
    /// A directory or a file that is not there is made, readable by its owner alone.
    ///
    /// *Errors*: another daemon has it, a newer version wrote it, it is damaged, its key is missing or another one, or the
    /// operating system refuses.
    pub fn open(dir: &Path) -> Result<Self, Refusal> {
        Self::open_with(dir, &KeyFile::default())
    }

    /// As [`Store::open`], with the key elsewhere.
    pub fn open_with(dir: &Path, key: &KeyFile) -> Result<Self, Refusal> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| unwritable(dir, &e))?;
        let path = dir.join(FILE);
        let file = open_private(&path).map_err(|e| unwritable(&path, &e))?;
        let old = file.try_clone().map_err(|e| unwritable(&path, &e))?;
        let database = open_database(file, &path)?;
        sync_dir(dir).map_err(|e| unwritable(dir, &e))?;
        let Stored { schema, version, mut state } = read(&database, &path)?;
        let key_path = key.path.clone().unwrap_or_else(|| dir.join(KEY_FILE));
        let sealed_with = vault::keys_of(&mut state)?;
        let vault = match Vault::load(&key_path)? {
            Some(vault) => vault,
            None if sealed_with.is_empty() || key.forget => Vault::make(&key_path)?,
            None => return Err(key_missing(&key_path, &sealed_with)),
        };
        vault.open_all(&mut state, key.forget)?;
        let database = match schema {
            Some(schema) if schema < SCHEMA => upgrade::rewrite(database, old, &path, &vault)?,
            _ => database,
        };
        let state = match state {
            Value::Null => State::default(),
            state => serde_json::from_value(state).map_err(|e| damaged(&path, &e))?,
        };
        let current = Current { version, state: Arc::new(state), database: Some(database) };
        let store = Self { path, vault, forget: key.forget, current: Mutex::new(current) };
        if key.forget && version > 0 {
            let state = State::clone(&store.state());
            store.write_version(version + 1, state)?;
        }
        Ok(store)
    }

    /// Who the node `name` is: the same from the first start in this directory on.
    ///
    /// *Errors*: the first time it cannot be written, or the system gives nothing that nobody can predict.
    pub fn identity(&self, name: &Name) -> Result<NodeIdentity, Refusal> {
        let mut next = State::clone(&self.state());
        let id = match next.node {
            Some(id) => id,
            None => NodeId::from_random(random()?),
        };
        next.node = Some(id);
        self.commit(next)?;
        Ok(NodeIdentity { id, name: name.clone(), seat: seat(&self.path)?, machine: machine_id::read() })
    }

    /// What the keys of the node's pools are made of: the same as long as it has the same key.
    #[must_use]
    pub fn pool_secret(&self) -> Secret {
        self.vault.pools().clone()
    }

    /// The state as it was committed last.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.current().state.clone()
    }

    /// The number of the present version; 0 before the first commit.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.current().version
    }

    /// `next` is the state. A state that is the present one already is not written again.
    ///
    /// *Errors*: it could not be written; the state is then what it was. *Durability*: it survives power loss.
    pub fn commit(&self, next: State) -> Result<(), Refusal> {
        let (version, unchanged) = {
            let current = self.current();
            (current.version + 1, *current.state == next)
        };
        if unchanged { Ok(()) } else { self.write_version(version, next) }
    }

    /// Who saw what, with the version and the time since when it was so; oldest first.
    ///
    /// *Errors*: the file cannot be read.
    pub(crate) fn configs(&self) -> Result<Vec<(u64, Timestamp, State)>, Refusal> {
        let rows = |database: &Database| {
            let table = match database.begin_read()?.open_table(CONFIGS) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            table
                .iter()?
                .map(|row| row.map(|(version, json)| (version.value(), json.value().to_vec())).map_err(Into::into))
                .collect()
        };
        let rows: Vec<(u64, Vec<u8>)> =
            self.current().attempt(&self.path, rows).map_err(|e| damaged(&self.path, &e))?;
        let config = |(version, json): (u64, Vec<u8>)| {
            let mut config: Config = serde_json::from_slice(&json).map_err(|e| damaged(&self.path, &e))?;
            self.vault.open(&mut config.state)?;
            let state = serde_json::from_value(config.state).map_err(|e| damaged(&self.path, &e))?;
            Ok((version, config.time, state))
        };
        rows.into_iter().map(config).collect()
    }

    /// The versions that are kept, oldest first.
    ///
    /// *Errors*: the file cannot be read.
    pub fn versions(&self) -> Result<Vec<u64>, Refusal> {
        let keys = |database: &Database| {
            let table = database.begin_read()?.open_table(VERSIONS)?;
            table.iter()?.map(|row| Ok(row?.0.value())).collect()
        };
        self.current().attempt(&self.path, keys).map_err(|e| damaged(&self.path, &e))
    }

    /// The events that are kept, oldest first. One that a later version wrote in another form is passed over.
    ///
    /// *Errors*: the file cannot be read.
    pub(crate) fn events(&self) -> Result<Vec<Event>, Refusal> {
        let rows = |database: &Database| {
            let table = match database.begin_read()?.open_table(EVENTS) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let rows = table.iter()?.map(|row| Ok(serde_json::from_slice(row?.1.value()).ok()));
            rows.filter_map(Result::transpose).collect()
        };
        self.current().attempt(&self.path, rows).map_err(|e| damaged(&self.path, &e))
    }

    /// These events are kept, in the place of those with the same numbers, and none before `oldest`.
    ///
    /// *Errors*: it could not be written. *Durability*: it survives power loss.
    pub(crate) fn keep_events(&self, events: &[Event], oldest: u64) -> Result<(), Refusal> {
        let rows: Result<Vec<_>, _> =
            events.iter().map(|event| serde_json::to_vec(event).map(|json| (event.number, json))).collect();
        let rows = rows.map_err(|e| unwritable(&self.path, &e))?;
        let write = |database: &Database| {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(EVENTS)?;
                for (number, json) in &rows {
                    table.insert(number, json.as_slice())?;
                }
                table.retain_in(..oldest, |_, _| false)?;
            }
            Ok(transaction.commit()?)
        };
        self.current().attempt(&self.path, write).map_err(|e| unwritable(&self.path, &e))
    }

    fn write_version(&self, version: u64, next: State) -> Result<(), Refusal> {
        let mut json = serde_json::to_value(&next).map_err(|e| unwritable(&self.path, &e))?;
        self.vault.seal(&mut json)?;
        let json = serde_json::to_vec(&json).map_err(|e| unwritable(&self.path, &e))?;
        let config = self.config_of(&next)?;
        let mut current = self.current();
        let written = current.attempt(&self.path, |database| write(database, version, &json, config.as_deref()));
        written.map_err(|e| unwritable(&self.path, &e))?;
        (current.version, current.state) = (version, Arc::new(next));
        Ok(())
    }

    /// Who sees what in the next state, as it is kept, when that is another than now.
    fn config_of(&self, next: &State) -> Result<Option<Vec<u8>>, Refusal> {
        let part = next.access_part();
        if part == self.current().state.access_part() {
            return Ok(None);
        }
        let mut state = serde_json::to_value(part).map_err(|e| unwritable(&self.path, &e))?;
        self.vault.seal(&mut state)?;
        let config = Config { time: crate::steward::now(), state };
        serde_json::to_vec(&config).map(Some).map_err(|e| unwritable(&self.path, &e))
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// Does `work` with the file, which is opened anew where it is closed.
    ///
    /// *Errors*: what `work` says; the file is closed then.
    fn attempt<R>(
        &mut self,
        path: &Path,
        work: impl FnOnce(&Database) -> Result<R, redb::Error>,
    ) -> Result<R, redb::Error> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen(path)?,
        };
        let done = work(&database)?;
        self.database = Some(database);
        Ok(done)
    }

    /// A commit that failed may stand in the file all the same; whoever asked for it was told that it does not.
    fn reopen(&self, path: &Path) -> Result<Database, redb::Error> {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create_file(open_private(path)?)?;
        let transaction = database.begin_write()?;
        transaction.open_table(VERSIONS)?.retain_in(self.version + 1.., |_, _| false)?;
        transaction.open_table(CONFIGS)?.retain_in(self.version + 1.., |_, _| false)?;
        transaction.commit()?;
        tracing::info!(path = %path.display(), version = self.version, "the state can be written again");
        Ok(database)
    }
}

/// What only this daemon can have: its boot of the machine, and the file there that it holds the lock of. Where nobody tells
/// which boot it is, a new one each time.
fn seat(path: &Path) -> Result<[u8; 16], Refusal> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let boot = boot.and_then(|text| text.trim().parse::<NodeId>().ok());
    let (Some(boot), Ok(file)) = (boot, fs::metadata(path)) else { return random() };
    let mut seat = boot.to_bytes();
    let place = file.dev().to_le_bytes().into_iter().chain(file.ino().to_le_bytes());
    seat.iter_mut().zip(place).for_each(|(byte, of_file)| *byte ^= of_file);
    Ok(seat)
}

/// Opens or makes a file that its owner alone may read, also one that was made otherwise.
fn open_private(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// The names in `dir` survive power loss.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

fn open_database(file: File, path: &Path) -> Result<Database, Refusal> {
    Builder::new().set_cache_size(CACHE_BYTES).create_file(file).map_err(|e| unopened(path, &e))
}

/// Who saw what since a time; secrets are sealed.
#[derive(Serialize, Deserialize)]
struct Config {
    time: Timestamp,
    state: Value,
}

/// What a database holds.
struct Stored {
    /// The form of it, when anything was ever written.
    schema: Option<u64>,
    /// The number of the latest version; 0 when there is none.
    version: u64,
    /// The latest version, as it is written; null when there is none.
    state: Value,
}

fn read(database: &Database, path: &Path) -> Result<Stored, Refusal> {
    let rows = || -> Result<_, redb::Error> {
        let transaction = database.begin_read()?;
        let schema = match transaction.open_table(META) {
            Ok(meta) => meta.get("schema")?.map(|schema| schema.value()),
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(other) => return Err(other.into()),
        };
        let latest = match transaction.open_table(VERSIONS) {
            Ok(versions) => versions.last()?.map(|(version, json)| (version.value(), json.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(other) => return Err(other.into()),
        };
        Ok((schema, latest))
    };
    let (schema, latest) = rows().map_err(|e| damaged(path, &e))?;
    if let Some(newer) = schema.filter(|schema| *schema > SCHEMA) {
        return Err(Refusal::new(
            code::STATE_NEWER,
            format!("{} has form {newer} and this version knows {SCHEMA}", path.display()),
            "start the version that wrote it, or a newer one",
        ));
    }
    let Some((version, json)) = latest else { return Ok(Stored { schema, version: 0, state: Value::Null }) };
    let state = serde_json::from_slice(&json).map_err(|e| damaged(path, &e))?;
    Ok(Stored { schema, version, state })
}

/// The state, as JSON whose secrets are sealed, is the version.
fn write(database: &Database, version: u64, json: &[u8], config: Option<&[u8]>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(META)?.insert("schema", SCHEMA)?;
        let mut versions = transaction.open_table(VERSIONS)?;
        versions.insert(version, json)?;
        versions.retain_in(..(version + 1).saturating_sub(VERSIONS_KEPT), |_, _| false)?;
        if let Some(config) = config {
            let mut configs = transaction.open_table(CONFIGS)?;
            configs.insert(version, config)?;
            let oldest = configs.iter()?.rev().nth(CONFIGS_KEPT - 1).transpose()?.map(|(version, _)| version.value());
            configs.retain_in(..oldest.unwrap_or(0), |_, _| false)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn key_missing(path: &Path, sealed_with: &BTreeSet<String>) -> Refusal {
    let keys: Vec<&str> = sealed_with.iter().map(String::as_str).collect();
    Refusal::new(
        code::KEY_MISSING,
        format!("the secrets are sealed with key {}, and there is no {}", keys.join(", "), path.display()),
        "put it back, name it with key_file, or start once with --forget-secrets and set new CHAP secrets",
    )
}

fn unopened(path: &Path, error: &DatabaseError) -> Refusal {
    match error {
        DatabaseError::DatabaseAlreadyOpen => Refusal::new(
            code::STATE_LOCKED,
            format!("another daemon uses {}", path.display()),
            "stop it first, or give this one its own --state-dir",
        ),
        other => damaged(path, other),
    }
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::STATE_DAMAGED,
        format!("{} cannot be read as a state: {error}", path.display()),
        "put back a copy of it, or move it away and add the disks again: pools are found on their disks",
    )
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::STATE_UNWRITABLE,
        format!("{} cannot be written: {error}", path.display()),
        "make room or give the daemon the right to write there",
    )
}

#[cfg(test)]
mod tests;
