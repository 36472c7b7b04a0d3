//! State of a session that is independent of its connections: command ordering and live tasks.

pub(crate) mod slab;
pub(crate) mod tasks;
pub(crate) mod window;

use crate::Violation;
use crate::pdu::{CmdSn, InitiatorTaskTag};
use tasks::{Tagged, Tasks};
use window::{Arrival, CommandWindow};

pub use slab::TaskId;

/// Command window and tasks of a session. `H` is a request held for its turn, `T` a task.
#[derive(Debug)]
pub(crate) struct Session<H, T> {
    pub(crate) window: CommandWindow<H>,
    tasks: Tasks<T>,
    ordered_max: u32,
    immediate_max: u32,
    /// Number of tasks that arrived in CmdSN order; MaxCmdSN follows from the remaining places.
    ordered: u32,
    immediate: u32,
}

impl<H, T: Tagged> Session<H, T> {
    /// Returns the live tasks.
    pub(crate) fn tasks(&self) -> &Tasks<T> {
        &self.tasks
    }

    /// Creates a session that expects CmdSN `first` and has the given places for ordered and immediate tasks.
    pub(crate) fn new(first: CmdSn, ordered_max: u32, immediate_max: u32) -> Self {
        let window = CommandWindow::new(first, ordered_max);
        Self { window, tasks: Tasks::new(), ordered_max, immediate_max, ordered: 0, immediate: 0 }
    }

    /// Checks that a task may be created with this tag, and that an immediate one has a place.
    ///
    /// *Errors*: the violated rule.
    #[inline]
    pub(crate) fn admit(&self, tag: InitiatorTaskTag, immediate: bool) -> Result<(), Violation> {
        if tag.is_reserved() {
            return Err(Violation::TaskTagReserved);
        }
        if self.tasks.by_tag(tag).is_some() {
            return Err(Violation::TaskTagInUse);
        }
        // Ordered tasks need no such check, because MaxCmdSN admits no more than there are places.
        if immediate && self.immediate >= self.immediate_max {
            return Err(Violation::TooManyImmediate);
        }
        Ok(())
    }

    /// True when the request with `cmd_sn` is the next in order, and no early request is held.
    #[inline]
    pub(crate) fn is_next(&self, cmd_sn: CmdSn) -> bool {
        self.window.judge(cmd_sn) == Arrival::Next && !self.window.holds_any()
    }

    /// Advances past a request that was answered without becoming a task.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.window.advance();
        self.open();
    }

    /// Adds a task.
    ///
    /// *Panics*: when [`Session::admit`] was not called, or an ordered task is outside the window.
    pub(crate) fn insert(&mut self, task: T) -> TaskId {
        let count = if task.is_immediate() { &mut self.immediate } else { &mut self.ordered };
        *count += 1;
        assert!(self.ordered <= self.ordered_max, "the window opens no more places than there are");
        assert!(self.immediate <= self.immediate_max, "immediate requests beyond the bound were refused before");
        self.tasks.insert(task)
    }

    /// Removes a task and opens its place in the window. True when it existed.
    pub(crate) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.tasks.find(id) else { return false };
        let count = if task.is_immediate() { &mut self.immediate } else { &mut self.ordered };
        assert!(*count > 0, "every task is counted until it ends");
        *count -= 1;
        self.tasks.remove(id);
        // Behind the count above, so that MaxCmdSN grants the place that has become free.
        self.open();
        true
    }

    /// Frees the tag of a task, which remains.
    pub(crate) fn untag(&mut self, id: TaskId) {
        self.tasks.untag(id);
    }

    /// Raises MaxCmdSN to match the free places.
    #[inline]
    pub(crate) fn open(&mut self) {
        // No underflow: `insert` asserts that `ordered` never exceeds `ordered_max`.
        self.window.open(self.ordered_max - self.ordered);
    }

    /// Returns the task of `id`, if it is live.
    pub(crate) fn find(&self, id: TaskId) -> Option<&T> {
        self.tasks.find(id)
    }

    /// Returns the task of `id`, if it is live.
    pub(crate) fn find_mut(&mut self, id: TaskId) -> Option<&mut T> {
        self.tasks.find_mut(id)
    }

    /// Returns the task with `tag`.
    pub(crate) fn by_tag(&self, tag: InitiatorTaskTag) -> Option<TaskId> {
        self.tasks.by_tag(tag)
    }

    /// Returns the tasks that satisfy `test`.
    pub(crate) fn matching(&self, mut test: impl FnMut(&T) -> bool) -> Vec<TaskId> {
        // Collected, because callers change or remove the tasks that they get.
        self.tasks.iter().filter(|(_, task)| test(task)).map(|(id, _)| id).collect()
    }

    /// Number of live tasks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}
