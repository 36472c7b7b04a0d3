//! The desired state, kept.
//!
//! Each version of the state is one file with a checksum of its own ([`sheet`]), and so is each version of the documents that are kept
//! beside it and each run of events. A state of the largest array is some megabytes, so a change writes it whole: what is read back is one
//! value that once was true, never a mixture, and never one that a disk has changed. Where the latest version is damaged, an
//! older one is served and the store is [held](hold): nothing is written until an operator has accepted it.

mod documents;
mod events;
mod folder;
mod hold;
mod read;
pub mod recover;
pub(crate) mod sheet;
pub(crate) mod vault;

pub use hold::StateReport;
pub use sheet::AuditHead;

use crate::State;
use crate::machine_id;
use crate::system::random;
use documents::Documents;
pub(crate) use folder::sync_dir;
use folder::{Folder, Found};
use model::{EventCode, Name, NodeId, NodeIdentity, Refusal, Secret, Timestamp, code};
use serde_json::Value;
use sheet::{FORMAT, Header};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vault::Vault;

/// How many versions of the state are kept, the present one among them.
pub(crate) const VERSIONS_KEPT: usize = 32;

/// How many versions are kept after which hosts could see something else.
const CONFIGS_KEPT: usize = 20;

/// The name of the state's files.
const STATE: &str = "state";

/// The name of the key's file in the state directory, unless it is elsewhere.
const KEY_FILE: &str = "node.key";

/// The folder of the audit in the state directory: where it is, an array was.
const AUDIT: &str = "audit";

/// How a state is opened.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// The file of the key that secrets are sealed with; `node.key` in the state directory when absent.
    pub key: Option<PathBuf>,
    /// Secrets that the key cannot open are replaced by random ones: hosts that authenticate stay outside until theirs is set anew.
    pub forget_secrets: bool,
    /// An empty state is begun even where a key or an audit shows that there was one.
    pub new: bool,
}

/// The state in its folder. While it lives no other daemon can open the same folder.
pub struct Store {
    folder: Folder,
    vault: Vault,
    forget: bool,
    /// Where a state was begun by this opening without being asked for: the key that was made for it, if one was.
    begun: Option<Option<PathBuf>>,
    current: Mutex<Current>,
}

/// What is in the folder, and in memory.
struct Current {
    /// The number of the version that `state` is.
    version: u64,
    state: Arc<State>,
    /// The versions in files, with when each was written and whether hosts may see something else by it.
    kept: BTreeMap<u64, (Timestamp, bool)>,
    documents: Documents,
    /// The last record of the audit that is known.
    audit: AuditHead,
    hold: Option<hold::Hold>,
    /// What opening has found.
    findings: Vec<(EventCode, String)>,
}

impl Store {
    /// The state of `dir` is read, and nobody else can open it until this is dropped. Its secrets are sealed with the key in
    /// `node.key` there.
    ///
    /// A directory that is not there is made, readable by its owner alone.
    ///
    /// *Errors*: as [`Store::open_with`].
    pub fn open(dir: &Path) -> Result<Self, Refusal> {
        Self::open_with(dir, &Opening::default())
    }

    /// As [`Store::open`], with choices.
    ///
    /// *Errors*: another daemon has it, a newer version wrote it, no version of it is whole, there was one and it is gone, its key is
    /// missing or another one, or the operating system refuses.
    pub fn open_with(dir: &Path, opening: &Opening) -> Result<Self, Refusal> {
        let folder = Folder::open(dir)?;
        let read = read::all(&folder)?;
        let key_path = opening.key.clone().unwrap_or_else(|| dir.join(KEY_FILE));
        if read.is_empty() && !opening.new {
            refuse_where_one_was(dir, &key_path)?;
        }
        let made = !key_path.exists();
        let vault = load_key(&key_path, &read, opening)?;
        let mut value = read.state.clone();
        vault.open_all(&mut value, opening.forget_secrets)?;
        let state = match value {
            Value::Null => State::default(),
            value => serde_json::from_value(value).map_err(|error| damaged(dir, &error))?,
        };
        let hold = read.hold();
        let current = Current {
            version: read.version,
            state: Arc::new(state),
            kept: read.kept,
            documents: read.documents,
            audit: read.audit,
            hold,
            findings: read.findings,
        };
        let is_new = current.version == 0;
        let begun = is_new.then(|| made.then_some(key_path));
        let store = Self { folder, vault, forget: opening.forget_secrets, begun, current: Mutex::new(current) };
        if is_new {
            store.write_version(State::default()).inspect_err(|_| store.abandon())?;
            return Ok(Self { begun: store.begun.filter(|_| !opening.new), ..store });
        }
        if opening.forget_secrets && !store.serves_older() {
            store.write_version(State::clone(&store.state()))?;
            store.rewrite_documents(&[])?;
        }
        Ok(store)
    }

    /// True where this opening has begun an empty state without being told to.
    pub(crate) fn was_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// An empty state that was begun by this opening is gone, and the key that was made for it: left alone they would be taken for
    /// an array that is here.
    pub(crate) fn abandon(&self) {
        let Some(key) = &self.begun else { return };
        self.folder.clear();
        if let Some(Err(error)) = key.as_ref().map(fs::remove_file) {
            tracing::warn!(%error, "the new key stays");
        }
    }

    /// The identity of the node `name`: the same from the first start in this directory on.
    ///
    /// *Errors*: the first time it cannot be written, or the system gives no random numbers.
    pub fn identity(&self, name: &Name) -> Result<NodeIdentity, Refusal> {
        let mut next = State::clone(&self.state());
        let id = match next.node {
            Some(id) => id,
            None => NodeId::from_random(random()?),
        };
        next.node = Some(id);
        self.commit(next)?;
        Ok(NodeIdentity { id, name: name.clone(), seat: self.seat()?, machine: machine_id::read() })
    }

    /// The file of the node's key.
    pub(crate) fn key_path(&self) -> &Path {
        self.vault.path()
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
    /// *Errors*: it could not be written; the state is then what it was. *Durability*: it survives power loss, except while the
    /// store is held: then it is so in memory alone.
    pub fn commit(&self, next: State) -> Result<(), Refusal> {
        let mut current = self.current();
        if *current.state == next {
            return Ok(());
        }
        if current.hold.is_some() {
            current.state = Arc::new(next);
            return Ok(());
        }
        drop(current);
        self.write_version(next)
    }

    /// The versions after which hosts could see something else, with their time; oldest first.
    pub(crate) fn configs(&self) -> Vec<(u64, Timestamp)> {
        self.current().configs()
    }

    /// The state of a version that is kept; none where its file is damaged. One at a time: each holds all secrets.
    ///
    /// *Errors*: it cannot be read, or was sealed with another key.
    pub(crate) fn config(&self, number: u64) -> Result<Option<State>, Refusal> {
        let Found::Whole(_, body) = self.folder.read(STATE, number)? else {
            tracing::warn!(version = number, "a kept version of the state is damaged");
            return Ok(None);
        };
        let mut value = serde_json::from_slice(&body).map_err(|error| damaged(self.folder.path(), &error))?;
        self.vault.open(&mut value)?;
        serde_json::from_value(value).map(Some).map_err(|error| damaged(self.folder.path(), &error))
    }

    /// The versions that are kept, oldest first.
    #[must_use]
    pub fn versions(&self) -> Vec<u64> {
        self.current().kept.keys().copied().collect()
    }

    /// What opening has found that somebody must hear of, once.
    pub(crate) fn take_findings(&self) -> Vec<(EventCode, String)> {
        std::mem::take(&mut self.current().findings)
    }

    /// The last record of the audit that any file of the state tells of.
    #[must_use]
    pub fn audit_head(&self) -> AuditHead {
        self.current().audit.clone()
    }

    /// The audit has this last record: whatever is written next tells of it.
    pub fn note_audit_head(&self, head: AuditHead) {
        self.current().audit = head;
    }

    fn write_version(&self, next: State) -> Result<(), Refusal> {
        let unwritten = |error: &serde_json::Error| unwritable(self.folder.path(), error);
        let mut value = serde_json::to_value(&next).map_err(|error| unwritten(&error))?;
        self.vault.seal(&mut value)?;
        let body = serde_json::to_vec(&value).map_err(|error| unwritten(&error))?;
        let mut current = self.current();
        let access = next.access_part() != current.state.access_part();
        let version = current.version + 1;
        let header = Header { state: version, access, ..self.header(&current, STATE, version) };
        self.folder.write(&header, &body)?;
        (current.version, current.state) = (version, Arc::new(next));
        current.kept.insert(version, (header.time, access));
        for old in current.surplus() {
            self.folder.remove(STATE, old);
            current.kept.remove(&old);
        }
        Ok(())
    }

    fn header(&self, current: &Current, name: &str, number: u64) -> Header {
        Header {
            format: FORMAT,
            name: name.to_owned(),
            number,
            time: crate::system::now(),
            node: current.state.node.map(|node| node.to_string()).unwrap_or_default(),
            key: self.vault.id().to_owned(),
            state: current.version,
            audit: current.audit.clone(),
            access: false,
            documents: current.documents.numbers(),
            key_check: self.vault.check().to_owned(),
        }
    }

    /// What only this daemon can have: its boot of the machine, and the lock that it holds there. Where nobody tells which boot
    /// it is, a new one each time.
    fn seat(&self) -> Result<[u8; 16], Refusal> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let Some(boot) = boot.and_then(|text| text.trim().parse::<NodeId>().ok()) else { return random() };
        let (device, inode) = self.folder.lock_identity();
        let mut seat = boot.to_bytes();
        let place = device.to_le_bytes().into_iter().chain(inode.to_le_bytes());
        seat.iter_mut().zip(place).for_each(|(byte, of_file)| *byte ^= of_file);
        Ok(seat)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// The latest versions after which hosts could see something else, oldest first.
    fn configs(&self) -> Vec<(u64, Timestamp)> {
        let access = self.kept.iter().rev().filter(|(_, (_, access))| *access).take(CONFIGS_KEPT);
        let mut configs: Vec<_> = access.map(|(number, (time, _))| (*number, *time)).collect();
        configs.reverse();
        configs
    }

    /// Versions that are kept no longer.
    fn surplus(&self) -> Vec<u64> {
        let configs: BTreeSet<u64> = self.configs().into_iter().map(|(number, _)| number).collect();
        let old = self.kept.keys().rev().skip(VERSIONS_KEPT);
        old.filter(|number| !configs.contains(number)).copied().collect()
    }
}

/// Refuses to begin an empty state where there was one.
fn refuse_where_one_was(dir: &Path, key: &Path) -> Result<(), Refusal> {
    let audit = dir.join(AUDIT);
    let has_records = fs::read_dir(&audit).is_ok_and(|mut entries| entries.next().is_some());
    let left = if has_records { &audit } else { key };
    let has_key = key.starts_with(dir) && key.exists();
    if !has_records && !has_key {
        return Ok(());
    }
    Err(Refusal::new(
        code::STATE_GONE,
        format!("{} has no state, but {} shows that there was one", dir.display(), left.display()),
        "put back the folder state from a backup, or take a copy from the pools' disks with blockyard state recover; to begin an empty array, start once with --new",
    ))
}

/// The key that the state names; a new one only for a state that is new.
fn load_key(path: &Path, read: &read::Read, opening: &Opening) -> Result<Vault, Refusal> {
    let mut known = vault::keys_of(&mut read.state.clone())?;
    known.extend(read.keys.iter().cloned());
    match Vault::load(path).map_err(|refusal| naming(refusal, &known))? {
        Some(vault) if opening.forget_secrets => Ok(vault),
        Some(vault) if known.contains(vault.id()) && !read.is_key(vault.id(), vault.check()) => {
            Err(naming(vault::changed(path), &known))
        }
        Some(vault) if known.is_empty() || known.contains(vault.id()) => Ok(vault),
        Some(vault) => Err(vault::wrong(vault.id(), &listed(&known), path)),
        None if known.is_empty() || opening.forget_secrets => Vault::make(path),
        None => Err(Refusal::new(
            code::KEY_MISSING,
            format!("the key {} of this array is not at {}", listed(&known), path.display()),
            format!(
                "put node.key with the ID {} back there, or name its place with key_file; if it is lost, start once with --forget-secrets: CHAP secrets must be set anew, and encrypted volumes need their pool key",
                listed(&known)
            ),
        )),
    }
}

/// The refusal, which says as well which key is wanted.
fn naming(refusal: Refusal, known: &BTreeSet<String>) -> Refusal {
    if known.is_empty() {
        return refusal;
    }
    Refusal { message: format!("{}; this array needs the key {}", refusal.message, listed(known)), ..refusal }
}

fn listed(keys: &BTreeSet<String>) -> String {
    keys.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn locked(dir: &Path) -> Refusal {
    let message = format!("another daemon uses {}", dir.display());
    Refusal::new(code::STATE_LOCKED, message, "stop it first, or give this one its own --state-dir")
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::STATE_DAMAGED,
        format!("{} cannot be read as a state: {error}", path.display()),
        "put back a backup of the folder state, or take a copy from the pools' disks with blockyard state recover",
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
