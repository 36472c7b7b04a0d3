//! Page store of the read cache: lookup, verification, insertion, removal and eviction of clean pages.
//!
//! Memory is held in *frames* of one to sixteen pages that arrived together, so a random read of 8 KiB holds 8 KiB
//! and a stream holds 64 KiB in one piece. A frame is a buffer of its own: evicting it frees the memory, and a reader
//! that is still sending it keeps just that buffer.

use super::index::{GROUP_PAGES, Index, place};
use super::queue::{QueueKind, Queues};
use crate::bug_injection::{InjectedBug, is_injected};
use crate::policy::{Check, Share};
use block::{Buf, PAGE_BYTES, Rope, View};
use simd::crc32c::crc32c;
use std::ops::Range;

/// Overhead of a frame, in bytes: its entry, and its part of the index and the queues.
const FRAME_BYTES: u64 = 256;
/// Upper bound of recycled buffers, in bytes.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// Counters of a volume in the read cache since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounters {
    /// Pages of 4 KiB that readers found.
    pub hit_pages: u64,
    /// Pages that readers had to wait for.
    pub miss_pages: u64,
    /// Reads that joined a fetch in flight.
    pub joined: u64,
    /// Pages evicted.
    pub evicted_pages: u64,
    /// Pages prefetched.
    pub ahead_pages: u64,
    /// Pages prefetched and evicted unread.
    pub ahead_wasted_pages: u64,
    /// Pages that failed their checksum.
    pub mismatches: u64,
    /// Bytes of memory in use.
    pub used_bytes: u64,
}

/// Frame entry; the fields that a hit of a small frame touches share one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Frame {
    data: View,
    first: u64,
    owner: u32,
    /// Bit mask of pages that the index still points to.
    live: u16,
    /// Bit mask of pages that a reader has requested.
    touched: u16,
    /// Number of pages; 0 for a dead frame.
    pages: u8,
    /// Number of repeated uses, at most 3.
    hits: u8,
    place: QueueKind,
    ahead: bool,
    guards: [u32; GROUP_PAGES as usize],
}

#[derive(Debug)]
struct Volume {
    share: Share,
    used: u64,
    queues: Queues,
    unchecked: u32,
    counters: ReadCounters,
}

/// Error: this cached page failed its checksum; it is dropped already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch(pub(super) u64);

#[derive(Debug)]
pub(super) struct Store {
    bytes_max: u64,
    used: u64,
    weights: u64,
    frames: Vec<Frame>,
    free: Vec<u32>,
    index: Index,
    volumes: Vec<Option<Volume>>,
    spare: [Vec<Buf>; GROUP_PAGES as usize + 1],
    spare_bytes: usize,
}

impl Store {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            used: 0,
            weights: 0,
            frames: Vec::new(),
            free: Vec::new(),
            index: Index::default(),
            volumes: Vec::new(),
            spare: Default::default(),
            spare_bytes: 0,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn counters(&self, owner: u32) -> ReadCounters {
        let volume = self.volume(owner);
        ReadCounters { used_bytes: volume.used, ..volume.counters }
    }

    pub(super) fn count(&mut self, owner: u32, change: impl FnOnce(&mut ReadCounters)) {
        change(&mut self.volume_mut(owner).counters);
    }

    pub(super) fn join(&mut self, share: Share) -> u32 {
        let volume =
            Volume { share, used: 0, queues: Queues::default(), unchecked: 0, counters: ReadCounters::default() };
        self.weights += u64::from(share.weight);
        let at = self.volumes.iter().position(Option::is_none).unwrap_or_else(|| {
            self.volumes.push(None);
            self.volumes.len() - 1
        });
        self.volumes[at] = Some(volume);
        u32::try_from(at).expect("a shard serves fewer than 2^32 volumes")
    }

    pub(super) fn leave(&mut self, owner: u32) {
        // The number may go to another volume, which must not find these pages.
        self.forget(owner);
        let volume = self.volumes[owner as usize].take().expect("a volume leaves once");
        assert_eq!(volume.used, 0, "a volume that leaves has nothing in the cache");
        self.weights -= u64::from(volume.share.weight);
    }

    pub(super) fn share(&self, owner: u32) -> Share {
        self.volume(owner).share
    }

    pub(super) fn set_share(&mut self, owner: u32, share: Share) {
        let old = std::mem::replace(&mut self.volume_mut(owner).share, share);
        self.weights = self.weights - u64::from(old.weight) + u64::from(share.weight);
        // Weight 0 disables caching, so everything is evicted.
        let bytes_max = if share.weight == 0 { 0 } else { share.bytes_max.unwrap_or(u64::MAX) };
        while self.volume(owner).used > bytes_max && self.evict(owner) {}
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        while self.used > bytes_max {
            let Some(owner) = self.most_over() else { return };
            if !self.evict(owner) {
                return;
            }
        }
    }

    /// Guaranteed memory of `owner`, in bytes.
    pub(super) fn entitlement(&self, owner: u32) -> u64 {
        let share = self.volume(owner).share;
        // In 128 bits, because the memory times a weight can exceed 64.
        let part = u128::from(self.bytes_max) * u128::from(share.weight) / u128::from(self.weights.max(1));
        u64::try_from(part).unwrap_or(u64::MAX).min(share.bytes_max.unwrap_or(u64::MAX))
    }

    pub(super) fn clear(&mut self) {
        for owner in 0..self.volumes.len() {
            if self.volumes[owner].is_some() {
                self.forget(owner as u32);
            }
        }
    }

    /// Drops every page of `owner`.
    pub(super) fn forget(&mut self, owner: u32) {
        // All frames are visited, because the index is never iterated.
        for at in 0..self.frames.len() {
            if self.frames[at].owner == owner && self.frames[at].pages > 0 {
                let first = self.frames[at].first;
                self.remove(owner, first..first + u64::from(self.frames[at].pages));
            }
        }
        self.sweep(owner);
    }

    /// True when the page is cached.
    pub(super) fn has(&self, owner: u32, page: u64) -> bool {
        self.index.frame(owner, page).is_some()
    }

    /// Appends cached pages from `pages.start` on to `rope`, up to the first gap; returns the page after the last.
    pub(super) fn take(&mut self, owner: u32, pages: Range<u64>, rope: &mut Rope) -> Result<u64, Mismatch> {
        // Decided once for each read, so a sampled check covers all of its pages.
        let check = self.checks(owner);
        let mut at = pages.start;
        while at < pages.end {
            let Some(group) = self.index.group(owner, at) else { break };
            let number = group[place(at)];
            // `NOWHERE` is not the number of a frame, so a missing page ends the run.
            let Some(frame) = self.frames.get_mut(number as usize) else { break };
            assert!(frame.owner == owner, "a page of a volume is in a frame of that volume");
            let from = (at - frame.first) as usize;
            let end = pages.end.min(frame.first + u64::from(frame.pages));
            let mut to = from + 1;
            // Pages of a frame may have been overwritten since and moved to another frame.
            while frame.first + (to as u64) < end && frame.live >> to & 1 == 1 {
                to += 1;
            }
            let bytes = from * PAGE_BYTES..to * PAGE_BYTES;
            if check && let Some(bad) = frame.mismatch(from..to) {
                let page = frame.first + bad as u64;
                // Dropped here, so that the caller's next lookup misses and reads it below.
                self.remove(owner, page..page + 1);
                self.count(owner, |counters| counters.mismatches += 1);
                return Err(Mismatch(page));
            }
            frame.touch(from..to);
            rope.push(frame.data.slice(bytes));
            at += (to - from) as u64;
        }
        Ok(at)
    }

    /// Marks pages as used by a reader that joined their fetch: the prefetch was not wasted.
    pub(super) fn touch(&mut self, owner: u32, pages: Range<u64>) {
        for page in pages {
            if let Some(number) = self.index.frame(owner, page) {
                let frame = &mut self.frames[number as usize];
                frame.touched |= 1 << (page - frame.first);
            }
        }
    }

    /// Inserts `pages` with the content of `rope`, as many as there is room for.
    pub(super) fn insert(&mut self, owner: u32, pages: Range<u64>, rope: &Rope, ahead: bool) {
        assert_eq!(rope.len() as u64, (pages.end - pages.start) * PAGE_BYTES as u64, "every page has its content");
        let mut at = pages.start;
        while at < pages.end {
            // A frame never crosses a group, so one index entry finds all of its pages.
            let end = pages.end.min((at / GROUP_PAGES + 1) * GROUP_PAGES);
            // An older frame may hold some of the pages.
            self.remove(owner, at..end);
            let bytes = (at - pages.start) as usize * PAGE_BYTES..(end - pages.start) as usize * PAGE_BYTES;
            // Without room the pages are left out; the reader has its data already.
            if self.make_room(owner, frame_bytes((end - at) as u8)) {
                let mut buf = self.buffer((end - at) as usize);
                rope.slice(bytes).copy_to(&mut buf);
                self.add(owner, at..end, buf, ahead);
            }
            at = end;
        }
    }

    /// Drops `pages`; true when one of them was cached.
    pub(super) fn remove(&mut self, owner: u32, pages: Range<u64>) -> bool {
        let mut found = false;
        let mut at = pages.start;
        while at < pages.end {
            // Skips a whole group that has no cached page.
            if self.index.group(owner, at).is_none() {
                at = (at / GROUP_PAGES + 1) * GROUP_PAGES;
                continue;
            }
            if let Some(number) = self.index.take(owner, at) {
                found = true;
                let frame = &mut self.frames[number as usize];
                frame.live &= !(1 << (at - frame.first));
                if frame.live == 0 {
                    self.kill(number);
                }
            }
            at += 1;
        }
        found
    }

    /// Flips one bit of a cached page, as faulty memory would; false when it is not cached.
    #[cfg(test)]
    pub(super) fn flip_bit(&mut self, owner: u32, page: u64) -> bool {
        let Some(number) = self.index.frame(owner, page) else { return false };
        let frame = &mut self.frames[number as usize];
        let at = (page - frame.first) as usize * PAGE_BYTES + 1234;
        match std::mem::take(&mut frame.data).try_into_buf() {
            Ok(mut buf) => {
                buf[at] ^= 4;
                frame.data = buf.freeze();
                true
            }
            // A reader holds the buffer; its bytes must not change.
            Err(data) => {
                frame.data = data;
                false
            }
        }
    }

    fn checks(&mut self, owner: u32) -> bool {
        let volume = self.volume_mut(owner);
        let check = match volume.share.check {
            Check::Every => true,
            Check::Off => false,
            Check::OneIn(many) => {
                // A counter, not a random choice: the interval between checks is bounded.
                volume.unchecked += 1;
                let due = volume.unchecked >= many;
                volume.unchecked = if due { 0 } else { volume.unchecked };
                due
            }
        };
        check && !is_injected(InjectedBug::GuardNotCompared)
    }

    fn add(&mut self, owner: u32, pages: Range<u64>, buf: Buf, ahead: bool) {
        let count = (pages.end - pages.start) as u8;
        assert!(pages.start / GROUP_PAGES == (pages.end - 1) / GROUP_PAGES, "a frame holds pages of one group");
        assert_eq!(buf.len(), usize::from(count) * PAGE_BYTES, "a frame holds all of its pages");
        let mut guards = [0; GROUP_PAGES as usize];
        for (guard, page) in guards.iter_mut().zip(buf.chunks_exact(PAGE_BYTES)) {
            // Computed from the cached copy itself: the cache has a buffer of its own.
            *guard = crc32c(page);
        }
        // A frame has at least one page, so the shift is below 16.
        let live = u16::MAX >> (16 - count);
        let number = self.free.pop().unwrap_or(self.frames.len() as u32);
        let bytes = frame_bytes(count);
        let volume = self.volumes[owner as usize].as_mut().expect("an owner has joined");
        let place = volume.queues.admit(number, pages.start, bytes);
        volume.used += bytes;
        self.used += bytes;
        assert!(self.used <= self.bytes_max, "the cache keeps within its memory");
        // Prefetched pages count as unused until a reader requests them.
        let touched = if ahead { 0 } else { live };
        let (first, data) = (pages.start, buf.freeze());
        let frame = Frame { owner, pages: count, place, hits: 0, live, touched, ahead, first, data, guards };
        match self.frames.get_mut(number as usize) {
            Some(free) => *free = frame,
            None => self.frames.push(frame),
        }
        pages.for_each(|page| self.index.put(owner, page, number));
    }

    /// Evicts frames until `bytes` more fit; false when that is impossible.
    fn make_room(&mut self, owner: u32, bytes: u64) -> bool {
        let share = self.volume(owner).share;
        let bytes_max = share.bytes_max.unwrap_or(u64::MAX).min(self.bytes_max);
        if share.weight == 0 || bytes > bytes_max {
            return false;
        }
        // Its own bound first: at its bound a volume must not take memory from others.
        while self.volume(owner).used + bytes > bytes_max {
            if !self.evict(owner) {
                return false;
            }
        }
        while self.used + bytes > self.bytes_max {
            // A volume at its guarantee evicts its own frames; one below it evicts those of the volume furthest
            // above.
            let own = self.volume(owner).used + bytes > self.entitlement(owner);
            let victim = if own && self.volume(owner).used > 0 { Some(owner) } else { self.most_over() };
            if !victim.is_some_and(|victim| self.evict(victim)) {
                return false;
            }
        }
        true
    }

    /// Volume furthest above its guarantee.
    fn most_over(&self) -> Option<u32> {
        let present = (0..).zip(&self.volumes).filter_map(|(at, volume)| Some((at, volume.as_ref()?)));
        let holding = present.filter(|(_, volume)| volume.used > 0);
        // Signed, because a volume may be below its guarantee.
        holding.max_by_key(|&(at, volume)| i128::from(volume.used) - i128::from(self.entitlement(at))).map(|(at, _)| at)
    }

    /// Evicts one frame of `owner`; false when it has none.
    fn evict(&mut self, owner: u32) -> bool {
        loop {
            let volume = self.volumes[owner as usize].as_mut().expect("an owner has joined");
            let Some((number, _)) = volume.queues.next(volume.used) else { return false };
            let frame = &mut self.frames[number as usize];
            if frame.pages == 0 {
                // A dead frame was met in its queue: its number can be reused now.
                volume.queues.remove_dead();
                self.free.push(number);
                continue;
            }
            let bytes = frame_bytes(frame.pages);
            // Used again while it was in its queue, so S3-FIFO gives it another round in the main queue.
            if frame.hits > 0 {
                volume.queues.keep(number, frame.place, bytes);
                // Promotion from the small queue starts at zero uses; in the main queue each round costs one.
                frame.hits = if frame.place == QueueKind::Small { 0 } else { frame.hits - 1 };
                frame.place = QueueKind::Main;
                continue;
            }
            volume.queues.drop_judged(frame.first, frame.place, bytes);
            volume.counters.evicted_pages += u64::from(frame.live.count_ones());
            // Tells the read-ahead that its window is too large.
            if frame.ahead {
                volume.counters.ahead_wasted_pages += u64::from((frame.live & !frame.touched).count_ones());
            }
            volume.used -= bytes;
            self.used -= bytes;
            let (first, live) = (frame.first, frame.live);
            // Only live pages: the others are in newer frames, or not cached.
            for page in (0..GROUP_PAGES).filter(|page| live >> page & 1 == 1) {
                self.index.take(owner, first + page);
            }
            self.recycle(number);
            self.free.push(number);
            return true;
        }
    }

    /// Frees the memory of a frame without live pages; its number stays in its queue until met there.
    fn kill(&mut self, number: u32) {
        let frame = &self.frames[number as usize];
        let (owner, bytes, place) = (frame.owner, frame_bytes(frame.pages), frame.place);
        self.recycle(number);
        assert!(bytes <= self.volume(owner).used && bytes <= self.used, "every frame is counted");
        self.used -= bytes;
        let volume = self.volume_mut(owner);
        volume.used -= bytes;
        volume.queues.mark_dead(place, bytes);
        if volume.queues.needs_sweep() {
            self.sweep(owner);
        }
    }

    fn sweep(&mut self, owner: u32) {
        let volume = self.volumes[owner as usize].as_mut().expect("an owner has joined");
        let (frames, free) = (&self.frames, &mut self.free);
        volume.queues.sweep(|number| {
            let dead = frames[number as usize].pages == 0;
            if dead {
                free.push(number);
            }
            dead
        });
    }

    /// Recycles the buffer of a frame, unless a reader still holds it.
    fn recycle(&mut self, number: u32) {
        let frame = &mut self.frames[number as usize];
        // Zero pages mark the frame as dead.
        let pages = usize::from(std::mem::replace(&mut frame.pages, 0));
        assert!(pages > 0, "a frame is given up once");
        let data = std::mem::take(&mut frame.data);
        if self.spare_bytes + pages * PAGE_BYTES <= SPARE_BYTES_MAX
            // A reader that still sends the frame keeps its buffer.
            && let Ok(buf) = data.try_into_buf()
        {
            self.spare_bytes += pages * PAGE_BYTES;
            self.spare[pages].push(buf);
        }
    }

    fn buffer(&mut self, pages: usize) -> Buf {
        match self.spare[pages].pop() {
            Some(buf) => {
                self.spare_bytes -= pages * PAGE_BYTES;
                assert_eq!(buf.len(), pages * PAGE_BYTES, "a spare buffer is as long as its list says");
                buf
            }
            // In huge pages (docs/adr/0015): frames are larger than the CPU caches in sum, and are read at random.
            None => Buf::storage(pages * PAGE_BYTES),
        }
    }

    fn volume(&self, owner: u32) -> &Volume {
        self.volumes[owner as usize].as_ref().expect("an owner has joined")
    }

    fn volume_mut(&mut self, owner: u32) -> &mut Volume {
        self.volumes[owner as usize].as_mut().expect("an owner has joined")
    }
}

impl Frame {
    /// Index of the first of `pages` that fails its checksum.
    fn mismatch(&self, pages: Range<usize>) -> Option<usize> {
        pages.clone().find(|&page| crc32c(&self.data[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]) != self.guards[page])
    }

    /// Counts a repeated request; the first request of a page is what it was fetched for.
    fn touch(&mut self, pages: Range<usize>) {
        let mask = (u16::MAX >> (16 - (pages.end - pages.start))) << pages.start;
        if self.touched & mask != 0 {
            self.hits = (self.hits + 1).min(3);
        }
        self.touched |= mask;
    }
}

fn frame_bytes(pages: u8) -> u64 {
    u64::from(pages) * PAGE_BYTES as u64 + FRAME_BYTES
}
