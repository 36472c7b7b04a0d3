//! Copy-on-write B+tree of 4 KiB pages: searched page by page, updated by batches of changes.
//!
//! It knows neither disks ([`Pages`] does) nor volumes ([`crate::family`] does). It must never change a page in
//! place. Every node except the root is at least a third full, whatever was removed, so that the number of
//! pages is bounded by the number of entries.

mod apply;
mod key;
mod page;
mod search;

pub(crate) use apply::{Change, apply};
pub(crate) use key::{Counter, GranuleAddress, Key, Tag};
pub(crate) use page::{Page, PageIdentity, parse_page};
pub(crate) use search::{last_at_most, leaf_at};

use std::fmt;

/// Maximum number of entries in a node.
pub(crate) const FANOUT: usize = page::ENTRIES_MAX;

/// Page store of a tree.
pub(crate) trait Pages {
    /// Error of reading or writing a page.
    type Error: From<Damage>;

    /// Loads and verifies the page `number`.
    async fn load(&self, number: u64) -> Result<Page, Self::Error>;

    /// Stores a node in a new page and returns its number. It can be loaded at once and must be durable before
    /// the root is.
    async fn store(&self, level: u8, entries: &[(Key, u64)]) -> Result<u64, Self::Error>;

    /// Releases a page that the new tree does not contain; the old tree still does.
    fn release(&self, number: u64);
}

/// Inconsistency in a tree or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Root of a non-empty tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Page number.
    pub(crate) page: u64,
    /// Number of levels below it.
    pub(crate) level: u8,
    /// Number of entries.
    pub(crate) count: u16,
}

/// Upper bound of the pages of a tree with `entries` entries when a node holds at most `fanout`.
pub(crate) fn pages_max(entries: u64, fanout: usize) -> u64 {
    // Every node except the root is at least a third full; the root may be nearly empty, hence + 1 at the end.
    let least = (fanout / 3).max(1) as u64;
    let mut nodes = entries.div_ceil(least);
    let mut pages = nodes;
    while nodes > 1 {
        nodes = nodes.div_ceil(least.max(2));
        pages += nodes;
    }
    pages + 1
}

/// Encodes page number and entry count of a child for an inner node.
fn child_value(page: u64, count: usize) -> u64 {
    // A page has at most 168 entries, and page numbers have 48 bits in a head.
    page << 16 | count as u64
}

/// Decodes a [`child_value`].
pub(crate) fn child_of(value: u64) -> (u64, usize) {
    (value >> 16, (value & 0xffff) as usize)
}

#[cfg(test)]
mod tests;
