//! Link between a pool and the membership table of the node ([`crate::memberships`]): check at opening, updates at
//! changes of members.

use super::OpenPool;
use super::ownership::ClaimRequest;
use crate::memberships::{FoundState, KEPT_WITHIN};
use crate::shard_context::ShardContext;
use futures_util::future::{Either, select};
use model::{DiskId, MemberDisk, PoolId, PoolMembership, Refusal, Timestamp, event};
use shard::World;
use std::pin::pin;
use volume::{AssembledPool, DiskState, MemberState};

/// Admits opening the pool as found; an operator may force it to be opened with older data.
///
/// *Errors*: `POOL_OUTDATED` if the node knows of a later change of its members.
pub(super) fn admit<W: World>(
    shard: &ShardContext<W>,
    taking: &ClaimRequest,
    id: PoolId,
    found: &AssembledPool,
) -> Result<(), Refusal> {
    if taking.told {
        return Ok(());
    }
    let positions = found.groups.iter().flat_map(|group| &group.positions);
    let current = positions.filter(|position| position.state == DiskState::Current);
    let current: Vec<DiskId> = current.map(|position| super::disk_id(position.disk)).collect();
    let state = FoundState { generation: found.generation, is_unwritten: found.is_unwritten(), current: &current };
    shard.memberships.admit(id, &found.catalog.name, &state)
}

/// Notes the current members in the membership table, by the latest commit.
pub(super) fn note_membership<W: World>(pool: &OpenPool<W>) {
    // Commits of a read-only pool are in memory only.
    // A pool that was opened without some members and not written is not newer than they are (ADR 27).
    if pool.is_read_only() || pool.pool.must_announce_write() {
        return;
    }
    let groups = pool.pool.status().groups;
    let members = || groups.iter().flat_map(|group| &group.record.members);
    // A change whose commit is in flight (`u64::MAX`) is noted when the commit is done.
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

/// As [`note_membership`], and waits until the row is durable. A state disk that does not answer in time causes an
/// event and is not waited for any longer.
pub(super) async fn keep_membership<W: World>(pool: &OpenPool<W>) {
    note_membership(pool);
    // A bounded wait: the state disk of the node must not stop a pool.
    let kept = pin!(pool.shard.memberships.until_durable(pool.id));
    let late = pin!(pool.shard.world.sleep(KEPT_WITHIN));
    if let Either::Right(_) = select(kept, late).await {
        let sentence = format!(
            "the list of current disks of pool {1} could not be saved within {0} s. If only outdated disks are \
             attached at the next start, old data may be served. Check the disk of the state folder.",
            KEPT_WITHIN.as_secs(),
            pool.name
        );
        pool.raise(event::MEMBERSHIP_UNKEPT, sentence);
    }
}
