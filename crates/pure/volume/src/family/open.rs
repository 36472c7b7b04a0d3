//! Opening of a family: reads its head, log and counters, in a time that does not depend on its size.

use super::branch::Branches;
use super::data::Data;
use super::granules::Shape;
use super::meta::Meta;
use super::space::Space;
use super::{Family, Log, MapError, PageCache, Tuning};
use crate::catalog::FamilyRecord;
use crate::crypt::Encryption;
use crate::error::PoolError;
use crate::layout::BLOCK_BYTES;
use crate::maplog::{LogIdentity, replay};
use crate::pool::{Families, Shared};
use crate::tree::Damage;
use block::BlockDevice;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Opens the family as the catalog and its map describe it. Writes nothing but damaged copies of blocks.
    pub(crate) async fn open(
        shared: Rc<Shared<D, G>>,
        families: Weak<Families<D, G>>,
        record: &FamilyRecord,
        cache: (Rc<PageCache>, u32),
        tuning: Tuning,
    ) -> Result<Self, MapError> {
        let family = Self::unread(shared, families, record, cache, tuning);
        let head = match family.meta.read_head().await {
            Ok(Some(head)) => head,
            Ok(None) if record.formatted => return Err(Damage("neither of its heads is whole").into()),
            // Before a family is formatted, its slabs hold content of earlier owners.
            Err(error) if record.formatted => return Err(error),
            _ => {
                family.log.borrow_mut().life = 1;
                return Ok(family);
            }
        };
        family.root.set(head.root);
        family.meta.set_generation(head.generation);
        *family.head.borrow_mut() = head.clone();
        match family.meta.read_space(&head).await {
            // Damaged bitmaps are recomputed from the tree, whose pages tell which are in use.
            Err(MapError::Damaged(_)) => super::repair::count_pages(&family).await?,
            read => read?,
        }
        let image = family.meta.read_log().await;
        // Replay needs no tree: each record says which granules it sets and frees.
        let found = replay(&image.slots, head.sequence, head.serial, head.life)?;
        // Copies are made equal before the volume serves: what was shown once must not be lost to a second
        // fault.
        family.meta.repair_log(&image, head.sequence..found.sequence).await;
        *family.log.borrow_mut() = Log {
            sequence: found.sequence,
            // Blocks from the head on stay in the ring until the next checkpoint covers them.
            from: head.sequence,
            serial: found.serial,
            life: found.life,
            ..Log::default()
        };
        family.read_counters().await?;
        family.read_progress().await?;
        // After the counters of the tree, which the records then change.
        found.records.iter().for_each(|record| family.apply_record(record));
        Ok(family)
    }

    /// Creates a family that was never written, as the catalog describes it.
    pub(crate) fn new(
        shared: Rc<Shared<D, G>>,
        families: Weak<Families<D, G>>,
        record: &FamilyRecord,
        cache: (Rc<PageCache>, u32),
        tuning: Tuning,
    ) -> Self {
        let family = Self::unread(shared, families, record, cache, tuning);
        family.log.borrow_mut().life = 1;
        family
    }

    pub(super) fn unread(
        shared: Rc<Shared<D, G>>,
        families: Weak<Families<D, G>>,
        record: &FamilyRecord,
        (cache, cache_number): (Rc<PageCache>, u32),
        tuning: Tuning,
    ) -> Self {
        let identity = LogIdentity { family: record.id, birth: record.birth };
        let meta = Meta::new(shared.clone(), identity, record.log_blocks, cache, cache_number);
        record.meta.iter().for_each(|&run| meta.extend(run));
        let granule_blocks = record.granule_bytes / BLOCK_BYTES;
        // Locked until the pool key unwraps the data key.
        let cover = if record.key.is_some() { Encryption::Locked } else { Encryption::Plain };
        Self {
            branches: Branches::of(&record.branches),
            data: Data::new(shared.clone(), granule_blocks, cover),
            space: Space::new(shared.clone(), families.clone(), record, shapes(&shared, granule_blocks)),
            commits: super::SingleFlight::new(shared.spawner.clone()),
            checkpoints: super::SingleFlight::new(shared.spawner.clone()),
            shared,
            families,
            id: record.id,
            granule_blocks,
            tuning,
            meta,
            head: RefCell::default(),
            formatted: Cell::new(record.formatted),
            overlay: RefCell::default(),
            root: Cell::new(None),
            log: RefCell::default(),
            grown: Cell::new((0, 0)),
            allocated: Cell::new(0),
            counters: RefCell::default(),
            pages_era: Cell::new(None),
            maintenance_lock: shard::RangeLocks::new(),
            failure: Cell::new(None),
            is_log_lost: Cell::new(false),
            is_head_doubtful: Cell::new(false),
        }
    }

    /// Reads the progress of cleanings from the tree.
    pub(super) async fn read_progress(&self) -> Result<(), MapError> {
        for branch in self.branches() {
            let key = crate::tree::Key::progress(branch.number);
            if let Some((_, value)) = self.last_entry(key, key).await? {
                branch.set_gc_progress(value);
            }
        }
        Ok(())
    }
}

/// Division of the slabs of each group into granules.
pub(super) fn shapes<D: BlockDevice + 'static, G: BlockDevice>(
    shared: &Shared<D, G>,
    granule_blocks: u32,
) -> Vec<Shape> {
    let slabs = shared.slab_blocks();
    let shape = |(&slab_blocks, group): (&u32, u16)| {
        let gate = shared.gate_of(group);
        // A log group has no gate; it has no slabs either, so its shape is not used.
        let stripe_blocks = gate.map_or(1, |gate| gate.device().geometry().optimal_bytes.div_ceil(BLOCK_BYTES));
        Shape::of(slab_blocks, granule_blocks, stripe_blocks)
    };
    slabs.iter().zip(0..).map(shape).collect()
}

impl MapError {
    /// Converts the error to the one that is reported to an operator.
    pub(crate) fn into_pool_error(self, family: uuid::Uuid) -> PoolError {
        match self {
            Self::Group { group, error } => PoolError::GroupFails { group, error },
            Self::Damaged(Damage(what)) => PoolError::MapDamaged { family, what: what.to_owned() },
            Self::Full => PoolError::NoRoom,
            Self::CatalogLost => PoolError::CatalogLost,
            Self::Locked => PoolError::NoPoolKey,
            Self::Stopped => {
                let what = "it could not be written, and takes no change until the pool is opened again".to_owned();
                PoolError::MapDamaged { family, what }
            }
        }
    }
}
