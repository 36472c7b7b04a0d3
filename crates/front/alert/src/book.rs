//! What is wrong now, and who was told of it.
//!
//! Pure: time is an argument, and nothing is sent here.

mod due;

pub(crate) use due::{Due, State};

use crate::rule::{self, Rule};
use control::{Condition, Conditions};
use model::{AlertFacts, Event, EventCode, EventSeverity, Name, Subject, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// News that does not come again for so long is old.
const DAY: u64 = 24 * 3600;
/// What ends and comes again within this time is the same alert, and settles more slowly each time.
const AGAIN: u64 = 3600;
/// An alert that has ended is kept so long for receivers that are away.
const KEPT: u64 = 7 * DAY;
/// The most alerts that are kept; of more, the oldest news go.
const ALERTS_MAX: usize = 1000;
/// The first look at the log goes back so far, so that what comes again while it is counted is seen.
const FOLDED: u64 = 3600;

/// What is wrong now, and who was told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Book {
    next: u64,
    /// The number of the last event that was looked at; none before the first look.
    cursor: Option<u64>,
    alerts: BTreeMap<u64, Alert>,
    /// What nobody is told of, until when.
    pub silences: BTreeMap<String, Timestamp>,
    /// How each receiver fares.
    pub fares: BTreeMap<Name, Fare>,
    /// How often the latest events have come that were looked at.
    #[serde(skip)]
    counted: BTreeMap<u64, u64>,
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// What sort of thing it is: with the subject it is the same however it is told.
    pub topic: EventCode,
    /// What it is now.
    pub code: EventCode,
    pub subject: Subject,
    pub severity: EventSeverity,
    pub sentence: String,
    pub action: String,
    pub details: Vec<String>,
    pub since: Timestamp,
    pub last: Timestamp,
    pub times: u64,
    pub how: How,
    /// When it has ended.
    pub ended: Option<Timestamp>,
    /// When it was raised, became worse or came again.
    changed: Timestamp,
    /// How often it came again soon after it had ended.
    again: u32,
    /// Who was told what.
    told: BTreeMap<Name, Told>,
}

/// How it is known that an alert has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It is looked at.
    Looked,
    /// It is over when it has happened.
    Passing,
}

/// What a receiver was told of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub time: Timestamp,
    pub severity: EventSeverity,
    /// False while that was only tried.
    pub is_known: bool,
    /// True once it was told that it is over.
    pub is_over: bool,
}

/// How a receiver fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fare {
    pub succeeded: Option<Timestamp>,
    pub failed: Option<Timestamp>,
    pub why: Option<String>,
    pub is_away: bool,
}

/// What an alert tells of.
struct News {
    topic: EventCode,
    code: EventCode,
    subject: Subject,
    severity: EventSeverity,
    sentence: String,
    action: String,
    details: Vec<String>,
}

impl News {
    fn of(condition: &Condition) -> Self {
        let Condition { topic, code, subject, problem, details, .. } = condition;
        Self {
            topic: *topic,
            code: *code,
            subject: subject.clone(),
            severity: condition.severity(),
            sentence: condition.sentence(),
            action: problem.action.clone(),
            details: details.clone(),
        }
    }
}

impl Book {
    /// What is wrong now, by number.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u64, &Alert)> {
        self.alerts.iter().filter(|(_, alert)| alert.ended.is_none()).map(|(&number, alert)| (number, alert))
    }

    /// From when on events are to be looked at: those that came again while they are counted are among them.
    pub(crate) fn look_from(now: Timestamp) -> Timestamp {
        now.minus(FOLDED + 60)
    }

    /// This is how things are now; what is not there any more has ended, unless nobody knows.
    pub(crate) fn look(&mut self, found: &Conditions, now: Timestamp) {
        for condition in &found.there {
            self.raise(News::of(condition), How::Looked, 0, now);
        }
        let is_there = |alert: &Alert| {
            let key = |topic, subject: &Subject| topic == alert.topic && *subject == alert.subject;
            found.there.iter().any(|it| key(it.topic, &it.subject))
                || found.unsure.iter().any(|(topic, subject)| key(*topic, subject))
        };
        for alert in self.alerts.values_mut().filter(|alert| alert.how == How::Looked && alert.ended.is_none()) {
            if !is_there(alert) {
                (alert.ended, alert.changed) = (Some(now), now);
            }
        }
    }

    /// These have happened, oldest first; those that were looked at before are passed over. Before the first look nothing is news.
    pub(crate) fn hear(&mut self, events: &[Event], now: Timestamp) {
        let latest = events.last().map_or(0, |event| event.number);
        let cursor = *self.cursor.get_or_insert(latest);
        for event in events {
            let before = self.counted.insert(event.number, event.times);
            let fresh = match before {
                Some(before) => event.times.saturating_sub(before),
                None if event.number > cursor => event.times,
                None => 0,
            };
            if fresh > 0 {
                self.hear_one(event, fresh, now);
            }
        }
        let oldest = events.first().map_or(0, |event| event.number);
        self.counted.retain(|number, _| *number >= oldest);
        self.cursor = Some(latest.max(cursor));
    }

    fn hear_one(&mut self, event: &Event, fresh: u64, now: Timestamp) {
        match rule::of(event.code) {
            Rule::Passing => {}
            Rule::Often(times) if event.times >= times => {}
            Rule::Often(_) | Rule::Not => return,
        }
        let news = News {
            topic: event.code,
            code: event.code,
            subject: event.subject.clone(),
            severity: event.severity,
            sentence: event.sentence.clone(),
            action: String::new(),
            details: Vec::new(),
        };
        self.raise(news, How::Passing, fresh, now);
    }

    /// The condition holds: it is an alert, or the one that there is.
    fn raise(&mut self, news: News, how: How, times: u64, now: Timestamp) {
        let News { topic, code, subject, severity, sentence, action, details } = news;
        let same = |alert: &&mut Alert| {
            let ended = alert.ended.is_some_and(|ended| now.apart(ended) > AGAIN);
            alert.topic == topic && alert.subject == subject && !ended
        };
        if let Some(alert) = self.alerts.values_mut().rev().find(same) {
            if alert.ended.take().is_some() {
                alert.again += 1;
                alert.times += times.max(1);
                (alert.since, alert.changed) = (now, now);
                // Who was told that it is over hears of it anew; who was not need not know.
                alert.told.retain(|_, told| !told.is_over);
            } else {
                alert.times += times;
            }
            if severity > alert.severity {
                alert.changed = now;
            }
            (alert.code, alert.severity, alert.sentence, alert.action) = (code, severity, sentence, action);
            (alert.details, alert.last, alert.how) = (details, now, how);
            return;
        }
        self.make_room();
        self.next += 1;
        let (ended, told) = (None, BTreeMap::new());
        let (since, last, changed, times, again) = (now, now, now, times.max(1), 0);
        self.alerts.insert(
            self.next,
            Alert {
                topic,
                code,
                subject,
                severity,
                sentence,
                action,
                details,
                since,
                last,
                times,
                how,
                ended,
                changed,
                again,
                told,
            },
        );
    }

    fn make_room(&mut self) {
        if self.alerts.len() < ALERTS_MAX {
            return;
        }
        let old = self.alerts.iter().find(|(_, alert)| alert.ended.is_some() || alert.how == How::Passing);
        let old = old.or_else(|| self.alerts.iter().next()).map(|(&number, _)| number);
        old.map(|number| self.alerts.remove(&number));
    }

    /// The alert of this number has ended.
    pub(crate) fn end(&mut self, number: u64, now: Timestamp) {
        if let Some(alert) = self.alerts.get_mut(&number) {
            (alert.ended, alert.changed) = (Some(now), now);
        }
    }

    /// What is about something that is not there any more has ended.
    pub(crate) fn drop_subjects(&mut self, is_there: impl Fn(&Alert) -> bool, now: Timestamp) {
        for alert in self.alerts.values_mut().filter(|alert| alert.ended.is_none()) {
            if !is_there(alert) {
                (alert.ended, alert.changed) = (Some(now), now);
            }
        }
    }

    /// What is old is forgotten.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        self.silences.retain(|_, until| *until > now);
        self.alerts.retain(|_, alert| match (alert.how, alert.ended) {
            (How::Passing, None) => now.since(alert.last) <= DAY,
            (_, None) => true,
            (_, Some(ended)) => {
                let is_waited_for = alert.told.values().any(|told| !told.is_over);
                now.apart(ended) <= AGAIN || is_waited_for && now.apart(ended) <= KEPT
            }
        });
    }

    /// Until when nobody is told of the alert.
    pub(crate) fn silenced(&self, alert: &Alert, now: Timestamp) -> Option<Timestamp> {
        let silences = [alert.code.to_string(), alert.topic.to_string(), alert.subject.to_string()];
        silences.iter().filter_map(|what| self.silences.get(what)).max().copied().filter(|until| *until > now)
    }

    /// The receiver is not there any more.
    pub(crate) fn forget_receiver(&mut self, receiver: &Name) {
        self.fares.remove(receiver);
        for alert in self.alerts.values_mut() {
            alert.told.remove(receiver);
        }
    }

    /// True when this book says nothing that `kept` does not say, but for what moves by itself.
    pub(crate) fn is_as(&self, kept: &Self) -> bool {
        let still = |book: &Self| {
            let mut book = book.clone();
            book.counted.clear();
            for alert in book.alerts.values_mut() {
                if alert.how == How::Looked {
                    (alert.last, alert.sentence, alert.details) = Default::default();
                }
            }
            book
        };
        still(self) == still(kept)
    }
}

impl Alert {
    /// What it is, under this number.
    pub fn facts(&self, number: u64) -> AlertFacts {
        let Self { code, severity, subject, sentence, action, details, since, last, times, .. } = self.clone();
        let waits_for_you = self.how == How::Passing || control::waits_for_operator(code);
        AlertFacts { number, code, severity, subject, sentence, action, details, since, last, times, waits_for_you }
    }

    /// Those who were told.
    pub fn told(&self) -> Vec<Name> {
        self.told.iter().filter(|(_, told)| told.is_known).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
