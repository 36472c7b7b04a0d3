//! Task table of a target session, indexed by identifier and by Initiator Task Tag.

use super::slab::{Slab, TaskId};
use crate::pdu::InitiatorTaskTag;

/// Tasks with a lookup by tag.
#[derive(Debug)]
pub(crate) struct Tasks<T> {
    slab: Slab<T>,
    tags: TagTable,
}

/// Properties of a task that the table needs.
pub(crate) trait Tagged {
    /// Initiator Task Tag.
    fn tag(&self) -> InitiatorTaskTag;
    /// True when the task was delivered outside CmdSN order.
    fn is_immediate(&self) -> bool;
    /// False after the tag was freed while the task remains: see [`Tasks::untag`].
    fn is_tagged(&self) -> bool;
}

impl<T: Tagged> Tasks<T> {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::new(), tags: TagTable::default() }
    }

    /// Number of tasks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a task.
    ///
    /// *Panics*: when its tag is in use; callers have checked.
    #[inline]
    pub(crate) fn insert(&mut self, task: T) -> TaskId {
        let tag = task.tag();
        let id = self.slab.insert(task);
        self.tags.insert(tag.0, id.index);
        id
    }

    /// Returns the task of `id`, if it is live.
    pub(crate) fn find(&self, id: TaskId) -> Option<&T> {
        self.slab.find(id)
    }

    /// Returns the task of `id`, if it is live.
    pub(crate) fn find_mut(&mut self, id: TaskId) -> Option<&mut T> {
        self.slab.find_mut(id)
    }

    /// Returns the task with `tag`.
    #[inline]
    pub(crate) fn by_tag(&self, tag: InitiatorTaskTag) -> Option<TaskId> {
        self.slab.id_at(self.tags.find(tag.0)?)
    }

    /// Removes the task and frees its place and tag. True when it was live.
    pub(crate) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.slab.find(id) else { return false };
        // The tag first, while the task that names it still exists.
        if task.is_tagged() {
            self.tags.remove(task.tag().0);
        }
        self.slab.clear(id)
    }

    /// Frees the tag for another task while this one remains; [`Tagged::is_tagged`] must be false from now on.
    pub(crate) fn untag(&mut self, id: TaskId) {
        if let Some(task) = self.slab.find(id) {
            self.tags.remove(task.tag().0);
        }
    }

    /// Iterates over all tasks in order of places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &T)> {
        self.slab.iter()
    }
}

/// Hash table from tags to places with open addressing, at most half full, so that a lookup touches one or two cache
/// lines.
#[derive(Debug, Default)]
struct TagTable {
    entries: Vec<Option<(u32, u32)>>,
    used: usize,
}

impl TagTable {
    fn home(&self, tag: u32) -> usize {
        // Multiplicative hashing spreads consecutive tags. An initiator that chooses colliding tags slows a lookup to
        // at most the window's length.
        (tag.wrapping_mul(0x9e37_79b1) >> 8) as usize & (self.entries.len() - 1)
    }

    fn position(&self, tag: u32) -> Option<usize> {
        // Before the first insertion there are no entries, and the mask below would underflow.
        if self.used == 0 {
            return None;
        }
        let mask = self.entries.len() - 1;
        let mut at = self.home(tag);
        while let Some((found, _)) = self.entries[at] {
            if found == tag {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn find(&self, tag: u32) -> Option<u32> {
        self.position(tag).and_then(|at| self.entries[at]).map(|(_, index)| index)
    }

    fn insert(&mut self, tag: u32, index: u32) {
        assert!(self.position(tag).is_none(), "a tag in use was refused before");
        // At most half full, so that probe sequences stay short and always end at an empty entry.
        if (self.used + 1) * 2 > self.entries.len() {
            let larger = vec![None; (self.entries.len() * 2).max(16)];
            for (tag, index) in std::mem::replace(&mut self.entries, larger).into_iter().flatten() {
                self.place(tag, index);
            }
        }
        self.place(tag, index);
        self.used += 1;
        assert!(self.used * 2 <= self.entries.len(), "a look-up ends at an empty entry");
    }

    fn place(&mut self, tag: u32, index: u32) {
        let mask = self.entries.len() - 1;
        let mut at = self.home(tag);
        while self.entries[at].is_some() {
            at = (at + 1) & mask;
        }
        self.entries[at] = Some((tag, index));
    }

    fn remove(&mut self, tag: u32) {
        let mut hole = self.position(tag).expect("a task has its tag in the table");
        let mask = self.entries.len() - 1;
        let mut at = (hole + 1) & mask;
        // Entries displaced by the removed one move up (backward shift), so that lookups need no tombstones.
        while let Some((tag, index)) = self.entries[at] {
            // An entry moves only if its probe sequence starts at or before the hole.
            if at.wrapping_sub(self.home(tag)) & mask >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = Some((tag, index));
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.entries[hole] = None;
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug)]
    struct Plain(u32);

    impl Tagged for Plain {
        fn tag(&self) -> InitiatorTaskTag {
            InitiatorTaskTag(self.0)
        }

        fn is_immediate(&self) -> bool {
            false
        }

        fn is_tagged(&self) -> bool {
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn tasks_are_found_by_tag_and_by_id_until_they_are_removed(
            steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..3), 0..200),
        ) {
            let mut tasks = Tasks::new();
            let mut model = BTreeMap::new();
            for (insert, low, high) in steps {
                // Tags with equal low bits collide in the table.
                let tag = low | high << 30;
                match (insert, model.get(&tag).copied()) {
                    (true, None) => { model.insert(tag, tasks.insert(Plain(tag))); }
                    (false, Some(id)) => {
                        model.remove(&tag);
                        prop_assert_eq!(tasks.find(id).map(|task| task.0), Some(tag));
                        prop_assert!(tasks.remove(id));
                        prop_assert!(tasks.find(id).is_none() && !tasks.remove(id));
                    }
                    (_, known) => prop_assert_eq!(tasks.by_tag(InitiatorTaskTag(tag)), known),
                }
                prop_assert_eq!(tasks.len(), model.len());
                for (&tag, &id) in &model {
                    prop_assert_eq!(tasks.by_tag(InitiatorTaskTag(tag)), Some(id));
                    prop_assert_eq!(tasks.find(id).map(|task| task.0), Some(tag));
                }
            }
        }
    }

    #[test]
    fn task_id_never_names_a_later_task_in_the_same_place() {
        let mut tasks = Tasks::new();
        let first = tasks.insert(Plain(7));
        tasks.remove(first);
        let second = tasks.insert(Plain(7));
        assert_eq!(first.index, second.index);
        assert!(tasks.find(first).is_none());
        assert!(tasks.find(second).is_some());
    }
}
