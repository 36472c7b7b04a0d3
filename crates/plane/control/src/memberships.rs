//! Records of pool membership: which members are current, in a document beside the state.
//!
//! The engine opens no pool whose disks are all older than this record: an abandoned half of a mirror would
//! present old data as current. The record is written at each change of members, before a write that a member
//! has missed is acknowledged.

use crate::core::Core;
use model::{Order, PoolId, PoolMembership, Refusal, Report, code};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Name of the document.
const DOCUMENT: &str = "pool-members";

/// Limit on recorded pools; the most recently changed are kept. Exported pools may come back, destroyed ones do
/// not.
const POOLS_MAX: usize = 1024;

/// Retry interval after a write error.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Keeper of the membership records.
pub struct Memberships {
    pub(crate) core: Arc<Core>,
}

impl Memberships {
    /// Hands the stored records to the engine. Called before pools are opened.
    ///
    /// *Errors*: the document is damaged, or the engine is gone.
    pub(crate) async fn restore(&self) -> Result<(), Refusal> {
        let known = self.kept()?;
        self.core.engine.done(Order::KnowMemberships { known }).await
    }

    /// Stores each change until the engine is gone.
    pub async fn keep(self: Arc<Self>) {
        loop {
            match self.keep_next().await {
                Ok(()) => {}
                Err(refusal) if refusal.code == code::ENGINE_GONE => return,
                Err(refusal) => {
                    tracing::error!(%refusal, "the list of current pool members could not be saved");
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Waits for the next change and stores it.
    ///
    /// *Errors*: it could not be written, and the previous record stays; or the engine is gone.
    pub async fn keep_next(&self) -> Result<(), Refusal> {
        let Report::Memberships(mut known) = self.core.engine.ask(Order::NextMemberships).await? else { return Ok(()) };
        let generations: Vec<(PoolId, u64)> = known.iter().map(|it| (it.pool, it.generation)).collect();
        // Pools without a change keep their records, also while they are not open.
        let others = self.kept()?.into_iter().filter(|kept| generations.iter().all(|(pool, _)| *pool != kept.pool));
        known.extend(others.collect::<Vec<_>>());
        // The most recent changes survive the limit.
        known.sort_by_key(|membership| Reverse(membership.at));
        known.truncate(POOLS_MAX);
        let document = serde_json::to_value(&known).expect("text and numbers");
        self.core.keep_document(DOCUMENT, document)?;
        // Only after the record is durable may the engine acknowledge the writes that wait for it.
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
