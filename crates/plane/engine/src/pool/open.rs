//! Opening of a pool from its disks, in any order and under any names.
//!
//! Called by the conductor on the pool's home shard. Nothing may be written before the ownership of the pool is
//! claimed.

use super::keys;
use super::ownership::{self, ClaimRequest};
use super::read_only::{ASKED_FOR, open_read_only, why_unwritable};
use super::refusals::{array_refusal, open_refusal, plain, refusal};
use super::rejoin::MemberSlot;
use super::silence_guard::SilenceGuard;
use super::{
    Candidate, GroupState, OpenPool, Slot, affected_volumes, disk_id, membership, scrub, split, unresponsive, uuid,
    volumes,
};
use crate::array::{self, Disk, GroupListener, Member};
use crate::loss_tracking::LossTrackingArray;
use crate::shard_context::ShardContext;
use block::{BlockDevice, Blocks};
use futures_util::future::join_all;
use model::{Name, PoolId, PoolReport, Refusal, Size, Subject, SubjectKind, VolumeReport, code, event, first_few};
use raid::{Array, ArrayError, Layout, Rejected, Shape};
use shard::World;
use std::rc::Rc;
use volume::{
    AssembledGroup, AssembledPool, Assembly, Contents, DiskState, GroupRecord, GroupRole, PoolError, Position, Probe,
    Uuid, Window, assemble, data_area,
};

/// A disk that was probed.
pub(super) struct ProbedDisk<W: World> {
    pub(super) candidate: Candidate,
    pub(super) disk: Disk<W>,
    pub(super) probe: Probe,
}

/// Parameters of opening a pool.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// Identity of the pool.
    pub id: PoolId,
    /// Disks that may be its members.
    pub candidates: Vec<Candidate>,
    /// Claiming node and the operator's decisions.
    pub taking: ClaimRequest,
    /// True to open it read-only.
    pub read_only: bool,
    /// True to refuse the opening while a member is absent that the newest catalog counts on.
    pub whole: bool,
}

/// Opens the pool on this shard with all of its volumes and starts the repairs that it needs. The pool is read-only if
/// that was requested or if its disks refuse writes.
///
/// *Errors*: `POOL_INCOMPLETE` if too many members are missing; `POOL_OWNED` or `POOL_NOT_RELEASED` if another node has
/// or may have the pool. Nothing is written then.
pub(crate) async fn open<W: World>(
    shard: Rc<ShardContext<W>>,
    opening: Opening,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let Opening { id, candidates, mut taking, read_only, whole } = opening;
    let mut why = read_only.then(|| ASKED_FOR.to_owned());
    if why.is_none() {
        let mut looked = probe_disks(&shard, &candidates, false, taking.told).await;
        // Disks that hang are interrupted while the pool is assembled; after that its own watchdog takes over.
        let guard = SilenceGuard::over(&shard, looked.iter().map(|looked| &looked.disk));
        // A split pool is reduced to one part before anything else is judged.
        let others = split::keep_one(&shard, id, &mut looked, &mut taking)?;
        match open_written(&shard, id, &looked, (&taking, whole), others, &guard).await {
            // Only disks that refuse writes lead to a read-only pool; every other refusal is returned.
            Err(refusal) => why = Some(why_unwritable(&shard, id, &candidates, looked, &refusal).await.ok_or(refusal)?),
            opened => return opened,
        }
    }
    // The disks are opened again, this time for reading only.
    let mut looked = probe_disks(&shard, &candidates, true, false).await;
    split::keep_one(&shard, id, &mut looked, &mut taking)?;
    open_read_only(&shard, id, &looked, &taking, why.unwrap_or_default()).await
}

/// Opens the pool for reading and writing, and claims it.
async fn open_written<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    looked: &[ProbedDisk<W>],
    (taking, whole): (&ClaimRequest, bool),
    others: Option<u64>,
    guard: &SilenceGuard,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let found = find_to_serve(shard, id, looked, (taking, whole)).map_err(|refusal| {
        // Disks that another node has used meanwhile are not to be attached here.
        ownership::of_another(found_on(looked, id).as_ref(), taking, refusal)
    })?;
    keys::admit(&found, taking)?;
    guard.spare_slow(can_open_without(&found));
    // Claim before assembling: replaying the redo logs writes to the disks.
    let (found, taken) = ownership::take(shard, taking, found, looked, async || reprobe(looked, id).await).await?;
    let mut found = found;
    found.announce_writes();
    others.into_iter().for_each(|others| found.discard_other_parts(others));
    let Assembled { pool, troubles, log_refused } = assemble_pool(shard, id, &found, looked, taking).await?;
    let opened = AfterOpen { pool: &pool, found: &found, guard: Some(guard) };
    opened.tell_of_damage(looked);
    // From here on the heartbeat of the open pool keeps the claim.
    pool.keep_claim(taken).await?;
    // On thinly provisioned disks a commit must not fail later for lack of space.
    for (disk, error) in pool.pool.members().reserve_metadata().await {
        tracing::warn!(pool = %pool.name, %disk, %error, "there is no space for all metadata of a disk");
    }
    // The pool key must be set before volumes are opened, which may be encrypted.
    pool.bring_key(taking).await?;
    opened.report_problems(&troubles);
    opened.agree().await?;
    // The node's row must name the members that are current now before hosts can write.
    membership::keep_membership(&pool).await;
    let is_unwritten = pool.pool.must_announce_write();
    pool.finish_growth().await;
    // Before any read of the maps: a dirty group may return one or the other copy of a block.
    opened.suspect_dirty();
    let volumes = volumes::open_all(&pool, log_refused).await?;
    split::serve(&pool, is_unwritten).await;
    opened.expect_given_up_back().await?;
    shard.pools.borrow_mut().insert(pool.name.clone(), pool.clone());
    opened.repair(|place| looked[place].disk.clone()).await;
    scrub::resume_scrub(&pool);
    Ok((pool.report(), volumes))
}

/// Finds the pool `id` on these disks, and admits that they are current and sufficient.
fn find_to_serve<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    looked: &[ProbedDisk<W>],
    (taking, whole): (&ClaimRequest, bool),
) -> Result<AssembledPool, Refusal> {
    let found = find_pool(looked, id)?;
    membership::admit(shard, taking, id, &found)?;
    admit_present(&found, whole)?;
    split::admit_unknown(shard, taking, id, &found)?;
    Ok(found)
}

/// Returns the rule by which the opening continues without probed disks that are marked: every group that opens now
/// must survive.
fn can_open_without(found: &AssembledPool) -> impl Fn(&[bool]) -> bool + 'static {
    let groups = found.catalog.groups.iter().zip(&found.groups);
    let opens = |record: &GroupRecord| match record.role {
        GroupRole::Data => true,
        GroupRole::Log => !found.lacks_log(),
        GroupRole::Removed => false,
    };
    let probe_of = |position: &Position| position.probe.filter(|_| position.state == DiskState::Current);
    let groups: Vec<(GroupRecord, Vec<Option<usize>>)> = groups
        .filter(|(record, _)| opens(record))
        .map(|(record, group)| (record.clone(), group.positions.iter().map(probe_of).collect()))
        .collect();
    move |given_up| {
        let is_present = |probe: &Option<usize>| probe.is_some_and(|probe| !given_up[probe]);
        groups.iter().all(|(record, probes)| survives(record, &probes.iter().map(is_present).collect::<Vec<_>>()))
    }
}

/// Admits a pool that lacks no member on which its newest catalog counts, if `whole` demands that.
fn admit_present(found: &AssembledPool, whole: bool) -> Result<(), Refusal> {
    let name = &found.catalog.name;
    let positions = found.groups.iter().flat_map(|group| &group.positions);
    let absent: Vec<String> =
        positions.filter(|position| position.state == DiskState::Missing).map(|one| one.disk.to_string()).collect();
    if absent.is_empty() || !whole {
        return Ok(());
    }
    let message = format!("pool {name} waits for absent disks: {}", first_few(absent.iter(), 3));
    Err(Refusal::new(code::POOL_WAITING, message, "attach them; the pool then opens by itself"))
}

/// Result of assembling the disks of a pool.
pub(super) struct Assembled<W: World> {
    pub(super) pool: Rc<OpenPool<W>>,
    pub(super) troubles: Vec<(usize, OpenProblems)>,
    pub(super) log_refused: Option<Refusal>,
}

/// Builds the pool over its arrays and replays their redo logs.
pub(super) async fn assemble_pool<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    found: &AssembledPool,
    looked: &[ProbedDisk<W>],
    taking: &ClaimRequest,
) -> Result<Assembled<W>, Refusal> {
    let (mut groups, mut arrays, mut troubles, mut log_refused) = (Vec::new(), Vec::new(), Vec::new(), None);
    for (number, (record, group)) in found.catalog.groups.iter().zip(&found.groups).enumerate() {
        let watch = GroupListener::new(number, record.protected);
        if taking.accept_log_loss {
            watch.accept_log_loss();
        }
        let assembled = match record.role {
            GroupRole::Data => {
                let assembled = assemble_group(shard, record, group, looked, &watch).await;
                assembled.map_err(|refusal| affected_volumes::of_group(refusal, found, number))?
            }
            // Without its log device the pool opens all the same: only volumes in write-back wait for it.
            GroupRole::Log if found.lacks_log() => continue,
            GroupRole::Log => match assemble_group(shard, record, group, looked, &watch).await {
                Ok(assembled) => assembled,
                Err(refusal) => {
                    log_refused = Some(refusal);
                    continue;
                }
            },
            GroupRole::Removed => continue,
        };
        let (state, trouble) = assembled;
        troubles.push((number, trouble));
        // Volumes do not lie on the log device, so its array is kept apart.
        if record.role == GroupRole::Data {
            arrays.push(state.array.clone());
        }
        groups.push((number, state, watch));
    }
    let of_volumes = found.catalog.groups.iter().filter(|group| group.role == GroupRole::Data).count();
    assert_eq!(arrays.len(), of_volumes, "every group that volumes lie on has its array");
    let pool = volume::Pool::open(found, |place| looked[place].disk.clone(), arrays, survives).await;
    let pool = pool.map_err(|error| named(&error, found, looked))?;
    let name = pool.name().parse().unwrap_or_else(|_| fallback_name(id));
    Ok(Assembled { pool: OpenPool::assembled(shard, name, id, pool, groups), troubles, log_refused })
}

/// Finds the pool `id` on these disks, in a state in which it can serve.
pub(super) fn find_pool<W: World>(looked: &[ProbedDisk<W>], id: PoolId) -> Result<AssembledPool, Refusal> {
    let survey = survey_of(looked);
    for (place, refused) in &survey.refused {
        tracing::warn!(disk = %looked[*place].candidate.name, %refused, "a disk is left alone");
    }
    pick(survey, id, looked)
}

/// Surveys the pools on these disks.
fn survey_of<W: World>(looked: &[ProbedDisk<W>]) -> Assembly {
    let probes: Vec<Probe> = looked.iter().map(|looked| looked.probe.clone()).collect();
    assemble(&probes)
}

/// Finds the pool `id` on these disks, whether it can serve or not.
pub(super) fn found_on<W: World>(looked: &[ProbedDisk<W>], id: PoolId) -> Option<AssembledPool> {
    survey_of(looked).pools.into_iter().find(|found| found.catalog.pool == wanted(id))
}

fn wanted(id: PoolId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

/// As [`find_pool`], with the disks probed again.
pub(super) async fn reprobe<W: World>(looked: &[ProbedDisk<W>], id: PoolId) -> Result<AssembledPool, Refusal> {
    let probes = join_all(looked.iter().map(|looked| volume::probe(&looked.disk))).await;
    pick(assemble(&probes), id, looked)
}

/// Picks the pool `id`, in a state in which it can serve.
fn pick<W: World>(survey: Assembly, id: PoolId, looked: &[ProbedDisk<W>]) -> Result<AssembledPool, Refusal> {
    let wanted = wanted(id);
    // Checked before absence: the disks are there, only their catalogs cannot be read.
    if let Some(unreadable) = survey.unreadable.iter().find(|found| found.pool == wanted) {
        let disks: Vec<_> = unreadable.disks.iter().map(|&place| looked[place].candidate.name.to_string()).collect();
        let message = format!(
            "the catalog of pool {} cannot be read from any attached disk ({}): both copies are damaged on each",
            unreadable.name,
            disks.join(", ")
        );
        let hint = "attach the other disks of the pool: one intact copy is enough. Do not erase the attached \
             disks: their data is unchanged";
        return Err(Refusal::new(code::POOL_INCOMPLETE, message, hint));
    }
    let found = survey.pools.into_iter().find(|found| found.catalog.pool == wanted).ok_or_else(|| {
        let hint = "add the disks of the pool with `blockyard disk add`";
        Refusal::new(code::POOL_INCOMPLETE, format!("no disk belongs to pool {id}"), hint)
    })?;
    found.admit(survives).map_err(|refused| plain(&refused.into()))?;
    Ok(found)
}

/// Opens and probes the disks; those that cannot be opened or do not answer are left out.
pub(super) async fn probe_disks<W: World>(
    shard: &Rc<ShardContext<W>>,
    candidates: &[Candidate],
    read_only: bool,
    force: bool,
) -> Vec<ProbedDisk<W>> {
    let mut opened = Vec::new();
    for candidate in candidates {
        match array::open_disk_as(shard, &candidate.path, read_only, force).await {
            Ok(disk) => opened.push((candidate.clone(), disk)),
            Err(refusal) => tracing::warn!(disk = %candidate.name, %refusal, "a disk cannot be opened"),
        }
    }
    let _guard = SilenceGuard::over(shard, opened.iter().map(|(_, disk)| disk));
    // Probes run concurrently, so that a slow disk does not delay the others.
    let looked = join_all(opened.into_iter().map(async |(candidate, disk)| {
        let probe = volume::probe(&disk).await;
        ProbedDisk { candidate, disk, probe }
    }));
    let mut looked = looked.await;
    // The probe of a disk that the guard interrupted is incomplete.
    looked.retain(|looked| {
        let answers = !array::interruptible(&looked.disk).is_interrupted();
        if !answers {
            tracing::warn!(disk = %looked.candidate.name, "a disk does not respond and is not used");
        }
        answers
    });
    looked
}

/// Translates an error of the pool; an error of one disk names the disk.
fn named<W: World>(error: &PoolError, found: &AssembledPool, looked: &[ProbedDisk<W>]) -> Refusal {
    let refusal = plain(error);
    let PoolError::DiskFails { disk, .. } = error else { return refusal };
    let mut positions = found.groups.iter().flat_map(|group| &group.positions);
    let place = positions.find(|position| position.disk == *disk).and_then(|position| position.probe);
    let Some(ProbedDisk { candidate, .. }) = place.and_then(|place| looked.get(place)) else { return refusal };
    let message = format!("disk {}, which its group needs: {}", candidate.name, refusal.message);
    Refusal { message, hint: "attach a working disk, then open the pool again".to_owned(), ..refusal }
}

/// True if a group of this record can serve with the members that are `present`.
pub(super) fn survives(record: &GroupRecord, present: &[bool]) -> bool {
    // A pool with a level unknown to this version cannot be judged.
    let Some(level) = array::level_of_code(record.level) else { return false };
    let layout = Layout::new(array::raid_level(level), present.len(), record.chunk_bytes, record.member_blocks);
    let lost = (0..).zip(present).filter(|(_, present)| !**present).map(|(member, _)| member).collect();
    layout.is_ok_and(|layout| layout.survives(lost))
}

/// Problems with which an array was opened.
#[derive(Default)]
pub(super) struct OpenProblems {
    /// Members whose disks the array refused.
    left_out: Vec<(u16, Rejected)>,
    /// Batches of its redo log that cannot be read; the operator has accepted their loss.
    holes: Vec<std::ops::Range<u64>>,
}

/// Assembles the group and its array.
pub(super) async fn assemble_group<W: World>(
    shard: &Rc<ShardContext<W>>,
    record: &GroupRecord,
    group: &AssembledGroup,
    looked: &[ProbedDisk<W>],
    watch: &Rc<GroupListener<W>>,
) -> Result<(GroupState<W>, OpenProblems), Refusal> {
    let level = array::level_of_code(record.level).ok_or_else(|| {
        let message = format!("a group of the pool has the unknown RAID level {}", record.level);
        Refusal::new(code::POOL_INCOMPLETE, message, "it was created by a newer version; use that version")
    })?;
    let found = |place: Option<usize>| place.and_then(|place| looked.get(place));
    // A member whose rebuild was interrupted joins again after the pool was opened.
    let members = group.positions.iter().map(|position| match position.state {
        DiskState::Current => found(position.probe).and_then(|looked| window::<W>(&looked.disk, record.member_blocks)),
        _ => None,
    });
    let slots: Vec<Slot<W>> = group
        .positions
        .iter()
        .map(|position| Slot {
            id: disk_id(position.disk),
            name: found(position.probe).map(|looked| looked.candidate.name.clone()),
            // Disks of failed members stay closed, so that they can be replaced or taken back.
            disk: found(position.probe).filter(|_| position.state.takes_part()).map(|looked| looked.disk.clone()),
            room: found(position.probe).map_or(Blocks(0), |looked| room(&looked.probe)),
            path: found(position.probe).map_or_else(String::new, |looked| looked.candidate.path.clone()),
            responsiveness: Rc::default(),
            errors: Rc::default(),
            stands_for: None,
        })
        .collect();
    let disk_name = |member: u16| slots[usize::from(member)].called();
    let (raid_level, count) = (array::raid_level(level), record.members.len());
    let mut not_joined = false;
    let (array, trouble) = if record.protected {
        let id = record.id.into_bytes();
        let shape = Shape::new(id, raid_level, count, record.chunk_bytes, record.member_blocks);
        let options = watch.options(
            &shard.world,
            shard.limits.sums_bytes_per_group,
            slots.iter().filter_map(|slot| slot.disk.as_ref()),
        );
        let opened = Array::open(&shape, members.collect(), watch.clone(), options).await;
        let (array, opened) = opened.map_err(|error| open_refusal(&error, disk_name))?;
        tracing::info!(
            opened.batches,
            opened.images,
            opened.judged = opened.resolved_blocks,
            "the log of a group was replayed"
        );
        not_joined = opened.not_joined;
        (array, OpenProblems { left_out: opened.rejected, holes: opened.lost_batches })
    } else {
        let layout = Layout::new(raid_level, count, record.chunk_bytes, record.member_blocks);
        (unprotected(layout, members.collect(), watch)?, OpenProblems::default())
    };
    let chunk = Size::new(u64::from(record.chunk_bytes));
    let state = GroupState::new(level, chunk, Rc::new(LossTrackingArray::new(array)), slots);
    // A member that was just being added has not joined; the repair task completes that.
    state.joining.set(not_joined);
    Ok((state, trouble))
}

/// Builds an array without checksums over the members that are present.
pub(super) fn unprotected<W: World>(
    layout: Result<Layout, ArrayError>,
    members: Vec<Option<Member<W>>>,
    watch: &Rc<GroupListener<W>>,
) -> Result<Array<Member<W>>, Refusal> {
    let array = layout.and_then(|layout| Array::new(layout, members, watch.clone()));
    array.map_err(|error| array_refusal(&error))
}

/// Data area of a member disk; `None` for a disk with fewer than `member_blocks` there.
pub(super) fn window<W: World>(disk: &Disk<W>, member_blocks: Blocks) -> Option<Window<Disk<W>>> {
    let area = data_area(disk.geometry().blocks).filter(|area| area.len >= member_blocks)?;
    Some(Window::new(disk.clone(), area))
}

/// Blocks that the label of the disk reserves for the array.
pub(super) fn room(probe: &Probe) -> Blocks {
    match &probe.contents {
        Contents::Member(member) => member.label.data.len,
        _ => Blocks(0),
    }
}

/// Name for a pool whose catalog has an invalid one. Names that we write are valid; something else wrote that catalog.
fn fallback_name(id: PoolId) -> Name {
    format!("pool-{}", &id.to_string()[..8]).parse().expect("these characters make a name")
}

/// Steps after the arrays of a pool were assembled; `found` is the state on its disks.
pub(super) struct AfterOpen<'a, W: World> {
    pub(super) pool: &'a Rc<OpenPool<W>>,
    pub(super) found: &'a AssembledPool,
    /// Guard of the probed disks, while a pool is opened for writing.
    pub(super) guard: Option<&'a SilenceGuard>,
}

impl<W: World> AfterOpen<'_, W> {
    /// Reports metadata that was damaged and was rewritten during the opening.
    pub(super) fn tell_of_damage(&self, looked: &[ProbedDisk<W>]) {
        for damage in self.found.damage() {
            let mut positions = self.found.groups.iter().flat_map(|group| &group.positions);
            let place = positions.find(|position| position.disk == damage.disk).and_then(|position| position.probe);
            let Some(ProbedDisk { candidate, .. }) = place.and_then(|place| looked.get(place)) else { continue };
            let (disk, pool, structure) = (&candidate.name, &self.pool.name, damage.structure);
            tracing::warn!(%pool, %disk, %structure, "damaged metadata is repaired");
            let sentence = format!(
                "disk {disk} of pool {pool}: {structure} was damaged and was repaired. Check the disk and whether \
                 other software writes to it."
            );
            self.pool.shard.raise(event::METADATA_REPAIRED, Subject::new(SubjectKind::Disk, disk), sentence);
        }
    }

    pub(super) fn report_problems(&self, troubles: &[(usize, OpenProblems)]) {
        let pool = &self.pool.name;
        // Accepted losses are reported together with the volumes that may be affected.
        for (group, hole) in
            troubles.iter().flat_map(|(group, trouble)| trouble.holes.iter().map(move |hole| (group, hole)))
        {
            let (count, first, last) = (hole.end - hole.start, hole.start, hole.end - 1);
            let sentence = format!(
                "{count} batches of the redo log of group {group} of pool {pool} (numbers {first} to {last}) \
                 could not be read from any disk, and an operator accepted the loss: blocks in them may be older \
                 than acknowledged. Check the file systems on the affected volumes, or restore them from a \
                 backup: {}.",
                affected_volumes::volumes_on(pool.as_str(), &self.found.catalog, *group)
            );
            self.pool.raise(event::REDO_LOG_DAMAGED, sentence);
        }
        let left_out = troubles
            .iter()
            .flat_map(|(group, trouble)| trouble.left_out.iter().map(move |(member, why)| (*group, *member, *why)));
        for (group, member, why) in left_out {
            let disk = self.pool.disk_name(group, member);
            tracing::warn!(%pool, disk, %why, "a disk is not used by its group");
            let sentence = format!(
                "disk {disk} of pool {pool} is not used: {why}; replace it, or rejoin it with \
                 blockyard disk replace {disk} {disk}"
            );
            self.pool.shard.raise(event::DISK_LEFT_OUT, Subject::new(SubjectKind::Disk, &disk), sentence);
        }
    }

    /// Aligns catalog and arrays: a member that one of them has given up is given up by the other, too.
    pub(super) async fn agree(&self) -> Result<(), Refusal> {
        for (group, status) in self.pool.pool.status().groups.iter().enumerate() {
            let Some(state) = self.pool.groups.get(group) else { continue };
            // The array may have one member less than the catalog while a member is being added.
            let counted = state.array.status().members.len();
            for (number, member) in (0..).zip(&status.record.members).take(counted) {
                let in_array = self.pool.member_state(group, number);
                // First case: the member missed a commit of the catalog, so the array must not read from it.
                // Second case: the array refused the disk, so the catalog must not count on it.
                let is_silent = self.is_given_up(group, number);
                if !member.state.takes_part() && in_array == raid::MemberState::InService {
                    if is_silent {
                        self.pool.groups[group].array.fail_unresponsive(number);
                    } else if let Err(error) = self.pool.groups[group].array.fail(number).await {
                        tracing::error!(pool = %self.pool.name, group, %error, "a disk that missed a commit is used on");
                    }
                } else if member.state == volume::MemberState::InService && in_array != raid::MemberState::InService {
                    let state = if is_silent { volume::MemberState::Missing } else { volume::MemberState::Failed };
                    let failed = self.pool.pool.members().set_state(member.disk, state).await;
                    failed.map_err(|error| refusal(&error, self.pool))?;
                }
            }
        }
        Ok(())
    }

    /// True if the disk of a member was given up during the opening, because it was silent or slow.
    fn is_given_up(&self, group: usize, member: u16) -> bool {
        let position = self.found.groups[group].positions.get(usize::from(member));
        let probe = position.and_then(|position| position.probe);
        probe.zip(self.guard).is_some_and(|(probe, guard)| guard.has_given_up(probe))
    }

    /// Expects the members back whose disks were given up during the opening: they only did not answer in time.
    ///
    /// *Errors*: the record of one cannot be made durable.
    async fn expect_given_up_back(&self) -> Result<(), Refusal> {
        for (group, state) in self.pool.groups.iter() {
            let members = (0..).zip(state.array.status().members);
            let away = members.filter(|(_, member)| member.state != raid::MemberState::InService);
            for (member, _) in away.filter(|(member, _)| self.is_given_up(group, *member)) {
                // Recorded as failed where the interruption ended a commit.
                let disk = uuid(state.slots.borrow()[usize::from(member)].id);
                let recorded = self.pool.pool.members().set_state(disk, volume::MemberState::Missing).await;
                recorded.map_err(|error| refusal(&error, self.pool))?;
                unresponsive::expect_back(self.pool, group, member);
            }
        }
        Ok(())
    }

    /// Marks groups that were not closed cleanly as suspect, before any read of them: the maps of volumes lie there,
    /// too.
    pub(super) fn suspect_dirty(&self) {
        let dirty = (0..).zip(&self.found.catalog.groups);
        let dirty = dirty.filter(|(number, record)| !record.clean && self.pool.groups.get(*number).is_some());
        dirty.for_each(|(number, _)| self.suspect(number));
    }

    /// Marks a group that was being written at the crash as suspect: until the resync, reads of it do not alternate
    /// between copies that may differ. Its parity is recomputed once repairs begin.
    fn suspect(&self, group: usize) {
        self.pool.groups[group].needs_resync.set(true);
        for stripes in self.pool.stripes_in_use(group) {
            self.pool.groups[group].array.mark_suspect(stripes);
        }
    }

    async fn repair(&self, disk: impl Fn(usize) -> Disk<W>) {
        for (number, (record, group)) in self.found.catalog.groups.iter().zip(&self.found.groups).enumerate() {
            if self.pool.groups.get(number).is_none() {
                continue;
            }
            for ((member, position), recorded) in (0..).zip(&group.positions).zip(&record.members) {
                let Some(place) = position.probe else { continue };
                let state = &self.pool.groups[number];
                let counted = state.array.status().members.len();
                match position.state {
                    // A slot that the array does not count yet belongs to an expansion, which continues below.
                    _ if usize::from(member) >= counted => {}
                    DiskState::Rebuilding { .. } => {
                        MemberSlot { pool: self.pool, group: number, member }.resume_rebuild(&disk(place)).await
                    }
                    // A member that was recorded as missing lacks only the writes since; a failed one stays out until
                    // an operator returns it.
                    DiskState::Failed if !record.protected || recorded.state != volume::MemberState::Missing => {}
                    // No member may return during a reshape; it is taken back afterwards.
                    DiskState::Failed if state.array.status().reshape.is_some() => {
                        state.returning.borrow_mut().push((member, disk(place)));
                    }
                    DiskState::Failed => {
                        MemberSlot { pool: self.pool, group: number, member }.let_return(&disk(place)).await;
                    }
                    _ => {}
                }
            }
            // A dirty group needs a resync, an interrupted reshape continues.
            if !record.clean || self.pool.groups[number].is_expanding() {
                self.pool.start_repair(number);
            }
        }
    }
}
