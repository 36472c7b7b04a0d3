//! Whose turn it is on a shard, what it may do before others have theirs, and whether somebody waits for it.
//!
//! A host that keeps some commands under way in one session and a target that answers them all at once work in turn: while the one works the other
//! sleeps, and each has to be woken. Where the first answers leave before the others, both work at once (docs/performance.md).
//! Of several busy sessions each has something to do while the other side works on another, and answering in parts only costs more turns.
//! There it matters that a session with much to do lets the others in soon: its turn is bounded in time, in PDUs and in bytes.

use crate::nexus::SessionId;
use shard::Time;
use std::cell::Cell;
use std::time::Duration;

/// Whoever had the shard for so long is the only busy one: others would have had a turn meanwhile.
const ALONE: Duration = Duration::from_millis(2);
/// A turn that took so long ends with the round that is under way.
const SHARE: Duration = Duration::from_micros(50);
/// PDUs that are answered before the others that came with them, where somebody waits for that.
const FIRST_PDUS: usize = 8;
/// PDUs of a connection that one round handles: their answers are one send.
const PDUS: usize = 64;
/// Bytes that one round sends on a connection while others wait. With half of it, several sessions that read long have a fifth less (docs/performance.md).
const BYTES_BESIDE_OTHERS: usize = 1 << 20;

/// The turns of one shard.
#[derive(Debug, Default)]
pub struct Turns {
    /// Who had the last turns, and since when.
    latest: Cell<Option<(SessionId, Time)>>,
    rests: Cell<u64>,
}

/// The turn of one session: rounds until it is over or nothing is left to do.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    end: Time,
    is_alone: bool,
    /// Its host most likely sleeps until it is answered.
    is_awaited: bool,
}

impl Turns {
    /// `session` has its turn from now on, on a shard that has rested so often ([`shard::World::rests`]). Whoever has not logged in has no session.
    pub fn begin(&self, session: Option<SessionId>, now: Time, rests: u64) -> Turn {
        let is_alone = session.is_some_and(|session| self.was_alone(session, now));
        let has_slept = session.is_some() && self.rests.replace(rests) != rests;
        Turn { end: now + SHARE, is_alone, is_awaited: is_alone && has_slept }
    }

    /// True when no other session had a turn of late.
    fn was_alone(&self, session: SessionId, now: Time) -> bool {
        match self.latest.get() {
            Some((latest, since)) if latest == session => now.since(since) >= ALONE,
            _ => {
                self.latest.set(Some((session, now)));
                false
            }
        }
    }
}

impl Turn {
    /// True when others shall have their turn.
    pub fn is_over(&self, now: Time) -> bool {
        now >= self.end
    }

    /// How many PDUs of a connection the next round may handle: only the first of a turn is for a host that waits.
    pub fn take_pdus(&mut self) -> usize {
        if std::mem::take(&mut self.is_awaited) { FIRST_PDUS } else { PDUS }
    }

    /// How many bytes a round may send on a connection.
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
        let turns = Turns::default();
        let pdus: Vec<usize> = (1..=4).map(|turn| turns.begin(Some(ONE), at(turn), turn).take_pdus()).collect();
        assert_eq!(pdus, [PDUS, PDUS, FIRST_PDUS, FIRST_PDUS]);
        assert_eq!(turns.begin(Some(ONE), at(5), 4).take_pdus(), PDUS, "the shard was busy since its last turn");
        let mut turn = turns.begin(Some(ONE), at(6), 5);
        assert_eq!([turn.take_pdus(), turn.take_pdus()], [FIRST_PDUS, PDUS]);
    }

    #[test]
    fn session_beside_a_busy_one_is_bounded_and_never_awaited() {
        let turns = Turns::default();
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
        let turn = Turns::default().begin(Some(ONE), at(1), 0);
        assert!(!turn.is_over(at(1)) && turn.is_over(at(1) + SHARE));
    }

    #[test]
    fn connection_that_has_not_logged_in_leaves_whose_turn_it_was() {
        let turns = Turns::default();
        turns.begin(Some(ONE), at(1), 0);
        assert_eq!(turns.begin(None, at(2), 1).bytes(), BYTES_BESIDE_OTHERS);
        assert_eq!(turns.begin(Some(ONE), at(4), 1).take_pdus(), FIRST_PDUS, "the rest is not forgotten");
    }
}
