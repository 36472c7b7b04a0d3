//! The keys of encrypted families: brought to them, wrapped anew, replaced.

use super::{Families, Pool, Shared};
use crate::catalog::Catalog;
use crate::crypt::{BlockCipher, Cover, DataKey, KeyError, KeyId, NewKey, PoolKey, WrappedKey};
use crate::error::PoolError;
use crate::family::Family;
use crate::sabotage::{self, Sabotage};
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice> Shared<D, G> {
    /// The data key that `wrapped` is of.
    fn open_key(&self, family: Uuid, wrapped: &WrappedKey) -> Result<DataKey, KeyError> {
        match &*self.key.borrow() {
            None => Err(KeyError::Missing { wanted: wrapped.wrapped_with }),
            Some(key) => key.unwrap(family, wrapped),
        }
    }

    /// The new key as the catalog is to have it.
    pub(super) fn wrap_key(&self, family: Uuid, key: &NewKey) -> Result<WrappedKey, PoolError> {
        let pool_key = self.key.borrow();
        Ok(pool_key.as_ref().ok_or(PoolError::NoPoolKey)?.wrap(family, key))
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Families<D, G> {
    /// Data of the family can be read and written.
    ///
    /// *Errors*: `Key`, where it is encrypted and its key cannot be had.
    pub(super) fn unlock(&self, family: &Family<D, G>) -> Result<(), PoolError> {
        if !matches!(family.data.cover(), Cover::Locked) {
            return Ok(());
        }
        let wrapped = self.shared.store.look(|catalog| catalog.family(family.id)?.key.clone());
        let wrapped = wrapped.expect("only a family with a key is locked");
        let key = self.shared.open_key(family.id, &wrapped)?;
        family.data.set_cover(Cover::Keyed(Rc::new(BlockCipher::new(&key))));
        Ok(())
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Keys of volumes are wrapped with `key` from now on, and those that are wrapped with it can be opened. What was wrapped with another
    /// key stays so: see [`Pool::rewrap_keys`].
    pub fn set_key(&self, key: PoolKey) {
        self.shared.key.replace(Some(key));
    }

    /// Every key that was wrapped with `other` is wrapped with the pool's own; how many. `nonce` gives 24 bytes that were never
    /// given before.
    ///
    /// *Durability*: when it returns; a crash leaves each wrapped with one of the two. *Errors*: `NoPoolKey`, `Key` with
    /// nothing changed, `CatalogLost`.
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
            for (family, key) in wrapped {
                catalog.family_mut(family).expect("it was found above").key = Some(key);
            }
            Ok(count)
        })?;
        self.shared.store.committed(change).await?;
        Ok(count)
    }

    /// Nobody can read any more what was written to the volume, whose key is another from now on; nothing is left of the old one on disks
    /// that take part in the pool. Until it is discarded, what the volume held reads as something that nobody wrote.
    ///
    /// *Shape*: nobody writes to the volume meanwhile, and nobody believes what he reads. *Durability*: when it returns; a crash leaves the
    /// old key or the new one. *Errors*: `VolumeUnknown`, `NotEncrypted`, `NoPoolKey`, `KeyShared` where snapshots or other
    /// volumes of its family would be lost, with nothing changed; `CatalogLost`, `GroupFails`.
    pub async fn replace_key(&self, volume: Uuid, key: &NewKey) -> Result<(), PoolError> {
        let (family, branch) = self.branch(volume).await?;
        let _still = branch.locks.exclusive(0..u64::MAX).await;
        let wrapped = self.shared.wrap_key(family.id, key)?;
        let ((), change) = self.shared.store.change(|catalog| {
            admit_replacement(catalog, volume)?;
            catalog.family_mut(family.id).expect("it has the volume").key = Some(wrapped);
            Ok(())
        })?;
        // A catalog that was longer once would leave its end behind the new one.
        if !sabotage::is(Sabotage::KeepOldKey) {
            self.shared.store.write_whole_slots();
        }
        family.data.set_cover(Cover::Keyed(Rc::new(BlockCipher::new(&key.key))));
        self.shared.store.committed(change).await
    }

    /// Admits a key that all encrypted volumes of the pool are wrapped with. Where one needs another key, a volume under this one would be
    /// lost as soon as that key is back.
    pub(super) fn admit_key(&self, own: KeyId) -> Result<(), PoolError> {
        let other = self.keys_wanted().into_iter().find(|wanted| *wanted != own);
        other.map_or(Ok(()), |wanted| Err(PoolError::SecondKey { wanted, own }))
    }

    /// The pool keys that the keys of its volumes are wrapped with, each once.
    pub(crate) fn keys_wanted(&self) -> Vec<KeyId> {
        let mut wanted: Vec<KeyId> = self.shared.store.look(|catalog| {
            catalog.families.iter().filter_map(|family| family.key.as_ref()).map(|key| key.wrapped_with).collect()
        });
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

/// Admits the volume whose key nobody else needs.
fn admit_replacement(catalog: &Catalog, volume: Uuid) -> Result<(), PoolError> {
    let (family, branch) = catalog.branch(volume).ok_or(PoolError::VolumeUnknown(volume))?;
    if family.key.is_none() {
        return Err(PoolError::NotEncrypted);
    }
    // A volume that is being deleted is read by nobody.
    let others = family.branches.iter().filter(|other| other.id != branch.id && !other.dying).count();
    let snapshots: usize = family.branches.iter().map(|branch| branch.snapshots.len()).sum();
    if others + snapshots > 0 { Err(PoolError::KeyShared(others + snapshots)) } else { Ok(()) }
}
