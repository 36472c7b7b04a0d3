//! Properties checked by the fuzz targets that need private types of this crate. Built only for fuzzing.
//!
//! Each function takes arbitrary bytes for a structure and panics when accepted input violates a property.

use crate::family::fuzzing::{self as map, uuid_at};
use crate::layout::OWNER_PLACES;
use crate::owner::{emit, parse};

pub use map::{bits, head, page, ring};

/// Owner mark: encoding a parsed mark again yields the same mark.
pub fn mark(block: &[u8]) {
    let (pool, disk) = (uuid_at(block, 16), uuid_at(block, 32));
    let Some(mark) = parse(block, pool, disk) else { return };
    assert_eq!(parse(&emit(&mark, pool, disk), pool, disk), Some(mark), "a mark is written as it was read");
    assert_eq!(OWNER_PLACES.len.0, 4);
}
