//! Who has a pool: a mark on every member, renewed while the pool is open, so that no other node opens it meanwhile.
//!
//! A mark is a block of its own; a claim has two places that it writes in turn, and the next claim has two others. It tells a node, a claim and a count that
//! moves; who wants the pool looks twice, some time apart. `docs/on-disk.md`, *Owner*, has the rules.

mod claims;
mod sight;

pub use claims::Claims;
pub(crate) use sight::{LastMark, Sight};
pub use sight::{Loss, Mark};

use crate::assembly::{FoundPool, PoolRefusal};
use crate::error::PoolError;
use crate::label::{is_sealed, put_text, seal, take_text};
use crate::layout::{BLOCK_BYTES, OWNER_PLACES};
use block::{BlockDevice, Buf, Extent, IoError, Lba, Stable};
use futures_util::future::join_all;
use sight::all_marks;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How often an owner renews its marks.
pub const BEAT: Duration = Duration::from_secs(2);
/// An owner whose marks are older does not write any more before they are renewed.
pub const LEASE: Duration = Duration::from_secs(5);
/// A mark that has not moved for so long is that of an owner who does not write any more.
pub const WATCH: Duration = Duration::from_secs(6);

/// Where marks lie on a member disk: writes to these blocks are never held back.
pub const PLACES: Extent = OWNER_PLACES;

const MAGIC: [u8; 8] = *b"BLKYDOWN";
const VERSION: u32 = 1;
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;

/// Who opens pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which node: the same after every restart.
    pub id: Uuid,
    /// What its operators call it.
    pub name: String,
    /// What only one daemon at a time can have on one machine between two starts of it: who finds its own seat in a mark
    /// knows that whoever wrote it is gone.
    pub seat: Uuid,
    /// The machine that the node runs on, where that is known: the same for every state folder on it.
    pub machine: Option<Uuid>,
}

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which node.
    pub node: Uuid,
    /// What it is called.
    pub name: String,
    /// Where the daemon sat that made the claim.
    pub seat: Uuid,
    /// The machine that it ran on, where that was known.
    pub machine: Option<Uuid>,
    /// Which claim: every later one of the pool has a higher number.
    pub epoch: u64,
    /// Moves while the node has the pool.
    pub beat: u64,
    /// When the claim was made, in seconds since 1970.
    pub claimed_at: u64,
    /// True when the node has let go of the pool.
    pub released: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    pool: [u8; 16],
    disk: [u8; 16],
    node: [u8; 16],
    seat: [u8; 16],
    epoch: U64,
    beat: U64,
    claimed_at: U64,
    released: u8,
    reserved: [u8; 7],
    name: [u8; 64],
    machine: [u8; 16],
}

impl Owner {
    /// The mark as it lies on `disk` of `pool`.
    pub(crate) fn emit(&self, pool: Uuid, disk: Uuid) -> [u8; BLOCK_BYTES as usize] {
        let mut wire = Wire::new_zeroed();
        wire.magic = MAGIC;
        wire.version = VERSION.into();
        wire.pool = *pool.as_bytes();
        wire.disk = *disk.as_bytes();
        wire.node = *self.node.as_bytes();
        wire.seat = *self.seat.as_bytes();
        wire.epoch = self.epoch.into();
        wire.beat = self.beat.into();
        wire.claimed_at = self.claimed_at.into();
        wire.released = u8::from(self.released);
        put_text(&mut wire.name, &self.name);
        wire.machine = *self.machine.unwrap_or_default().as_bytes();
        seal(&wire, CHECKSUM_AT)
    }

    /// The mark in `block`; none when it is torn, or speaks of another pool or disk. What a later version adds is passed over.
    #[must_use]
    pub fn parse(block: &[u8], pool: Uuid, disk: Uuid) -> Option<Self> {
        let mark = Self::parse_any(block, OWNER_PLACES.start)?;
        ((mark.pool, mark.disk) == (pool, disk)).then_some(mark.owner)
    }

    /// The mark in `block`, which lies at `place`, whichever pool and disk it is of; none when it is torn.
    fn parse_any(block: &[u8], place: Lba) -> Option<Mark> {
        let (wire, _) = Wire::ref_from_prefix(block).ok()?;
        let whole = block.len() == BLOCK_BYTES as usize && wire.magic == MAGIC;
        if !whole || !is_sealed(block, wire.checksum.get(), CHECKSUM_AT) {
            return None;
        }
        let owner = Self {
            node: Uuid::from_bytes(wire.node),
            name: take_text(&wire.name)?,
            seat: Uuid::from_bytes(wire.seat),
            machine: Some(Uuid::from_bytes(wire.machine)).filter(|machine| !machine.is_nil()),
            epoch: wire.epoch.get(),
            beat: wire.beat.get(),
            claimed_at: wire.claimed_at.get(),
            released: wire.released != 0,
        };
        Some(Mark { pool: Uuid::from_bytes(wire.pool), disk: Uuid::from_bytes(wire.disk), owner, place })
    }

    /// Which of two marks is the newer.
    fn age(&self) -> (u64, u64) {
        (self.epoch, self.beat)
    }

    /// Where the mark goes: not over the last one of its claim, nor over any of the claim before.
    fn place(&self) -> Lba {
        Lba(OWNER_PLACES.start.0 + self.epoch % 2 * 2 + self.beat % 2)
    }

    /// True when `other` is of the same claim.
    pub(crate) fn is_same_claim(&self, other: &Self) -> bool {
        (self.epoch, self.node, self.seat) == (other.epoch, other.node, other.seat)
    }

    /// True when who made the claim `own` has lost the pool to who made this one.
    pub(crate) fn has_taken_over(&self, own: &Self) -> bool {
        self.epoch > own.epoch || (self.epoch == own.epoch && !self.is_same_claim(own))
    }
}

/// All whole marks of `pool` on `disk`, whose identity is `id`.
///
/// *Errors*: the disk's, when no place can be read.
pub(crate) async fn read_marks<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid) -> Result<Vec<Owner>, IoError> {
    let (marks, _) = all_marks(disk).await?;
    Ok(marks.into_iter().filter(|mark| (mark.pool, mark.disk) == (pool, id)).map(|mark| mark.owner).collect())
}

/// The newest of `marks`.
pub(crate) fn newest(marks: Vec<Owner>) -> Option<Owner> {
    marks.into_iter().max_by_key(Owner::age)
}

/// `disk` says `mark`, durably.
pub(crate) async fn write_mark<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid, mark: &Owner) -> Result<(), IoError> {
    let data = Buf::copy_of(&mark.emit(pool, id)).freeze();
    let written = disk.write(mark.place(), data).await?;
    let _: Stable = disk.flush(written).await?;
    Ok(())
}

/// A member: which disk, and its group by its place.
pub(crate) type Marked<D> = (Uuid, Rc<D>, usize);

/// Every member of `disks` says that the pool is `node`'s, under an epoch that no claim had before, at least `above`.
///
/// *Errors*: `Contested` when somebody has moved since `seen`, or moves now; `NotClaimed` when a group has no member that
/// takes the mark.
pub(crate) async fn claim<D: BlockDevice>(
    pool: Uuid,
    disks: &[Marked<D>],
    above: u64,
    node: &Node,
    now: u64,
    seen: Option<&[(Uuid, Owner)]>,
) -> Result<Owner, PoolError> {
    let sights = async || -> Vec<Sight> {
        join_all(disks.iter().map(async |(id, disk, _)| Sight::of(&**disk, pool, *id, None).await)).await
    };
    let marks_of = |sights: &[Sight]| -> Vec<(Uuid, Vec<Owner>)> {
        let all = disks.iter().zip(sights);
        all.filter_map(|((id, _, _), sight)| Some((*id, sight.marks.clone().ok()?))).collect()
    };
    let first = sights().await;
    admit_labels(&first)?;
    let before = marks_of(&first);
    let stands = |disk: Uuid, marks: &[Owner]| {
        let known = seen.and_then(|seen| seen.iter().find(|(known, _)| *known == disk)).map(|(_, mark)| mark);
        seen.is_none() || newest(marks.to_vec()).is_none_or(|mark| !mark.is_life_after(known, seen.and_then(newest_of)))
    };
    if let Some((_, marks)) = before.iter().find(|(disk, marks)| !stands(*disk, marks)) {
        let node = newest(marks.clone()).map_or_else(String::new, |mark| mark.name);
        return Err(PoolError::Contested { node });
    }
    let highest = before.iter().flat_map(|(_, marks)| marks).map(|mark| mark.epoch).max().unwrap_or(0);
    let own = Owner {
        node: node.id,
        name: node.name.clone(),
        seat: node.seat,
        machine: node.machine,
        epoch: above.max(highest) + 1,
        beat: 0,
        claimed_at: now,
        released: false,
    };
    let writes = disks.iter().map(async |(id, disk, group)| {
        let written = write_mark(&**disk, pool, *id, &own).await;
        written.ok().map(|()| *group)
    });
    let reached: BTreeSet<usize> = join_all(writes).await.into_iter().flatten().collect();
    if disks.iter().any(|(_, _, group)| !reached.contains(group)) {
        return Err(PoolError::NotClaimed);
    }
    // Who moved before he could see our mark may write for a while yet; who claimed at the same time has lost as we have.
    let second = sights().await;
    admit_labels(&second)?;
    for (disk, marks) in marks_of(&second) {
        let known = before.iter().find(|(known, _)| *known == disk).and_then(|(_, marks)| newest(marks.clone()));
        let all = before.iter().flat_map(|(_, marks)| marks).max_by_key(|mark| mark.age());
        let is_new = |mark: &&Owner| mark.is_life_after(known.as_ref(), all) && !mark.is_same_claim(&own);
        if let Some(other) = marks.iter().find(is_new) {
            // Whoever comes next, we too, has to watch until nobody can be writing any more.
            let left = Owner { beat: own.beat + 1, seat: Uuid::nil(), ..own.clone() };
            join_all(disks.iter().map(async |(id, disk, _)| write_mark(&**disk, pool, *id, &left).await.ok())).await;
            return Err(PoolError::Contested { node: other.name.clone() });
        }
    }
    // An owner of another pool that had these disks before, and is alive, finds the labels of this one at its next beat.
    for ((sight, before), (_, disk, _)) in second.iter().zip(&first).zip(disks) {
        if sight.newest_other() != before.newest_other() {
            let node = sight.newest_other().map_or_else(String::new, |other| other.name.clone());
            return Err(PoolError::Contested { node });
        }
        // A disk that cannot be written is found out by those who use it for more than this.
        let _ = sight.clear_other_marks(&**disk).await;
    }
    Ok(own)
}

/// Admits disks that have no label of another pool: somebody may be making one of them just now.
fn admit_labels(sights: &[Sight]) -> Result<(), PoolError> {
    let other = sights.iter().find(|sight| sight.has_other_label()).and_then(|sight| sight.loss.clone());
    other.map_or(Ok(()), |loss| Err(PoolError::Fenced(loss)))
}

impl FoundPool {
    /// The newest mark of each disk that has one.
    #[must_use]
    pub fn marks(&self) -> &[(Uuid, Owner)] {
        &self.marks
    }

    /// Who had the pool last, by the newest of its members' marks; nobody when it was never claimed.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        newest_of(&self.marks)
    }

    /// True when only a second look, [`WATCH`] later, can tell whether somebody has the pool.
    #[must_use]
    pub fn must_be_watched(&self, node: &Node) -> bool {
        !self.is_free_for(node)
    }

    /// The pool is `node`'s to open: every member that takes part says so, durably.
    ///
    /// *Shape*: `disk` gives the device of a probe, by its place among the probes; the pool was admitted, to this node too
    /// ([`FoundPool::admit_owner`]). Where another node had it last, one [`BEAT`] passes before anything else is written,
    /// and then [`Pool::hold`](crate::Pool::hold) and [`Pool::beat`](crate::Pool::beat) tell whether it is still so.
    /// *Errors*: `Contested` when somebody else moves; `NotClaimed` when a group has no member that takes the mark.
    pub async fn claim<D: BlockDevice>(
        &self,
        mut disk: impl FnMut(usize) -> D,
        node: &Node,
        now: u64,
    ) -> Result<Owner, PoolError> {
        let mut disks = Vec::new();
        for (group, found) in self.groups.iter().enumerate() {
            let taking_part = found.positions.iter().filter(|position| position.standing.takes_part());
            disks.extend(taking_part.filter_map(|one| Some((one.disk, Rc::new(disk(one.probe?)), group))));
        }
        claim(self.catalog.pool, &disks, self.catalog.owner_epoch, node, now, Some(&self.marks)).await
    }

    /// Every member that answers says `mark`: with the next beat of a claim between that and [`Pool::hold`](crate::Pool::hold),
    /// however long arrays take to open, or that the pool is released after all.
    pub async fn renew<D: BlockDevice>(&self, mut disk: impl FnMut(usize) -> D, mark: &Owner) {
        let positions = self.groups.iter().flat_map(|group| &group.positions);
        let taking_part = positions.filter(|position| position.standing.takes_part());
        let disks: Vec<(Uuid, D)> = taking_part.filter_map(|one| Some((one.disk, disk(one.probe?)))).collect();
        // Who cannot be written is found out by those who use it for more than this. A disk that another owner has taken is
        // left alone; the first commit finds that out as well.
        let pool = self.catalog.pool;
        let one = async |id: Uuid, disk: &D| {
            let is_ours = Sight::of(disk, pool, id, Some(mark)).await.loss.is_none();
            if is_ours { write_mark(disk, pool, id, mark).await.ok() } else { None }
        };
        join_all(disks.iter().map(|(id, disk)| one(*id, disk))).await;
    }

    /// Admits `node` to the pool, which was found as `earlier` at least [`WATCH`] before, where it must be watched.
    ///
    /// *Shape*: `told` when the operator says that the node that had it last is gone. *Errors*: `Owned` while somebody has
    /// it; `NotReleased` when another node did not let go of it and nobody was told.
    pub fn admit_owner(&self, earlier: Option<&Self>, node: &Node, told: bool) -> Result<(), PoolRefusal> {
        if self.is_free_for(node) {
            return Ok(());
        }
        let Some(owner) = self.owner() else { return Ok(()) };
        let moved = earlier.is_none_or(|earlier| {
            let known = |disk: Uuid| earlier.marks.iter().find(|(known, _)| *known == disk).map(|(_, mark)| mark);
            self.marks.iter().any(|(disk, mark)| !mark.released && mark.is_life_after(known(*disk), earlier.owner()))
        });
        let (pool_name, node_name) = (self.catalog.name.clone(), owner.name.clone());
        let is_us = owner.node == node.id;
        if moved {
            return Err(PoolRefusal::Owned { pool_name, node_name, is_us });
        }
        if told || is_us { Ok(()) } else { Err(PoolRefusal::NotReleased { pool_name, node_name }) }
    }

    /// True when the newest mark says that nobody has the pool, or nobody but a daemon that sat where this one sits now.
    fn is_free_for(&self, node: &Node) -> bool {
        self.owner().is_none_or(|owner| owner.released || owner.is_of_our_past(node))
    }
}

/// The newest of the marks of some members.
pub(crate) fn newest_of(marks: &[(Uuid, Owner)]) -> Option<&Owner> {
    marks.iter().map(|(_, mark)| mark).max_by_key(|mark| mark.age())
}

impl Owner {
    /// True when whoever wrote the mark has done so since somebody looked, and found `known` on its disk and `newest` on any.
    ///
    /// One that has decayed since shows the one before it, which is no sign of life; one that could not be read then is
    /// one if it is newer than all that were.
    fn is_life_after(&self, known: Option<&Self>, newest: Option<&Self>) -> bool {
        known.or(newest).is_none_or(|before| match self.age().cmp(&before.age()) {
            Ordering::Less => false,
            Ordering::Equal => !self.is_same_claim(before),
            Ordering::Greater => true,
        })
    }

    fn is_of_our_past(&self, node: &Node) -> bool {
        (self.node, self.seat) == (node.id, node.seat)
    }
}

#[cfg(test)]
mod tests;
