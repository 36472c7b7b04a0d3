//! Deadlines of members that do not respond: a pure decision table, evaluated by the owner of the array.
//!
//! A member that neither completes nor fails operations must not stop the array, and one that is only slow must not
//! cost the array its redundancy. The age of a member's pending operations is compared with that of the others: when
//! all are silent, the cause is common to them (a controller, a switch, an overload), and failing one of them does
//! not help (ADR 24).

use shard::ResponseAge;
use std::time::Duration;

/// Upper bound of the read deadline of a member whose content is available elsewhere; also the deadline of a member
/// without which the array keeps redundancy.
pub const FIRST_DEADLINE: Duration = Duration::from_secs(1);
/// Lower bound of the read deadline: a short stall of a busy disk is no reason to read the others.
pub const READ_DEADLINE_MIN: Duration = Duration::from_millis(200);
/// Smallest deadline of a member with several paths: a lost path is noticed after up to 10 s.
const PATHS_DEADLINE: Duration = Duration::from_secs(15);
/// Factor by which a member must have been silent longer than the median of its neighbors.
const TIMES_OTHERS: u32 = 4;

/// Deadlines of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Reads are served from the other members after this.
    pub read: Duration,
    /// The member is failed after this where redundancy is left without it.
    pub first: Duration,
    /// The member is failed after this where no redundancy would be left without it.
    pub member: Duration,
}

impl Deadlines {
    /// Deadlines of a member whose read latency has the 99.9th percentile `p999`, with `member` as the final
    /// deadline.
    #[must_use]
    pub fn new(p999: Duration, member: Duration) -> Self {
        // Keeps the deadlines in their order, whatever the owner passes.
        let first = FIRST_DEADLINE.min(member);
        // Twice the percentile, so that only a read that is clearly late is repeated on the others.
        Self { read: (2 * p999).clamp(READ_DEADLINE_MIN, FIRST_DEADLINE), first, member }
    }

    /// Deadlines of a member that is being filled: it protects nothing yet, and filling it again would cost more than
    /// waiting.
    #[must_use]
    pub fn for_rebuild(self) -> Self {
        Self { first: self.member, ..self }
    }

    /// Deadlines of a member with several paths, which is silent during a path failover.
    #[must_use]
    pub fn with_paths(self) -> Self {
        Self { first: self.first.max(PATHS_DEADLINE), member: self.member.max(PATHS_DEADLINE), ..self }
    }
}

/// Decision about a member that does not respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Keep waiting.
    Wait,
    /// Report the member as late; reads are served from the others.
    Late,
    /// Fail the member.
    Fail,
}

/// Decides about a member from its own silence and that of the `others` in service.
///
/// *Shape*: `redundancy` is the number of further members that may fail once this one has; `None` where the array
/// needs the member, which is then never failed.
#[must_use]
pub fn judge(silence: ResponseAge, others: &[ResponseAge], redundancy: Option<u16>, deadlines: &Deadlines) -> Decision {
    let oldest = |silence: &ResponseAge| silence.read.max(silence.change);
    let owed = oldest(&silence);
    let limit = match redundancy {
        None => Duration::MAX,
        Some(0) => deadlines.member,
        Some(_) => deadlines.first,
    };
    // When nothing completes at all, a new operation must not restart the clock, so the time without progress counts,
    // too.
    let no_progress = silence.progress;
    let (usual_age, usual_no_progress) =
        (median(others.iter().map(oldest)), median(others.iter().map(|other| other.progress)));
    // Compared with the median: one other slow member must not protect this one.
    let is_alone = |own: Duration, usual: Duration| own >= usual.saturating_mul(TIMES_OTHERS);
    if owed >= limit && is_alone(owed, usual_age) || no_progress >= limit && is_alone(no_progress, usual_no_progress) {
        return Decision::Fail;
    }
    // Late is reported whatever the others do; failing a member needs the comparison.
    if owed >= FIRST_DEADLINE || no_progress >= FIRST_DEADLINE { Decision::Late } else { Decision::Wait }
}

/// Factors over the median latency of the neighbors at which a member becomes slow, and below which it is no longer.
const SLOW_TIMES: (u32, u32) = (8, 4);
/// A member with a mean latency below this is never slow.
const SLOW_MIN: Duration = Duration::from_millis(20);

/// Returns true if a member with a mean latency of `own` is slow compared with `others`; `was_slow` adds hysteresis.
#[must_use]
pub fn is_slow(own: Duration, others: &[Duration], was_slow: bool) -> bool {
    let times = if was_slow { SLOW_TIMES.1 } else { SLOW_TIMES.0 };
    // A single member has no neighbors to be compared with.
    !others.is_empty() && own >= SLOW_MIN && own >= median(others.iter().copied()).saturating_mul(times)
}

/// Median; of an even number the lower middle, and zero of none.
fn median(durations: impl Iterator<Item = Duration>) -> Duration {
    let mut all: Vec<Duration> = durations.collect();
    all.sort_unstable();
    // The lower middle: of two neighbors the quicker one counts.
    all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence(read_ms: u64, change_ms: u64, progress_ms: u64) -> ResponseAge {
        let [read, change, progress] = [read_ms, change_ms, progress_ms].map(Duration::from_millis);
        ResponseAge { read, change, progress }
    }

    fn judged(own: ResponseAge, others: &[ResponseAge], redundancy: Option<u16>) -> Decision {
        judge(own, others, redundancy, &Deadlines::new(Duration::ZERO, Duration::from_secs(8)))
    }

    #[test]
    fn member_fails_at_the_first_deadline_with_redundancy_left_and_at_its_own_without() {
        let idle = [ResponseAge::default(); 3];
        let table = [
            (silence(0, 900, 900), Some(1), Decision::Wait),
            (silence(0, 1_000, 1_000), Some(1), Decision::Fail),
            (silence(1_000, 0, 1_000), Some(1), Decision::Fail),
            (silence(0, 1_000, 1_000), Some(0), Decision::Late),
            (silence(0, 7_900, 7_900), Some(0), Decision::Late),
            (silence(0, 8_000, 8_000), Some(0), Decision::Fail),
            (silence(0, 3_600_000, 3_600_000), None, Decision::Late),
        ];
        for (own, redundancy, decision) in table {
            assert_eq!(judged(own, &idle, redundancy), decision, "{own:?} with {redundancy:?} to spare");
        }
    }

    #[test]
    fn new_write_to_a_silent_member_does_not_restart_the_deadline() {
        let own = silence(0, 100, 1_200);
        assert_eq!(judged(own, &[ResponseAge::default(); 3], Some(1)), Decision::Fail);
    }

    #[test]
    fn member_being_rebuilt_has_the_longer_deadline() {
        let deadlines = Deadlines::new(Duration::ZERO, Duration::from_secs(8)).for_rebuild();
        let judged = |ms| judge(silence(0, ms, ms), &[ResponseAge::default(); 3], Some(1), &deadlines);
        assert_eq!([1_000, 7_900, 8_000].map(judged), [Decision::Late, Decision::Late, Decision::Fail]);
    }

    #[test]
    fn slow_member_fails_unless_the_others_are_as_slow() {
        let own = silence(0, 2_000, 300);
        assert_eq!(judged(own, &[silence(0, 20, 20); 5], Some(1)), Decision::Fail);
        assert_eq!(judged(own, &[silence(0, 1_500, 200); 5], Some(1)), Decision::Late);
    }

    #[test]
    fn no_member_fails_when_all_are_silent() {
        let all = silence(9_000, 9_000, 9_000);
        assert_eq!(judged(all, &[all; 5], Some(1)), Decision::Late);
        // Two of six, at the same time.
        let two = [all, ResponseAge::default(), ResponseAge::default(), ResponseAge::default(), ResponseAge::default()];
        assert_eq!(judged(all, &two, Some(1)), Decision::Fail);
    }

    #[test]
    fn one_of_two_mirrors_fails_when_the_other_responds() {
        let own = silence(0, 8_000, 8_000);
        assert_eq!(judged(own, &[silence(0, 10, 10)], Some(0)), Decision::Fail);
        assert_eq!(judged(own, &[silence(0, 8_000, 8_000)], Some(0)), Decision::Late);
    }

    #[test]
    fn member_is_slow_compared_with_faster_members() {
        let ms = Duration::from_millis;
        assert!(is_slow(ms(80), &[ms(5), ms(10), ms(10)], false));
        assert!(!is_slow(ms(79), &[ms(5), ms(10), ms(10)], false));
        assert!(is_slow(ms(40), &[ms(5), ms(10), ms(10)], true), "it has to become much faster to be called fast");
        assert!(!is_slow(ms(39), &[ms(5), ms(10), ms(10)], true));
        assert!(!is_slow(ms(19), &[ms(1)], false), "what is fast enough is not slow");
        assert!(!is_slow(ms(500), &[], false), "nobody is slow alone");
    }

    #[test]
    fn read_deadline_follows_the_member_within_its_bounds() {
        let read = |ms| Deadlines::new(Duration::from_millis(ms), Duration::from_secs(8)).read.as_millis();
        assert_eq!([0, 100, 300, 500, 9_000].map(read), [200, 200, 600, 1_000, 1_000]);
    }
}
