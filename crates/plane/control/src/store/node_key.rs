//! Secrets at rest: each is sealed separately with the node key, which lies in a file of its own.
//!
//! In the JSON of a state a secret is the one string under the key `secret`: hexadecimal while the state is in
//! memory, `sealed:KEY:NONCE:BOX` on disk. The seal authenticates the place of the secret in the state, so that
//! a secret cannot be moved to another host.

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

/// First word of a key file.
const MAGIC: &str = "blockyard-node-key-1";
/// Prefix of a sealed secret. No hexadecimal text begins with it.
const SEALED: &str = "sealed:";
/// Domain separator of the hash that pool keys are derived from.
const FOR_POOLS: &[u8] = b"blockyard node key, for pools\0";
/// Domain separator of the hash that the check value is taken from.
const FOR_CHECK: &[u8] = b"blockyard node key, its check\0";
/// Read limit of a key file, above its true length.
const FILE_BYTES_MAX: u64 = 256;

/// The node key, with the values derived from it.
pub(crate) struct NodeKey {
    /// Key ID for display; no part of the key.
    id: String,
    key: Secret,
    /// Secret that pool keys are derived from.
    pools: Secret,
    /// Check value: 32 bits of a hash that tell keys of one ID apart.
    check: String,
    path: PathBuf,
}

impl NodeKey {
    /// Loads the key from its file; `None` when there is no file.
    ///
    /// *Errors*: it is not a key, others than its owner can read it, or the operating system refuses.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>, Refusal> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| unusable(path, &error))?,
        };
        // Of the open file rather than of the path, which could be exchanged in between.
        let mode = file.metadata().map_err(|error| unusable(path, &error))?.mode();
        if mode & 0o077 != 0 {
            let message = format!("key file {} is readable by other users", path.display());
            let hint = format!("run chmod 600 {}, and set new CHAP secrets if others may have read it", path.display());
            return Err(Refusal::new(code::KEY_UNUSABLE, message, hint));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| unusable(path, &error))?;
        Self::parse(&text, path).ok_or_else(|| unusable(path, &"it is truncated or not a key")).map(Some)
    }

    /// Parses the text of a key file.
    pub(crate) fn parse(text: &str, path: &Path) -> Option<Self> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [MAGIC, id, key] = parts[..] else { return None };
        Self::of(id.to_owned(), &Zeroizing::new(from_hex(key)?), path)
    }

    /// Creates a new random key in a file that does not exist yet. *Durability*: it survives power loss.
    ///
    /// *Errors*: the file exists, or it cannot be written.
    pub(crate) fn make(path: &Path) -> Result<Self, Refusal> {
        let (id, key) = (to_hex(&random::<4>()?), Zeroizing::new(random::<32>()?));
        let line = Zeroizing::new(format!("{MAGIC} {id} {}\n", *Zeroizing::new(to_hex(key.as_slice()))));
        let write = || -> std::io::Result<()> {
            // The key file appears whole or not at all: half a key would keep the daemon from starting.
            let beside = path.with_extension("new");
            // A leftover of a crash in this function.
            let _ = std::fs::remove_file(&beside);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()?;
            // A hard link fails where the file exists; a rename would replace the only copy of a key.
            std::fs::hard_link(&beside, path)?;
            std::fs::remove_file(&beside)?;
            super::sync_dir(path.parent().unwrap_or(Path::new("/")))
        };
        write().map_err(|error| unusable(path, &error))?;
        Ok(Self::of(id, key.as_slice(), path).expect("the key has the cipher's length"))
    }

    /// Builds the key and its derived values; `None` where the length is wrong.
    pub(crate) fn of(id: String, key: &[u8], path: &Path) -> Option<Self> {
        // Verifies the length once, so that `cipher` cannot fail.
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

    /// Returns the key ID for display; no part of the key.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the path of the key file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the secret that pool keys are derived from. It is deterministic and reveals nothing about the
    /// node key.
    pub(crate) fn pools(&self) -> &Secret {
        &self.pools
    }

    /// Returns the check value of the key.
    pub(crate) fn check(&self) -> &str {
        &self.check
    }

    /// Seals every secret of the state in place.
    ///
    /// *Errors*: the system gives no random numbers.
    pub(crate) fn seal(&self, state: &mut Value) -> Result<(), Refusal> {
        each_secret(state, &mut |place, text| {
            // Sealed already: hexadecimal text never begins like that.
            if text.starts_with(SEALED) {
                return Ok(());
            }
            // 24 random bytes: XChaCha20 nonces are long enough to be drawn at random without a counter.
            let nonce = random::<24>()?;
            // The place is authenticated data: a secret that was moved to another host does not open there.
            let payload = Payload { msg: text.as_bytes(), aad: place.as_bytes() };
            let sealed = self.cipher().encrypt(&nonce.into(), payload).expect("a secret is short");
            // The plain text must not stay behind in freed memory.
            text.zeroize();
            *text = format!("{SEALED}{}:{}:{}", self.id, to_hex(&nonce), to_hex(&sealed));
            Ok(())
        })
    }

    /// Opens every secret of the state in place. With `forget`, secrets that cannot be opened are replaced by
    /// random ones.
    ///
    /// *Errors*: one was sealed with another key, or does not authenticate in its place; or the system gives no
    /// random numbers.
    pub(crate) fn open_all(&self, state: &mut Value, forget: bool) -> Result<(), Refusal> {
        if !forget {
            return self.open(state);
        }
        for place in self.forget(state)? {
            tracing::warn!(%place, "its secret was discarded; set a new one");
        }
        Ok(())
    }

    /// Opens every secret of the state in place.
    ///
    /// *Errors*: one was sealed with another key, or does not authenticate in its place.
    pub(crate) fn open(&self, state: &mut Value) -> Result<(), Refusal> {
        each_secret(state, &mut |place, text| self.open_one(place, text))
    }

    fn open_one(&self, place: &str, text: &mut String) -> Result<(), Refusal> {
        let Some(sealed) = text.strip_prefix(SEALED) else { return Ok(()) };
        let mut parts = sealed.splitn(3, ':');
        let (id, nonce, sealed) = (parts.next(), parts.next().and_then(from_hex), parts.next().and_then(from_hex));
        // Compared before decryption, to report the wrong key rather than damage.
        if id.is_some_and(|id| id != self.id) {
            return Err(wrong(&self.id, id.unwrap_or_default(), &self.path));
        }
        let opened = nonce.zip(sealed).and_then(|(nonce, sealed)| {
            let nonce: [u8; 24] = nonce.try_into().ok()?;
            let payload = Payload { msg: &sealed, aad: place.as_bytes() };
            String::from_utf8(self.cipher().decrypt(&nonce.into(), payload).ok()?).ok()
        });
        *text = opened.ok_or_else(|| {
            let message = format!("the secret of {place} cannot be decrypted");
            let hint = "restore a copy of the state, or start once with --forget-secrets and set new secrets";
            Refusal::new(code::KEY_WRONG, message, hint)
        })?;
        Ok(())
    }

    /// Replaces each secret that cannot be opened by a random one, and returns their places. Its host cannot
    /// log in until a new secret is set.
    ///
    /// *Errors*: the system gives no random numbers.
    pub(crate) fn forget(&self, state: &mut Value) -> Result<Vec<String>, Refusal> {
        let mut forgotten = Vec::new();
        each_secret(state, &mut |place, text| {
            if self.open_one(place, text).is_err() {
                // A random secret is known to no host, so logins are denied rather than let in.
                *text = to_hex(&random::<32>()?);
                forgotten.push(place.to_owned());
            }
            Ok(())
        })?;
        Ok(forgotten)
    }
}

/// Returns the IDs of the keys that secrets of the state are sealed with.
pub(crate) fn keys_of(state: &mut Value) -> Result<BTreeSet<String>, Refusal> {
    let mut keys = BTreeSet::new();
    each_secret(state, &mut |_, text| {
        keys.extend(text.strip_prefix(SEALED).and_then(|sealed| sealed.split(':').next()).map(str::to_owned));
        Ok(())
    })?;
    Ok(keys)
}

/// Calls `act` for each secret of the state with its place, such as `hosts/web/chap`. A host may be called
/// `secret`, but its value is an object, never a string.
fn each_secret(
    state: &mut Value,
    act: &mut dyn FnMut(&str, &mut String) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    fn walk(
        value: &mut Value,
        place: &str,
        act: &mut dyn FnMut(&str, &mut String) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // Secrets lie in objects; no list of a state or of a document holds one.
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

/// Refusal: the file holds another key than the required one.
pub(crate) fn wrong(id: &str, wanted: &str, path: &Path) -> Refusal {
    Refusal::new(
        code::KEY_WRONG,
        format!("this array needs key {wanted}, but {} contains key {id}", path.display()),
        format!(
            "restore key {wanted} there, or start once with --forget-secrets: CHAP secrets must be set again, and \
             encrypted volumes need their pool key"
        ),
    )
}

/// Refusal: the key has the ID that the state names, but another check value.
pub(crate) fn changed(path: &Path) -> Refusal {
    unusable(path, &"it has the right ID but is not the key of this state: some digits have changed")
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        code::KEY_UNUSABLE,
        format!("the key {} cannot be used: {why}", path.display()),
        "restore a copy of it; without one, move it away and start once with --forget-secrets: CHAP secrets must \
         be set again",
    )
}
