//! Lease of an owner: how long after its last heartbeat it may write.

use shard::Time;
use std::time::Duration;

/// Heartbeat interval: how often an owner renews its marks.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
/// Lease duration: an owner whose marks are older stops writing until they are renewed.
pub const LEASE: Duration = Duration::from_secs(5);
/// Observation time: an owner whose mark has not moved for this long no longer writes.
pub const WATCH: Duration = Duration::from_secs(6);
/// Maximum time that a write waits for a renewed lease. It is refused after that, so that every command ends
/// before its host times out.
pub const LEASE_WAIT_MAX: Duration = Duration::from_secs(20);

// An owner misses two heartbeats before it stops, and has stopped before another node considers it dead.
const _: () = assert!(2 * HEARTBEAT.as_millis() < LEASE.as_millis() && LEASE.as_millis() < WATCH.as_millis());

/// Lease of one claim.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// Start of the last heartbeat that reached every disk group.
    held: Time,
    revoked: bool,
}

/// Admission of a write to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Write permitted.
    Admitted,
    /// Lease expired: the write waits for a renewal.
    Wait,
    /// Pool lost to another node, or ownership unknown for too long.
    Refused,
}

impl Lease {
    /// Creates a lease that starts at `now`, with the claim.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { held: now, revoked: false }
    }

    /// Renews the lease from `began`, the start of a heartbeat that reached every group.
    pub fn renew(&mut self, began: Time) {
        // Heartbeats may overlap and end out of order; the lease never becomes shorter.
        self.held = self.held.max(began);
    }

    /// Revokes the lease: the pool belongs to another node. No heartbeat renews it.
    pub fn revoke(&mut self) {
        self.revoked = true;
    }

    /// Decides whether a write may go to a disk at `now`.
    #[must_use]
    pub fn admits(&self, now: Time) -> Admission {
        // From the start of the heartbeat: another node begins to watch after it has read the mark, which is later.
        let silent = now.since(self.held);
        // Waiting longer would exceed the command timeout of hosts.
        if self.revoked || silent >= LEASE + LEASE_WAIT_MAX {
            Admission::Refused
        } else if silent < LEASE {
            Admission::Admitted
        } else {
            Admission::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_admits_until_it_runs_out_and_refuses_when_patience_does() {
        let start = Time::default();
        let mut lease = Lease::new(start);
        let ms = Duration::from_millis(1);
        for (after, admission) in [
            (Duration::ZERO, Admission::Admitted),
            (LEASE - ms, Admission::Admitted),
            (LEASE, Admission::Wait),
            (LEASE + LEASE_WAIT_MAX - ms, Admission::Wait),
            (LEASE + LEASE_WAIT_MAX, Admission::Refused),
        ] {
            assert_eq!(lease.admits(start + after), admission, "{after:?} after the heartbeat");
        }
        lease.renew(start + LEASE + LEASE_WAIT_MAX);
        assert_eq!(lease.admits(start + LEASE + LEASE_WAIT_MAX), Admission::Admitted, "a heartbeat opens it again");
        lease.renew(start);
        assert_eq!(
            lease.admits(start + LEASE + LEASE_WAIT_MAX),
            Admission::Admitted,
            "one that began earlier takes nothing away"
        );
        lease.revoke();
        lease.renew(start + LEASE + LEASE_WAIT_MAX);
        assert_eq!(
            lease.admits(start + LEASE + LEASE_WAIT_MAX),
            Admission::Refused,
            "nothing renews one that was revoked"
        );
    }
}
