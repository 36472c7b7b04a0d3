//! Event log: bounded, durable, with repeated events coalesced.

use crate::{Store, standing_conditions};
use model::{Event, EventCode, EventSeverity, Raised, Refusal, Subject, Timestamp, event};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of events kept.
pub const EVENTS_KEPT: usize = 2048;

/// Limit on standing events, which are kept beyond their age; the oldest are dropped.
const STANDING_MAX: usize = 512;

/// Window for coalescing equal events: in events, and in seconds since the event occurred last.
const FOLD_EVENTS: usize = 64;
const FOLD_SECONDS: u64 = 3600;

/// Denied logins logged separately per hour. Unknown initiators must not push events of disks out of the log.
const REFUSALS_MAX: usize = 32;

/// The kept events, oldest first.
pub(crate) struct EventLog {
    kept: Mutex<StoredEvents>,
}

#[derive(Default)]
struct StoredEvents {
    events: VecDeque<Event>,
    /// Numbers of the events that are not yet written to disk.
    unwritten: BTreeSet<u64>,
    /// The next event number.
    free: u64,
    standing: StandingEvents,
}

/// Numbers of the standing events, by topic and subject.
#[derive(Default)]
struct StandingEvents(BTreeMap<(EventCode, Subject), u64>);

impl StandingEvents {
    fn of(events: &VecDeque<Event>) -> Self {
        let mut standing = Self::default();
        events.iter().for_each(|event| standing.update(event.number, event.code, &event.subject));
        standing
    }

    /// Updates the standing events with the newest event.
    fn update(&mut self, number: u64, code: EventCode, subject: &Subject) {
        self.0.retain(|(topic, of), _| {
            // Keys are topics of this table, inserted below, so the look-up succeeds.
            let stands = standing_conditions::of(*topic).expect("only what stands is kept");
            let ends = stands.ends.contains(&code) || stands.by_hand && code == event::ACKNOWLEDGED;
            // Endings are applied first: an event may end one topic of its subject and start another.
            of != subject || !ends
        });
        if let Some(stands) = standing_conditions::of(code) {
            self.0.insert((stands.topic, subject.clone()), number);
        }
        // Bounded, because standing events are exempt from the limit of the log.
        while self.0.len() > STANDING_MAX {
            let oldest = self.0.iter().min_by_key(|(_, number)| **number).map(|(key, _)| key.clone());
            oldest.map(|key| self.0.remove(&key));
        }
    }

    fn has(&self, number: u64) -> bool {
        self.0.values().any(|standing| *standing == number)
    }
}

/// Filter of an event query.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventFilter {
    /// Lowest event number, exclusive.
    pub after: u64,
    /// Earliest time, inclusive.
    pub since: Option<Timestamp>,
    /// Lowest severity.
    pub severity: Option<EventSeverity>,
    /// Maximum number of events; the latest are returned.
    pub limit: Option<usize>,
}

impl EventLog {
    /// Loads the log from the store.
    ///
    /// *Errors*: the state folder cannot be read.
    pub(crate) fn open(store: &Store) -> Result<Self, Refusal> {
        let (events, free) = store.events()?;
        let events = VecDeque::from(events);
        // Derived from the events rather than stored, so that the two cannot disagree.
        let standing = StandingEvents::of(&events);
        Ok(Self { kept: Mutex::new(StoredEvents { events, free, standing, ..StoredEvents::default() }) })
    }

    /// Appends events durably. Equal events in close succession are counted as one.
    ///
    /// *Errors*: the log cannot be written; the events are reported all the same, and written with the next
    /// ones.
    pub(crate) fn add(&self, store: &Store, raised: Vec<Raised>) -> Result<(), Refusal> {
        let mut kept = self.kept();
        // Field by field, because `retain` below reads one of them while it changes another.
        let StoredEvents { events, unwritten, free, standing } = &mut *kept;
        for raised in raised {
            let (code, subject) = (raised.code, raised.subject.clone());
            let number = enter(events, free, raised);
            standing.update(number, code, &subject);
            unwritten.insert(number);
        }
        let mut surplus = events.len().saturating_sub(EVENTS_KEPT);
        if surplus > 0 {
            // The oldest go first, except events that are still standing.
            events.retain(|event| {
                let goes = surplus > 0 && !standing.has(event.number);
                surplus -= usize::from(goes);
                !goes
            });
        }
        if unwritten.is_empty() {
            return Ok(());
        }
        // After an error they stay in `unwritten`, and the next call writes them as well.
        // Under the lock, so that two calls cannot write their events in the wrong order.
        store.keep_events(events, unwritten)?;
        unwritten.clear();
        Ok(())
    }

    /// Returns the standing events, which no current status shows, oldest first.
    pub(crate) fn standing(&self) -> Vec<Event> {
        let kept = self.kept();
        kept.events.iter().filter(|event| kept.standing.has(event.number)).cloned().collect()
    }

    /// Returns the events that match, oldest first.
    pub(crate) fn list(&self, wanted: EventFilter) -> Vec<Event> {
        let kept = self.kept();
        let is_wanted = |event: &&Event| {
            event.number > wanted.after
                && wanted.since.is_none_or(|since| event.time >= since)
                && wanted.severity.is_none_or(|severity| event.severity >= severity)
        };
        // From the end, because a limit selects the latest.
        let mut listed: Vec<Event> =
            kept.events.iter().rev().filter(is_wanted).take(wanted.limit.unwrap_or(usize::MAX)).cloned().collect();
        listed.reverse();
        listed
    }

    fn kept(&self) -> MutexGuard<'_, StoredEvents> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true for events that may recur every second with other figures; code and subject identify them.
fn recurs(code: EventCode) -> bool {
    matches!(
        code,
        event::BLOCKS_HEALED
            | event::BLOCKS_LOST
            | event::METADATA_REPAIRED
            | event::DISK_SLOW
            | event::DISK_FAST_AGAIN
    )
}

/// Adds the event, or counts it where an equal one is logged; returns its number.
///
/// An event equals an earlier one only while nothing else has happened to its subject in between: a pool that
/// is degraded, healthy and degraded is three events. A recurring event is one event in [`FOLD_SECONDS`]
/// whatever lies between, and carries the latest sentence.
fn enter(kept: &mut VecDeque<Event>, free: &mut u64, raised: Raised) -> u64 {
    if recurs(raised.code) {
        // Counted from the first occurrence, so that an endless series still yields an event each hour.
        let is_same = |event: &&mut Event| {
            event.code == raised.code
                && event.subject == raised.subject
                && raised.time.apart(event.since) < FOLD_SECONDS
        };
        return match kept.iter_mut().rev().find(is_same) {
            Some(same) => {
                same.count += 1;
                // The clock may have been set back; the time of an event only moves forward.
                same.time = same.time.max(raised.time);
                same.message = raised.sentence;
                same.number
            }
            None => push(kept, free, raised),
        };
    }
    let fresh = |event: &Event| raised.time.apart(event.time) <= FOLD_SECONDS;
    let refused = |event: &Event| event.code == event::LOGIN_REFUSED && fresh(event);
    // Beyond the limit, denied logins of all initiators are counted in the last one of them.
    let crowded = raised.code == event::LOGIN_REFUSED
        && kept.iter().rev().take(FOLD_EVENTS).filter(|event| refused(event)).count() >= REFUSALS_MAX;
    let last = kept
        .iter_mut()
        .rev()
        .take(FOLD_EVENTS)
        .find(|event| if crowded { event.code == event::LOGIN_REFUSED } else { event.subject == raised.subject });
    match last.filter(|event| fresh(event) && (crowded || event.is_like(&raised))) {
        Some(same) => {
            same.count += 1;
            same.time = same.time.max(raised.time);
            same.number
        }
        None => push(kept, free, raised),
    }
}

/// Adds the event under the next number, and returns that.
fn push(kept: &mut VecDeque<Event>, free: &mut u64, raised: Raised) -> u64 {
    // Numbers start at 1, so that `after: 0` selects all events.
    let number = (*free).max(1);
    *free = number + 1;
    kept.push_back(Event::first(number, raised));
    number
}

#[cfg(test)]
mod tests;
