//! Search in a tree: the last key up to a given key, and the leaf of a key.

use super::{Damage, Key, Page, Pages, Root, child_of};

/// Returns the entry with the largest key of at most `key`.
pub(crate) async fn last_at_most<P: Pages>(
    pages: &P,
    root: Option<Root>,
    key: Key,
) -> Result<Option<(Key, u64)>, P::Error> {
    let Some(root) = root else { return Ok(None) };
    let (mut number, mut level) = (root.page, root.level);
    loop {
        let page = load(pages, number, level).await?;
        // The first key of a node is the smallest of its subtree, so nothing before it can be in a lower level.
        let Some(at) = page.rank(key).checked_sub(1) else { return Ok(None) };
        let entry = page.entry(at);
        if level == 0 {
            return Ok(Some(entry));
        }
        (number, level) = (child_of(entry.1).0, level - 1);
    }
}

/// Returns the leaf in which `key` is or would be, and the first key of the next leaf.
pub(crate) async fn leaf_at<P: Pages>(
    pages: &P,
    root: Option<Root>,
    key: Key,
) -> Result<Option<(Page, Option<Key>)>, P::Error> {
    let Some(root) = root else { return Ok(None) };
    let (mut number, mut level, mut next) = (root.page, root.level, None);
    loop {
        let page = load(pages, number, level).await?;
        if level == 0 {
            return Ok(Some((page, next)));
        }
        // A key below the first one belongs into the first leaf.
        let at = page.rank(key).saturating_sub(1);
        if at + 1 < page.len() {
            // A lower level replaces this key: its next child begins earlier.
            next = Some(page.entry(at + 1).0);
        }
        (number, level) = (child_of(page.entry(at).1).0, level - 1);
    }
}

/// Loads a node and verifies its level, which must decrease on the way down: a damaged pointer cannot cause a
/// loop.
pub(super) async fn load<P: Pages>(pages: &P, number: u64, level: u8) -> Result<Page, P::Error> {
    let page = pages.load(number).await?;
    if page.level() != level {
        return Err(Damage("a page stands at another level than its parent says").into());
    }
    Ok(page)
}
