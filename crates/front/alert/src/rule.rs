//! Rules that select the events which are alerts by themselves. Conditions are not taken from events, but evaluated
//! ([`Status::conditions`](control::Status::conditions)), also where only an event has reported them.

use model::{EventCode, EventSeverity, event};

/// Relation of an event to alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An alert about something that is over; a new one after a day without it.
    Passing,
    /// An alert only after this number of occurrences in an hour.
    Often(u64),
    /// No alert: its condition is evaluated, or an operator has caused it.
    Not,
}

/// Returns the rule of an event. An event that this version does not know is an alert.
pub(crate) fn of(code: EventCode) -> Rule {
    match code {
        // The state of pools, disks, logs, portals and the console is evaluated.
        event::DISK_FAILED
        | event::DISK_MISSING
        | event::DISK_LEFT_OUT
        | event::DISK_WEARS
        | event::DISK_FAILING
        | event::DISK_STALLED
        | event::DISK_BEHIND
        | event::DISK_SLOW
        | event::PATH_LOST
        | event::FILE_SYSTEM_FULL
        | event::SPARE_NONE
        | event::LOG_FAILED
        | event::LOG_LOST
        | event::BLOCKS_LOST
        | event::VOLUME_HELD
        | event::POOL_DEGRADED
        | event::POOL_FAILED
        | event::POOL_FILLING
        | event::POOL_FULL
        | event::WRITE_REFUSED
        | event::POOL_UNOPENED
        | event::POOL_READ_ONLY
        | event::POOL_FENCED
        | event::PORTAL_UNUSABLE
        | event::PORTAL_LINK_DOWN
        | event::ISNS_FAILED
        | event::WEB_UNUSABLE
        | event::CERTIFICATE_WRONG
        | event::CERTIFICATE_ENDS
        | event::RECEIVER_AWAY
        | event::AUDIT_UNWRITABLE
        | event::MEMORY_SHORT
        | event::MEMORY_REDUCED
        | event::DESCRIPTORS_SHORT
        | event::STATE_OLDER
        | event::STATE_REPLACED
        | event::TARGET_NAME_TAKEN
        // Caused by an operator or a host on purpose.
        | event::RESERVATIONS_CLEARED
        | event::LOG_GIVEN_UP => Rule::Not,
        event::LOGIN_REFUSED => Rule::Often(10),
        // Conditions that stand until they are acknowledged are evaluated as well.
        other if control::is_standing(other) || other.severity() == EventSeverity::Info => Rule::Not,
        _ => Rule::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_critical_is_looked_at() {
        // The table of critical events in `control` maps each of them to a part of the status.
        for entry in event::CATALOGUE.iter().filter(|entry| entry.severity == EventSeverity::Critical) {
            assert_eq!(of(entry.code), Rule::Not, "{} would be over when it has happened", entry.code);
        }
    }
}
