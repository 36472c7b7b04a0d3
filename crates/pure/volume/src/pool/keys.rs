//! Keys of encrypted families: unwrapping, rewrapping and replacement (ADR 0012).

use super::{Families, Pool, Shared};
use crate::bug_injection::{self, InjectedBug};
use crate::catalog::Catalog;
use crate::crypt::{BlockCipher, DataKey, Encryption, KeyError, KeyId, NewKey, PoolKey, WrappedKey};
use crate::error::PoolError;
use crate::family::Family;
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    /// Unwraps the data key `wrapped`.
    fn open_key(&self, family: Uuid, wrapped: &WrappedKey) -> Result<DataKey, KeyError> {
        match &*self.key.borrow() {
            None => Err(KeyError::Missing { wanted: wrapped.wrapped_with }),
            Some(key) => key.unwrap(family, wrapped),
        }
    }

    /// Wraps a new key for the catalog.
    pub(super) fn wrap_key(&self, family: Uuid, key: &NewKey) -> Result<WrappedKey, PoolError> {
        let pool_key = self.key.borrow();
        Ok(pool_key.as_ref().ok_or(PoolError::NoPoolKey)?.wrap(family, key))
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Families<D, G> {
    /// Makes the data of the family accessible.
    ///
    /// *Errors*: `Key`, where it is encrypted and its key is not available.
    pub(super) fn unlock(&self, family: &Family<D, G>) -> Result<(), PoolError> {
        if !matches!(family.data.encryption(), Encryption::Locked) {
            return Ok(());
        }
        let wrapped = self.shared.store.with_catalog(|catalog| catalog.family(family.id)?.key.clone());
        let wrapped = wrapped.expect("only a family with a key is locked");
        let key = self.shared.open_key(family.id, &wrapped)?;
        family.data.set_encryption(Encryption::Keyed(Rc::new(BlockCipher::new(&key))));
        Ok(())
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Sets the pool key: new data keys are wrapped with it, and those wrapped with it can be opened. Keys
    /// wrapped with another pool key stay so: see [`Pool::rewrap_keys`].
    pub fn set_key(&self, key: PoolKey) {
        self.shared.key.replace(Some(key));
    }

    /// Rewraps every key that was wrapped with `other` with the pool's own key; returns their number. `nonce`
    /// returns 24 bytes that are never repeated.
    ///
    /// *Durability*: when it returns; a crash leaves each key wrapped with one of the two. *Errors*:
    /// `NoPoolKey`, `Key` with nothing changed, `CatalogLost`.
    pub async fn rewrap_keys(&self, other: &PoolKey, mut nonce: impl FnMut() -> [u8; 24]) -> Result<usize, PoolError> {
        let own = self.shared.key.borrow().clone().ok_or(PoolError::NoPoolKey)?;
        let (count, change) = self.shared.store.change(|catalog| {
            let is_others = |key: &WrappedKey| key.wrapped_with == other.id() && key.wrapped_with != own.id();
            let mut wrapped = Vec::new();
            for family in &catalog.families {
                let Some(key) = family.key.as_ref().filter(|key| is_others(key)) else { continue };
                let new = NewKey { key: other.unwrap(family.id, key)?, nonce: nonce() };
                wrapped.push((family.id, own.wrap(family.id, &new)));
            }
            let count = wrapped.len();
            // All keys are unwrapped before the first is replaced, so that an error changes nothing.
            for (family, key) in wrapped {
                catalog.family_mut(family).expect("it was found above").key = Some(key);
            }
            Ok(count)
        })?;
        self.shared.store.committed(change).await?;
        Ok(count)
    }

    /// Replaces the data key of the volume (CRYPTOGRAPHIC ERASE): nothing written before can be read any more,
    /// and no trace of the old key is left on participating disks. Until it is discarded, the old data reads as
    /// random bytes.
    ///
    /// *Shape*: no host writes to the volume meanwhile or relies on its content. *Durability*: when it returns;
    /// a crash leaves the old key or the new one. *Errors*: `VolumeUnknown`, `NotEncrypted`, `NoPoolKey`,
    /// `KeyShared` where snapshots or other volumes of its family would be lost, with nothing changed;
    /// `CatalogLost`, `GroupFails`.
    pub async fn replace_key(&self, volume: Uuid, key: &NewKey) -> Result<(), PoolError> {
        let (family, branch) = self.branch(volume).await?;
        // No write may straddle the change of keys.
        let _still = branch.locks.exclusive(0..u64::MAX).await;
        let wrapped = self.shared.wrap_key(family.id, key)?;
        let ((), change) = self.shared.store.change(|catalog| {
            admit_replacement(catalog, volume)?;
            catalog.family_mut(family.id).expect("it has the volume").key = Some(wrapped);
            Ok(())
        })?;
        // A catalog that was longer before would leave its end, with the old key, behind the new one.
        if !bug_injection::is_injected(InjectedBug::KeepOldKey) {
            self.shared.store.write_full_slots_next();
        }
        // Writers wait for the lock above; reads of the old data may return anything from here on.
        family.data.set_encryption(Encryption::Keyed(Rc::new(BlockCipher::new(&key.key))));
        self.shared.store.committed(change).await
    }

    /// Admits the pool key that all encrypted volumes of the pool are wrapped with. With another one, a new
    /// volume would be lost as soon as the first key is set again.
    pub(super) fn admit_key(&self, own: KeyId) -> Result<(), PoolError> {
        let other = self.keys_wanted().into_iter().find(|wanted| *wanted != own);
        other.map_or(Ok(()), |wanted| Err(PoolError::SecondKey { wanted, own }))
    }

    /// Pool keys that wrap keys of the pool's volumes, each once.
    pub(crate) fn keys_wanted(&self) -> Vec<KeyId> {
        let mut wanted: Vec<KeyId> = self.shared.store.with_catalog(|catalog| {
            catalog.families.iter().filter_map(|family| family.key.as_ref()).map(|key| key.wrapped_with).collect()
        });
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

/// Admits a volume whose key no snapshot or other volume shares.
fn admit_replacement(catalog: &Catalog, volume: Uuid) -> Result<(), PoolError> {
    let (family, branch) = catalog.branch(volume).ok_or(PoolError::VolumeUnknown(volume))?;
    if family.key.is_none() {
        return Err(PoolError::NotEncrypted);
    }
    // A volume that is being deleted is not read any more.
    let others = family.branches.iter().filter(|other| other.id != branch.id && !other.deleting).count();
    let snapshots: usize = family.branches.iter().map(|branch| branch.snapshots.len()).sum();
    if others + snapshots > 0 { Err(PoolError::KeyShared(others + snapshots)) } else { Ok(()) }
}
