//! A B+tree of pages that are never changed in place: searched page by page, and changed by many changes at once.
//!
//! It knows nothing of disks ([`Pages`] does) and nothing of volumes ([`crate::family`] does). Every node but
//! the root holds at least a third of what it can, whatever was removed, so that the pages of a tree are
//! bounded by its entries.

mod apply;
mod key;
mod page;
mod search;

pub(crate) use apply::{Change, apply};
pub(crate) use key::{Counter, Key, Place, Tag};
pub(crate) use page::{Page, PageIdentity, parse_page};
pub(crate) use search::{last_at_most, leaf_at};

use std::fmt;

/// The most entries of a node.
pub(crate) const FANOUT: usize = page::ENTRIES_MAX;

/// Where a tree keeps its nodes.
pub(crate) trait Pages {
    /// What reading or writing a page can fail with.
    type Error: From<Damage>;

    /// The page at `number`, found whole.
    async fn load(&self, number: u64) -> Result<Page, Self::Error>;

    /// A node is at the place that is returned, to be read from now on and durable before the root is.
    async fn store(&self, level: u8, entries: &[(Key, u64)]) -> Result<u64, Self::Error>;

    /// The new tree does not have the page any more; the old one still does.
    fn give_up(&self, number: u64);
}

/// A tree is not as we build it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The topmost node of a tree that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// The number of its page.
    pub(crate) page: u64,
    /// How many levels are below it.
    pub(crate) level: u8,
    /// How many entries it has.
    pub(crate) count: u16,
}

/// The most pages that a tree with `entries` entries can have when a node holds at most `fanout`.
pub(crate) fn pages_max(entries: u64, fanout: usize) -> u64 {
    let least = (fanout / 3).max(1) as u64;
    let mut nodes = entries.div_ceil(least);
    let mut pages = nodes;
    while nodes > 1 {
        nodes = nodes.div_ceil(least.max(2));
        pages += nodes;
    }
    pages + 1
}

/// The page and the number of entries of a child, as an inner node keeps them.
fn child_value(page: u64, count: usize) -> u64 {
    page << 16 | count as u64
}

/// See [`child_value`].
pub(crate) fn child_of(value: u64) -> (u64, usize) {
    (value >> 16, (value & 0xffff) as usize)
}

#[cfg(test)]
mod tests;
