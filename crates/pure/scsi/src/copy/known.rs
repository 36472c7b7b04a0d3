//! What a copy manager knows of copies under way and ended, for who asked for them.

use super::{CopyAsker, Neighbour, Neighbours};
use crate::command::{NexusId, TaskTag};
use crate::sense::{AdditionalSense, Sense};
use crate::token::TOKEN_BYTES;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Copies of one nexus of which it is known how they ended.
const KNOWN_MAX: usize = 64;

/// The copies of one unit's copy manager.
#[derive(Default)]
pub(crate) struct Copies {
    neighbours: Option<Rc<dyn Neighbours>>,
    known: RefCell<BTreeMap<(NexusId, u32), Known>>,
    /// How many have begun.
    begun: Cell<u64>,
}

/// Whether and how a copy is known afterwards (LIST ID USAGE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListId {
    /// By this number until it is asked for.
    Kept(u32),
    /// By nothing.
    None,
}

/// How far a copy is.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub state: State,
    /// Which one it is, of all.
    nth: u64,
    /// The service action of THIRD-PARTY COPY OUT that began it, and its task.
    pub action: u8,
    pub tag: TaskTag,
    pub segments: u16,
    pub bytes: u64,
    /// Why it failed.
    pub sense: Option<Sense>,
    /// The ROD token that it made.
    pub token: Option<Box<[u8; TOKEN_BYTES]>>,
}

/// COPY OPERATION STATUS, which the short form calls COPY COMMAND STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Done,
    /// Less was there than was asked for.
    DoneInPart,
    Failed,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Copies {
    pub(crate) fn between(neighbours: Rc<dyn Neighbours>) -> Self {
        Self { neighbours: Some(neighbours), ..Self::default() }
    }

    pub(super) fn neighbours(&self) -> Option<&Rc<dyn Neighbours>> {
        self.neighbours.as_ref()
    }

    pub(super) fn seen_by(&self, asker: &CopyAsker) -> Vec<Neighbour> {
        self.neighbours.as_ref().map_or_else(Vec::new, |neighbours| neighbours.of(asker))
    }

    /// What is known of the copy that `nexus` called `id`.
    pub(super) fn known(&self, nexus: NexusId, id: u32) -> Option<Known> {
        self.known.borrow().get(&(nexus, id)).cloned()
    }

    /// `nexus` is gone, and nobody asks for its copies any more.
    pub(crate) fn forget(&self, nexus: NexusId) {
        self.known.borrow_mut().retain(|&(owner, _), _| owner != nexus);
    }

    #[cfg(test)]
    pub(crate) fn known_count(&self) -> usize {
        self.known.borrow().len()
    }

    /// A copy begins, which has failed when it is dropped before its end.
    ///
    /// *Errors*: 00/16 when one that is called so has not ended, or too many have not.
    pub(super) fn begin(&self, nexus: NexusId, id: ListId, action: u8, tag: TaskTag) -> Result<Running<'_>, Sense> {
        if let ListId::Kept(id) = id {
            self.make_room(nexus, id)?;
            let nth = self.begun.get();
            self.begun.set(nth + 1);
            let state = State::Running;
            let begun = Known { state, nth, action, tag, segments: 0, bytes: 0, sense: None, token: None };
            let before = self.known.borrow_mut().insert((nexus, id), begun);
            let has_ended = before.is_none_or(|before| before.state != State::Running);
            assert!(has_ended, "a copy under way keeps its name");
        }
        Ok(Running { copies: self, nexus, id, ends_as: State::Failed })
    }

    fn make_room(&self, nexus: NexusId, id: u32) -> Result<(), Sense> {
        let mut known = self.known.borrow_mut();
        let in_progress = Sense::illegal(AdditionalSense::OPERATION_IN_PROGRESS);
        if known.get(&(nexus, id)).is_some_and(|known| known.state == State::Running) {
            return Err(in_progress);
        }
        let own = || (nexus, 0)..=(nexus, u32::MAX);
        if known.range(own()).count() >= KNOWN_MAX {
            // Whoever asks, asks soon.
            let ended = known.range(own()).filter(|(_, known)| known.state != State::Running);
            let oldest = ended.min_by_key(|(_, known)| known.nth).map(|(&key, _)| key);
            known.remove(&oldest.ok_or(in_progress)?);
        }
        assert!(known.range(own()).count() < KNOWN_MAX, "known copies of a nexus are bounded");
        Ok(())
    }
}

/// A copy under way.
pub(super) struct Running<'a> {
    copies: &'a Copies,
    nexus: NexusId,
    id: ListId,
    pub ends_as: State,
}

impl Running<'_> {
    /// Remembers something of the copy.
    pub(super) fn note(&self, change: impl FnOnce(&mut Known)) {
        if let ListId::Kept(id) = self.id
            && let Some(known) = self.copies.known.borrow_mut().get_mut(&(self.nexus, id))
        {
            change(known);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.note(|known| known.state = self.ends_as);
    }
}
