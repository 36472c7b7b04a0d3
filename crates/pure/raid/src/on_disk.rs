//! On-disk structures of a protected array, byte for byte: parsing and emitting, no I/O and no state.
//!
//! docs/raid.md, "Protected arrays", draws all of them. Every parser takes any bytes and returns `None` for what an
//! array cannot have written; it must never panic on foreign bytes.

pub(crate) mod anchor;
pub(crate) mod area;
pub(crate) mod batch;
pub(crate) mod entry;
pub(crate) mod page;
pub(crate) mod regions;
pub(crate) mod segments;
pub(crate) mod wire;
