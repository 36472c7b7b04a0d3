//! Who has a pool: a mark on every member, renewed while the pool is open, so that no other node opens it meanwhile.
//!
//! A mark is a block of its own; a claim has two places that it writes in turn, and the next claim has two others. It tells a node, a claim and a count that
//! moves; who wants the pool looks twice, some time apart. `docs/on-disk.md`, *Owner*, has the rules.

mod claims;
mod sight;

pub use claims::Claims;
pub(crate) use sight::Sight;
pub use sight::{Loss, Mark};

use crate::assembly::{FoundPool, PoolRefusal};
use crate::error::PoolError;
use crate::label::{put_text, take_text};
use crate::layout::{BLOCK_BYTES, OWNER_PLACES};
use block::sealed::Format;
use block::{BlockDevice, Buf, Extent, IoError, Lba, Stable};
use cluster::{Claim, Node, Takeover, contested_after, contested_before, judge_takeover, newest};
use futures_util::future::join_all;
use sight::all_marks;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where marks lie on a member disk: writes to these blocks are never held back.
pub const PLACES: Extent = OWNER_PLACES;

const FORMAT: Format = Format::versioned(*b"BLKYDOWN", 1..=1);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    frame: [u8; 16],
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

/// The mark of `claim` as it lies on `disk` of `pool`.
pub(crate) fn emit(claim: &Claim, pool: Uuid, disk: Uuid) -> [u8; BLOCK_BYTES as usize] {
    let mut wire = Wire::new_zeroed();
    wire.pool = *pool.as_bytes();
    wire.disk = *disk.as_bytes();
    wire.node = *claim.node.as_bytes();
    wire.seat = *claim.seat.as_bytes();
    wire.epoch = claim.epoch.into();
    wire.beat = claim.beat.into();
    wire.claimed_at = claim.claimed_at.into();
    wire.released = u8::from(claim.released);
    put_text(&mut wire.name, &claim.name);
    wire.machine = *claim.machine.unwrap_or_default().as_bytes();
    FORMAT.emit(&wire)
}

/// The claim that the mark in `block` makes; none when it is torn, or speaks of another pool or disk. What a later version adds is
/// passed over.
#[must_use]
pub fn parse(block: &[u8], pool: Uuid, disk: Uuid) -> Option<Claim> {
    let mark = parse_any(block, OWNER_PLACES.start)?;
    ((mark.pool, mark.disk) == (pool, disk)).then_some(mark.claim)
}

/// The mark in `block`, which lies at `place`, whichever pool and disk it is of; none when it is torn.
fn parse_any(block: &[u8], place: Lba) -> Option<Mark> {
    let (wire, _) = FORMAT.parse_any_version::<Wire>(block).ok()?;
    let claim = Claim {
        node: Uuid::from_bytes(wire.node),
        name: take_text(&wire.name)?,
        seat: Uuid::from_bytes(wire.seat),
        machine: Some(Uuid::from_bytes(wire.machine)).filter(|machine| !machine.is_nil()),
        epoch: wire.epoch.get(),
        beat: wire.beat.get(),
        claimed_at: wire.claimed_at.get(),
        released: wire.released != 0,
    };
    Some(Mark { pool: Uuid::from_bytes(wire.pool), disk: Uuid::from_bytes(wire.disk), claim, place })
}

/// Where the mark goes: not over the last one of its claim, nor over any of the claim before.
fn place_of(claim: &Claim) -> Lba {
    Lba(OWNER_PLACES.start.0 + claim.epoch % 2 * 2 + claim.beat % 2)
}

/// All whole marks of `pool` on `disk`, whose identity is `id`.
///
/// *Errors*: the disk's, when no place can be read.
pub(crate) async fn read_marks<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid) -> Result<Vec<Claim>, IoError> {
    let (marks, _) = all_marks(disk).await?;
    Ok(marks.into_iter().filter(|mark| (mark.pool, mark.disk) == (pool, id)).map(|mark| mark.claim).collect())
}

/// `disk` says `mark`, durably.
pub(crate) async fn write_mark<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid, mark: &Claim) -> Result<(), IoError> {
    let data = Buf::copy_of(&emit(mark, pool, id)).freeze();
    let place = Extent { start: place_of(mark), len: block::Blocks(1) };
    assert!(OWNER_PLACES.contains(place), "a mark lies in one of its four places");
    let written = disk.write(place_of(mark), data).await?;
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
    seen: Option<&[(Uuid, Claim)]>,
) -> Result<Claim, PoolError> {
    let sights = async || -> Vec<Sight> {
        join_all(disks.iter().map(async |(id, disk, _)| Sight::of(&**disk, pool, *id, None).await)).await
    };
    let marks_of = |sights: &[Sight]| -> Vec<(Uuid, Vec<Claim>)> {
        let all = disks.iter().zip(sights);
        all.filter_map(|((id, _, _), sight)| Some((*id, sight.marks.clone().ok()?))).collect()
    };
    let first = sights().await;
    admit_labels(&first)?;
    let before = marks_of(&first);
    if let Some(other) = seen.and_then(|seen| contested_before(&before, seen)) {
        return Err(PoolError::Contested { node: other.name.clone() });
    }
    let highest = before.iter().flat_map(|(_, marks)| marks).map(|mark| mark.epoch).max().unwrap_or(0);
    let own = Claim::first(node, above.max(highest), now);
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
    if let Some(other) = contested_after(&marks_of(&second), &before, &own) {
        // Whoever comes next, we too, has to watch until nobody can be writing any more.
        let left = Claim { beat: own.beat + 1, seat: Uuid::nil(), ..own.clone() };
        join_all(disks.iter().map(async |(id, disk, _)| write_mark(&**disk, pool, *id, &left).await.ok())).await;
        return Err(PoolError::Contested { node: other.name.clone() });
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
    pub fn marks(&self) -> &[(Uuid, Claim)] {
        &self.marks
    }

    /// Who had the pool last, by the newest of its members' marks; nobody when it was never claimed.
    #[must_use]
    pub fn owner(&self) -> Option<&Claim> {
        newest(&self.marks)
    }

    /// True when only a second look, [`WATCH`](cluster::WATCH) later, can tell whether somebody has the pool.
    #[must_use]
    pub fn must_be_watched(&self, node: &Node) -> bool {
        cluster::must_be_watched(&self.marks, node)
    }

    /// The pool is `node`'s to open: every member that takes part says so, durably.
    ///
    /// *Shape*: `disk` gives the device of a probe, by its place among the probes; the pool was admitted, to this node too
    /// ([`FoundPool::admit_owner`]). Where another node had it last, one [`HEARTBEAT`](cluster::HEARTBEAT) passes before anything else is written,
    /// and then [`Pool::hold`](crate::Pool::hold) and [`Pool::beat`](crate::Pool::beat) tell whether it is still so.
    /// *Errors*: `Contested` when somebody else moves; `NotClaimed` when a group has no member that takes the mark.
    pub async fn claim<D: BlockDevice>(
        &self,
        mut disk: impl FnMut(usize) -> D,
        node: &Node,
        now: u64,
    ) -> Result<Claim, PoolError> {
        let mut disks = Vec::new();
        for (group, found) in self.groups.iter().enumerate() {
            let taking_part = found.positions.iter().filter(|position| position.standing.takes_part());
            disks.extend(taking_part.filter_map(|one| Some((one.disk, Rc::new(disk(one.probe?)), group))));
        }
        // Also above the marks of disks that take no part: they may have been used alone, and return.
        let seen = self.marks.iter().map(|(_, mark)| mark.epoch).max().unwrap_or_default();
        let above = self.catalog.owner_epoch.max(seen).max(self.claims_above);
        claim(self.catalog.pool, &disks, above, node, now, Some(&self.marks)).await
    }

    /// Every member that answers says `mark`: with the next beat of a claim between that and [`Pool::hold`](crate::Pool::hold),
    /// however long arrays take to open, or that the pool is released after all.
    pub async fn renew<D: BlockDevice>(&self, mut disk: impl FnMut(usize) -> D, mark: &Claim) {
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

    /// Admits `node` to the pool, which was found as `earlier` at least [`WATCH`](cluster::WATCH) before, where it must be watched.
    ///
    /// *Shape*: `told` when the operator says that the node that had it last is gone. *Errors*: `Owned` while somebody has
    /// it; `NotReleased` when another node did not let go of it and nobody was told.
    pub fn admit_owner(&self, earlier: Option<&Self>, node: &Node, told: bool) -> Result<(), PoolRefusal> {
        let pool_name = self.catalog.name.clone();
        match judge_takeover(&self.marks, earlier.map(Self::marks), node, told) {
            Takeover::Free | Takeover::Forced => Ok(()),
            Takeover::Owned { owner, is_us } => Err(PoolRefusal::Owned { pool_name, node_name: owner.name, is_us }),
            // Without a second look nobody can tell; the owner may be alive.
            Takeover::Watch => {
                let owner = self.owner().expect("a pool without an owner is free");
                let is_us = owner.node == node.id;
                Err(PoolRefusal::Owned { pool_name, node_name: owner.name.clone(), is_us })
            }
            Takeover::NotReleased { owner } => Err(PoolRefusal::NotReleased { pool_name, node_name: owner.name }),
        }
    }
}

#[cfg(test)]
mod tests;
