//! What the fuzz targets assert of single structures that only this crate knows. Built for them alone.
//!
//! Each function takes any bytes for the structure, and panics when what was accepted breaks a promise.

use crate::family::fuzzing::{self as map, uuid_at};
use crate::layout::OWNER_PLACES;
use crate::owner::{emit, parse};

pub use map::{bits, head, page, ring};

/// An owner's mark is the same when it is written again.
pub fn mark(block: &[u8]) {
    let (pool, disk) = (uuid_at(block, 16), uuid_at(block, 32));
    let Some(mark) = parse(block, pool, disk) else { return };
    assert_eq!(parse(&emit(&mark, pool, disk), pool, disk), Some(mark), "a mark is written as it was read");
    assert_eq!(OWNER_PLACES.len.0, 4);
}
