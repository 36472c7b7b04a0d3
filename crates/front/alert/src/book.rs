//! Alert state: active alerts, and what each receiver has been told.
//!
//! Pure: time is an argument, and nothing is sent here.

mod due;

pub(crate) use due::{Due, State};

use crate::rule::{self, Rule};
use control::{Condition, Conditions};
use model::{AlertFacts, Event, EventCode, EventSeverity, Name, Subject, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time in seconds after which an event without a repetition is dropped.
const DAY: u64 = 24 * 3600;
/// Time in seconds within which an alert that returns is the same one; it is reported as resolved later each time.
const AGAIN: u64 = 3600;
/// Time in seconds for which an ended alert is kept for unreachable receivers.
const KEPT: u64 = 7 * DAY;
/// Limit on stored alerts; beyond it the oldest ended ones and events are dropped.
const ALERTS_MAX: usize = 1000;
/// Time in seconds for which repeated events are folded into one by the event log.
const FOLDED: u64 = 3600;

/// Alert state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Book {
    next: u64,
    /// Number of the last event processed; `None` before the first round.
    cursor: Option<u64>,
    alerts: BTreeMap<u64, Alert>,
    /// Silenced codes and subjects, with the end of each silence.
    pub silences: BTreeMap<String, Timestamp>,
    /// Delivery status of each receiver.
    pub fares: BTreeMap<Name, DeliveryStatus>,
    /// Repetition counts of recent events that were processed.
    #[serde(skip)]
    counted: BTreeMap<u64, u64>,
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Type of condition. Topic and subject identify the alert while its code and severity may change.
    pub topic: EventCode,
    /// Current event code.
    pub code: EventCode,
    pub subject: Subject,
    pub severity: EventSeverity,
    pub sentence: String,
    pub action: String,
    pub details: Vec<String>,
    pub since: Timestamp,
    pub last: Timestamp,
    pub times: u64,
    pub how: EndedBy,
    /// Time when it ended.
    pub ended: Option<Timestamp>,
    /// Time when it was raised, became worse or returned.
    changed: Timestamp,
    /// Number of returns soon after it had ended.
    again: u32,
    /// Last report to each receiver.
    #[serde(alias = "told")]
    notified: BTreeMap<Name, SentReport>,
}

/// Method that determines the end of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// A condition that is evaluated in every round.
    Looked,
    /// An event that was over when it occurred.
    Passing,
}

/// Last report of an alert to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentReport {
    pub time: Timestamp,
    pub severity: EventSeverity,
    /// False while delivery was attempted but not confirmed.
    pub is_known: bool,
    /// True once the end was reported.
    pub is_over: bool,
}

/// Delivery status of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryStatus {
    pub succeeded: Option<Timestamp>,
    pub failed: Option<Timestamp>,
    pub why: Option<String>,
    pub is_away: bool,
}

/// Content of an alert.
struct Occurrence {
    topic: EventCode,
    code: EventCode,
    subject: Subject,
    severity: EventSeverity,
    sentence: String,
    action: String,
    details: Vec<String>,
}

impl Occurrence {
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
    /// Active alerts by number.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u64, &Alert)> {
        self.alerts.iter().filter(|(_, alert)| alert.ended.is_none()).map(|(&number, alert)| (number, alert))
    }

    /// Start of the period from which events are read: long enough to include those whose repetitions are still folded.
    pub(crate) fn events_since(now: Timestamp) -> Timestamp {
        // One minute more than the period in which equal events are combined.
        now.minus(FOLDED + 60)
    }

    /// Applies the evaluated conditions. An alert whose condition no longer holds ends, unless its state is unknown.
    pub(crate) fn apply_conditions(&mut self, found: &Conditions, now: Timestamp) {
        for condition in &found.active {
            // A condition that lasts is no repetition, so it adds nothing to the count.
            self.raise(Occurrence::of(condition), EndedBy::Looked, 0, now);
        }
        // An alert whose condition could not be evaluated stays.
        let is_there = |alert: &Alert| {
            let key = |topic, subject: &Subject| topic == alert.topic && *subject == alert.subject;
            found.active.iter().any(|it| key(it.topic, &it.subject))
                || found.indeterminate.iter().any(|(topic, subject)| key(*topic, subject))
        };
        for alert in self.alerts.values_mut().filter(|alert| alert.how == EndedBy::Looked && alert.ended.is_none()) {
            if !is_there(alert) {
                (alert.ended, alert.changed) = (Some(now), now);
            }
        }
    }

    /// Applies events, oldest first, ignoring repetitions that were processed before. Before the first round no event
    /// is new.
    pub(crate) fn apply_events(&mut self, events: &[Event], now: Timestamp) {
        let latest = events.last().map_or(0, |event| event.number);
        // Without a cursor (first start) the whole log counts as known.
        let cursor = *self.cursor.get_or_insert(latest);
        for event in events {
            // The event log folds repetitions, so a number can return with a higher count.
            let before = self.counted.insert(event.number, event.count);
            let fresh = match before {
                Some(before) => event.count.saturating_sub(before),
                None if event.number > cursor => event.count,
                None => 0,
            };
            if fresh > 0 {
                self.apply_event(event, fresh, now);
            }
        }
        let oldest = events.first().map_or(0, |event| event.number);
        // Events older than the period are never read again.
        self.counted.retain(|number, _| *number >= oldest);
        // Never backward, because all events of the period may have expired.
        self.cursor = Some(latest.max(cursor));
    }

    fn apply_event(&mut self, event: &Event, fresh: u64, now: Timestamp) {
        match rule::of(event.code) {
            Rule::Passing => {}
            Rule::Often(times) if event.count >= times => {}
            Rule::Often(_) | Rule::Not => return,
        }
        let news = Occurrence {
            topic: event.code,
            code: event.code,
            subject: event.subject.clone(),
            severity: event.severity,
            sentence: event.message.clone(),
            action: String::new(),
            details: Vec::new(),
        };
        self.raise(news, EndedBy::Passing, fresh, now);
    }

    /// Raises an alert, or updates the existing one of the same topic and subject.
    fn raise(&mut self, news: Occurrence, how: EndedBy, times: u64, now: Timestamp) {
        let Occurrence { topic, code, subject, severity, sentence, action, details } = news;
        // An alert that has ended within the last hour returns under its old number.
        let same = |alert: &&mut Alert| {
            let ended = alert.ended.is_some_and(|ended| now.apart(ended) > AGAIN);
            alert.topic == topic && alert.subject == subject && !ended
        };
        if let Some(alert) = self.alerts.values_mut().rev().find(same) {
            if alert.ended.take().is_some() {
                alert.again += 1;
                alert.times += times.max(1);
                (alert.since, alert.changed) = (now, now);
                // Receivers that have received the end are notified again; for the others the alert has never ended.
                alert.notified.retain(|_, told| !told.is_over);
            } else {
                alert.times += times;
            }
            // Only a deterioration is news: an improvement waits for the end.
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
                notified: told,
            },
        );
    }

    fn make_room(&mut self) {
        if self.alerts.len() < ALERTS_MAX {
            return;
        }
        // Active conditions are the last to be dropped: they would be raised again in the next round.
        // Numbers ascend, so the first one found is the oldest.
        let old = self.alerts.iter().find(|(_, alert)| alert.ended.is_some() || alert.how == EndedBy::Passing);
        let old = old.or_else(|| self.alerts.iter().next()).map(|(&number, _)| number);
        old.map(|number| self.alerts.remove(&number));
    }

    /// Ends the alert of this number.
    pub(crate) fn end(&mut self, number: u64, now: Timestamp) {
        if let Some(alert) = self.alerts.get_mut(&number) {
            (alert.ended, alert.changed) = (Some(now), now);
        }
    }

    /// Ends the alerts of subjects that no longer exist.
    pub(crate) fn drop_subjects(&mut self, is_there: impl Fn(&Alert) -> bool, now: Timestamp) {
        for alert in self.alerts.values_mut().filter(|alert| alert.ended.is_none()) {
            if !is_there(alert) {
                (alert.ended, alert.changed) = (Some(now), now);
            }
        }
    }

    /// Drops expired silences and old alerts.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        self.silences.retain(|_, until| *until > now);
        self.alerts.retain(|_, alert| match (alert.how, alert.ended) {
            // A past event stays for a day unless it is acknowledged.
            (EndedBy::Passing, None) => now.since(alert.last) <= DAY,
            (_, None) => true,
            (_, Some(ended)) => {
                // A receiver that knows of the alert, but not of its end, may be unreachable for days.
                let is_waited_for = alert.notified.values().any(|told| !told.is_over);
                now.apart(ended) <= AGAIN || is_waited_for && now.apart(ended) <= KEPT
            }
        });
    }

    /// End of the silence that applies to the alert, if any.
    pub(crate) fn silenced(&self, alert: &Alert, now: Timestamp) -> Option<Timestamp> {
        // A silence names the code, the topic or the subject.
        let silences = [alert.code.to_string(), alert.topic.to_string(), alert.subject.to_string()];
        silences.iter().filter_map(|what| self.silences.get(what)).max().copied().filter(|until| *until > now)
    }

    /// Deletes the state of a removed receiver.
    pub(crate) fn forget_receiver(&mut self, receiver: &Name) {
        self.fares.remove(receiver);
        for alert in self.alerts.values_mut() {
            alert.notified.remove(receiver);
        }
    }

    /// True when this state equals `kept` except for fields that change by themselves and need not be stored.
    pub(crate) fn is_as(&self, kept: &Self) -> bool {
        // Without the values that change in every round, so that they alone cause no write.
        let still = |book: &Self| {
            let mut book = book.clone();
            book.counted.clear();
            for alert in book.alerts.values_mut() {
                // The time of a past event decides on its reminder and on its end, so it has to be stored.
                if alert.how == EndedBy::Looked {
                    (alert.last, alert.sentence, alert.details) = Default::default();
                }
            }
            book
        };
        still(self) == still(kept)
    }
}

impl Alert {
    /// Describes the alert under its number.
    pub fn facts(&self, number: u64) -> AlertFacts {
        let Self { code, severity, subject, sentence, action, details, since, last, times, .. } = self.clone();
        let waits_for_you = self.how == EndedBy::Passing || control::waits_for_operator(code);
        AlertFacts {
            number,
            code,
            severity,
            subject,
            message: sentence,
            action,
            details,
            since,
            last,
            count: times,
            requires_acknowledgment: waits_for_you,
        }
    }

    /// Receivers that were notified.
    pub fn notified(&self) -> Vec<Name> {
        self.notified.iter().filter(|(_, told)| told.is_known).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
