//! Types of block storage, used by every layer: addresses, buffers, the device trait, errors.
//!
//! A disk, an array, a volume, a disk behind another target: all are [`BlockDevice`]s and compose. Addresses are
//! [`Lba`]s and [`Extent`]s in blocks of the device at hand; bytes travel in [`Buf`] (one owner, writable) and [`View`]
//! (shared, read-only), both page-aligned and pooled; order on disk is a type, [`Written`] → [`Stable`]. The crate does
//! no I/O and reads no clock.

mod address;
mod around;
mod buf;
mod device;
mod error;
pub mod frame;
pub mod medium;
pub mod memory;
mod rope;
mod units;

pub use address::{Blocks, Extent, Lba};
pub use around::read_around;
pub use buf::{Buf, PAGE_BYTES, View, pool};
pub use device::{BestCopy, BlockDevice, GenerationFn, Geometry, Run, Space, Stable, Written};
pub use error::{IoError, IoErrorKind};
pub use rope::Rope;
pub use units::in_units;
