//! Block as a register: its possible values now and after a power failure.

use super::instant::Span;
use super::{LogicalTime, WriteEffect};
use crate::pattern::{Content, Value};

/// Possible values of one block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    entries: Vec<Entry>,
    /// Possible state of its atoms until a read decides it.
    torn: Torn,
    /// Values that a COMPARE AND WRITE replaced; each value can be replaced only once.
    consumed: Vec<Value>,
}

/// State of a block that was being written when the power failed, in increasing order of disorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Torn {
    /// One of its values, complete.
    Whole,
    /// Each atom holds one of the values.
    Mixed,
    /// As `Mixed`, or arbitrary bytes.
    Garbage,
}

/// Value that the block may hold.
#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// Values of the single atoms of a mixture; empty otherwise.
    atoms: Vec<Option<Value>>,
    begun: LogicalTime,
    /// End of the write; `None` while it is outstanding.
    ended: Option<LogicalTime>,
    /// Time from which the value cannot be read, because another one replaced it.
    outdone: Option<LogicalTime>,
    /// True when a power failure does not restore an earlier value.
    stable: bool,
    /// True when a power failure does not restore this value.
    gone: bool,
}

impl Default for Block {
    fn default() -> Self {
        // A new volume holds zeros in stable storage, so no power failure brings other content.
        let zeros = Entry { ended: Some(0), stable: true, ..Entry::new(Value::ZERO, 0) };
        Self { entries: vec![zeros], torn: Torn::Whole, consumed: Vec::new() }
    }
}

impl Entry {
    /// Creates the entry of a write that begins.
    fn new(value: Value, begun: LogicalTime) -> Self {
        Self { value, atoms: Vec::new(), begun, ended: None, outdone: None, stable: false, gone: false }
    }

    /// Returns the value of the atom at `at`, if the block holds this entry.
    fn atom(&self, at: usize) -> Option<Value> {
        self.atoms.get(at).copied().unwrap_or(Some(self.value))
    }

    fn is_readable_since(&self, begun: LogicalTime) -> bool {
        self.outdone.is_none_or(|at| at > begun)
    }

    /// True for a value that a snapshot requested at `begun` may contain.
    fn may_be_of(&self, begun: LogicalTime, is_cut: bool) -> bool {
        self.is_readable_since(begun) || (is_cut && !self.gone)
    }

    fn is_over_before(&self, moment: LogicalTime) -> bool {
        self.ended.is_some_and(|ended| ended < moment)
    }
}

impl Block {
    pub(super) fn begin(&mut self, value: Value, begun: LogicalTime) {
        self.entries.push(Entry::new(value, begun));
    }

    pub(super) fn end(&mut self, value: Value, begun: LogicalTime, ending: WriteEffect, now: LogicalTime) {
        let Some(at) = self.entries.iter().position(|entry| entry.value == value && entry.begun == begun) else {
            return;
        };
        match ending {
            WriteEffect::Never => {
                // A refused write never took effect, so its value can never be read.
                self.entries.remove(at);
            }
            WriteEffect::Maybe | WriteEffect::Partly => {
                // Not stable, and nothing is outdone: the write took effect or not, until a read decides it.
                self.entries[at].ended = Some(now);
                if ending == WriteEffect::Partly {
                    // After an error each atom may be the old or the new one.
                    self.torn = self.torn.max(Torn::Mixed);
                }
            }
            WriteEffect::Good => {
                self.entries[at].ended = Some(now);
                self.entries[at].stable = true;
                // A write that had ended before this one began is older, so it can no longer be read or restored.
                for other in self.entries.iter_mut().filter(|other| other.is_over_before(begun)) {
                    // From the answer on: until then a concurrent read may return either value.
                    other.outdone.get_or_insert(now);
                    other.gone = true;
                }
                // GOOD covers every atom of the block, so no mixture is left.
                self.torn = Torn::Whole;
            }
        }
    }

    /// Judges a read of `content` that ran from `begun` to `now`.
    // Without a concurrent write, the read decides which of the possible values the block holds.
    pub(super) fn observe(&mut self, content: &Content, begun: LogicalTime, now: LogicalTime) -> Result<(), String> {
        // Only a read that overlaps no write decides anything.
        let quiet = self.entries.iter().all(|entry| entry.is_over_before(begun));
        let value = match content {
            Content::Pure(value) if self.is_readable(*value, begun) => *value,
            // An earlier read has returned the same mixture, so it is a value like any other.
            Content::Mixed(value, _) if self.is_readable(*value, begun) => *value,
            Content::Pure(value) => return Err(self.complain(&format!("holds {value}"), *value)),
            Content::Mixed(value, atoms) => {
                if !self.may_be_mixed_of(atoms) {
                    return Err(self.complain(&format!("is mixed of {}", list(atoms)), Value::ZERO));
                }
                // The mixture becomes a value of its own: later reads must return exactly these bytes.
                // Ended before this read, so that any later write can make it obsolete.
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

    /// Fixes the value of the block, because no write that could change it is outstanding.
    fn settle(&mut self, value: Value, now: LogicalTime) {
        // Before every entry is stable, a crash may still restore another value, so only reads are decided.
        let decided = self.entries.iter().all(|entry| entry.stable || entry.gone);
        for other in self.entries.iter_mut().filter(|other| other.value != value) {
            other.outdone.get_or_insert(now);
            other.gone |= decided;
        }
        if decided {
            self.torn = Torn::Whole;
        }
    }

    pub(super) fn flush(&mut self, begun: LogicalTime) {
        // Values of writes that were under way when the flush began are not covered by it.
        for entry in self.entries.iter_mut().filter(|entry| entry.is_over_before(begun)) {
            entry.stable = true;
        }
    }

    /// Judges a COMPARE AND WRITE that began at `begun` and found and replaced `compared`.
    pub(super) fn consume(&mut self, compared: Value, begun: LogicalTime, _now: LogicalTime) -> Result<(), String> {
        if !self.is_readable(compared, begun) {
            return Err(self.complain("cannot hold it", compared));
        }
        // Zeros are not unique to one write, so they may be replaced any number of times.
        if compared.is_zero() {
            return Ok(());
        }
        // A value is unique to one write: replacing it twice means that an update was lost.
        if self.consumed.contains(&compared) {
            return Err("another had replaced it before".to_owned());
        }
        self.consumed.push(compared);
        Ok(())
    }

    /// True when the block certainly held `value` since `begun`, apart from the write of `own` itself.
    pub(super) fn is_surely(&self, value: Value, own: Value, begun: LogicalTime) -> bool {
        // A write that is under way and readable makes the content uncertain.
        self.torn == Torn::Whole
            && self.entries.iter().all(|entry| {
                entry.value == own || (entry.value == value && entry.ended.is_some()) || !entry.is_readable_since(begun)
            })
    }

    pub(super) fn crash(&mut self, torn: Torn, now: LogicalTime) {
        self.entries.retain(|entry| !entry.gone);
        if self.entries.iter().any(|entry| !entry.stable) {
            self.torn = self.torn.max(torn);
        }
        for entry in &mut self.entries {
            entry.ended.get_or_insert(now);
            // Every value that is left may be on the disk, until a read decides; a later crash restores no more than
            // these.
            entry.outdone = None;
            entry.stable = true;
        }
    }

    /// Returns the block in a snapshot requested at `begun`: any of its values since then; after a power failure also
    /// the values that the failure may restore.
    pub(super) fn frozen(&self, begun: LogicalTime, is_cut: bool) -> Self {
        // Nobody writes to a snapshot, so a write that was under way counts as ended, and a read decides it.
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

    /// Returns the values that a snapshot may contain, with the time span of each.
    pub(super) fn spans(&self, begun: LogicalTime, is_cut: bool) -> Vec<Span> {
        let shown = self.entries.iter().filter(|entry| entry.may_be_of(begun, is_cut));
        shown.map(|entry| Span { value: entry.value, first: entry.begun, last: entry.outdone }).collect()
    }

    /// Adds the possible values of the other block.
    pub(super) fn join(&mut self, other: &Self) {
        self.entries.extend(other.entries.iter().cloned());
        self.torn = self.torn.max(other.torn);
        // After a roll-back a value may be replaced a second time.
        self.consumed.clear();
    }

    /// Records that a power failure interrupted the creation of this block.
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

    /// Removes entries that no operation which began at `oldest` or later can observe.
    pub(super) fn forget_before(&mut self, oldest: LogicalTime) {
        self.entries.retain(|entry| !entry.gone || entry.outdone.is_none_or(|at| at >= oldest));
    }

    fn is_readable(&self, value: Value, begun: LogicalTime) -> bool {
        self.entries.iter().any(|entry| entry.value == value && entry.is_readable_since(begun))
    }

    fn may_be_mixed_of(&self, atoms: &[Option<Value>]) -> bool {
        let may_be = |(at, atom): (usize, &Option<Value>)| {
            // Only a torn atom holds bytes that no write produced.
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
