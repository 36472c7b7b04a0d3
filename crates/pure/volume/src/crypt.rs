//! Encryption of volumes: the cipher of their blocks, and the keys. `docs/adr/0012-encrypted-volumes.md` says why so.
//!
//! A family has a *data key*. It lies in the catalog, wrapped by the *pool key*, which lies nowhere in the pool. Nothing here
//! draws anything at random: who asks brings what nobody can predict.

mod keys;
mod xts;

pub(crate) use keys::{DataKey, SEALED_BYTES};
pub use keys::{KeyError, KeyId, NewKey, PoolKey, WrappedKey};
pub(crate) use xts::BlockCipher;

use block::{Rope, View};
use std::rc::Rc;

/// How the blocks of a family lie on its groups.
#[derive(Clone, Debug, Default)]
pub(crate) enum Cover {
    /// As hosts wrote them.
    #[default]
    Plain,
    /// Encrypted, and nobody has brought the key: nothing can be read or written.
    Locked,
    /// Encrypted.
    Keyed(Rc<BlockCipher>),
}

/// The data of a family is encrypted, and its key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locked;

impl Cover {
    /// What hosts wrote, of what lies at block `first` of `group` and behind it.
    pub(crate) fn lift(&self, group: u16, first: u64, read: Rope) -> Result<Rope, Locked> {
        match self {
            Self::Plain => Ok(read),
            Self::Locked => Err(Locked),
            Self::Keyed(cipher) => {
                let mut data = read.into_view().thaw();
                cipher.decrypt(group, first, &mut data);
                Ok(data.into())
            }
        }
    }

    /// What is to lie at block `first` of `group` and behind it, of what hosts write.
    pub(crate) fn lay(&self, group: u16, first: u64, data: View) -> Result<View, Locked> {
        match self {
            Self::Plain => Ok(data),
            Self::Locked => Err(Locked),
            Self::Keyed(cipher) => {
                let mut data = data.thaw();
                cipher.encrypt(group, first, &mut data);
                Ok(data.freeze())
            }
        }
    }
}
