//! The node remembers which members of a pool are current.

use super::OpenPool;
use super::own::Taking;
use crate::memberships::{FoundState, KEPT_WITHIN};
use crate::shard_context::ShardContext;
use futures_util::future::{Either, select};
use model::{DiskId, MemberDisk, PoolId, PoolMembership, Refusal, Timestamp, event};
use shard::World;
use std::pin::pin;
use volume::{FoundPool, MemberState, Standing};

/// Admits that the pool is opened as it was found, or as old as it is where an operator says so.
///
/// *Errors*: `POOL_OUTDATED` where the node knows of a later change of its members.
pub(super) fn admit<W: World>(
    shard: &ShardContext<W>,
    taking: &Taking,
    id: PoolId,
    found: &FoundPool,
) -> Result<(), Refusal> {
    if taking.told {
        return Ok(());
    }
    let positions = found.groups.iter().flat_map(|group| &group.positions);
    let current = positions.filter(|position| position.standing == Standing::Current);
    let current: Vec<DiskId> = current.map(|position| super::disk_id(position.disk)).collect();
    let state = FoundState { generation: found.generation, is_unwritten: found.is_unwritten(), current: &current };
    shard.memberships.admit(id, &found.catalog.name, &state)
}

/// The node remembers who is current now; what was committed last counts.
pub(super) fn note_membership<W: World>(pool: &OpenPool<W>) {
    // What a read-only pool commits is in memory alone.
    // A pool that was only opened without some members is no newer than these.
    if pool.is_read_only() || pool.pool.must_announce_write() {
        return;
    }
    let groups = pool.pool.status().groups;
    let members = || groups.iter().flat_map(|group| &group.record.members);
    // One that is being committed is noted when that is done.
    let since = members().map(|member| member.since).filter(|since| *since < u64::MAX);
    let generation = since.max().unwrap_or_default();
    let named = |takes_part: bool| {
        let all =
            groups.iter().enumerate().flat_map(|(at, group)| (0..).zip(&group.record.members).map(move |it| (at, it)));
        let chosen = all.filter(|(_, (_, member))| matches!(member.state, MemberState::InService) == takes_part);
        let disk = |(group, (place, member)): (usize, (u16, &volume::MemberRecord))| MemberDisk {
            id: super::disk_id(member.disk),
            name: if pool.groups.get(group).is_some() { pool.disk_name(group, place) } else { member.disk.to_string() },
        };
        chosen.map(disk).collect::<Vec<_>>()
    };
    pool.shard.memberships.note(PoolMembership {
        pool: pool.id,
        generation,
        at: Timestamp::from_unix(pool.shard.world.unix_seconds()),
        current: named(true),
        absent: named(false),
    });
}

/// As [`note_membership`], and the node's state has it, durably. A state that does not answer in time is an event, and
/// waited for no longer.
pub(super) async fn keep_membership<W: World>(pool: &OpenPool<W>) {
    note_membership(pool);
    let kept = pin!(pool.shard.memberships.until_kept(pool.id));
    let late = pin!(pool.shard.world.sleep(KEPT_WITHIN));
    if let Either::Right(_) = select(kept, late).await {
        let sentence = format!(
            "the state of the node did not take within {} s which disks of pool {} are current. If the other disks are attached \
             alone at the next start, old data may be served. Check the disk of the state folder.",
            KEPT_WITHIN.as_secs(),
            pool.name
        );
        pool.raise(event::MEMBERSHIP_UNKEPT, sentence);
    }
}
