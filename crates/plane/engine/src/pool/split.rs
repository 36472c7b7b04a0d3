//! Split pools: members that were used without each other. Decides which part is opened, and when a part counts as
//! written.
//!
//! A pool that is opened without some of its members becomes a part of its own only with its first write: that write is
//! announced in the catalog, and the node remembers the current members from then on. Of several written parts an
//! operator keeps one (`docs/adr/0027-what-a-node-remembers-of-members.md`).

use super::membership::keep_membership;
use super::open::{ProbedDisk, found_on};
use super::ownership::ClaimRequest;
use super::{OpenPool, disk_id};
use crate::inspect;
use crate::loss_tracking::BeforeWrites;
use crate::shard_context::ShardContext;
use block::{Extent, IoError, IoErrorKind};
use futures_util::FutureExt;
use model::{DiskName, PoolId, Refusal, Timestamp, code};
use shard::World;
use std::rc::Rc;
use volume::{AssembledPool, DiskState, GroupRole, OVERTAKE_MAX, Position, SplitPart};

/// Starts to serve the pool. If it was opened without members that it counted on, the first write is announced before
/// it is done, and so is the first change of volumes, snapshots or reservations.
pub(super) async fn serve<W: World>(pool: &Rc<OpenPool<W>>, was_unwritten: bool) {
    pool.pool.finish_opening();
    if !pool.pool.must_announce_write() {
        // The replay of a log was a write and has announced it already.
        if was_unwritten {
            keep_membership(pool).await;
        }
        return;
    }
    let weak = Rc::downgrade(pool);
    // Each write awaits this until the announcement is durable; the first one makes it.
    let first: BeforeWrites = Rc::new(move || {
        let pool = weak.upgrade();
        async move {
            let gone = IoError::new(IoErrorKind::Gone, Extent::default());
            announce(&pool.ok_or(gone)?).await
        }
        .boxed_local()
    });
    // Set on every group, because the first write may go to any of them.
    pool.groups.iter().for_each(|(_, group)| group.array.set_write_gate(Some(first.clone())));
    let weak = Rc::downgrade(pool);
    pool.pool.on_written(move || {
        let pool = weak.upgrade();
        async move {
            if let Some(pool) = pool {
                // Writes are released only after the node's row is durable as well.
                keep_membership(&pool).await;
                pool.groups.iter().for_each(|(_, group)| group.array.set_write_gate(None));
            }
        }
        .boxed_local()
    });
}

/// Announces in the catalog that the pool is written without its absent members.
async fn announce<W: World>(pool: &Rc<OpenPool<W>>) -> Result<(), IoError> {
    pool.pool.announce_write().await.map_err(|error| {
        tracing::error!(pool = %pool.name, %error, "the first write could not be announced");
        IoError::new(IoErrorKind::Gone, Extent::default())
    })
}

/// Reduces the disks of a split pool to the part that the operator keeps. Returns the newest generation of the other
/// parts, which the pool must exceed; `None` if it is not split.
///
/// *Errors*: `POOL_SPLIT` if no disk was named, or one that is in no part; `UNCONFIRMED` if the loss of the others was
/// not accepted.
pub(super) fn keep_one<W: World>(
    shard: &ShardContext<W>,
    id: PoolId,
    looked: &mut Vec<ProbedDisk<W>>,
    taking: &mut ClaimRequest,
) -> Result<Option<u64>, Refusal> {
    let Some(found) = found_on(looked, id).filter(|found| !found.parts.is_empty()) else { return Ok(None) };
    let parts = Parts { shard, found: &found, looked };
    // Without a choice of the operator a split pool is never opened.
    let Some(keep) = &taking.keep else { return Err(parts.refusal()) };
    let kept = parts.with(keep).ok_or_else(|| parts.refusal())?;
    let others = || found.parts.iter().enumerate().filter(|(number, _)| *number != kept).map(|(_, part)| part);
    let newest = others().map(|part| part.generation).max().unwrap_or_default();
    // One commit is made for each generation to pass, so the distance is bounded.
    if newest.saturating_sub(found.parts[kept].generation) > OVERTAKE_MAX {
        let message = format!("the attached part of pool {} is too far behind the other part", found.catalog.name);
        return Err(Refusal::new(
            code::POOL_SPLIT,
            message,
            "detach the disks of the other part, then import the pool",
        ));
    }
    if !taking.confirmed {
        let lost: Vec<String> = others().map(|part| parts.drawn(part)).collect();
        let message = format!(
            "writes to the other part of pool {} since the split would be lost: {}",
            found.catalog.name,
            lost.join("; ")
        );
        return Err(Refusal::new(code::UNCONFIRMED, message, "repeat with --yes to confirm"));
    }
    let given_up: Vec<usize> = others().flat_map(|part| part.probes.clone()).collect();
    // The new claim must exceed every claim on the disks, including those of the parts that are given up.
    taking.above = found.marks().iter().map(|(_, mark)| mark.epoch).max().unwrap_or_default();
    // `retain` visits the elements in order, so counting them gives their indices.
    let mut place = 0..;
    looked.retain(|_| !given_up.contains(&place.next().expect("disks are counted")));
    Ok(Some(newest))
}

/// Parts of a pool and their disks.
struct Parts<'a, W: World> {
    shard: &'a ShardContext<W>,
    found: &'a AssembledPool,
    looked: &'a [ProbedDisk<W>],
}

impl<W: World> Parts<'_, W> {
    /// Index of the part that has this disk.
    fn with(&self, disk: &DiskName) -> Option<usize> {
        let has = |part: &SplitPart| part.probes.iter().any(|&place| self.looked[place].candidate.name == *disk);
        self.found.parts.iter().position(has)
    }

    fn refusal(&self) -> Refusal {
        let name = &self.found.catalog.name;
        let numbered = (1..).zip(&self.found.parts);
        let parts: Vec<String> =
            numbered.map(|(number, part)| format!("part {number}: {}", self.drawn(part))).collect();
        let first =
            |part: &SplitPart| self.places(part).first().map(|&place| self.looked[place].candidate.name.to_string());
        let commands = self.found.parts.iter().filter_map(first);
        let commands: Vec<String> =
            commands.map(|disk| format!("blockyard pool import {name} --keep {disk}")).collect();
        let message =
            format!("split brain: pool {name} was written in {} separate parts. {}", parts.len(), parts.join(". "));
        let hint = format!("keep one part; the writes to the other part are lost: {}", commands.join(" or "));
        Refusal::new(code::POOL_SPLIT, message, hint)
    }

    /// Description of a part for an operator: its disks, and when it was in use.
    fn drawn(&self, part: &SplitPart) -> String {
        let disks: Vec<String> = self.places(part).into_iter().map(|place| self.disk(place)).collect();
        let time = Timestamp::from_unix;
        let used = match part.used {
            // No disk of the part has a mark.
            (0, _) => String::new(),
            (opened, until) => format!(", last in use from {} to {}", time(opened), time(until)),
        };
        format!("{} {}{used}", if disks.len() == 1 { "disk" } else { "disks" }, disks.join(", "))
    }

    /// Disks of a part, as indices sorted by name.
    fn places(&self, part: &SplitPart) -> Vec<usize> {
        let mut places = part.probes.clone();
        places.sort_by_key(|&place| &self.looked[place].candidate.name);
        places
    }

    fn disk(&self, place: usize) -> String {
        let candidate = &self.looked[place].candidate;
        let serial = inspect::identify(&self.shard.world, &candidate.path).serial;
        let serial = serial.map_or_else(String::new, |serial| format!(", serial number {serial}"));
        format!("{} ({}{serial})", candidate.name, candidate.path)
    }
}

/// Admits a pool that this node never had and that lacks members, after the operator has confirmed it: nothing here can
/// tell whether the absent members have newer data.
///
/// *Errors*: `UNCONFIRMED`.
pub(super) fn admit_unknown<W: World>(
    shard: &ShardContext<W>,
    taking: &ClaimRequest,
    id: PoolId,
    found: &AssembledPool,
) -> Result<(), Refusal> {
    // A node that has had the pool decides by its own row instead.
    if taking.confirmed || shard.memberships.knows(id) {
        return Ok(());
    }
    // A pool without its log device holds back the volumes of the log, but its data is not older.
    let is_data = |group: usize| found.catalog.groups[group].role == GroupRole::Data;
    let groups = found.groups.iter().enumerate().filter(|(group, _)| is_data(*group));
    let places = groups.flat_map(|(group, it)| (0..).zip(&it.positions).map(move |it| (group, it)));
    let absent = places.filter(|(_, (_, position))| position.state == DiskState::Missing);
    let absent: Vec<String> = absent
        .map(|(group, (slot, Position { disk, .. })): (usize, (u16, &Position))| {
            format!("group {group} slot {slot} (disk identity {})", disk_id(*disk))
        })
        .collect();
    if absent.is_empty() {
        return Ok(());
    }
    let last = found.owner().map_or_else(String::new, |owner| {
        // The owner's mark counts heartbeats, which gives the time of its last one.
        let until = owner.claimed_at.saturating_add(owner.beat.saturating_mul(cluster::HEARTBEAT.as_secs()));
        let until = Timestamp::from_unix(until);
        format!("; these disks were last in use by node {} until {until}", owner.name)
    });
    let message = format!(
        "members of pool {} are absent: {}{last}. This node never used the pool, so the attached disks may be out \
         of date",
        found.catalog.name,
        absent.join(", ")
    );
    Err(Refusal::new(
        code::UNCONFIRMED,
        message,
        "attach the absent disks, or repeat with --yes to open the pool without them",
    ))
}
