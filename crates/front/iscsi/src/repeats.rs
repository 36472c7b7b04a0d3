//! What happens over and over is told at once, and then how often more: one event for each cause and while.

use engine::Events;
use model::{EventCode, Raised, Subject, Timestamp};
use shard::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// How long it is counted before it is told again.
const WHILE: Duration = Duration::from_secs(30);
/// Causes that are told apart at once; further ones wait until one of these has ended.
const CAUSES_MAX: usize = 64;

/// Tells of what one sort of event is about. Dropped, it tells no more.
pub struct Repeats<W: World> {
    world: W,
    events: Events,
    code: EventCode,
    causes: Rc<RefCell<BTreeMap<String, Cause>>>,
}

/// Something that has happened and was told.
struct Cause {
    subject: Subject,
    /// Who did what, as it begins the sentence.
    what: String,
    /// How often more, since.
    more: u64,
}

impl<W: World> Repeats<W> {
    /// Nothing has happened yet.
    pub fn told_to(world: W, events: Events, code: EventCode) -> Self {
        Self { world, events, code, causes: Rc::default() }
    }

    /// The cause has happened once more. The first time it is told as `what` of its subject, and `how`.
    pub fn happened(&self, cause: &str, told: impl FnOnce() -> (Subject, String, String)) {
        let mut causes = self.causes.borrow_mut();
        if let Some(known) = causes.get_mut(cause) {
            known.more += 1;
            return;
        }
        if causes.len() >= CAUSES_MAX {
            return;
        }
        let (subject, what, how) = told();
        raise(&self.world, &self.events, self.code, subject.clone(), format!("{what}: {how}"));
        causes.insert(cause.to_owned(), Cause { subject, what, more: 0 });
        drop(causes);
        self.world.spawn(self.count(cause.to_owned()));
    }

    /// Says how often more, after each while, until there is one in which nothing happens.
    fn count(&self, cause: String) -> impl Future<Output = ()> + 'static {
        let (world, events, code, causes) = (self.world.clone(), self.events.clone(), self.code, self.causes.clone());
        let causes_left = Rc::downgrade(&causes);
        drop(causes);
        async move {
            loop {
                world.sleep(WHILE).await;
                let Some(causes) = causes_left.upgrade() else { return };
                let mut causes = causes.borrow_mut();
                let Some(known) = causes.get_mut(&cause).filter(|known| known.more > 0) else {
                    causes.remove(&cause);
                    return;
                };
                let more = std::mem::take(&mut known.more);
                let sentence = format!("{}: {more} more in {} s", known.what, WHILE.as_secs());
                raise(&world, &events, code, known.subject.clone(), sentence);
            }
        }
    }
}

fn raise<W: World>(world: &W, events: &Events, code: EventCode, subject: Subject, sentence: String) {
    let now = Timestamp::from_unix(world.unix_seconds());
    events.raise(Raised::new(now, code, subject, sentence));
}
