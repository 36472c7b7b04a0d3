//! Selection of the alerts that are due for a receiver.

use super::{Alert, Book, DeliveryStatus, EndedBy, SentReport};
use model::{EventSeverity, Name, SubjectKind, Timestamp};

/// Factor of the gathering time after which gathered alerts are sent even if more keep arriving.
const PATIENCE: u64 = 3;
/// Limit on doublings of the settling time of an alert that returns repeatedly.
const DOUBLINGS: u32 = 6;

/// Notification settings of a receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due<'a> {
    /// Receiver name.
    pub receiver: &'a Name,
    /// Minimum severity.
    pub least: EventSeverity,
    /// Gathering time in seconds.
    pub gather: u64,
    /// Reminder interval in seconds; 0 disables reminders.
    pub remind: u64,
}

/// Reported state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Raised.
    Raised,
    /// Worse than reported.
    Worse,
    /// Still active (reminder).
    Still,
    /// Ended.
    Resolved,
}

impl Book {
    /// Returns the alerts to report to the receiver now: all that are due, or none while related ones may still arrive.
    pub(crate) fn due(&self, wanted: &Due<'_>, now: Timestamp) -> Vec<(u64, State)> {
        let mut raised: Vec<(u64, State, &Alert)> = Vec::new();
        let mut ended: Vec<(u64, &Alert)> = Vec::new();
        for (&number, alert) in &self.alerts {
            // A receiver cannot be told that it is unreachable itself.
            if alert.is_about(wanted.receiver) {
                continue;
            }
            let told = alert.notified.get(wanted.receiver);
            match (alert.state(told, wanted, now), self.silenced(alert, now)) {
                // A silence suppresses active alerts only: the end of an alert that was reported before is still sent.
                (Some(State::Resolved), _) => ended.push((number, alert)),
                (Some(state), None) => raised.push((number, state, alert)),
                _ => {}
            }
        }
        let mut due = Vec::new();
        let news = || raised.iter().map(|(_, _, alert)| now.apart(alert.changed));
        // Ripe when nothing has changed for the gathering time, or when the oldest change has waited long enough.
        let is_ripe = news().min().is_some_and(|least| least >= wanted.gather)
            || news().any(|age| age >= PATIENCE * wanted.gather);
        if is_ripe {
            due.extend(raised.iter().map(|&(number, state, _)| (number, state)));
        }
        // Doubled with each return, so that a flapping alert does not produce a message every time.
        let settle = |alert: &Alert| wanted.gather.max(1) << alert.again.min(DOUBLINGS);
        let age = |alert: &Alert| alert.ended.map_or(0, |ended| now.apart(ended));
        let settled = || ended.iter().filter(|(_, alert)| age(alert) >= settle(alert));
        if settled().count() == ended.len() || settled().any(|(_, alert)| age(alert) >= PATIENCE * settle(alert)) {
            due.extend(settled().map(|&(number, _)| (number, State::Resolved)));
        }
        due
    }

    /// Records a delivery attempt before it is made, so that the end of an alert is reported even if delivery was not
    /// confirmed.
    pub(crate) fn note_attempt(&mut self, wanted: &Due<'_>, due: &[(u64, State)], now: Timestamp) {
        for (number, state) in due {
            if let Some(alert) = self.alerts.get_mut(number).filter(|_| *state == State::Raised) {
                let tried = SentReport { time: now, severity: alert.severity, is_known: false, is_over: false };
                alert.notified.entry(wanted.receiver.clone()).or_insert(tried);
            }
        }
    }

    /// Records reports that were delivered.
    pub(crate) fn note_delivered(&mut self, receiver: &Name, due: &[(u64, State, EventSeverity)], now: Timestamp) {
        for &(number, state, severity) in due {
            if let Some(alert) = self.alerts.get_mut(&number) {
                let is_over = state == State::Resolved;
                alert.notified.insert(receiver.clone(), SentReport { time: now, severity, is_known: true, is_over });
            }
        }
    }

    /// Records a successful delivery.
    pub(crate) fn note_success(&mut self, receiver: &Name, now: Timestamp) {
        let fare = self.fares.entry(receiver.clone()).or_default();
        (fare.succeeded, fare.is_away) = (Some(now), false);
    }

    /// Records a failed delivery.
    pub(crate) fn note_failure(&mut self, receiver: &Name, why: &str, now: Timestamp) {
        let fare = self.fares.entry(receiver.clone()).or_default();
        *fare = DeliveryStatus { failed: Some(now), why: Some(why.to_owned()), is_away: true, ..std::mem::take(fare) };
    }

    /// Returns the alert of this number.
    pub(crate) fn alert(&self, number: u64) -> Option<&Alert> {
        self.alerts.get(&number)
    }
}

impl Alert {
    /// True when the alert is about this receiver itself, which must not be sent to it.
    fn is_about(&self, receiver: &Name) -> bool {
        self.subject.kind == SubjectKind::Receiver && self.subject.name == receiver.as_str()
    }

    fn state(&self, told: Option<&SentReport>, wanted: &Due<'_>, now: Timestamp) -> Option<State> {
        match (told, self.ended) {
            // Ended before it was reported: not worth a message.
            (None, Some(_)) => None,
            // A past event has no end to report.
            (Some(told), Some(_)) => (!told.is_over && self.how != EndedBy::Passing).then_some(State::Resolved),
            (None, None) => (self.severity >= wanted.least).then_some(State::Raised),
            // Delivery was not confirmed: the same report again.
            (Some(told), None) if !told.is_known => Some(State::Raised),
            (Some(told), None) if told.severity < self.severity => Some(State::Worse),
            (Some(told), None) => {
                // A past event is repeated only if it has occurred again.
                let has_come = self.how != EndedBy::Passing || self.last > told.time;
                let is_time = wanted.remind > 0 && now.since(told.time) >= wanted.remind;
                (is_time && has_come).then_some(State::Still)
            }
        }
    }
}
