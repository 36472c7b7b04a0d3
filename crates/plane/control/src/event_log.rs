//! The log of what has happened: bounded, durable, without the same line over and over.

use crate::{Store, standing};
use model::{Event, EventCode, EventSeverity, Raised, Refusal, Subject, Timestamp, event};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many events are kept.
pub const EVENTS_KEPT: usize = 2048;

/// The most events that are kept because what they tell of is still so; of more, the oldest go.
const STANDING_MAX: usize = 512;

/// How far back an equal event is looked for, in events and in seconds from when it happened last.
const FOLD_EVENTS: usize = 64;
const FOLD_SECONDS: u64 = 3600;

/// Refused logins that are told one by one in an hour. What strangers do must not push out what our disks do.
const REFUSALS_MAX: usize = 32;

/// The events that are kept, oldest first.
pub(crate) struct EventLog {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Event>,
    /// The numbers of those that could not be written yet.
    unwritten: BTreeSet<u64>,
    /// The lowest number that was never given.
    free: u64,
    standing: Standing,
}

/// The numbers of the events that tell of what is still so, by topic and subject.
#[derive(Default)]
struct Standing(BTreeMap<(EventCode, Subject), u64>);

impl Standing {
    fn of(events: &VecDeque<Event>) -> Self {
        let mut standing = Self::default();
        events.iter().for_each(|event| standing.hear(event.number, event.code, &event.subject));
        standing
    }

    /// This has happened, after all that was heard before.
    fn hear(&mut self, number: u64, code: EventCode, subject: &Subject) {
        self.0.retain(|(topic, of), _| {
            let stands = standing::of(*topic).expect("only what stands is kept");
            let ends = stands.ends.contains(&code) || stands.by_hand && code == event::ACKNOWLEDGED;
            of != subject || !ends
        });
        if let Some(stands) = standing::of(code) {
            self.0.insert((stands.topic, subject.clone()), number);
        }
        while self.0.len() > STANDING_MAX {
            let oldest = self.0.iter().min_by_key(|(_, number)| **number).map(|(key, _)| key.clone());
            oldest.map(|key| self.0.remove(&key));
        }
    }

    fn has(&self, number: u64) -> bool {
        self.0.values().any(|standing| *standing == number)
    }
}

/// Which events are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Only those with a higher number.
    pub after: u64,
    /// Only those that happened then or later.
    pub since: Option<Timestamp>,
    /// Only those that are as bad or worse.
    pub severity: Option<EventSeverity>,
    /// Only so many, the latest.
    pub limit: Option<usize>,
}

impl EventLog {
    /// The log as it was kept.
    ///
    /// *Errors*: the file cannot be read.
    pub(crate) fn open(store: &Store) -> Result<Self, Refusal> {
        let (events, free) = store.events()?;
        let events = VecDeque::from(events);
        let standing = Standing::of(&events);
        Ok(Self { kept: Mutex::new(Kept { events, free, standing, ..Kept::default() }) })
    }

    /// These have happened, durably. Equal ones that follow each other closely are counted as one.
    ///
    /// *Errors*: the file cannot be written; they are told all the same, and written with the next ones.
    pub(crate) fn add(&self, store: &Store, raised: Vec<Raised>) -> Result<(), Refusal> {
        let mut kept = self.kept();
        let Kept { events, unwritten, free, standing } = &mut *kept;
        for raised in raised {
            let (code, subject) = (raised.code, raised.subject.clone());
            let number = enter(events, free, raised);
            standing.hear(number, code, &subject);
            unwritten.insert(number);
        }
        let mut surplus = events.len().saturating_sub(EVENTS_KEPT);
        if surplus > 0 {
            events.retain(|event| {
                let goes = surplus > 0 && !standing.has(event.number);
                surplus -= usize::from(goes);
                !goes
            });
        }
        if unwritten.is_empty() {
            return Ok(());
        }
        store.keep_events(events, unwritten)?;
        unwritten.clear();
        Ok(())
    }

    /// The events that tell of what is still so and cannot be looked at, oldest first.
    pub(crate) fn standing(&self) -> Vec<Event> {
        let kept = self.kept();
        kept.events.iter().filter(|event| kept.standing.has(event.number)).cloned().collect()
    }

    /// The events that are asked for, oldest first.
    pub(crate) fn list(&self, wanted: Wanted) -> Vec<Event> {
        let kept = self.kept();
        let is_wanted = |event: &&Event| {
            event.number > wanted.after
                && wanted.since.is_none_or(|since| event.time >= since)
                && wanted.severity.is_none_or(|severity| event.severity >= severity)
        };
        let mut listed: Vec<Event> =
            kept.events.iter().rev().filter(is_wanted).take(wanted.limit.unwrap_or(usize::MAX)).cloned().collect();
        listed.reverse();
        listed
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for events of which there may be one a second, and whose figures differ: what counts is the cause and the subject.
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

/// Enters the event, or counts it where an equal one stands; the number that it is under.
///
/// An event is the same again only while nothing else has happened to its subject since: a pool that is degraded,
/// whole and degraded is three events. One that recurs is one event in [`FOLD_SECONDS`] whatever lies between, and says what was
/// raised last.
fn enter(kept: &mut VecDeque<Event>, free: &mut u64, raised: Raised) -> u64 {
    if recurs(raised.code) {
        let is_same = |event: &&mut Event| {
            event.code == raised.code
                && event.subject == raised.subject
                && raised.time.apart(event.since) < FOLD_SECONDS
        };
        return match kept.iter_mut().rev().find(is_same) {
            Some(same) => {
                same.times += 1;
                same.time = same.time.max(raised.time);
                same.sentence = raised.sentence;
                same.number
            }
            None => push(kept, free, raised),
        };
    }
    let fresh = |event: &Event| raised.time.apart(event.time) <= FOLD_SECONDS;
    let refused = |event: &Event| event.code == event::LOGIN_REFUSED && fresh(event);
    let crowded = raised.code == event::LOGIN_REFUSED
        && kept.iter().rev().take(FOLD_EVENTS).filter(|event| refused(event)).count() >= REFUSALS_MAX;
    let last = kept
        .iter_mut()
        .rev()
        .take(FOLD_EVENTS)
        .find(|event| if crowded { event.code == event::LOGIN_REFUSED } else { event.subject == raised.subject });
    match last.filter(|event| fresh(event) && (crowded || event.is_like(&raised))) {
        Some(same) => {
            same.times += 1;
            same.time = same.time.max(raised.time);
            same.number
        }
        None => push(kept, free, raised),
    }
}

/// Enters the event as one of its own; its number.
fn push(kept: &mut VecDeque<Event>, free: &mut u64, raised: Raised) -> u64 {
    let number = (*free).max(1);
    *free = number + 1;
    kept.push_back(Event::first(number, raised));
    number
}

#[cfg(test)]
mod tests;
