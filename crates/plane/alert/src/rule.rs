//! Which events are alerts, and when what they tell of has ended.

use model::{EventCode, EventSeverity, event};

/// What an event has to do with alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Something is so until one of these happens to the same subject.
    Until {
        /// Under which code it is one alert with others.
        topic: EventCode,
        /// What ends it.
        ends: &'static [EventCode],
    },
    /// Something has happened and is over; it is news again after a day without it.
    Passing,
    /// It is news only once it has happened so often in an hour.
    Often(u64),
    /// What is so is looked at by itself, or somebody has wanted it so.
    Not,
}

/// What the event has to do with alerts. One that this version does not know is news.
pub fn of(code: EventCode) -> Rule {
    let until = |topic, ends| Rule::Until { topic, ends };
    match code {
        // The state of pools, disks, logs, portals and the console is looked at.
        event::DISK_FAILED
        | event::DISK_MISSING
        | event::DISK_LEFT_OUT
        | event::DISK_WEARS
        | event::DISK_FAILING
        | event::FILE_SYSTEM_FULL
        | event::SPARE_NONE
        | event::LOG_FAILED
        | event::LOG_LOST
        | event::VOLUME_HELD
        | event::POOL_DEGRADED
        | event::POOL_FAILED
        | event::POOL_UNOPENED
        | event::POOL_READ_ONLY
        | event::POOL_FENCED
        | event::PORTAL_UNUSABLE
        | event::PORTAL_LINK_DOWN
        | event::WEB_UNUSABLE
        | event::CERTIFICATE_WRONG
        | event::MEMORY_SHORT
        | event::MEMORY_REDUCED
        | event::TARGET_NAME_TAKEN
        // An operator or a host has wanted it.
        | event::RESERVATIONS_CLEARED
        | event::LOG_GIVEN_UP => Rule::Not,
        event::REBUILD_STOPPED => until(code, &[event::REBUILD_ENDED, event::POOL_WHOLE]),
        event::REBUILD_LATE => until(code, &[event::REBUILD_ENDED, event::REBUILD_STOPPED, event::POOL_WHOLE]),
        event::RESYNC_STOPPED => until(code, &[event::RESYNC_ENDED]),
        event::SCRUB_FOUND => until(code, &[event::SCRUB_ENDED, event::SCRUB_HEALED]),
        event::RESHAPE_STOPPED => until(code, &[event::RESHAPE_BEGAN, event::RESHAPE_ENDED]),
        event::RESHAPE_LATE => until(code, &[event::RESHAPE_ENDED, event::RESHAPE_STOPPED]),
        event::POOL_FILLING | event::POOL_FULL => until(event::POOL_FILLING, &[event::POOL_RELIEVED]),
        event::ISNS_FAILED => until(code, &[event::ISNS_REGISTERED]),
        event::SANITIZE_BEGAN | event::SANITIZE_FAILED => until(event::SANITIZE_BEGAN, &[event::SANITIZE_ENDED]),
        event::RECEIVER_AWAY => until(code, &[event::RECEIVER_BACK]),
        event::LOGIN_REFUSED => Rule::Often(10),
        other if other.severity() == EventSeverity::Info => Rule::Not,
        _ => Rule::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_an_alert_is_no_alert_itself_and_good_news() {
        for entry in event::CATALOGUE {
            let Rule::Until { topic, ends } = of(entry.code) else { continue };
            assert!(!ends.is_empty() && !ends.contains(&entry.code), "{}", entry.code);
            assert!(matches!(of(topic), Rule::Until { .. }), "{} is one alert with {topic}", entry.code);
            assert!(entry.severity >= EventSeverity::Warning, "{}", entry.code);
        }
    }

    #[test]
    fn whatever_is_critical_is_told() {
        let shown = [
            event::DISK_FAILING,
            event::LOG_FAILED,
            event::LOG_LOST,
            event::VOLUME_HELD,
            event::POOL_FAILED,
            event::POOL_UNOPENED,
            event::POOL_FENCED,
            event::PORTAL_UNUSABLE,
            event::TARGET_NAME_TAKEN,
        ];
        for entry in event::CATALOGUE.iter().filter(|entry| entry.severity == EventSeverity::Critical) {
            assert!(of(entry.code) != Rule::Not || shown.contains(&entry.code), "{} would be lost", entry.code);
        }
    }
}
