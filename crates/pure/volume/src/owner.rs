//! Pool ownership on disk: an owner mark on every member, renewed while the pool is open, so that no other node
//! opens it.
//!
//! A mark is one block. A claim alternates between two places, and the next claim uses two others. A mark names
//! a node, a claim epoch and a beat counter; a node that wants the pool reads the marks twice, some time apart,
//! and is refused when the counter moves. Rules: `docs/on-disk.md`, *Owner's mark*. The decisions themselves
//! are in crate `cluster`.

mod claims;
mod ownership_state;

pub use claims::Claims;
pub(crate) use ownership_state::OwnershipState;
pub use ownership_state::{FenceReason, Mark};

use crate::assembly::{AssembledPool, PoolRefusal};
use crate::error::PoolError;
use crate::label::{put_text, take_text};
use crate::layout::{BLOCK_BYTES, OWNER_PLACES};
use block::frame::Format;
use block::{BlockDevice, Buf, Extent, IoError, Lba, Stable};
use cluster::{Claim, Node, Takeover, contested_after, contested_before, decide_takeover, newest};
use futures_util::future::join_all;
use ownership_state::all_marks;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Blocks of the owner marks on a member disk; the lease never holds back writes to them.
pub const PLACES: Extent = OWNER_PLACES;

const FORMAT: Format = Format::versioned(*b"BLKYDOWN", 1..=1);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    frame: [u8; 16],
    pool: [u8; 16],
    disk: [u8; 16],
    node: [u8; 16],
    boot_instance: [u8; 16],
    epoch: U64,
    beat: U64,
    claimed_at: U64,
    released: u8,
    reserved: [u8; 7],
    name: [u8; 64],
    machine: [u8; 16],
}

/// Encodes the mark of `claim` for member `disk` of `pool`.
pub(crate) fn emit(claim: &Claim, pool: Uuid, disk: Uuid) -> [u8; BLOCK_BYTES as usize] {
    let mut wire = Wire::new_zeroed();
    wire.pool = *pool.as_bytes();
    wire.disk = *disk.as_bytes();
    wire.node = *claim.node.as_bytes();
    wire.boot_instance = *claim.boot_instance.as_bytes();
    wire.epoch = claim.epoch.into();
    wire.beat = claim.beat.into();
    wire.claimed_at = claim.claimed_at.into();
    wire.released = u8::from(claim.released);
    put_text(&mut wire.name, &claim.name);
    wire.machine = *claim.machine.unwrap_or_default().as_bytes();
    FORMAT.emit(&wire)
}

/// Parses the mark in `block`.
///
/// None when it is torn or belongs to another pool or disk. Fields added by later versions are ignored.
#[must_use]
pub fn parse(block: &[u8], pool: Uuid, disk: Uuid) -> Option<Claim> {
    let mark = parse_any(block, OWNER_PLACES.start)?;
    ((mark.pool, mark.disk) == (pool, disk)).then_some(mark.claim)
}

/// Parses the mark in `block` at address `place`, of any pool and disk; none when it is torn.
fn parse_any(block: &[u8], place: Lba) -> Option<Mark> {
    // Fields of version 1 keep their places in later versions, so ownership is respected across versions.
    let (wire, _) = FORMAT.parse_any_version::<Wire>(block).ok()?;
    let claim = Claim {
        node: Uuid::from_bytes(wire.node),
        name: take_text(&wire.name)?,
        boot_instance: Uuid::from_bytes(wire.boot_instance),
        machine: Some(Uuid::from_bytes(wire.machine)).filter(|machine| !machine.is_nil()),
        epoch: wire.epoch.get(),
        beat: wire.beat.get(),
        claimed_at: wire.claimed_at.get(),
        released: wire.released != 0,
    };
    Some(Mark { pool: Uuid::from_bytes(wire.pool), disk: Uuid::from_bytes(wire.disk), claim, place })
}

/// Address of the mark: never that of the claim's previous mark, nor any of the previous claim, so that a torn
/// write loses nothing.
fn place_of(claim: &Claim) -> Lba {
    Lba(OWNER_PLACES.start.0 + claim.epoch % 2 * 2 + claim.beat % 2)
}

/// Reads all intact marks of `pool` on `disk`, whose UUID is `id`.
///
/// *Errors*: the disk's, when no place can be read.
pub(crate) async fn read_marks<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid) -> Result<Vec<Claim>, IoError> {
    let (marks, _) = all_marks(disk).await?;
    Ok(marks.into_iter().filter(|mark| (mark.pool, mark.disk) == (pool, id)).map(|mark| mark.claim).collect())
}

/// Writes `mark` to `disk` and flushes it.
pub(crate) async fn write_mark<D: BlockDevice>(disk: &D, pool: Uuid, id: Uuid, mark: &Claim) -> Result<(), IoError> {
    let data = Buf::copy_of(&emit(mark, pool, id)).freeze();
    let place = Extent { start: place_of(mark), len: block::Blocks(1) };
    assert!(OWNER_PLACES.contains(place), "a mark lies in one of its four places");
    let written = disk.write(place_of(mark), data).await?;
    let _: Stable = disk.flush(written).await?;
    Ok(())
}

/// Member: disk UUID, device, and index of its group.
pub(crate) type Marked<D> = (Uuid, Rc<D>, usize);

/// Claims the pool for `node` on every member of `disks`, under an epoch above `above` and above all marks
/// found.
///
/// *Errors*: `Contested` when another owner's mark moved since `seen`, or moves now; `NotClaimed` when a group
/// has no member that takes the mark.
pub(crate) async fn claim<D: BlockDevice>(
    pool: Uuid,
    disks: &[Marked<D>],
    above: u64,
    node: &Node,
    now: u64,
    seen: Option<&[(Uuid, Claim)]>,
) -> Result<Claim, PoolError> {
    let sights = async || -> Vec<OwnershipState> {
        join_all(disks.iter().map(async |(id, disk, _)| OwnershipState::read(&**disk, pool, *id, None).await)).await
    };
    let marks_of = |sights: &[OwnershipState]| -> Vec<(Uuid, Vec<Claim>)> {
        let all = disks.iter().zip(sights);
        all.filter_map(|((id, _, _), sight)| Some((*id, sight.marks.clone().ok()?))).collect()
    };
    // Write, then read again: of two nodes that claim at the same time, at least one sees the mark of the
    // other.
    let first = sights().await;
    admit_labels(&first)?;
    let before = marks_of(&first);
    if let Some(other) = seen.and_then(|seen| contested_before(&before, seen)) {
        return Err(PoolError::Contested { node: other.name.clone() });
    }
    // Marks on disks outside `seen` count as well, or an epoch could be used twice.
    let highest = before.iter().flat_map(|(_, marks)| marks).map(|mark| mark.epoch).max().unwrap_or(0);
    let own = Claim::first(node, above.max(highest), now);
    let writes = disks.iter().map(async |(id, disk, group)| {
        let written = write_mark(&**disk, pool, *id, &own).await;
        written.ok().map(|()| *group)
    });
    let reached: BTreeSet<usize> = join_all(writes).await.into_iter().flatten().collect();
    // One member per group suffices: a contender reads the marks of all groups.
    if disks.iter().any(|(_, _, group)| !reached.contains(group)) {
        return Err(PoolError::NotClaimed);
    }
    // An owner whose mark moved before it could see ours may still be writing; one that claimed at the same
    // time has lost as well.
    let second = sights().await;
    admit_labels(&second)?;
    if let Some(other) = contested_after(&marks_of(&second), &before, &own) {
        // The withdrawn claim must look like one of an unknown daemon (nil instance), so that every later claimant,
        // this node included, watches until no owner can be writing any more.
        let left = Claim { beat: own.beat + 1, boot_instance: Uuid::nil(), ..own.clone() };
        join_all(disks.iter().map(async |(id, disk, _)| write_mark(&**disk, pool, *id, &left).await.ok())).await;
        return Err(PoolError::Contested { node: other.name.clone() });
    }
    // A live owner of another pool that had these disks before finds the labels of this pool at its next
    // heartbeat.
    for ((sight, before), (_, disk, _)) in second.iter().zip(&first).zip(disks) {
        // A mark of another pool that appeared or moved since the first read is written by a live owner.
        if sight.newest_other() != before.newest_other() {
            let node = sight.newest_other().map_or_else(String::new, |other| other.name.clone());
            return Err(PoolError::Contested { node });
        }
        // A disk that cannot be written is reported by the I/O paths that use it.
        let _ = sight.clear_other_marks(&**disk).await;
    }
    Ok(own)
}

/// Refuses disks with a label of another pool: they may just be added to it.
fn admit_labels(sights: &[OwnershipState]) -> Result<(), PoolError> {
    let other = sights.iter().find(|sight| sight.has_other_label()).and_then(|sight| sight.fence_reason.clone());
    other.map_or(Ok(()), |loss| Err(PoolError::Fenced(loss)))
}

impl AssembledPool {
    /// Returns the newest mark of each disk that has one.
    #[must_use]
    pub fn marks(&self) -> &[(Uuid, Claim)] {
        &self.marks
    }

    /// Returns the claim of the last owner, by the newest mark of all members; none when the pool was never
    /// claimed.
    #[must_use]
    pub fn owner(&self) -> Option<&Claim> {
        newest(&self.marks)
    }

    /// True when the marks must be read again after [`WATCH`](cluster::WATCH) to tell whether the pool is in
    /// use.
    #[must_use]
    pub fn must_be_watched(&self, node: &Node) -> bool {
        cluster::must_be_watched(&self.marks, node)
    }

    /// Claims the pool for `node`, durably, on every participating member.
    ///
    /// *Shape*: `disk` returns the device of a probe, by index; the pool was admitted, also by
    /// [`AssembledPool::admit_owner`]. Where another node had it last, one [`HEARTBEAT`](cluster::HEARTBEAT) passes
    /// before anything else is written; then [`Ownership::hold`](crate::Ownership::hold) and
    /// [`Ownership::beat`](crate::Ownership::beat) verify the claim. *Errors*: `Contested` when another owner's mark
    /// moves; `NotClaimed` when a group has no member that takes the mark.
    pub async fn claim<D: BlockDevice>(
        &self,
        mut disk: impl FnMut(usize) -> D,
        node: &Node,
        now: u64,
    ) -> Result<Claim, PoolError> {
        let mut disks = Vec::new();
        for (group, found) in self.groups.iter().enumerate() {
            let taking_part = found.positions.iter().filter(|position| position.state.takes_part());
            disks.extend(taking_part.filter_map(|one| Some((one.disk, Rc::new(disk(one.probe?)), group))));
        }
        // Marks of disks that do not participate count too: such a disk may have been used alone and may
        // return.
        let seen = self.marks.iter().map(|(_, mark)| mark.epoch).max().unwrap_or_default();
        let above = self.catalog.owner_epoch.max(seen).max(self.highest_known_epoch);
        claim(self.catalog.pool, &disks, above, node, now, Some(&self.marks)).await
    }

    /// Writes `mark` on every member that answers.
    ///
    /// Called for each beat between the claim and [`Ownership::hold`](crate::Ownership::hold), however long arrays take
    /// to open, or to release the pool again.
    pub async fn renew<D: BlockDevice>(&self, mut disk: impl FnMut(usize) -> D, mark: &Claim) {
        let positions = self.groups.iter().flat_map(|group| &group.positions);
        let taking_part = positions.filter(|position| position.state.takes_part());
        let disks: Vec<(Uuid, D)> = taking_part.filter_map(|one| Some((one.disk, disk(one.probe?)))).collect();
        // A disk that cannot be written is reported by the I/O paths that use it. A disk that another owner has
        // taken is left alone; the first commit detects that as well.
        let pool = self.catalog.pool;
        let one = async |id: Uuid, disk: &D| {
            let is_ours = OwnershipState::read(disk, pool, id, Some(mark)).await.fence_reason.is_none();
            if is_ours { write_mark(disk, pool, id, mark).await.ok() } else { None }
        };
        join_all(disks.iter().map(|(id, disk)| one(*id, disk))).await;
    }

    /// Admits `node` as owner. Where the pool must be watched, `earlier` is the pool as it was found at least
    /// [`WATCH`](cluster::WATCH) before.
    ///
    /// *Shape*: `owner_confirmed_down` is true when the operator confirms that the last owner's node is down.
    /// *Errors*: `Owned` while another owner is active; `NotReleased` when another node did not release the pool
    /// and `owner_confirmed_down` is false.
    pub fn admit_owner(
        &self,
        earlier: Option<&Self>,
        node: &Node,
        owner_confirmed_down: bool,
    ) -> Result<(), PoolRefusal> {
        let pool_name = self.catalog.name.clone();
        match decide_takeover(&self.marks, earlier.map(Self::marks), node, owner_confirmed_down) {
            Takeover::Free | Takeover::Forced => Ok(()),
            Takeover::Owned { owner, is_us } => Err(PoolRefusal::Owned { pool_name, node_name: owner.name, is_us }),
            // Without a second look the owner may be alive.
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
