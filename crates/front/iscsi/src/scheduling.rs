//! Fair scheduling of the sessions of a shard: quantum of a session in time, PDUs and bytes, and early first responses
//! for a host that sleeps.
//!
//! With a single busy session, host and target alternate: a host that keeps a fixed number of commands in flight sleeps
//! while a target works that answers all of them at once, and the reverse, and each wake-up costs latency. If the first
//! responses are sent before the rest is processed, both sides work concurrently (docs/performance.md).
//!
//! With several busy sessions each side always has work, and partial responses only cost additional rounds. In this
//! case it matters that a session with a deep queue yields soon: its quantum is bounded in time, in PDUs and in bytes.

use crate::nexus::SessionId;
use shard::Time;
use std::cell::Cell;
use std::time::Duration;

/// Minimum time for which a session must be the only active one of its shard to count as alone: another busy session
/// would have run in between.
const ALONE: Duration = Duration::from_millis(2);
/// Quantum: a session that has run for this long yields after its current round.
const QUANTUM: Duration = Duration::from_micros(50);
/// PDUs that are answered ahead of the rest of a batch when the host is likely to sleep until it receives a response.
const FIRST_PDUS: usize = 8;
/// Upper bound of PDUs of one connection that a round handles. Their responses leave in one send.
const PDUS: usize = 64;
/// Upper bound of bytes that a round sends on one connection while other sessions are active. With half of it, several
/// sessions with large reads have 20 % less throughput (docs/performance.md).
const BYTES_BESIDE_OTHERS: usize = 1 << 20;

/// Scheduling state of one shard.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Session that ran last, and the start of its uninterrupted series of quanta.
    latest: Cell<Option<(SessionId, Time)>>,
    /// Sleep count of the shard at the start of the latest quantum, from [`shard::World::idle_count`].
    rests: Cell<u64>,
}

/// Quantum of one session: rounds until the time is used up or no work is left.
#[derive(Debug, Clone, Copy)]
pub struct Quantum {
    /// End of the quantum.
    end: Time,
    /// True when no other session was active recently.
    is_alone: bool,
    /// True when the host most likely sleeps until it receives a response.
    is_awaited: bool,
}

impl Scheduler {
    /// Starts a quantum of `session`. `rests` counts how often the shard has slept ([`shard::World::idle_count`]). A
    /// connection that has not logged in has no session.
    pub fn begin(&self, session: Option<SessionId>, now: Time, rests: u64) -> Quantum {
        let is_alone = session.is_some_and(|session| self.was_alone(session, now));
        // The shard slept since the latest quantum, so no request was in transit and the host most likely waits for
        // responses.
        // Recorded only for a session, so that a login does not hide a sleep from it.
        let has_slept = session.is_some() && self.rests.replace(rests) != rests;
        // Both conditions are required: partial responses cost several busy sessions up to a third of their IOPS.
        Quantum { end: now + QUANTUM, is_alone, is_awaited: is_alone && has_slept }
    }

    /// True when no other session had a quantum in the last [`ALONE`].
    fn was_alone(&self, session: SessionId, now: Time) -> bool {
        match self.latest.get() {
            // `since` is the start of the series, not the time of the latest quantum.
            Some((latest, since)) if latest == session => now.since(since) >= ALONE,
            // Another session ran in between: the series starts over.
            _ => {
                self.latest.set(Some((session, now)));
                false
            }
        }
    }
}

impl Quantum {
    /// True when the session must yield to the others.
    pub fn is_over(&self, now: Time) -> bool {
        now >= self.end
    }

    /// Returns the number of PDUs of a connection that the next round may handle: a small number in the first round for
    /// a host that is likely to sleep, `PDUS` in all others.
    pub fn take_pdus(&mut self) -> usize {
        // Only the first round of a quantum is short.
        if std::mem::take(&mut self.is_awaited) { FIRST_PDUS } else { PDUS }
    }

    /// Returns the number of bytes that a round may send on a connection.
    pub fn bytes(&self) -> usize {
        if self.is_alone { usize::MAX } else { BYTES_BESIDE_OTHERS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    fn at(ms: u64) -> Time {
        Time::default() + Duration::from_millis(ms)
    }

    #[test]
    fn session_that_is_alone_is_awaited_when_the_shard_has_slept() {
        let turns = Scheduler::default();
        let pdus: Vec<usize> = (1..=4).map(|turn| turns.begin(Some(ONE), at(turn), turn).take_pdus()).collect();
        assert_eq!(pdus, [PDUS, PDUS, FIRST_PDUS, FIRST_PDUS]);
        assert_eq!(turns.begin(Some(ONE), at(5), 4).take_pdus(), PDUS, "the shard was busy since its last turn");
        let mut turn = turns.begin(Some(ONE), at(6), 5);
        assert_eq!([turn.take_pdus(), turn.take_pdus()], [FIRST_PDUS, PDUS]);
    }

    #[test]
    fn session_beside_a_busy_one_is_bounded_and_never_awaited() {
        let turns = Scheduler::default();
        for turn in 0..40u64 {
            let whose = if turn.is_multiple_of(2) { OTHER } else { ONE };
            let mut turn = turns.begin(Some(whose), at(turn), turn);
            assert_eq!((turn.take_pdus(), turn.bytes()), (PDUS, BYTES_BESIDE_OTHERS));
        }
        assert_eq!(turns.begin(Some(ONE), at(40), 40).bytes(), BYTES_BESIDE_OTHERS, "the other may be about to come");
        assert_eq!(turns.begin(Some(ONE), at(41), 41).bytes(), usize::MAX);
    }

    #[test]
    fn turn_is_over_when_it_took_its_share() {
        let turn = Scheduler::default().begin(Some(ONE), at(1), 0);
        assert!(!turn.is_over(at(1)) && turn.is_over(at(1) + QUANTUM));
    }

    #[test]
    fn connection_that_has_not_logged_in_leaves_whose_turn_it_was() {
        let turns = Scheduler::default();
        turns.begin(Some(ONE), at(1), 0);
        assert_eq!(turns.begin(None, at(2), 1).bytes(), BYTES_BESIDE_OTHERS);
        assert_eq!(turns.begin(Some(ONE), at(4), 1).take_pdus(), FIRST_PDUS, "the rest is not forgotten");
    }
}
