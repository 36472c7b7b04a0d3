//! Disks that turn: the arm seeks, the platter turns until the data comes by, and then it passes the head.

use super::{Motion, Ticket};

/// So much of the time that something has waited counts as a shorter way to it, so that nothing waits for ever.
///
/// *Source*: the aged form of shortest access time first of Jacobson and Wilkes (HPL-CSP-91-7).
const AGE_WEIGHT: f64 = 0.03;

/// How a spindle is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanics {
    /// One turn.
    turn_ns: f64,
    /// The shortest seek, settling included.
    track_to_track_ns: f64,
    /// The longest. A seek over a part `d` of the stroke takes `track_to_track + (full - track_to_track) * sqrt(d)`: the arm speeds
    /// up for half of the way and slows down for the other; the mean over random places is at 8/15 of the difference.
    full_stroke_ns: f64,
    /// What a track holds, in the middle of the disk.
    track_bytes: u64,
    /// Commands among which the disk chooses the next (NCQ, tagged queueing).
    queue: usize,
    /// What the electronics take for a command.
    overhead_ns: f64,
}

/// 15,000 turns a minute: a mean seek of 3.3 ms, half a turn of 2 ms, 150 MB/s.
///
/// *Source*: Hitachi Ultrastar 15K450 specification 4.5.1 (typical reads 3.1 to 3.3 ms); Seagate Cheetah 15K.7 is of the same kind.
/// A random 4 KiB read takes 5.4 ms, as the 180 to 200 a second that arrays of 2008 to 2014 reckon with.
pub(super) const SAS_15K: Mechanics = Mechanics {
    turn_ns: 4e6,
    track_to_track_ns: 0.3e6,
    full_stroke_ns: 5.9e6,
    track_bytes: 600_000,
    queue: 64,
    overhead_ns: 0.05e6,
};

/// 7,200 turns a minute: a mean seek of 8.2 ms, half a turn of 4.17 ms, 132 MB/s.
///
/// *Source*: HGST Ultrastar 7K4000 specification 4.4.1 (typical 8.2 ms); Seagate Constellation ES.3 manual 4.1 (4.16 ms, 83 to 175 MB/s);
/// Constellation manual 5.2.1 (single track 0.5 ms). The queue is SATA's 32.
pub(super) const SATA: Mechanics = Mechanics {
    turn_ns: 25e6 / 3.0,
    track_to_track_ns: 0.5e6,
    full_stroke_ns: 14.9e6,
    track_bytes: 1_100_000,
    queue: 32,
    overhead_ns: 0.1e6,
};

/// A disk with one arm.
#[derive(Clone, Debug)]
pub(super) struct Spindle {
    mechanics: Mechanics,
    stroke_bytes: u64,
    /// The byte behind what passed the head last.
    head: u64,
    /// When the arm is free.
    free_at: u64,
    /// In the order of their submission.
    waiting: Vec<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    since: u64,
    motion: Motion,
}

impl Spindle {
    pub(super) fn new(mechanics: Mechanics, stroke_bytes: u64) -> Self {
        Self { mechanics, stroke_bytes: stroke_bytes.max(1), head: 0, free_at: 0, waiting: Vec::new() }
    }

    pub(super) fn submit(&mut self, now: u64, ticket: Ticket, motion: Motion) {
        self.waiting.push(Waiting { ticket, since: now, motion });
    }

    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// What the arm begins with no later than `now`, and when that ends.
    ///
    /// Of what waits when the arm is free, what is nearest in time goes first: that is what the disk's queue is for.
    pub(super) fn next(&mut self, now: u64) -> Option<(Ticket, u64)> {
        let first = self.waiting.first()?;
        let begin = self.free_at.max(first.since);
        if begin > now {
            return None;
        }
        let queued = self.waiting.iter().take(self.mechanics.queue).enumerate();
        let there = queued.filter(|(_, waiting)| waiting.since <= begin);
        let away = |waiting: &Waiting| {
            let (takes, age) = (self.end_of(begin, *waiting) - begin, begin - waiting.since);
            takes as f64 - age as f64 * AGE_WEIGHT
        };
        let nearest = there.min_by(|(_, one), (_, other)| away(one).total_cmp(&away(other)));
        let index = nearest.map_or(0, |(index, _)| index);
        let waiting = self.waiting.remove(index);
        let end = self.end_of(begin, waiting);
        (self.free_at, self.head) = (end, waiting.motion.offset + waiting.motion.bytes);
        Some((waiting.ticket, end))
    }

    /// When it ends that begins at `begin`.
    fn end_of(&self, begin: u64, waiting: Waiting) -> u64 {
        let (mechanics, motion) = (&self.mechanics, waiting.motion);
        let pass = motion.bytes as f64 / mechanics.track_bytes as f64 * mechanics.turn_ns;
        let follows = motion.offset == self.head;
        if follows && (waiting.since < self.free_at || !motion.write) {
            // It was known before the head had gone on; or the head has read on meanwhile, into the disk's buffer.
            let passed = self.free_at + pass as u64;
            return passed.max(begin + mechanics.overhead_ns as u64);
        }
        let away = motion.offset.abs_diff(self.head);
        // A gap within a track only turns by.
        let seek = if motion.offset >= self.head && away < mechanics.track_bytes {
            0.0
        } else {
            let part = (away as f64 / self.stroke_bytes as f64).min(1.0);
            mechanics.track_to_track_ns + (mechanics.full_stroke_ns - mechanics.track_to_track_ns) * part.sqrt()
        };
        let arrived = begin as f64 + mechanics.overhead_ns + seek;
        let angle = (arrived / mechanics.turn_ns).fract();
        let wanted = (motion.offset % mechanics.track_bytes) as f64 / mechanics.track_bytes as f64;
        let turn = (wanted - angle + 1.0).fract() * mechanics.turn_ns;
        (arrived + turn + pass) as u64
    }
}
