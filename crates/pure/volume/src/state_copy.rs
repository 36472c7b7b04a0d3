//! Copies of a node's state on the members of its pools: bytes that the pool only keeps, for who has lost the state folder.
//!
//! Two places are written in turn, each as one write of a header block and the bytes behind it, so that a torn write leaves the
//! copy before. Nothing is ever taken from here by itself: an operator lists the copies and chooses one.
//!
//! Nothing here may panic on what a disk holds.

use crate::layout::{BLOCK_BYTES, STATE_PLACE_BLOCKS, STATE_PLACES};
use block::sealed::Format;
use block::{BlockDevice, Buf, IoError, Lba, Stable};
use simd::crc32c::crc32c;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::versioned(*b"BLKYDSTA", 1..=1);
const BLOCK: usize = BLOCK_BYTES as usize;

/// The largest state that has copies, in bytes.
pub const STATE_COPY_BYTES_MAX: usize = STATE_PLACE_BLOCKS as usize * BLOCK - BLOCK;
/// Where the copies lie on a member disk, in bytes.
pub const STATE_COPIES_AT: u64 = STATE_PLACES[0] * BLOCK_BYTES as u64;
/// How long that area is, in bytes.
pub const STATE_COPIES_BYTES: usize = 2 * STATE_PLACE_BLOCKS as usize * BLOCK;

/// A copy that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCopy {
    /// The pool on whose disk it lies.
    pub pool: Uuid,
    /// The disk.
    pub disk: Uuid,
    /// Which version of the state it is.
    pub number: u64,
    /// The state, as the node wrote it.
    pub bytes: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    frame: [u8; 16],
    pool: [u8; 16],
    disk: [u8; 16],
    number: U64,
    bytes: U32,
    bytes_checksum: U32,
}

/// The whole copies in the area of a member disk; the latest first. Whatever is damaged, torn or nothing of ours is left out.
#[must_use]
pub fn state_copies(area: &[u8]) -> Vec<StateCopy> {
    let mut copies: Vec<StateCopy> = area.chunks(STATE_PLACE_BLOCKS as usize * BLOCK).filter_map(parse).collect();
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.number));
    copies
}

fn parse(place: &[u8]) -> Option<StateCopy> {
    let (block, rest) = place.split_at_checked(BLOCK)?;
    let wire: &Wire = FORMAT.parse(block).ok()?;
    let bytes = rest.get(..usize::try_from(wire.bytes.get()).ok()?)?;
    (crc32c(bytes) == wire.bytes_checksum.get()).then(|| StateCopy {
        pool: Uuid::from_bytes(wire.pool),
        disk: Uuid::from_bytes(wire.disk),
        number: wire.number.get(),
        bytes: bytes.to_vec(),
    })
}

/// The disk has the copy. *Durability*: when it returns. *Panics*: when `bytes` are more than [`STATE_COPY_BYTES_MAX`].
pub(crate) async fn write<D: BlockDevice>(
    disk: &D,
    (pool, id): (Uuid, Uuid),
    (place, number): (usize, u64),
    bytes: &[u8],
) -> Result<(), IoError> {
    assert!(bytes.len() <= STATE_COPY_BYTES_MAX, "the caller admits only what fits");
    let mut wire = Wire::new_zeroed();
    wire.pool = *pool.as_bytes();
    wire.disk = *id.as_bytes();
    wire.number = number.into();
    wire.bytes = u32::try_from(bytes.len()).expect("a place is some MiB").into();
    wire.bytes_checksum = crc32c(bytes).into();
    let mut data = Buf::zeroed(BLOCK + bytes.len().next_multiple_of(BLOCK));
    data.part_mut(0..BLOCK).copy_from_slice(&FORMAT.emit(&wire));
    data.part_mut(BLOCK..BLOCK + bytes.len()).copy_from_slice(bytes);
    let written = disk.write(Lba(STATE_PLACES[place]), data.freeze()).await?;
    let _: Stable = disk.flush(written).await?;
    Ok(())
}
