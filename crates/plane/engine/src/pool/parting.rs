//! Pools that went on in parts: which part is opened, and what makes a part one that counts.
//!
//! A pool that is opened without some of its members is a part only once it is written: its first write is announced in the catalog,
//! and the node remembers who is current from then on. Of several parts that were written an operator keeps one.

use super::membership::keep_membership;
use super::open::{Looked, found_on};
use super::own::Taking;
use super::{OpenPool, disk_id};
use crate::guarded::BeforeWrites;
use crate::inspect;
use crate::shard_context::ShardContext;
use block::{Extent, IoError, IoErrorKind};
use futures_util::FutureExt;
use model::{DiskName, PoolId, Refusal, Timestamp, code};
use shard::World;
use std::rc::Rc;
use volume::{FoundPart, FoundPool, GroupRole, OUTLIVE_MAX, Position, Standing};

/// The pool serves from now on; where it was opened without members that it counted on, its first write is announced, and so is its first
/// change of volumes, snapshots or reservations.
pub(super) async fn serve<W: World>(pool: &Rc<OpenPool<W>>, was_unwritten: bool) {
    pool.pool.serve();
    if !pool.pool.must_announce_write() {
        // What was replayed has said so.
        if was_unwritten {
            keep_membership(pool).await;
        }
        return;
    }
    let weak = Rc::downgrade(pool);
    let first: BeforeWrites = Rc::new(move || {
        let pool = weak.upgrade();
        async move {
            let gone = IoError::new(IoErrorKind::Gone, Extent::default());
            announce(&pool.ok_or(gone)?).await
        }
        .boxed_local()
    });
    pool.groups.iter().for_each(|(_, group)| group.array.hold_writes(Some(first.clone())));
    let weak = Rc::downgrade(pool);
    pool.pool.on_written(move || {
        let pool = weak.upgrade();
        async move {
            if let Some(pool) = pool {
                keep_membership(&pool).await;
                pool.groups.iter().for_each(|(_, group)| group.array.hold_writes(None));
            }
        }
        .boxed_local()
    });
}

/// The catalog, and the node, know that the pool is written without the members that it lacks.
async fn announce<W: World>(pool: &Rc<OpenPool<W>>) -> Result<(), IoError> {
    pool.pool.announce_write().await.map_err(|error| {
        tracing::error!(pool = %pool.name, %error, "the first write could not be announced");
        IoError::new(IoErrorKind::Gone, Extent::default())
    })
}

/// The disks of the part that an operator keeps, where the pool is in parts; and the newest commit of the others, for the pool is to be
/// newer than they are.
///
/// *Errors*: `POOL_SPLIT` where no disk was named, or one of no part; `UNCONFIRMED` where the loss of the others is not accepted.
pub(super) fn keep_one<W: World>(
    shard: &ShardContext<W>,
    id: PoolId,
    looked: &mut Vec<Looked<W>>,
    taking: &mut Taking,
) -> Result<Option<u64>, Refusal> {
    let Some(found) = found_on(looked, id).filter(|found| !found.parts.is_empty()) else { return Ok(None) };
    let parts = Parts { shard, found: &found, looked };
    let Some(keep) = &taking.keep else { return Err(parts.refusal()) };
    let kept = parts.with(keep).ok_or_else(|| parts.refusal())?;
    let others = || found.parts.iter().enumerate().filter(|(number, _)| *number != kept).map(|(_, part)| part);
    let newest = others().map(|part| part.generation).max().unwrap_or_default();
    if newest.saturating_sub(found.parts[kept].generation) > OUTLIVE_MAX {
        let message = format!("pool {} is too far behind its other part to be brought past it", found.catalog.name);
        return Err(Refusal::new(code::POOL_SPLIT, message, "detach the disks of the other part, and import the pool"));
    }
    if !taking.confirmed {
        let lost: Vec<String> = others().map(|part| parts.drawn(part)).collect();
        let message = format!(
            "what was written to the other part of pool {} since the parts were separated would be lost: {}",
            found.catalog.name,
            lost.join("; ")
        );
        return Err(Refusal::new(code::UNCONFIRMED, message, "repeat with --yes if that is wanted"));
    }
    let given_up: Vec<usize> = others().flat_map(|part| part.probes.clone()).collect();
    taking.above = found.marks().iter().map(|(_, mark)| mark.epoch).max().unwrap_or_default();
    let mut place = 0..;
    looked.retain(|_| !given_up.contains(&place.next().expect("disks are counted")));
    Ok(Some(newest))
}

/// The parts of a pool, and the disks that they are on.
struct Parts<'a, W: World> {
    shard: &'a ShardContext<W>,
    found: &'a FoundPool,
    looked: &'a [Looked<W>],
}

impl<W: World> Parts<'_, W> {
    /// The part that has this disk.
    fn with(&self, disk: &DiskName) -> Option<usize> {
        let has = |part: &FoundPart| part.probes.iter().any(|&place| self.looked[place].candidate.name == *disk);
        self.found.parts.iter().position(has)
    }

    fn refusal(&self) -> Refusal {
        let name = &self.found.catalog.name;
        let numbered = (1..).zip(&self.found.parts);
        let parts: Vec<String> =
            numbered.map(|(number, part)| format!("part {number}: {}", self.drawn(part))).collect();
        let first =
            |part: &FoundPart| self.places(part).first().map(|&place| self.looked[place].candidate.name.to_string());
        let commands = self.found.parts.iter().filter_map(first);
        let commands: Vec<String> =
            commands.map(|disk| format!("blockyard pool import {name} --keep {disk}")).collect();
        let message =
            format!("pool {name} was written in {} parts without each other. {}", parts.len(), parts.join(". "));
        let hint = format!("keep one part, what was written to the other one is lost: {}", commands.join(" or "));
        Refusal::new(code::POOL_SPLIT, message, hint)
    }

    /// The disks of a part, and when it was used last.
    fn drawn(&self, part: &FoundPart) -> String {
        let disks: Vec<String> = self.places(part).into_iter().map(|place| self.disk(place)).collect();
        let time = Timestamp::from_unix;
        let used = match part.used {
            (0, _) => String::new(),
            (opened, until) => format!(", last in use from {} to {}", time(opened), time(until)),
        };
        format!("{} {}{used}", if disks.len() == 1 { "disk" } else { "disks" }, disks.join(", "))
    }

    /// Where the disks of a part are among those that were looked at, by their names.
    fn places(&self, part: &FoundPart) -> Vec<usize> {
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

/// Admits a pool that this node never had, and of which members are absent, once an operator has heard that: nobody here can tell
/// whether these have newer data.
///
/// *Errors*: `UNCONFIRMED`.
pub(super) fn admit_unknown<W: World>(
    shard: &ShardContext<W>,
    taking: &Taking,
    id: PoolId,
    found: &FoundPool,
) -> Result<(), Refusal> {
    if taking.confirmed || shard.memberships.knows(id) {
        return Ok(());
    }
    // Without its log a pool holds back what is in that, and is not older by it.
    let is_data = |group: usize| found.catalog.groups[group].role == GroupRole::Data;
    let groups = found.groups.iter().enumerate().filter(|(group, _)| is_data(*group));
    let places = groups.flat_map(|(group, it)| (0..).zip(&it.positions).map(move |it| (group, it)));
    let absent = places.filter(|(_, (_, position))| position.standing == Standing::Missing);
    let absent: Vec<String> = absent
        .map(|(group, (slot, Position { disk, .. })): (usize, (u16, &Position))| {
            format!("group {group} slot {slot} (disk identity {})", disk_id(*disk))
        })
        .collect();
    if absent.is_empty() {
        return Ok(());
    }
    let last = found.owner().map_or_else(String::new, |owner| {
        let until = owner.claimed_at.saturating_add(owner.beat.saturating_mul(cluster::HEARTBEAT.as_secs()));
        let until = Timestamp::from_unix(until);
        format!("; these disks were last in use by node {} until {until}", owner.name)
    });
    let message = format!(
        "members of pool {} are absent: {}{last}. This node never had the pool: if it continued on the absent disks after that, the attached ones are out of date",
        found.catalog.name,
        absent.join(", ")
    );
    Err(Refusal::new(
        code::UNCONFIRMED,
        message,
        "attach the absent disks, or repeat with --yes to open the pool without them",
    ))
}
