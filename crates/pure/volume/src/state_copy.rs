//! Copies of the node's state on the members of its pools, for recovery after the state folder is lost.
//!
//! Two places alternate, each written as a header block and the bytes behind it in one write, so that a torn
//! write leaves the previous copy. The pool never reads them itself: an operator lists the copies and chooses
//! one.
//!
//! Nothing here may panic on the content of a disk.

use crate::layout::{BLOCK_BYTES, STATE_PLACE_BLOCKS, STATE_PLACES};
use block::frame::Format;
use block::{BlockDevice, Buf, IoError, Lba, Stable};
use simd::crc32c::crc32c;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::versioned(*b"BLKYDSTA", 1..=1);
const BLOCK: usize = BLOCK_BYTES as usize;

/// Maximum size of a state with copies, in bytes.
pub const STATE_COPY_BYTES_MAX: usize = STATE_PLACE_BLOCKS as usize * BLOCK - BLOCK;
/// Offset of the copies on a member disk, in bytes.
pub const STATE_COPIES_AT: u64 = STATE_PLACES[0] * BLOCK_BYTES as u64;
/// Length of the area of the copies, in bytes.
pub const STATE_COPIES_BYTES: usize = 2 * STATE_PLACE_BLOCKS as usize * BLOCK;

/// Intact copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCopy {
    /// UUID of the pool.
    pub pool: Uuid,
    /// UUID of the disk.
    pub disk: Uuid,
    /// Version of the state.
    pub number: u64,
    /// State as the node wrote it.
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

/// Returns the intact copies in the area of a member disk, latest first. Damaged, torn and foreign content is
/// skipped.
#[must_use]
pub fn state_copies(area: &[u8]) -> Vec<StateCopy> {
    let mut copies: Vec<StateCopy> = area.chunks(STATE_PLACE_BLOCKS as usize * BLOCK).filter_map(parse).collect();
    // The two places alternate, so the order on disk says nothing.
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.number));
    copies
}

fn parse(place: &[u8]) -> Option<StateCopy> {
    let (block, rest) = place.split_at_checked(BLOCK)?;
    let wire: &Wire = FORMAT.parse(block).ok()?;
    // A length beyond the place is damage.
    let bytes = rest.get(..usize::try_from(wire.bytes.get()).ok()?)?;
    (crc32c(bytes) == wire.bytes_checksum.get()).then(|| StateCopy {
        pool: Uuid::from_bytes(wire.pool),
        disk: Uuid::from_bytes(wire.disk),
        number: wire.number.get(),
        bytes: bytes.to_vec(),
    })
}

/// Writes the copy to the disk.
///
/// *Durability*: when it returns. *Panics*: when `bytes` are more than [`STATE_COPY_BYTES_MAX`].
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
    // Header and state in one write: a torn one fails a checksum, and the other place is intact.
    let mut data = Buf::zeroed(BLOCK + bytes.len().next_multiple_of(BLOCK));
    data.part_mut(0..BLOCK).copy_from_slice(&FORMAT.emit(&wire));
    data.part_mut(BLOCK..BLOCK + bytes.len()).copy_from_slice(bytes);
    let written = disk.write(Lba(STATE_PLACES[place]), data.freeze()).await?;
    let _: Stable = disk.flush(written).await?;
    Ok(())
}
