//! Password hashing with Argon2id, on threads of its own.

use argon2::{Algorithm, Argon2, Params, Version};
use model::{Refusal, code};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// Argon2id parameters. *Source*: OWASP Password Storage Cheat Sheet: 19 MiB, 2 passes.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;
const HASH_BYTES: usize = 32;
const SALT_BYTES: usize = 16;

/// Hashes computed at a time, and further ones that may wait.
const AT_ONCE: usize = 2;
const WAITING_MAX: usize = 64;

/// Limits on the length of a password.
const CHARS_MIN: usize = 12;
const BYTES_MAX: usize = 1024;
/// Distinct characters below which a password is a pattern.
const DIFFERENT_MIN: usize = 5;

/// Hash of a password with its parameters, so that later versions can use stronger ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    salt: String,
    argon2id: String,
}

/// Password hasher with bounded concurrency.
#[derive(Clone, Debug)]
pub(crate) struct PasswordHasher {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for PasswordHasher {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), places: Arc::new(Semaphore::new(AT_ONCE + WAITING_MAX)) }
    }
}

impl PasswordHasher {
    /// Hashes a password for storage.
    ///
    /// *Errors*: too many hashes are waiting, or the system gives no random numbers.
    pub(crate) async fn hash(&self, password: Zeroizing<String>) -> Result<PasswordHash, Refusal> {
        let salt = control::random::<SALT_BYTES>()?;
        let hash = self.work(password, salt.to_vec(), MEMORY_KIB, PASSES).await?;
        Ok(PasswordHash {
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: control::to_hex(&salt),
            argon2id: control::to_hex(&hash),
        })
    }

    /// Verifies a password. Without a stored hash (`None`) it takes the same time and returns false.
    ///
    /// *Errors*: too many hashes are waiting.
    pub(crate) async fn verify(
        &self,
        kept: Option<&PasswordHash>,
        password: Zeroizing<String>,
    ) -> Result<bool, Refusal> {
        let parts = kept.and_then(|kept| {
            let (salt, hash) = (control::from_hex(&kept.salt)?, control::from_hex(&kept.argon2id)?);
            Some((salt, hash, kept.memory_kib, kept.passes))
        });
        // The parameters of the stored hash, which may be those of an older version.
        let (salt, hash, memory_kib, passes) =
            parts.unwrap_or_else(|| (vec![0; SALT_BYTES], Vec::new(), MEMORY_KIB, PASSES));
        let found = self.work(password, salt, memory_kib, passes).await?;
        // Constant time; an empty stored hash never equals a computed one.
        Ok(found.as_slice().ct_eq(&hash).into())
    }

    async fn work(
        &self,
        password: Zeroizing<String>,
        salt: Vec<u8>,
        memory_kib: u32,
        passes: u32,
    ) -> Result<Vec<u8>, Refusal> {
        let busy =
            || Refusal::new(code::ASKED_TOO_OFTEN, "too many logins at the same time", "try again in a few seconds");
        // Refused instead of queued without bound: every hash takes 19 MiB.
        let _place = self.places.clone().try_acquire_owned().map_err(|_| busy())?;
        let _turn = self.turns.clone().acquire_owned().await.map_err(|_| busy())?;
        // Hashing is slow by design, so it does not run on a thread that serves requests.
        let worked = tokio::task::spawn_blocking(move || {
            // Stored parameters may be out of range.
            let params = Params::new(memory_kib, passes, 1, Some(HASH_BYTES)).ok()?;
            let mut hash = vec![0; HASH_BYTES];
            let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            argon.hash_password_into(password.as_bytes(), &salt, &mut hash).ok()?;
            Some(hash)
        });
        let broke = || Refusal::new(code::INTERNAL, "a password could not be hashed", "report this as a bug");
        worked.await.ok().flatten().ok_or_else(broke)
    }
}

/// Admits a password that is not easily guessed.
pub(crate) fn admit(password: &str, name: &str) -> Result<(), Refusal> {
    let weak = |message: &str, hint: &str| Err(Refusal::new(code::PASSWORD_WEAK, message, hint));
    if password.chars().count() < CHARS_MIN {
        return weak("the password is too short", "use at least 12 characters, such as four words");
    }
    // In bytes, because the limit bounds the work of the hash.
    if password.len() > BYTES_MAX {
        return weak("the password is too long", "use at most 1,024 bytes");
    }
    let different: std::collections::BTreeSet<char> = password.chars().collect();
    if different.len() < DIFFERENT_MIN {
        return weak(
            "the password has few different characters",
            "use at least 5 different characters, such as four words",
        );
    }
    // Without the user's name the rest must be long by itself; up to 8 characters of the name still count.
    if password.to_lowercase().replace(&name.to_lowercase(), "").chars().count() < CHARS_MIN - name.len().min(8) {
        return weak("the password is too similar to the user name", "use another one, such as four words");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn password_is_known_again_and_no_other_is() {
        let mill = PasswordHasher::default();
        let kept = mill.hash(secret("correct horse battery")).await.expect("kept");
        assert!(mill.verify(Some(&kept), secret("correct horse battery")).await.expect("worked out"));
        assert!(!mill.verify(Some(&kept), secret("correct horse batterz")).await.expect("worked out"));
        assert!(
            !mill.verify(None, secret("correct horse battery")).await.expect("worked out"),
            "nobody has no password"
        );
        let again = mill.hash(secret("correct horse battery")).await.expect("kept");
        assert_ne!(again, kept, "nobody sees that two have the same");
        let text = serde_json::to_string(&kept).expect("json");
        assert!(!text.contains("horse"));
    }

    #[tokio::test]
    async fn password_that_was_kept_by_a_version_which_asked_for_less_is_known() {
        let mill = PasswordHasher::default();
        let salt = b"somesalt01234567".to_vec();
        let hash = mill.work(secret("password"), salt.clone(), 64, 1).await.expect("worked out");
        let kept =
            PasswordHash { memory_kib: 64, passes: 1, salt: control::to_hex(&salt), argon2id: control::to_hex(&hash) };
        assert!(mill.verify(Some(&kept), secret("password")).await.expect("worked out"));
        assert!(!mill.verify(Some(&kept), secret("passwore")).await.expect("worked out"));
    }

    #[test]
    fn passwords_that_are_guessed_first_are_refused() {
        for (password, right) in [
            ("short", false),
            ("aaaaaaaaaaaaaaaa", false),
            ("abababababababab", false),
            ("alicealicealice", false),
            ("correct horse battery", true),
            ("þýðing á orði", true),
        ] {
            assert_eq!(admit(password, "alice").is_ok(), right, "{password}");
        }
        assert!(admit(&"long enough ".repeat(100), "alice").is_err());
        assert!(!admit("hunter2", "alice").expect_err("short").to_string().contains("hunter2"));
    }
}
