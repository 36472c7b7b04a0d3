//! Latency model of rotating disks: seek, rotational delay, transfer.

use super::{OperationHandle, Transfer};

/// Weight of the waiting time in the choice of the next operation: aging that prevents starvation.
///
/// *Source*: the aged form of shortest access time first of Jacobson and Wilkes (HPL-CSP-91-7).
const AGE_WEIGHT: f64 = 0.03;

/// Parameters of a rotating disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanics {
    /// Duration of one revolution.
    turn_ns: f64,
    /// Shortest seek, settling included.
    track_to_track_ns: f64,
    /// Longest seek. A seek over a part `d` of the stroke takes `track_to_track + (full - track_to_track) * sqrt(d)`:
    /// the arm accelerates for half of the way and decelerates for the other; the mean over random addresses is at 8/15
    /// of the difference.
    full_stroke_ns: f64,
    /// Capacity of a track in the middle of the disk.
    track_bytes: u64,
    /// Queue depth: commands among which the disk chooses the next (NCQ, tagged queueing).
    queue: usize,
    /// Overhead of the electronics per command.
    overhead_ns: f64,
}

/// 15,000 rpm: a mean seek of 3.3 ms, half a revolution of 2 ms, 150 MB/s.
///
/// *Source*: Hitachi Ultrastar 15K450 specification 4.5.1 (typical reads 3.1 to 3.3 ms); Seagate Cheetah 15K.7 is
/// similar. A random 4 KiB read takes 5.4 ms, which matches the usual sizing rule of 180 to 200 IOPS of 2008 to 2014.
pub(super) const SAS_15K: Mechanics = Mechanics {
    turn_ns: 4e6,
    track_to_track_ns: 0.3e6,
    full_stroke_ns: 5.9e6,
    track_bytes: 600_000,
    queue: 64,
    overhead_ns: 0.05e6,
};

/// 7,200 rpm: a mean seek of 8.2 ms, half a revolution of 4.17 ms, 132 MB/s.
///
/// *Source*: HGST Ultrastar 7K4000 specification 4.4.1 (typical 8.2 ms); Seagate Constellation ES.3 manual 4.1 (4.16
/// ms, 83 to 175 MB/s); Constellation manual 5.2.1 (single track 0.5 ms). The queue is SATA's 32.
pub(super) const SATA: Mechanics = Mechanics {
    turn_ns: 25e6 / 3.0,
    track_to_track_ns: 0.5e6,
    full_stroke_ns: 14.9e6,
    track_bytes: 1_100_000,
    queue: 32,
    overhead_ns: 0.1e6,
};

/// Rotating disk with one actuator arm.
#[derive(Clone, Debug)]
pub(super) struct Spindle {
    mechanics: Mechanics,
    stroke_bytes: u64,
    /// Position of the head: the byte after the last transfer.
    head: u64,
    /// Time at which the arm becomes free.
    free_at: u64,
    /// Queue in order of submission.
    waiting: Vec<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: OperationHandle,
    since: u64,
    motion: Transfer,
}

impl Spindle {
    pub(super) fn new(mechanics: Mechanics, stroke_bytes: u64) -> Self {
        // Never zero: seek distances are divided by the stroke.
        Self { mechanics, stroke_bytes: stroke_bytes.max(1), head: 0, free_at: 0, waiting: Vec::new() }
    }

    pub(super) fn submit(&mut self, now: u64, ticket: OperationHandle, motion: Transfer) {
        self.waiting.push(Waiting { ticket, since: now, motion });
    }

    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Takes the operation that the arm starts no later than `now`, with its completion time.
    ///
    /// Of the operations that are queued when the arm becomes free, the one with the shortest access time goes first,
    /// less [`AGE_WEIGHT`] of its waiting time.
    pub(super) fn next(&mut self, now: u64) -> Option<(OperationHandle, u64)> {
        let first = self.waiting.first()?;
        let begin = self.free_at.max(first.since);
        if begin > now {
            return None;
        }
        // The disk chooses among the commands in its queue; further ones wait in the host.
        let queued = self.waiting.iter().take(self.mechanics.queue).enumerate();
        // What arrives after the arm has started is not a candidate, although the caller already knows it.
        let there = queued.filter(|(_, waiting)| waiting.since <= begin);
        let away = |waiting: &Waiting| {
            let (takes, age) = (self.end_of(begin, *waiting) - begin, begin - waiting.since);
            // Shortest positioning time first, reduced by the age so that no operation starves.
            takes as f64 - age as f64 * AGE_WEIGHT
        };
        let nearest = there.min_by(|(_, one), (_, other)| away(one).total_cmp(&away(other)));
        // Never empty: `begin` is not before the submission of the first command.
        let index = nearest.map_or(0, |(index, _)| index);
        let waiting = self.waiting.remove(index);
        let end = self.end_of(begin, waiting);
        (self.free_at, self.head) = (end, waiting.motion.offset + waiting.motion.bytes);
        Some((waiting.ticket, end))
    }

    /// Returns the completion time of an operation that starts at `begin`.
    fn end_of(&self, begin: u64, waiting: Waiting) -> u64 {
        let (mechanics, motion) = (&self.mechanics, waiting.motion);
        // Transfer time: the part of a revolution that the data occupies.
        let pass = motion.bytes as f64 / mechanics.track_bytes as f64 * mechanics.turn_ns;
        let follows = motion.offset == self.head;
        if follows && (waiting.since < self.free_at || !motion.write) {
            // Sequential: queued before the head moved on, or already in the read-ahead buffer of the disk. No seek, no
            // rotation.
            let passed = self.free_at + pass as u64;
            // The electronics bound each command, even when its data is in the buffer already.
            return passed.max(begin + mechanics.overhead_ns as u64);
        }
        let away = motion.offset.abs_diff(self.head);
        // A gap within the track needs no seek, only rotation.
        let seek = if motion.offset >= self.head && away < mechanics.track_bytes {
            0.0
        } else {
            // The seek time grows with the square root of the distance.
            let part = (away as f64 / self.stroke_bytes as f64).min(1.0);
            mechanics.track_to_track_ns + (mechanics.full_stroke_ns - mechanics.track_to_track_ns) * part.sqrt()
        };
        let arrived = begin as f64 + mechanics.overhead_ns + seek;
        // Angles are fractions of a revolution: the position of the platter at `arrived`, and that of the data.
        let angle = (arrived / mechanics.turn_ns).fract();
        let wanted = (motion.offset % mechanics.track_bytes) as f64 / mechanics.track_bytes as f64;
        // One more revolution keeps the fraction positive when the data lies behind the head.
        let turn = (wanted - angle + 1.0).fract() * mechanics.turn_ns;
        (arrived + turn + pass) as u64
    }
}
