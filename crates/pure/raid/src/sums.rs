//! Checksums: the pages of entries in memory, where they come from, and reads that are compared with them.

pub(crate) mod cache;
mod look;
pub(crate) mod pages;
mod reading;
