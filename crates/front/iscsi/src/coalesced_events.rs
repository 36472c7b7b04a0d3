//! Coalescing of repeated events: the first occurrence of a cause is raised immediately, further ones are counted and
//! summarized once per interval.

use engine::Events;
use model::{EventCode, Raised, Subject, Timestamp};
use shard::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Interval between the summaries of a cause.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(30);
/// Upper bound of causes that are tracked at the same time. Further causes are not reported until one of these has
/// expired.
const CAUSES_MAX: usize = 64;

/// Rate-limited source of events with one code. Dropping it ends all pending summaries.
pub struct CoalescedEvents<W: World> {
    world: W,
    events: Events,
    code: EventCode,
    causes: Rc<RefCell<BTreeMap<String, Cause>>>,
}

/// Cause that was reported and is being counted.
struct Cause {
    subject: Subject,
    /// Subject and action, which begin the sentence of each event.
    what: String,
    /// Occurrences since the latest event.
    more: u64,
}

impl<W: World> CoalescedEvents<W> {
    /// Creates a source of events with `code` and without tracked causes.
    pub fn new(world: W, events: Events, code: EventCode) -> Self {
        Self { world, events, code, causes: Rc::default() }
    }

    /// Counts an occurrence of `cause`. The first one raises an event immediately: `told` returns its subject, the
    /// action, and the details that follow the action.
    pub fn record(&self, cause: &str, told: impl FnOnce() -> (Subject, String, String)) {
        let mut causes = self.causes.borrow_mut();
        if let Some(known) = causes.get_mut(cause) {
            known.more += 1;
            return;
        }
        // Causes come from hosts, so their number is bounded: an attacker must not fill memory or the event log.
        if causes.len() >= CAUSES_MAX {
            return;
        }
        let (subject, what, how) = told();
        raise(&self.world, &self.events, self.code, subject.clone(), format!("{what}: {how}"));
        causes.insert(cause.to_owned(), Cause { subject, what, more: 0 });
        // The borrow ends before the task is spawned, because the task borrows the map itself.
        drop(causes);
        // One timer task for each tracked cause; it removes the cause after an interval without occurrences.
        self.world.spawn(self.count(cause.to_owned()));
    }

    /// Raises a summary after each interval, and stops after an interval without occurrences.
    fn count(&self, cause: String) -> impl Future<Output = ()> + 'static {
        let (world, events, code, causes) = (self.world.clone(), self.events.clone(), self.code, self.causes.clone());
        // A weak reference: the task must not keep the map of a dropped source alive.
        let causes_left = Rc::downgrade(&causes);
        drop(causes);
        async move {
            loop {
                world.sleep(SUMMARY_INTERVAL).await;
                // The source was dropped: no summary follows.
                let Some(causes) = causes_left.upgrade() else { return };
                let mut causes = causes.borrow_mut();
                let Some(known) = causes.get_mut(&cause).filter(|known| known.more > 0) else {
                    // The next occurrence is a first one again, and is raised immediately.
                    causes.remove(&cause);
                    return;
                };
                let more = std::mem::take(&mut known.more);
                let sentence = format!("{}: {more} more in {} s", known.what, SUMMARY_INTERVAL.as_secs());
                raise(&world, &events, code, known.subject.clone(), sentence);
            }
        }
    }
}

fn raise<W: World>(world: &W, events: &Events, code: EventCode, subject: Subject, sentence: String) {
    let now = Timestamp::from_unix(world.unix_seconds());
    events.raise(Raised::new(now, code, subject, sentence));
}
