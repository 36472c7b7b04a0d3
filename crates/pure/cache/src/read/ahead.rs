//! Read-ahead: detection of sequential readers, and the window to prefetch for each.

use crate::policy::ReadAhead;
use block::PAGE_BYTES;
use std::ops::Range;

/// Sequential streams that are tracked at a time.
const STREAMS: usize = 16;
/// Distance from the expected position within which a read still belongs to a stream: commands may overtake each
/// other.
const SLACK_BYTES: u64 = 128 << 10;
const WINDOW_PAGES_MIN: u64 = (64 << 10) / PAGE_BYTES as u64;
const WINDOW_PAGES_MAX: u64 = (4 << 20) / PAGE_BYTES as u64;

/// Cache conditions that bound the read-ahead.
pub(super) struct AheadBounds {
    /// Upper bound of pages prefetched for one stream.
    pub(super) room_pages: u64,
    /// Pages prefetched and evicted unread since the last call.
    pub(super) wasted_pages: u64,
}

/// Sequential streams of one volume.
#[derive(Debug)]
pub(super) struct Ahead {
    policy: ReadAhead,
    streams: Vec<Stream>,
    turn: u64,
    /// Upper bound of every window; halved when prefetched pages are evicted unread, grown when they are used.
    ceiling_pages: u64,
}

#[derive(Clone, Debug)]
struct Stream {
    /// Byte behind the last one read.
    next: u64,
    /// Number of reads that advanced `next`.
    steps: u32,
    /// First page not prefetched yet.
    fetched: u64,
    window_pages: u64,
    turn: u64,
}

impl Ahead {
    pub(super) fn new(policy: ReadAhead) -> Self {
        // Starts with a quarter, until streams show that they use more.
        Self { policy, streams: Vec::new(), turn: 0, ceiling_pages: WINDOW_PAGES_MAX / 4 }
    }

    pub(super) fn set_policy(&mut self, policy: ReadAhead) {
        // Streams start anew: their windows were sized by the old policy.
        *self = Self::new(policy);
    }

    pub(super) fn is_off(&self) -> bool {
        matches!(self.policy, ReadAhead::Off | ReadAhead::Fixed { bytes: 0 })
    }

    /// Records a read of `bytes` on a volume of `pages` pages, and returns the pages to prefetch now. `room` is
    /// called only if there may be some.
    pub(super) fn observe(&mut self, bytes: Range<u64>, pages: u64, room: impl FnOnce() -> AheadBounds) -> Range<u64> {
        self.turn += 1;
        // Every read that continues no stream may be the first of a new one.
        let Some(at) = self.follow(&bytes) else {
            self.begin(bytes.end);
            return 0..0;
        };
        let stream = &mut self.streams[at];
        stream.turn = self.turn;
        // A repeated or late read; it does not advance the stream.
        if bytes.end <= stream.next {
            return 0..0;
        }
        stream.next = bytes.end;
        stream.steps += 1;
        // Two reads in sequence may be chance; the third starts read-ahead.
        if stream.steps < 2 {
            return 0..0;
        }
        // Asked late: computing it costs more than most reads need.
        let room = room();
        if room.wasted_pages > 0 {
            self.ceiling_pages = (self.ceiling_pages / 2).max(WINDOW_PAGES_MIN);
        }
        let adaptive = self.policy == ReadAhead::Adaptive;
        let ceiling = match self.policy {
            ReadAhead::Fixed { bytes } => u64::from(bytes).div_ceil(PAGE_BYTES as u64),
            _ => self.ceiling_pages,
        };
        // No more than the cache can hold beside the hot set.
        let ceiling = ceiling.min(room.room_pages);
        if ceiling == 0 {
            return 0..0;
        }
        let stream = &mut self.streams[at];
        let here = bytes.end / PAGE_BYTES as u64;
        // A reader that overtook its window must not fetch what it has read already.
        stream.fetched = stream.fetched.max(here);
        let window = if adaptive { stream.window_pages.min(ceiling) } else { ceiling };
        // Refill when half of the window is used, so that fetches are few and large.
        if stream.fetched - here > window / 2 {
            return 0..0;
        }
        let from = stream.fetched.min(pages);
        // Neither behind the end of the device, nor before the pages that are fetched already.
        stream.fetched = (here + window).clamp(from, pages.max(from));
        // The window doubles with each refill.
        if adaptive {
            stream.window_pages = (window * 2).min(WINDOW_PAGES_MAX);
            // Grows slower than it is halved, so that waste ends quickly.
            self.ceiling_pages = (self.ceiling_pages + window / 8).min(WINDOW_PAGES_MAX);
        }
        assert!(self.streams[at].fetched <= pages, "nothing is read ahead behind the end of the device");
        from..self.streams[at].fetched
    }

    /// Finds the stream that a read of `bytes` continues: the one with the nearest position.
    fn follow(&self, bytes: &Range<u64>) -> Option<usize> {
        let near = self.streams.iter().enumerate().map(|(at, stream)| (bytes.start.abs_diff(stream.next), at));
        near.filter(|&(distance, _)| distance <= SLACK_BYTES).min().map(|(_, at)| at)
    }

    fn begin(&mut self, next: u64) {
        let stream = Stream { next, steps: 0, fetched: 0, window_pages: WINDOW_PAGES_MIN * 2, turn: self.turn };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
        // The least recently used stream makes room.
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.turn) {
            *oldest = stream;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 1 << 20;

    fn room(wasted_pages: u64) -> AheadBounds {
        AheadBounds { room_pages: PAGES, wasted_pages }
    }

    /// Reads 8 KiB at each of `places`; returns the ranges that were prefetched.
    fn run(ahead: &mut Ahead, places: impl IntoIterator<Item = u64>, pages: u64) -> Vec<Range<u64>> {
        let fetches = places.into_iter().map(|at| ahead.observe(at..at + 8192, pages, || room(0)));
        fetches.filter(|range| !range.is_empty()).collect()
    }

    #[test]
    fn ahead_follows_several_streams_and_leaves_no_gap_in_any() {
        let mut ahead = Ahead::new(ReadAhead::Adaptive);
        let mut ends = [0; 3];
        for step in 0..2000 {
            for (reader, end) in ends.iter_mut().enumerate() {
                let at = ((reader as u64) << 30) + step * 8192;
                for range in run(&mut ahead, [at], PAGES) {
                    let here = (at + 8192) / 4096;
                    assert!(*end == 0 || range.start == (*end).max(here), "{range:?} behind {end}");
                    *end = range.end;
                }
            }
        }
        let windows: Vec<u64> = ends.iter().map(|end| (end & ((1 << 18) - 1)) - 4000).collect();
        assert!(windows.iter().all(|&pages| pages >= 256), "a stream that uses it gets more: {windows:?}");
    }

    #[test]
    fn ahead_prefetches_nothing_for_random_reads() {
        let mut ahead = Ahead::new(ReadAhead::Adaptive);
        let places = (0..1000_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (PAGES * 4096)) & !8191);
        assert_eq!(run(&mut ahead, places, PAGES), []);
    }

    #[test]
    fn ahead_ends_with_the_device() {
        let mut ahead = Ahead::new(ReadAhead::Fixed { bytes: 1 << 20 });
        let fetched = run(&mut ahead, (0..50).map(|n| n * 8192), 101);
        assert_eq!(fetched.last().map(|range| range.end), Some(101));
        assert!(fetched.iter().all(|range| range.end <= 101));
    }

    #[test]
    fn ahead_that_is_wasted_shrinks_and_grows_again_with_use() {
        let mut ahead = Ahead::new(ReadAhead::Adaptive);
        let widest = |fetched: &[Range<u64>]| fetched.iter().map(|range| range.end - range.start).max().unwrap();
        let before = widest(&run(&mut ahead, (0..400).map(|n| n * 8192), PAGES));
        for n in 400..410 {
            let _ = ahead.observe(n * 8192..(n + 1) * 8192, PAGES, || room(1));
        }
        let after = widest(&run(&mut ahead, (410..1200).map(|n| n * 8192), PAGES)[..1]);
        assert!(after * 4 < before, "{after} after waste, {before} before");
        let again = widest(&run(&mut ahead, (1200..20_000).map(|n| n * 8192), PAGES));
        assert!(again >= before, "{again} in the end, {before} before");
    }
}
