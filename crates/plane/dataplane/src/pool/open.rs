//! Opening a pool that was found on its disks, in any order and under any names.

use super::care::Care;
use super::own::{self, Taking};
use super::rebuild::Halt;
use super::refusals::{array_refusal, plain};
use super::{Candidate, GroupState, OpenPool, Slot, disk_id, volumes};
use crate::array::{self, Disk, FailureRecord};
use crate::inspect;
use crate::seat::Seat;
use block::{BlockDevice, Blocks};
use futures_util::future::join_all;
use model::{Name, PoolId, PoolReport, Refusal, Size, VolumeReport, code};
use raid::{Array, Layout};
use shard::World;
use std::cell::Cell;
use std::rc::Rc;
use volume::{FoundGroup, FoundPool, GroupRecord, Probe, Standing, Survey, Uuid, Window, assemble, member_area};

/// A disk that was looked at.
pub(super) struct Looked<W: World> {
    candidate: Candidate,
    pub(super) disk: Disk<W>,
    probe: Probe,
}

/// The pool is open on this shard, with all of its volumes; what must be repaired is being repaired.
///
/// *Errors*: `POOL_INCOMPLETE` when too many members are missing, `POOL_OWNED` or `POOL_NOT_RELEASED` when another node has or may
/// have the pool; nothing is written then.
pub async fn open<W: World>(
    seat: Rc<Seat<W>>,
    id: PoolId,
    candidates: Vec<Candidate>,
    taking: Taking,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let looked = look_at(&seat, candidates).await;
    let probes: Vec<Probe> = looked.iter().map(|looked| looked.probe.clone()).collect();
    let survey = assemble(&probes);
    for (place, refused) in &survey.refused {
        tracing::warn!(disk = %looked[*place].candidate.name, %refused, "a disk is left alone");
    }
    let found = pick(survey, id)?;
    let again = async || {
        let probes = join_all(looked.iter().map(|looked| volume::probe(&looked.disk))).await;
        pick(assemble(&probes), id)
    };
    let (found, taken) = own::take(&seat, &taking, found, &looked, again).await?;
    let mut states = Vec::new();
    let mut records = Vec::new();
    for (number, (record, group)) in found.catalog.groups.iter().zip(&found.groups).enumerate() {
        let failures = FailureRecord::new(number);
        states.push(assemble_group(record, group, &looked, failures.clone())?);
        records.push(failures);
    }
    let arrays = states.iter().map(|state| state.array.clone()).collect();
    let pool = volume::Pool::open(&found, |place| looked[place].disk.clone(), arrays).await;
    let pool = pool.map_err(|error| plain(&error))?;
    let name = pool.name().parse().unwrap_or_else(|_| fallback_name(id));
    let pool = Rc::new(OpenPool {
        name,
        id,
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
    pool.hold(taken).await?;
    pool.give_up_after_open().await;
    let volumes = volumes::open_all(&pool).await?;
    seat.pools.borrow_mut().insert(pool.name.clone(), pool.clone());
    pool.repair_after_open(&found, |place| looked[place].disk.clone());
    Ok((pool.report(), volumes))
}

/// The pool `id`, which can serve.
fn pick(survey: Survey, id: PoolId) -> Result<FoundPool, Refusal> {
    let wanted = Uuid::from_bytes(id.to_bytes());
    let found = survey.pools.into_iter().find(|found| found.catalog.pool == wanted).ok_or_else(|| {
        let hint = "add the disks of the pool with `blockyard disk add`";
        Refusal::new(code::POOL_INCOMPLETE, format!("no disk bears pool {id}"), hint)
    })?;
    found.admit(survives).map_err(|refused| plain(&refused.into()))?;
    Ok(found)
}

async fn look_at<W: World>(seat: &Rc<Seat<W>>, candidates: Vec<Candidate>) -> Vec<Looked<W>> {
    let mut looked = Vec::new();
    for candidate in candidates {
        match inspect::open(&seat.world, &candidate.path) {
            Ok(device) => {
                let disk = array::disk::<W>(device);
                let probe = volume::probe(&disk).await;
                looked.push(Looked { candidate, disk, probe });
            }
            Err(refusal) => tracing::warn!(disk = %candidate.name, %refusal, "a disk cannot be opened"),
        }
    }
    looked
}

/// True when a group of this record can serve with the members that are `present`.
fn survives(record: &GroupRecord, present: &[bool]) -> bool {
    let Some(level) = array::level_of_code(record.level) else { return false };
    let layout = Layout::new(array::raid_level(level), present.len(), record.chunk_bytes, record.member_blocks);
    let lost = (0..).zip(present).filter(|(_, present)| !**present).map(|(member, _)| member).collect();
    layout.is_ok_and(|layout| layout.survives(lost))
}

fn assemble_group<W: World>(
    record: &GroupRecord,
    group: &FoundGroup,
    looked: &[Looked<W>],
    failures: Rc<FailureRecord<W>>,
) -> Result<GroupState<W>, Refusal> {
    let level = array::level_of_code(record.level).ok_or_else(|| {
        let message = format!("a group of the pool has the unknown RAID level {}", record.level);
        Refusal::new(code::POOL_INCOMPLETE, message, "a newer version made it; use that one")
    })?;
    let layout = Layout::new(array::raid_level(level), record.members.len(), record.chunk_bytes, record.member_blocks);
    let layout = layout.map_err(|error| array_refusal(&error))?;
    let found = |place: Option<usize>| place.and_then(|place| looked.get(place));
    // A member that was being filled is filled again from the beginning: it joins as a replacement.
    let members = group.positions.iter().map(|position| match position.standing {
        Standing::Current => found(position.probe).and_then(|looked| window::<W>(&looked.disk, record.member_blocks)),
        _ => None,
    });
    let array = Array::new(layout, members.collect(), failures).map_err(|error| array_refusal(&error))?;
    let slots = group.positions.iter().map(|position| Slot {
        id: disk_id(position.disk),
        name: found(position.probe).map(|looked| looked.candidate.name.clone()),
        disk: found(position.probe).filter(|_| position.standing.takes_part()).map(|looked| looked.disk.clone()),
    });
    let chunk = Size::new(u64::from(record.chunk_bytes));
    Ok(GroupState::new(level, chunk, record.member_blocks, Rc::new(array), slots.collect()))
}

/// The part of a member disk that its group uses; none of a disk that does not reach so far.
pub(super) fn window<W: World>(disk: &Disk<W>, member_blocks: Blocks) -> Option<Window<Disk<W>>> {
    let area = member_area(member_blocks);
    disk.geometry().all().contains(area).then(|| Window::new(disk.clone(), area))
}

/// Names that we write can be read again; this is for a catalog that something else wrote.
fn fallback_name(id: PoolId) -> Name {
    format!("pool-{}", &id.to_string()[..8]).parse().expect("these characters make a name")
}

impl<W: World> OpenPool<W> {
    /// A disk that could not be brought to what the others hold is not used by its array either.
    async fn give_up_after_open(&self) {
        for (group, status) in self.pool.status().groups.iter().enumerate() {
            for (number, member) in (0..).zip(&status.record.members) {
                let given_up = member.state == volume::MemberState::Failed;
                if given_up
                    && self.member_state(group, number) == raid::MemberState::InService
                    && let Err(error) = self.groups[group].array.fail(number).await
                {
                    tracing::error!(pool = %self.name, group, %error, "a disk that missed a commit is used on");
                }
            }
        }
    }

    fn repair_after_open(self: &Rc<Self>, found: &FoundPool, disk: impl Fn(usize) -> Disk<W>) {
        for (number, (record, group)) in found.catalog.groups.iter().zip(&found.groups).enumerate() {
            for (member, position) in (0..).zip(&group.positions) {
                if let (Standing::Rebuilding { .. }, Some(place)) = (position.standing, position.probe) {
                    self.resume_rebuild(number, member, &disk(place));
                }
            }
            if !record.clean {
                self.start_resync(number);
            }
        }
    }
}
