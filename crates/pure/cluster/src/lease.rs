//! The lease of an owner: how long after its last heartbeat it may write.

use shard::Time;
use std::time::Duration;

/// How often an owner renews its marks.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
/// An owner whose marks are older does not write any more before they are renewed.
pub const LEASE: Duration = Duration::from_secs(5);
/// A mark that has not moved for so long is that of an owner who does not write any more.
pub const WATCH: Duration = Duration::from_secs(6);
/// How long a write waits for a lease to be renewed. Then it is refused: every command ends before its host gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

// An owner has missed two heartbeats before it stops, and has stopped before another node takes it for dead.
const _: () = assert!(2 * HEARTBEAT.as_millis() < LEASE.as_millis() && LEASE.as_millis() < WATCH.as_millis());

/// The lease of one claim.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// When the last heartbeat began that every disk group has heard.
    held: Time,
    revoked: bool,
}

/// Whether a write may go to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Admitted,
    /// Not now: the lease has run out, and may be renewed.
    Wait,
    /// The pool is another node's, or nobody can say whose it is.
    Refused,
}

impl Lease {
    /// A lease that begins at `now`, with the claim.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { held: now, revoked: false }
    }

    /// Renews the lease by a heartbeat that began at `began` and that every group has heard.
    pub fn renew(&mut self, began: Time) {
        self.held = self.held.max(began);
    }

    /// Ends the lease: the pool is another node's. No heartbeat renews it.
    pub fn revoke(&mut self) {
        self.revoked = true;
    }

    /// Whether a write may go to a disk at `now`.
    #[must_use]
    pub fn admits(&self, now: Time) -> Admission {
        let silent = now.since(self.held);
        if self.revoked || silent >= LEASE + PATIENCE {
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
            (LEASE + PATIENCE - ms, Admission::Wait),
            (LEASE + PATIENCE, Admission::Refused),
        ] {
            assert_eq!(lease.admits(start + after), admission, "{after:?} after the heartbeat");
        }
        lease.renew(start + LEASE + PATIENCE);
        assert_eq!(lease.admits(start + LEASE + PATIENCE), Admission::Admitted, "a heartbeat opens it again");
        lease.renew(start);
        assert_eq!(
            lease.admits(start + LEASE + PATIENCE),
            Admission::Admitted,
            "one that began earlier takes nothing away"
        );
        lease.revoke();
        lease.renew(start + LEASE + PATIENCE);
        assert_eq!(lease.admits(start + LEASE + PATIENCE), Admission::Refused, "nothing renews one that was revoked");
    }
}
