//! Durable store of the desired state.
//!
//! Each version of the state is one file with a checksum of its own ([`file_format`]), and so is each version of the
//! documents beside it and each run of events. A state of the largest array is some megabytes, so a change
//! writes it whole: a read returns one value that was the state at one instant, never a mixture, and never one
//! that a disk has corrupted. Where the latest version is damaged, an older one is served and the store is
//! [held](hold): nothing is written until an operator has accepted it.
//!
//! [`Core`](crate::Core) commits through it under the change lock. It must never serve content whose checksum
//! does not match.

mod documents;
mod events;
pub(crate) mod file_format;
mod folder;
mod hold;
pub(crate) mod node_key;
mod read;
pub mod recover;

pub use file_format::AuditHead;
pub use hold::StateReport;

use crate::State;
use crate::machine_id;
use crate::system::random;
use documents::Documents;
use file_format::{FORMAT, Header};
pub(crate) use folder::sync_dir;
use folder::{Folder, ReadResult};
use model::{EventCode, Name, NodeId, NodeIdentity, Refusal, Secret, Timestamp, code};
use node_key::NodeKey;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of state versions kept, the current one included.
pub(crate) const VERSIONS_KEPT: usize = 32;

/// Number of versions kept that changed the access of hosts (restore points).
const RESTORE_POINTS_KEPT: usize = 20;

/// Name of the files of the state.
const STATE: &str = "state";

/// Default file name of the node key in the state directory.
const KEY_FILE: &str = "node.key";

/// Folder of the audit log in the state directory; its presence proves that an array existed here.
const AUDIT: &str = "audit";

/// Options for opening the state.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Path of the key file that secrets are sealed with; `node.key` in the state directory when absent.
    pub key: Option<PathBuf>,
    /// Replaces secrets that the key cannot open by random ones; hosts that authenticate are denied until new
    /// secrets are set.
    pub forget_secrets: bool,
    /// Creates an empty state even where a key or an audit log shows that there was one.
    pub new: bool,
}

/// Store of the state in its folder. While it lives no other daemon can open the same folder.
pub struct Store {
    folder: Folder,
    node_key: NodeKey,
    forget: bool,
    /// Set where this opening created a state without being told to; the inner path is the key that was made
    /// with it, if any.
    begun: Option<Option<PathBuf>>,
    current: Mutex<Current>,
}

/// Index of the folder, and the current state in memory.
struct Current {
    /// Version number of `state`.
    version: u64,
    state: Arc<State>,
    /// State versions on disk: write time, and whether the version changed the access of hosts.
    kept: BTreeMap<u64, (Timestamp, bool)>,
    documents: Documents,
    /// The last known record of the audit log.
    audit: AuditHead,
    hold: Option<hold::WriteHold>,
    /// Findings of the opening, not yet raised as events.
    findings: Vec<(EventCode, String)>,
}

impl Store {
    /// Reads the state of `dir` and locks the folder until the store is dropped. Secrets are sealed with the
    /// key in `node.key` there.
    ///
    /// A missing directory is created, readable by its owner alone.
    ///
    /// *Errors*: as [`Store::open_with`].
    pub fn open(dir: &Path) -> Result<Self, Refusal> {
        Self::open_with(dir, &StoreOptions::default())
    }

    /// Opens the state as [`Store::open`] does, with options.
    ///
    /// *Errors*: another daemon holds the folder, a newer version wrote it, no version of it is whole, there
    /// was a state and it is gone, its key is missing or differs, or the operating system refuses.
    pub fn open_with(dir: &Path, opening: &StoreOptions) -> Result<Self, Refusal> {
        let folder = Folder::open(dir)?;
        let read = read::all(&folder)?;
        let key_path = opening.key.clone().unwrap_or_else(|| dir.join(KEY_FILE));
        if read.is_empty() && !opening.new {
            refuse_lost_state(dir, &key_path)?;
        }
        // Taken before the key is loaded, because loading creates a missing one.
        let made = !key_path.exists();
        // The key is compared with the IDs and check values in the headers before any secret is opened with it.
        let vault = load_key(&key_path, &read, opening)?;
        let mut value = read.state.clone();
        vault.open_all(&mut value, opening.forget_secrets)?;
        let state = match value {
            Value::Null => State::default(),
            value => serde_json::from_value(value).map_err(|error| damaged(dir, &error))?,
        };
        // The version in memory may be older than the latest that files name; the hold blocks every write until
        // that is accepted.
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
        // Version 0 means that no file of the state was found.
        let is_new = current.version == 0;
        // A key file that existed before is not remembered here, and so never removed.
        let begun = is_new.then(|| made.then_some(key_path));
        let store =
            Self { folder, node_key: vault, forget: opening.forget_secrets, begun, current: Mutex::new(current) };
        if is_new {
            // A half-made empty state would be taken for an existing array at the next start.
            store.write_version(State::default()).inspect_err(|_| store.abandon())?;
            // An array that was asked for with `new` is not to be abandoned because of pools on this machine.
            return Ok(Self { begun: store.begun.filter(|_| !opening.new), ..store });
        }
        // After secrets were replaced, the new ones must survive a restart. A store that serves an older
        // version may not be written.
        if opening.forget_secrets && !store.serves_older() {
            store.write_version(State::clone(&store.state()))?;
            store.rewrite_documents(&[])?;
        }
        Ok(store)
    }

    /// Returns true where this opening created an empty state without being told to.
    pub(crate) fn was_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Removes an empty state that this opening created, and the key that was made for it. Left in place, they
    /// would be taken for an existing array.
    pub(crate) fn abandon(&self) {
        let Some(key) = &self.begun else { return };
        self.folder.clear();
        if let Some(Err(error)) = key.as_ref().map(fs::remove_file) {
            tracing::warn!(%error, "the new key stays");
        }
    }

    /// Returns the identity of the node `name`, which is the same from the first start in this directory on.
    ///
    /// *Errors*: at the first start, it cannot be written, or the system gives no random numbers.
    pub fn identity(&self, name: &Name) -> Result<NodeIdentity, Refusal> {
        let mut next = State::clone(&self.state());
        let id = match next.node {
            Some(id) => id,
            None => NodeId::from_random(random()?),
        };
        next.node = Some(id);
        // From the second start on nothing differs, and so nothing is written.
        self.commit(next)?;
        Ok(NodeIdentity { id, name: name.clone(), boot_instance: self.boot_instance()?, machine: machine_id::read() })
    }

    /// Returns the path of the node key.
    pub(crate) fn key_path(&self) -> &Path {
        self.node_key.path()
    }

    /// Returns the secret that pool keys are derived from; it changes only with the node key.
    #[must_use]
    pub fn pool_secret(&self) -> Secret {
        self.node_key.pools().clone()
    }

    /// Returns the state as committed last.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.current().state.clone()
    }

    /// Returns the number of the current version; 0 before the first commit.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.current().version
    }

    /// Makes `next` the current state. A state equal to the current one is not written again.
    ///
    /// *Errors*: it could not be written; the state is unchanged. *Durability*: it survives power loss, except
    /// while the store is held: then it changes in memory alone.
    pub fn commit(&self, next: State) -> Result<(), Refusal> {
        let mut current = self.current();
        // A change without effect must not use up a version and push out an older one.
        if *current.state == next {
            return Ok(());
        }
        // Held: the daemon still tracks disk paths and the like in memory, but must not write behind a lost
        // version.
        if current.hold.is_some() {
            current.state = Arc::new(next);
            return Ok(());
        }
        // `write_version` takes the lock itself.
        drop(current);
        self.write_version(next)
    }

    /// Returns the versions that changed the access of hosts, with their time, oldest first.
    pub(crate) fn restore_points(&self) -> Vec<(u64, Timestamp)> {
        self.current().restore_points()
    }

    /// Reads a kept version of the state; `None` where its file is damaged. Read one at a time: each holds all
    /// secrets.
    ///
    /// *Errors*: it cannot be read, or was sealed with another key.
    pub(crate) fn read_restore_point(&self, number: u64) -> Result<Option<State>, Refusal> {
        // Damage of an old version is only logged: the list of restore points leaves it out.
        let ReadResult::Whole(_, body) = self.folder.read(STATE, number)? else {
            tracing::warn!(version = number, "a kept version of the state is damaged");
            return Ok(None);
        };
        let mut value = serde_json::from_slice(&body).map_err(|error| damaged(self.folder.path(), &error))?;
        // Secrets are not given up here: a restore point that cannot be opened is an error.
        self.node_key.open(&mut value)?;
        serde_json::from_value(value).map(Some).map_err(|error| damaged(self.folder.path(), &error))
    }

    /// Returns the versions that are kept, oldest first.
    #[must_use]
    pub fn versions(&self) -> Vec<u64> {
        self.current().kept.keys().copied().collect()
    }

    /// Takes the findings of the opening, to be raised as events once.
    pub(crate) fn take_findings(&self) -> Vec<(EventCode, String)> {
        std::mem::take(&mut self.current().findings)
    }

    /// Returns the last audit record that any file of the state names.
    #[must_use]
    pub fn audit_head(&self) -> AuditHead {
        self.current().audit.clone()
    }

    /// Records the last audit record; every file that is written from now on names it.
    pub fn note_audit_head(&self, head: AuditHead) {
        self.current().audit = head;
    }

    fn write_version(&self, next: State) -> Result<(), Refusal> {
        let unwritten = |error: &serde_json::Error| unwritable(self.folder.path(), error);
        let mut value = serde_json::to_value(&next).map_err(|error| unwritten(&error))?;
        // Sealed in a JSON copy; the state in memory keeps its secrets in plain text.
        self.node_key.seal(&mut value)?;
        let body = serde_json::to_vec(&value).map_err(|error| unwritten(&error))?;
        // The lock is held across the write, so version numbers and the header's audit record cannot be
        // overtaken.
        let mut current = self.current();
        let access = next.access_part() != current.state.access_part();
        let version = current.version + 1;
        // The file names its own version as the latest, which it becomes by this write.
        let header = Header { state: version, access, ..self.header(&current, STATE, version) };
        self.folder.write(&header, &body)?;
        (current.version, current.state) = (version, Arc::new(next));
        current.kept.insert(version, (header.time, access));
        // Only after the new version is durable may an old one be removed.
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
            key: self.node_key.id().to_owned(),
            state: current.version,
            audit: current.audit.clone(),
            access: false,
            documents: current.documents.numbers(),
            key_check: self.node_key.check().to_owned(),
        }
    }

    /// Returns a token that is unique to this daemon: the boot ID of the machine, mixed with the identity of
    /// the lock file. Without a boot ID it is random, so it differs at each start.
    fn boot_instance(&self) -> Result<[u8; 16], Refusal> {
        // The boot ID changes with each boot, so the token is never one that was used before it.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let Some(boot) = boot.and_then(|text| text.trim().parse::<NodeId>().ok()) else { return random() };
        let (device, inode) = self.folder.lock_identity();
        // The lock file tells two daemons on one boot apart: its device and inode are unique while the lock is
        // held.
        let mut seat = boot.to_bytes();
        // Eight bytes each, so both together fill the token.
        let place = device.to_le_bytes().into_iter().chain(inode.to_le_bytes());
        seat.iter_mut().zip(place).for_each(|(byte, of_file)| *byte ^= of_file);
        Ok(seat)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// Returns the latest versions that changed the access of hosts, oldest first; at most [`RESTORE_POINTS_KEPT`].
    fn restore_points(&self) -> Vec<(u64, Timestamp)> {
        let access = self.kept.iter().rev().filter(|(_, (_, access))| *access).take(RESTORE_POINTS_KEPT);
        let mut configs: Vec<_> = access.map(|(number, (time, _))| (*number, *time)).collect();
        configs.reverse();
        configs
    }

    /// Returns the versions to delete: not among the latest [`VERSIONS_KEPT`], and no restore point.
    fn surplus(&self) -> Vec<u64> {
        let configs: BTreeSet<u64> = self.restore_points().into_iter().map(|(number, _)| number).collect();
        let old = self.kept.keys().rev().skip(VERSIONS_KEPT);
        old.filter(|number| !configs.contains(number)).copied().collect()
    }
}

/// Refuses to create an empty state where there was one.
fn refuse_lost_state(dir: &Path, key: &Path) -> Result<(), Refusal> {
    let audit = dir.join(AUDIT);
    // An empty folder proves nothing.
    let has_records = fs::read_dir(&audit).is_ok_and(|mut entries| entries.next().is_some());
    let left = if has_records { &audit } else { key };
    // A key that is configured elsewhere may have been put there in advance; only one inside the directory
    // proves an earlier state.
    let has_key = key.starts_with(dir) && key.exists();
    if !has_records && !has_key {
        return Ok(());
    }
    Err(Refusal::new(
        code::STATE_GONE,
        format!("{} has no state, but {} shows that there was one", dir.display(), left.display()),
        "restore the folder state from a backup, or recover a copy from the disks of pools with blockyard state \
         recover; to create an empty array, start once with --new",
    ))
}

/// Loads the key that the state names. A new key is created only for a new state, or where secrets are given
/// up.
fn load_key(path: &Path, read: &read::Read, opening: &StoreOptions) -> Result<NodeKey, Refusal> {
    // A clone, because the walk over the secrets is made to change them.
    let mut known = node_key::keys_of(&mut read.state.clone())?;
    // Headers name the key even where the state contains no secret.
    known.extend(read.keys.iter().cloned());
    match NodeKey::load(path).map_err(|refusal| naming(refusal, &known))? {
        // With the secrets given up, any key will do.
        Some(vault) if opening.forget_secrets => Ok(vault),
        // Same ID, other check value: a bit of the key file has flipped.
        Some(vault) if known.contains(vault.id()) && !read.is_key(vault.id(), vault.check()) => {
            Err(naming(node_key::changed(path), &known))
        }
        Some(vault) if known.is_empty() || known.contains(vault.id()) => Ok(vault),
        Some(vault) => Err(node_key::wrong(vault.id(), &listed(&known), path)),
        None if known.is_empty() || opening.forget_secrets => NodeKey::make(path),
        None => Err(Refusal::new(
            code::KEY_MISSING,
            format!("the key {} of this array is not at {}", listed(&known), path.display()),
            format!(
                "restore node.key with the ID {} there, or give its path with key_file; if it is lost, start once \
                 with --forget-secrets: CHAP secrets must be set again, and encrypted volumes need their pool key",
                listed(&known)
            ),
        )),
    }
}

/// Adds the ID of the required key to a refusal.
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
    Refusal::new(code::STATE_LOCKED, message, "stop it first, or use another --state-dir")
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::STATE_DAMAGED,
        format!("the state in {} cannot be read: {error}", path.display()),
        "restore the folder state from a backup, or recover a copy from the disks of pools with blockyard state \
         recover",
    )
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::STATE_UNWRITABLE,
        format!("{} cannot be written: {error}", path.display()),
        "free disk space, or give the daemon write permission there",
    )
}

#[cfg(test)]
mod tests;
