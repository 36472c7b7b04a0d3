//! One block as a register: which values it may hold, now and after a power cut.

use super::instant::Span;
use super::{Ending, Moment};
use crate::pattern::{Content, Value};

/// One block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    entries: Vec<Entry>,
    /// What else its atoms may be until somebody has looked.
    torn: Torn,
    /// Values that a COMPARE AND WRITE has replaced: each can be replaced once.
    consumed: Vec<Value>,
}

/// What a power cut may leave of a block that was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Torn {
    /// One of its values, whole.
    Whole,
    /// Of each atom, one of its values.
    Mixed,
    /// As `Mixed`, or anything at all.
    Garbage,
}

/// A value that the block may hold.
#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// Of a mixture what each atom is of.
    atoms: Vec<Option<Value>>,
    begun: Moment,
    /// None while its write is under way.
    ended: Option<Moment>,
    /// From when on it cannot be read any more: something else took its place.
    outdone: Option<Moment>,
    /// True when a power cut does not bring back what was before it.
    stable: bool,
    /// True when a power cut does not bring it back.
    gone: bool,
}

impl Default for Block {
    fn default() -> Self {
        let zeros = Entry { ended: Some(0), stable: true, ..Entry::new(Value::ZERO, 0) };
        Self { entries: vec![zeros], torn: Torn::Whole, consumed: Vec::new() }
    }
}

impl Entry {
    /// A write that begins.
    fn new(value: Value, begun: Moment) -> Self {
        Self { value, atoms: Vec::new(), begun, ended: None, outdone: None, stable: false, gone: false }
    }

    /// What the atom at `at` is of, where this is what the block holds.
    fn atom(&self, at: usize) -> Option<Value> {
        self.atoms.get(at).copied().unwrap_or(Some(self.value))
    }

    fn is_readable_since(&self, begun: Moment) -> bool {
        self.outdone.is_none_or(|at| at > begun)
    }

    /// True for a value that a snapshot may show which was asked for at `begun`.
    fn may_be_of(&self, begun: Moment, is_cut: bool) -> bool {
        self.is_readable_since(begun) || (is_cut && !self.gone)
    }

    fn is_over_before(&self, moment: Moment) -> bool {
        self.ended.is_some_and(|ended| ended < moment)
    }
}

impl Block {
    pub(super) fn begin(&mut self, value: Value, begun: Moment) {
        self.entries.push(Entry::new(value, begun));
    }

    pub(super) fn end(&mut self, value: Value, begun: Moment, ending: Ending, now: Moment) {
        let Some(at) = self.entries.iter().position(|entry| entry.value == value && entry.begun == begun) else {
            return;
        };
        match ending {
            Ending::Never => {
                self.entries.remove(at);
            }
            Ending::Maybe | Ending::Partly => {
                self.entries[at].ended = Some(now);
                if ending == Ending::Partly {
                    self.torn = self.torn.max(Torn::Mixed);
                }
            }
            Ending::Good => {
                self.entries[at].ended = Some(now);
                self.entries[at].stable = true;
                // Whatever was over before this one began lies below it.
                for other in self.entries.iter_mut().filter(|other| other.is_over_before(begun)) {
                    other.outdone.get_or_insert(now);
                    other.gone = true;
                }
                self.torn = Torn::Whole;
            }
        }
    }

    /// Somebody has read `content` between `begun` and `now`.
    pub(super) fn observe(&mut self, content: &Content, begun: Moment, now: Moment) -> Result<(), String> {
        let quiet = self.entries.iter().all(|entry| entry.is_over_before(begun));
        let value = match content {
            Content::Pure(value) if self.is_readable(*value, begun) => *value,
            Content::Mixed(value, _) if self.is_readable(*value, begun) => *value,
            Content::Pure(value) => return Err(self.complain(&format!("holds {value}"), *value)),
            Content::Mixed(value, atoms) => {
                if !self.may_be_mixed_of(atoms) {
                    return Err(self.complain(&format!("is mixed of {}", list(atoms)), Value::ZERO));
                }
                let ended = Some(begun.saturating_sub(1));
                let entry = Entry { atoms: atoms.clone(), ended, stable: true, ..Entry::new(*value, 0) };
                self.entries.push(entry);
                *value
            }
        };
        if quiet {
            self.settle(value, now);
        }
        Ok(())
    }

    /// Nothing but `value` can be read any more, for nothing that could change it is under way.
    fn settle(&mut self, value: Value, now: Moment) {
        let decided = self.entries.iter().all(|entry| entry.stable || entry.gone);
        for other in self.entries.iter_mut().filter(|other| other.value != value) {
            other.outdone.get_or_insert(now);
            other.gone |= decided;
        }
        if decided {
            self.torn = Torn::Whole;
        }
    }

    pub(super) fn flush(&mut self, begun: Moment) {
        for entry in self.entries.iter_mut().filter(|entry| entry.is_over_before(begun)) {
            entry.stable = true;
        }
    }

    /// A COMPARE AND WRITE that began at `begun` has found `compared`, and replaced it.
    pub(super) fn consume(&mut self, compared: Value, begun: Moment, _now: Moment) -> Result<(), String> {
        if !self.is_readable(compared, begun) {
            return Err(self.complain("cannot hold it", compared));
        }
        if compared.is_zero() {
            return Ok(());
        }
        if self.consumed.contains(&compared) {
            return Err("another had replaced it before".to_owned());
        }
        self.consumed.push(compared);
        Ok(())
    }

    /// True when the block held `value` all the time since `begun`, but for the write of `own`.
    pub(super) fn is_surely(&self, value: Value, own: Value, begun: Moment) -> bool {
        self.torn == Torn::Whole
            && self.entries.iter().all(|entry| {
                entry.value == own || (entry.value == value && entry.ended.is_some()) || !entry.is_readable_since(begun)
            })
    }

    pub(super) fn crash(&mut self, torn: Torn, now: Moment) {
        self.entries.retain(|entry| !entry.gone);
        if self.entries.iter().any(|entry| !entry.stable) {
            self.torn = self.torn.max(torn);
        }
        for entry in &mut self.entries {
            entry.ended.get_or_insert(now);
            entry.outdone = None;
            entry.stable = true;
        }
    }

    /// What a snapshot shows of the block that was asked for at `begun`: any of its values since then; where the power
    /// has cut it off, also what the power may bring back.
    pub(super) fn frozen(&self, begun: Moment, is_cut: bool) -> Self {
        let shown = |entry: &Entry| Entry {
            ended: entry.ended.or((!is_cut).then_some(0)),
            outdone: None,
            stable: !is_cut || entry.stable,
            gone: false,
            ..entry.clone()
        };
        let entries = self.entries.iter().filter(|entry| entry.may_be_of(begun, is_cut)).map(shown).collect();
        Self { entries, torn: self.torn, consumed: Vec::new() }
    }

    /// The values that a snapshot may show, and when the block may have had each.
    pub(super) fn spans(&self, begun: Moment, is_cut: bool) -> Vec<Span> {
        let shown = self.entries.iter().filter(|entry| entry.may_be_of(begun, is_cut));
        shown.map(|entry| Span { value: entry.value, first: entry.begun, last: entry.outdone }).collect()
    }

    /// The block may hold what the other does, too.
    pub(super) fn join(&mut self, other: &Self) {
        self.entries.extend(other.entries.iter().cloned());
        self.torn = self.torn.max(other.torn);
        self.consumed.clear();
    }

    /// The power has cut off what made it.
    pub(super) fn tear(&mut self, torn: Torn) {
        if self.entries.iter().any(|entry| !entry.stable) {
            self.torn = self.torn.max(torn);
        }
        for entry in &mut self.entries {
            (entry.ended, entry.stable) = (entry.ended.or(Some(0)), true);
        }
    }

    pub(super) fn guess(&self) -> Value {
        let current = self.entries.iter().filter(|entry| entry.outdone.is_none() && entry.ended.is_some());
        current.max_by_key(|entry| entry.ended).map_or(Value::ZERO, |entry| entry.value)
    }

    /// Drops what no operation that has begun at `oldest` or later can meet.
    pub(super) fn forget_before(&mut self, oldest: Moment) {
        self.entries.retain(|entry| !entry.gone || entry.outdone.is_none_or(|at| at >= oldest));
    }

    fn is_readable(&self, value: Value, begun: Moment) -> bool {
        self.entries.iter().any(|entry| entry.value == value && entry.is_readable_since(begun))
    }

    fn may_be_mixed_of(&self, atoms: &[Option<Value>]) -> bool {
        let may_be = |(at, atom): (usize, &Option<Value>)| {
            let is_garbage = atom.is_none() && self.torn == Torn::Garbage;
            is_garbage || self.entries.iter().any(|entry| !entry.gone && entry.atom(at) == *atom)
        };
        self.torn != Torn::Whole && atoms.iter().enumerate().all(may_be)
    }

    fn complain(&self, what: &str, value: Value) -> String {
        let mut complaint = format!("{what}, but may hold only");
        for entry in self.entries.iter().filter(|entry| entry.outdone.is_none()) {
            let how = match (entry.ended, entry.stable) {
                (None, _) => "under way",
                (Some(_), true) => "stable",
                (Some(_), false) => "perhaps",
            };
            complaint += &format!(" {} ({how})", entry.value);
        }
        if let Some(entry) = self.entries.iter().find(|entry| entry.value == value && entry.outdone.is_some()) {
            complaint += &format!("; {} was replaced at {}", entry.value, entry.outdone.unwrap_or_default());
        }
        complaint
    }
}

fn list(atoms: &[Option<Value>]) -> String {
    let names: Vec<String> =
        atoms.iter().map(|atom| atom.map_or_else(|| "garbage".to_owned(), |value| value.to_string())).collect();
    names.join(", ")
}
