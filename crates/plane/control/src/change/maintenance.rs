//! Maintenance of pools: settings for rebuild and scrub, and consistency checks of on-disk metadata.

use crate::change::pools;
use crate::change::pools::Pools;
use crate::request::{PoolSettings, RepairPool};
use model::{Name, Order, PoolCheck, PoolPolicy, PoolReport, PoolState, Refusal};

impl Pools {
    /// Changes settings of the pool, effective for running rebuilds as well.
    ///
    /// *Errors*: there is no such pool or setting, or a value is invalid. Nothing is changed then.
    pub async fn set(&self, name: &Name, request: PoolSettings) -> Result<PoolReport, Refusal> {
        self.change_policy(name, |policy| request.settings.iter().try_for_each(|(key, value)| policy.set(key, value)))
            .await
    }

    /// Pauses all rebuilds and scrubs of the pool, or resumes them.
    ///
    /// *Errors*: there is no such pool.
    pub async fn pause(&self, name: &Name, paused: bool) -> Result<PoolReport, Refusal> {
        self.change_policy(name, |policy| {
            policy.repair.paused = paused;
            Ok(())
        })
        .await
    }

    /// Checks the maps of the pool's volumes; with `repair` it also repairs what it can, and otherwise writes
    /// nothing.
    ///
    /// *Errors*: there is no such pool, or it is not open.
    pub async fn check(&self, name: &Name, repair: bool) -> Result<PoolCheck, Refusal> {
        self.admit_open(name).await?;
        self.core.engine.check(Order::CheckPool { pool: name.clone(), repair, accept_loss: false }).await
    }

    /// Repairs the findings of a check; with `accept_loss` damaged maps continue with what is left of them.
    ///
    /// *Errors*: there is no such pool, or it is not open.
    pub async fn repair(&self, name: &Name, request: RepairPool) -> Result<PoolCheck, Refusal> {
        self.admit_open(name).await?;
        let RepairPool { accept_loss } = request;
        self.core.engine.check(Order::CheckPool { pool: name.clone(), repair: true, accept_loss }).await
    }

    /// Dumps the catalog of the pool and the maps of its volumes as text.
    ///
    /// *Errors*: there is no such pool, or it is not open.
    pub async fn dump(&self, name: &Name) -> Result<String, Refusal> {
        self.admit_open(name).await?;
        self.core.engine.text(Order::DumpPool { pool: name.clone() }).await
    }

    /// Applies the recorded rebuild and space policies in the data plane.
    pub(crate) async fn apply_policy(&self, name: &Name) -> Result<(), Refusal> {
        let state = self.core.state();
        let Some(record) = state.pools.get(name) else { return Ok(()) };
        let order = Order::SetRepair { pool: name.clone(), policy: record.policy.repair.clone() };
        self.core.engine.pool(order).await?;
        self.core.engine.pool(Order::SetSpace { pool: name.clone(), policy: record.policy.space }).await.map(|_| ())
    }

    async fn change_policy(
        &self,
        name: &Name,
        change: impl FnOnce(&mut PoolPolicy) -> Result<(), Refusal>,
    ) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let before = self.core.state();
        let mut policy = before.pools.get(name).ok_or_else(|| pools::unknown(name))?.policy.clone();
        change(&mut policy)?;
        self.core.commit(&turn, |state| {
            if let Some(record) = state.pools.get_mut(name) {
                // A changed interval counts from now, so that a scrub is not overdue the moment it is
                // configured.
                if record.policy.scrub.every != policy.scrub.every {
                    record.scrub_since = Some(crate::system::now());
                }
                record.policy = policy;
            }
        })?;
        // A closed pool gets its policy when it is opened.
        if self.report(name).await?.state != PoolState::Missing {
            let applied = self.apply_policy(name).await;
            // Settings that the data plane refuses must not take effect at the next start.
            self.core.or_restore(&turn, applied, &before)?;
        }
        drop(turn);
        self.report(name).await
    }
}
