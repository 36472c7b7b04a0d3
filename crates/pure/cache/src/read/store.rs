//! Clean pages in memory: found, checked, put in, taken out, and thrown out when there is no room.
//!
//! Memory is held in *frames* of one to sixteen pages that came in together, so that a random read of 8 KiB
//! holds 8 KiB and a stream holds 64 KiB in one piece. A frame is a buffer of its own: what is dropped is
//! free memory, and a reader who still sends it keeps just that.

use super::index::{GROUP_PAGES, Index, place};
use super::queue::{Place, Queues};
use crate::policy::{Check, Share};
use crate::sabotage::{Sabotage, is_planted};
use block::{Buf, PAGE_BYTES, Rope, View};
use simd::crc32c::crc32c;
use std::ops::Range;

/// What a frame costs beside its data: its entry, its part of the index and of the queues.
const FRAME_BYTES: u64 = 256;
/// Buffers of thrown-out frames kept for the next ones.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// What a volume's part of the read cache has done since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounters {
    /// Pages of 4 KiB that readers found.
    pub hit_pages: u64,
    /// Pages that readers had to wait for.
    pub miss_pages: u64,
    /// Reads that waited for a fetch that another had begun.
    pub joined: u64,
    /// Pages thrown out for others.
    pub evicted_pages: u64,
    /// Pages read ahead.
    pub ahead_pages: u64,
    /// Pages read ahead and thrown out before anybody asked for them.
    pub ahead_wasted_pages: u64,
    /// Pages whose guard did not match.
    pub mismatches: u64,
    /// Bytes of memory that the volume takes now.
    pub used_bytes: u64,
}

/// What a hit of a small frame touches lies in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Frame {
    data: View,
    first: u64,
    owner: u32,
    /// Pages that the index still points to.
    live: u16,
    /// Pages that a reader asked for.
    touched: u16,
    /// How many pages the frame has; zero for a dead one.
    pages: u8,
    /// How often pages were used again, up to three.
    hits: u8,
    place: Place,
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

/// A cached page that does not match its guard; it is dropped already.
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

    /// Bytes that `owner` may always have.
    pub(super) fn entitlement(&self, owner: u32) -> u64 {
        let share = self.volume(owner).share;
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
        for at in 0..self.frames.len() {
            if self.frames[at].owner == owner && self.frames[at].pages > 0 {
                let first = self.frames[at].first;
                self.remove(owner, first..first + u64::from(self.frames[at].pages));
            }
        }
        self.sweep(owner);
    }

    /// True when every page of `pages` is there.
    pub(super) fn has(&self, owner: u32, page: u64) -> bool {
        self.index.frame(owner, page).is_some()
    }

    /// Adds the pages from `pages.start` on to `rope`, as many as there are without a gap, and returns where it ended.
    pub(super) fn take(&mut self, owner: u32, pages: Range<u64>, rope: &mut Rope) -> Result<u64, Mismatch> {
        let check = self.checks(owner);
        let mut at = pages.start;
        while at < pages.end {
            let Some(group) = self.index.group(owner, at) else { break };
            let number = group[place(at)];
            let Some(frame) = self.frames.get_mut(number as usize) else { break };
            assert!(frame.owner == owner, "a page of a volume is in a frame of that volume");
            let from = (at - frame.first) as usize;
            let end = pages.end.min(frame.first + u64::from(frame.pages));
            let mut to = from + 1;
            // Pages of a frame may have been overwritten since and live elsewhere.
            while frame.first + (to as u64) < end && frame.live >> to & 1 == 1 {
                to += 1;
            }
            let bytes = from * PAGE_BYTES..to * PAGE_BYTES;
            if check && let Some(bad) = frame.mismatch(from..to) {
                let page = frame.first + bad as u64;
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

    /// A reader who waited for the fetch of `pages` has them: what was read ahead was not in vain.
    pub(super) fn touch(&mut self, owner: u32, pages: Range<u64>) {
        for page in pages {
            if let Some(number) = self.index.frame(owner, page) {
                let frame = &mut self.frames[number as usize];
                frame.touched |= 1 << (page - frame.first);
            }
        }
    }

    /// Puts `pages`, whose content `rope` is, into the cache; as many as there is room for.
    pub(super) fn insert(&mut self, owner: u32, pages: Range<u64>, rope: &Rope, ahead: bool) {
        assert_eq!(rope.len() as u64, (pages.end - pages.start) * PAGE_BYTES as u64, "every page has its content");
        let mut at = pages.start;
        while at < pages.end {
            let end = pages.end.min((at / GROUP_PAGES + 1) * GROUP_PAGES);
            self.remove(owner, at..end);
            let bytes = (at - pages.start) as usize * PAGE_BYTES..(end - pages.start) as usize * PAGE_BYTES;
            if self.make_room(owner, frame_bytes((end - at) as u8)) {
                let mut buf = self.buffer((end - at) as usize);
                rope.slice(bytes).copy_to(&mut buf);
                self.add(owner, at..end, buf, ahead);
            }
            at = end;
        }
    }

    /// Drops `pages`; true when one of them was there.
    pub(super) fn remove(&mut self, owner: u32, pages: Range<u64>) -> bool {
        let mut found = false;
        let mut at = pages.start;
        while at < pages.end {
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

    /// Flips one bit of a cached page, as bad memory would; false when the page is not there.
    #[cfg(test)]
    pub(super) fn flip_bit(&mut self, owner: u32, page: u64) -> bool {
        let Some(number) = self.index.frame(owner, page) else { return false };
        let frame = &mut self.frames[number as usize];
        let at = (page - frame.first) as usize * PAGE_BYTES + 1234;
        match std::mem::take(&mut frame.data).try_thaw() {
            Ok(mut buf) => {
                buf[at] ^= 4;
                frame.data = buf.freeze();
                true
            }
            // A reader has it: his bytes stay as they are.
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
                volume.unchecked += 1;
                let due = volume.unchecked >= many;
                volume.unchecked = if due { 0 } else { volume.unchecked };
                due
            }
        };
        check && !is_planted(Sabotage::GuardNotCompared)
    }

    fn add(&mut self, owner: u32, pages: Range<u64>, buf: Buf, ahead: bool) {
        let count = (pages.end - pages.start) as u8;
        assert!(pages.start / GROUP_PAGES == (pages.end - 1) / GROUP_PAGES, "a frame holds pages of one group");
        assert_eq!(buf.len(), usize::from(count) * PAGE_BYTES, "a frame holds all of its pages");
        let mut guards = [0; GROUP_PAGES as usize];
        for (guard, page) in guards.iter_mut().zip(buf.chunks_exact(PAGE_BYTES)) {
            *guard = crc32c(page);
        }
        let live = u16::MAX >> (16 - count);
        let number = self.free.pop().unwrap_or(self.frames.len() as u32);
        let bytes = frame_bytes(count);
        let volume = self.volumes[owner as usize].as_mut().expect("an owner has joined");
        let place = volume.queues.admit(number, pages.start, bytes);
        volume.used += bytes;
        self.used += bytes;
        assert!(self.used <= self.bytes_max, "the cache keeps within its memory");
        let touched = if ahead { 0 } else { live };
        let (first, data) = (pages.start, buf.freeze());
        let frame = Frame { owner, pages: count, place, hits: 0, live, touched, ahead, first, data, guards };
        match self.frames.get_mut(number as usize) {
            Some(free) => *free = frame,
            None => self.frames.push(frame),
        }
        pages.for_each(|page| self.index.put(owner, page, number));
    }

    /// Throws out frames until `bytes` more fit; false when they cannot.
    fn make_room(&mut self, owner: u32, bytes: u64) -> bool {
        let share = self.volume(owner).share;
        let bytes_max = share.bytes_max.unwrap_or(u64::MAX).min(self.bytes_max);
        if share.weight == 0 || bytes > bytes_max {
            return false;
        }
        while self.volume(owner).used + bytes > bytes_max {
            if !self.evict(owner) {
                return false;
            }
        }
        while self.used + bytes > self.bytes_max {
            // Who has its part pays for what it adds; who has less takes from the one that has most too much.
            let own = self.volume(owner).used + bytes > self.entitlement(owner);
            let victim = if own && self.volume(owner).used > 0 { Some(owner) } else { self.most_over() };
            if !victim.is_some_and(|victim| self.evict(victim)) {
                return false;
            }
        }
        true
    }

    /// The volume that has most beyond what it may always have.
    fn most_over(&self) -> Option<u32> {
        let present = (0..).zip(&self.volumes).filter_map(|(at, volume)| Some((at, volume.as_ref()?)));
        let holding = present.filter(|(_, volume)| volume.used > 0);
        holding.max_by_key(|&(at, volume)| i128::from(volume.used) - i128::from(self.entitlement(at))).map(|(at, _)| at)
    }

    /// Throws out one frame of `owner`; false when there is none.
    fn evict(&mut self, owner: u32) -> bool {
        loop {
            let volume = self.volumes[owner as usize].as_mut().expect("an owner has joined");
            let Some((number, _)) = volume.queues.next(volume.used) else { return false };
            let frame = &mut self.frames[number as usize];
            if frame.pages == 0 {
                volume.queues.exhume();
                self.free.push(number);
                continue;
            }
            let bytes = frame_bytes(frame.pages);
            if frame.hits > 0 {
                volume.queues.keep(number, frame.place, bytes);
                frame.hits = if frame.place == Place::Small { 0 } else { frame.hits - 1 };
                frame.place = Place::Main;
                continue;
            }
            volume.queues.drop_judged(frame.first, frame.place, bytes);
            volume.counters.evicted_pages += u64::from(frame.live.count_ones());
            if frame.ahead {
                volume.counters.ahead_wasted_pages += u64::from((frame.live & !frame.touched).count_ones());
            }
            volume.used -= bytes;
            self.used -= bytes;
            let (first, live) = (frame.first, frame.live);
            for page in (0..GROUP_PAGES).filter(|page| live >> page & 1 == 1) {
                self.index.take(owner, first + page);
            }
            self.recycle(number);
            self.free.push(number);
            return true;
        }
    }

    /// A frame without live pages gives up its memory; its number stays in its queue until met there.
    fn kill(&mut self, number: u32) {
        let frame = &self.frames[number as usize];
        let (owner, bytes, place) = (frame.owner, frame_bytes(frame.pages), frame.place);
        self.recycle(number);
        assert!(bytes <= self.volume(owner).used && bytes <= self.used, "every frame is counted");
        self.used -= bytes;
        let volume = self.volume_mut(owner);
        volume.used -= bytes;
        volume.queues.bury(place, bytes);
        if volume.queues.is_littered() {
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

    /// Takes the memory of a frame back for the next one, unless a reader still has it.
    fn recycle(&mut self, number: u32) {
        let frame = &mut self.frames[number as usize];
        let pages = usize::from(std::mem::replace(&mut frame.pages, 0));
        assert!(pages > 0, "a frame is given up once");
        let data = std::mem::take(&mut frame.data);
        if self.spare_bytes + pages * PAGE_BYTES <= SPARE_BYTES_MAX
            && let Ok(buf) = data.try_thaw()
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
    /// The first of `pages` that does not match its guard.
    fn mismatch(&self, pages: Range<usize>) -> Option<usize> {
        pages.clone().find(|&page| crc32c(&self.data[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]) != self.guards[page])
    }

    /// A page that is asked for a second time counts; the first time it only did what it was fetched for.
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
