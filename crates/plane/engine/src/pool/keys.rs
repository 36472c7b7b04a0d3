//! Pool key: derived from the node's secret, imported from another node, exported for an operator
//! (`docs/adr/0012-encrypted-volumes.md`).

use super::ownership::ClaimRequest;
use super::refusals::refusal;
use super::{OpenPool, find};
use crate::shard_context::ShardContext;
use crate::unit::Unit;
use block::{Extent, IoError, IoErrorKind};
use model::{Name, Refusal, Secret, Subject, SubjectKind, code, event};
use shard::World;
use std::rc::Rc;
use volume::{AssembledPool, NewKey, PoolError, PoolKey, Uuid};
use zeroize::Zeroizing;

/// Creates a random data key for a volume.
pub(super) fn new_key<W: World>(world: &W) -> NewKey {
    // Wiped when dropped: these bytes are the key.
    let mut bytes = Zeroizing::new([0; NewKey::BYTES]);
    world.random(bytes.as_mut_slice());
    NewKey::from_random(&bytes)
}

/// Admits a pool key of another node if it wraps the data key of some volume.
///
/// *Errors*: `POOL_KEY_WRONG`.
pub(super) fn admit(found: &AssembledPool, taking: &ClaimRequest) -> Result<(), Refusal> {
    let Some(given) = given(taking)? else { return Ok(()) };
    let keys = found.catalog.families.iter().filter_map(|family| family.key.as_ref());
    let mut wanted: Vec<String> = keys.map(|key| key.wrapped_with.to_string()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let own = taking.pool_key(found.catalog.pool).id().to_string();
    // A key that is not needed is accepted if this node's own key opens every volume already.
    if wanted.contains(&given.id().to_string()) || wanted.iter().all(|wanted| *wanted == own) {
        return Ok(());
    }
    let message = format!("the key file contains pool key {}, but the pool needs {}", given.id(), wanted.join(", "));
    Err(wrong(message))
}

/// Pool key given by the operator.
fn given(taking: &ClaimRequest) -> Result<Option<PoolKey>, Refusal> {
    let key = |given: &Secret| {
        let bytes = given.expose().try_into().map_err(|_| wrong("a pool key has 32 bytes".to_owned()))?;
        Ok(PoolKey::of(bytes))
    };
    taking.key.as_ref().map(key).transpose()
}

fn wrong(message: String) -> Refusal {
    Refusal::new(
        code::POOL_KEY_WRONG,
        message,
        "give the file that blockyard pool key wrote for this pool on its previous node",
    )
}

impl ClaimRequest {
    /// Key of the pool on this node.
    fn pool_key(&self, pool: Uuid) -> PoolKey {
        PoolKey::of_pool(self.secret.expose(), pool)
    }
}

impl<W: World> OpenPool<W> {
    /// Sets the pool key of this node, and rewraps all data keys that are wrapped with the key of another node.
    ///
    /// *Durability*: the rewrapped keys are stable when it returns.
    pub(super) async fn bring_key(&self, taking: &ClaimRequest) -> Result<(), Refusal> {
        // The own key first: keys of another node are wrapped anew with it.
        self.pool.set_key(taking.pool_key(Uuid::from_bytes(self.id.to_bytes())));
        let Some(other) = given(taking)? else { return Ok(()) };
        let nonce = || {
            let mut nonce = [0; 24];
            self.shard.world.random(&mut nonce);
            nonce
        };
        let wrapped = self.pool.rewrap_keys(&other, nonce).await.map_err(|error| refusal(&error, self))?;
        tracing::info!(pool = %self.name, wrapped, "keys of volumes are wrapped with the key of this node");
        Ok(())
    }
}

impl<W: World> OpenPool<W> {
    /// Replaces the data key of the volume, which makes its content unreadable (CRYPTOGRAPHIC ERASE). Disks that were
    /// absent and may keep the old wrapped key are named in an event.
    ///
    /// *Durability*: when it returns.
    pub(crate) async fn replace_key(&self, unit: &Unit<W>) -> Result<(), IoError> {
        let volume = Uuid::from_bytes(unit.id.to_bytes());
        // Durable when it returns: the host learns of the erasure only after the commit.
        self.pool.replace_key(volume, &new_key(&self.shard.world)).await.map_err(|error| {
            tracing::error!(volume = %unit.name, %error, "the key of a volume cannot be replaced");
            // To a host a fenced pool is gone; any other failure is a medium error.
            let kind = match error {
                PoolError::CatalogLost | PoolError::Fenced { .. } => IoErrorKind::Gone,
                _ => IoErrorKind::Medium,
            };
            IoError::new(kind, Extent::default())
        })?;
        // The commit has erased the old key on every disk that takes part; other disks cannot be reached.
        let status = self.pool.status();
        let members = status.groups.iter().enumerate().flat_map(|(group, status)| {
            (0..).zip(&status.record.members).map(move |(number, member)| (group, number, member.state))
        });
        let absent = members.filter(|(_, _, state)| !state.takes_part());
        let absent: Vec<String> = absent.map(|(group, number, _)| self.disk_name(group, number)).collect();
        if !absent.is_empty() {
            let sentence = format!(
                "volume {} was crypto-erased, but absent disks may still have its previous key: {}; destroy these \
                 disks, or their data can be read with the key of this pool",
                unit.name,
                absent.join(", ")
            );
            self.shard.raise(event::KEY_LEFT_BEHIND, Subject::new(SubjectKind::Volume, &unit.name), sentence);
        }
        Ok(())
    }
}

/// Returns the key of an open pool and its identifier.
pub(crate) async fn key_of<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    secret: Secret,
) -> Result<(String, Secret), Refusal> {
    let pool = find(&shard, &pool)?;
    let key = PoolKey::of_pool(secret.expose(), Uuid::from_bytes(pool.id.to_bytes()));
    Ok((key.id().to_string(), Secret::new(key.bytes().to_vec())?))
}
