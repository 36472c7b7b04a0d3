//! Which members of pools are current, kept in a document of its own beside the state.
//!
//! The engine opens no pool whose disks are all older than that: a half of a mirror that was given up shows old data as if it were
//! current. It is written at each change of members, before a write is answered that a member has missed.

use crate::core::Core;
use model::{Order, PoolId, PoolMembership, Refusal, Report, code};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The document that it stands in.
const DOCUMENT: &str = "pool-members";

/// Pools that are remembered at most, those of the latest changes: exported ones may come back, destroyed ones do not.
const POOLS_MAX: usize = 1024;

/// How long until it is tried again to write what could not be written.
const AGAIN: Duration = Duration::from_secs(5);

/// Which members of pools are current.
pub struct Memberships {
    pub(crate) core: Arc<Core>,
}

impl Memberships {
    /// The engine knows what was kept.
    ///
    /// *Errors*: the document is damaged, or the engine is gone.
    pub(crate) async fn restore(&self) -> Result<(), Refusal> {
        let known = self.kept()?;
        self.core.engine.done(Order::KnowMemberships { known }).await
    }

    /// Writes down each change until the engine is gone.
    pub async fn keep(self: Arc<Self>) {
        loop {
            match self.keep_next().await {
                Ok(()) => {}
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => {
                    tracing::error!(%refusal, "which members of pools are current could not be written down");
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Writes down the next change, once there is one.
    ///
    /// *Errors*: it could not be written, and what was kept stays; or the engine is gone.
    pub async fn keep_next(&self) -> Result<(), Refusal> {
        let Report::Memberships(mut known) = self.core.engine.ask(Order::NextMemberships).await? else { return Ok(()) };
        let generations: Vec<(PoolId, u64)> = known.iter().map(|it| (it.pool, it.generation)).collect();
        let others = self.kept()?.into_iter().filter(|kept| generations.iter().all(|(pool, _)| *pool != kept.pool));
        known.extend(others.collect::<Vec<_>>());
        known.sort_by_key(|membership| Reverse(membership.at));
        known.truncate(POOLS_MAX);
        let document = serde_json::to_value(&known).expect("text and numbers");
        self.core.keep_document(DOCUMENT, document)?;
        self.core.engine.done(Order::MembershipsKept { generations }).await
    }

    fn kept(&self) -> Result<Vec<PoolMembership>, Refusal> {
        let Some(document) = self.core.document(DOCUMENT)? else { return Ok(Vec::new()) };
        serde_json::from_value(document).map_err(|error| {
            let message = format!("the document {DOCUMENT} in the state folder cannot be read: {error}");
            Refusal::new(code::STATE_DAMAGED, message, "restore the state folder from a backup")
        })
    }
}
