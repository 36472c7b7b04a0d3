//! What a receiver has still to be told.

use super::{Alert, Book, Fare, How, Told};
use model::{EventSeverity, Name, SubjectKind, Timestamp};

/// What happens goes on being gathered for at most so many times the usual time.
const PATIENCE: u64 = 3;
/// An alert that comes and goes settles at most so many times twice as slowly.
const DOUBLINGS: u32 = 6;

/// What a receiver wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due<'a> {
    /// Which.
    pub receiver: &'a Name,
    /// Only of what is as bad or worse.
    pub least: EventSeverity,
    /// In seconds.
    pub gather: u64,
    /// In seconds; never when zero.
    pub remind: u64,
}

/// What is said of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is so now.
    Raised,
    /// It is worse than was told.
    Worse,
    /// It is still so.
    Still,
    /// It is over.
    Resolved,
}

impl Book {
    /// What the receiver is to be told now: all of it, or nothing while more may come that belongs to it.
    pub(crate) fn due(&self, wanted: &Due<'_>, now: Timestamp) -> Vec<(u64, State)> {
        let mut raised: Vec<(u64, State, &Alert)> = Vec::new();
        let mut ended: Vec<(u64, &Alert)> = Vec::new();
        for (&number, alert) in &self.alerts {
            if alert.is_about(wanted.receiver) {
                continue;
            }
            let told = alert.told.get(wanted.receiver);
            match (alert.state(told, wanted, now), self.silenced(alert, now)) {
                (Some(State::Resolved), _) => ended.push((number, alert)),
                (Some(state), None) => raised.push((number, state, alert)),
                _ => {}
            }
        }
        let mut due = Vec::new();
        let news = || raised.iter().map(|(_, _, alert)| now.apart(alert.changed));
        let is_ripe = news().min().is_some_and(|least| least >= wanted.gather)
            || news().any(|age| age >= PATIENCE * wanted.gather);
        if is_ripe {
            due.extend(raised.iter().map(|&(number, state, _)| (number, state)));
        }
        let settle = |alert: &Alert| wanted.gather.max(1) << alert.again.min(DOUBLINGS);
        let age = |alert: &Alert| alert.ended.map_or(0, |ended| now.apart(ended));
        let settled = || ended.iter().filter(|(_, alert)| age(alert) >= settle(alert));
        if settled().count() == ended.len() || settled().any(|(_, alert)| age(alert) >= PATIENCE * settle(alert)) {
            due.extend(settled().map(|&(number, _)| (number, State::Resolved)));
        }
        due
    }

    /// These are being told: what ends meanwhile is not kept from the receiver.
    pub(crate) fn try_to_tell(&mut self, wanted: &Due<'_>, due: &[(u64, State)], now: Timestamp) {
        for (number, state) in due {
            if let Some(alert) = self.alerts.get_mut(number).filter(|_| *state == State::Raised) {
                let tried = Told { time: now, severity: alert.severity, is_known: false, is_over: false };
                alert.told.entry(wanted.receiver.clone()).or_insert(tried);
            }
        }
    }

    /// These were told.
    pub(crate) fn note_told(&mut self, receiver: &Name, due: &[(u64, State, EventSeverity)], now: Timestamp) {
        for &(number, state, severity) in due {
            if let Some(alert) = self.alerts.get_mut(&number) {
                let is_over = state == State::Resolved;
                alert.told.insert(receiver.clone(), Told { time: now, severity, is_known: true, is_over });
            }
        }
    }

    /// The receiver has heard what was said.
    pub(crate) fn note_success(&mut self, receiver: &Name, now: Timestamp) {
        let fare = self.fares.entry(receiver.clone()).or_default();
        (fare.succeeded, fare.is_away) = (Some(now), false);
    }

    /// The receiver could not be told.
    pub(crate) fn note_failure(&mut self, receiver: &Name, why: &str, now: Timestamp) {
        let fare = self.fares.entry(receiver.clone()).or_default();
        *fare = Fare { failed: Some(now), why: Some(why.to_owned()), is_away: true, ..std::mem::take(fare) };
    }

    /// The alert of this number.
    pub(crate) fn alert(&self, number: u64) -> Option<&Alert> {
        self.alerts.get(&number)
    }
}

impl Alert {
    /// True when it says that this receiver cannot be told, which need not be told to it.
    fn is_about(&self, receiver: &Name) -> bool {
        self.subject.kind == SubjectKind::Receiver && self.subject.name == receiver.as_str()
    }

    fn state(&self, told: Option<&Told>, wanted: &Due<'_>, now: Timestamp) -> Option<State> {
        match (told, self.ended) {
            // What ends before anybody was told is nobody's news.
            (None, Some(_)) => None,
            (Some(told), Some(_)) => (!told.is_over && self.how != How::Passing).then_some(State::Resolved),
            (None, None) => (self.severity >= wanted.least).then_some(State::Raised),
            (Some(told), None) if !told.is_known => Some(State::Raised),
            (Some(told), None) if told.severity < self.severity => Some(State::Worse),
            (Some(told), None) => {
                let has_come = self.how != How::Passing || self.last > told.time;
                let is_time = wanted.remind > 0 && now.since(told.time) >= wanted.remind;
                (is_time && has_come).then_some(State::Still)
            }
        }
    }
}
