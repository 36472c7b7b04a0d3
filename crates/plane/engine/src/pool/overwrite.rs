//! Checks before disks are overwritten that may belong to a pool, by order of an operator or to finish an interrupted
//! operation after a start. Disks to which a living node writes are never overwritten.

use super::ownership::ClaimRequest;
use crate::array::{self, Disk};
use crate::shard_context::ShardContext;
use cluster::{Node, WATCH};
use futures_util::future::join_all;
use model::{DiskName, PoolId, Refusal, Subject, code, event};
use shard::World;
use volume::Uuid;
use volume::owner::Claims;

/// Admits erasing the rest of `pool` from the disk, which this node was creating or destroying when its daemon ended.
///
/// Another node may have imported the pool since and have volumes in it; then it must not be erased, whether that node
/// is up or down. Nothing is written. *Errors*: `POOL_OWNED` then, and while a node uses the disk for another pool; an
/// event reports it as well.
pub(crate) async fn admit_erasure<W: World>(
    shard: &ShardContext<W>,
    taking: &ClaimRequest,
    (name, path): (&DiskName, &str),
    pool: PoolId,
) -> Result<(), Refusal> {
    let disk = array::open_disk(shard, path).await?;
    let node = taking.node();
    // Marks of every pool count, also of the one that is to be erased.
    let claims = Claims::on(&*disk, None).await;
    // Released or not: that node has imported the pool since, and may have volumes in it.
    if let Some(owner) = claims.owner_of(Uuid::from_bytes(pool.to_bytes())).filter(|owner| owner.node != node.id) {
        let sentence = format!("disk {name} was not erased: its pool belongs to node {}", owner.name);
        shard.raise(event::OVERWRITE_REFUSED, Subject::disk(name), sentence.clone());
        let hint = "remove the disk here, or export the pool on that node and import it here";
        return Err(Refusal::new(code::POOL_OWNED, sentence, hint));
    }
    let disks = [(name.clone(), disk)];
    Overwriting { disks: &disks, pool: None, node: Some(&node) }.admit(shard).await.map(drop)
}

/// Disks to be overwritten, and the claims on them that do not count.
pub(super) struct Overwriting<'a, W: World> {
    /// Disks with their names.
    pub disks: &'a [(DiskName, Disk<W>)],
    /// Pool for which the disks are meant, if it is open here.
    pub pool: Option<Uuid>,
    /// This node: marks that it wrote before its present start have no owner any more.
    pub node: Option<&'a Node>,
}

impl<W: World> Overwriting<'_, W> {
    /// Admits disks on which no owner's mark moves. Returns whether there are marks at all.
    ///
    /// A mark that was not released is read twice, [`WATCH`] apart, as when a pool is claimed. Nothing is written.
    /// *Errors*: `POOL_OWNED` while a node uses one of the disks; an event reports it as well.
    pub(super) async fn admit(&self, shard: &ShardContext<W>) -> Result<bool, Refusal> {
        let first = self.claims().await;
        // No mark, or only released ones: there is no owner to watch for.
        if !first.iter().any(Claims::must_be_watched) {
            return Ok(false);
        }
        tracing::info!("a disk to be overwritten has an owner; watching whether the owner is active");
        // A living owner renews its marks within this time, so marks that stand still have no owner.
        shard.world.sleep(WATCH).await;
        let now = self.claims().await;
        let moved = self.disks.iter().zip(now.iter().zip(&first));
        let mut moved = moved.filter_map(|((disk, _), (now, first))| Some((disk, now.moved_since(first)?)));
        let Some((disk, mark)) = moved.next_back() else { return Ok(true) };
        let node = &mark.claim.name;
        let sentence = format!("disk {disk} was not overwritten: node {node} uses it for its pool");
        shard.raise(event::OVERWRITE_REFUSED, Subject::disk(disk), sentence);
        let message = format!("disk {disk} is in use: node {node} writes to it for its pool");
        let hint = "export the pool on that node, or stop that node, first; --force does not override this";
        Err(Refusal::new(code::POOL_OWNED, message, hint))
    }

    /// Claims of other owners on each disk.
    async fn claims(&self) -> Vec<Claims> {
        let claims = self.disks.iter().map(async |(_, disk)| Claims::on(&**disk, self.pool).await);
        let claims = join_all(claims).await.into_iter();
        // Marks of earlier daemons of this node have no living writer.
        claims.map(|claims| if let Some(node) = self.node { claims.without(node) } else { claims }).collect()
    }
}
