//! Creation of a pool and of new groups.

use super::overwrite::Overwriting;
use super::ownership::ClaimRequest;
use super::refusals::{open_refusal, plain};
use super::{CREATED_BY, Candidate, GroupState, OpenPool, Slot, new_uuid, open};
use crate::array::{self, Disk, Group, GroupListener, Member};
use crate::loss_tracking::LossTrackingArray;
use crate::shard_context::ShardContext;
use block::{BlockDevice, Blocks};
use model::{DiskName, Level, MemberSize, Name, PoolId, PoolReport, Refusal, Size, code};
use raid::{Array, Layout, Shape};
use shard::World;
use std::rc::Rc;
use volume::{BLOCK_BYTES, CreatePool, DISK_BYTES_MIN, GroupPlan, NewDisk, Uuid, data_area};

/// Parameters of a new pool.
pub(crate) struct NewPool {
    /// Name of the pool.
    pub name: Name,
    /// Identity of the pool.
    pub id: PoolId,
    /// Disk groups.
    pub groups: Vec<NewGroup>,
    /// True if foreign data on the disks may be overwritten.
    pub force: bool,
}

/// Parameters of a new disk group.
pub(crate) struct NewGroup {
    /// RAID level.
    pub level: Level,
    /// Chunk size in bytes: consecutive data on one member.
    pub chunk: Size,
    /// True for checksums and a redo log.
    pub integrity: bool,
    /// Share of each disk that the group uses.
    pub member_size: MemberSize,
    /// Disks of the group, in slot order.
    pub disks: Vec<Candidate>,
}

/// Creates the pool and opens it on this shard.
///
/// *Durability*: when it returns.
pub(crate) async fn create<W: World>(
    shard: Rc<ShardContext<W>>,
    spec: NewPool,
    taking: ClaimRequest,
) -> Result<PoolReport, Refusal> {
    let mut drafts = Vec::new();
    for group in &spec.groups {
        drafts.push(draft(&shard, group).await?);
    }
    let plan = CreatePool {
        id: Uuid::from_bytes(spec.id.to_bytes()),
        name: spec.name.to_string(),
        // 0 lets the pool choose the slab size.
        slab_bytes: 0,
        groups: drafts.iter().map(Draft::plan).collect(),
        now: shard.world.unix_seconds(),
        created_by: CREATED_BY.to_owned(),
        force: spec.force,
    };
    let node = taking.node();
    let disks: Vec<(DiskName, Disk<W>)> = drafts.iter().flat_map(Draft::disks).collect();
    // Without force, a disk of a pool is refused below, so only forced disks can have an owner.
    let was_claimed = spec.force && Overwriting { disks: &disks, pool: None, node: Some(&node) }.admit(&shard).await?;
    // Arrays are formatted before the pool is written, so every disk must be admitted before that.
    plan.admit_disks().await.map_err(|error| named(&error, &drafts))?;
    let (mut groups, mut arrays) = (Vec::new(), Vec::new());
    for (number, draft) in drafts.iter().enumerate() {
        let watch = GroupListener::new(number, draft.integrity);
        let array = Rc::new(LossTrackingArray::new(draft.array(&shard, &watch).await?));
        arrays.push(array.clone());
        groups.push((number, draft.state(array), watch));
    }
    // The labels come last: a crash before leaves disks without a valid pool.
    let pool = volume::Pool::create(plan, arrays).await.map_err(|error| named(&error, &drafts))?;
    let pool = OpenPool::assembled(&shard, spec.name.clone(), spec.id, pool, groups);
    pool.claim(&taking).await?;
    // The claims on these disks looked idle; their owner may only have been silent.
    if was_claimed {
        pool.outlast_owner().await?;
    }
    // Before the pool is listed: its first encrypted volume needs the key.
    pool.bring_key(&taking).await?;
    shard.pools.borrow_mut().insert(spec.name, pool.clone());
    Ok(pool.report())
}

/// A group whose disks are open, before anything is written.
pub(super) struct Draft<W: World> {
    id: Uuid,
    level: Level,
    chunk: Size,
    chunk_bytes: u32,
    pub(super) integrity: bool,
    /// Blocks per member: what the smallest disk can give.
    member_blocks: Blocks,
    members: Vec<(Candidate, Uuid, Disk<W>)>,
}

pub(super) async fn draft<W: World>(shard: &Rc<ShardContext<W>>, group: &NewGroup) -> Result<Draft<W>, Refusal> {
    let mut members = Vec::new();
    let mut smallest: Option<Size> = None;
    for candidate in &group.disks {
        let disk = array::open_disk(shard, &candidate.path).await?;
        let bytes = disk.geometry().bytes();
        // Too small even for labels and catalogs.
        if data_area(disk.geometry().blocks).is_none() {
            let message = format!("disk {} is too small: {}", candidate.name, Size::new(bytes).iec_rounded(false));
            let hint = format!("use a disk of at least {}", Size::new(DISK_BYTES_MIN).iec());
            return Err(Refusal::new(code::DISK_TOO_SMALL, message, hint));
        }
        // All members give the same number of blocks, that of the smallest disk.
        smallest = Some(smallest.map_or(Size::new(bytes), |smallest| smallest.min(Size::new(bytes))));
        members.push((candidate.clone(), new_uuid(&shard.world), disk));
    }
    assert_eq!(BLOCK_BYTES, raid::BLOCK_BYTES, "one block size inside the engine");
    Ok(Draft {
        id: new_uuid(&shard.world),
        level: group.level,
        chunk: group.chunk,
        // A chunk beyond 32 bits is refused by the layout, like any other impossible size.
        chunk_bytes: u32::try_from(group.chunk.bytes()).unwrap_or(u32::MAX),
        integrity: group.integrity,
        member_blocks: smallest.map_or(Ok(Blocks(0)), |size| member_blocks(group.member_size, size))?,
        members,
    })
}

/// Blocks per member of a group whose smallest disk has this size.
pub(super) fn member_blocks(how: MemberSize, smallest: Size) -> Result<Blocks, Refusal> {
    let used = how.of(smallest)?;
    let area = data_area(Blocks(used.bytes() / u64::from(BLOCK_BYTES)));
    Ok(area.map_or(Blocks(0), |area| area.len))
}

impl<W: World> Draft<W> {
    pub(super) fn plan(&self) -> GroupPlan<Disk<W>> {
        let members = self.members.iter().map(|(_, id, disk)| NewDisk { id: *id, device: disk.clone() });
        GroupPlan {
            id: self.id,
            level: array::level_code(self.level),
            protected: self.integrity,
            chunk_bytes: self.chunk_bytes,
            member_blocks: self.member_blocks,
            members: members.collect(),
        }
    }

    /// Creates the array over the disks; the metadata of a protected array is written then.
    pub(super) async fn array(
        &self,
        shard: &Rc<ShardContext<W>>,
        watch: &Rc<GroupListener<W>>,
    ) -> Result<Array<Member<W>>, Refusal> {
        // `member_blocks` is that of the smallest disk, so every window fits.
        let window = |disk| open::window::<W>(disk, self.member_blocks).expect("its data area is at least as large");
        let windows = self.members.iter().map(|(_, _, disk)| window(disk));
        let (level, count) = (array::raid_level(self.level), self.members.len());
        // A protected array writes its metadata here; an array without checksums has none.
        if self.integrity {
            let id = self.id.into_bytes();
            let shape = Shape::new(id, level, count, self.chunk_bytes, self.member_blocks);
            let options = watch.options(
                &shard.world,
                shard.limits.sums_bytes_per_group,
                self.members.iter().map(|(_, _, disk)| disk),
            );
            let formatted = Array::format(&shape, windows.collect(), watch.clone(), options).await;
            return formatted.map_err(|error| open_refusal(&error, |member| self.disk_name(member)));
        }
        let layout = Layout::new(level, count, self.chunk_bytes, self.member_blocks);
        open::unprotected(layout, windows.map(Some).collect(), watch)
    }

    /// Disks of the group with their names.
    pub(super) fn disks(&self) -> Vec<(DiskName, Disk<W>)> {
        self.members.iter().map(|(candidate, _, disk)| (candidate.name.clone(), disk.clone())).collect()
    }

    pub(super) fn state(&self, array: Group<W>) -> GroupState<W> {
        let slots = self.members.iter().map(|(candidate, id, disk)| Slot::of(*id, candidate, disk));
        GroupState::new(self.level, self.chunk, array, slots.collect())
    }

    fn disk_name(&self, member: u16) -> String {
        self.members.get(usize::from(member)).map_or_else(String::new, |(candidate, _, _)| candidate.name.to_string())
    }
}

/// Refusal of a creation that names the disk at fault instead of its new identity.
pub(super) fn named<W: World>(error: &volume::PoolError, drafts: &[Draft<W>]) -> Refusal {
    use volume::PoolError::{DiskFails, DiskForeign, DiskOfPool, DiskTooSmall};
    let mut refusal = plain(error);
    let (DiskTooSmall { disk, .. } | DiskForeign { disk, .. } | DiskFails { disk, .. } | DiskOfPool { disk, .. }) =
        error
    else {
        return refusal;
    };
    let mut members = drafts.iter().flat_map(|draft| &draft.members);
    if let Some((candidate, _, _)) = members.find(|(_, id, _)| id == disk) {
        refusal.message = format!("disk {}: {}", candidate.name, refusal.message);
    }
    refusal
}
