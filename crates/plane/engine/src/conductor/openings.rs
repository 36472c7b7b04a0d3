//! Pools that are being opened. That takes seconds where another node may have the pool, and as long as it takes to replay what
//! a crash has left: other orders go on meanwhile, and nobody else gets the pool's name or its disks.

use super::Conductor;
use crate::pool::{self, Candidate, Taking};
use model::{Label, Name, PoolId, PoolReport, Refusal, code};
use shard::{Signal, World};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The pools that are being opened, and what their disks call them.
#[derive(Default)]
pub(super) struct Openings {
    under_way: RefCell<BTreeMap<PoolId, Option<Name>>>,
    ended: Signal,
}

/// A pool that is about to be opened.
pub(super) struct Opening(pool::Opening);

impl Openings {
    /// True when a pool of this name is being opened.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.under_way.borrow().values().flatten().any(|opening| opening == name)
    }

    /// No pool is being opened any more.
    pub(super) async fn all_ended(&self) {
        self.ended.until(|| self.under_way.borrow().is_empty()).await;
    }
}

impl<W: World> Conductor<W> {
    /// The pool's name and its disks are kept for it until [`Conductor::open_pool`] ends.
    ///
    /// *Errors*: `POOL_BUSY` when it is open or being opened, `NAME_TAKEN` when another pool has its name.
    pub(super) fn begin_opening(
        &self,
        id: PoolId,
        taking: Taking,
        read_only: bool,
        whole: bool,
    ) -> Result<Opening, Refusal> {
        if let Some(name) = self.pools.borrow().iter().find(|(_, pool)| pool.id == id).map(|(name, _)| name) {
            return Err(Refusal::new(code::POOL_BUSY, format!("pool {name} is open already"), ""));
        }
        if self.openings.under_way.borrow().contains_key(&id) {
            return Err(Refusal::new(code::POOL_BUSY, "the pool is being opened", "wait until that has ended"));
        }
        let mut disks = self.disks.0.borrow_mut();
        let (mut name, mut candidates) = (None, Vec::new());
        for (disk, known) in disks.iter() {
            if let Label::Ours { pool, pool_name, .. } = &known.report.label
                && *pool == id
            {
                name.get_or_insert(pool_name.clone());
                candidates.push(Candidate { name: disk.clone(), path: known.path.clone() });
            }
        }
        name.iter().try_for_each(|name| self.admit_pool_name(name))?;
        for Candidate { name: disk, .. } in &candidates {
            let known = disks.get_mut(disk).expect("it was found above");
            known.member = name.clone().zip(known.report.label.disk());
        }
        let before = self.openings.under_way.borrow_mut().insert(id, name);
        assert!(before.is_none(), "a pool is opened once at a time");
        Ok(Opening(pool::Opening { id, candidates, taking, read_only, whole }))
    }

    /// How this node takes a pool of its own.
    pub(super) fn taking(&self) -> Taking {
        let (node, secret) = (self.node.clone(), self.secret.clone());
        Taking { node, told: false, accept_log_loss: false, keep: None, confirmed: true, above: 0, secret, key: None }
    }

    /// The pool is open, and hosts see its volumes.
    pub(super) async fn open_pool(&self, opening: Opening) -> Result<PoolReport, Refusal> {
        let Opening(opening) = opening;
        let id = opening.id;
        let former = self.former.borrow().get(&id).copied();
        let home = former.unwrap_or_else(|| self.choose_home());
        let opened = self.at(home, move |shard| pool::open(shard, opening)).await;
        let name = self.openings.under_way.borrow_mut().remove(&id).expect("it was begun");
        name.iter().for_each(|name| self.disks.forget_members(name));
        if let Ok((report, volumes)) = &opened {
            self.enter_pool(report, home, volumes);
        }
        self.openings.ended.raise();
        let (report, _) = opened?;
        self.publish_volumes().await;
        Ok(report)
    }

    /// Admits the name of a pool that is to be there.
    pub(super) fn admit_pool_name(&self, name: &Name) -> Result<(), Refusal> {
        if !self.pools.borrow().contains_key(name) && !self.openings.has(name) {
            return Ok(());
        }
        Err(Refusal::new(code::NAME_TAKEN, format!("there is a pool {name} already"), "choose another name"))
    }
}
