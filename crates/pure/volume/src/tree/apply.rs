//! Batch update of a tree: all changes of a checkpoint are applied from the leaves up, into new pages.
//!
//! A node is *loose* while it has no page: it may still be merged with its neighbor. It is stored as soon as it
//! is full enough, so that few nodes are loose at a time, whatever the size of the tree.

use super::search::load;
use super::{Key, Pages, Root, child_of, child_value};
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;

/// Change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sets the value.
    Put(u64),
    /// Removes the key.
    Remove,
    /// Sets and clears bits of the value; a value without bits is removed.
    Mask { set: u64, clear: u64 },
}

impl Change {
    /// Value after the change.
    pub(crate) fn of(self, old: Option<u64>) -> Option<u64> {
        match self {
            Self::Put(value) => Some(value),
            Self::Remove => None,
            // An empty bitmap is not stored, so a free slab has no entries.
            Self::Mask { set, clear } => Some((old.unwrap_or(0) | set) & !clear).filter(|&value| value != 0),
        }
    }
}

/// Node of the new tree.
struct Child {
    first: Key,
    body: Body,
}

enum Body {
    Stored { page: u64, count: usize },
    Leaf(Vec<(Key, u64)>),
    Inner(Vec<Child>),
}

impl Child {
    fn count(&self) -> usize {
        match &self.body {
            Body::Stored { count, .. } => *count,
            Body::Leaf(entries) => entries.len(),
            Body::Inner(children) => children.len(),
        }
    }
}

type Children<E> = Result<Vec<Child>, E>;

/// Applies `changes`; returns the root of the new tree and the growth in entries.
///
/// *Shape*: nodes get at most `fanout` entries, at least 6. On an error the old tree is unchanged.
pub(crate) async fn apply<P: Pages>(
    pages: &P,
    fanout: usize,
    root: Option<Root>,
    changes: &BTreeMap<Key, Change>,
) -> Result<(Option<Root>, i64), P::Error> {
    // With a third of the fanout as minimum, splitting an overfull node always gives nodes above it.
    assert!(fanout >= 6, "a node is split into nodes with enough in them");
    let changes: Vec<(Key, Change)> = changes.iter().map(|(&key, &change)| (key, change)).collect();
    let mut work = Work { pages, fanout, grown: 0 };
    // The children of one level become the entries of the next, until a single node is left.
    let (mut children, mut level) = match root {
        None => {
            let entries = merge(std::iter::empty(), &changes, &mut work.grown);
            (work.leaves(entries), 0)
        }
        Some(root) => (work.node(root.page, root.level, &changes).await?, root.level),
    };
    loop {
        children = work.balance(children, level).await?;
        if children.len() <= 1 {
            break;
        }
        children = work.inner(children);
        level += 1;
    }
    match children.pop() {
        None => Ok((None, work.grown)),
        Some(top) => Ok((Some(work.finish_root(top, level).await?), work.grown)),
    }
}

struct Work<'a, P> {
    pages: &'a P,
    fanout: usize,
    grown: i64,
}

impl<P: Pages> Work<'_, P> {
    /// Applies `changes` to a node; returns any number of nodes of its level.
    fn node<'b>(
        &'b mut self,
        number: u64,
        level: u8,
        changes: &'b [(Key, Change)],
    ) -> LocalBoxFuture<'b, Children<P::Error>> {
        Box::pin(async move {
            let page = load(self.pages, number, level).await?;
            // Released pages stay readable: lookups use the old tree until the new head is stable.
            self.pages.release(number);
            if level == 0 {
                let entries = merge(page.iter(), changes, &mut self.grown);
                return Ok(self.leaves(entries));
            }
            let mut children = Vec::with_capacity(page.len() + 1);
            let mut rest = changes;
            for at in 0..page.len() {
                let (first, value) = page.entry(at);
                // Keys below the first key belong into the first child.
                let end = if at + 1 < page.len() { Some(page.entry(at + 1).0) } else { None };
                let here = end.map_or(rest.len(), |end| rest.partition_point(|(key, _)| *key < end));
                // Changes are sorted, so each child gets one contiguous part of them.
                let (mine, behind) = rest.split_at(here);
                rest = behind;
                let (page, count) = child_of(value);
                // A child without changes is shared with the old tree and not even read.
                if mine.is_empty() {
                    children.push(Child { first, body: Body::Stored { page, count } });
                } else {
                    children.extend(self.node(page, level - 1, mine).await?);
                }
            }
            // Balanced here and not at the end, so that few nodes are loose at a time.
            let children = self.balance(children, level - 1).await?;
            Ok(self.inner(children))
        })
    }

    /// Merges children that are too small and stores them all, unless only one small child is left.
    fn balance<'b>(&'b mut self, children: Vec<Child>, level: u8) -> LocalBoxFuture<'b, Children<P::Error>> {
        Box::pin(async move {
            let least = (self.fanout / 3).max(2);
            let mut settled: Vec<Child> = Vec::with_capacity(children.len());
            for child in children {
                match settled.pop() {
                    Some(last) if last.count() < least || child.count() < least => {
                        settled.extend(self.join(last, child, level).await?);
                    }
                    last => settled.extend(last.into_iter().chain([child])),
                }
            }
            // A single small child stays loose: the level above may merge it with a neighbor.
            let alone = settled.len() == 1;
            for child in &mut settled {
                if !alone || child.count() >= least {
                    self.store(child, level).await?;
                }
            }
            Ok(settled)
        })
    }

    /// Merges two neighbors into one node, or into two of equal size.
    async fn join(&mut self, left: Child, right: Child, level: u8) -> Children<P::Error> {
        let (left, right) = (self.load_node(left, level).await?, self.load_node(right, level).await?);
        match (left, right) {
            (Body::Leaf(mut entries), Body::Leaf(more)) => {
                entries.extend(more);
                Ok(self.leaves(entries))
            }
            // A small child at the seam may be merged with its new neighbor, hence the second `balance`.
            (Body::Inner(mut children), Body::Inner(more)) => {
                children.extend(more);
                let children = self.balance(children, level - 1).await?;
                Ok(self.inner(children))
            }
            _ => unreachable!("opened nodes of one level are of one kind"),
        }
    }

    /// Content of a node, which is loose from now on.
    async fn load_node(&mut self, child: Child, level: u8) -> Result<Body, P::Error> {
        let Body::Stored { page: number, .. } = child.body else { return Ok(child.body) };
        let page = load(self.pages, number, level).await?;
        self.pages.release(number);
        if level == 0 {
            return Ok(Body::Leaf(page.iter().collect()));
        }
        let stored = |(first, value)| {
            let (page, count) = child_of(value);
            Child { first, body: Body::Stored { page, count } }
        };
        Ok(Body::Inner(page.iter().map(stored).collect()))
    }

    async fn store(&mut self, child: &mut Child, level: u8) -> Result<(), P::Error> {
        let (page, count) = match &child.body {
            Body::Stored { .. } => return Ok(()),
            Body::Leaf(entries) => (self.pages.store(0, entries).await?, entries.len()),
            Body::Inner(children) => {
                let entry = |child: &Child| match child.body {
                    Body::Stored { page, count } => (child.first, child_value(page, count)),
                    _ => unreachable!("a node with enough children has none that is loose"),
                };
                let entries: Vec<(Key, u64)> = children.iter().map(entry).collect();
                (self.pages.store(level, &entries).await?, entries.len())
            }
        };
        child.body = Body::Stored { page, count };
        Ok(())
    }

    /// Stores the root: the topmost node with more than one child, or the only leaf.
    async fn finish_root(&mut self, mut top: Child, mut level: u8) -> Result<Root, P::Error> {
        // Levels with a single child are dropped.
        while level > 0 && top.count() == 1 {
            let Body::Inner(mut children) = self.load_node(top, level).await? else {
                unreachable!("a node above the leaves has children")
            };
            top = children.pop().expect("it has one child");
            level -= 1;
        }
        self.store(&mut top, level).await?;
        match top.body {
            Body::Stored { page, count } => Ok(Root { page, level, count: count as u16 }),
            _ => unreachable!("the node was stored"),
        }
    }

    fn leaves(&self, entries: Vec<(Key, u64)>) -> Vec<Child> {
        let leaf = |entries: Vec<(Key, u64)>| Child { first: entries[0].0, body: Body::Leaf(entries) };
        split(entries, self.fanout).into_iter().map(leaf).collect()
    }

    fn inner(&self, children: Vec<Child>) -> Vec<Child> {
        let inner = |children: Vec<Child>| Child { first: children[0].first, body: Body::Inner(children) };
        split(children, self.fanout).into_iter().map(inner).collect()
    }
}

/// Splits `items` into the fewest parts of at most `most`, all about equally long; none where there are none.
fn split<T>(mut items: Vec<T>, most: usize) -> Vec<Vec<T>> {
    assert!(most > 0, "a part holds something");
    let parts = items.len().div_ceil(most);
    let mut split = Vec::with_capacity(parts);
    for left in (1..=parts).rev() {
        // Dividing the remaining items evenly keeps all parts within one item of each other.
        let rest = items.split_off(items.len().div_ceil(left));
        split.push(std::mem::replace(&mut items, rest));
    }
    split
}

/// Merges the changes into the entries; adds the growth to `grown`.
fn merge(old: impl Iterator<Item = (Key, u64)>, changes: &[(Key, Change)], grown: &mut i64) -> Vec<(Key, u64)> {
    let mut merged = Vec::with_capacity(changes.len() + old.size_hint().0);
    let mut old = old.peekable();
    for &(key, change) in changes {
        while let Some(entry) = old.next_if(|entry| entry.0 < key) {
            merged.push(entry);
        }
        let before = old.next_if(|entry| entry.0 == key).map(|(_, value)| value);
        let after = change.of(before);
        // Replacing a value leaves the number of entries unchanged.
        *grown += i64::from(after.is_some()) - i64::from(before.is_some());
        merged.extend(after.map(|value| (key, value)));
    }
    merged.extend(old);
    merged
}
