//! Return of members that were absent when their pool was opened. Ordered by the control plane, which looks for them.
//!
//! A member that stopped answering while the pool was open returns by itself
//! (see [`super::unresponsive`]); a failed one does not return.

use super::rejoin::MemberSlot;
use super::silence_guard::SilenceGuard;
use super::{Candidate, OpenPool, find, refusals, uuid};
use crate::array;
use crate::shard_context::ShardContext;
use model::{DiskId, Name, PoolReport, Refusal, code};
use raid::MemberState;
use shard::World;
use std::rc::Rc;

/// Readmits the member, found on `candidate`, and lets it catch up.
///
/// *Errors*: `DISK_NOT_MEMBER` if the disk has another label, `DISK_HEALTHY` if the pool is not waiting for it.
pub(crate) async fn return_disk<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    id: DiskId,
    candidate: Candidate,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    let (group, member) = pool.place(id)?;
    let place = MemberSlot { pool: &pool, group, member };
    pool.admit_change_of_members(group)?;
    admit_absent(&pool, &place, &candidate)?;
    let disk = array::open_disk(&shard, &candidate.path).await?;
    // The disk is not watched by the pool yet and may hang.
    let guard = SilenceGuard::over(&shard, std::iter::once(&disk));
    let Some(found) = place.member_on(&disk).await else {
        let message = format!("disk {} has no label of a member of pool {}", candidate.name, pool.name);
        return Err(Refusal::new(code::DISK_NOT_MEMBER, message, "attach the original disk"));
    };
    place.admit_return(&found, candidate.name.as_str())?;
    drop(guard);
    // Another disk may have taken the slot while the label was read.
    admit_absent(&pool, &place, &candidate)?;
    // The handle of the former opening is dropped before the new one takes its place.
    pool.pool.members().release(uuid(id));
    {
        let mut slots = pool.groups[group].slots.borrow_mut();
        let slot = &mut slots[usize::from(member)];
        assert!(slot.id == id && slot.disk.is_none(), "nobody has the place of an absent member");
        (slot.name, slot.path) = (Some(candidate.name), candidate.path);
    }
    place.readmit(&disk).await.map_err(|error| refusals::refusal(&error, &pool))?;
    pool.start_repair(group);
    Ok(pool.report())
}

/// Admits a member that is missing because its disk was not found, and for no other reason.
fn admit_absent<W: World>(pool: &OpenPool<W>, place: &MemberSlot<'_, W>, candidate: &Candidate) -> Result<(), Refusal> {
    let (group, at) = (place.group, usize::from(place.member));
    let in_array = pool.member_state(group, place.member) == MemberState::Missing;
    let status = pool.pool.status();
    let recorded = status.groups.get(group).and_then(|group| group.record.members.get(at)).map(|member| member.state);
    let is_open = pool.groups[group].slots.borrow()[at].disk.is_some();
    if in_array && !is_open && recorded == Some(volume::MemberState::Missing) {
        return Ok(());
    }
    let message = format!("pool {} does not wait for disk {}", pool.name, candidate.name);
    Err(Refusal::new(code::DISK_HEALTHY, message, "replace it with blockyard disk replace; the same disk can rejoin"))
}
