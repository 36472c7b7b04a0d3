//! Standing conditions: events whose condition lasts until another event ends it, or an operator acknowledges
//! it, and that no current status reveals.
//!
//! [`EventLog`](crate::event_log::EventLog) keeps such events for as long as they stand, across restarts.

use model::{Event, EventCode, EventSeverity, Problem, Severity, event};

/// Definition of a standing condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StandingCondition {
    /// Identity of the condition, together with its subject, whichever event started it.
    pub(crate) topic: EventCode,
    /// Events of the same subject that end it.
    pub(crate) ends: &'static [EventCode],
    /// True where an operator's acknowledgment ends it as well: no later event can prove that all is right again.
    pub(crate) by_hand: bool,
    state: &'static str,
    action: &'static str,
}

/// Returns the standing condition of an event code; `None` where the event has no lasting condition, or a
/// status reveals it.
pub(crate) fn of(code: EventCode) -> Option<StandingCondition> {
    let until = |ends, state, action| StandingCondition { topic: code, ends, by_hand: false, state, action };
    let by_hand = |ends, state, action| StandingCondition { by_hand: true, ..until(ends, state, action) };
    Some(match code {
        event::REBUILD_STOPPED => until(
            &[event::REBUILD_BEGAN, event::REBUILD_ENDED, event::POOL_WHOLE],
            "not rebuilt",
            "see blockyard pool show, and replace the disk that cannot be written or read",
        ),
        event::REBUILD_LATE => until(
            &[event::REBUILD_ENDED, event::REBUILD_STOPPED, event::POOL_WHOLE],
            "behind its rebuild deadline",
            "raise the rebuild rate with blockyard pool set, or wait",
        ),
        event::RESYNC_STOPPED => {
            until(&[event::RESYNC_ENDED], "not resynced", "see blockyard pool show, and run blockyard pool scrub start")
        }
        event::SCRUB_FOUND => until(
            &[event::SCRUB_ENDED, event::SCRUB_HEALED],
            "damaged",
            "see blockyard pool scrub status, restore the lost data from a backup, and scrub the pool again",
        ),
        event::REDO_LOG_DAMAGED => by_hand(
            &[],
            "open without part of its redo log",
            "check the last writes of hosts against a backup, then run blockyard alert acknowledge",
        ),
        event::MEMBERSHIP_UNKEPT => by_hand(
            &[],
            "not protected against out-of-date disks",
            "check the disk of the state folder, then run blockyard alert acknowledge",
        ),
        event::UNFLUSHED_LOST => by_hand(
            &[],
            "missing unflushed writes",
            "check the file system on it, use blockyard volume set --write-policy through, then run blockyard alert acknowledge",
        ),
        event::RESHAPE_STOPPED => until(
            &[event::RESHAPE_BEGAN, event::RESHAPE_ENDED],
            "not reshaped",
            "see blockyard pool show, and replace the failed disk",
        ),
        event::RESHAPE_LATE => until(
            &[event::RESHAPE_ENDED, event::RESHAPE_STOPPED],
            "behind its reshape deadline",
            "raise the reshape rate with blockyard pool set, or wait",
        ),
        event::SANITIZE_BEGAN => until(
            &[event::SANITIZE_ENDED, event::SANITIZE_FAILED],
            "being sanitized",
            "wait: it is offline until the sanitize has finished",
        ),
        event::SANITIZE_FAILED => until(
            &[event::SANITIZE_BEGAN, event::SANITIZE_ENDED],
            "not sanitized",
            "send SANITIZE again from the host; the volume is offline until it succeeds",
        ),
        event::MEMORY_WRONG => {
            by_hand(&[], "affected by memory corruption", "run a memory test, then run blockyard alert acknowledge")
        }
        event::AUDIT_DAMAGED => by_hand(
            &[],
            "missing part of its audit log",
            "see blockyard audit verify, find who changed the files, then run blockyard alert acknowledge",
        ),
        _ => return None,
    })
}

/// Returns true for events that start a standing condition.
#[must_use]
pub fn is_standing(code: EventCode) -> bool {
    of(code).is_some()
}

/// Returns true for events whose condition an operator can acknowledge, if no event ends it before.
#[must_use]
pub fn waits_for_operator(code: EventCode) -> bool {
    of(code).is_some_and(|stands| stands.by_hand)
}

/// Converts a standing event to a problem.
pub(crate) fn problem(event: &Event, stands: &StandingCondition) -> Problem {
    Problem {
        severity: if event.severity == EventSeverity::Critical { Severity::Critical } else { Severity::Warning },
        subject: event.subject.to_string(),
        state: stands.state.to_owned(),
        meaning: event.message.clone(),
        action: stands.action.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_ends_it_is_no_bad_news_but_where_one_follows_the_other() {
        for entry in event::CATALOGUE {
            let Some(StandingCondition { topic, ends, by_hand, .. }) = of(entry.code) else { continue };
            assert!(by_hand || !ends.is_empty(), "{} would never end", entry.code);
            assert!(!ends.contains(&entry.code) && of(topic).is_some(), "{}", entry.code);
            assert!(entry.severity >= EventSeverity::Warning, "{}", entry.code);
        }
        let states: BTreeSet<&str> = event::CATALOGUE.iter().filter_map(|entry| Some(of(entry.code)?.state)).collect();
        assert_eq!(states.len(), event::CATALOGUE.iter().filter(|entry| of(entry.code).is_some()).count());
    }
}
