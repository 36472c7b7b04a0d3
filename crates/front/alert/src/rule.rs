//! Which events are alerts by themselves. What is wrong now is no event: it is looked at, also where only an event has told of it
//! ([`Status::conditions`](control::Status::conditions)).

use model::{EventCode, EventSeverity, event};

/// What an event has to do with alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Something has happened and is over; it is news again after a day without it.
    Passing,
    /// It is news only once it has happened so often in an hour.
    Often(u64),
    /// What is so is looked at, or somebody has wanted it so.
    Not,
}

/// What the event has to do with alerts. One that this version does not know is news.
pub(crate) fn of(code: EventCode) -> Rule {
    match code {
        // The state of pools, disks, logs, portals and the console is looked at.
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
        // An operator or a host has wanted it.
        | event::RESERVATIONS_CLEARED
        | event::LOG_GIVEN_UP => Rule::Not,
        event::LOGIN_REFUSED => Rule::Often(10),
        other if control::stands(other) || other.severity() == EventSeverity::Info => Rule::Not,
        _ => Rule::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_critical_is_looked_at() {
        // The table of critical events in control says where each of them stands in the status.
        for entry in event::CATALOGUE.iter().filter(|entry| entry.severity == EventSeverity::Critical) {
            assert_eq!(of(entry.code), Rule::Not, "{} would be over when it has happened", entry.code);
        }
    }
}
