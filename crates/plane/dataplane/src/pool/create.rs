//! Making a pool of disks.

use super::care::Care;
use super::own::{self, Taking};
use super::rebuild::Halt;
use super::refusals::{array_refusal, plain};
use super::{CREATED_BY, Candidate, GroupState, OpenPool, Slot, disk_id, new_uuid, open};
use crate::array::{self, Disk, FailureRecord};
use crate::inspect;
use crate::seat::Seat;
use block::BlockDevice;
use model::{Level, Name, PoolId, PoolReport, Refusal, Size, code};
use raid::{Array, Layout};
use shard::World;
use std::cell::Cell;
use std::rc::Rc;
use volume::{BLOCK_BYTES, CreatePool, DISK_BYTES_MIN, GroupPlan, NewDisk, Uuid, data_area};

/// A pool to be made.
pub struct NewPool {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub id: PoolId,
    /// Its disk groups.
    pub groups: Vec<NewGroup>,
    /// True when foreign content of the disks may be overwritten.
    pub force: bool,
}

/// A disk group to be made.
pub struct NewGroup {
    /// How it protects.
    pub level: Level,
    /// Bytes on one member before the next member's turn.
    pub chunk: Size,
    /// Its disks, in order.
    pub disks: Vec<Candidate>,
}

/// The pool is made, and open on this shard.
///
/// *Durability*: when it returns.
pub async fn create<W: World>(seat: Rc<Seat<W>>, spec: NewPool, taking: Taking) -> Result<PoolReport, Refusal> {
    let mut plans = Vec::new();
    let mut states = Vec::new();
    let mut records = Vec::new();
    for (number, group) in spec.groups.iter().enumerate() {
        let (plan, state, record) = prepare(&seat, number, group)?;
        plans.push(plan);
        states.push(state);
        records.push(record);
    }
    let plan = CreatePool {
        id: Uuid::from_bytes(spec.id.to_bytes()),
        name: spec.name.to_string(),
        slab_bytes: 0,
        groups: plans,
        now: seat.world.unix_seconds(),
        created_by: CREATED_BY.to_owned(),
        force: spec.force,
    };
    let arrays = states.iter().map(|state| state.array.clone()).collect();
    let pool = volume::Pool::create(plan, arrays).await.map_err(|error| named(&error, &states))?;
    let pool = Rc::new(OpenPool {
        name: spec.name.clone(),
        id: spec.id,
        pool,
        seat: seat.clone(),
        groups: states.into(),
        halt: Halt::default(),
        taking_out: Cell::default(),
        care: Care::default(),
        claim: own::Claim::default(),
    });
    records.iter().for_each(|record| record.bind(&pool));
    pool.hear_of_failures();
    pool.claim(&taking).await?;
    seat.pools.borrow_mut().insert(spec.name, pool.clone());
    Ok(pool.report())
}

pub(super) type Prepared<W> = (GroupPlan<Disk<W>>, GroupState<W>, Rc<FailureRecord<W>>);

/// The group of these disks, open, with nothing written.
pub(super) fn prepare<W: World>(seat: &Rc<Seat<W>>, number: usize, group: &NewGroup) -> Result<Prepared<W>, Refusal> {
    let mut disks = Vec::new();
    for candidate in &group.disks {
        let disk: Disk<W> = array::disk::<W>(inspect::open(&seat.world, &candidate.path)?);
        let bytes = disk.geometry().bytes();
        if data_area(disk.geometry().blocks).is_none() {
            let message = format!("disk {} has only {}", candidate.name, Size::new(bytes).iec());
            let hint = format!("a member needs at least {}", Size::new(DISK_BYTES_MIN).iec());
            return Err(Refusal::new(code::DISK_TOO_SMALL, message, hint));
        }
        disks.push(disk);
    }
    let areas = disks.iter().filter_map(|disk| data_area(disk.geometry().blocks));
    let smallest = areas.map(|area| area.len).min().unwrap_or_default();
    let chunk_bytes = u32::try_from(group.chunk.bytes()).unwrap_or(u32::MAX);
    let layout = Layout::new(array::raid_level(group.level), disks.len(), chunk_bytes, smallest);
    let layout = layout.map_err(|error| array_refusal(&error))?;
    let record = FailureRecord::new(number);
    let windows = disks.iter().map(|disk| open::window::<W>(disk, smallest)).collect();
    let array = Array::new(layout, windows, record.clone()).map_err(|error| array_refusal(&error))?;
    let ids: Vec<Uuid> = disks.iter().map(|_| new_uuid(&seat.world)).collect();
    let slots = group.disks.iter().zip(&disks).zip(&ids).map(|((candidate, disk), &id)| Slot {
        id: disk_id(id),
        name: Some(candidate.name.clone()),
        disk: Some(disk.clone()),
    });
    let state = GroupState::new(group.level, group.chunk, smallest, Rc::new(array), slots.collect());
    let members = ids.iter().zip(&disks).map(|(&id, disk)| NewDisk { id, device: disk.clone() }).collect();
    let plan = GroupPlan {
        id: new_uuid(&seat.world),
        level: array::level_code(group.level),
        protected: false,
        chunk_bytes,
        member_blocks: smallest,
        members,
    };
    debug_assert_eq!(BLOCK_BYTES, raid::BLOCK_BYTES, "one block size inside the engine");
    Ok((plan, state, record))
}

/// The refusal of a creation, with the name of the disk that is to blame instead of its new identity.
pub(super) fn named<W: World>(error: &volume::PoolError, states: &[GroupState<W>]) -> Refusal {
    use volume::PoolError::{DiskFails, DiskForeign, DiskOfPool, DiskTooSmall};
    let mut refusal = plain(error);
    let (DiskTooSmall { disk, .. } | DiskForeign { disk, .. } | DiskFails { disk, .. } | DiskOfPool { disk, .. }) =
        error
    else {
        return refusal;
    };
    let slots = states.iter().flat_map(|state| state.slots.borrow().clone());
    if let Some(name) = slots.into_iter().find(|slot| slot.id == disk_id(*disk)).and_then(|slot| slot.name) {
        refusal.message = format!("disk {name}: {}", refusal.message);
    }
    refusal
}
