//! Message to a receiver.

use crate::book::{Alert, State};
use model::{AlertFacts, EventSeverity, Timestamp};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::fmt::Write;

/// Version of the message format. Keys are added without a new version, never renamed or removed.
const SCHEMA: u32 = 1;

/// Limit on alerts that a message describes in full.
const ALERTS_MAX: usize = 50;

/// Message to a receiver. Its JSON form is the body of a generic webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Version of the format.
    pub schema: u32,
    /// Message ID. A message that is repeated because its delivery is uncertain has the same ID.
    pub id: String,
    /// Time of the message.
    pub time: Timestamp,
    /// Name of the node.
    pub node: String,
    /// True for a test message.
    pub test: bool,
    /// Severity of the worst active alert; `info` when all are resolved.
    pub severity: EventSeverity,
    /// The worst alert in one sentence.
    pub title: String,
    /// Alerts, the worst first.
    pub alerts: Vec<MessageAlert>,
    /// Number of alerts that are not listed.
    pub more: usize,
}

/// One alert in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageAlert {
    /// `raised`, `worse`, `still` or `resolved`.
    pub state: &'static str,
    /// Description of the alert.
    #[serde(flatten)]
    pub facts: AlertFacts,
    /// Time when it ended.
    pub resolved: Option<Timestamp>,
}

impl State {
    /// State in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Worse => "worse",
            Self::Still => "still",
            Self::Resolved => "resolved",
        }
    }
}

impl MessageAlert {
    pub fn of(number: u64, state: State, alert: &Alert) -> Self {
        Self { state: state.as_str(), facts: alert.facts(number), resolved: alert.ended }
    }

    fn is_over(&self) -> bool {
        self.state == State::Resolved.as_str()
    }
}

impl Message {
    /// Builds a message of these alerts, at least one.
    pub fn of(node: &str, receiver: &str, mut alerts: Vec<MessageAlert>, time: Timestamp) -> Self {
        // Among alerts of equal severity new ones come before reminders.
        alerts.sort_by_key(|told| {
            (told.is_over(), Reverse(told.facts.severity), told.state == State::Still.as_str(), told.facts.number)
        });
        // The ID depends on the content, so that a repeated attempt has the same one.
        let mut digest = Sha256::new();
        digest.update(format!("{node}\0{receiver}"));
        for told in &alerts {
            // An alert that returns has another start, and so another ID.
            let when = told.resolved.unwrap_or(told.facts.since);
            digest.update(format!("\0{} {} {} {when}", told.facts.number, told.state, told.facts.severity.as_str()));
            // A reminder has the state of the one before: the hour makes its ID different.
            if told.state == State::Still.as_str() {
                digest.update(format!(" {}", time.unix() / 3600));
            }
        }
        // Resolved alerts do not count.
        let severity = alerts.iter().filter(|told| !told.is_over()).map(|told| told.facts.severity).max();
        let count = alerts.len();
        let title = alerts.first().map_or_else(String::new, |first| {
            let over = if first.is_over() { "resolved: " } else { "" };
            let rest = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            format!("{over}{}{rest}", first.facts.message)
        });
        // After title and ID, which cover all alerts.
        alerts.truncate(ALERTS_MAX);
        Self {
            schema: SCHEMA,
            id: hex(&digest.finalize()[..16]),
            time,
            node: node.to_owned(),
            test: false,
            severity: severity.unwrap_or(EventSeverity::Info),
            title,
            // The list is a part of what was counted, so the difference cannot wrap.
            more: count - alerts.len(),
            alerts,
        }
    }

    /// Builds a test message.
    pub fn test(node: &str, receiver: &str, time: Timestamp) -> Self {
        let digest = Sha256::digest(format!("{node}\0{receiver}\0test {time}"));
        Self {
            schema: SCHEMA,
            id: hex(&digest[..16]),
            time,
            node: node.to_owned(),
            test: true,
            severity: EventSeverity::Info,
            title: format!("this is a test message for receiver {receiver}; no action needed"),
            alerts: Vec::new(),
            more: 0,
        }
    }

    /// Mail subject: node, severity and title.
    pub fn subject(&self) -> String {
        let word = match self.severity {
            // A message of resolved alerts alone has no word for a severity.
            EventSeverity::Info if self.alerts.iter().any(|told| !told.is_over()) => "info: ",
            EventSeverity::Info => "",
            EventSeverity::Warning => "warning: ",
            EventSeverity::Critical => "critical: ",
        };
        format!("[{}] {word}{}", self.node, self.title)
    }

    /// Complete message as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.alerts.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}.", self.title);
        }
        for told in &self.alerts {
            let head = if told.is_over() { "RESOLVED".to_owned() } else { told.facts.severity.as_str().to_uppercase() };
            let state =
                if matches!(told.state, "worse" | "still") { format!(" ({})", told.state) } else { String::new() };
            let _ = writeln!(text, "{head}{state}: {}", told.facts.message);
            for detail in &told.facts.details {
                let _ = writeln!(text, "    {detail}");
            }
            if !told.facts.action.is_empty() && !told.is_over() {
                let _ = writeln!(text, "    What to do: {}", told.facts.action);
            }
            let times = if told.facts.count > 1 {
                format!(", {} times, last {}", told.facts.count, told.facts.last)
            } else {
                String::new()
            };
            let over = told.resolved.map_or_else(String::new, |over| format!(", over {over}"));
            let _ = writeln!(
                text,
                "    {} {}, since {}{times}{over}\n",
                told.facts.code, told.facts.subject, told.facts.since
            );
        }
        if self.more > 0 {
            let _ = writeln!(text, "{} more are not listed: see blockyard alert active.\n", self.more);
        }
        let _ = writeln!(text, "{} at {}", self.node, self.time);
        text
    }
}

fn hex(bytes: &[u8]) -> String {
    control::to_hex(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Subject, SubjectKind, event};

    fn told(number: u64, state: State, severity: EventSeverity, sentence: &str) -> MessageAlert {
        let (since, last) = Default::default();
        let facts = AlertFacts {
            number,
            code: event::POOL_FULL,
            severity,
            subject: Subject::new(SubjectKind::Pool, &"tank"),
            message: sentence.to_owned(),
            action: String::new(),
            details: Vec::new(),
            since,
            last,
            count: 1,
            requires_acknowledgment: false,
        };
        MessageAlert { state: state.as_str(), facts, resolved: (state == State::Resolved).then_some(since) }
    }

    #[test]
    fn subject_of_a_summary_names_the_worst_alert_that_stands_and_the_newest_of_these() {
        use EventSeverity::{Critical, Info, Warning};
        let subject = |alerts: Vec<MessageAlert>| Message::of("node1", "ops", alerts, Timestamp::default()).subject();
        let over = || told(1, State::Resolved, Critical, "disk d0 failed");
        let mild = || told(2, State::Raised, Warning, "pool tank is nearly full");
        let known = || told(3, State::Still, Critical, "volume tank/a does not serve");
        let bad = || told(4, State::Raised, Critical, "pool tank is full");
        let info = || told(5, State::Raised, Info, "a scrub ended");
        for (alerts, wanted) in [
            (vec![over(), mild(), known(), bad(), info()], "[node1] critical: pool tank is full (and 4 more)"),
            (vec![info(), known(), mild()], "[node1] critical: volume tank/a does not serve (and 2 more)"),
            (vec![over(), info(), mild()], "[node1] warning: pool tank is nearly full (and 2 more)"),
            (vec![info()], "[node1] info: a scrub ended"),
            (vec![over()], "[node1] resolved: disk d0 failed"),
        ] {
            assert_eq!(subject(alerts), wanted);
        }
    }
}
