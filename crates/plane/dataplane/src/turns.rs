//! Whose turn it is on a shard, and whether somebody waits for it.
//!
//! A host that keeps some commands under way in one session and a target that answers them all at once work in turn: while the one works the other
//! sleeps, and each has to be woken. Where the first answers leave before the others, both work at once (docs/performance.md).
//! Of several busy sessions each has something to do while the other side works on another, and answering in parts only costs more turns.

use crate::registry::SessionId;
use shard::Time;
use std::cell::Cell;
use std::time::Duration;

/// Whoever had the shard for so long is the only busy one: others would have had a turn meanwhile.
const ALONE: Duration = Duration::from_millis(2);

/// The turns of one shard.
#[derive(Debug, Default)]
pub struct Turns {
    /// Who had the last turns, and since when.
    latest: Cell<Option<(SessionId, Time)>>,
    rests: Cell<u64>,
}

impl Turns {
    /// It is `session`'s turn, and the shard has rested so often ([`shard::World::rests`]). True when its host most likely sleeps until it is
    /// answered: the shard slept before this turn, and no other session had one of late.
    pub fn finds_it_waiting(&self, session: SessionId, now: Time, rests: u64) -> bool {
        let has_slept = self.rests.replace(rests) != rests;
        match self.latest.get() {
            Some((latest, since)) if latest == session => has_slept && now.since(since) >= ALONE,
            _ => {
                self.latest.set(Some((session, now)));
                false
            }
        }
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
    fn session_that_is_alone_is_found_waiting_when_the_shard_has_slept() {
        let turns = Turns::default();
        let found: Vec<bool> = (1..=4).map(|turn| turns.finds_it_waiting(ONE, at(turn), turn)).collect();
        assert_eq!(found, [false, false, true, true]);
        assert!(!turns.finds_it_waiting(ONE, at(5), 4), "the shard was busy since its last turn");
        assert!(turns.finds_it_waiting(ONE, at(6), 5));
    }

    #[test]
    fn session_beside_a_busy_one_is_never_found_waiting() {
        let turns = Turns::default();
        let whose = |turn: u64| if turn.is_multiple_of(2) { OTHER } else { ONE };
        assert!((1..40).all(|turn| !turns.finds_it_waiting(whose(turn), at(turn), turn)));
    }
}
