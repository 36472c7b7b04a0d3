//! Data keys of families and pool keys, which wrap them.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use secret::Secret;
use sha3::{Digest, Sha3_256};
use std::fmt;
use uuid::Uuid;
use zeroize::Zeroizing;

const DATA_KEY_BYTES: usize = 64;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Size of a wrapped data key in bytes.
pub(crate) const SEALED_BYTES: usize = DATA_KEY_BYTES + TAG_BYTES;

/// Data key of a family: two keys of 256 bits. Zeroized on drop.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DataKey(Secret);

impl DataKey {
    pub(crate) fn of(bytes: [u8; DATA_KEY_BYTES]) -> Self {
        Self(Secret::new(*Zeroizing::new(bytes)))
    }

    /// Key of the data and key of the tweak.
    pub(crate) fn halves(&self) -> (&[u8; 32], &[u8; 32]) {
        // The key of the data comes first, as in IEEE 1619.
        let (data, rest) = self.0.expose().split_first_chunk().expect("it has 64 bytes");
        (data, rest.first_chunk().expect("it has 64 bytes"))
    }
}

/// New data key and the nonce for wrapping it.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    pub(crate) key: DataKey,
    pub(crate) nonce: [u8; NONCE_BYTES],
}

impl NewKey {
    /// Number of random bytes required.
    pub const BYTES: usize = DATA_KEY_BYTES + NONCE_BYTES;

    /// Creates a key from unpredictable bytes that are used for nothing else.
    #[must_use]
    pub fn from_random(bytes: &[u8; Self::BYTES]) -> Self {
        let (key, nonce) = bytes.split_first_chunk().expect("it has 88 bytes");
        Self { key: DataKey::of(*key), nonce: *nonce.first_chunk().expect("it has 88 bytes") }
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey")
    }
}

/// Identifier of a pool key, which reveals nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Data key as stored in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Pool key that unwraps it.
    pub wrapped_with: KeyId,
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) sealed: [u8; SEALED_BYTES],
}

/// Reason why the data key of a family is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No pool key was supplied.
    #[error("it is encrypted, its key is wrapped with pool key {wanted}, and there is no pool key here")]
    Missing {
        /// Pool key that unwraps it.
        wanted: KeyId,
    },
    /// Different pool key.
    #[error(
        "it is encrypted, its key is wrapped with pool key {wanted}, and this node has {have}; import the pool with the key file of {wanted}"
    )]
    Other {
        /// Pool key that unwraps it.
        wanted: KeyId,
        /// Pool key of this node.
        have: KeyId,
    },
    /// Wrapped key that fails authentication.
    #[error("it is encrypted, and its wrapped key in the catalog is damaged")]
    Damaged,
}

/// Key that wraps the data keys of a pool. Zeroized on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolKey {
    key: Secret,
    id: KeyId,
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolKey({})", self.id)
    }
}

impl PoolKey {
    /// Creates the key from the bytes that [`PoolKey::bytes`] returned.
    #[must_use]
    pub fn of(key: [u8; 32]) -> Self {
        let key = Zeroizing::new(key);
        // The identifier is a digest under its own label, so it reveals nothing about the key.
        let named = digest(b"blockyard pool key, its name\0", key.as_slice(), &[]);
        let id = KeyId(*named.first_chunk().expect("a digest has 32 bytes"));
        Self { key: Secret::new(*key), id }
    }

    /// Derives the key of `pool` from the node's secret: different for each pool and each node.
    #[must_use]
    pub fn of_pool(node: &[u8], pool: Uuid) -> Self {
        Self::of(*digest(b"blockyard pool key, of a node\0", node, pool.as_bytes()))
    }

    /// Identifier of the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.key.expose()
    }

    pub(crate) fn wrap(&self, family: Uuid, key: &NewKey) -> WrappedKey {
        // The family's UUID is authenticated with the key, so a wrapped key cannot be moved to another family.
        let payload = Payload { msg: key.key.0.expose(), aad: family.as_bytes() };
        // Random nonces of 24 bytes do not repeat, so no count of wrapped keys has to be stored.
        let sealed = self.cipher().encrypt(&key.nonce.into(), payload).expect("a key is short");
        let sealed = sealed.try_into().expect("the cipher adds a tag of 16 bytes");
        WrappedKey { wrapped_with: self.id, nonce: key.nonce, sealed }
    }

    pub(crate) fn unwrap(&self, family: Uuid, wrapped: &WrappedKey) -> Result<DataKey, KeyError> {
        // Compared first, to tell a different key from a damaged one.
        if wrapped.wrapped_with != self.id {
            return Err(KeyError::Other { wanted: wrapped.wrapped_with, have: self.id });
        }
        let payload = Payload { msg: &wrapped.sealed, aad: family.as_bytes() };
        // The authentication tag fails for a damaged key as well as for one of another family.
        let opened = self.cipher().decrypt(&wrapped.nonce.into(), payload).map(Zeroizing::new);
        let opened = opened.map_err(|_| KeyError::Damaged)?;
        Ok(DataKey::of(opened.as_slice().try_into().map_err(|_| KeyError::Damaged)?))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.expose().try_into().expect("the key has the cipher's length"))
    }
}

fn digest(label: &[u8], secret: &[u8], rest: &[u8]) -> Zeroizing<[u8; 32]> {
    // Each use has a label of its own, so that no digest of one use is that of another.
    let digest = Sha3_256::new().chain_update(label).chain_update(secret).chain_update(rest);
    Zeroizing::new(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: Uuid = Uuid::from_u128(7);

    #[test]
    fn wrapped_keys_open_with_their_pool_key_for_their_family_alone() {
        let (pool, new) = (PoolKey::of([1; 32]), NewKey::from_random(&[5; NewKey::BYTES]));
        let wrapped = pool.wrap(FAMILY, &new);
        assert!(wrapped.sealed.windows(8).all(|part| part != [5; 8]), "the key does not show");
        assert!(pool.unwrap(FAMILY, &wrapped).is_ok_and(|key| key == new.key));
        assert!(pool.unwrap(Uuid::from_u128(8), &wrapped).is_err_and(|error| error == KeyError::Damaged));
        let other = PoolKey::of([2; 32]);
        let refused = KeyError::Other { wanted: pool.id(), have: other.id() };
        assert!(other.unwrap(FAMILY, &wrapped).is_err_and(|error| error == refused));
        for at in 0..SEALED_BYTES {
            let mut bad = wrapped.clone();
            bad.sealed[at] ^= 1;
            assert!(pool.unwrap(FAMILY, &bad).is_err_and(|error| error == KeyError::Damaged), "byte {at}");
        }
    }

    #[test]
    fn pool_keys_of_nodes_and_pools_differ_and_are_the_same_every_time() {
        let key = |node, pool| PoolKey::of_pool(&[node; 32], Uuid::from_u128(pool));
        assert_eq!(key(1, 1), key(1, 1));
        assert_ne!(key(1, 1).id(), key(1, 2).id());
        assert_ne!(key(1, 1).id(), key(2, 1).id());
        let again = PoolKey::of(key(1, 1).bytes().try_into().expect("32 bytes"));
        assert_eq!(again.id(), key(1, 1).id());
        assert_eq!(format!("{again:?}"), format!("PoolKey({})", again.id()), "and do not show");
    }
}
