//! Pools that are being opened. That takes seconds if another node may own the pool, and as long as the replay of its
//! logs takes; other orders run meanwhile, and the pool's name and disks are reserved.

use super::Conductor;
use crate::pool::{self, Candidate, ClaimRequest};
use model::{Label, Name, PoolId, PoolReport, Refusal, code};
use shard::{Signal, World};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Pools that are being opened, with their names as far as their disks tell.
#[derive(Default)]
pub(super) struct Openings {
    under_way: RefCell<BTreeMap<PoolId, Option<Name>>>,
    ended: Signal,
}

/// Admitted opening of a pool.
pub(super) struct Opening(pool::Opening);

impl Openings {
    /// True if a pool of this name is being opened.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.under_way.borrow().values().flatten().any(|opening| opening == name)
    }

    /// Waits until no pool is being opened.
    pub(super) async fn all_ended(&self) {
        self.ended.until(|| self.under_way.borrow().is_empty()).await;
    }
}

impl<W: World> Conductor<W> {
    /// Admits the opening and reserves the pool's name and disks until [`Conductor::open_pool`] ends.
    ///
    /// *Errors*: `POOL_BUSY` if it is open or being opened, `NAME_TAKEN` if another pool has its name.
    pub(super) fn begin_opening(
        &self,
        id: PoolId,
        taking: ClaimRequest,
        read_only: bool,
        whole: bool,
    ) -> Result<Opening, Refusal> {
        if let Some(name) = self.pools.borrow().iter().find(|(_, pool)| pool.id == id).map(|(name, _)| name) {
            return Err(Refusal::new(code::POOL_BUSY, format!("pool {name} is already open"), ""));
        }
        if self.openings.under_way.borrow().contains_key(&id) {
            return Err(Refusal::new(code::POOL_BUSY, "the pool is being opened", "wait until it has finished"));
        }
        let mut disks = self.disks.0.borrow_mut();
        let (mut name, mut candidates) = (None, Vec::new());
        for (disk, known) in disks.iter() {
            if let Label::PoolMember { pool, pool_name, .. } = &known.report.label
                && *pool == id
            {
                name.get_or_insert(pool_name.clone());
                candidates.push(Candidate { name: disk.clone(), path: known.path.clone() });
            }
        }
        name.iter().try_for_each(|name| self.admit_pool_name(name))?;
        // Reserved disks count as members, so no other order can take them while the pool is being opened.
        for Candidate { name: disk, .. } in &candidates {
            let known = disks.get_mut(disk).expect("it was found above");
            known.member = name.clone().zip(known.report.label.disk());
        }
        let before = self.openings.under_way.borrow_mut().insert(id, name);
        assert!(before.is_none(), "a pool is opened once at a time");
        Ok(Opening(pool::Opening { id, candidates, taking, read_only, whole }))
    }

    /// Parameters with which this node claims a pool of its own.
    pub(super) fn taking(&self) -> ClaimRequest {
        let (node, secret) = (self.node.clone(), self.secret.clone());
        ClaimRequest {
            node,
            told: false,
            accept_log_loss: false,
            keep: None,
            confirmed: true,
            above: 0,
            secret,
            key: None,
        }
    }

    /// Opens the pool and publishes its volumes.
    pub(super) async fn open_pool(&self, opening: Opening) -> Result<PoolReport, Refusal> {
        let Opening(opening) = opening;
        let id = opening.id;
        // The former home knows which operations of an earlier opening are still in flight (`OperationsInFlight`).
        let former = self.former.borrow().get(&id).copied();
        let home = former.unwrap_or_else(|| self.choose_home());
        let opened = self.at(home, move |shard| pool::open(shard, opening)).await;
        // The reservation of name and disks ends whatever the result.
        let name = self.openings.under_way.borrow_mut().remove(&id).expect("it was begun");
        name.iter().for_each(|name| self.disks.forget_members(name));
        // Entered without an await after the reservation ended, so no other order takes name or disks in between.
        if let Ok((report, volumes)) = &opened {
            self.enter_pool(report, home, volumes);
        }
        // After the tables are complete: a stop that waits for this closes the pool like any other.
        self.openings.ended.raise();
        let (report, _) = opened?;
        self.publish_volumes().await;
        Ok(report)
    }

    /// Admits the name of a pool to be created or opened.
    pub(super) fn admit_pool_name(&self, name: &Name) -> Result<(), Refusal> {
        if !self.pools.borrow().contains_key(name) && !self.openings.has(name) {
            return Ok(());
        }
        Err(Refusal::new(code::NAME_TAKEN, format!("pool {name} already exists"), "choose another name"))
    }
}
