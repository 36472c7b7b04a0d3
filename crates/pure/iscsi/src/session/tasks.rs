//! The tasks of a target's session: by place, and by the tag that the initiator gave them.

use super::slab::{Slab, TaskId};
use crate::pdu::InitiatorTaskTag;

/// Tasks that are found by tag.
#[derive(Debug)]
pub(crate) struct Tasks<T> {
    slab: Slab<T>,
    tags: TagTable,
}

/// What the table needs to know of a task.
pub(crate) trait Tagged {
    /// The tag that the initiator gave it.
    fn tag(&self) -> InitiatorTaskTag;
    /// True when it was delivered outside the order of CmdSN.
    fn is_immediate(&self) -> bool;
    /// False once the tag is the initiator's again though the task lives: see [`Tasks::untag`].
    fn is_tagged(&self) -> bool;
}

impl<T: Tagged> Tasks<T> {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::new(), tags: TagTable::default() }
    }

    /// How many tasks there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Gives `task` a place.
    ///
    /// *Panics*: when its tag is in use; callers have looked.
    #[inline]
    pub(crate) fn insert(&mut self, task: T) -> TaskId {
        let tag = task.tag();
        let id = self.slab.insert(task);
        self.tags.insert(tag.0, id.index);
        id
    }

    /// The task that `id` names, while it lives.
    pub(crate) fn find(&self, id: TaskId) -> Option<&T> {
        self.slab.find(id)
    }

    /// The task that `id` names, while it lives.
    pub(crate) fn find_mut(&mut self, id: TaskId) -> Option<&mut T> {
        self.slab.find_mut(id)
    }

    /// The task with `tag`.
    #[inline]
    pub(crate) fn by_tag(&self, tag: InitiatorTaskTag) -> Option<TaskId> {
        self.slab.id_at(self.tags.find(tag.0)?)
    }

    /// Forgets the task; its place and tag are free, its id names nothing any more. True when it lived.
    pub(crate) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.slab.find(id) else { return false };
        if task.is_tagged() {
            self.tags.remove(task.tag().0);
        }
        self.slab.clear(id)
    }

    /// The tag may be used for another task while this one still lives; [`Tagged::is_tagged`] is false from now on.
    pub(crate) fn untag(&mut self, id: TaskId) {
        if let Some(task) = self.slab.find(id) {
            self.tags.remove(task.tag().0);
        }
    }

    /// All tasks, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &T)> {
        self.slab.iter()
    }
}

/// Tags to places, by open addressing: at most half full, so that a look-up touches a line or two.
#[derive(Debug, Default)]
struct TagTable {
    entries: Vec<Option<(u32, u32)>>,
    used: usize,
}

impl TagTable {
    fn home(&self, tag: u32) -> usize {
        // Multiplication spreads counted tags; who picks colliding ones only slows a look-up to the window's length.
        (tag.wrapping_mul(0x9e37_79b1) >> 8) as usize & (self.entries.len() - 1)
    }

    fn position(&self, tag: u32) -> Option<usize> {
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
        // Whoever was pushed behind the hole moves up, so that look-ups need no tombstones.
        while let Some((tag, index)) = self.entries[at] {
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
                // Tags that share their low bits collide in the table.
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
