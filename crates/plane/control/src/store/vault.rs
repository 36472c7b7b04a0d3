//! Secrets at rest: each is sealed by itself with the node's key, which lies in a file of its own.
//!
//! In the JSON of a state a secret is the one string under the key `secret`: hexadecimal while the state is in memory,
//! `sealed:KEY:NONCE:BOX` on disk. The place of the secret in the state is authenticated with it, so that one
//! cannot be moved to another host.

use crate::request::{from_hex, to_hex};
use crate::system::random;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use model::{Refusal, Secret, code};
use serde_json::Value;
use sha3::{Digest, Sha3_256};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::{Zeroize, Zeroizing};

/// What the line of a key file begins with.
const MAGIC: &str = "blockyard-node-key-1";
/// What a sealed secret begins with. No hexadecimal text does.
const SEALED: &str = "sealed:";
/// What is hashed before the node's key for what the keys of pools are made of.
const FOR_POOLS: &[u8] = b"blockyard node key, for pools\0";
/// And before it for what tells it from another one.
const FOR_CHECK: &[u8] = b"blockyard node key, its check\0";
/// More than a key file has.
const FILE_BYTES_MAX: u64 = 256;

/// The node's key.
pub(crate) struct Vault {
    /// Which key it is, for people: no part of the key.
    id: String,
    key: Secret,
    /// What the keys of pools are made of.
    pools: Secret,
    /// What tells it from another key of this ID: 32 bits of a hash.
    check: String,
    path: PathBuf,
}

impl Vault {
    /// The key that the file holds; none when there is no file.
    ///
    /// *Errors*: it is no key, others than its owner can read it, or the operating system refuses.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>, Refusal> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| unusable(path, &error))?,
        };
        let mode = file.metadata().map_err(|error| unusable(path, &error))?.mode();
        if mode & 0o077 != 0 {
            let message = format!("the key {} can be read by others than its owner", path.display());
            let hint = format!("chmod 600 {}, and set new CHAP secrets if somebody has read it", path.display());
            return Err(Refusal::new(code::KEY_UNUSABLE, message, hint));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| unusable(path, &error))?;
        Self::parse(&text, path).ok_or_else(|| unusable(path, &"it is cut short or no key")).map(Some)
    }

    /// The key that the text of a key file is.
    pub(crate) fn parse(text: &str, path: &Path) -> Option<Self> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [MAGIC, id, key] = parts[..] else { return None };
        Self::of(id.to_owned(), &Zeroizing::new(from_hex(key)?), path)
    }

    /// A new key is in the file, where none was. *Durability*: it survives power loss.
    ///
    /// *Errors*: there is one, or it cannot be written.
    pub(crate) fn make(path: &Path) -> Result<Self, Refusal> {
        let (id, key) = (to_hex(&random::<4>()?), Zeroizing::new(random::<32>()?));
        let line = Zeroizing::new(format!("{MAGIC} {id} {}\n", *Zeroizing::new(to_hex(key.as_slice()))));
        let write = || -> std::io::Result<()> {
            // Whole or not there: half a key would keep the daemon from starting.
            let beside = path.with_extension("new");
            let _ = std::fs::remove_file(&beside);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()?;
            std::fs::hard_link(&beside, path)?;
            std::fs::remove_file(&beside)?;
            super::sync_dir(path.parent().unwrap_or(Path::new("/")))
        };
        write().map_err(|error| unusable(path, &error))?;
        Ok(Self::of(id, key.as_slice(), path).expect("the key has the cipher's length"))
    }

    /// None for a key of another length.
    pub(crate) fn of(id: String, key: &[u8], path: &Path) -> Option<Self> {
        XChaCha20Poly1305::new_from_slice(key).ok()?;
        let pools = Sha3_256::new().chain_update(FOR_POOLS).chain_update(key).finalize();
        let check = Sha3_256::new().chain_update(FOR_CHECK).chain_update(key).finalize();
        let check = to_hex(check.first_chunk::<4>()?);
        Some(Self {
            id,
            key: Secret::of(key.to_vec()),
            pools: Secret::of(pools.to_vec()),
            check,
            path: path.to_owned(),
        })
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new_from_slice(self.key.expose()).expect("its length was looked at")
    }

    /// Which key it is, for people: no part of the key.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The file that holds it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the keys of pools are made of: says nothing about the node's key, and is the same every time.
    pub(crate) fn pools(&self) -> &Secret {
        &self.pools
    }

    /// What tells the key from another one of its ID.
    pub(crate) fn check(&self) -> &str {
        &self.check
    }

    /// No secret of the state can be read in it any more.
    ///
    /// *Errors*: the system gives nothing that nobody can predict.
    pub(crate) fn seal(&self, state: &mut Value) -> Result<(), Refusal> {
        each_secret(state, &mut |place, text| {
            if text.starts_with(SEALED) {
                return Ok(());
            }
            let nonce = random::<24>()?;
            let payload = Payload { msg: text.as_bytes(), aad: place.as_bytes() };
            let sealed = self.cipher().encrypt(&nonce.into(), payload).expect("a secret is short");
            text.zeroize();
            *text = format!("{SEALED}{}:{}:{}", self.id, to_hex(&nonce), to_hex(&sealed));
            Ok(())
        })
    }

    /// All secrets are there in plain. Those that cannot be opened are forgotten, where that is asked for.
    ///
    /// *Errors*: one was sealed with another key, or is not what was sealed there; or the system gives no random numbers.
    pub(crate) fn open_all(&self, state: &mut Value, forget: bool) -> Result<(), Refusal> {
        if !forget {
            return self.open(state);
        }
        for place in self.forget(state)? {
            tracing::warn!(%place, "its secret is forgotten; set a new one");
        }
        Ok(())
    }

    /// All secrets of the state are there in plain.
    ///
    /// *Errors*: one was sealed with another key, or is not what was sealed there.
    pub(crate) fn open(&self, state: &mut Value) -> Result<(), Refusal> {
        each_secret(state, &mut |place, text| self.open_one(place, text))
    }

    fn open_one(&self, place: &str, text: &mut String) -> Result<(), Refusal> {
        let Some(sealed) = text.strip_prefix(SEALED) else { return Ok(()) };
        let mut parts = sealed.splitn(3, ':');
        let (id, nonce, sealed) = (parts.next(), parts.next().and_then(from_hex), parts.next().and_then(from_hex));
        if id.is_some_and(|id| id != self.id) {
            return Err(wrong(&self.id, id.unwrap_or_default(), &self.path));
        }
        let opened = nonce.zip(sealed).and_then(|(nonce, sealed)| {
            let nonce: [u8; 24] = nonce.try_into().ok()?;
            let payload = Payload { msg: &sealed, aad: place.as_bytes() };
            String::from_utf8(self.cipher().decrypt(&nonce.into(), payload).ok()?).ok()
        });
        *text = opened.ok_or_else(|| {
            let message = format!("the secret of {place} is not as it was sealed there");
            let hint = "put back a copy of the state, or start once with --forget-secrets and set new ones";
            Refusal::new(code::KEY_WRONG, message, hint)
        })?;
        Ok(())
    }

    /// Each secret that cannot be opened is one that nobody knows: whoever should prove it stays outside until it is set anew.
    /// These are their places.
    ///
    /// *Errors*: the system gives nothing that nobody can predict.
    pub(crate) fn forget(&self, state: &mut Value) -> Result<Vec<String>, Refusal> {
        let mut forgotten = Vec::new();
        each_secret(state, &mut |place, text| {
            if self.open_one(place, text).is_err() {
                *text = to_hex(&random::<32>()?);
                forgotten.push(place.to_owned());
            }
            Ok(())
        })?;
        Ok(forgotten)
    }
}

/// The keys that secrets of the state are sealed with.
pub(crate) fn keys_of(state: &mut Value) -> Result<BTreeSet<String>, Refusal> {
    let mut keys = BTreeSet::new();
    each_secret(state, &mut |_, text| {
        keys.extend(text.strip_prefix(SEALED).and_then(|sealed| sealed.split(':').next()).map(str::to_owned));
        Ok(())
    })?;
    Ok(keys)
}

/// Shows each secret of the state and its place, such as `hosts/web/chap`. Names are keys of objects, too, but never of strings.
fn each_secret(
    state: &mut Value,
    act: &mut dyn FnMut(&str, &mut String) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    fn walk(
        value: &mut Value,
        place: &str,
        act: &mut dyn FnMut(&str, &mut String) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Value::Object(object) = value else { return Ok(()) };
        for (key, inner) in object {
            match inner {
                Value::String(text) if key == "secret" => act(place, text)?,
                inner if place.is_empty() => walk(inner, key, act)?,
                inner => walk(inner, &format!("{place}/{key}"), act)?,
            }
        }
        Ok(())
    }
    walk(state, "", act)
}

/// The file holds another key than the one that is wanted.
pub(crate) fn wrong(id: &str, wanted: &str, path: &Path) -> Refusal {
    Refusal::new(
        code::KEY_WRONG,
        format!("this array needs the key {wanted}, and {} holds the key {id}", path.display()),
        format!(
            "put the key {wanted} back there, or start once with --forget-secrets: CHAP secrets must be set anew, and encrypted volumes need their pool key"
        ),
    )
}

/// The file holds another key than the one that the state was written with, though it has its ID.
pub(crate) fn changed(path: &Path) -> Refusal {
    unusable(
        path,
        &"it is not the key that the state was written with, though it has its ID: some of its digits have changed",
    )
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::KEY_UNUSABLE,
        format!("the key {} cannot be used: {why}", path.display()),
        "put back a copy of it; without one, move it away and start once with --forget-secrets: CHAP secrets must be set anew",
    )
}
