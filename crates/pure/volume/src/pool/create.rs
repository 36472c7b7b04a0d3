//! Creation and destruction of pools.

use super::Pool;
use super::volumes::is_name;
use crate::catalog::{Catalog, GROUPS_MAX, GroupRecord, MEMBERS_MAX, PoolPhase, SLABS_MAX};
use crate::error::PoolError;
use crate::label::{Features, Label};
use crate::layout::{BLOCK_BYTES, data_area};
use crate::probe::{Contents, prepare, probe, wipe, write_label};
use crate::store::{ALL_SLOTS, Body, NewSlot, Store};
use block::{BlockDevice, Blocks, IoError};
use futures_util::future::join_all;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

/// Minimum slab size chosen for a pool, in bytes.
const SLAB_BYTES_MIN: u64 = 16 << 20;
/// Generation of a pool being created.
const FIRST: u64 = 1;

/// Parameters of a new pool.
pub struct CreatePool<D> {
    /// UUID of the new pool.
    pub id: Uuid,
    /// Name of the pool.
    pub name: String,
    /// Minimum slab size in bytes: a power of two of at least 1 MiB, or 0 to choose one.
    pub slab_bytes: u64,
    /// Groups, in the order of the devices that serve them.
    pub groups: Vec<GroupPlan<D>>,
    /// Current time in seconds since 1970.
    pub now: u64,
    /// Program and version, for the labels.
    pub created_by: String,
    /// True when foreign content of the disks may be overwritten.
    pub force: bool,
}

/// Parameters of a new group.
pub struct GroupPlan<D> {
    /// UUID of the new group.
    pub id: Uuid,
    /// RAID level in the encoding of the array code.
    pub level: u8,
    /// True when the array keeps its own checksums and redo log.
    pub protected: bool,
    /// Chunk size in bytes: data on one member before the next member follows.
    pub chunk_bytes: u32,
    /// Number of data blocks that each member contributes; the array was built over exactly these.
    pub member_blocks: Blocks,
    /// Disks, by position.
    pub members: Vec<NewDisk<D>>,
}

/// Disk that is to become a member.
pub struct NewDisk<D> {
    /// UUID of the new member.
    pub id: Uuid,
    /// Whole disk.
    pub device: D,
}

impl<D: BlockDevice> CreatePool<D> {
    /// Admits disks that are large enough and hold no data, or whose data `force` permits to overwrite.
    ///
    /// For callers that write to the disks before [`Pool::create`], as protected groups require; that checks
    /// again. *Errors*: `BlockSize`, `DiskTooSmall`, `DiskOfPool`, `DiskForeign`, `DiskFails`.
    pub async fn admit_disks(&self) -> Result<(), PoolError> {
        for group in &self.groups {
            group.admit_disks(self.force).await?;
        }
        Ok(())
    }
}

impl<D: BlockDevice> GroupPlan<D> {
    /// Admits the disks of one group, as [`CreatePool::admit_disks`].
    pub async fn admit_disks(&self, force: bool) -> Result<(), PoolError> {
        for disk in &self.members {
            admit_size(disk)?;
            if !force {
                admit_disk(disk).await?;
            }
        }
        Ok(())
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Creates the pool on its disks, without volumes, and opens it.
    ///
    /// *Shape*: `groups` are the devices of the plan's groups, in order. *Durability*: when it returns; after a
    /// crash before that the disks hold no pool and can be used again without force. *Errors*: `Plan`,
    /// `NameInvalid`, `BlockSize`, `DiskTooSmall`, `DiskOfPool`, `DiskForeign` before anything is written;
    /// `DiskFails` and `CatalogLost` after that, with the disks wiped as far as possible.
    pub async fn create(plan: CreatePool<D>, groups: Vec<G>) -> Result<Self, PoolError> {
        // All checks that need no I/O come first: nothing is written for an invalid plan.
        let catalog = draft(&plan, &groups)?;
        plan.admit_disks().await?;
        // The plan is consumed below, and the labels need both.
        let (now, created_by) = (plan.now, sanitize_created_by(&plan.created_by));
        let members = plan.groups.into_iter().flat_map(|group| group.members);
        let disks: Vec<(Uuid, Rc<D>)> = members.map(|disk| (disk.id, Rc::new(disk.device))).collect();
        // Generation 1 is the unfinished pool, generation 2 the live one.
        let formed = form(&catalog, &disks, now, &created_by).await;
        let store = Store::new(catalog, FIRST, disks);
        let committed = match formed {
            Ok(()) => go_live(&store).await,
            Err(error) => Err(error),
        };
        if let Err(error) = committed {
            // An unfinished pool is refused when it is found; wiping spares the operator that message.
            join_all(store.disks().iter().map(|(_, disk)| wipe(&**disk))).await;
            return Err(error);
        }
        Ok(Self::of(store, groups))
    }

    /// Destroys the pool and wipes its disks.
    ///
    /// *Durability*: when it returns. The pool is refused from the first commit on, so a crash leaves it intact
    /// or gone. *Errors*: `HasVolumes`, `CatalogLost`.
    pub async fn destroy(self) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            // Within the change, so that no volume comes between the check and the commit.
            if catalog.volume_count() > 0 {
                return Err(PoolError::HasVolumes(catalog.volume_count()));
            }
            catalog.phase = PoolPhase::Destroyed;
            Ok(())
        })?;
        self.shared.store.committed(change).await?;
        // No later commit may bring back a catalog of a live pool.
        self.shared.store.close();
        // No commit verifies the owner marks any more, which are wiped now.
        self.shared.store.guard(None);
        // A disk that cannot be wiped keeps a catalog that says that the pool was destroyed.
        join_all(self.shared.store.disks().iter().map(|(_, disk)| wipe(&**disk))).await;
        Ok(())
    }
}

/// Creates the catalog of the pool that `plan` describes, not yet live.
fn draft<D: BlockDevice, G: BlockDevice>(plan: &CreatePool<D>, groups: &[G]) -> Result<Catalog, PoolError> {
    if !is_name(&plan.name) {
        return Err(PoolError::NameInvalid(plan.name.clone()));
    }
    // Plans and devices are paired by position below, so their numbers must match.
    let counts = (1..=GROUPS_MAX).contains(&plan.groups.len()) && plan.groups.len() == groups.len();
    if !counts || plan.groups.iter().any(|group| !(1..=MEMBERS_MAX).contains(&group.members.len())) {
        return Err(PoolError::Plan("it needs 1 to 64 groups of 1 to 64 disks, and a device for each group"));
    }
    if plan.slab_bytes != 0 && (!plan.slab_bytes.is_power_of_two() || plan.slab_bytes < 1 << 20) {
        return Err(PoolError::Plan("the size of a slab is a power of two of at least 1 MiB"));
    }
    for device in groups {
        let block_bytes = device.geometry().block_bytes;
        if block_bytes != BLOCK_BYTES {
            return Err(PoolError::BlockSize { block_bytes });
        }
    }
    let slab_bytes = if plan.slab_bytes == 0 { choose_slab_bytes(groups) } else { plan.slab_bytes };
    // Plan and devices are in the same order, which becomes that of the catalog.
    let records = plan.groups.iter().zip(groups).map(|(group, device)| {
        let mut record = draft_group(group, device, slab_bytes)?;
        // The first commit is written without the store, so the placeholder generation is filled in here.
        record.members.iter_mut().for_each(|member| member.since = FIRST);
        Ok(record)
    });
    let catalog = Catalog {
        pool: plan.id,
        name: plan.name.clone(),
        // Refused at every opening until `go_live` has committed.
        phase: PoolPhase::Forming,
        // No claim yet; the first one has epoch 1.
        owner_epoch: 0,
        slab_bytes,
        groups: records.collect::<Result<_, PoolError>>()?,
        volumes: Vec::new(),
        families: Vec::new(),
        log: None,
        reservations: Default::default(),
        scrub: None,
        lost: Default::default(),
        copies: Default::default(),
        written: None,
    };
    // Whatever a plan can get wrong is refused by the same check as a catalog read from disk.
    match catalog.check() {
        Ok(()) => Ok(catalog),
        Err(crate::catalog::CatalogError::Damaged(what)) => Err(PoolError::Plan(what)),
        Err(_) => Err(PoolError::Plan("it exceeds a limit")),
    }
}

pub(super) fn draft_group<D: BlockDevice, G: BlockDevice>(
    plan: &GroupPlan<D>,
    device: &G,
    slab_bytes: u64,
) -> Result<GroupRecord, PoolError> {
    let geometry = device.geometry();
    // A device whose cheapest write is shorter than a block has slabs of whole blocks as well.
    let stripe_bytes = u64::from(geometry.optimal_bytes.max(BLOCK_BYTES));
    if !stripe_bytes.is_multiple_of(u64::from(BLOCK_BYTES)) {
        return Err(PoolError::Plan("a stripe is no whole number of blocks of 4096 bytes"));
    }
    // Slabs are whole stripes, so that a full slab is written without read-modify-write.
    let slab_blocks = slab_bytes.next_multiple_of(stripe_bytes) / u64::from(BLOCK_BYTES);
    let slabs = geometry.blocks.0 / slab_blocks;
    if slabs == 0 {
        return Err(PoolError::Plan("a group is smaller than one slab; use larger disks or smaller slabs"));
    }
    // The catalog stores the blocks of a slab and the slabs of a group in 32 bits each.
    let too_many = |_| PoolError::Plan("its slabs are too small for its size; choose larger ones");
    let slab_blocks = u32::try_from(slab_blocks).map_err(|_| PoolError::Plan("a slab is too large"))?;
    Ok(GroupRecord::of(plan, slab_blocks, u32::try_from(slabs).map_err(too_many)?))
}

/// Smallest slab size with which a pool of `groups` stays below the slab limit of a catalog.
fn choose_slab_bytes<G: BlockDevice>(groups: &[G]) -> u64 {
    // Groups round the size up to whole stripes, which only makes their slabs fewer.
    let bytes: u64 = groups.iter().map(|group| group.geometry().bytes()).sum();
    let mut slab_bytes = SLAB_BYTES_MIN;
    while bytes / slab_bytes > u64::from(SLABS_MAX) {
        // Slab sizes are powers of two.
        slab_bytes *= 2;
    }
    slab_bytes
}

/// Writes labels to all disks, and a catalog that marks the pool as unfinished.
async fn form<D: BlockDevice>(
    catalog: &Catalog,
    disks: &[(Uuid, Rc<D>)],
    now: u64,
    created_by: &str,
) -> Result<(), PoolError> {
    let slot = NewSlot { pool: catalog.pool, generation: FIRST, body: Body::of(catalog.emit()) };
    let one = async |id: Uuid, disk: Rc<D>| -> Result<(), IoError> {
        // The disk first stops being what it was. Interrupted here, it has no label, or that of an unfinished
        // pool.
        let _ = prepare(&*disk).await?;
        slot.write(id, &*disk, &Cell::new(&ALL_SLOTS)).await?;
        let blocks = disk.geometry().blocks;
        let label = label_of(catalog, id, FIRST, blocks, now, created_by);
        // The label comes last: with it the disk counts as a member, so the catalog must be there.
        write_label(&*disk, &label).await
    };
    // All disks at once; there is no pool before every one of them has succeeded.
    let outcomes = join_all(disks.iter().map(|(id, disk)| one(*id, disk.clone()))).await;
    for ((id, _), outcome) in disks.iter().zip(outcomes) {
        outcome.map_err(|error| PoolError::DiskFails { disk: *id, error })?;
    }
    Ok(())
}

/// Label of an admitted disk of `blocks` blocks.
pub(super) fn label_of(
    catalog: &Catalog,
    disk: Uuid,
    generation: u64,
    device_blocks: Blocks,
    labelled_at: u64,
    created_by: &str,
) -> Label {
    Label {
        pool: catalog.pool,
        pool_name: catalog.name.clone(),
        disk,
        generation,
        device_blocks,
        data: data_area(device_blocks).expect("the disk was admitted"),
        labelled_at,
        created_by: created_by.to_owned(),
        features: Features::default(),
    }
}

/// Makes the pool live: all labels are stable before this commit.
async fn go_live<D: BlockDevice + 'static>(store: &Store<D>) -> Result<(), PoolError> {
    let ((), change) = store.change(|catalog| {
        catalog.phase = PoolPhase::Live;
        Ok(())
    })?;
    store.committed(change).await
}

/// Admits a disk of sufficient size and with blocks of 4096 bytes.
pub(super) fn admit_size<D: BlockDevice>(disk: &NewDisk<D>) -> Result<(), PoolError> {
    let geometry = disk.device.geometry();
    if geometry.block_bytes != BLOCK_BYTES {
        return Err(PoolError::BlockSize { block_bytes: geometry.block_bytes });
    }
    match data_area(geometry.blocks) {
        Some(_) => Ok(()),
        None => Err(PoolError::DiskTooSmall { disk: disk.id, bytes: geometry.bytes() }),
    }
}

/// Admits a disk without data that could be lost.
pub(super) async fn admit_disk<D: BlockDevice>(disk: &NewDisk<D>) -> Result<(), PoolError> {
    admit_size(disk)?;
    let foreign = |what: String| Err(PoolError::DiskForeign { disk: disk.id, what });
    match probe(&disk.device).await.contents {
        Contents::Blank => Ok(()),
        Contents::Foreign(what) => foreign(what.to_owned()),
        Contents::Newer { sentence, .. } => foreign(format!("a label of a newer version ({sentence})")),
        Contents::Damaged => foreign("a damaged label of a pool".to_owned()),
        Contents::Unreadable(error) => Err(PoolError::DiskFails { disk: disk.id, error }),
        Contents::Member(member) => {
            // Without a readable catalog a member may hold data of its pool, so it counts as live.
            let live = member.newest().is_none_or(|found| found.catalog.phase == PoolPhase::Live);
            // Foreign data written over a member outranks its label: another system has used the disk since.
            match (member.overwritten, live) {
                (Some(what), _) => foreign(what.to_owned()),
                // An unfinished or destroyed pool has no data.
                (None, false) => Ok(()),
                (None, true) => Err(PoolError::DiskOfPool {
                    disk: disk.id,
                    pool: member.label.pool,
                    pool_name: member.label.pool_name.clone(),
                }),
            }
        }
    }
}

/// Program name for a label: at most 31 bytes of text without control characters.
pub(super) fn sanitize_created_by(created_by: &str) -> String {
    created_by.chars().filter(|letter| !letter.is_control()).take(31).collect()
}
