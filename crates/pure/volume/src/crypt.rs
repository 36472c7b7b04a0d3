//! Encryption of volumes: block cipher and key management (ADR 0012).
//!
//! A family has a *data key*, stored in the catalog and wrapped by the *pool key*, which is stored nowhere in
//! the pool. Nothing here generates random numbers: callers supply them.

mod keys;
mod xts;

pub(crate) use keys::{DataKey, SEALED_BYTES};
pub use keys::{KeyError, KeyId, NewKey, PoolKey, WrappedKey};
pub(crate) use xts::BlockCipher;

use block::{Rope, View};
use std::rc::Rc;

/// Encryption state of a family's data.
#[derive(Clone, Debug, Default)]
pub(crate) enum Encryption {
    /// Not encrypted.
    #[default]
    Plain,
    /// Encrypted without a key: data can be neither read nor written.
    Locked,
    /// Encrypted with a key.
    Keyed(Rc<BlockCipher>),
}

/// Error: the data is encrypted and its key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locked;

impl Encryption {
    /// Decrypts data read from block `first` of `group` on.
    pub(crate) fn decrypt(&self, group: u16, first: u64, read: Rope) -> Result<Rope, Locked> {
        match self {
            Self::Plain => Ok(read),
            Self::Locked => Err(Locked),
            Self::Keyed(cipher) => {
                // Decrypted in place where the buffer is not shared.
                let mut data = read.into_view().into_buf();
                cipher.decrypt(group, first, &mut data);
                Ok(data.into())
            }
        }
    }

    /// Encrypts data to be written from block `first` of `group` on.
    pub(crate) fn encrypt(&self, group: u16, first: u64, data: View) -> Result<View, Locked> {
        match self {
            Self::Plain => Ok(data),
            Self::Locked => Err(Locked),
            Self::Keyed(cipher) => {
                // Copied where the buffer is shared: a cache above keeps the plain text.
                let mut data = data.into_buf();
                cipher.encrypt(group, first, &mut data);
                Ok(data.freeze())
            }
        }
    }
}
