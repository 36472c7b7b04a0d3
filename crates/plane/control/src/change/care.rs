//! Care of pools: the settings of repair and scrubs, and checks of what a pool keeps on its disks.

use crate::change::pools;
use crate::change::pools::Pools;
use crate::request::{PoolSettings, RepairPool};
use model::{Name, Order, PoolCheck, PoolPolicy, PoolReport, PoolState, Refusal};

impl Pools {
    /// The settings hold, also for what is being repaired already.
    ///
    /// *Errors*: there is no such pool or setting, or a value is none for its setting. Nothing is changed then.
    pub async fn set(&self, name: &Name, request: PoolSettings) -> Result<PoolReport, Refusal> {
        self.change_policy(name, |policy| request.settings.iter().try_for_each(|(key, value)| policy.set(key, value)))
            .await
    }

    /// Nothing of the pool is repaired or looked through until it is resumed; or it goes on.
    ///
    /// *Errors*: there is no such pool.
    pub async fn pause(&self, name: &Name, paused: bool) -> Result<PoolReport, Refusal> {
        self.change_policy(name, |policy| {
            policy.repair.paused = paused;
            Ok(())
        })
        .await
    }

    /// What is wrong with the maps of the pool's volumes; nothing is written, but with `repair` what can be put right.
    ///
    /// *Errors*: there is no such pool, or it is not open.
    pub async fn check(&self, name: &Name, repair: bool) -> Result<PoolCheck, Refusal> {
        self.admit_open(name).await?;
        self.core.engine.check(Order::CheckPool { pool: name.clone(), repair, accept_loss: false }).await
    }

    /// What a check finds and can be put right is right; with `accept_loss` damaged maps go on with what is left of them.
    ///
    /// *Errors*: there is no such pool, or it is not open.
    pub async fn repair(&self, name: &Name, request: RepairPool) -> Result<PoolCheck, Refusal> {
        self.admit_open(name).await?;
        let RepairPool { accept_loss } = request;
        self.core.engine.check(Order::CheckPool { pool: name.clone(), repair: true, accept_loss }).await
    }

    /// The catalog of the pool and the maps of its volumes, as text for people.
    ///
    /// *Errors*: there is no such pool, or it is not open.
    pub async fn dump(&self, name: &Name) -> Result<String, Refusal> {
        self.admit_open(name).await?;
        self.core.engine.text(Order::DumpPool { pool: name.clone() }).await
    }

    /// The data plane repairs the pool as it was set.
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
        let turn = self.core.turn().await;
        let before = self.core.state();
        let mut policy = before.pools.get(name).ok_or_else(|| pools::unknown(name))?.policy.clone();
        change(&mut policy)?;
        self.core.commit(&turn, |state| {
            if let Some(record) = state.pools.get_mut(name) {
                if record.policy.scrub.every != policy.scrub.every {
                    record.scrub_since = Some(crate::system::now());
                }
                record.policy = policy;
            }
        })?;
        if self.report(name).await?.state != PoolState::Missing {
            let applied = self.apply_policy(name).await;
            self.core.or_restore(&turn, applied, &before)?;
        }
        drop(turn);
        self.report(name).await
    }
}
