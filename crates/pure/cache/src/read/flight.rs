//! Fetches and writes in flight on one volume: readers share fetches (single-flight), and writes spoil them.
//!
//! Coherence rule: content that was read while a write of the same pages was in flight, or before one that has ended
//! since, is returned only to readers that asked before the write ended, and never enters the cache.

use crate::bug_injection::{InjectedBug, is_injected};
use block::{PAGE_BYTES, Rope};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Number of abandoned ranges above which they are merged into one.
const ABANDONED_MAX: usize = 64;

/// Fetches and writes in flight on one volume.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Rc<RefCell<Table>>);

#[derive(Debug, Default)]
struct Table {
    fetches: Vec<Rc<Fetch>>,
    writes: Vec<Write>,
    /// Pages whose write was dropped: they may still change on the device, until they are written completely again.
    abandoned: Vec<Range<u64>>,
    next_id: u64,
}

#[derive(Debug)]
struct Write {
    id: u64,
    pages: Range<u64>,
    /// True where another write of these pages was in flight at the same time.
    disturbed: bool,
}

/// Fetch in flight.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) pages: Range<u64>,
    state: RefCell<FetchState>,
}

#[derive(Debug, Default)]
struct FetchState {
    spoiled: SmallVec<[Range<u64>; 1]>,
    outcome: Option<Option<Rope>>,
    waiting: SmallVec<[Waker; 2]>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl InFlight {
    /// Starts a fetch of `pages`; the caller reads them below and reports the outcome.
    pub(super) fn lead(&self, pages: Range<u64>) -> Leading {
        let mut table = self.0.borrow_mut();
        // A write in flight at the start spoils the fetch as one that starts later does.
        let writes = table.writes.iter().map(|write| &write.pages).chain(&table.abandoned);
        let spoiled = writes.filter(|range| overlap(range, &pages)).cloned().collect();
        let fetch = Rc::new(Fetch { pages, state: RefCell::new(FetchState { spoiled, ..FetchState::default() }) });
        table.fetches.push(fetch.clone());
        Leading { in_flight: self.clone(), fetch, is_completed: false }
    }

    /// Finds a fetch in flight that returns the current content of `page`; also returns the page up to which it does.
    pub(super) fn join(&self, page: u64) -> Option<(Rc<Fetch>, u64)> {
        let table = self.0.borrow();
        // A spoiled page is not joined: the fetch may have read it before a write that has ended since.
        let fetch = table.fetches.iter().find(|fetch| fetch.pages.contains(&page) && fetch.is_unspoiled(page))?;
        Some((fetch.clone(), fetch.unspoiled_up_to(page)))
    }

    /// First start of a fetch within `pages` behind their own start; their end if there is none.
    pub(super) fn next_fetch(&self, pages: Range<u64>) -> u64 {
        let table = self.0.borrow();
        // A fetch from the first page on was not joined, so it is spoiled there and does not count.
        let starts = table.fetches.iter().map(|fetch| fetch.pages.start).filter(|start| *start > pages.start);
        starts.min().map_or(pages.end, |start| start.min(pages.end))
    }

    /// Starts a write of `pages`, which spoils every fetch of them that is in flight.
    pub(super) fn write(&self, pages: Range<u64>) -> Writing {
        let mut table = self.0.borrow_mut();
        let id = table.next_id;
        table.next_id += 1;
        let mut disturbed = false;
        for other in table.writes.iter_mut().filter(|other| overlap(&other.pages, &pages)) {
            // Of two overlapping writes in flight it is not known which one lands last.
            other.disturbed = true;
            disturbed = true;
        }
        // The range stays spoiled when this write has ended: the fetch may have read before it.
        for fetch in table.fetches.iter().filter(|fetch| overlap(&fetch.pages, &pages)) {
            fetch.state.borrow_mut().spoiled.push(pages.clone());
        }
        table.writes.push(Write { id, pages, disturbed });
        Writing { in_flight: self.clone(), id: Some(id) }
    }
}

impl Fetch {
    fn is_unspoiled(&self, page: u64) -> bool {
        is_injected(InjectedBug::JoinSpoiledFetch)
            || !self.state.borrow().spoiled.iter().any(|range| range.contains(&page))
    }

    /// End of the unspoiled pages from `page` on.
    fn unspoiled_up_to(&self, page: u64) -> u64 {
        if is_injected(InjectedBug::JoinSpoiledFetch) {
            return self.pages.end;
        }
        let state = self.state.borrow();
        // Ranges that start before `page` also end before it, because `page` itself is unspoiled.
        let bad = state.spoiled.iter().map(|range| range.start).filter(|&start| start > page);
        bad.fold(self.pages.end, u64::min)
    }

    /// Parts of the fetch that no write has touched since it began.
    fn unspoiled_parts(&self) -> SmallVec<[Range<u64>; 2]> {
        let mut parts: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        parts.push(self.pages.clone());
        if is_injected(InjectedBug::FetchRacesWrite) {
            return parts;
        }
        for bad in &self.state.borrow().spoiled {
            let cut = parts.iter().flat_map(|part| {
                // What remains of a part on both sides of a spoiled range.
                let before = part.start..part.end.min(bad.start);
                let behind = part.start.max(bad.end)..part.end;
                if overlap(part, bad) { [before, behind] } else { [part.clone(), 0..0] }
            });
            parts = cut.filter(|part| part.start < part.end).collect();
        }
        parts
    }

    /// Waits for the content of the fetch; `None` when it failed or was dropped.
    pub(super) async fn wait(&self) -> Option<Rope> {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if let Some(outcome) = &state.outcome {
                return Poll::Ready(outcome.clone());
            }
            // Each reader once, however often it is polled.
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

/// Leader of a fetch, which reports its outcome; dropping it means failure.
#[derive(Debug)]
pub(super) struct Leading {
    in_flight: InFlight,
    fetch: Rc<Fetch>,
    is_completed: bool,
}

impl Leading {
    /// Completes the fetch with `rope`. Returns the parts that may enter the cache.
    pub(super) fn complete(mut self, rope: &Rope) -> SmallVec<[Range<u64>; 2]> {
        let pages = self.fetch.pages.end - self.fetch.pages.start;
        assert_eq!(rope.len() as u64, pages * PAGE_BYTES as u64, "a fetch brings all of its pages");
        self.is_completed = true;
        self.end(Some(rope.clone()));
        self.fetch.unspoiled_parts()
    }

    fn end(&self, outcome: Option<Rope>) {
        // Before the waiters run: a new reader must not join a fetch that has ended.
        self.in_flight.0.borrow_mut().fetches.retain(|fetch| !Rc::ptr_eq(fetch, &self.fetch));
        let waiting = {
            let mut state = self.fetch.state.borrow_mut();
            assert!(state.outcome.is_none(), "a fetch ends once");
            state.outcome = Some(outcome);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.is_completed {
            self.end(None);
        }
    }
}

/// Write in flight; after a drop it is not known whether it was executed.
#[derive(Debug)]
pub(super) struct Writing {
    in_flight: InFlight,
    id: Option<u64>,
}

impl Writing {
    /// Ends the write. True when no other write of its pages was in flight at the same time.
    pub(super) fn end(mut self) -> bool {
        let Some(write) = self.take() else { return false };
        let mut table = self.in_flight.0.borrow_mut();
        // A complete overwrite makes the content known again.
        table.abandoned.retain(|range| !(write.pages.start <= range.start && range.end <= write.pages.end));
        // The content stays unknown where this write has covered a dropped one only in part.
        let still = table.abandoned.iter().any(|range| overlap(range, &write.pages));
        !write.disturbed && !still
    }

    fn take(&mut self) -> Option<Write> {
        let id = self.id.take()?;
        let mut table = self.in_flight.0.borrow_mut();
        let at = table.writes.iter().position(|write| write.id == id)?;
        Some(table.writes.swap_remove(at))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Some(write) = self.take() else { return };
        // The device may still execute the write, at any time: what is read here from now on may change without notice.
        let abandoned = &mut self.in_flight.0.borrow_mut().abandoned;
        abandoned.push(write.pages);
        if abandoned.len() > ABANDONED_MAX {
            // Merged conservatively: more pages than necessary stay uncached.
            let start = abandoned.iter().map(|range| range.start).min().unwrap_or(0);
            let end = abandoned.iter().map(|range| range.end).max().unwrap_or(0);
            abandoned.clear();
            abandoned.push(start..end);
        }
    }
}
