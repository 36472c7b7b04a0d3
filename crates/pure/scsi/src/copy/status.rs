//! State of running and completed third-party copies, for the status commands of the nexus that issued them.

use super::{CopyEnvironment, CopyPrincipal, MappedUnit};
use crate::command::{NexusId, TaskTag};
use crate::sense::{AdditionalSense, Sense};
use crate::token::TOKEN_BYTES;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Maximum number of copies that are remembered for one nexus.
const STATUSES_MAX: usize = 64;

/// Copies of the copy manager of one unit.
#[derive(Default)]
pub(crate) struct Copies {
    environment: Option<Rc<dyn CopyEnvironment>>,
    statuses: RefCell<BTreeMap<(NexusId, u32), CopyStatus>>,
    /// Number of copies started, which orders the remembered ones by age.
    begun: Cell<u64>,
}

/// LIST ID USAGE: whether the status of a copy can be queried afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListId {
    /// Queried by this list identifier.
    Retained(u32),
    /// Not queried.
    None,
}

/// Status of a copy.
#[derive(Clone, Debug)]
pub(super) struct CopyStatus {
    pub state: State,
    /// Serial number of the copy, by age.
    nth: u64,
    /// Service action of THIRD-PARTY COPY OUT that started it, and its task.
    pub action: u8,
    pub tag: TaskTag,
    pub segments: u16,
    pub bytes: u64,
    /// Sense data of a failure.
    pub sense: Option<Sense>,
    /// ROD token that it created.
    pub token: Option<Box<[u8; TOKEN_BYTES]>>,
}

/// COPY OPERATION STATUS, named COPY COMMAND STATUS in LID1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Done,
    /// Completed with less data than requested (WRITE USING TOKEN beyond the end of the token).
    DoneInPart,
    Failed,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("known", &self.statuses).finish_non_exhaustive()
    }
}

impl Copies {
    pub(crate) fn new(neighbours: Rc<dyn CopyEnvironment>) -> Self {
        Self { environment: Some(neighbours), ..Self::default() }
    }

    pub(super) fn environment(&self) -> Option<&Rc<dyn CopyEnvironment>> {
        self.environment.as_ref()
    }

    pub(super) fn mapped_units(&self, asker: &CopyPrincipal) -> Vec<MappedUnit> {
        self.environment.as_ref().map_or_else(Vec::new, |neighbours| neighbours.mapped_units(asker))
    }

    /// Returns the status of the copy with list identifier `id` of `nexus`.
    pub(super) fn status_of(&self, nexus: NexusId, id: u32) -> Option<CopyStatus> {
        self.statuses.borrow().get(&(nexus, id)).cloned()
    }

    /// Drops the copies of `nexus`, which can no longer query them.
    pub(crate) fn forget(&self, nexus: NexusId) {
        self.statuses.borrow_mut().retain(|&(owner, _), _| owner != nexus);
    }

    #[cfg(test)]
    pub(crate) fn status_count(&self) -> usize {
        self.statuses.borrow().len()
    }

    /// Registers a running copy. It counts as failed if it is dropped before its completion.
    ///
    /// *Errors*: 00/16 when a copy with the same identifier is running, or when too many copies of the nexus are
    /// running.
    pub(super) fn begin(&self, nexus: NexusId, id: ListId, action: u8, tag: TaskTag) -> Result<Running<'_>, Sense> {
        // With LIST ID USAGE 11b no status is kept.
        if let ListId::Retained(id) = id {
            self.make_room(nexus, id)?;
            let nth = self.begun.get();
            self.begun.set(nth + 1);
            let state = State::Running;
            let begun = CopyStatus { state, nth, action, tag, segments: 0, bytes: 0, sense: None, token: None };
            // Replaces a completed copy with the same list identifier.
            let before = self.statuses.borrow_mut().insert((nexus, id), begun);
            let has_ended = before.is_none_or(|before| before.state != State::Running);
            assert!(has_ended, "a copy under way keeps its name");
        }
        Ok(Running { copies: self, nexus, id, ends_as: State::Failed })
    }

    fn make_room(&self, nexus: NexusId, id: u32) -> Result<(), Sense> {
        let mut known = self.statuses.borrow_mut();
        let in_progress = Sense::illegal(AdditionalSense::OPERATION_IN_PROGRESS);
        // A list identifier must be unique among the running copies of a nexus (SPC-4).
        if known.get(&(nexus, id)).is_some_and(|known| known.state == State::Running) {
            return Err(in_progress);
        }
        // The nexus is the first part of the key, so its copies are adjacent.
        let own = || (nexus, 0)..=(nexus, u32::MAX);
        if known.range(own()).count() >= STATUSES_MAX {
            // Evict the oldest completed copy: its initiator has had its chance to query it. Running copies are never
            // evicted.
            let ended = known.range(own()).filter(|(_, known)| known.state != State::Running);
            let oldest = ended.min_by_key(|(_, known)| known.nth).map(|(&key, _)| key);
            known.remove(&oldest.ok_or(in_progress)?);
        }
        assert!(known.range(own()).count() < STATUSES_MAX, "known copies of a nexus are bounded");
        Ok(())
    }
}

/// Running copy; dropping it records its final state.
pub(super) struct Running<'a> {
    copies: &'a Copies,
    nexus: NexusId,
    id: ListId,
    pub ends_as: State,
}

impl Running<'_> {
    /// Updates the status of the copy.
    pub(super) fn note(&self, change: impl FnOnce(&mut CopyStatus)) {
        // No entry is left when the nexus was detached while the copy was running.
        if let ListId::Retained(id) = self.id
            && let Some(known) = self.copies.statuses.borrow_mut().get_mut(&(self.nexus, id))
        {
            change(known);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Runs also when the task is dropped in the middle: `ends_as` stays Failed until the work has succeeded.
        self.note(|known| known.state = self.ends_as);
    }
}
