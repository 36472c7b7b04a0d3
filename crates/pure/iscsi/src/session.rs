//! What belongs to a session and not to a connection: the order of its requests and the tasks that live.

pub(crate) mod slab;
pub(crate) mod tasks;
pub(crate) mod window;

use crate::Violation;
use crate::pdu::{CmdSn, InitiatorTaskTag};
use tasks::{Tagged, Tasks};
use window::{Arrival, CommandWindow};

pub use slab::TaskId;

/// The command window and the tasks behind it. `H` is what waits for its turn, `T` a task.
#[derive(Debug)]
pub(crate) struct Session<H, T> {
    pub(crate) window: CommandWindow<H>,
    tasks: Tasks<T>,
    ordered_max: u32,
    immediate_max: u32,
    /// Tasks that came in the order of CmdSN; MaxCmdSN is counted from the places that they leave.
    ordered: u32,
    immediate: u32,
}

impl<H, T: Tagged> Session<H, T> {
    /// The tasks that live.
    pub(crate) fn tasks(&self) -> &Tasks<T> {
        &self.tasks
    }

    /// A session that expects `first` and has places for so many tasks of either kind.
    pub(crate) fn new(first: CmdSn, ordered_max: u32, immediate_max: u32) -> Self {
        let window = CommandWindow::new(first, ordered_max);
        Self { window, tasks: Tasks::new(), ordered_max, immediate_max, ordered: 0, immediate: 0 }
    }

    /// The tag can be that of a new task, and there is a place for it.
    #[inline]
    pub(crate) fn admit(&self, tag: InitiatorTaskTag, immediate: bool) -> Result<(), Violation> {
        if tag.is_reserved() {
            return Err(Violation::TaskTagReserved);
        }
        if self.tasks.by_tag(tag).is_some() {
            return Err(Violation::TaskTagInUse);
        }
        if immediate && self.immediate >= self.immediate_max {
            return Err(Violation::TooManyImmediate);
        }
        Ok(())
    }

    /// True when the request with `cmd_sn` is the one whose turn it is, and none that came early waits for it.
    #[inline]
    pub(crate) fn is_next(&self, cmd_sn: CmdSn) -> bool {
        self.window.judge(cmd_sn) == Arrival::Next && !self.window.holds_any()
    }

    /// The request whose turn it is was dealt with, and never had a place.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.window.advance();
        self.open();
    }

    /// The task lives.
    ///
    /// *Panics*: when [`Session::admit`] was not asked, or a task in order is outside the window.
    pub(crate) fn insert(&mut self, task: T) -> TaskId {
        let count = if task.is_immediate() { &mut self.immediate } else { &mut self.ordered };
        *count += 1;
        assert!(self.ordered <= self.ordered_max, "the window opens no more places than there are");
        assert!(self.immediate <= self.immediate_max, "immediate requests beyond the bound were refused before");
        self.tasks.insert(task)
    }

    /// The task is forgotten; its place is open again. True when it lived.
    pub(crate) fn remove(&mut self, id: TaskId) -> bool {
        let Some(task) = self.tasks.find(id) else { return false };
        let count = if task.is_immediate() { &mut self.immediate } else { &mut self.ordered };
        assert!(*count > 0, "every task is counted until it ends");
        *count -= 1;
        self.tasks.remove(id);
        self.open();
        true
    }

    /// The tag of the task is the initiator's again, though the task lives.
    pub(crate) fn untag(&mut self, id: TaskId) {
        self.tasks.untag(id);
    }

    /// MaxCmdSN follows the free places.
    #[inline]
    pub(crate) fn open(&mut self) {
        self.window.open(self.ordered_max - self.ordered);
    }

    /// The task that `id` names, while it lives.
    pub(crate) fn find(&self, id: TaskId) -> Option<&T> {
        self.tasks.find(id)
    }

    /// The task that `id` names, while it lives.
    pub(crate) fn find_mut(&mut self, id: TaskId) -> Option<&mut T> {
        self.tasks.find_mut(id)
    }

    /// The task with `tag`.
    pub(crate) fn by_tag(&self, tag: InitiatorTaskTag) -> Option<TaskId> {
        self.tasks.by_tag(tag)
    }

    /// The tasks for which `test` is true.
    pub(crate) fn matching(&self, mut test: impl FnMut(&T) -> bool) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, task)| test(task)).map(|(id, _)| id).collect()
    }

    /// How many tasks live.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}
